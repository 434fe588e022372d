//! Where results go. A file can be gone on with: what is whole in it stays, what a kill cut off is cut off,
//! and the batch keeps its name (in a file beside it) until it is complete, so that a job whose result did not
//! reach the file is known to have been carried out.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hotcell_api::batch::{Done, JobId, Name, Task};
use hotcell_engine::new_id;
use hotcell_sandbox::cause;
use hotcell_types::{CallId, Status, hex};
use serde::Deserialize;

use crate::print;
use crate::problem::Problem;

/// Added to the name of the results for the file with the name of the batch.
const BESIDE: &str = ".batch";
/// Longest line of a file that is gone on with, in bytes: more than a result of ours has.
const RESULT_MOST: u64 = 256 << 20;

pub(super) struct Output {
    to: To,
}

enum To {
    Stdout {
        /// A line may have been torn: nothing that follows it could be told from it.
        is_torn: bool,
    },
    File(Box<Results>),
}

struct Results {
    file: File,
    /// The file with the batch's name, and the name.
    beside: PathBuf,
    name: CallId,
    earlier: Earlier,
}

/// Jobs that have a result already, with the digest of their lines.
#[derive(Debug, Clone, Default)]
pub(super) struct Earlier(HashMap<JobId, ([u8; 32], Status)>);

/// What has to be known of a result that is there.
#[derive(Deserialize)]
struct Known {
    id: JobId,
    job: String,
    result: KnownResult,
}

#[derive(Deserialize)]
struct KnownResult {
    status: Status,
}

impl Output {
    pub(super) fn open(path: Option<&Path>) -> Result<Output, Problem> {
        let to = match path {
            None => To::Stdout { is_torn: false },
            Some(path) => To::File(Box::new(Results::open(path)?)),
        };
        Ok(Output { to })
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.to, To::File(_))
    }

    /// By what its jobs are known if it comes again.
    pub(super) fn name(&self) -> Option<Name> {
        match &self.to {
            To::Stdout { .. } => None,
            To::File(results) => Some(Name::new(results.name.to_string())),
        }
    }

    pub(super) fn earlier(&mut self) -> Earlier {
        match &mut self.to {
            To::Stdout { .. } => Earlier::default(),
            To::File(results) => std::mem::take(&mut results.earlier),
        }
    }

    /// One line. It is the reader's at once.
    pub(super) fn write(&mut self, done: &Done) -> io::Result<()> {
        let line = print::document(done);
        match &mut self.to {
            To::Stdout { is_torn: true } => Err(io::Error::other("a line of it is torn")),
            To::Stdout { is_torn } => {
                let mut out = io::stdout().lock();
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                written.inspect_err(|_| *is_torn = true)
            }
            To::File(results) => {
                whole(&mut results.file, line.as_bytes(), |file, length| file.set_len(length))
            }
        }
    }

    /// All of it is on the disk; a batch that is complete does not come again.
    pub(super) fn close(self, is_complete: bool) -> io::Result<()> {
        let To::File(results) = self.to else { return Ok(()) };
        results.file.sync_all()?;
        if is_complete {
            fs::remove_file(&results.beside)?;
        }
        Ok(())
    }
}

/// All of a line or nothing of it: other results may find room after one that did not, and what they follow
/// has to be whole.
fn whole<F: Write + Seek>(
    file: &mut F,
    line: &[u8],
    cut: impl FnOnce(&F, u64) -> io::Result<()>,
) -> io::Result<()> {
    let begin = file.stream_position()?;
    file.write_all(line).or_else(|error| {
        cut(file, begin)?;
        file.seek(SeekFrom::Start(begin))?;
        Err(error)
    })
}

