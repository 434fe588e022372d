//! Contents read back. No byte is handed out before it is known to belong to the content that was
//! stored, also if somebody changes the file in between.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek};

use rusqlite::{Connection, OptionalExtension};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::digest::{Blob, Digest};
use crate::dir;
use crate::error::{Damage, Error, StoreError};
use crate::store::{MAX_BLOB, MAX_SMALL, Store, halves};

/// How much is read, checked and held in memory at once.
const CHUNK: u64 = 4 * 1024 * 1024;
/// Most bytes of one range.
pub const MAX_RANGE: u64 = 16 * 1024 * 1024;

/// A reader of a content that was found to be right as a whole. What is small is served from the
/// memory in which it was checked. What is larger is read again, a chunk at a time, and each is compared
/// with what it was then.
#[derive(Debug)]
pub struct Content {
    /// `None` if all of it is in memory.
    file: Option<File>,
    blob: Blob,
    chunks: std::vec::IntoIter<Digest>,
    chunk: io::Cursor<Vec<u8>>,
}

/// Where a content is.
enum Found {
    Ledger(Vec<u8>),
    File(File),
}

impl Store {
    /// Opens a content. It is hashed as a whole before this returns.
    pub fn content(&self, conn: &Connection, blob: &Blob) -> Result<Content, Error> {
        let mut file = match self.find_right(conn, blob)? {
            Found::File(file) => file,
            Found::Ledger(bytes) => return Ok(Content::of(*blob, bytes)),
        };
        let mut chunks = Vec::new();
        let mut last = Vec::new();
        check(&mut file, blob, |_, chunk| {
            chunks.push(Digest::of(chunk));
            std::mem::swap(&mut last, chunk);
        })?;
        if chunks.len() <= 1 {
            return Ok(Content::of(*blob, last));
        }
        file.rewind().map_err(StoreError::io("read an artifact"))?;
        let (file, chunks) = (Some(file), chunks.into_iter());
        Ok(Content { file, chunks, ..Content::of(*blob, Vec::new()) })
    }

    /// Part of a content: what there is from `from` on, at most `length` bytes and at most [`MAX_RANGE`].
    /// It is taken from the bytes that were hashed as a whole.
    pub fn range(
        &self,
        conn: &Connection,
        blob: &Blob,
        from: u64,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        let mut range = Vec::new();
        let until = from.saturating_add(length.min(MAX_RANGE));
        let mut take = |offset: u64, chunk: &mut Vec<u8>| {
            let begin = from.saturating_sub(offset).min(chunk.len() as u64) as usize;
            let end = until.saturating_sub(offset).min(chunk.len() as u64) as usize;
            range.extend_from_slice(chunk.get(begin..end).unwrap_or_default());
        };
        match self.find_right(conn, blob)? {
            Found::Ledger(mut bytes) => take(0, &mut bytes),
            Found::File(mut file) => check(&mut file, blob, take)?,
        }
        Ok(range)
    }

    /// What really is under the name of a content.
    pub(crate) fn found(&self, conn: &Connection, digest: &Digest) -> Result<Blob, Error> {
        if let Some(bytes) = small(conn, digest)? {
            return Ok(Blob::of(&bytes));
        }
        let (mut file, size) = self.open_plain(digest)?;
        if size > MAX_BLOB {
            let damage = Damage::Size(size);
            return Err(StoreError::Tampered { digest: *digest, damage }.into());
        }
        Ok(hash(&mut file, &mut |_, _| {})?)
    }

    /// What has the right size, and if it is in memory, also the right digest.
    fn find_right(&self, conn: &Connection, blob: &Blob) -> Result<Found, Error> {
        if let Some(bytes) = small(conn, &blob.digest)? {
            compare(&Blob::of(&bytes), blob)?;
            return Ok(Found::Ledger(bytes));
        }
        let (file, size) = self.open_plain(&blob.digest)?;
        if size != blob.size || size > MAX_BLOB {
            let damage = Damage::Size(size);
            return Err(StoreError::Tampered { digest: blob.digest, damage }.into());
        }
        Ok(Found::File(file))
    }

