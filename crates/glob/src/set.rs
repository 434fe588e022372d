//! Many patterns at once: a tree over the parts of paths. What a path costs depends on its length and on how
//! many patterns go along with it, and not on how many there are.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::glob::{Glob, Part, parts_of};
use crate::segment::Segment;

/// Patterns, each with a value. Answers which of them match a path without allocating, as long as no more
/// than a handful go along with it at once.
#[derive(Debug, Clone)]
pub struct GlobSet<T> {
    /// The first is the root.
    nodes: Vec<Node<T>>,
}

type NodeId = u32;
type Active = SmallVec<[NodeId; 16]>;

#[derive(Debug, Clone)]
struct Node<T> {
    literal: HashMap<Box<str>, NodeId>,
    wild: Wild,
    /// Behind a `**`.
    any: Option<NodeId>,
    values: Vec<T>,
}

/// Patterns of one part, found by the longer of the texts that they begin and end with.
#[derive(Debug, Clone, Default)]
struct Wild {
    by_prefix: ByText,
    by_suffix: ByText,
    others: Vec<(Segment, NodeId)>,
}

#[derive(Debug, Clone, Default)]
struct ByText {
    /// The lengths that there are, in order.
    lengths: Vec<usize>,
    found: HashMap<Box<str>, Vec<(Segment, NodeId)>>,
}

impl<T> Default for GlobSet<T> {
    fn default() -> GlobSet<T> {
        GlobSet { nodes: vec![Node::default()] }
    }
}

impl<T> GlobSet<T> {
    pub fn new() -> GlobSet<T> {
        GlobSet::default()
    }

    pub fn insert(&mut self, glob: &Glob, value: T) {
        let mut at = 0;
        for part in &glob.parts {
            at = self.child(at, part);
        }
        if let Some(node) = self.node_mut(at) {
            node.values.push(value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1 && self.node(0).is_none_or(|root| root.values.is_empty())
    }

    /// Calls `found` with the value of every pattern that matches, in no particular order.
    pub fn each_match<'a>(&'a self, path: &str, mut found: impl FnMut(&'a T)) {
        if self.is_empty() {
            return;
        }
        let mut now = Active::new();
        // Nodes of `**` that were reached, in order of their numbers: once reached, they stay.
        let mut staying = Active::new();
        self.enter(0, &mut now, &mut staying);
        for part in parts_of(path) {
            let mut next = Active::new();
            for &id in now.iter().chain(&staying) {
                self.follow(id, part, |child| next.push(child));
            }
            now.clear();
            for id in next {
                self.enter(id, &mut now, &mut staying);
            }
        }
        for &id in now.iter().chain(&staying) {
            self.node(id).into_iter().flat_map(|node| &node.values).for_each(&mut found);
        }
    }

    /// A node is reached, and the `**` that follows it, which may stand for nothing.
    fn enter(&self, id: NodeId, now: &mut Active, staying: &mut Active) {
        now.push(id);
        if let Some(any) = self.node(id).and_then(|node| node.any)
            && let Err(place) = staying.binary_search(&any)
        {
            staying.insert(place, any);
        }
    }

    fn follow(&self, id: NodeId, part: &str, mut reached: impl FnMut(NodeId)) {
        let Some(node) = self.node(id) else { return };
        if let Some(&child) = node.literal.get(part) {
            reached(child);
        }
        node.wild.each_match(part, reached);
    }

    fn child(&mut self, at: NodeId, part: &Part) -> NodeId {
        let next = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        let Some(node) = self.node_mut(at) else { return at };
        let child = match part {
            Part::Any => *node.any.get_or_insert(next),
            Part::One(Segment::Literal(text)) => *node.literal.entry(text.clone()).or_insert(next),
            Part::One(segment) => node.wild.child(segment, next),
        };
        if child == next {
            self.nodes.push(Node::default());
        }
        child
    }

    fn node(&self, id: NodeId) -> Option<&Node<T>> {
        self.nodes.get(usize::try_from(id).ok()?)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node<T>> {
        self.nodes.get_mut(usize::try_from(id).ok()?)
    }
}

impl<T> Default for Node<T> {
    fn default() -> Node<T> {
        let (literal, wild) = (HashMap::new(), Wild::default());
        Node { literal, wild, any: None, values: Vec::new() }
    }
}

impl Wild {
    /// The node behind a pattern, which is `next` if it is new.
    fn child(&mut self, segment: &Segment, next: NodeId) -> NodeId {
        let (prefix, suffix) = segment.ends();
        let group = match prefix.len().max(suffix.len()) {
            0 => &mut self.others,
            _ if prefix.len() >= suffix.len() => self.by_prefix.group(prefix),
            _ => self.by_suffix.group(suffix),
        };
        if let Some((_, child)) = group.iter().find(|(known, _)| known == segment) {
            return *child;
        }
        group.push((segment.clone(), next));
        next
    }

    fn each_match(&self, part: &str, mut reached: impl FnMut(NodeId)) {
        let prefixes = self.by_prefix.of(|length| part.get(..length));
        let suffixes = self.by_suffix.of(|length| part.get(part.len().checked_sub(length)?..));
        for (segment, child) in prefixes.chain(suffixes).chain(&self.others) {
            if segment.matches(part) {
                reached(*child);
            }
        }
    }
}

impl ByText {
    fn group(&mut self, text: String) -> &mut Vec<(Segment, NodeId)> {
        if let Err(place) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(place, text.len());
        }
        self.found.entry(text.into()).or_default()
    }

    fn of<'a>(
        &'a self,
        end: impl Fn(usize) -> Option<&'a str>,
    ) -> impl Iterator<Item = &'a (Segment, NodeId)> {
        let groups = self.lengths.iter().filter_map(move |&length| self.found.get(end(length)?));
        groups.flatten()
    }
}
