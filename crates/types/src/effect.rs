//! What a tool may do to the world.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The result follows from the arguments alone.
    Pure,
    Read,
    Write,
    Execute,
    Network,
}

impl Effect {
    pub const ALL: [Effect; 5] =
        [Effect::Pure, Effect::Read, Effect::Write, Effect::Execute, Effect::Network];

    pub fn name(self) -> &'static str {
        match self {
            Effect::Pure => "pure",
            Effect::Read => "read",
            Effect::Write => "write",
            Effect::Execute => "execute",
            Effect::Network => "network",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of effects. The empty set is that of a pure tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Effect>", into = "Vec<Effect>")]
pub struct Effects(u8);

impl Effects {
    pub fn has(self, effect: Effect) -> bool {
        match effect {
            Effect::Pure => self.0 == 0,
            other => self.0 & bit(other) != 0,
        }
    }

    /// Whether a call is durable in the record before it happens.
    pub fn can_change_something(self) -> bool {
        [Effect::Write, Effect::Execute, Effect::Network].iter().any(|&effect| self.has(effect))
    }

    pub fn iter(self) -> impl Iterator<Item = Effect> {
        Effect::ALL.into_iter().filter(move |&effect| self.has(effect))
    }
}

fn bit(effect: Effect) -> u8 {
    match effect {
        Effect::Pure => 0,
        Effect::Read => 1,
        Effect::Write => 2,
        Effect::Execute => 4,
        Effect::Network => 8,
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Effects {
        Effects(effects.into_iter().fold(0, |set, effect| set | bit(effect)))
    }
}

impl From<Vec<Effect>> for Effects {
    fn from(effects: Vec<Effect>) -> Effects {
        effects.into_iter().collect()
    }
}

impl From<Effects> for Vec<Effect> {
    fn from(effects: Effects) -> Vec<Effect> {
        effects.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pure_is_the_absence_of_every_other() {
        let pure: Effects = [Effect::Pure].into_iter().collect();
        assert_eq!(pure, Effects::default());
        assert!(pure.has(Effect::Pure) && !pure.can_change_something());
        let both: Effects = [Effect::Pure, Effect::Write].into_iter().collect();
        assert!(!both.has(Effect::Pure) && both.can_change_something());
        assert_eq!(serde_json::to_value(both).unwrap(), serde_json::json!(["write"]));
    }

    #[test]
    fn reading_changes_nothing() {
        let read: Effects = [Effect::Read].into_iter().collect();
        assert!(!read.can_change_something());
    }
}
