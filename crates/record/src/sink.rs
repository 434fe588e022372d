//! Where checkpoints go, and how they are read back from there.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::checkpoint::{Checkpoint, MARK};
use crate::hex::HomeId;

/// In the home.
const ANCHOR: &str = "anchor.log";
/// Longest line that is looked at. A checkpoint has about 450 bytes.
const MOST_LINE: usize = 4096;
/// What is read of an anchor when only its end matters: several lines, since processes that close at the
/// same time write theirs in any order. More of it where these are all of other homes.
const TAIL: u64 = 4 * 1024;
const MOST_TAIL: u64 = 64 * 1024;
/// How long syslog may take.
const SYSLOG_MOST: Duration = Duration::from_secs(1);
/// Facility authpriv, severity notice.
const SYSLOG_PRIORITY: u8 = 10 * 8 + 5;

/// Where checkpoints are kept. The further away from the database, the more can be proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// `anchor.log` in the home. It is not synced: whoever changes the database while the system runs
    /// finds the line in it, and who could cut the system's power and change the disk has both files.
    /// A line that is lost with the power leaves the anchor behind the database, as one that was not
    /// written yet, and whoever opens the record next writes it again.
    Home,
    /// Another file, synced with each checkpoint: it was chosen to hold where the home does not.
    File(PathBuf),
    /// The system's log, by its socket (usually `/dev/log`).
    Syslog(PathBuf),
}

impl Sink {
    /// The file that a verifier can read.
    pub fn anchor(&self, home: &Path) -> Option<PathBuf> {
        match self {
            Sink::Home => Some(home.join(ANCHOR)),
            Sink::File(path) => Some(path.clone()),
            Sink::Syslog(_) => None,
        }
    }

    pub(crate) fn write(&self, home: &Path, line: &str) -> io::Result<()> {
        match self {
            Sink::Syslog(socket) => {
                let syslog = UnixDatagram::unbound()?;
                syslog.set_write_timeout(Some(SYSLOG_MOST))?;
                let message = format!("<{SYSLOG_PRIORITY}>hotcell: {line}");
                syslog.send_to(message.as_bytes(), socket).map(drop)
            }
            Sink::Home => append(&home.join(ANCHOR), line).map(drop),
            Sink::File(path) => append(path, line)?.sync_data(),
        }
    }
}

fn append(path: &Path, line: &str) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    // A process that was killed may have left half a line.
    let mut last = [b'\n'];
    if let Some(place) = length(&file)?.checked_sub(1) {
        file.read_at(&mut last, place)?;
    }
    let begin = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{begin}{line}\n").as_bytes())?;
    Ok(file)
}

/// What is written into a FIFO or a device is kept by nobody, and what is read from one may never end.
fn length(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(found.len())
}

/// A file with checkpoints, as long as it was when it was opened.
#[derive(Debug)]
pub(crate) struct Anchor {
    lines: io::Take<BufReader<File>>,
}

impl Anchor {
    pub(crate) fn open(path: &Path) -> io::Result<Anchor> {
        Anchor::from(path, |_| 0)
    }

    /// Its last checkpoints of this home, as far as they are within a bound.
    pub(crate) fn open_end(path: &Path, home: HomeId) -> io::Result<Vec<String>> {
        let of_home = format!("{MARK}home={home} ");
        for tail in [TAIL, MOST_TAIL] {
            let mut anchor = Anchor::from(path, |length| length.saturating_sub(tail))?;
            let mut ours = Vec::new();
            while let Some(line) = anchor.next_line()? {
                ours.extend(Some(line).filter(|line| line.starts_with(&of_home)));
            }
            if !ours.is_empty() {
                return Ok(ours);
            }
        }
        Ok(Vec::new())
    }

    fn from(path: &Path, start: impl FnOnce(u64) -> u64) -> io::Result<Anchor> {
        // A link is as good as what it leads to: it only names what is compared.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file =
            OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        let length = length(&file)?;
        let start = start(length);
        file.seek(SeekFrom::Start(start))?;
        Ok(Anchor { lines: BufReader::new(file).take(length - start) })
    }

    /// The next line that has a checkpoint's mark: the checkpoint, or `None` in its place if it is
    /// unreadable. Other lines are passed over.
    pub(crate) fn next(&mut self) -> io::Result<Option<Option<Checkpoint>>> {
        Ok(self.next_line()?.map(|line| line.parse().ok()))
    }

    /// From its mark on.
    fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut self.lines).take(MOST_LINE as u64).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            // The last one: half a line may stand in front.
            if let Some((_, rest)) = text.rsplit_once(MARK) {
                return Ok(Some(format!("{MARK}{rest}")));
            }
        }
    }
}
