//! Circles among jobs that are asked for together. Others cannot be in one: a job can wait only for what
//! is known when it is asked for.

use std::collections::{HashMap, HashSet};

use hotcell_types::CallId;

use crate::want::Want;

/// A circle, if there is one: each waits for the next, and the last for the first.
pub(crate) fn circle<'a>(wants: impl Iterator<Item = &'a Want>) -> Option<Vec<CallId>> {
    let mut left: HashMap<CallId, &[CallId]> =
        wants.filter(|want| !want.after.is_empty()).map(|w| (w.id, w.after.as_slice())).collect();
    if left.is_empty() {
        return None;
    }
    let mut missing: HashMap<CallId, usize> = HashMap::new();
    let mut dependents: HashMap<CallId, Vec<CallId>> = HashMap::new();
    for (&id, after) in &left {
        for &needed in after.iter().filter(|needed| left.contains_key(needed)) {
            *missing.entry(id).or_default() += 1;
            dependents.entry(needed).or_default().push(id);
        }
    }
    // Whoever waits for nobody that is left is in no circle.
    let mut free: Vec<_> = left.keys().filter(|id| !missing.contains_key(id)).copied().collect();
    while let Some(id) = free.pop() {
        left.remove(&id);
        for dependent in dependents.remove(&id).unwrap_or_default() {
            if let Some(count) = missing.get_mut(&dependent) {
                *count = count.saturating_sub(1);
                free.extend((*count == 0).then_some(dependent));
            }
        }
    }
    // Each that is left waits for another that is: following them comes back somewhere.
    let mut seen = HashSet::new();
    let mut path = Vec::new();
    let mut at = left.keys().min().copied()?;
    while seen.insert(at) {
        path.push(at);
        at = left.get(&at)?.iter().find(|id| left.contains_key(id)).copied()?;
    }
    Some(path.into_iter().skip_while(|id| *id != at).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotcell_types::{Bytes, Name};
    use proptest::prelude::*;

    use super::*;
    use crate::Priority;

    fn id(n: u8) -> CallId {
        CallId::new(0, [n; 10])
    }

    fn want(n: u8, after: &[u8]) -> Want {
        Want {
            id: id(n),
            tenant: Name::LOCAL,
            party: Name::LOCAL,
            priority: Priority::USUAL,
            template: Name::LOCAL,
            memory: Bytes::mib(1),
            expected: Duration::ZERO,
            after: after.iter().copied().map(id).collect(),
            patience: Duration::ZERO,
        }
    }

    #[test]
    fn a_circle_is_named_without_what_leads_to_it() {
        type Row = (&'static [(u8, &'static [u8])], Option<&'static [u8]>);
        let rows: [Row; 6] = [
            (&[(1, &[])], None),
            (&[(1, &[1])], Some(&[1])),
            (&[(1, &[2]), (2, &[1])], Some(&[1, 2])),
            (&[(1, &[2, 2]), (2, &[3]), (3, &[])], None),
            (&[(1, &[2]), (2, &[3]), (3, &[4]), (4, &[2]), (5, &[4])], Some(&[2, 3, 4])),
            // Known already, and so in no circle with these.
            (&[(1, &[9]), (2, &[1])], None),
        ];
        for (graph, expected) in rows {
            let wants: Vec<_> = graph.iter().map(|(n, after)| want(*n, after)).collect();
            let expected = expected.map(|ids| ids.iter().copied().map(id).collect::<Vec<_>>());
            assert_eq!(circle(wants.iter()), expected, "{graph:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_named_is_a_circle_and_what_only_looks_back_has_none(
            edges in prop::collection::vec((0..12_u8, 0..12_u8), 0..30),
        ) {
            let after = |n, edges: &[(u8, u8)]| -> Vec<u8> {
                edges.iter().filter(|(from, _)| *from == n).map(|(_, to)| *to).collect()
            };
            let wants: Vec<_> = (0..12).map(|n| want(n, &after(n, &edges))).collect();
            if let Some(named) = circle(wants.iter()) {
                for (at, next) in named.iter().zip(named.iter().cycle().skip(1)) {
                    let want = wants.iter().find(|want| want.id == *at).unwrap();
                    prop_assert!(want.after.contains(next));
                }
            }
            let back: Vec<_> = edges.into_iter().filter(|(from, to)| to < from).collect();
            let wants: Vec<_> = (0..12).map(|n| want(n, &after(n, &back))).collect();
            prop_assert_eq!(circle(wants.iter()), None);
        }
    }
}
