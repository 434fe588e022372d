//! Real programs in the real binary, under the profile that `hotcell run` gives: what people run has to
//! run, print what it prints outside, and need no call that the profile refuses.
//!
//! `HOTCELL_BIN` names the binary; without it the release build of this repository is made and used.

mod binary;
mod environments;
mod humaneval;
mod node;
mod python;
mod science;
mod shell;
mod support;
mod tools;
