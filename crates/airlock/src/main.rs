//! The program in its own sandbox. Its standard input, a socket, is all that it has.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let control = io::stdin().as_fd().try_clone_to_owned();
    match control.and_then(hotcell_airlock::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
