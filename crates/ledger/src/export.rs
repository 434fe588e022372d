//! Writes artifacts into a directory, under names that are safe anywhere, with a manifest that has the
//! real ones.

use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::Mode;
use serde::Serialize;

use crate::digest::{Blob, Digest};
use crate::dir::{self, Partial};
use crate::error::{Error, StoreError};
use crate::line::Tag;
use crate::query::{self, Details, Filter, MAX_PAGE, Page};
use crate::rows::{Artifact, Edge, Verdict};
use crate::store::Store;

/// One line of JSON for each artifact. It appears when everything else is there.
pub const MANIFEST: &str = "manifest.jsonl";
/// Most artifacts of one export.
pub const MAX_EXPORT: u64 = 100_000;
/// Bytes that a name keeps: of its beginning, and of its end, where it says what it is.
const BEGINNING: usize = 80;
const END: usize = 20;

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    pub files: u64,
    pub bytes: u64,
    /// Contents that are missing or not what was stored. The manifest says which and why.
    pub refused: u64,
    /// Whether it ended at [`MAX_EXPORT`], and there may be more.
    pub is_cut: bool,
}

/// A line of the manifest.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Below the directory; absent if it was refused.
    file: Option<&'a str>,
    refused: Option<String>,
    #[serde(flatten)]
    artifact: &'a Artifact,
    edges: &'a [Edge],
    tags: &'a [Tag],
    verdicts: &'a [Verdict],
    /// The digest that the chain has of the row.
    statement: Digest,
}

/// Writes what the filter lets through into a directory that is empty or not there yet, the newest first.
/// What is not as it was stored is not written.
pub fn export(
    conn: &Connection,
    store: &Store,
    filter: &Filter,
    target: &Path,
) -> Result<Exported, Error> {
    let dir = open_empty(target).map_err(Error::Export)?;
    let mut manifest = Partial::create(&dir, Mode::RUSR | Mode::WUSR).map_err(Error::Export)?;
    let mut lines = BufWriter::new(&manifest.file);
    let mut exported = Exported::default();
    let mut page = Page::first(MAX_PAGE);
    loop {
        let artifacts = query::list(conn, filter, page)?;
        let Some(last) = artifacts.last() else { break };
        page.after = Some(last.id);
        for artifact in &artifacts {
            let Some(details) = query::get(conn, &filter.tenant, artifact.id)? else { continue };
            exported.one(conn, store, &dir, &details, &mut lines)?;
        }
        if exported.files + exported.refused >= MAX_EXPORT {
            exported.is_cut = true;
            break;
        }
    }
    lines.flush().map_err(Error::Export)?;
    drop(lines);
    manifest.place(&dir, MANIFEST).map_err(|errno| Error::Export(errno.into()))?;
    Ok(exported)
}

impl Exported {
    fn one(
        &mut self,
        conn: &Connection,
        store: &Store,
        dir: &OwnedFd,
        details: &Details,
        lines: &mut impl Write,
    ) -> Result<(), Error> {
        let Details { artifact, edges, tags, verdicts } = details;
        let name = file_name(self.files + self.refused + 1, artifact.name.as_str());
        let refused = match write_file(conn, store, &artifact.blob, dir, &name) {
            Ok(()) => None,
            Err(Error::Store(error @ (StoreError::Missing(_) | StoreError::Tampered { .. }))) => {
                Some(error.to_string())
            }
            Err(error) => return Err(error),
        };
        if refused.is_none() {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(artifact.blob.size);
        } else {
            self.refused += 1;
        }
        let file = refused.is_none().then_some(name.as_str());
        let statement = details.statement().digest();
        let line = Line { file, refused, artifact, edges, tags, verdicts, statement };
        serde_json::to_writer(&mut *lines, &line).map_err(|e| Error::Export(e.into()))?;
        lines.write_all(b"\n").map_err(Error::Export)
    }
}

fn open_empty(target: &Path) -> io::Result<OwnedFd> {
    let dir = dir::open_or_make(target)?;
    for name in dir::names(&dir)? {
        if !matches!(name?.as_str(), "." | "..") {
            return Err(io::Error::other("it is not empty"));
        }
    }
    Ok(dir)
}

fn write_file(
    conn: &Connection,
    store: &Store,
    blob: &Blob,
    dir: &OwnedFd,
    name: &str,
) -> Result<(), Error> {
    let mut content = store.content(conn, blob)?;
    let mut partial = Partial::create(dir, Mode::RUSR | Mode::WUSR).map_err(Error::Export)?;
    let copied = io::copy(&mut content, &mut partial.file);
    copied.map_err(|error| match error.downcast() {
        Ok(tampered) => Error::Store(tampered),
        Err(error) => Error::Export(error),
    })?;
    partial.place(dir, name).map_err(|errno| Error::Export(errno.into()))
}

/// A name of ASCII letters, digits, `.`, `_` and `-`. It begins with a number that no other file has, so
/// that it is never hidden, an option, a device or the directory above, and never that of another file,
/// also where capital and small letters are the same.
fn file_name(number: u64, name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.len() > BEGINNING + END {
        let end = plain.split_off(plain.len() - END);
        plain.truncate(BEGINNING);
        plain.push_str(&end);
    }
    format!("{number:05}-{}", plain.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_name_is_safe_anywhere() {
        let long = format!("{}.tar.gz", "x".repeat(300));
        for (name, safe) in [
            ("report.csv", "00001-report.csv"),
            ("../../etc/passwd", "00001-.._.._etc_passwd"),
            ("/abs", "00001-_abs"),
            ("a/b\\c", "00001-a_b_c"),
            ("..", "00001-"),
            (".bashrc", "00001-.bashrc"),
            ("-rf", "00001--rf"),
            ("CON", "00001-CON"),
            ("nul.txt", "00001-nul.txt"),
            ("a:b*?\"<>|", "00001-a_b______"),
            ("trailing. ", "00001-trailing._"),
            ("ü \u{202e}x", "00001-___x"),
            (&long, &format!("00001-{}xxxxxxxxxxxxx.tar.gz", "x".repeat(80))),
        ] {
            assert_eq!(file_name(1, name), safe, "{name}");
        }
    }
}
