//! The cgroup that a run is in: one for it alone, or that of a sandbox that stays and has others in it.

use std::sync::Arc;

use crate::cgroup::{Cgroup, Stats};
use crate::kept::Standing;

#[derive(Debug, Default)]
pub(crate) enum Hold {
    /// This host gives none, or the run has ended.
    #[default]
    None,
    Own(Cgroup),
    Shared(Share),
}

/// A part in the cgroup of a sandbox that stays.
#[derive(Debug)]
pub(crate) struct Share {
    standing: Arc<Standing>,
    /// What had been counted when this run came.
    before: Stats,
}

impl Hold {
    pub(crate) fn of(cgroup: Option<Cgroup>) -> Hold {
        cgroup.map_or(Hold::None, Hold::Own)
    }

    pub(crate) fn inside(standing: &Arc<Standing>) -> Hold {
        let before = standing.cgroup.as_ref().map(Cgroup::stats).unwrap_or_default();
        Hold::Shared(Share { standing: Arc::clone(standing), before })
    }

    /// Whoever else is in it.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Hold::None => None,
            Hold::Own(cgroup) => Some(cgroup),
            Hold::Shared(share) => share.standing.cgroup.as_ref(),
        }
    }

    /// The one that is this run's to kill, to freeze and to remove.
    pub(crate) fn own(&self) -> Option<&Cgroup> {
        match self {
            Hold::Own(cgroup) => Some(cgroup),
            Hold::None | Hold::Shared(_) => None,
        }
    }

    pub(crate) fn into_own(self) -> Option<Cgroup> {
        match self {
            Hold::Own(cgroup) => Some(cgroup),
            Hold::None | Hold::Shared(_) => None,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Hold::Shared(_))
    }

    /// Id of the run outside, where it has one from the pool by way of others.
    pub(crate) fn owner(&self) -> Option<u32> {
        match self {
            Hold::Shared(share) => share.standing.owner(),
            Hold::None | Hold::Own(_) => None,
        }
    }

    /// What the run used. Of a shared one what was refused or killed since it came, which may have been
    /// another's; what all have used together says nothing about one of them.
    pub(crate) fn stats(&self) -> Stats {
        match self {
            Hold::None => Stats::default(),
            Hold::Own(cgroup) => cgroup.stats(),
            Hold::Shared(share) => share.stats(),
        }
    }
}

impl Share {
    fn stats(&self) -> Stats {
        let Some(cgroup) = &self.standing.cgroup else { return Stats::default() };
        let now = cgroup.stats();
        let since = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        Stats {
            oom_kills: since(now.oom_kills, self.before.oom_kills),
            pids_max_hits: since(now.pids_max_hits, self.before.pids_max_hits),
            ..Stats::default()
        }
    }
}
