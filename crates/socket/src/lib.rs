//! The local door's transport: frames and connections over a Unix socket, and nothing about what is asked.
//! [`Server`] gives each request to an [`Answerer`] on a thread of its own; [`Client`] asks on the thread
//! that calls it.
//!
//! ```no_run
//! use std::sync::Arc;
//! use hotcell_socket::{
//!     Along, Answerer, Client, ClientSettings, Events, Incoming, Listener, Problem, Raw, Server, Settings,
//! };
//!
//! struct Echo;
//!
//! impl Answerer for Echo {
//!     fn answer(&self, request: Incoming, _: &Events) -> Result<Raw, Problem> {
//!         Raw::of(request.ask()).map_err(Problem::from)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::path::Path::new("/var/lib/agent/run/socket");
//! let server = Server::start(Listener::bind(path)?, Arc::new(Echo), Settings::default())?;
//! let mut client = Client::connect(path, ClientSettings::default())?;
//! let answer = client.ask(&Raw::of("hello")?, Along::default())?;
//! server.stop(Default::default());
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **One answer.** Every request that is begun is answered exactly once, unless its connection ends first.
//!   Then it is cancelled: nobody is left to whom its answer means something. A client that hangs up, or that
//!   closes only its sending side, cancels everything that it asked for.
//! - **Begun or not.** A client knows of every request that failed whether it can have begun. Nothing begins
//!   before the welcome was sent, and who is sent away is told which requests are cut off; all others were
//!   not begun.
//! - **Bounds.** Every maximum is in [`bounds`]. Nothing is allocated because somebody announced it. Whoever
//!   produces events waits for the client to read; a client that reads nothing for [`Settings::stall`] is
//!   given up. Attachments and standard input are sent as far as the other side made room for them, so that
//!   they never stand in the way of a cancellation.
//! - **Who.** Both ends look at the other's user before the first byte: only the same user and root count.

pub mod bounds;
mod cancel;
mod client;
mod connection;
mod crew;
mod dial;
pub mod frame;
mod hub;
mod incoming;
mod inlet;
mod listen;
mod outlet;
mod problem;
mod room;
mod server;
mod supply;
mod transport;
mod turn;
mod version;

pub use cancel::Cancel;
pub use client::{Along, AskError, Canceller, Client, ClientSettings};
pub use dial::ConnectError;
pub use frame::{FrameError, Raw};
pub use incoming::{Answerer, Events, FilePart, Gone, Incoming};
pub use inlet::Stdin;
pub use listen::{ListenError, Listener};
pub use problem::Problem;
pub use server::{Grace, Server, Settings, Stopped};
pub use supply::Source;
pub use transport::{Peer, Transport};
pub use version::{PROTOCOL, Versions};
