//! How much may go on at one time, and how much may wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

use hotcell_types::{Bytes, Count, Name};

/// Limits of one scheduler. Nothing is unlimited; the counts cannot be zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most jobs that run at one time.
    pub global: Count,
    /// Most that run at one time of a template; one that is not here has only the global limit.
    pub per_template: BTreeMap<Name, Count>,
    /// What the memory limits of all admitted jobs may add up to. A paused job stays admitted.
    pub memory: Bytes,
    /// Most jobs that wait, those that wait for others included.
    pub queue: Count,
    pub share: Share,
    /// How long a job waits for each step that it is lifted.
    pub ageing: Duration,
}

/// What one tenant may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub running: Count,
    pub waiting: Count,
    /// Most that wait of one party of it.
    pub party: Count,
}

impl Limits {
    /// Most that wait, unless configured otherwise.
    pub const QUEUE: u32 = 1024;
    /// The time for one step of ageing, unless configured otherwise: from 5 to 2 in a minute and a half.
    pub const AGEING: Duration = Duration::from_secs(30);

    /// What suits a machine: two jobs for each processor, and all but half of the queue open to others,
    /// however much one tenant asks for; of that half, a quarter, however much one party asks for.
    pub fn of_machine(processors: u32, memory: Bytes) -> Limits {
        let processors = processors.max(1);
        let global = Count::of(processors.saturating_mul(2));
        let per_template = [("ai-provider", 1), ("code-executor", 1), ("policy-sandbox", 2)]
            .into_iter()
            .filter_map(|(name, processors_each)| {
                let most = Count::of((processors / processors_each).max(1));
                // The names are good ones; a test holds it.
                Some((name.parse().ok()?, most))
            });
        Limits {
            global,
            per_template: per_template.collect(),
            memory,
            queue: Count::of(Limits::QUEUE),
            share: Share {
                running: global,
                waiting: Count::of(Limits::QUEUE / 2),
                party: Count::of(Limits::QUEUE / 8 * 3),
            },
            ageing: Limits::AGEING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_have_the_published_numbers_and_more_have_more() {
        let shown = |processors| {
            let limits = Limits::of_machine(processors, Bytes::mib(1));
            let each = limits.per_template.iter().map(|(name, most)| format!("{name} {most}"));
            format!("{} {}", limits.global, each.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(shown(0), "2 ai-provider 1 code-executor 1 policy-sandbox 1");
        assert_eq!(shown(2), "4 ai-provider 2 code-executor 2 policy-sandbox 1");
        assert_eq!(shown(16), "32 ai-provider 16 code-executor 16 policy-sandbox 8");
    }
}
