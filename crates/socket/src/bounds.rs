//! Everything that has a maximum, with its reason.

use std::time::Duration;

/// Most bytes of a frame. Contents that are larger come in parts.
pub const FRAME_MOST: usize = 16 << 20;

/// Most values in a frame: those of the largest document, and what is around it.
pub const NODES_MOST: usize = 1_001_000;

/// Most arrays and objects around a document within a frame.
pub const DEPTH_AROUND: usize = 16;

/// Most requests that one connection has under way: each is a thread.
pub const REQUESTS_PER_CONNECTION: usize = 32;

/// Most requests that are under way in a server.
pub const REQUESTS_MOST: usize = 256;

/// Most connections of a server. Each is a thread and a descriptor, of which a process often has 1024.
pub const CONNECTIONS_MOST: usize = 256;

/// Most connections of one user, so that root always gets in.
pub const CONNECTIONS_PER_USER: usize = 224;

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: i32 = 128;

/// Most bytes of a request's parts that nobody has read yet.
pub const WINDOW: usize = 256 << 10;

/// Most bytes in one part, as a client of ours sends them.
pub const PART: usize = 64 << 10;

/// Most bytes of parts that go along with the request in one write.
pub const INLINE_MOST: usize = 64 << 10;

/// Most files with one request.
pub const FILES_MOST: u32 = 10_000;

/// Most bytes of the name by which one end is known to the other.
pub const WHO_MOST: usize = 200;

/// Most versions in a hello.
pub const VERSIONS_MOST: usize = 32;

/// Most bytes of large frames that a server holds while they are being read, of all connections together.
pub const READING_MOST: usize = 128 << 20;

/// Longest that a client takes to say hello.
pub const HANDSHAKE: Duration = Duration::from_secs(2);

/// Longest that a frame takes that has begun. Between frames everybody may be silent.
pub const FRAME_TIME: Duration = Duration::from_secs(10);

/// Longest that the other side does not read what is written to it.
pub const STALL: Duration = Duration::from_secs(30);

/// Longest that the last frame of a connection may take: whoever does not read it has to do without.
pub(crate) const FAREWELL: Duration = Duration::from_millis(20);

/// How long a thread without work stays.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// How long nothing is accepted when the process has no descriptors left and nobody can be sent away.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(20);
