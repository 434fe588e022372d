//! The root that a run sees, as a list: the system's programs and libraries read-only, a few files of
//! our own making, and nothing else of the host.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use hotcell_jail::wire::{Entry, Standing, Writer};

use crate::View;

/// Directories at the root of the system's tree that hold programs and libraries. Where the
/// distribution has merged them, they are links into /usr.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What programs need of /etc; all of it is public. Who the machine is, who its users are and how it is
/// set up is not among it.
const SHARED_ETC: [&str; 10] = [
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/var/tmp", "/tmp"),
];

const FILES: [(&str, &str); 5] = [
    ("/etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    ("/etc/hostname", "hotcell\n"),
    ("/etc/hosts", "127.0.0.1 localhost hotcell\n::1 localhost hotcell\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    (
        "/etc/passwd",
        "root:x:0:0:root:/nonexistent:/bin/false\n\
         sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    ),
];

/// One entry, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Dir(CString),
    Link {
        at: CString,
        to: CString,
    },
    File {
        at: CString,
        content: &'static str,
    },
    BindDir(CString),
    BindFile(CString),
    /// Shown under another name.
    Tree {
        from: CString,
        at: CString,
    },
    Device(CString),
    #[cfg(feature = "holes")]
    Hole {
        from: CString,
        at: CString,
    },
}

/// The tree of a launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    items: Vec<Item>,
    made: Vec<PathBuf>,
}

impl Layout {
    /// The system's tree with further read-only directories or files of the host.
    pub(crate) fn new(view: &View) -> Layout {
        let mut layout = Layout::default();
        for path in shown_paths() {
            layout.share(&path);
        }
        for (at, content) in FILES {
            layout.put(Path::new(at), |at| Some(Item::File { at, content }));
        }
        for path in DEVICES {
            layout.put(Path::new(path), |at| Some(Item::Device(at)));
        }
        for (at, to) in LINKS {
            layout.put(Path::new(at), |at| Some(Item::Link { at, to: c_string(to.as_ref())? }));
        }
        for path in &view.read_only {
            layout.share(path);
        }
        if let Some(tree) = &view.tree {
            let from = c_string(tree.from.as_os_str());
            layout.put(Path::new(tree.at), |at| Some(Item::Tree { from: from?, at }));
        }
        layout
    }

    /// The same paths where there is no tree to build: what may be read of the host's own.
    pub(crate) fn bare(view: &View) -> Layout {
        let mut layout = Layout::new(&View { tree: None, ..view.clone() });
        layout
            .items
            .retain(|item| matches!(item, Item::BindDir(_) | Item::BindFile(_) | Item::Device(_)));
        // There it has no other name than its own.
        let from = view.tree.as_ref().and_then(|tree| c_string(tree.from.as_os_str()));
        layout.items.extend(from.map(Item::BindDir));
        layout
    }

    /// Shows the host's whole tree at `/host`, as it is: what the root keeps away.
    #[cfg(feature = "holes")]
    pub(crate) fn with_host(mut self) -> Layout {
        self.items.push(Item::Hole { from: c"/".into(), at: c"/host".into() });
        self
    }

    /// Shows a path of the host at the same place, unless it is not there or already shown.
    fn share(&mut self, path: &Path) {
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        if metadata.is_symlink() {
            let Ok(target) = fs::read_link(path) else { return };
            self.put(path, |at| Some(Item::Link { at, to: c_string(target.as_os_str())? }));
        } else if metadata.is_dir() {
            self.put(path, |at| Some(Item::BindDir(at)));
        } else if metadata.is_file() {
            self.put(path, |at| Some(Item::BindFile(at)));
        }
    }

    /// Adds one entry with the directories above it.
    fn put(&mut self, path: &Path, item: impl FnOnce(CString) -> Option<Item>) {
        if self.shows(path) {
            return;
        }
        let parents: Vec<&Path> = path.ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter(|p| p.components().count() > 1) {
            if !self.made.iter().any(|made| made == parent) {
                self.made.push(parent.to_path_buf());
                self.items.extend(c_string(parent.as_os_str()).map(Item::Dir));
            }
        }
        self.items.extend(c_string(path.as_os_str()).and_then(item));
    }

    /// Whether a path is there already, by itself or as part of a shared directory.
    fn shows(&self, path: &Path) -> bool {
        self.items.iter().any(|item| match item {
            Item::Dir(_) => false,
            Item::BindDir(at) => path.starts_with(as_path(at)),
            Item::Link { at, .. }
            | Item::File { at, .. }
            | Item::BindFile(at)
            | Item::Tree { at, .. }
            | Item::Device(at) => path == as_path(at),
            #[cfg(feature = "holes")]
            Item::Hole { .. } => false,
        })
    }

