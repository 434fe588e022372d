//! The part of YAML that rule files are written in: maps, lists and text, each with its place. What makes
//! one text mean another (anchors, merge keys, tags, duplicate keys) is refused before it is kept.

use std::collections::HashSet;

use hotcell_request::Value;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Number};

use crate::fault::{At, Fault, shown};

/// Largest rule file, in bytes.
pub const FILE_MOST: usize = 1 << 20;
/// Deepest nesting.
const DEPTH_MOST: usize = 16;
/// Most maps, lists and texts.
const NODES_MOST: usize = 250_000;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Text(Text),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Without quotes, so that it may be a number, true, false or nothing.
    pub(crate) plain: bool,
    /// Where its first character stands, if it is not a block.
    pub(crate) begins: Option<At>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub(crate) at: At,
    pub(crate) text: String,
}

/// Reads a file. Nothing but comments is nothing.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Node>, Fault> {
    let text = checked(bytes)?;
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => tree.take(event, span)?,
            Err(error) => {
                let what = format!("this is not YAML: {}", shown(error.info()));
                let fix = "see the indentation, the quotes and the brackets before it";
                return Err(Fault::new(at(error.marker()), what, fix));
            }
        }
    }
    Ok(tree.root)
}

/// What no rule file has, before anything is made of it.
fn checked(bytes: &[u8]) -> Result<&str, Fault> {
    if bytes.len() > FILE_MOST {
        let what = format!("the file has {} bytes", bytes.len());
        return Err(Fault::new(At::BEGIN, what, format!("write at most {FILE_MOST}")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let at = end_of(&String::from_utf8_lossy(good));
        Fault::new(at, "this is not UTF-8", "save the file as UTF-8")
    })?;
    let is_odd = |c: char| (c.is_control() && c != '\n' && c != '\r') || c == '\u{feff}';
    let Some(index) = text.find(is_odd) else { return Ok(text) };
    let (before, rest) = text.split_at_checked(index).unwrap_or_default();
    let at = end_of(before);
    Err(match rest.chars().next() {
        Some('\t') => Fault::new(at, "a tab", "write spaces: tabs look different to everybody"),
        Some(c) => {
            let what = format!("the character {}, which nobody sees", c.escape_unicode());
            Fault::new(at, what, "leave it out")
        }
        None => Fault::new(at, "the file ends early", "save it again"),
    })
}

/// The place behind a text.
fn end_of(text: &str) -> At {
    let line = text.matches('\n').count() + 1;
    let last = text.rsplit('\n').next().unwrap_or_default();
    At { line, column: last.chars().count() + 1 }
}

fn at(marker: &Marker) -> At {
    At { line: marker.line(), column: marker.col() + 1 }
}

#[derive(Default)]
struct Tree {
    root: Option<Node>,
    open: Vec<Open>,
    nodes: usize,
    documents: usize,
}

/// A list or a map whose end was not seen yet.
struct Open {
    at: At,
    kind: Opened,
}

enum Opened {
    List(Vec<Node>),
    Map { members: Vec<(Key, Node)>, names: HashSet<String>, key: Option<Key> },
}

impl Tree {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let place = at(&span.start);
        match event {
            Event::Alias(_) => Err(refused(place, "an alias", "write out what it stands for")),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                Err(refused(place, "an anchor", "write the text where it is needed"))
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                Err(refused(place, "a tag", "write the value without it"))
            }
            Event::DocumentStart(_) => {
                self.documents += 1;
                let fix = "write one file for each policy";
                if self.documents > 1 {
                    Err(refused(place, "a second document", fix))
                } else {
                    Ok(())
                }
            }
            Event::Scalar(text, style, _, _) => self.text(text.into_owned(), style, span),
            Event::SequenceStart(..) => self.begin(place, Opened::List(Vec::new())),
            Event::MappingStart(..) => {
                let (members, names) = (Vec::new(), HashSet::new());
                self.begin(place, Opened::Map { members, names, key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn begin(&mut self, at: At, kind: Opened) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MOST {
            return Err(Fault::new(
                at,
                "this is nested too deep",
                format!("at most {DEPTH_MOST} levels"),
            ));
        }
        if let Some(Open { kind: Opened::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(Fault::new(at, "a key that is not text", "write a word before the colon"));
        }
        self.open.push(Open { at, kind });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = match open.kind {
            Opened::List(items) => Kind::List(items),
            Opened::Map { members, .. } => Kind::Map(members),
        };
        self.put(Node { at: open.at, kind })
    }

    fn text(&mut self, text: String, style: ScalarStyle, span: Span) -> Result<(), Fault> {
        let place = at(&span.start);
        let plain = style == ScalarStyle::Plain;
        if let Some(Open { kind: Opened::Map { names, key: key @ None, .. }, .. }) =
            self.open.last_mut()
        {
            if plain && text == "<<" {
                return Err(refused(place, "a merge key", "write out what it stands for"));
            }
            if !names.insert(text.clone()) {
                let what = format!("`{}` stands here twice", shown(&text));
                return Err(Fault::new(place, what, "leave one of them out"));
            }
            *key = Some(Key { at: place, text });
            return Ok(());
        }
        let begins = match style {
            ScalarStyle::Plain => Some(place),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Some(place.right(1)),
            ScalarStyle::Literal | ScalarStyle::Folded => None,
        };
        self.put(Node { at: place, kind: Kind::Text(Text { text, plain, begins }) })
    }

    fn put(&mut self, node: Node) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > NODES_MOST {
            return Err(Fault::new(node.at, "there is too much in the file", "write fewer rules"));
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { kind: Opened::List(items), .. }) => items.push(node),
            Some(Open { kind: Opened::Map { members, key, .. }, .. }) => {
                members.extend(key.take().map(|key| (key, node)));
            }
        }
        Ok(())
    }
}

fn refused(at: At, what: &str, fix: &str) -> Fault {
    Fault::new(at, format!("{what} is not used in rule files"), fix)
}

impl Node {
    /// As JSON, with the numbers and words that YAML knows.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Text(text) => text.value(),
            Kind::List(items) => Value::Array(items.iter().map(Node::value).collect()),
            Kind::Map(members) => {
                let members = members.iter().map(|(key, node)| (key.text.clone(), node.value()));
                Value::Object(members.collect::<Map<String, Value>>())
            }
        }
    }

    /// As JSON in which every text is what was written. Numbers do not tell `1e2` from `100.0`, and names and
    /// patterns do.
    pub(crate) fn written(&self) -> Value {
        match &self.kind {
            Kind::Text(text) => text.text.as_str().into(),
            Kind::List(items) => Value::Array(items.iter().map(Node::written).collect()),
            Kind::Map(members) => {
                let members = members.iter().map(|(key, node)| (key.text.clone(), node.written()));
                Value::Object(members.collect::<Map<String, Value>>())
            }
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(&self.kind, Kind::Text(text) if text.value() == Value::Null)
    }
}

impl Text {
    pub(crate) fn value(&self) -> Value {
        let text = self.text.as_str();
        if !self.plain {
            return text.into();
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => true.into(),
            "false" | "False" | "FALSE" => false.into(),
            _ => number(text).map_or_else(|| text.into(), Value::Number),
        }
    }
}

fn number(text: &str) -> Option<Number> {
    let begins = |c: u8| c.is_ascii_digit() || c == b'-' || c == b'.';
    if !text.as_bytes().first().copied().is_some_and(begins) {
        return None;
    }
    let whole =
        text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| Number::from_f64(text.parse().ok()?))
}
