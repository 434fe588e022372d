//! `hotcell approver`: the key of a person who answers what waits.

use hotcell_approver::Public;
use hotcell_types::Name;
use serde_json::json;

use crate::config::Config;
use crate::problem::{self, Problem};
use crate::{key, print};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes a key, sealed with a passphrase that is typed at the terminal
    ///
    /// It is kept in HOME/keys/approver.key. A policy that names its line lets it answer.
    New {
        /// Who it is; not the name of anybody who asks for things
        name: Name,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Prints the line of this home's key, as policies name it
    Show {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::New { name, json } => (new(name, json), json),
        Command::Show { json } => (show(json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn new(name: Name, json: bool) -> Result<u8, Problem> {
    let home = Config::load()?.settings().home;
    let file = key::path(&home);
    if file.symlink_metadata().is_ok() {
        return Err(Problem::invalid(format!("`{}` is there already", file.display()))
            .why("whoever has it may have answered with it")
            .fix("`hotcell approver show` prints its line; to use another, move it away"));
    }
    let approver = key::make(&home, name, &mut key::terminal()?)?;
    let code = print::data(&told(&approver.public(), json));
    print::to_people(&format!(
        "hotcell: the key is in `{}`; a policy that names the line above under `approvers:` lets it answer\n",
        file.display()
    ));
    Ok(code)
}

fn show(json: bool) -> Result<u8, Problem> {
    let public = key::read(&Config::load()?.settings().home)?.public().clone();
    Ok(print::data(&told(&public, json)))
}

fn told(public: &Public, json: bool) -> String {
    if !json {
        return format!("{public}\n");
    }
    print::document(&json!({
        "version": 1, "name": public.name(), "fingerprint": public.fingerprint().to_string(),
        "line": public.to_string(),
    }))
}
