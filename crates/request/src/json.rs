//! JSON as strictly as it can be read. There is one way to understand a document that passes: no key
//! twice, no number that two readers would round differently, nothing after the end, and maxima for
//! size, depth and number of values.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::fault::{Fault, Step, pointer};
use crate::text::shown;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of the document.
    pub bytes: usize,
    /// Most values, counting those that hold others.
    pub nodes: usize,
    /// Most arrays and objects around a value: [`DEPTH_MOST`], and more only for what has such a document
    /// in it.
    pub depth: usize,
}

/// Most arrays and objects around a value. Every walk over a document is recursive and relies on it.
pub const DEPTH_MOST: usize = 64;

/// From here on a double is written with an exponent in canonical form; below, a whole one looks like an
/// integer, and has to be one that fits.
pub(crate) const EXPONENT_FROM: f64 = 1e21;

/// 2^63. An integer that serde_json hands over as a double is at least this large, or `-0`.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

impl Bounds {
    /// For the arguments and the result of a call.
    pub const CALL: Bounds = Bounds { bytes: 16 << 20, nodes: 1_000_000, depth: DEPTH_MOST };
    /// For the description of a tool.
    pub const TOOL: Bounds = Bounds { bytes: 1 << 20, nodes: 100_000, depth: DEPTH_MOST };
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::CALL
    }
}

/// Reads a document. Whole numbers become integers however they were written (`1.0`, `1e3`, `-0`), so
/// that equal values are the same value.
pub fn parse(bytes: &[u8], bounds: &Bounds) -> Result<Value, Fault> {
    if bytes.len() > bounds.bytes {
        return Err(too_large(bytes.len(), bounds));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Fault::new(
            "",
            "the document is not UTF-8",
            format!("the byte at {} is not part of any character", error.valid_up_to()),
            "send JSON in UTF-8",
        )
    })?;
    if text.starts_with('\u{feff}') {
        return Err(Fault::new(
            "",
            "the document begins with a byte order mark",
            "JSON has none, and not every reader skips it",
            "send it without the mark",
        ));
    }
    let mut reader = Reader {
        meter: Meter::new(bounds),
        numbers: Numbers { rest: bytes, met: 0 },
        met: 0,
        fault: None,
    };
    let mut source = serde_json::Deserializer::from_str(text);
    let read = Seed(&mut reader).deserialize(&mut source);
    match read.and_then(|value| source.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) => Err(reader.fault.take().unwrap_or_else(|| reader.not_json(&error))),
    }
}

/// Takes a value that a program made under the same rules. The bytes that count are those of its texts.
pub fn adopt(mut value: Value, bounds: &Bounds) -> Result<Value, Fault> {
    let mut adopter = Adopter { meter: Meter::new(bounds), bytes: 0 };
    match adopter.adopt(&mut value, 0) {
        Ok(()) => Ok(value),
        // Too large is the whole.
        Err((fault, _)) if adopter.bytes > bounds.bytes => Err(fault),
        Err((fault, mut way)) => {
            way.reverse();
            Err(fault.at_place(&pointer(&way)))
        }
    }
}

/// Where a reader is, and how much it has seen.
struct Meter<'b> {
    bounds: &'b Bounds,
    nodes: usize,
    path: Vec<Step>,
}

impl<'b> Meter<'b> {
    fn new(bounds: &'b Bounds) -> Meter<'b> {
        Meter { bounds, nodes: 0, path: Vec::new() }
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes <= self.bounds.nodes {
            return Ok(());
        }
        Err(self.fault(
            format!("there are more than {} values", self.bounds.nodes),
            "every value is checked before anything runs",
            "send less, or in several calls",
        ))
    }

    /// `depth` is how many arrays and objects are around this one.
    fn deepen(&self, depth: usize) -> Result<(), Fault> {
        let most = self.bounds.depth;
        if depth < most {
            return Ok(());
        }
        Err(self.fault(
            format!("arrays and objects are nested more than {most} deep"),
            "every level is checked before anything runs",
            "send it flatter",
        ))
    }

    fn twice(&self, key: &str) -> Fault {
        self.fault(
            format!("the key `{}` is there twice", shown(key, 80)),
            "readers disagree which of the two counts",
            "send it once",
        )
    }

    fn too_large_number(&self) -> Fault {
        self.fault(
            "an integer does not fit in 64 bits",
            "it would be rounded, and not everywhere in the same way",
            "send a smaller one, or send it as a string",
        )
    }

    fn fault(&self, what: impl Into<String>, why: &str, fix: &str) -> Fault {
        Fault::new(&pointer(&self.path), what, why, fix)
    }
}

fn too_large(size: usize, bounds: &Bounds) -> Fault {
    Fault::new(
        "",
        format!("the document has {size} bytes"),
        format!("the most is {} bytes", bounds.bytes),
        "send less, or put it into a file",
    )
}

/// The one form of a number that was read as a double; `None` if it looks like an integer and does not
/// fit in one.
pub(crate) fn exact(double: f64) -> Option<Number> {
    if double.fract() != 0.0 || double.abs() >= EXPONENT_FROM {
        return Number::from_f64(double);
    }
    if (0.0..2.0 * INTEGERS_END).contains(&double) {
        return Some(Number::from(double as u64));
    }
    (-INTEGERS_END..0.0).contains(&double).then(|| Number::from(double as i64))
}

struct Reader<'a> {
    meter: Meter<'a>,
    numbers: Numbers<'a>,
    /// Numbers that have been read.
    met: usize,
    fault: Option<Fault>,
}

