//! The published attacks, by id: what each is stopped by, and that it succeeds without it.

mod attest;
mod cross_run;
mod egress;
mod filesystem;
mod network;
mod process;
mod resources;
mod syscalls;
mod victim;
