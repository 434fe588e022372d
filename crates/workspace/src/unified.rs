//! Changes as people review them.

use std::fmt::Write;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use similar::TextDiff;

use crate::relative::turns_text;
use crate::{Change, Changeset, Digest, Relative, Root};

/// Largest content that is shown line by line.
const MOST_TEXT: u64 = 512 * 1024;
/// Most bytes of all that is shown.
const MOST_SHOWN: usize = 4 * 1024 * 1024;
/// How long all of it may take.
const ALL_WITHIN: Duration = Duration::from_secs(10);
/// How long the shortest difference of one file is looked for; then a longer one has to do.
const WITHIN: Duration = Duration::from_millis(200);
/// Lines shown around a change.
const CONTEXT: usize = 3;

/// A unified diff of the text files of a changeset. Of others it says only that they differ: binary ones,
/// large ones, and those that a terminal would not show as they are. What was there before is read from
/// the tree, what is to be there comes from `content`.
pub fn unified<R: Read>(
    root: &Root,
    changeset: &Changeset,
    mut content: impl FnMut(&Digest) -> io::Result<R>,
) -> String {
    let until = Instant::now() + ALL_WITHIN;
    let mut shown = String::new();
    for (number, change) in changeset.changes().iter().enumerate() {
        if shown.len() >= MOST_SHOWN || Instant::now() > until {
            let more = changeset.changes().len() - number;
            // Writing to a string does not fail, here and below.
            writeln!(shown, "{more} more changes are not shown").ok();
            break;
        }
        match sides(root, change, &mut content) {
            Ok((old, new)) => shown.push_str(&difference(change, &old, &new)),
            Err(why) => {
                writeln!(shown, "{change}: {why}").ok();
            }
        }
    }
    shown
}

/// What would change if a file had this text; empty if it has it already. Where that cannot be shown, why.
pub fn unified_text(root: &Root, path: &Relative, new: &str) -> Result<String, &'static str> {
    const UNREADABLE: &str = "what is there cannot be read";
    let old = match root.exists(path).map_err(|_| UNREADABLE)? {
        None => None,
        Some(_) => {
            let (file, _) = root.open_file(path).map_err(|_| UNREADABLE)?;
            Some(bounded(file)?)
        }
    };
    let new = bounded(new.as_bytes())?;
    let is_there = (old.is_some(), true);
    Ok(lines(path, is_there, &plain(old.unwrap_or_default())?, &plain(new)?))
}

fn difference(change: &Change, old: &str, new: &str) -> String {
    let is_there = (change.before.is_some(), change.after.is_some());
    let text = lines(&change.path, is_there, old, new);
    if text.is_empty() { format!("{change}: only its right of execution changes\n") } else { text }
}

fn lines(path: &Relative, is_there: (bool, bool), old: &str, new: &str) -> String {
    let name = |side: char, is_there: bool| match is_there {
        true => format!("{side}/{}", crate::error::name(Some(path))),
        false => "/dev/null".into(),
    };
    let diff = TextDiff::configure().timeout(WITHIN).diff_lines(old, new);
    let mut diff = diff.unified_diff();
    let diff = diff.context_radius(CONTEXT);
    diff.header(&name('a', is_there.0), &name('b', is_there.1)).to_string()
}

/// What was there and what is to be there, or why that is not shown.
fn sides<R: Read>(
    root: &Root,
    change: &Change,
    content: &mut impl FnMut(&Digest) -> io::Result<R>,
) -> Result<(String, String), &'static str> {
    const UNREADABLE: &str = "its content cannot be read";
    let old = match &change.before {
        None if change.kind == crate::ChangeKind::Added => String::new(),
        None => return Err("somebody else changed it as well"),
        Some(before) => {
            let (file, _) = root.open_file(&change.path).map_err(|_| UNREADABLE)?;
            text(file, before)?
        }
    };
    let new = match &change.after {
        None => String::new(),
        Some(after) => text(content(after).map_err(|_| UNREADABLE)?, after)?,
    };
    Ok((old, new))
}

/// The text of a source if it is one, and the right one.
fn text(source: impl Read, digest: &Digest) -> Result<String, &'static str> {
    let bytes = bounded(source)?;
    if Digest::of(&bytes) != *digest {
        return Err("it was changed since the run began");
    }
    plain(bytes)
}

fn bounded(source: impl Read) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::new();
    let read = source.take(MOST_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|_| "its content cannot be read")?;
    if bytes.len() as u64 > MOST_TEXT {
        return Err("it is too large to be shown");
    }
    Ok(bytes)
}

fn plain(bytes: Vec<u8>) -> Result<String, &'static str> {
    let text = String::from_utf8(bytes).map_err(|_| "it is binary")?;
    if !is_plain(&text) {
        return Err("it has control characters, or such as turn the text");
    }
    Ok(text)
}

/// Whether a terminal shows a text as it is.
fn is_plain(text: &str) -> bool {
    let text = text.replace("\r\n", "\n");
    !text.chars().any(|c| c != '\n' && c != '\t' && (c.is_control() || turns_text(c)))
}