impl Reader<'_> {
    /// Keeps the fault aside: what goes through serde is text only.
    fn refuse<E: serde::de::Error>(&mut self, fault: Fault) -> E {
        self.fault = Some(fault);
        E::custom("refused")
    }

    fn double(&mut self, double: f64) -> Result<Number, Fault> {
        let rounded = double.abs() >= INTEGERS_END;
        if rounded && self.numbers.nth(self.met).is_some_and(is_integer) {
            return Err(self.meter.too_large_number());
        }
        exact(double).ok_or_else(|| self.meter.too_large_number())
    }

    fn not_json(&self, error: &serde_json::Error) -> Fault {
        self.meter.fault(
            "this is not JSON",
            &error.to_string(),
            "send one JSON document, without comments and trailing commas, and with finite numbers",
        )
    }
}

/// The numbers of a document as they are written. serde_json hands over a double, and it takes the text
/// to know whether that was an integer; only huge ones make it necessary, so it is looked at late.
struct Numbers<'a> {
    rest: &'a [u8],
    met: usize,
}

impl<'a> Numbers<'a> {
    /// The number at this place in the order of the document, the first being 1. Only goes forward; what
    /// lies before has been read as JSON already.
    fn nth(&mut self, place: usize) -> Option<&'a [u8]> {
        let mut found = None;
        while self.met < place {
            found = self.next();
            found?;
        }
        found
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut in_string = false;
        let mut escaped = false;
        let start = self.rest.iter().position(|&byte| {
            let begins = !in_string && (byte == b'-' || byte.is_ascii_digit());
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = in_string,
                b'"' => in_string = !in_string,
                _ => {}
            }
            begins
        })?;
        let (_, from) = self.rest.split_at_checked(start)?;
        let belongs = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = from.iter().take_while(|byte| belongs(byte)).count();
        let (number, rest) = from.split_at_checked(length)?;
        self.rest = rest;
        self.met += 1;
        Some(number)
    }
}

fn is_integer(number: &[u8]) -> bool {
    !number.iter().any(|byte| b".eE".contains(byte))
}

struct Seed<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        if let Err(fault) = self.0.meter.count() {
            return Err(self.0.refuse(fault));
        }
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        self.0.met += 1;
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.0.met += 1;
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.met += 1;
        match self.0.double(value) {
            Ok(number) => Ok(Value::Number(number)),
            Err(fault) => Err(self.0.refuse(fault)),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let reader = self.0;
        let depth = reader.meter.path.len();
        reader.meter.deepen(depth).map_err(|fault| reader.refuse::<A::Error>(fault))?;
        let mut items = Vec::new();
        loop {
            reader.meter.path.push(Step::Index(items.len()));
            let Some(item) = source.next_element_seed(Seed(reader))? else { break };
            reader.meter.path.pop();
            items.push(item);
        }
        reader.meter.path.pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let reader = self.0;
        let depth = reader.meter.path.len();
        reader.meter.deepen(depth).map_err(|fault| reader.refuse::<A::Error>(fault))?;
        let mut members = Map::new();
        while let Some(key) = source.next_key::<String>()? {
            if members.contains_key(&key) {
                let fault = reader.meter.twice(&key);
                return Err(reader.refuse(fault));
            }
            reader.meter.path.push(Step::Key(key.clone()));
            let member = source.next_value_seed(Seed(reader))?;
            reader.meter.path.pop();
            members.insert(key, member);
        }
        Ok(Value::Object(members))
    }
}

struct Adopter<'b> {
    meter: Meter<'b>,
    bytes: usize,
}

/// What is wrong, and the way to it from the inside out: nobody has to know it where nothing is wrong.
type Refused = (Fault, Vec<Step>);

impl Adopter<'_> {
    fn adopt(&mut self, value: &mut Value, depth: usize) -> Result<(), Refused> {
        self.meter.count().map_err(here)?;
        match value {
            Value::Null | Value::Bool(_) => Ok(()),
            Value::Number(number) => self.number(number).map_err(here),
            Value::String(text) => self.weigh(text).map_err(here),
            Value::Array(items) => {
                self.meter.deepen(depth).map_err(here)?;
                items.iter_mut().enumerate().try_for_each(|(index, item)| {
                    self.adopt(item, depth + 1)
                        .map_err(|refused| below(refused, Step::Index(index)))
                })
            }
            Value::Object(members) => {
                self.meter.deepen(depth).map_err(here)?;
                members.iter_mut().try_for_each(|(key, member)| {
                    self.weigh(key).map_err(here)?;
                    let step = || Step::Key(key.clone());
                    self.adopt(member, depth + 1).map_err(|refused| below(refused, step()))
                })
            }
        }
    }

    fn number(&self, number: &mut Number) -> Result<(), Fault> {
        if let Some(double) = number.as_f64().filter(|_| number.is_f64()) {
            *number = exact(double).ok_or_else(|| self.meter.too_large_number())?;
        }
        Ok(())
    }

    fn weigh(&mut self, text: &str) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(text.len());
        match self.bytes <= self.meter.bounds.bytes {
            true => Ok(()),
            false => Err(too_large(self.bytes, self.meter.bounds)),
        }
    }
}

fn here(fault: Fault) -> Refused {
    (fault, Vec::new())
}

fn below((fault, mut way): Refused, step: Step) -> Refused {
    way.push(step);
    (fault, way)
}
