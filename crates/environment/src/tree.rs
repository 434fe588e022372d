//! What a sandbox installed, taken as data: by held descriptors, without following anything, within bounds.
//! Regular files and directories only; of their modes nothing but whether a file can be executed.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hotcell_workspace::{Bounds as WalkBounds, Entry, Kind, Relative, Root};
use sha2::{Digest as _, Sha256};

use crate::Digest;
use crate::rows::{Interpreter, Package};

/// Deepest directory.
pub const MOST_DEPTH: usize = 64;
/// Most packages that are listed.
const MOST_PACKAGES: usize = 2000;

const FILE: u32 = 0o444;
const EXECUTABLE: u32 = 0o555;
const DIRECTORY: u32 = 0o555;

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Files and directories.
    pub entries: u64,
    pub bytes: u64,
    pub until: Instant,
}

/// What was taken.
#[derive(Debug)]
pub struct Taken {
    hash: Sha256,
    pub packages: Vec<Package>,
    pub files: u64,
    pub bytes: u64,
}

/// Why a tree is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// What is in it.
    #[error("`{path}`: {why}")]
    Content { path: String, why: String },
    #[error("it is more than can be kept: {0}")]
    TooMuch(&'static str),
    #[error("somebody asked for the end")]
    Cancelled,
    #[error("it cannot be kept: {0}")]
    Io(#[from] io::Error),
}

impl Taken {
    /// What the tree is known by, with what it was made for.
    pub fn digest(&self, interpreter: &Interpreter) -> Digest {
        let mut hash = self.hash.clone();
        let Interpreter { language, path, program, version, platform, .. } = interpreter;
        for part in [language, path, program, version, platform] {
            add(&mut hash, part.as_bytes());
        }
        Digest::from_bytes(hash.finalize().into())
    }
}

/// With its length, so that no two lists of parts are the same bytes.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// Copies what is at `at` below the held directory to `to`, which must be new. Everything in it can only be
/// read afterwards, except `to` itself, which is still to be moved.
pub fn take(
    left: OwnedFd,
    at: &str,
    to: &Path,
    bounds: Bounds,
    goes_on: &dyn Fn() -> bool,
) -> Result<Taken, Unfit> {
    let content = |path: &str, why: String| Unfit::Content { path: path.into(), why };
    let unreadable = |error: hotcell_workspace::Error| content(at, error.to_string());
    let root = Root::held(left).map_err(unreadable)?;
    let top = Relative::parse(at).map_err(|error| content(at, error.why().to_string()))?;
    let entries = usize::try_from(bounds.entries).unwrap_or(usize::MAX);
    let walk = WalkBounds { entries, depth: MOST_DEPTH, until: bounds.until };
    let mut walk = root.walk(Some(&top), walk).map_err(unreadable)?;
    DirBuilder::new().mode(0o755).create(to)?;
    let mut copy = Copy {
        root: &root,
        top: at,
        to,
        left: bounds.bytes,
        made: Vec::new(),
        taken: Taken::new(),
    };
    for entry in walk.by_ref() {
        if !goes_on() {
            return Err(Unfit::Cancelled);
        }
        let entry = entry.map_err(|skipped| content(&skipped.path, skipped.why))?;
        copy.entry(&entry, bounds.until)?;
    }
    if walk.cut().is_some() {
        return Err(Unfit::TooMuch("files, or there was no time for them"));
    }
    // What is in a directory comes before it.
    for directory in copy.made.iter().rev() {
        fs::set_permissions(directory, Permissions::from_mode(DIRECTORY))?;
    }
    Ok(copy.taken)
}

impl Taken {
    fn new() -> Taken {
        let mut hash = Sha256::new();
        add(&mut hash, b"hotcell environment 1");
        Taken { hash, packages: Vec::new(), files: 0, bytes: 0 }
    }
}

struct Copy<'a> {
    root: &'a Root,
    top: &'a str,
    to: &'a Path,
    /// Bytes that may still be taken.
    left: u64,
    made: Vec<PathBuf>,
    taken: Taken,
}

