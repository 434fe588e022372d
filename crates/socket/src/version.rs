//! Versions of the protocol, and how both ends agree on one.

use crate::bounds::VERSIONS_MOST;

/// The version that this hotcell speaks.
pub const PROTOCOL: u32 = 1;

/// All that are understood, the current one first and the one before it after that.
const SPOKEN: &[u32] = &[PROTOCOL];

/// Versions that one end speaks, the one that it likes best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions(Vec<u32>);

impl Versions {
    /// At least one; what is beyond the most that a hello can name is left out.
    pub fn new(best: u32, others: &[u32]) -> Versions {
        let all = std::iter::once(best).chain(others.iter().copied());
        Versions(all.take(VERSIONS_MOST).collect())
    }

    pub fn best(&self) -> u32 {
        self.0.first().copied().unwrap_or(PROTOCOL)
    }

    pub fn all(&self) -> &[u32] {
        &self.0
    }

    /// The one that we like best of those that the other end speaks.
    pub fn choose(&self, offered: &[u32]) -> Option<u32> {
        self.0.iter().copied().find(|version| offered.contains(version))
    }
}

impl Default for Versions {
    fn default() -> Versions {
        Versions(SPOKEN.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_on_the_best_that_they_share() {
        for (ours, offered, chosen) in [
            (Versions::new(2, &[1]), &[2, 1][..], Some(2)),
            (Versions::new(2, &[1]), &[1], Some(1)),
            (Versions::new(2, &[1]), &[3, 2], Some(2)),
            (Versions::new(2, &[1]), &[4, 3], None),
            (Versions::new(2, &[1]), &[], None),
        ] {
            assert_eq!(ours.choose(offered), chosen, "{ours:?} {offered:?}");
        }
        assert_eq!(Versions::default().best(), PROTOCOL);
    }
}
