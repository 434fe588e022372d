//! A process that is killed while it applies changes leaves each file wholly old or wholly new.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_workspace::{Change, ChangeKind, Changeset, Digest, Root, apply};
use tempfile::TempDir;

use crate::support::*;

/// Where the child works; set for it only.
const DIRECTORY: &str = "HOTCELL_TEST_APPLY_IN";
const WITHIN: Duration = Duration::from_secs(60);
/// Most are deleted: that costs no waiting for a disk, and gives time to be killed in.
const FILES: usize = 1000;
/// Of so many files one is modified and one is added.
const ONE_IN: usize = 100;

fn kind(number: usize) -> ChangeKind {
    match number % ONE_IN {
        0 => ChangeKind::Modified,
        1 => ChangeKind::Added,
        _ => ChangeKind::Deleted,
    }
}

/// What is there at first.
fn old(number: usize) -> Option<Vec<u8>> {
    (kind(number) != ChangeKind::Added).then(|| format!("old {number}\n").repeat(100).into())
}

/// What is to be there.
fn new(number: usize) -> Option<Vec<u8>> {
    (kind(number) != ChangeKind::Deleted).then(|| format!("new {number}\n").repeat(3000).into())
}

fn name(number: usize) -> String {
    format!("d{}/{number:04}", number % 7)
}

fn changeset() -> Changeset {
    let digest = |content: &Vec<u8>| Digest::of(content);
    let changes = (0..FILES).map(|number| Change {
        path: path(&name(number)),
        kind: kind(number),
        before: old(number).as_ref().map(digest),
        after: new(number).as_ref().map(digest),
        bytes: new(number).map_or(0, |content| content.len() as u64),
        executable: false,
    });
    Changeset::new(changes.collect(), Vec::new()).unwrap()
}

fn contents_by_digest() -> Store {
    (0..FILES).filter_map(new).map(|content| (Digest::of(&content), content)).collect()
}

fn begin() -> TempDir {
    let dir = tree(&[]);
    for number in 0..FILES {
        if let Some(content) = old(number) {
            put(dir.path(), &name(number), content);
        }
    }
    dir
}

/// What is killed. Does nothing unless it is told where.
#[test]
fn the_child_applies() {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        let root = Root::open(dir.as_ref()).unwrap();
        apply(&root, &changeset(), from(&contents_by_digest()), |_| Ok(())).unwrap();
    }
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_child_applies"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until something is so, or the child has ended by itself.
fn wait_for(child: &mut Child, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < WITHIN, "the child does nothing");
    }
}

/// Files aside, as far as they are written.
fn staged(dir: &Path) -> usize {
    let stage = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(".hotcell-apply-"));
    stage.and_then(|stage| fs::read_dir(stage.path()).ok()).map_or(0, Iterator::count)
}

/// How many files are new; panics if one is neither old nor new.
fn count_new(dir: &Path) -> usize {
    let is_new = |&number: &usize| {
        let is = fs::read(dir.join(name(number))).ok();
        assert!(is == old(number) || is == new(number), "{} is torn", name(number));
        is == new(number)
    };
    (0..FILES).filter(is_new).count()
}

#[test]
fn each_file_is_wholly_old_or_wholly_new_and_applying_again_completes_it() {
    let (changeset, store) = (changeset(), contents_by_digest());
    let mut half_way = 0;
    for round in 0..12 {
        let dir = begin();
        let mut child = start(dir.path());
        // At another place each time: while contents are written aside, while they are put in place, and
        // while the rest is taken away.
        let part = round / 3;
        let modified = dir.path().join(name(part * FILES / 8 / ONE_IN * ONE_IN));
        let deleted = dir.path().join(name(part * FILES / 8 + 7));
        let inode = || fs::metadata(&modified).unwrap().ino();
        let first = inode();
        wait_for(&mut child, || match round % 3 {
            0 => staged(dir.path()) > part * 4,
            1 => inode() != first,
            _ => !deleted.exists(),
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let new = count_new(dir.path());
        half_way += usize::from(new > 0 && new < FILES);

        let root = root(&dir);
        let applied = apply(&root, &changeset, from(&store), |_| Ok(())).unwrap();
        assert_eq!(applied.already.len(), new);
        assert_eq!(count_new(dir.path()), FILES);
        let left = contents(dir.path());
        assert!(!left.keys().any(|name| name.starts_with(".hotcell")), "{:?}", left.keys());
    }
    assert!(half_way > 0, "no round was killed half-way");
}
