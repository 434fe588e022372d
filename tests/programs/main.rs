//! Real programs in the real binary, under the profile that `hotcell run` gives: what people run has to
//! run, print what it prints outside, and need no call that the profile refuses.
//!
//! `HOTCELL_BIN` names the binary; without it the release build of this repository is made and used.

mod binary;
mod environments;
mod humaneval;
mod network;
mod node;
#[path = "../../crates/cli/tests/common/pty.rs"]
#[expect(dead_code, reason = "the tests of the command line need more of it")]
mod pty;
mod python;
mod science;
mod shell;
mod support;
mod tools;
