//! Somebody renames as fast as possible while the tree is used: a directory and a file change places with
//! links that lead outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hotcell_workspace::{
    Case, Change, ChangeKind, Changeset, DiffBounds, Digest, GrepOptions, ListOptions, Pattern,
    Root, SnapshotBounds, What, apply,
};
use rustix::fs::{CWD, RenameFlags};
use tempfile::TempDir;

use crate::support::*;

const ROUNDS: usize = 400;
const WITHIN: Duration = Duration::from_secs(60);

/// A tree whose `dir` and `file` change places with links to the same names outside. The links are relative:
/// an absolute one is stopped by more than one of the rules for opening.
struct Arena {
    above: TempDir,
}

impl Arena {
    fn new(outside: &str) -> Arena {
        let above = tree(&[]);
        for (side, content) in [("inside", "mine"), ("outside", outside)] {
            for name in ["dir/x", "dir/sub/y", "file"] {
                put(above.path(), &format!("{side}/{name}"), content);
            }
        }
        let arena = Arena { above };
        for name in ["dir", "file"] {
            let link = arena.inside().join(format!("{name}.link"));
            symlink(format!("../outside/{name}"), link).unwrap();
        }
        arena
    }

    fn inside(&self) -> PathBuf {
        self.above.path().join("inside")
    }

    fn outside(&self) -> PathBuf {
        self.above.path().join("outside")
    }

    fn root(&self) -> Root {
        Root::open(&self.inside()).unwrap()
    }

    /// Runs something while names change places.
    fn fight(&self, act: impl FnOnce()) {
        let place = |name: &str| self.inside().join(name);
        let pairs = [(place("dir"), place("dir.link")), (place("file"), place("file.link"))];
        let over = AtomicBool::new(false);
        let flips = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (place, link) in &pairs {
                        // What is being applied may be somewhere in between.
                        rustix::fs::renameat_with(CWD, place, CWD, link, RenameFlags::EXCHANGE)
                            .ok();
                    }
                    flips.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Also when an assertion fails: otherwise the other thread never ends.
            struct Over<'a>(&'a AtomicBool);
            impl Drop for Over<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _over = Over(&over);
            let begun = Instant::now();
            while flips.load(Ordering::Relaxed) < 10 {
                assert!(begun.elapsed() < WITHIN, "there is nothing to race with");
            }
            act();
        });
    }
}

/// What is in a directory, with the time of each change, which whatever writes there moves.
fn state(dir: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64)> {
    let with_time = |(name, content)| {
        let meta = fs::symlink_metadata(dir.join(&name)).unwrap();
        (name, (content, meta.ctime(), meta.ctime_nsec()))
    };
    contents(dir).into_iter().map(with_time).collect()
}

/// Without this crate the race is lost soon: the test below can fail.
#[test]
fn the_control_reads_the_canary() {
    let arena = Arena::new("CANARY");
    let begun = Instant::now();
    let mut seen = false;
    arena.fight(|| {
        while !seen && begun.elapsed() < WITHIN {
            let path = arena.inside().join("dir/x");
            let looks_good = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
            seen = looks_good && fs::read(&path).is_ok_and(|content| content == b"CANARY");
        }
    });
    assert!(seen);
}

#[test]
fn nothing_outside_is_ever_read() {
    let arena = Arena::new("CANARY");
    let root = arena.root();
    let pattern = Pattern::new(".", Case::Sensitive).unwrap();
    let before = state(&arena.outside());
    let mut mine = 0;
    arena.fight(|| {
        for round in 0..ROUNDS {
            for name in ["dir/x", "dir/sub/y", "file"] {
                if let Ok(content) = root.read(&path(name), .., 100) {
                    assert_eq!(content.text(), Some("mine"), "{round}");
                    mine += 1;
                }
            }
            // A listing may have both places of a directory, and never what is behind a link.
            let all = ListOptions { depth: 9, most: 100, hidden: true };
            let listing = root.list(None, all).unwrap();
            for entry in &listing.entries {
                if let hotcell_workspace::Kind::File(facts) = entry.kind {
                    assert_eq!(facts.bytes, "mine".len() as u64, "{round} {entry:?}");
                }
            }
            let grepped = root.grep(&pattern, &GrepOptions::default()).unwrap();
            for found in &grepped.matches {
                assert_eq!(found.line.text, "mine", "{round}");
            }
            copied(&root);
        }
    });
    assert!(mine > 0, "nothing was ever read");
    assert_eq!(state(&arena.outside()), before);
}

/// Hands the tree over and looks at each content; then compares the tree with that.
fn copied(root: &Root) {
    let mut handover = root.snapshot(SnapshotBounds::default()).unwrap();
    for opened in &mut handover {
        if let What::File { file, .. } = opened.unwrap().what {
            assert_eq!(std::io::read_to_string(file).unwrap(), "mine");
        }
    }
    let snapshot = handover.finish().unwrap();
    let mut store = Store::new();
    let changes = snapshot.diff(root, DiffBounds::default(), |source| keep(&mut store, source));
    changes.unwrap();
    assert!(store.values().all(|content| content == b"mine"));
}

#[test]
fn nothing_outside_is_ever_written() {
    // The same contents: whoever is led there finds what the changeset expects.
    let arena = Arena::new("mine");
    let root = arena.root();
    let before = state(&arena.outside());
    let (one, two) = (Digest::of(b"mine"), Digest::of(b"next"));
    let change = |name: &str, kind, before, after: Option<Digest>| Change {
        path: path(name),
        kind,
        before,
        after,
        bytes: after.map_or(0, |_| 4),
        executable: false,
    };
    // There and back again, the directory and the file each on their own: one that is in its place must not
    // depend on the other.
    let ways = [
        vec![
            change("dir/new", ChangeKind::Added, None, Some(two)),
            change("dir/sub/y", ChangeKind::Deleted, Some(one), None),
            change("dir/x", ChangeKind::Modified, Some(one), Some(two)),
        ],
        vec![change("file", ChangeKind::Modified, Some(one), Some(two))],
        vec![
            change("dir/new", ChangeKind::Deleted, Some(two), None),
            change("dir/sub/y", ChangeKind::Added, None, Some(one)),
            change("dir/x", ChangeKind::Modified, Some(two), Some(one)),
        ],
        vec![change("file", ChangeKind::Modified, Some(two), Some(one))],
    ];
    let ways = ways.map(|changes| Changeset::new(changes, Vec::new()).unwrap());
    let content = |digest: &Digest| Ok(if *digest == one { &b"mine"[..] } else { b"next" });
    let (mut applied, mut refused) = (0, 0);
    arena.fight(|| {
        let begun = Instant::now();
        // Until both ends of the race were seen often enough.
        while (applied < 5 || refused < 50) && begun.elapsed() < WITHIN {
            for changeset in &ways {
                match apply(&root, changeset, content, |_| Ok(())) {
                    Ok(_) => applied += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    });
    assert!(applied > 0 && refused > 0, "{applied} applied, {refused} refused");
    assert_eq!(state(&arena.outside()), before);
}