    /// As the launcher reads it.
    pub(crate) fn write(&self, standing: &Standing<'_>, writer: &mut Writer<'_>) {
        standing.write(u32::try_from(self.items.len()).unwrap_or(u32::MAX), writer);
        for item in &self.items {
            let entry = match item {
                Item::Dir(at) => Entry::Dir(at),
                Item::Link { at, to } => Entry::Link { at, to },
                Item::File { at, content } => Entry::File { at, content: content.as_bytes() },
                Item::BindDir(at) => Entry::BindDir { from: at, at },
                Item::BindFile(at) => Entry::BindFile { from: at, at },
                Item::Tree { from, at } => Entry::BindDir { from, at },
                Item::Device(at) => Entry::Device { from: at, at },
                #[cfg(feature = "holes")]
                Item::Hole { from, at } => Entry::Hole { from, at },
            };
            entry.write(writer);
        }
    }

    /// The path of an entry by its number, for messages.
    pub(crate) fn path_of(&self, index: usize) -> Option<&Path> {
        Some(match self.items.get(index)? {
            Item::Dir(at)
            | Item::Link { at, .. }
            | Item::File { at, .. }
            | Item::BindDir(at)
            | Item::BindFile(at)
            | Item::Tree { at, .. }
            | Item::Device(at) => as_path(at),
            #[cfg(feature = "holes")]
            Item::Hole { at, .. } => as_path(at),
        })
    }
}

/// The paths of the host that every run can read, whether they are there or not.
pub fn shown_paths() -> Vec<PathBuf> {
    let listed = SYSTEM.iter().chain(&SHARED_ETC).map(PathBuf::from);
    // Debian's interpreters read their own configuration there.
    listed.chain(interpreters_etc()).collect()
}

/// What their directories in /etc are called.
const INTERPRETERS: [&str; 2] = ["python3", "java-"];

fn interpreters_etc() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/etc") else { return Vec::new() };
    let is_named = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        INTERPRETERS.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()))
    };
    entries.flatten().filter(is_named).map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

fn as_path(text: &CString) -> &Path {
    Path::new(OsStr::from_bytes(text.as_bytes()))
}

/// A path with a NUL cannot exist, so that it is simply not shown.
fn c_string(text: &OsStr) -> Option<CString> {
    CString::new(text.as_bytes()).ok()
}

/// Whether a path can be shown at all: absolute, in normal form, and not as wide as a root or a home.
pub(crate) fn can_be_shared(path: &Path) -> bool {
    let depth = path.components().count();
    let normal = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && normal && depth >= 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;

    fn paths(layout: &Layout) -> Vec<&Path> {
        (0..layout.items.len()).filter_map(|i| layout.path_of(i)).collect()
    }

    #[test]
    fn parents_come_before_what_is_in_them_and_only_once() {
        let layout = Layout::new(&View::default());
        let paths = paths(&layout);
        for (index, path) in paths.iter().enumerate() {
            assert_eq!(paths.iter().filter(|p| p == &path).count(), 1, "{path:?} is there twice");
            if let Some(parent) = path.parent().filter(|p| p != &Path::new("/")) {
                let at = paths.iter().position(|p| p == &parent);
                assert!(at.is_some_and(|at| at < index), "{parent:?} is not made before {path:?}");
            }
        }
    }

    #[test]
    fn nothing_that_names_the_host_or_its_users_is_shared() {
        let layout = Layout::new(&View::default());
        for item in &layout.items {
            if let Item::BindDir(at) | Item::BindFile(at) = item {
                let path = as_path(at);
                let allowed = SYSTEM.iter().chain(&SHARED_ETC).any(|p| path == Path::new(p))
                    || INTERPRETERS
                        .iter()
                        .any(|start| path.to_string_lossy().starts_with(&format!("/etc/{start}")));
                assert!(allowed, "{path:?} is shared");
            }
        }
    }

    #[test]
    fn what_lies_in_a_shared_directory_is_not_shared_again() {
        let one = Layout::new(&View::default());
        let read_only = vec!["/usr/lib".into(), "/usr".into(), "/nonexistent/x".into()];
        assert_eq!(one, Layout::new(&View { read_only, tree: None }));
    }

    #[test]
    fn a_tree_has_another_name_inside_and_its_own_where_there_are_no_mounts() {
        let tree = Tree { from: "/srv/home/envs/x".into(), at: "/env", identity: (1, 2) };
        let view = View { read_only: vec![], tree: Some(tree) };
        assert_eq!(paths(&Layout::new(&view)).last(), Some(&Path::new("/env")));
        assert_eq!(paths(&Layout::bare(&view)).last(), Some(&Path::new("/srv/home/envs/x")));
    }

    #[test]
    fn wide_or_odd_paths_cannot_be_shared() {
        for path in ["/", "/root", "/home", "relative/path", "/home/../etc", ""] {
            assert!(!can_be_shared(Path::new(path)), "{path}");
        }
        assert!(can_be_shared(Path::new("/opt/python")));
    }
}