impl Results {
    fn open(path: &Path) -> Result<Results, Problem> {
        let not_used = |error: io::Error| unusable(path).why(cause(&error)).fix(REGULAR);
        let (mut file, is_new) = opened(path).map_err(not_used)?;
        if !file.metadata().map_err(not_used)?.is_file() {
            return Err(unusable(path).why("it is not a regular file").fix(REGULAR));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(unusable(path)
                    .why("another hotcell batch writes to it")
                    .fix("wait for its end, or give another file"));
            }
            Err(TryLockError::Error(error)) => return Err(not_used(error)),
        }
        let beside = beside(path);
        // A name without results is that of a batch whose results somebody removed.
        let name = match named(&beside).filter(|_| !is_new) {
            Some(name) => name,
            None => give_name(&beside).map_err(|error| {
                Problem::error(format!("`{}` cannot be written", beside.display()))
                    .why(cause(&error))
                    .fix("what the batch is known by is kept there until it is complete")
            })?,
        };
        let (earlier, length) = Earlier::read(&file, path)?;
        file.set_len(length).map_err(not_used)?;
        file.seek(SeekFrom::Start(length)).map_err(not_used)?;
        Ok(Results { file, beside, name, earlier })
    }
}

impl Earlier {
    /// What is there already, and where the last whole line ends.
    fn read(file: &File, path: &Path) -> Result<(Earlier, u64), Problem> {
        let mut reader = BufReader::new(file);
        let (mut all, mut length, mut number) = (HashMap::new(), 0, 0_u64);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(RESULT_MOST).read_until(b'\n', &mut line);
            let read = read.map_err(|error| unusable(path).why(cause(&error)))?;
            if line.pop() != Some(b'\n') && (read as u64) < RESULT_MOST {
                // Nothing, or what was being written when somebody ended it.
                return Ok((Earlier(all), length));
            }
            number += 1;
            length += read as u64;
            let known = serde_json::from_slice::<Known>(&line).ok();
            let Some((known, job)) =
                known.and_then(|known| hex::parse(&known.job).map(|job| (known, job)))
            else {
                return Err(unusable(path)
                    .why(format!("line {number} of it is not the result of a job"))
                    .fix("give a file that is new, empty, or from this command"));
            };
            all.insert(known.id, (job, known.result.status));
        }
    }

    pub(super) fn statuses(&self) -> impl Iterator<Item = Status> {
        self.0.values().map(|(_, status)| *status)
    }

    /// A task that has no result yet. One that has the result of another is a mistake.
    pub(super) fn is_left(&self, task: Task) -> Result<Option<Task>, Problem> {
        match self.0.get(&task.id) {
            None => Ok(Some(task)),
            Some((job, _)) if *job == task.job => Ok(None),
            Some(_) => Err(Problem::invalid("the results are those of other jobs")
                .why(format!("line {} is another job than the one that has a result", task.line))
                .fix("give the jobs as they were, or another file for the results")),
        }
    }
}

const REGULAR: &str = "give a regular file that can be written, or redirect stdout";

/// What is there, or a new one; whether it is new.
fn opened(path: &Path) -> io::Result<(File, bool)> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Ok(file) => Ok((file, false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok((options.create_new(true).open(path)?, true))
        }
        Err(error) => Err(error),
    }
}

fn unusable(path: &Path) -> Problem {
    Problem::invalid(format!("the results cannot be written to `{}`", path.display()))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(BESIDE);
    name.into()
}

/// The name that is there. What is torn was never used.
fn named(beside: &Path) -> Option<CallId> {
    fs::read_to_string(beside).ok()?.strip_suffix('\n')?.parse().ok()
}

/// On the disk before the first job is begun.
fn give_name(beside: &Path) -> io::Result<CallId> {
    let name = new_id();
    let mut file = File::create(beside)?;
    file.write_all(format!("{name}\n").as_bytes())?;
    file.sync_all()?;
    let directory = beside.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        file: File,
        left: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.get(..self.left.min(bytes.len())).unwrap_or_default();
            if fits.is_empty() && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.left -= fits.len();
            self.file.write(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    #[test]
    fn a_line_for_which_there_is_no_room_leaves_no_part_of_itself() {
        let (file, left) = (tempfile::tempfile().unwrap(), 10);
        let mut disk = Disk { file, left };
        let cut = |disk: &Disk, length| disk.file.set_len(length);
        whole(&mut disk, b"first\n", cut).unwrap();
        let error = whole(&mut disk, b"too long\n", cut).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        disk.left = 100;
        whole(&mut disk, b"third\n", cut).unwrap();
        let mut text = String::new();
        disk.file.rewind().unwrap();
        disk.file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "first\nthird\n");
    }
}
