//! Files that go in, and the directory that takes what comes out.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hotcell_engine::Attachment;
use hotcell_sandbox::cause;
use hotcell_types::Bytes;
use rustix::fs::OFlags;

use crate::problem::Problem;

/// Most files given to one run.
const MAX_INPUTS: usize = 128;

/// Longest name of a file, in bytes, on every file system that matters.
const MAX_NAME: usize = 255;

/// Why a file cannot be given to a run.
#[derive(Debug)]
pub(super) struct Unusable {
    path: PathBuf,
    why: String,
    missing: bool,
}

impl Unusable {
    fn new(path: &Path, why: impl Into<String>) -> Unusable {
        Unusable { path: path.into(), why: why.into(), missing: false }
    }

    fn failed(path: &Path, error: &io::Error) -> Unusable {
        let missing =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        Unusable { missing, ..Unusable::new(path, cause(error)) }
    }

    /// As an input.
    pub(super) fn invalid(self) -> Problem {
        Problem::invalid(format!("`{}` cannot be given to the run", self.path.display()))
            .why(self.why)
    }

    /// As the thing to run.
    pub(super) fn not_run(self) -> Problem {
        let shown = self.path.display();
        if self.missing {
            let fix = if self.path.as_os_str() == "show" {
                "`hotcell runs show ID` shows a call; what follows `run` is the name of a file"
                    .into()
            } else {
                format!("check the path; a command is run with `hotcell run -- {shown}`")
            };
            return Problem::not_found(format!("there is no file `{shown}`")).fix(fix);
        }
        Problem::not_runnable(format!("`{shown}` cannot be run")).why(self.why)
    }
}

/// Opens a regular file and nothing else, without ever waiting. A link is followed: whoever named it
/// on the command line may read what it leads to.
pub(super) fn open_regular(path: &Path) -> Result<File, Unusable> {
    let failed = |e: io::Error| Unusable::failed(path, &e);
    // Before it is opened, as opening a device can already do something; and again afterwards, as
    // it may have been replaced.
    let before = fs::metadata(path).map_err(failed)?;
    must_be_regular(path, before.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    must_be_regular(path, file.metadata().map_err(failed)?.file_type())?;
    Ok(file)
}

fn must_be_regular(path: &Path, kind: FileType) -> Result<(), Unusable> {
    if kind.is_file() {
        return Ok(());
    }
    let kind = if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Unusable::new(path, format!("it is {kind}, not a regular file")))
}

/// The name that a file has in the working directory: its own.
pub(super) fn name_of(path: &Path) -> Result<OsString, Problem> {
    let unnamed = || Unusable::new(path, "its path does not end in a name").invalid();
    let name = path.file_name().ok_or_else(unnamed)?;
    if name.as_bytes().len() > MAX_NAME {
        return Err(
            Unusable::new(path, format!("its name has more than {MAX_NAME} bytes")).invalid()
        );
    }
    Ok(name.into())
}

/// The content of a file as it is now.
pub(super) fn attach(path: &Path, file: File, disk: Bytes) -> Result<Attachment, Problem> {
    let bytes = file.metadata().map_or(0, |data| data.len());
    let read = Attachment::of_file(name_of(path)?, file, disk.get());
    read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => does_not_fit(bytes, disk),
        _ => Unusable::failed(path, &error).invalid(),
    })
}

/// Reads all inputs, the script first, and checks that they go together.
pub(super) fn open(
    script: Option<Attachment>,
    paths: &[PathBuf],
    disk: Bytes,
) -> Result<Vec<Attachment>, Problem> {
    if paths.len() > MAX_INPUTS {
        return Err(Problem::invalid(format!("{} inputs are too many", paths.len()))
            .why(format!("the most is {MAX_INPUTS}"))
            .fix("put them into one archive"));
    }
    let mut inputs: Vec<Attachment> = script.into_iter().collect();
    for path in paths {
        inputs.push(attach(path, open_regular(path).map_err(Unusable::invalid)?, disk)?);
    }
    must_differ(&inputs)?;
    must_fit(&inputs, disk)?;
    Ok(inputs)
}

fn must_differ(inputs: &[Attachment]) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    match inputs.iter().find(|input| !names.insert(input.name())) {
        None => Ok(()),
        Some(input) => {
            Err(Problem::invalid(format!("two inputs are called `{}`", input.name().display()))
                .why("each file has its own name in the working directory, and so has the code")
                .fix("rename one of them"))
        }
    }
}

