//! What a door hands over beside a request: contents that arguments are no place for, and whoever listens
//! while the call goes on. The arguments name every content by its digest, so that what was judged is
//! what is executed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotcell_ledger::{Blob, Role};
use hotcell_sandbox::{Handle, Sink};
use hotcell_tools::run::{self, Content, Word};
use hotcell_types::CallId;
use hotcell_workspace::Digest;

use crate::artifacts::{self, Product};
use crate::surroundings::Surroundings;

/// Largest content that is one piece of memory. What is larger is a file in memory.
const SMALL: u64 = 1 << 20;

/// Everything that goes along with a call.
#[derive(Default)]
pub struct Attached<'a> {
    /// The name of the call, where the door has to tell it before there is a reply. What is carried out for
    /// somebody who waited for an approval has another one, and can be ended by this one as well.
    pub id: Option<CallId>,
    /// Where the call is made from, if that is not where the engine is.
    pub from: Option<Surroundings>,
    pub files: Vec<Attachment>,
    pub stdin: Option<Input>,
    /// Hears output while it appears. The reply has it in any case.
    pub sink: Option<&'a mut dyn Sink>,
    /// Where files that a run made go: an existing directory.
    pub outputs: Option<&'a Path>,
    /// Is given what ends, pauses and resumes the run, once there is one.
    pub started: Option<Box<dyn FnOnce(Handle) + 'a>>,
    /// Set when whoever asked does not wait any more, for what goes on before there is a run.
    pub interrupt: Option<&'a AtomicBool>,
    /// Nothing is asked of the engine after this call: if it can change something, the record is closed
    /// with its outcome, while what it leaves is cleared away.
    pub is_last: bool,
}

impl Attached<'_> {
    /// What it brings along, by digest.
    pub(crate) fn contents(&self) -> Vec<String> {
        let stdin = match &self.stdin {
            Some(Input::Content(given)) => Some(given),
            Some(Input::Live(_)) | None => None,
        };
        self.files.iter().chain(stdin).map(|given| given.content.sha256.clone()).collect()
    }

    pub(crate) fn brings_nothing(&self) -> bool {
        self.files.is_empty() && self.stdin.is_none()
    }
}

impl std::fmt::Debug for Attached<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Attached { files, stdin, outputs, .. } = self;
        f.debug_struct("Attached")
            .field("files", files)
            .field("stdin", stdin)
            .field("outputs", outputs)
            .finish_non_exhaustive()
    }
}

/// Standard input of a run.
#[derive(Debug)]
pub enum Input {
    /// Known before the run begins.
    Content(Attachment),
    /// Passed on while the program reads.
    Live(File),
}

impl Input {
    pub fn try_clone(&self) -> io::Result<Input> {
        Ok(match self {
            Input::Content(given) => Input::Content(given.try_clone()?),
            Input::Live(file) => Input::Live(file.try_clone()?),
        })
    }

    /// How the arguments of `run` name it.
    pub fn described(&self) -> run::Input {
        match self {
            Input::Content(given) => run::Input::Content(given.content.clone()),
            Input::Live(_) => run::Input::Live,
        }
    }
}

/// A content with a name, and what it is known by. It is a copy that nobody else can write to: what becomes
/// of a file after it was hashed does not matter, and could not be told for certain (times are coarse, and
/// a file that is mapped changes without them).
#[derive(Debug)]
pub struct Attachment {
    name: OsString,
    content: Content,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Memory(Arc<Vec<u8>>),
    File(File),
}

impl Attachment {
    pub fn of_bytes(name: impl Into<OsString>, bytes: Vec<u8>) -> Attachment {
        let content = content(bytes.len() as u64, Digest::of(&bytes));
        Attachment { name: name.into(), content, held: Held::Memory(Arc::new(bytes)) }
    }

    /// The content of a regular file as it is now. It must have no more than so many bytes: it is held in
    /// memory.
    pub fn of_file(name: impl Into<OsString>, mut file: File, most: u64) -> io::Result<Attachment> {
        file.rewind()?;
        Attachment::of_source(name, file, most)
    }

