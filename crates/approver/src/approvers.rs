//! Who may answer: the approvers that a home knows, one line each.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use hotcell_types::Name;

use crate::key::{Fingerprint, Public};
use crate::private::{self, FileError};

/// Most approvers of a home.
pub const MOST_APPROVERS: usize = 64;

/// A set of approvers: no key is there twice, and no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvers(Vec<Public>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadApprovers {
    #[error("line {0} is not an approver: `hotcell-approver ed25519 KEY NAME`")]
    Line(usize),
    #[error("there are two approvers with the name or the key of `{0}`")]
    Twice(Name),
    #[error("a home has at most {MOST_APPROVERS} approvers")]
    TooMany,
}

impl Approvers {
    pub fn new(approvers: impl IntoIterator<Item = Public>) -> Result<Approvers, BadApprovers> {
        let mut set = Approvers::default();
        for public in approvers {
            let is_known = |known: &Public| {
                known.name() == public.name() || known.fingerprint() == public.fingerprint()
            };
            if set.0.iter().any(is_known) {
                return Err(BadApprovers::Twice(public.name().clone()));
            }
            if set.0.len() == MOST_APPROVERS {
                return Err(BadApprovers::TooMany);
            }
            set.0.push(public);
        }
        Ok(set)
    }

    /// From a file that nobody else can read or write, in such a directory: who can write it, can answer.
    pub fn read(path: &Path) -> Result<Approvers, FileError> {
        let text = private::read(path)?;
        let fix = "write one line for each, as the approver's own hotcell prints it";
        text.parse().map_err(|error: BadApprovers| FileError::new(path, error.to_string(), fix))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Public> {
        self.0.iter()
    }

    pub fn by_fingerprint(&self, fingerprint: Fingerprint) -> Option<&Public> {
        self.0.iter().find(|known| known.fingerprint() == fingerprint)
    }

    pub fn by_key(&self, key: &[u8; 32]) -> Option<&Public> {
        self.0.iter().find(|known| known.key() == key)
    }
}

impl fmt::Display for Approvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|public| writeln!(f, "{public}"))
    }
}

impl FromStr for Approvers {
    type Err = BadApprovers;

    /// Every line is an approver; there is nothing else.
    fn from_str(text: &str) -> Result<Approvers, BadApprovers> {
        // One more than may be there is enough to see that there are too many.
        let lines = (1..).zip(text.lines()).take(MOST_APPROVERS + 1);
        let all = lines.map(|(number, line)| line.parse().map_err(|_| BadApprovers::Line(number)));
        Approvers::new(all.collect::<Result<Vec<Public>, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Approver;

    fn public(seed: u8, name: &str) -> Public {
        Approver::from_seed(&[seed; 32], name.parse().unwrap()).public()
    }

    #[test]
    fn approvers_are_read_as_they_are_written() {
        let (alice, bob) = (public(1, "alice"), public(2, "bob"));
        let both = Approvers::new([alice.clone(), bob.clone()]).unwrap();
        assert_eq!(both.to_string().parse(), Ok(both.clone()));
        assert_eq!("".parse(), Ok(Approvers::default()));
        assert_eq!(both.by_fingerprint(bob.fingerprint()), Some(&bob));
        assert_eq!(both.by_key(alice.key()), Some(&alice));
        assert_eq!(both.by_key(&[0; 32]), None);

        use BadApprovers::*;
        let many: String = (0..=MOST_APPROVERS as u8)
            .map(|seed| format!("{}\n", public(seed, &format!("a{seed}"))))
            .collect();
        for (text, expected) in [
            (format!("{alice}\n{}\n", public(2, "alice")), Twice("alice".parse().unwrap())),
            (format!("{alice}\n{}\n", public(1, "bob")), Twice("bob".parse().unwrap())),
            (format!("{alice}\n\n{bob}\n"), Line(2)),
            (format!("{alice}\n# bob\n"), Line(2)),
            (format!(" {alice}\n"), Line(1)),
            (many, TooMany),
        ] {
            assert_eq!(text.parse::<Approvers>(), Err(expected), "{text}");
        }
    }
}
