//! From a draft to an event that only wants its place in the chain: every text redacted and bounded,
//! every payload summed up.

use std::borrow::Cow;

use crate::encode::VERSION;
use crate::event::{Draft, Event, Payload, Summary};
use crate::hex::{Digest, EventId, OwnerId};
use crate::redact::Redactor;

/// Longest names: operation, tool, mode, state, bearer, sandbox, request, media type, a rule.
pub const MOST_NAME: usize = 256;
/// Longest reason.
pub const MOST_REASON: usize = 4096;
/// Most rules of one event.
pub const MOST_RULES: usize = 64;
/// What is kept of a payload's content.
pub const MOST_CONTENT: usize = 64 * 1024;

/// Everything that is taken out of the texts of one draft.
struct Redactors<'a> {
    own: &'a Redactor,
    hidden: Option<&'a Redactor>,
}

impl Redactors<'_> {
    fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let redacted = self.own.redact(bytes);
        let Some(hidden) = self.hidden else { return redacted };
        match hidden.redact(&redacted) {
            Cow::Borrowed(_) => redacted,
            Cow::Owned(bytes) => Cow::Owned(bytes),
        }
    }
}

/// An event without its place: `seq`, `prev` and `hash` are not set yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) event: Event,
    /// The beginning of each payload, stored beside the chain.
    pub(crate) input: Option<Vec<u8>>,
    pub(crate) output: Option<Vec<u8>>,
}

pub(crate) fn prepare(
    draft: Draft,
    redactor: &Redactor,
    owner: OwnerId,
) -> std::io::Result<Prepared> {
    let with_secrets = (!draft.secrets.is_empty()).then(|| redactor.with(&draft.secrets));
    let all = Redactors {
        own: with_secrets.as_ref().unwrap_or(redactor),
        hidden: draft.hidden.as_deref(),
    };
    let redactor = &all;
    let name = |text: Option<String>| text.map(|text| clean(text, MOST_NAME, redactor));
    let sum_up =
        |payload: Option<Payload>| payload.map(|payload| sum_up(payload, redactor)).unzip();
    let (input_summary, input) = sum_up(draft.input);
    let (output_summary, output) = match draft.stated {
        Some(row) => (Some(row.summary()), None),
        None => sum_up(draft.output),
    };
    let event = Event {
        seq: 0,
        version: VERSION,
        id: EventId::random()?,
        time: draft.time,
        kind: draft.kind,
        call: draft.call,
        parent: draft.parent,
        operation: name(draft.operation),
        tool: name(draft.tool),
        caller: draft.caller,
        mode: name(draft.mode),
        state: name(draft.state),
        decision: draft.decision,
        rules: rules(draft.rules, redactor),
        bearer: name(draft.bearer),
        reason: draft.reason.map(|text| clean(text, MOST_REASON, redactor)),
        status: draft.status,
        input: input_summary,
        output: output_summary,
        // What SQLite can hold.
        duration_ns: draft.duration_ns.map(|span| span.min(i64::MAX as u64)),
        sandbox: name(draft.sandbox),
        request: name(draft.request),
        owner,
        prev: Digest::ZERO,
        hash: Digest::ZERO,
    };
    Ok(Prepared { event, input, output })
}

fn rules(mut rules: Vec<String>, redactor: &Redactors<'_>) -> Vec<String> {
    let more = rules.len().saturating_sub(MOST_RULES);
    rules.truncate(MOST_RULES);
    let mut rules: Vec<String> =
        rules.into_iter().map(|rule| clean(rule, MOST_NAME, redactor)).collect();
    if more > 0 {
        rules.push(format!("…[{more} rules more]"));
    }
    rules
}

/// Redacted, and cut where it is longer than that: first the one and then the other, so that no
/// secret is cut in two and stays.
fn clean(text: String, most: usize, redactor: &Redactors<'_>) -> String {
    let text = match redactor.redact(text.as_bytes()) {
        Cow::Borrowed(_) => text,
        // Whole secrets were replaced; if a pattern cut a character in two, that is shown.
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    if text.len() <= most {
        return text;
    }
    let (kept, rest) =
        (0..=most).rev().find_map(|end| text.split_at_checked(end)).unwrap_or(("", &text));
    format!("{kept}…[{} bytes more]", rest.len())
}

/// What the chain says of it, and what is kept.
fn sum_up(payload: Payload, redactor: &Redactors<'_>) -> (Summary, Vec<u8>) {
    let whole = match redactor.redact(&payload.content) {
        Cow::Borrowed(_) => payload.content,
        Cow::Owned(bytes) => bytes,
    };
    let (digest, length) = (Digest::of(&whole), whole.len() as u64);
    let mut bytes = whole;
    let is_cut = bytes.len() > MOST_CONTENT;
    bytes.truncate(MOST_CONTENT);
    bytes.shrink_to_fit();
    let head = is_cut.then(|| Digest::of(&bytes));
    let media = clean(payload.media, MOST_NAME, redactor);
    (Summary { digest, length, head, media }, bytes)
}
