//! Fills a run's working directory, through its cell: what is written there is charged to the run.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant, SystemTime};

use hotcell_jail::chan;
use hotcell_jail::wire::{self, Content, MAX_ITEMS, MAX_PACKET, Moment, Report, Supplies, Writer};

use crate::cell::Cell;
use crate::job::{Item, What};
use crate::start::{internal, next_report};
use crate::{Input, Job, Refusal, WorkingCopy};

/// How long a cell may take for one packet.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Most files that are given by name.
const MAX_INPUTS: usize = 128;

/// What was put into the working directory, by its path there.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    paths: Vec<CString>,
    things: HashMap<CString, Thing>,
    /// When everything was there and the program was on its way, if it came to that.
    done: Option<SystemTime>,
}

/// A thing as it was put there. What is still so when the run has ended was not touched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    File { bytes: u64, modified: Moment },
    Directory,
    Link(CString),
}

impl Placed {
    pub(crate) fn get(&self, path: &CStr) -> Option<&Thing> {
        self.things.get(path)
    }

    pub(crate) fn is_done(&mut self) {
        self.done = Some(SystemTime::now());
    }

    /// Whether a time of the host's clock is after that. The kernel stamps files with the time of its last tick,
    /// a few milliseconds ago.
    pub(crate) fn was_done_before(&self, seconds: i64, nanos: u64) -> bool {
        let since = |done: SystemTime| done.duration_since(SystemTime::UNIX_EPOCH).ok();
        let then = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
        match (self.done.and_then(since), then) {
            (Some(done), Some((seconds, nanos))) => done < Duration::new(seconds, nanos),
            _ => false,
        }
    }

    /// The path of the thing with this number, in the order of sending.
    pub(crate) fn path(&self, index: usize) -> String {
        self.paths.get(index).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A path is relative, in normal form, and lies in a directory that came before it.
    fn check(&self, item: &Item) -> Result<(), Refusal> {
        let path = item.path.to_bytes();
        let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= 255;
        let parent = path.iter().rposition(|&byte| byte == b'/').and_then(|end| path.get(..end));
        let parent = parent.map(|parent| CString::new(parent).unwrap_or_default());
        let is_there = |parent: CString| self.get(&parent) == Some(&Thing::Directory);
        if path.split(|&byte| byte == b'/').all(is_plain) && parent.is_none_or(is_there) {
            return Ok(());
        }
        Err(invalid(&item.path, "it does not lie in a directory of the working copy"))
    }

    fn add(&mut self, item: &Item, content: Option<Content>) {
        let thing = match (&item.what, content) {
            (What::Directory, _) => Thing::Directory,
            (What::Link(target), _) => Thing::Link(target.clone()),
            (What::File(_), content) => {
                let (bytes, modified) = content.map(|c| (c.bytes, c.modified)).unwrap_or_default();
                Thing::File { bytes, modified }
            }
        };
        self.paths.push(item.path.clone());
        self.things.insert(item.path.clone(), thing);
    }
}

/// Sends everything that the job needs in its working directory; what was sent is in `placed` even if
/// the cell is lost half-way.
pub(crate) fn send(cell: &Cell, job: &Job, placed: &mut Placed) -> Result<(), Refusal> {
    let inputs = check(&job.inputs)?.into_iter().map(Ok);
    let copies = job.working_copy.iter().flat_map(|copy| copy.items());
    send_items(cell, inputs.chain(copies), placed, true)
}

/// Sends this and no job: the cell takes all of it and ends.
pub(crate) fn fill(
    cell: &Cell,
    copy: &dyn WorkingCopy,
    placed: &mut Placed,
) -> Result<(), Refusal> {
    send_items(cell, copy.items(), placed, false)?;
    let told = rustix::net::shutdown(&cell.line, rustix::net::Shutdown::Write);
    told.map_err(|errno| Refusal::of_talking("filling the working directory", errno.into()))
}

fn send_items(
    cell: &Cell,
    items: impl Iterator<Item = io::Result<Item>>,
    placed: &mut Placed,
    is_job_next: bool,
) -> Result<(), Refusal> {
    let mut items = items.peekable();
    while items.peek().is_some() {
        let batch = next_batch(&mut items).map_err(internal("reading the working copy"))?;
        let mut contents = Vec::with_capacity(batch.len());
        for item in &batch {
            placed.check(item)?;
            let content = content(item)?;
            placed.add(item, content);
            contents.push(content);
        }
        let is_last = is_job_next && items.peek().is_none();
        hand(cell, &batch, &contents, is_last)?;
        if !is_last {
            await_taken(cell)?;
        }
    }
    Ok(())
}

/// As much as fits into one packet.
fn next_batch(
    items: &mut Peekable<impl Iterator<Item = io::Result<Item>>>,
) -> io::Result<Vec<Item>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < MAX_ITEMS && bytes < MAX_PACKET / 2 {
        let Some(item) = items.next().transpose()? else { break };
        let target = if let What::Link(target) = &item.what { target.count_bytes() } else { 0 };
        bytes += item.path.count_bytes() + target;
        batch.push(item);
    }
    Ok(batch)
}

