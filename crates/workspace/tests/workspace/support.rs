//! Trees, copies of them, and what is in them.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use hotcell_workspace::{
    Changeset, DiffBounds, Digest, Relative, Root, Snapshot, SnapshotBounds, What,
};
use tempfile::TempDir;

/// Contents by digest, as a ledger has them.
pub(crate) type Store = HashMap<Digest, Vec<u8>>;

pub(crate) fn path(text: &str) -> Relative {
    Relative::parse(text).unwrap()
}

/// A directory with these files.
pub(crate) fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        put(dir.path(), name, content);
    }
    dir
}

pub(crate) fn put(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub(crate) fn root(dir: &TempDir) -> Root {
    Root::open(dir.path()).unwrap()
}

/// Everything in a directory, seen without the crate under test: files with their contents, directories
/// with a `/` at the end, links with ` -> ` and their targets.
pub(crate) fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(format!("{name} -> {}", target.display()), Vec::new());
            } else if kind.is_dir() {
                found.insert(format!("{name}/"), Vec::new());
                directories.push(path);
            } else {
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Takes a snapshot and copies it to an empty directory, as a sandbox does.
pub(crate) fn hand_over(root: &Root, bounds: SnapshotBounds) -> (Snapshot, TempDir) {
    let copy = tempfile::tempdir().unwrap();
    let mut handover = root.snapshot(bounds).unwrap();
    for opened in &mut handover {
        let opened = opened.unwrap();
        let target = copy.path().join(opened.path.as_str());
        match opened.what {
            What::Directory => fs::create_dir(target).unwrap(),
            What::Symlink { target: to } => std::os::unix::fs::symlink(to, target).unwrap(),
            What::File { file, bytes, modified, executable } => {
                let mut new = File::create_new(&target).unwrap();
                io::copy(&mut file.take(bytes), &mut new).unwrap();
                let mode = if executable { 0o755 } else { 0o644 };
                new.set_permissions(Permissions::from_mode(mode)).unwrap();
                let since =
                    Duration::new(modified.seconds.try_into().unwrap(), modified.nanoseconds);
                new.set_times(FileTimes::new().set_modified(UNIX_EPOCH + since)).unwrap();
            }
        }
    }
    (handover.finish().unwrap(), copy)
}

/// What a run changed in its copy, and the contents of that.
pub(crate) fn diff(snapshot: &Snapshot, copy: &TempDir) -> (Changeset, Store) {
    let mut store = Store::new();
    let changeset = snapshot
        .diff(&root(copy), DiffBounds::default(), |source| keep(&mut store, source))
        .unwrap();
    (changeset, store)
}

pub(crate) fn keep(store: &mut Store, source: &mut dyn Read) -> io::Result<Digest> {
    let mut content = Vec::new();
    source.read_to_end(&mut content)?;
    let digest = Digest::of(&content);
    store.insert(digest, content);
    Ok(digest)
}

pub(crate) fn from(store: &Store) -> impl Fn(&Digest) -> io::Result<Cursor<Vec<u8>>> {
    |digest| store.get(digest).cloned().map(Cursor::new).ok_or(io::ErrorKind::NotFound.into())
}

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).unwrap().permissions().mode() & 0o100 != 0
}

/// Says on the terminal, whatever the test harness captures, that something was not checked.
pub(crate) fn skip(what: &str, why: &str) {
    let stderr = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned().unwrap();
    File::from(stderr).write_all(format!("SKIPPED {what}: {why}\n").as_bytes()).unwrap();
}