fn must_fit(inputs: &[Attachment], disk: Bytes) -> Result<(), Problem> {
    let total: u64 = inputs.iter().map(|input| input.content().bytes).sum();
    if total <= disk.get() {
        return Ok(());
    }
    Err(does_not_fit(total, disk))
}

fn does_not_fit(bytes: u64, disk: Bytes) -> Problem {
    Problem::invalid("the inputs do not fit")
        .why(format!("they have {bytes} bytes, and the limit on disk is {disk}"))
        .fix("raise it with --disk")
}

/// hotcell's own standard input, to be passed on.
pub(super) fn own_stdin() -> Result<File, Problem> {
    let copy = io::stdin().as_fd().try_clone_to_owned();
    copy.map(File::from)
        .map_err(|e| Problem::error("standard input could not be passed on").why(cause(&e)))
}

/// A directory for artifacts. It must be new or empty: their names are chosen by the program, and
/// must not meet a file that is there already, such as a Git hook.
#[derive(Debug)]
pub(super) struct OutputDir {
    path: PathBuf,
    /// Removed again if nothing ran.
    made: bool,
}

impl OutputDir {
    pub(super) fn make(path: PathBuf) -> Result<OutputDir, Problem> {
        let unusable = |path: &Path, why: String| {
            Problem::invalid(format!("`{}` cannot take the outputs", path.display()))
                .why(why)
                .fix("give a directory that is empty, or one to be made in an existing directory")
        };
        match DirBuilder::new().create(&path) {
            Ok(()) => return Ok(OutputDir { path, made: true }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(unusable(&path, cause(&e))),
        }
        match fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(OutputDir { path, made: false }),
            Ok(false) => Err(unusable(&path, "it is not empty".into())),
            Err(e) => Err(unusable(&path, cause(&e))),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What tidies up in the place of a process that ends at once.
    pub(super) fn remover(&self) -> impl FnOnce() + Send + use<> {
        let made = self.made.then(|| self.path.clone());
        move || drop(made.map(fs::remove_dir))
    }

    /// A run took place: what is there stays.
    pub(super) fn keep(mut self) {
        self.made = false;
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if self.made {
            // Only if it is empty, and only for tidiness.
            drop(fs::remove_dir(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_dir(names: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = names.iter().map(|n| dir.path().join(n)).collect();
        for path in &paths {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "12345").unwrap();
        }
        (dir, paths)
    }

    fn opened(paths: &[PathBuf], disk: &str) -> Result<Vec<OsString>, String> {
        open(None, paths, disk.parse().unwrap())
            .map(|inputs| inputs.into_iter().map(|i| i.name().clone()).collect())
            .map_err(|problem| problem.text(false))
    }

    #[test]
    fn inputs_keep_their_names() {
        let (_dir, paths) = in_dir(&["a", "sub/-b", "ü\n"]);
        assert_eq!(opened(&paths, "1MiB").unwrap(), ["a", "-b", "ü\n"]);
    }

    #[test]
    fn inputs_that_do_not_go_together_are_refused() {
        let (_dir, paths) = in_dir(&["a", "sub/a"]);
        assert!(opened(&paths, "1MiB").unwrap_err().contains("two inputs are called `a`"));
        let (_dir, paths) = in_dir(&["a", "b"]);
        assert!(opened(&paths, "9").unwrap_err().contains("--disk"));
        assert!(opened(&paths, "10").is_ok());
        let many = vec![paths[0].clone(); MAX_INPUTS + 1];
        assert!(opened(&many, "1MiB").unwrap_err().contains("129 inputs are too many"));
    }

    #[test]
    fn a_path_without_a_name_is_refused() {
        for path in ["/", "..", "a/.."] {
            assert!(name_of(Path::new(path)).is_err(), "{path}");
        }
        assert!(name_of(Path::new(&"x".repeat(256))).is_err());
    }

    #[test]
    fn an_output_directory_is_made_and_removed_again_unless_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        drop(OutputDir::make(path.clone()).unwrap());
        assert!(!path.exists());
        OutputDir::make(path.clone()).unwrap().keep();
        assert!(path.exists());
        drop(OutputDir::make(path.clone()).unwrap());
        assert!(path.exists(), "it was there before");
    }

    #[test]
    fn an_output_directory_with_something_in_it_is_refused() {
        let (dir, paths) = in_dir(&["out/a", "file"]);
        for path in [dir.path().join("out"), paths[1].clone(), dir.path().join("x/y")] {
            assert!(OutputDir::make(path.clone()).is_err(), "{path:?}");
        }
    }
}
