//! The answers that are not a turn. Each says what, why, and what would help.

use std::fmt;
use std::time::Duration;

use hotcell_types::{Bytes, CallId};

use crate::want::MOST_AFTER;

/// Why a request did not even begin to wait. Nothing of it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{full}: try again in {}", shown(*retry_after))]
    Busy { full: Full, retry_after: Duration },
    #[error("{asked} jobs can never wait together: the most is {most}; ask in parts")]
    TooMany { asked: u64, most: u64 },
    #[error(
        "a job with {wanted} of memory can never run: all jobs together have {most}; lower its limit"
    )]
    TooLarge { wanted: Bytes, most: Bytes },
    #[error("`{0}` already waits or runs: each job needs an id of its own")]
    Duplicate(CallId),
    #[error("`{id}` waits for too many jobs: the most is {MOST_AFTER}")]
    TooManyDependencies { id: CallId },
    #[error(
        "`{id}` waits for `{after}`, which is not known: it was never asked for, or ended long ago"
    )]
    UnknownDependency { id: CallId, after: CallId },
    /// Each waits for the next, and the last for the first.
    #[error("jobs wait for each other in a circle: {}", circle(.0))]
    Cycle(Vec<CallId>),
    #[error("no more jobs are taken: hotcell is closing")]
    Closing,
}

/// What there is no room in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Queue,
    /// The part of it that one tenant may have.
    Share,
    /// The part of that which one party may have.
    Party,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Full::Queue => "the queue is full",
            Full::Share => "the tenant's share of the queue is full",
            Full::Party => "the caller's share of the queue is full",
        })
    }
}

/// Why a job that waited, or ran, did not get to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("it was cancelled while it waited")]
    Cancelled,
    #[error("its time was over before it could start")]
    Deadline,
    #[error("`{0}`, which has to succeed before it, did not")]
    Dependency(CallId),
    #[error("it was ended to make room for `{by}`, which is more urgent: ask again")]
    Preempted { by: CallId },
    #[error("hotcell closed before it could start")]
    Closing,
}

/// Rounded up, so that nobody comes too early.
fn shown(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{}ms", millis + 1),
        _ => format!("{}s", time.as_secs().saturating_add(1)),
    }
}

fn circle(ids: &[CallId]) -> String {
    let names: Vec<_> = ids.iter().chain(ids.first()).map(|id| format!("`{id}`")).collect();
    names.join(" waits for ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_what_why_and_what_helps() {
        let [one, two] = [1, 2].map(|n| CallId::new(0, [n; 10]));
        let busy = |millis| Refused::Busy {
            full: Full::Queue,
            retry_after: Duration::from_millis(millis),
        };
        let rows = [
            (busy(20), "the queue is full: try again in 21ms".into()),
            (busy(2500), "the queue is full: try again in 3s".into()),
            (
                Refused::TooLarge { wanted: Bytes::mib(2048), most: Bytes::mib(1024) },
                "a job with 2GiB of memory can never run: all jobs together have 1GiB; lower its limit"
                    .into(),
            ),
            (
                Refused::Cycle(vec![one, two]),
                format!(
                    "jobs wait for each other in a circle: `{one}` waits for `{two}` waits for `{one}`"
                ),
            ),
        ];
        for (refused, said) in rows {
            assert_eq!(refused.to_string(), said);
        }
    }
}
