//! Who started this process. One that descends from a hotcell which serves a model, or runs something
//! for one, may not speak for a person, whatever terminals were made in between.
//!
//! What cannot be seen counts as bad: an ancestor that /proc hides is a refusal. What is not there
//! cannot be seen: a process that outlived its parents descends from nobody.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What hotcell is called with when it serves models or runs something. No command that is for people
/// only starts a shell.
pub const SERVING: [&str; 7] = ["mcp", "agent", "serve", "resident", "run", "tool", "replay"];

/// Longest line of parents.
const MOST_ANCESTORS: usize = 1024;
/// What is read of a file of /proc, in bytes.
const MOST_READ: u64 = 64 << 10;

const HOTCELL: &str = "hotcell";

/// Why nobody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The process, and what it does.
    Served(u32, String),
    Unseen(u32),
}

/// Looks at all processes that this one descends from.
pub(crate) fn check() -> Result<(), Unfit> {
    Proc { root: Path::new("/proc"), own: identity(Path::new("/proc/self/exe")) }
        .check(std::process::id())
}

struct Proc<'a> {
    root: &'a Path,
    /// The file that this process was made from.
    own: Option<(u64, u64)>,
}

impl Proc<'_> {
    fn check(&self, from: u32) -> Result<(), Unfit> {
        let mut pid = self.parent(from)?.1;
        for _ in 0..MOST_ANCESTORS {
            // The first process has no parent, or one that is outside of what can be seen.
            if pid == 0 {
                return Ok(());
            }
            let (name, parent) = self.parent(pid)?;
            if let Some(role) = self.serves(pid, &name) {
                return Err(Unfit::Served(pid, role));
            }
            pid = parent;
        }
        Err(Unfit::Unseen(pid))
    }

    /// What the kernel calls a process, and its parent.
    fn parent(&self, pid: u32) -> Result<(Vec<u8>, u32), Unfit> {
        let stat = self.read(pid, "stat").map_err(|_| Unfit::Unseen(pid))?;
        parse_stat(&stat).ok_or(Unfit::Unseen(pid))
    }

    /// What it does, if it is a hotcell that serves.
    fn serves(&self, pid: u32, name: &[u8]) -> Option<String> {
        let words = self.read(pid, "cmdline").unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        let program = words.next();
        let exe = self.file(pid, "exe");
        let is_named =
            |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).ends_with(HOTCELL);
        let linked = fs::read_link(&exe).unwrap_or_default();
        let linked = linked.as_os_str().as_bytes();
        let linked = linked.strip_suffix(b" (deleted)").unwrap_or(linked);
        let is_same = self.own.is_some() && identity(&exe) == self.own;
        let is_hotcell = is_same || is_named(linked) || is_named(name);
        if !is_hotcell && !program.is_some_and(is_named) {
            return None;
        }
        let serving = |word| SERVING.iter().find(|role| role.as_bytes() == word);
        match (program, words.find_map(serving)) {
            (_, Some(role)) => Some((*role).to_owned()),
            // Nobody knows what it does.
            (None, None) => Some("unknown".to_owned()),
            (Some(_), None) => None,
        }
    }

    fn read(&self, pid: u32, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.file(pid, name))?.take(MOST_READ).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn file(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }
}

/// `PID (NAME) STATE PARENT …`, where the name can have anything in it.
fn parse_stat(stat: &[u8]) -> Option<(Vec<u8>, u32)> {
    let begin = stat.iter().position(|&byte| byte == b'(')?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let name = stat.get(begin + 1..end)?.to_owned();
    let mut rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    Some((name, rest.nth(1)?.parse().ok()?))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A /proc of these processes, each the parent of the next: what the kernel calls it, its file and
    /// its words. Ours is the last.
    fn check(line: &[(&str, &str, &str)]) -> Result<(), Unfit> {
        let root = tempfile::tempdir().unwrap();
        for (place, (name, exe, words)) in line.iter().enumerate() {
            let dir = root.path().join((place + 1).to_string());
            fs::create_dir(&dir).unwrap();
            let stat = format!("{} ({name}) S {place} 1 1 0 -1 4194560", place + 1);
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("cmdline"), words.replace(' ', "\0")).unwrap();
            symlink(exe, dir.join("exe")).unwrap();
        }
        let own = identity(&root.path().join(line.len().to_string()).join("exe"));
        Proc { root: root.path(), own }.check(line.len() as u32)
    }

    #[test]
    fn a_descendant_of_a_hotcell_that_serves_is_found() {
        let served = |pid, role: &str| Err(Unfit::Served(pid, role.to_owned()));
        let init = ("systemd", "/usr/lib/systemd/systemd", "/sbin/init");
        let shell = ("bash", "/usr/bin/bash", "-bash");
        let ours = ("hotcell", "/usr/bin/hotcell", "hotcell approve 0123ABCD");
        for (line, expected) in [
            (vec![init, ours], Ok(())),
            (vec![init, shell, ours], Ok(())),
            // For people, or a script that is called like it.
            (vec![init, ("hotcell", "/usr/bin/hotcell", "hotcell logs -f"), ours], Ok(())),
            (vec![init, ("hotcell", "/bin/sh", "/bin/sh /opt/hotcell approve 1"), ours], Ok(())),
            (vec![init, ("mcp", "/usr/bin/mcp", "mcp run hotcell"), ours], Ok(())),
            (vec![init, ("hotcell", "/usr/bin/hotcell", "hotcell mcp"), ours], served(2, "mcp")),
            (
                vec![init, ("hotcell", "/usr/bin/hotcell", "hotcell --home x mcp"), shell, ours],
                served(2, "mcp"),
            ),
            // A terminal of its own making does not matter.
            (
                vec![
                    ("x", "/opt/hotcell", "h agent"),
                    ("script", "/usr/bin/script", "script -c sh"),
                    shell,
                    ours,
                ],
                served(1, "agent"),
            ),
            (vec![init, ("x", "/opt/hotcell (deleted)", "x serve"), ours], served(2, "serve")),
            (vec![init, ("x", "/gone", "/opt/hotcell run -- sh"), ours], served(2, "run")),
            (vec![init, ("hotcell", "/gone", "x tool call x"), ours], served(2, "tool")),
            (vec![init, ("hotcell", "/gone", ""), ours], served(2, "unknown")),
            // The same file under another name: both links lead to what is there.
            (
                vec![init, ("hc", "/proc/self/exe", "hc mcp"), ("hc", "/proc/self/exe", "hc")],
                served(2, "mcp"),
            ),
        ] {
            assert_eq!(check(&line), expected, "{line:?}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc { root: root.path(), own: None };
        assert_eq!(proc.check(7), Err(Unfit::Unseen(7)));
        let dir = root.path().join("7");
        fs::create_dir(&dir).unwrap();
        for (stat, expected) in [
            ("7 (a) S 8 ", Err(Unfit::Unseen(8))),
            // It would go round and round.
            ("7 (a) S 7 ", Err(Unfit::Unseen(7))),
            ("7 (a) S x ", Err(Unfit::Unseen(7))),
            ("7 )a( S 0 ", Err(Unfit::Unseen(7))),
            ("", Err(Unfit::Unseen(7))),
            ("7 (a) S 0 (b) S 8 ", Err(Unfit::Unseen(8))),
            ("7 (a) S 0 ", Ok(())),
        ] {
            fs::write(dir.join("stat"), stat).unwrap();
            assert_eq!(proc.check(7), expected, "{stat}");
        }
    }
}
