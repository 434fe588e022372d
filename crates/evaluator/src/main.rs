//! The program in the policy sandbox. Its standard input and output are all that it has.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    match hotcell_evaluator::run(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