impl Copy<'_> {
    fn entry(&mut self, entry: &Entry, until: Instant) -> Result<(), Unfit> {
        let path = entry.path.as_str();
        let unfit = |why: &str| Unfit::Content { path: path.into(), why: why.into() };
        let inside = path.strip_prefix(self.top).and_then(|path| path.strip_prefix('/'));
        let inside = inside.ok_or_else(|| unfit("it lies elsewhere"))?;
        let target = self.to.join(inside);
        match &entry.kind {
            Kind::Symlink { .. } => Err(unfit("it is a symbolic link")),
            Kind::Directory if inside.split('/').count() >= MOST_DEPTH => {
                Err(unfit("it is too deep"))
            }
            Kind::Directory => {
                DirBuilder::new().mode(0o755).create(&target)?;
                self.made.push(target);
                add(&mut self.taken.hash, b"directory");
                add(&mut self.taken.hash, inside.as_bytes());
                self.note_package(inside);
                Ok(())
            }
            Kind::File(facts) => {
                self.left = self.left.checked_sub(facts.bytes).ok_or(Unfit::TooMuch("bytes"))?;
                let (file, bytes) =
                    self.root.file(&entry.path).map_err(|error| unfit(&error.to_string()))?;
                if bytes != facts.bytes {
                    return Err(unfit("it changed while it was looked at"));
                }
                let mode = if facts.executable { EXECUTABLE } else { FILE };
                let digest = store(&target, Timed { source: file.take(bytes), until }, mode)?;
                add(&mut self.taken.hash, if facts.executable { b"executable" } else { b"file" });
                add(&mut self.taken.hash, inside.as_bytes());
                add(&mut self.taken.hash, &digest.to_bytes());
                self.taken.files += 1;
                self.taken.bytes += bytes;
                Ok(())
            }
        }
    }

    /// What installers leave beside each package: `NAME-VERSION.dist-info`.
    fn note_package(&mut self, inside: &str) {
        let known = inside.strip_suffix(".dist-info").filter(|known| !known.contains('/'));
        if let Some((name, version)) = known.and_then(|known| known.rsplit_once('-'))
            && self.taken.packages.len() < MOST_PACKAGES
        {
            self.taken.packages.push(Package { name: name.into(), version: version.into() });
        }
    }
}

fn store(target: &Path, source: impl Read, mode: u32) -> io::Result<Digest> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
    let (digest, _) = Digest::copy(source, &mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(digest)
}

/// A source that fails when the time is over.
struct Timed<R> {
    source: R,
    until: Instant,
}

