//! Frames: a length in four bytes, big end first, and one JSON object of that many bytes. Its one member
//! names the kind of the frame. What is asked, answered and told is a document of somebody else's; it is
//! checked to be strict JSON and handed on.
//!
//! | frame | from | members |
//! |---|---|---|
//! | `hello` | client | `versions` offered, `who` |
//! | `welcome` | server | `version` chosen, `who` |
//! | `request` | client | `id`, `ask`, and where there are any `context`, number of `files`, `stdin` |
//! | `part` | client | `id`, `of` (number of a file, or `"stdin"`), `data` in Base64, `end` |
//! | `more` | server | `id`, `bytes`: so many more may be sent in parts |
//! | `cancel` | client | `id` |
//! | `event` | server | `id`, `seq` from 1, `event` |
//! | `answer` | server | `id`, and `answer` or `problem` |
//! | `end` | server | `reason`, `problem`, `cut`: requests that have begun and get no answer, `speaks` |
//!
//! A client may send requests together with its hello if that offers one version, in which they are then
//! written. Ids grow: each is larger than every one before it on the connection. Parts come in the order of
//! the files, standard input last; [`WINDOW`](crate::bounds::WINDOW) bytes of them may be sent, and then as
//! many as `more` says.

mod decode;
mod encode;
mod read;

use hotcell_request::{Fault, Value};

use crate::bounds::FRAME_MOST;
use crate::problem::Problem;

pub use decode::decode;
pub use encode::Raw;
pub(crate) use encode::{
    Head, answer, cancel, end, event, hello, more, part, problem, request, welcome,
};
pub use read::{FrameReader, Patience, ReadError};

/// What one end says to the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Hello { versions: Vec<u32>, who: String },
    Welcome { version: u32, who: String },
    Request(Asked),
    Part { id: u64, of: Of, data: Vec<u8>, end: bool },
    More { id: u64, bytes: u64 },
    Cancel { id: u64 },
    Event { id: u64, seq: u64, event: Value },
    Answer { id: u64, answer: Result<Value, Problem> },
    End(End),
}

/// A request, without what comes in parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub id: u64,
    pub ask: Value,
    pub context: Option<Value>,
    pub files: u32,
    pub stdin: bool,
}

/// What a part belongs to, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    File(u32),
    Stdin,
}

/// The last frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub reason: Reason,
    pub problem: Problem,
    /// Requests that have begun and get no answer. Those that are not here and have none were not begun.
    pub cut: Vec<u64>,
    /// The versions that the server speaks.
    pub speaks: Vec<u32>,
}

/// Why a server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is not one of those who may ask.
    Peer,
    /// No version that both speak.
    Version,
    /// There are too many connections, all of them at work.
    Busy,
    /// Nothing was going on, and the place was needed.
    Idle,
    /// What came was not as it has to be.
    Protocol,
    /// The server stops.
    Stopping,
}

impl Reason {
    pub const ALL: [Reason; 6] = [
        Reason::Peer,
        Reason::Version,
        Reason::Busy,
        Reason::Idle,
        Reason::Protocol,
        Reason::Stopping,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Reason::Peer => "peer",
            Reason::Version => "version",
            Reason::Busy => "busy",
            Reason::Idle => "idle",
            Reason::Protocol => "protocol",
            Reason::Stopping => "stopping",
        }
    }
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes was announced")]
    TooLarge { bytes: usize },
    #[error("an empty frame was announced")]
    Empty,
    #[error("there is no memory for a frame of {bytes} bytes now")]
    NoRoom { bytes: usize },
    #[error("a frame cannot be read: {0}")]
    NotJson(Fault),
    #[error("a frame is not as it has to be: {0}")]
    Shape(String),
    #[error("a frame came that does not belong here: {0}")]
    Order(String),
    #[error("a document cannot be written as JSON: {0}")]
    Unwritable(String),
}

impl FrameError {
    pub fn why(&self) -> String {
        match self {
            FrameError::TooLarge { .. } => format!("the most is {FRAME_MOST} bytes"),
            FrameError::Empty => "every frame has a JSON object in it".into(),
            FrameError::NoRoom { .. } => "other connections are sending large frames".into(),
            FrameError::NotJson(fault) => fault.why().into(),
            FrameError::Shape(_) => {
                "frames have exactly the members that the protocol names".into()
            }
            FrameError::Order(_) => "each end relies on what the other said before".into(),
            FrameError::Unwritable(_) => "frames carry JSON".into(),
        }
    }

    pub fn fix(&self) -> String {
        match self {
            FrameError::TooLarge { .. } => "send less, or send contents in parts".into(),
            FrameError::NoRoom { .. } => "ask again in a moment".into(),
            FrameError::NotJson(fault) => fault.fix().into(),
            FrameError::Empty | FrameError::Shape(_) | FrameError::Order(_) => {
                "use a client of the same version as the server".into()
            }
            FrameError::Unwritable(_) => "send a document with text keys and finite numbers".into(),
        }
    }
}