/// Files are charged to the run while they are copied, and descriptors in flight to this user: no more
/// are sent than the cell has taken.
fn await_taken(cell: &Cell) -> Result<(), Refusal> {
    match next_report(&cell.line, Instant::now() + TAKEN_WITHIN)?.0 {
        Report::Taken => Ok(()),
        _ => Err(internal("filling the working directory")(io::ErrorKind::InvalidData.into())),
    }
}

fn hand(
    cell: &Cell,
    batch: &[Item],
    contents: &[Option<Content>],
    is_last: bool,
) -> Result<(), Refusal> {
    let described = batch.iter().zip(contents).map(|(item, content)| {
        let what = match (&item.what, content) {
            (What::Link(target), _) => wire::What::Link(target),
            (_, Some(content)) => wire::What::File(*content),
            (_, None) => wire::What::Directory,
        };
        wire::Item { path: &item.path, what }
    });
    let described: Vec<_> = described.collect();
    let mut buffer = vec![0; MAX_PACKET];
    let mut writer = Writer::new(&mut buffer);
    Supplies::write(&described, is_last, &mut writer);
    let packet = writer.finish().map_err(|_| Refusal::Invalid {
        what: "the working copy".into(),
        why: "its paths are too long".into(),
        fix: "use shorter names or fewer levels".into(),
    })?;
    let fds: Vec<BorrowedFd<'_>> = batch.iter().filter_map(file).map(AsFd::as_fd).collect();
    let sent = chan::send(&cell.line, packet, &fds);
    sent.map_err(|errno| Refusal::of_talking("filling the working directory", errno.into()))
}

fn file(item: &Item) -> Option<&File> {
    match &item.what {
        What::File(file) => Some(file),
        _ => None,
    }
}

/// What the cell must know of a file.
fn content(item: &Item) -> Result<Option<Content>, Refusal> {
    let Some(file) = file(item) else { return Ok(None) };
    let metadata = file.metadata().map_err(internal("looking at an input"))?;
    if !metadata.is_file() {
        return Err(invalid(&item.path, "it is not a regular file"));
    }
    // Files of the kernel say that they are empty and are not.
    if metadata.len() == 0 && file.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
        let why = "its size is not known before it is read; copy it to a file first";
        return Err(invalid(&item.path, why));
    }
    Ok(Some(Content {
        bytes: metadata.len(),
        modified: Moment {
            seconds: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        },
        executable: metadata.mode() & 0o100 != 0,
    }))
}

/// Inputs by name, each one component.
fn check(inputs: &[Input]) -> Result<Vec<Item>, Refusal> {
    if inputs.len() > MAX_INPUTS {
        return Err(Refusal::Invalid {
            what: format!("{} inputs", inputs.len()),
            why: format!("the most is {MAX_INPUTS}"),
            fix: "put them into one archive".into(),
        });
    }
    let item = |input: &Input| {
        let bytes = input.name.as_bytes();
        let plain =
            !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && bytes.len() <= 255;
        let path = CString::new(bytes).ok().filter(|_| plain).ok_or_else(|| {
            let shown = CString::new(input.name.to_string_lossy().replace('\0', "\u{fffd}"));
            invalid(&shown.unwrap_or_default(), "its name is not one path component")
        })?;
        let file = input.file.try_clone().map_err(internal("holding an input"))?;
        Ok(Item { path, what: What::File(file) })
    };
    inputs.iter().map(item).collect()
}

fn invalid(path: &CStr, why: &str) -> Refusal {
    Refusal::Invalid {
        what: format!("input `{}`", path.to_string_lossy()),
        why: why.into(),
        fix: "give a regular file under a plain name".into(),
    }
}
