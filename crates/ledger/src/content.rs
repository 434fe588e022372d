//! Contents read back. No byte is handed out before it is known to belong to the content that was
//! stored, also if somebody changes the file in between.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek};

use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::digest::{Blob, Digest};
use crate::dir;
use crate::error::{Damage, StoreError};
use crate::store::{MAX_BLOB, Store, halves};

/// How much is read, checked and held in memory at once.
const CHUNK: u64 = 4 * 1024 * 1024;
/// Most bytes of one range.
pub const MAX_RANGE: u64 = 16 * 1024 * 1024;

/// A reader of a content that was found to be right as a whole. What is small is served from the
/// memory in which it was checked. What is larger is read again, a chunk at a time, and each is compared
/// with what it was then.
#[derive(Debug)]
pub struct Content {
    file: File,
    blob: Blob,
    chunks: std::vec::IntoIter<Digest>,
    chunk: io::Cursor<Vec<u8>>,
}

impl Store {
    /// Opens a content. It is hashed as a whole before this returns.
    pub fn content(&self, blob: &Blob) -> Result<Content, StoreError> {
        let mut file = self.open_right(blob)?;
        let mut chunks = Vec::new();
        let mut last = Vec::new();
        check(&mut file, blob, |_, chunk| {
            chunks.push(Digest::of(chunk));
            std::mem::swap(&mut last, chunk);
        })?;
        if chunks.len() <= 1 {
            chunks.clear();
        } else {
            last = Vec::new();
            file.rewind().map_err(StoreError::io("read an artifact"))?;
        }
        let chunk = io::Cursor::new(last);
        Ok(Content { file, blob: *blob, chunks: chunks.into_iter(), chunk })
    }

    /// Part of a content: what there is from `from` on, at most `length` bytes and at most [`MAX_RANGE`].
    /// It is taken from the bytes that were hashed as a whole.
    pub fn range(&self, blob: &Blob, from: u64, length: u64) -> Result<Vec<u8>, StoreError> {
        let mut file = self.open_right(blob)?;
        let mut range = Vec::new();
        let until = from.saturating_add(length.min(MAX_RANGE));
        check(&mut file, blob, |offset, chunk| {
            let begin = from.saturating_sub(offset).min(chunk.len() as u64) as usize;
            let end = until.saturating_sub(offset).min(chunk.len() as u64) as usize;
            range.extend_from_slice(chunk.get(begin..end).unwrap_or_default());
        })?;
        Ok(range)
    }

    /// What really is under the name of a content.
    pub(crate) fn found(&self, digest: &Digest) -> Result<Blob, StoreError> {
        let (mut file, size) = self.open_plain(digest)?;
        if size > MAX_BLOB {
            return Err(StoreError::Tampered { digest: *digest, damage: Damage::Size(size) });
        }
        hash(&mut file, &mut |_, _| {})
    }

    fn open_right(&self, blob: &Blob) -> Result<File, StoreError> {
        let (file, size) = self.open_plain(&blob.digest)?;
        if size != blob.size || size > MAX_BLOB {
            let damage = Damage::Size(size);
            return Err(StoreError::Tampered { digest: blob.digest, damage });
        }
        Ok(file)
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

/// Shows each chunk with its offset, and fails unless all of them together are the content.
fn check(
    file: &mut File,
    blob: &Blob,
    mut each: impl FnMut(u64, &mut Vec<u8>),
) -> Result<(), StoreError> {
    let found = hash(file, &mut each)?;
    match found {
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

    fn refill(&mut self) -> io::Result<()> {
        let Some(expected) = self.chunks.next() else { return Ok(()) };
        let chunk = self.chunk.get_mut();
        next_chunk(&mut self.file, chunk)?;
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
