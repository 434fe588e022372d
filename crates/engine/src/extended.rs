//! A call as the rules in TypeScript see it: one path and one host at a time. An allow has to be said of
//! each of them, and anything stricter of any. What a search finds is asked about as well, path by path.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotcell_extension::{CallView, Extension, FactsView};
use hotcell_policy::{Extension as Answer, Facts, Spoken};
use hotcell_request::Call;
use hotcell_types::Decision;
use hotcell_workspace::{Seen, Window};
use serde_json::{Number, Value};

use crate::rulebook::Book;

/// Most questions about one call.
const MOST_ASKED: usize = 32;
/// Most questions about what a call finds, and how long they may take together. What is found after that is
/// not shown.
const MOST_FOUND: usize = 4096;
const FOUND_WITHIN: Duration = Duration::from_secs(10);

/// What of the workspace a call may show that it did not name: as much as it could have named.
pub(crate) fn window(book: &Arc<Book>, call: &Call, facts: &Facts) -> Window {
    let (book, call, facts) = (Arc::clone(book), call.clone(), facts.clone());
    if book.extension.is_none() {
        let seen = move |path: &str| match book.policy.shows(
            &call,
            &facts,
            path,
            &Answer::NotConfigured,
        ) {
            true => Seen::Yes,
            false => Seen::No,
        };
        return Window::new(seen);
    }
    let found = Mutex::new(Known::default());
    Window::new(move |path| {
        let mut known = found.lock().unwrap_or_else(PoisonError::into_inner);
        known.seen(&book, &call, &facts, path)
    })
}

/// What was asked so far about paths that one call found.
#[derive(Default)]
struct Known {
    seen: HashMap<String, Seen>,
    asked: usize,
    /// Since the first question.
    begun: Option<Instant>,
}

impl Known {
    fn seen(&mut self, book: &Book, call: &Call, facts: &Facts, path: &str) -> Seen {
        if let Some(&seen) = self.seen.get(path) {
            return seen;
        }
        let Some(extension) = &book.extension else { return Seen::Unknown };
        let shows = |said| match book.policy.shows(call, facts, path, &Answer::Answered(said)) {
            true => Seen::Yes,
            false => Seen::No,
        };
        // What would not be shown whatever they say needs no question.
        if shows(vec![Spoken::new("extension", Decision::Allow, "")]) == Seen::No {
            return Seen::No;
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if self.asked >= MOST_FOUND || begun.elapsed() > FOUND_WITHIN {
            return Seen::Unknown;
        }
        self.asked += 1;
        let said = ask_about(extension, call, facts, &[Some(path)]);
        let seen = said.map_or(Seen::Unknown, shows);
        self.seen.insert(path.to_owned(), seen);
        seen
    }
}

/// What the rules say of a call, or why they say nothing.
pub(crate) fn ask(
    extension: &Extension,
    call: &Call,
    facts: &Facts,
) -> Result<Vec<Spoken<'static>>, String> {
    ask_about(extension, call, facts, &or_none(call.paths()))
}

/// The same, as if it named these paths.
fn ask_about(
    extension: &Extension,
    call: &Call,
    facts: &Facts,
    paths: &[Option<&str>],
) -> Result<Vec<Spoken<'static>>, String> {
    if let Some(number) = inexact(call.args()) {
        return Err(format!("{number} is no number that they can tell from its neighbours"));
    }
    let (operation, tool) = (call.operation().to_string(), call.name().to_string());
    let tags: Vec<String> = facts.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
    let caller = call.caller();
    let [hosts, methods] = [call.hosts(), call.methods()].map(or_none);
    if paths.len().saturating_mul(hosts.len()).saturating_mul(methods.len()) > MOST_ASKED {
        return Err(format!("it names more than {MOST_ASKED} places"));
    }
    let facts = FactsView {
        now: u64::try_from(facts.now / 1_000_000).unwrap_or(0),
        state: facts.state.as_deref(),
        mode: facts.mode.as_deref(),
    };
    let mut said = Vec::new();
    for &path in paths {
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

/// The first integer that is another one in TypeScript, where each number is a double: what is judged has to be
/// what is carried out.
fn inexact(value: &Value) -> Option<&Number> {
    /// Up to here each integer is a double, and no other integer is the same one.
    const EXACT: u64 = (1 << 53) - 1;
    match value {
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            whole.filter(|whole| *whole > EXACT).map(|_| number)
        }
        Value::Array(items) => items.iter().find_map(inexact),
        Value::Object(members) => members.values().find_map(inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
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
