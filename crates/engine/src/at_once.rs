//! How many calls go on at one time: what suits the machine, unless somebody says otherwise.

use std::collections::BTreeMap;
use std::thread;

use hotcell_schedule::{Limits, Share};
use hotcell_types::{Bytes, Count, Name};

/// What is not said here is as the machine suggests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// Most calls that run something at one time.
    pub running: Option<Count>,
    /// Most at one time that run with a template of this name.
    pub templates: BTreeMap<Name, Count>,
}

impl AtOnce {
    /// What the machine suggests.
    pub fn of_machine() -> AtOnce {
        // Nothing here depends on memory.
        let Limits { global, per_template, .. } = Limits::of_machine(processors(), Bytes::mib(1));
        AtOnce { running: Some(global), templates: per_template }
    }

    pub(crate) fn limits(&self, memory: Bytes) -> Limits {
        let mut limits = Limits::of_machine(processors(), memory);
        if let Some(running) = self.running {
            limits.global = running;
            limits.share = Share { running, ..limits.share };
        }
        limits.per_template.extend(self.templates.clone());
        limits
    }
}

fn processors() -> u32 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(processors).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stands_in_place_of_what_the_machine_suggests() {
        let usual = AtOnce::of_machine();
        let memory = Bytes::mib(64);
        let nothing_said = AtOnce::default().limits(memory);
        assert_eq!(Some(nothing_said.global), usual.running);
        assert_eq!((nothing_said.per_template, nothing_said.memory), (usual.templates, memory));
        let templates = [("tool".parse().unwrap(), Count::of(1))];
        let said = AtOnce { running: Some(Count::of(7)), templates: templates.into() };
        let limits = said.limits(memory);
        assert_eq!((limits.global, limits.share.running), (Count::of(7), Count::of(7)));
        assert_eq!(limits.per_template.get(&"tool".parse().unwrap()), Some(&Count::of(1)));
        assert!(limits.per_template.len() > 1);
    }
}
