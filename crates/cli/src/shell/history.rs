//! What was typed: in the home, for its user only, the newest lines and none that may have a secret in it.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hotcell_record::Redactor;
use rustix::fs::OFlags;

use crate::config;
use crate::print;

/// Most lines, and the longest that is kept, in bytes.
pub(super) const MOST_LINES: usize = 1000;
const MOST_LINE: usize = 4096;
/// Most bytes of the file that are read: more than it has unless many prompts wrote to it at one time.
const MOST_FILE: u64 = 2 * (MOST_LINES * (MOST_LINE + 1)) as u64;

/// Words beside which a secret may stand, whatever it looks like.
const TELLING: [&str; 12] = [
    "password",
    "passphrase",
    "passwd",
    "secret",
    "credential",
    "authorization",
    "bearer",
    "apikey",
    "api_key",
    "api-key",
    "token=",
    "token\":",
];

static KEYS: LazyLock<Redactor> = LazyLock::new(|| Redactor::new(&[]));

/// Not what begins with a space, as people know it from shells, and nothing that is or may be secret.
pub(super) fn is_to_keep(line: &str) -> bool {
    let lower = line.to_lowercase();
    !line.starts_with(char::is_whitespace)
        && !line.is_empty()
        && line.len() <= MOST_LINE
        && !line.contains(['\n', '\r', '\0'])
        && !KEYS.is_in(line.as_bytes())
        && !TELLING.iter().any(|telling| lower.contains(telling))
}

/// The file, if there can be one.
pub(super) struct History {
    path: Option<PathBuf>,
}

impl History {
    pub(super) fn of_home() -> History {
        History { path: config::home_path().ok().map(|home| home.join("history")) }
    }

    /// The lines so far, the oldest first. A file that has grown too long is written anew.
    pub(super) fn read(&mut self) -> Vec<String> {
        let Some(path) = &self.path else { return Vec::new() };
        match newest(path) {
            Ok(lines) => lines,
            Err(error) => {
                self.give_up(&error);
                Vec::new()
            }
        }
    }

    pub(super) fn add(&mut self, line: &str) {
        let Some(path) = &self.path else { return };
        if let Err(error) = append(path, line) {
            self.give_up(&error);
        }
    }

    /// Lines can be typed without being remembered.
    fn give_up(&mut self, error: &io::Error) {
        if let Some(path) = self.path.take() {
            print::to_people(&print::harmless(&format!(
                "hotcell: `{}` cannot be used, and lines are not remembered: {error}",
                path.display()
            )));
            print::to_people("\n");
        }
    }
}

fn newest(path: &Path) -> io::Result<Vec<String>> {
    let file = match open(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MOST_FILE).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = VecDeque::new();
    let mut all = 0;
    for line in text.lines().filter(|line| is_to_keep(line)) {
        all += 1;
        lines.push_back(line.to_owned());
        if lines.len() > MOST_LINES {
            lines.pop_front();
        }
    }
    let lines = Vec::from(lines);
    if all > lines.len() {
        rewrite(path, &lines)?;
    }
    Ok(lines)
}

/// One write for each line, so that two prompts do not mix theirs.
fn append(path: &Path, line: &str) -> io::Result<()> {
    if let Some(home) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    }
    let mut file = open(path, OpenOptions::new().append(true).create(true))?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn rewrite(path: &Path, lines: &[String]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = open(&beside, OpenOptions::new().write(true).create_new(true))?;
    file.write_all((lines.join("\n") + "\n").as_bytes())?;
    fs::rename(&beside, path)
}

/// A regular file of one's own, and no link to another.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // Whoever made it: what was typed is for one's own eyes.
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn history(dir: &Path) -> History {
        History { path: Some(dir.join("home/history")) }
    }

    #[test]
    fn secrets_are_not_remembered() {
        for line in [
            "run --env KEY=sk-abcdefghijklmnop1 f.py",
            "tool call http.get '{\"token\": \"abc\"}'",
            "tool call x '{\"Authorization\": \"x\"}'",
            "run --env DB_PASSWORD=hunter2 f.py",
            "run --env TOKEN=abc f.py",
            "token revoke hct_0123456789abcdef",
            "key revoke hck_0123456789abcdef",
            " runs",
            "",
        ] {
            assert!(!is_to_keep(line), "{line}");
        }
        for line in ["runs", "token ls", "tool call add --token-file t '{\"a\": 1}'", "key ls"] {
            assert!(is_to_keep(line), "{line}");
        }
    }

    #[test]
    fn lines_are_kept_for_their_user_only_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = history(dir.path());
        assert!(kept.read().is_empty());
        for number in 0..MOST_LINES + 5 {
            kept.add(&format!("runs --limit {number}"));
        }
        let path = dir.path().join("home/history");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let lines = kept.read();
        assert_eq!((lines.len(), lines[0].as_str()), (MOST_LINES, "runs --limit 5"));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), MOST_LINES);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 1);
    }

    #[test]
    fn no_link_is_followed_and_what_cannot_be_used_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "old\n").unwrap();
        symlink(&other, dir.path().join("home/history")).unwrap();
        let mut kept = history(dir.path());
        assert!(kept.read().is_empty() && kept.path.is_none());
        kept.add("runs");
        let mut kept = history(dir.path());
        kept.add("runs");
        assert_eq!(fs::read_to_string(&other).unwrap(), "old\n");
    }
}
