//! A call as the rules in TypeScript see it: one path and one host at a time. An allow has to be said of
//! each of them, and anything stricter of any.

use std::collections::BTreeMap;

use hotcell_extension::{CallView, Extension, FactsView};
use hotcell_policy::{Facts, Spoken};
use hotcell_request::Call;
use hotcell_types::Decision;

/// Most questions about one call.
const MOST_ASKED: usize = 32;

/// What the rules say of a call, or why they say nothing.
pub(crate) fn ask(
    extension: &Extension,
    call: &Call,
    facts: &Facts,
) -> Result<Vec<Spoken<'static>>, String> {
    let (operation, tool) = (call.operation().to_string(), call.name().to_string());
    let tags: Vec<String> = facts.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
    let caller = call.caller();
    let [paths, hosts, methods] = [call.paths(), call.hosts(), call.methods()].map(or_none);
    if paths.len().saturating_mul(hosts.len()).saturating_mul(methods.len()) > MOST_ASKED {
        return Err(format!("it names more than {MOST_ASKED} places"));
    }
    let facts = FactsView {
        now: u64::try_from(facts.now / 1_000_000).unwrap_or(0),
        state: facts.state.as_deref(),
        mode: facts.mode.as_deref(),
    };
    let mut said = Vec::new();
    for &path in &paths {
        for &host in &hosts {
            for &method in &methods {
                let view = CallView {
                    operation: &operation,
                    tool: &tool,
                    args: call.args(),
                    path,
                    host,
                    method,
                    tenant: caller.tenant.as_str(),
                    subject: caller.subject.as_str(),
                    door: caller.door.name(),
                    tags: &tags,
                };
                let spoken = extension.evaluate(&view, &facts).map_err(|why| why.to_string())?;
                said.push(
                    spoken.into_iter().map(|one| (one.rule, one.decision, one.reason)).collect(),
                );
            }
        }
    }
    Ok(together(said))
}

/// Where there is nothing to name, nothing is asked about once.
fn or_none(places: Vec<&str>) -> Vec<Option<&str>> {
    if places.is_empty() { vec![None] } else { places.into_iter().map(Some).collect() }
}

type Said = Vec<(String, Decision, String)>;

/// The strictest that each rule said; an allow only of those that allowed everything.
fn together(said: Vec<Said>) -> Vec<Spoken<'static>> {
    let asked = said.len();
    let mut rules: BTreeMap<String, (usize, Decision, String)> = BTreeMap::new();
    for (rule, decision, reason) in said.into_iter().flatten() {
        let known = rules.entry(rule).or_insert((0, Decision::Allow, String::new()));
        known.0 += 1;
        if decision >= known.1 {
            (known.1, known.2) = (decision, reason);
        }
    }
    let counts = rules
        .into_iter()
        .filter(|(_, (times, decision, _))| *decision != Decision::Allow || *times == asked);
    counts.map(|(rule, (_, decision, reason))| Spoken::new(rule, decision, reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_place_never_makes_an_answer_wider() {
        use Decision::{Allow, Deny, Review};
        let said = |all: &[(&str, Decision)]| -> Said {
            all.iter().map(|(rule, decision)| ((*rule).into(), *decision, "why".into())).collect()
        };
        for (parts, expected) in [
            (vec![said(&[("a", Allow)])], vec![("a", Allow)]),
            (vec![said(&[("a", Allow)]), said(&[])], vec![]),
            (vec![said(&[("a", Allow)]), said(&[("b", Allow)])], vec![]),
            (vec![said(&[("a", Allow)]), said(&[("a", Allow)])], vec![("a", Allow)]),
            (vec![said(&[("a", Allow)]), said(&[("a", Review)])], vec![("a", Review)]),
            (vec![said(&[("a", Deny)]), said(&[("a", Allow)])], vec![("a", Deny)]),
            (vec![said(&[]), said(&[("a", Deny)])], vec![("a", Deny)]),
        ] {
            let found = together(parts.clone());
            let found: Vec<_> = found.iter().map(|one| (&*one.rule, one.decision)).collect();
            assert_eq!(found, expected, "{parts:?}");
        }
    }
}