    /// The same of whatever can be read to its end.
    pub fn of_source(
        name: impl Into<OsString>,
        source: impl Read,
        most: u64,
    ) -> io::Result<Attachment> {
        let mut file = source.take(most.saturating_add(1));
        let mut bytes = Vec::new();
        file.by_ref().take(SMALL + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= SMALL.min(most) {
            return Ok(Attachment::of_bytes(name, bytes));
        }
        let mut copy = hotcell_sandbox::in_memory(&[])?;
        let (digest, total) = Digest::copy(bytes.as_slice().chain(file), &mut copy)?;
        if total > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has too many bytes"));
        }
        copy.rewind()?;
        let content = content(total, digest);
        Ok(Attachment { name: name.into(), content, held: Held::File(copy) })
    }

    /// The same once more, for a call that may have to wait.
    pub fn try_clone(&self) -> io::Result<Attachment> {
        let held = match &self.held {
            Held::Memory(bytes) => Held::Memory(Arc::clone(bytes)),
            Held::File(file) => Held::File(file.try_clone()?),
        };
        Ok(Attachment { name: self.name.clone(), content: self.content.clone(), held })
    }

    pub fn name(&self) -> &OsString {
        &self.name
    }

    /// What it is known by, for the arguments of the call.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// How the arguments of `run` name it.
    pub fn described(&self) -> run::File {
        run::File { name: Word::new(self.name.clone()), content: self.content.clone() }
    }

    /// Its content for the ledger.
    pub(crate) fn product(&self, role: Role) -> Option<Product> {
        let content = match &self.held {
            Held::Memory(bytes) => artifacts::Content::Bytes(bytes.to_vec()),
            Held::File(file) => {
                let digest = self.content.sha256.parse().ok()?;
                let blob = Blob { digest, size: self.content.bytes };
                match file.try_clone() {
                    Ok(file) => artifacts::Content::File { blob, file },
                    Err(_) => artifacts::Content::Known(blob),
                }
            }
        };
        Some(Product::new(role, self.name.to_string_lossy(), content))
    }

    /// Reads its content from the beginning.
    pub fn reader(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match &self.held {
            Held::Memory(bytes) => Box::new(io::Cursor::new(Shared(Arc::clone(bytes)))),
            Held::File(file) => Box::new(FromStart { file: file.try_clone()?, at: 0 }),
        })
    }

    /// A file with exactly this content.
    pub(crate) fn open(&self) -> io::Result<File> {
        match &self.held {
            Held::Memory(bytes) => hotcell_sandbox::in_memory(bytes),
            Held::File(file) => file.try_clone(),
        }
    }
}

struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Without the position of a file that others have as well.
struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(into, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

fn content(bytes: u64, digest: Digest) -> Content {
    Content { bytes, sha256: digest.to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn small_and_large_contents_are_known_by_the_same_digest() {
        for size in [0, 1, SMALL, SMALL + 1, 3 * SMALL + 7] {
            let bytes = vec![b'x'; size as usize];
            let of_file = Attachment::of_file("a", file(&bytes), size).unwrap();
            let of_bytes = Attachment::of_bytes("a", bytes.clone());
            assert_eq!(of_file.content(), of_bytes.content(), "{size}");
            assert_eq!(matches!(of_file.held, Held::Memory(_)), size <= SMALL);
            let mut read = Vec::new();
            of_file.open().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == bytes, "{size}");
        }
    }

    #[test]
    fn a_file_that_changes_later_does_not_change_what_was_attached() {
        for size in [3, SMALL as usize + 1] {
            let original = file(&vec![0; size]);
            let mut same = original.try_clone().unwrap();
            let attachment = Attachment::of_file("a", original, u64::MAX).unwrap();
            same.rewind().unwrap();
            same.write_all(b"xyz").unwrap();
            let mut read = Vec::new();
            attachment.open().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == vec![0; size], "{size}");
        }
    }

    #[test]
    fn a_file_with_too_many_bytes_is_refused() {
        for size in [1, SMALL, SMALL + 1, 3 * SMALL] {
            let attach = |most| Attachment::of_file("a", file(&vec![0; size as usize]), most);
            assert!(attach(size).is_ok(), "{size}");
            let error = attach(size - 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{size}");
        }
    }
}