    fn open_plain(&self, digest: &Digest) -> Result<(File, u64), StoreError> {
        let (shard, rest) = halves(digest);
        let file = dir::open_beneath(&*self.dir, &format!("{shard}/{rest}"), OFlags::empty());
        let plain = file.and_then(|file| Ok((dir::plain_size(&file)?, file)));
        match plain {
            Ok((Some(size), file)) => Ok((File::from(file), size)),
            Err(Errno::NOENT) => Err(StoreError::Missing(*digest)),
            // A link, another mount, a socket: what is opened here never is one.
            Ok((None, _)) | Err(Errno::LOOP | Errno::XDEV | Errno::NXIO) => {
                Err(StoreError::Tampered { digest: *digest, damage: Damage::NotPlain })
            }
            Err(errno) => Err(StoreError::io("read an artifact")(errno.into())),
        }
    }
}

/// What the ledger itself has under the name of a content.
fn small(conn: &Connection, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
    // Whatever somebody has put there, no more than that is read.
    let sql = "SELECT length(bytes), CASE WHEN length(bytes) <= ?2 THEN bytes END
               FROM artifact_content WHERE digest = ?1";
    let mut statement = conn.prepare_cached(sql)?;
    let found: Option<(i64, Option<Vec<u8>>)> = statement
        .query_row((digest, MAX_SMALL as i64), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        Some((length, None)) => {
            let damage = Damage::Size(length.unsigned_abs());
            Err(StoreError::Tampered { digest: *digest, damage }.into())
        }
        Some((_, bytes)) => Ok(bytes),
        None => Ok(None),
    }
}

/// Shows each chunk with its offset, and fails unless all of them together are the content.
fn check(
    file: &mut File,
    blob: &Blob,
    mut each: impl FnMut(u64, &mut Vec<u8>),
) -> Result<(), StoreError> {
    compare(&hash(file, &mut each)?, blob)
}

fn compare(found: &Blob, blob: &Blob) -> Result<(), StoreError> {
    match *found {
        found if found == *blob => Ok(()),
        Blob { size, .. } if size != blob.size => Err(Damage::Size(size)),
        Blob { digest, .. } => Err(Damage::Content(digest)),
    }
    .map_err(|damage| StoreError::Tampered { digest: blob.digest, damage })
}

fn hash(file: &mut File, each: &mut impl FnMut(u64, &mut Vec<u8>)) -> Result<Blob, StoreError> {
    let mut hasher = Sha256::new();
    let mut size = 0_u64;
    let mut chunk = Vec::new();
    loop {
        let length = next_chunk(file, &mut chunk).map_err(StoreError::io("read an artifact"))?;
        // A file that somebody makes longer and longer has an end here.
        if length == 0 || size > MAX_BLOB {
            return Ok(Blob { digest: Digest::finish(hasher), size });
        }
        hasher.update(&chunk);
        each(size, &mut chunk);
        size = size.saturating_add(length);
    }
}

fn next_chunk(file: &mut File, chunk: &mut Vec<u8>) -> io::Result<u64> {
    chunk.clear();
    file.by_ref().take(CHUNK).read_to_end(chunk).map(|length| length as u64)
}

impl Content {
    pub fn size(&self) -> u64 {
        self.blob.size
    }

    fn of(blob: Blob, bytes: Vec<u8>) -> Content {
        let chunk = io::Cursor::new(bytes);
        Content { file: None, blob, chunks: Vec::new().into_iter(), chunk }
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Some(expected) = self.chunks.next() else { return Ok(()) };
        let chunk = self.chunk.get_mut();
        next_chunk(file, chunk)?;
        let found = Digest::of(chunk);
        self.chunk.set_position(0);
        if found == expected {
            return Ok(());
        }
        // Nothing more comes out.
        self.chunk.get_mut().clear();
        self.chunks = Vec::new().into_iter();
        let damage = Damage::Content(found);
        Err(io::Error::other(StoreError::Tampered { digest: self.blob.digest, damage }))
    }
}

impl BufRead for Content {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.fill_buf()?.is_empty() {
            self.refill()?;
        }
        self.chunk.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.consume(amount);
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}
