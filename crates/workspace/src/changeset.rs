//! What a run changed, as data: shown to people, judged path by path, stored, applied.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::relative::shown;
use crate::{Digest, Relative};

/// What a run changed in its copy of a tree, and what of that is not taken over and why. The changes are
/// sorted by path, each path is there once, and no change contradicts another: there is one spelling of a
/// changeset, and reading any other fails.
///
/// Files are all that counts. A directory is there when something is in it, as for git.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Changeset {
    changes: Vec<Change>,
    skipped: Vec<Skipped>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: Relative,
    pub kind: ChangeKind,
    /// What was there. A modified or deleted file without it was changed by somebody else as well while the
    /// run went on, and cannot be applied.
    pub before: Option<Digest>,
    /// What is to be there.
    pub after: Option<Digest>,
    /// How many bytes that has.
    pub bytes: u64,
    pub executable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// Something that was left alone. Its path is for people: it need not be one that can be opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}

impl Skipped {
    pub(crate) fn new(path: &Relative, why: impl ToString) -> Skipped {
        Skipped { path: path.as_str().into(), why: why.to_string() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    changes: Vec<Change>,
    skipped: Vec<Skipped>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadChangeset {
    #[error("there are more than {} changes, or skipped things", Changeset::MOST)]
    TooMany,
    #[error("the changes are not sorted, or `{0}` is there twice")]
    Order(Relative),
    #[error("`{0}` would be a file and a directory")]
    FileAndDirectory(Relative),
    #[error("`{0}` has contents that do not go with what happened to it")]
    Contents(Relative),
}

impl Changeset {
    /// Most changes, and most skipped things: in a tree of the usual size everything may be deleted and as
    /// much added.
    pub const MOST: usize = 200_000;

    /// Sorts what was found.
    pub fn new(
        mut changes: Vec<Change>,
        mut skipped: Vec<Skipped>,
    ) -> Result<Changeset, BadChangeset> {
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        skipped.sort();
        Changeset::sorted(changes, skipped)
    }

    fn sorted(changes: Vec<Change>, skipped: Vec<Skipped>) -> Result<Changeset, BadChangeset> {
        if changes.len().max(skipped.len()) > Changeset::MOST {
            return Err(BadChangeset::TooMany);
        }
        for (one, next) in changes.iter().zip(changes.iter().skip(1)) {
            if one.path >= next.path {
                return Err(BadChangeset::Order(next.path.clone()));
            }
        }
        if let Some(change) = changes.iter().find(|change| !change.is_sound()) {
            return Err(BadChangeset::Contents(change.path.clone()));
        }
        let written = changes.iter().filter(|change| change.after.is_some());
        let written: BTreeSet<&Relative> = written.map(|change| &change.path).collect();
        match written.iter().find_map(|path| path.ancestors().find(|above| written.contains(above)))
        {
            Some(both) => Err(BadChangeset::FileAndDirectory(both)),
            None => Ok(Changeset { changes, skipped }),
        }
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change {
    fn is_sound(&self) -> bool {
        match self.kind {
            ChangeKind::Added => self.before.is_none() && self.after.is_some(),
            ChangeKind::Modified => self.after.is_some(),
            ChangeKind::Deleted => self.after.is_none() && self.bytes == 0 && !self.executable,
        }
    }
}

impl TryFrom<Raw> for Changeset {
    type Error = BadChangeset;

    fn try_from(raw: Raw) -> Result<Changeset, BadChangeset> {
        Changeset::sorted(raw.changes, raw.skipped)
    }
}

impl ChangeKind {
    pub fn letter(self) -> char {
        match self {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.letter(), shown(self.path.as_str(), usize::MAX))
    }
}

/// One line for each change (`A`, `M` or `D` and the path), then one for each thing that was skipped.
impl fmt::Display for Changeset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))?;
        self.skipped.iter().try_for_each(|Skipped { path, why }| {
            let (path, why) = (shown(path, usize::MAX), shown(why, usize::MAX));
            writeln!(f, "skipped {path}: {why}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, kind: ChangeKind) -> Change {
        let digest = |kind| (kind != self::ChangeKind::Added).then(|| Digest::of(b"x"));
        Change {
            path: Relative::parse(path).unwrap(),
            kind,
            before: digest(kind),
            after: (kind != ChangeKind::Deleted).then(|| Digest::of(b"y")),
            bytes: u64::from(kind != ChangeKind::Deleted),
            executable: false,
        }
    }

    #[test]
    fn a_changeset_has_one_spelling_and_reads_back_as_it_was() {
        let changes = vec![
            change("b", ChangeKind::Deleted),
            change("a.txt", ChangeKind::Modified),
            change("a/x", ChangeKind::Added),
        ];
        let skipped = vec![Skipped { path: "link".into(), why: "it is a symbolic link".into() }];
        let set = Changeset::new(changes, skipped).unwrap();
        assert_eq!(set.to_string(), "A a/x\nM a.txt\nD b\nskipped link: it is a symbolic link\n");
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<Changeset>(&text).unwrap(), set);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        use ChangeKind::{Added, Deleted, Modified};
        let both = |a: Change, b: Change| {
            serde_json::json!({ "changes": [a, b], "skipped": [] }).to_string()
        };
        let odd = |edit: fn(&mut Change)| {
            let mut change = change("a", Modified);
            edit(&mut change);
            both(change, self::change("b", Added))
        };
        for (text, why) in [
            (both(change("b", Added), change("a", Added)), "not sorted"),
            (both(change("a", Added), change("a", Deleted)), "there twice"),
            (both(change("a", Added), change("a/b", Modified)), "a file and a directory"),
            (odd(|c| c.after = None), "do not go with"),
            (odd(|c| c.kind = Added), "do not go with"),
            (odd(|c| c.kind = Deleted), "do not go with"),
            (both(change("a", Added), change("b", Added)).replace("\"b\"", "\"../b\""), "`..`"),
            (r#"{"changes":[],"skipped":[],"more":1}"#.into(), "unknown field"),
        ] {
            let error = serde_json::from_str::<Changeset>(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}: {text}");
        }
        // A directory that became a file, and the other way round, are no contradiction.
        for text in [
            both(change("a", Added), change("a/b", Deleted)),
            both(change("a", Deleted), change("a/b", Added)),
        ] {
            assert!(serde_json::from_str::<Changeset>(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_that_turns_the_text_is_written_out() {
        let change = change("a\u{202e}txt.exe", ChangeKind::Added);
        assert_eq!(change.to_string(), "A a\\u{202e}txt.exe");
    }
}
