//! What may be reached, and how: one decision for everything that runs and the tools of the web reach.
//!
//! [`decide`] asks a [`Judge`], looks a name up once, and judges every address that it leads to; whoever connects
//! does so to exactly these. [`Gate`] gives runs a [`Passage`]: a process without secrets, in a jail of its own
//! (`hotcell-airlock`), parses what a run sends and asks here. Where a secret has to go along, or a policy has
//! to see requests inside of TLS, requests are relayed by this process, which has the secrets and the
//! upstream's TLS. [`Client`] is hotcell's own way out: the same decision, for each redirect anew.

mod address;
mod authority;
mod body;
pub mod client;
mod connect;
mod crew;
mod decide;
mod fill;
mod gate;
mod head;
mod host;
mod judge;
mod line;
mod own;
pub mod parse;
mod relay;
mod resolve;
pub mod search;
mod start;
mod tls;
mod url;

pub use address::{Kind, internal};
pub use client::Client;
pub use decide::{Decided, decide};
pub use fill::{Fill, Mask, Seek, Site, Unfilled};
pub use gate::{BUDGET, Closed, Counts, Gate, Pass, Passage, Settings};
pub use host::{BadHost, Host};
pub use hotcell_airlock::wire::{Budget, End, Fault, Protocol};
pub use judge::{Event, How, Judge, Refusal, Refused, Ruling, Wanted, Way};
pub use resolve::{Resolver, System, Unresolved};
pub use start::{Jailed, Start, Started, Starter};
pub use tls::Tls;
