//! The door for models: hotcell as a server of the Model Context Protocol, over standard input and output
//! ([`stdio::serve`]) or, with the feature `http`, mounted in an HTTP server ([`http::service`]).
//!
//! Nothing here decides, runs or records anything. Who answers is given ([`Behind`]): every call goes through
//! `hotcell_api::answer`, as it does from every other door, and no answer of a client or a model approves
//! anything.

mod approval;
mod call;
mod catalog;
mod changes;
mod found;
mod gate;
mod here;
#[cfg(feature = "http")]
pub mod http;
mod names;
mod own;
mod page;
mod resources;
mod result;
mod server;
pub mod stdio;

pub use found::{Found, reader};
pub use gate::{Behind, Ear, Held, Need, Room, Talk, Waiting};
pub use here::{Here, Rooms, ask_engine, end_in_engine, tool_of};
pub use server::{MANY, Options, Server};
