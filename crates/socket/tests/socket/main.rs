//! The local door from both sides, over real sockets.

mod attack;
mod desk;
mod frames;
mod listen;
mod memory;
mod speed;
mod stop;
mod talk;
mod versions;
