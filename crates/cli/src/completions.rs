//! `hotcell completions`: scripts that complete hotcell's options in a shell.

use clap::ValueEnum;
use clap_complete::Shell;

use crate::print;

/// Prints a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hotcell completions bash > ~/.local/share/bash-completion/completions/hotcell
  hotcell completions fish > ~/.config/fish/completions/hotcell.fish")]
pub(crate) struct Args {
    shell: Supported,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn main(args: Args, command: &mut clap::Command) -> u8 {
    let shell = match args.shell {
        Supported::Bash => Shell::Bash,
        Supported::Zsh => Shell::Zsh,
        Supported::Fish => Shell::Fish,
    };
    // Into memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "hotcell", &mut script);
    print::data(&String::from_utf8_lossy(&script))
}
