//! Hides values in a stream, wherever it is cut: one byte after the other goes through one machine for all
//! spellings of all values, and leaves when nothing that is still to come could make it a part of one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::noncontiguous::NFA;

use crate::spelling::{self, Edges, Spellings};
use crate::value::Value;

/// What stands where a value was.
pub const MASKED: &str = "[secret]";

/// All spellings of some values. Cheap to clone.
#[derive(Clone)]
pub struct Masks {
    known: Arc<Known>,
}

struct Known {
    machine: NFA,
    edges: Vec<Edges>,
    /// Of the longest spelling, with the letter before it.
    longest: usize,
    start: StateID,
}

/// What looks through one stream.
pub struct Masker {
    known: Arc<Known>,
    state: StateID,
    held: VecDeque<u8>,
    /// The place in the stream of the first byte that is held, and of the next one that comes.
    first: u64,
    next: u64,
    /// Places to hide, in order; no two touch.
    hidden: VecDeque<(u64, u64)>,
    /// The next byte holds bits of a value, if it is a letter of base 64.
    is_edge: bool,
    /// The last byte that left was hidden.
    is_inside: bool,
}

impl Masks {
    /// `None` if there are none, or more than there is room for.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a Value>) -> Option<Masks> {
        let mut all = Spellings::new();
        for value in values {
            for (text, edges) in spelling::of(value.as_bytes()) {
                let known = all.entry(text).or_insert(edges);
                known.before |= edges.before;
                known.behind |= edges.behind;
            }
        }
        let longest = all.keys().map(Vec::len).max()? + 1;
        let machine =
            NFA::builder().prefilter(false).ascii_case_insensitive(true).build(all.keys()).ok()?;
        let start = machine.start_state(Anchored::No).ok()?;
        let edges = all.into_values().collect();
        Some(Masks { known: Arc::new(Known { machine, edges, longest, start }) })
    }

    pub fn masker(&self) -> Masker {
        Masker {
            state: self.known.start,
            known: Arc::clone(&self.known),
            held: VecDeque::new(),
            first: 0,
            next: 0,
            hidden: VecDeque::new(),
            is_edge: false,
            is_inside: false,
        }
    }

    /// Something that is whole.
    pub fn hide(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut masker, mut out) = (self.masker(), Vec::with_capacity(bytes.len()));
        masker.push(bytes, &mut out);
        masker.finish(&mut out);
        out
    }
}

impl Masker {
    /// Takes what came, and gives what may be passed on by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.take(*byte);
            if self.held.len() > self.known.longest {
                self.let_go(out);
            }
        }
    }

    /// What was held back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        while !self.held.is_empty() {
            self.let_go(out);
        }
    }

    fn take(&mut self, byte: u8) {
        self.held.push_back(byte);
        let at = self.next;
        self.next += 1;
        if std::mem::take(&mut self.is_edge) && is_letter(byte) {
            self.hide(at, at + 1);
        }
        let known = Arc::clone(&self.known);
        let machine = &known.machine;
        self.state = machine.next_state(Anchored::No, self.state, byte);
        if !machine.is_match(self.state) {
            return;
        }
        for index in 0..machine.match_len(self.state) {
            let pattern = machine.match_pattern(self.state, index);
            let length = machine.pattern_len(pattern) as u64;
            let edges = known.edges.get(pattern.as_usize()).copied().unwrap_or_default();
            let mut from = self.next.saturating_sub(length);
            let before = from.checked_sub(self.first).and_then(|place| place.checked_sub(1));
            let before = before.and_then(|place| self.held.get(usize::try_from(place).ok()?));
            if edges.before && before.copied().is_some_and(is_letter) {
                from -= 1;
            }
            self.is_edge |= edges.behind;
            self.hide(from, self.next);
        }
    }

    fn hide(&mut self, mut from: u64, mut to: u64) {
        while let Some(&(start, end)) = self.hidden.back() {
            if end < from {
                break;
            }
            (from, to) = (from.min(start), to.max(end));
            self.hidden.pop_back();
        }
        self.hidden.push_back((from, to));
    }

    /// The first of what is held leaves.
    fn let_go(&mut self, out: &mut Vec<u8>) {
        let Some(byte) = self.held.pop_front() else { return };
        let at = self.first;
        self.first += 1;
        while self.hidden.front().is_some_and(|(_, end)| *end <= at) {
            self.hidden.pop_front();
        }
        let is_hidden = self.hidden.front().is_some_and(|(start, _)| *start <= at);
        match (is_hidden, self.is_inside) {
            (true, true) => {}
            (true, false) => out.extend_from_slice(MASKED.as_bytes()),
            (false, _) => out.push(byte),
        }
        self.is_inside = is_hidden;
    }
}

/// Of base 64, in either alphabet.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masks").finish_non_exhaustive()
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masker").finish_non_exhaustive()
    }
}
