//! Who runs when. A caller's own thread asks a [`Scheduler`] for a [`Turn`] and waits for it, or hears why
//! there is none. Nothing ticks: threads wake when there is an answer for them, or when their patience ends.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use hotcell_schedule::{Limits, Priority, Scheduler, Unstoppable, Want};
//! # use hotcell_types::{Bytes, CallId, Name};
//! let scheduler = Scheduler::new(Limits::of_machine(2, Bytes::mib(4096)));
//! let want = Want {
//!     id: CallId::new(0, [7; 10]),
//!     tenant: Name::LOCAL,
//!     party: "somebody".parse()?,
//!     priority: Priority::USUAL,
//!     template: "code-executor".parse()?,
//!     memory: Bytes::mib(512),
//!     expected: Duration::from_secs(30),
//!     after: vec![],
//!     patience: Duration::from_secs(60),
//! };
//! let turn = scheduler.request(want, Arc::new(Unstoppable))?.wait()?;
//! // … run it …
//! turn.finish(true)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Laws
//!
//! They are checked after each event of random schedules (`laws/world.rs`), or by tests of their own
//! (`laws.rs`, and `laws/threads.rs` with real threads).
//!
//! - **Limits.** The jobs that run are never more than the global limit, the limit of their template and the
//!   share of their tenant. The memory limits of all that have their turn, paused ones included, never add up
//!   to more than the admission memory. A job larger than that is refused at once.
//! - **Order.** A free place goes to the highest level that fits. The level is the priority, lifted by one for
//!   each [`Limits::ageing`] of waiting, never above 2. At equal level it goes to the tenant that has the
//!   fewest places, then to the one whose places have not changed for longest; within it, to the party of which
//!   the same holds, and then to who joined the line first. A job joins the line when it is asked for, or when the last that it waits for has succeeded.
//! - **FIFO.** Jobs of one party with equal priority, template and memory start in the order in which they
//!   joined the line.
//! - **Fairness.** A tenant that has no place gets the next that fits it at its level, however much others have
//!   queued: of tenants that always have work, none gets two turns more than another where there is one place.
//!   The same holds for the parties of a tenant. One tenant cannot fill the queue, nor one party what its tenant
//!   has of it: each has a share.
//! - **No starvation.** Where memory is short, a job that does not fit is passed by those behind it at most
//!   [`MOST_PASSED`] times; then they wait. Whom it would stop at once does not pass it at all. A job that
//!   lacks a place of its template or share holds nobody up. So whatever waits at level 2 starts after a
//!   bounded number of turns. Only priority 1 is above that: it can starve others, and is not for everyday.
//! - **One answer.** Every request ends in exactly one of [`Refused`], a [`Turn`] or [`Why`]. A turn whose
//!   thread panics is given back.
//! - **No trace.** What was cancelled, or ran out of patience, never starts, and leaves nothing but its
//!   failure, for those that name it as a dependency.
//! - **Dependencies.** A job starts after everything that it waits for has succeeded. When one of those fails,
//!   it fails with that one's id, and so do those that wait for it with its own. Only jobs of the same tenant
//!   are known. The last [`MOST_REMEMBERED`] jobs that ended are remembered; then an id is unknown. Unknown
//!   ids are refused, and so are circles, which are named.
//! - **Preemption.** A job of priority 1, or of one at least 2 above the level at which another started, that
//!   is next in line and lacks room has it made by the lowest of those that can make it, the youngest first.
//!   Waiting gives nobody this power, but it protects: who was lifted stays so. One that has used 80 % of its
//!   time is waited for. If more than 80 % of the admission memory is in use, or if memory is what is lacking,
//!   it is ended, and its caller hears [`Why::Preempted`]; otherwise it is paused, at most [`MOST_PAUSES`]
//!   times, and its time stops. A paused job goes on before anything of its priority or lower starts that
//!   could take its place, and keeps its memory. Who cannot be paused or ended is let be; who cannot be
//!   resumed is ended.
//! - **Time.** A clock that goes back is taken to stand still; one that leaps forward ends patience and lifts
//!   levels, and nothing else.
//! - **Back-pressure.** Who finds the queue full is told when to come again: after the recent time between two
//!   ends, once more for each who was sent away before. Until something has ended, it is the time after which
//!   the first running job has to end.
//!
//! # Deliberately absent
//!
//! A thread of its own, and so anything that happens without somebody's call. Enforcing time limits: who runs
//! a job ends it. Lifting what an urgent job waits for. Knowing that a job which has its turn waits for the
//! turn of another: if all places are taken by such jobs, only the patience of the others ends it.

mod answer;
mod clock;
mod dispatch;
mod graph;
mod job;
#[cfg(test)]
mod laws;
mod limits;
mod pace;
mod preempt;
mod remembered;
mod room;
mod scheduler;
mod snapshot;
mod state;
mod want;

pub use answer::{Full, Refused, Why};
pub use clock::{Clock, Moment, Monotonic};
pub use job::{MOST_PASSED, MOST_PAUSES};
pub use limits::{Limits, Share};
pub use remembered::MOST_REMEMBERED;
pub use scheduler::{Canceller, Scheduler, Turn, Waiting};
pub use snapshot::{Doing, Running, Snapshot};
pub use want::{BadPriority, Control, Failed, MOST_AFTER, MOST_WAIT, Priority, Unstoppable, Want};
