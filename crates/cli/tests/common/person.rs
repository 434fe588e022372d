//! A person at a terminal, and a home with a policy that names them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use hotcell_approver::{Approver, Public, SignedPolicy};
use hotcell_record::{Durability, Options, ReadError, Record};
use hotcell_review::versions::{self, Rules, Version};
#[path = "pty.rs"]
mod pty;

pub(crate) use pty::Pty;

pub(crate) const PASSPHRASE: &str = "correct horse";

/// A command at a terminal, where these are typed at the prompts; what it printed, and the screen.
pub(crate) fn at_terminal(command: &Command, typed: &[(&str, &str)]) -> (Output, String) {
    let (mut pty, mut child) = Pty::start(command);
    for (prompt, typed) in typed {
        pty.wait_for(prompt);
        pty.write(format!("{typed}\n").as_bytes());
    }
    pty.until_end(&mut child);
    let output = child.wait_with_output().unwrap();
    (output, String::from_utf8_lossy(&pty.seen).into_owned())
}

/// Makes a policy the one of a home. Whoever is in `also` may answer as well.
pub(crate) fn follow(home: &Path, also: &[Public], rules: &str) {
    follow_with(home, also, rules, BTreeMap::new());
}

/// The same, with the sources of its extensions.
pub(crate) fn follow_with(
    home: &Path,
    also: &[Public],
    rules: &str,
    extensions: BTreeMap<String, String>,
) {
    let signer = Approver::make("signer".parse().unwrap()).unwrap();
    let mut text = format!("approvers:\n  - {}\n", signer.public());
    also.iter().for_each(|public| text.push_str(&format!("  - {public}\n")));
    text.push_str(rules);
    let rules = Rules { text: text.clone(), extensions };
    let record = Record::open(home, Options::default()).unwrap();
    let statement = versions::statement(&rules, record.home_id().0, 0, 0);
    let version = Version { rules, signed: SignedPolicy::sign(&signer, statement) };
    let added = record.write(Durability::Synced, move |tx| {
        hotcell_review::migrate(tx)?;
        versions::add(tx, &version)?;
        Ok::<_, Failed>(((), Vec::new()))
    });
    added.unwrap();
    record.close().unwrap();
    std::fs::write(home.join("policy.yaml"), text).unwrap();
}

#[derive(Debug)]
struct Failed(#[expect(dead_code, reason = "it is shown")] io::Error);

impl From<hotcell_review::Error> for Failed {
    fn from(error: hotcell_review::Error) -> Failed {
        Failed(io::Error::other(error.to_string()))
    }
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Failed {
        Failed(io::Error::other(error.to_string()))
    }
}