impl<R: Read> Read for Timed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "there was no time for all of it"));
        }
        self.source.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::Duration;

    use super::*;

    fn bounds() -> Bounds {
        Bounds { entries: 100, bytes: 1000, until: Instant::now() + Duration::from_secs(60) }
    }

    fn taken(make: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<Taken, Unfit>) {
        taken_within(bounds(), make)
    }

    fn taken_within(
        bounds: Bounds,
        make: impl FnOnce(&Path),
    ) -> (tempfile::TempDir, Result<Taken, Unfit>) {
        let all = tempfile::tempdir().unwrap();
        let work = all.path().join("work");
        fs::create_dir_all(work.join("env")).unwrap();
        make(&work.join("env"));
        let held = fs::File::open(&work).unwrap().into();
        let result = take(held, "env", &all.path().join("tree"), bounds, &|| true);
        (all, result)
    }

    fn interpreter(version: &str) -> Interpreter {
        let text = || "x".to_owned();
        Interpreter {
            language: text(),
            path: text(),
            program: text(),
            size: 0,
            modified: 0,
            version: version.into(),
            platform: text(),
        }
    }

    fn plain(env: &Path) {
        fs::create_dir_all(env.join("a-1.2.dist-info")).unwrap();
        fs::write(env.join("a.py"), "x = 1").unwrap();
        fs::write(env.join("a-1.2.dist-info/RECORD"), "").unwrap();
        fs::write(env.join("run"), "#!").unwrap();
        fs::set_permissions(env.join("run"), Permissions::from_mode(0o6755)).unwrap();
    }

    #[test]
    fn files_and_directories_are_taken_and_can_only_be_read() {
        let (all, result) = taken(plain);
        let result = result.unwrap();
        assert_eq!((result.files, result.bytes), (3, 7));
        assert_eq!(result.packages, [Package { name: "a".into(), version: "1.2".into() }]);
        let mode =
            |path: &str| fs::metadata(all.path().join("tree").join(path)).unwrap().mode() & 0o7777;
        assert_eq!(
            (mode("a.py"), mode("a-1.2.dist-info"), mode("run")),
            (0o444, 0o555, 0o555),
            "and none of them runs as its owner"
        );
        fs::set_permissions(all.path().join("tree/a-1.2.dist-info"), Permissions::from_mode(0o755))
            .unwrap();
    }

    #[test]
    fn a_tree_is_known_by_what_is_in_it_and_what_it_was_made_for() {
        let digest = |make: &dyn Fn(&Path), version: &str| {
            taken(make).1.unwrap().digest(&interpreter(version))
        };
        let flat = |env: &Path| fs::write(env.join("a"), "x").unwrap();
        let executable = |env: &Path| {
            flat(env);
            fs::set_permissions(env.join("a"), Permissions::from_mode(0o755)).unwrap();
        };
        assert_eq!(digest(&flat, "1"), digest(&flat, "1"));
        let all = [
            digest(&flat, "1"),
            digest(&flat, "2"),
            digest(&executable, "1"),
            digest(&|_| (), "1"),
            digest(&|env| fs::write(env.join("a"), "y").unwrap(), "1"),
            digest(&|env| fs::write(env.join("b"), "x").unwrap(), "1"),
            digest(&|env| fs::create_dir(env.join("a")).unwrap(), "1"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        type Make = fn(&Path);
        let cases: [(Make, &str); 5] = [
            (|env| symlink("/etc/passwd", env.join("a")).unwrap(), "symbolic link"),
            (|env| symlink("/etc", env.join("a")).unwrap(), "symbolic link"),
            (
                |env| {
                    fs::write(env.join("a"), "").unwrap();
                    fs::hard_link(env.join("a"), env.join("b")).unwrap();
                },
                "name",
            ),
            (
                |env| {
                    rustix::fs::mknodat(
                        rustix::fs::CWD,
                        env.join("a"),
                        rustix::fs::FileType::Fifo,
                        rustix::fs::Mode::RUSR,
                        0,
                    )
                    .unwrap();
                },
                "pipe",
            ),
            (|env| fs::write(env.join("a\n"), "").unwrap(), "control"),
        ];
        for (make, why) in cases {
            let error = taken(make).1.unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn too_much_is_refused() {
        let many =
            |env: &Path| (0..101).for_each(|n| fs::write(env.join(n.to_string()), "").unwrap());
        assert!(matches!(taken(many).1, Err(Unfit::TooMuch(_))));
        let large = |env: &Path| {
            fs::File::create(env.join("hole")).unwrap().set_len(1 << 40).unwrap();
        };
        assert!(matches!(taken(large).1, Err(Unfit::TooMuch(_))));
        let deep = |env: &Path| {
            let path: PathBuf = (0..80).map(|_| "d").collect();
            fs::create_dir_all(env.join(path)).unwrap();
        };
        let error = taken(deep).1.unwrap_err().to_string();
        assert!(error.contains("deep"), "{error}");
        let late = Bounds { until: Instant::now() - Duration::from_secs(1), ..bounds() };
        assert!(taken_within(late, plain).1.is_err());
    }
}
