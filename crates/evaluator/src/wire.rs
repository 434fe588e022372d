//! What is said to the evaluator and what it answers: one frame each, a length and as many bytes.
//! Numbers are little-endian, texts are UTF-8 with their length before them, and nothing may be left over.

use std::io::{self, Read, Write};

/// Longest frame to the evaluator.
pub const MOST_REQUEST: usize = 2 * 1024 * 1024;
/// Longest frame from it.
pub const MOST_ANSWER: usize = 128 * 1024;
/// Most files, and most rules in all of them.
pub const MOST_FILES: usize = 16;
pub const MOST_RULES: usize = 64;
/// Longest name of a file or rule, and longest reason, in bytes.
pub const MOST_NAME: usize = 128;
pub const MOST_REASON: usize = 1024;

/// Bytes of the length before a frame.
pub const HEADER: usize = 4;

/// What hotcell says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The rules, once: names of files and their TypeScript.
    Load(Vec<(String, String)>),
    /// A call and facts as JSON. The answer has the same number.
    Evaluate { number: u64, call: String, facts: String },
}

/// What the evaluator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The names of the rules.
    Loaded(Vec<String>),
    /// The rules cannot be loaded.
    Fault(Place),
    /// What each rule says that does not pass.
    Spoken { number: u64, rules: Vec<Said> },
    /// One rule did not come to a decision.
    Failed { number: u64, kind: Failure, rule: String, why: String },
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    /// From 1; 0 if it is not known.
    pub line: u32,
    pub column: u32,
    pub what: String,
    pub why: String,
    pub fix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub rule: String,
    pub verb: Verb,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Allow,
    Deny,
    RequireReview,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Late,
    Broken,
}

/// The other side does not keep to this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "a frame is not as it has to be")
    }
}

/// The length that a header announces.
pub fn length(header: [u8; HEADER], most: usize) -> Result<usize, Malformed> {
    let length = u32::from_le_bytes(header) as usize;
    if length <= most { Ok(length) } else { Err(Malformed) }
}

/// The next frame, or nothing at the end.
pub fn receive(from: &mut impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER];
    if from.read(header.get_mut(..1).unwrap_or_default())? == 0 {
        return Ok(None);
    }
    from.read_exact(header.get_mut(1..).unwrap_or_default())?;
    let mut body = vec![0; length(header, most)?];
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

pub fn send(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    to.write_all(frame)?;
    to.flush()
}

impl Request {
    /// As a frame; nothing if it would be too long.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        match self {
            Request::Load(files) => {
                writer.byte(1);
                writer.count(files.len());
                for (name, text) in files {
                    writer.text(name);
                    writer.text(text);
                }
            }
            Request::Evaluate { number, call, facts } => {
                writer.byte(2);
                writer.number(*number);
                writer.text(call);
                writer.text(facts);
            }
        }
        writer.finish(MOST_REQUEST)
    }

    pub fn read(body: &[u8]) -> Result<Request, Malformed> {
        let mut reader = Reader { rest: body };
        let request = match reader.byte()? {
            1 => {
                let count = reader.count(MOST_FILES)?;
                let file = |_| Ok((reader.text(MOST_NAME)?, reader.text(MOST_REQUEST)?));
                Request::Load((0..count).map(file).collect::<Result<_, _>>()?)
            }
            2 => Request::Evaluate {
                number: reader.number()?,
                call: reader.text(MOST_REQUEST)?,
                facts: reader.text(MOST_REQUEST)?,
            },
            _ => return Err(Malformed),
        };
        reader.end(request)
    }
}

impl Answer {
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        match self {
            Answer::Loaded(rules) => {
                writer.byte(1);
                writer.count(rules.len());
                rules.iter().for_each(|rule| writer.text(rule));
            }
            Answer::Fault(place) => {
                writer.byte(2);
                writer.text(&place.file);
                writer.small(place.line);
                writer.small(place.column);
                for text in [&place.what, &place.why, &place.fix] {
                    writer.text(cut(text));
                }
            }
            Answer::Spoken { number, rules } => {
                writer.byte(3);
                writer.number(*number);
                writer.count(rules.len());
                for said in rules {
                    writer.text(&said.rule);
                    writer.byte(said.verb.code());
                    writer.text(&said.reason);
                }
            }
            Answer::Failed { number, kind, rule, why } => {
                writer.byte(4);
                writer.number(*number);
                writer.byte(match kind {
                    Failure::Late => 1,
                    Failure::Broken => 2,
                });
                writer.text(rule);
                writer.text(cut(why));
            }
        }
        writer.finish(MOST_ANSWER)
    }

    pub fn read(body: &[u8]) -> Result<Answer, Malformed> {
        let mut reader = Reader { rest: body };
        let answer = match reader.byte()? {
            1 => {
                let count = reader.count(MOST_RULES)?;
                let rules = (0..count).map(|_| reader.text(MOST_NAME));
                Answer::Loaded(rules.collect::<Result<_, _>>()?)
            }
            2 => Answer::Fault(Place {
                file: reader.text(MOST_NAME)?,
                line: reader.small()?,
                column: reader.small()?,
                what: reader.text(MOST_REASON)?,
                why: reader.text(MOST_REASON)?,
                fix: reader.text(MOST_REASON)?,
            }),
            3 => {
                let number = reader.number()?;
                let count = reader.count(MOST_RULES)?;
                let rules = (0..count).map(|_| reader.said());
                Answer::Spoken { number, rules: rules.collect::<Result<_, _>>()? }
            }
            4 => Answer::Failed {
                number: reader.number()?,
                kind: match reader.byte()? {
                    1 => Failure::Late,
                    2 => Failure::Broken,
                    _ => return Err(Malformed),
                },
                rule: reader.text(MOST_NAME)?,
                why: reader.text(MOST_REASON)?,
            },
            _ => return Err(Malformed),
        };
        reader.end(answer)
    }
}

impl Verb {
    fn code(self) -> u8 {
        match self {
            Verb::Allow => 1,
            Verb::Deny => 2,
            Verb::RequireReview => 3,
        }
    }

    fn of(code: u8) -> Result<Verb, Malformed> {
        [Verb::Allow, Verb::Deny, Verb::RequireReview]
            .into_iter()
            .find(|verb| verb.code() == code)
            .ok_or(Malformed)
    }
}

/// As much of a message as may be sent.
fn cut(text: &str) -> &str {
    let end =
        text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= MOST_REASON);
    text.get(..end.last().unwrap_or(0)).unwrap_or_default()
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new() -> Writer {
        Writer { bytes: vec![0; HEADER] }
    }

    fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn small(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn number(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// What does not fit makes the frame too long.
    fn count(&mut self, value: usize) {
        self.small(u32::try_from(value).unwrap_or(u32::MAX));
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn finish(mut self, most: usize) -> Option<Vec<u8>> {
        let length = self.bytes.len().checked_sub(HEADER).filter(|&length| length <= most)?;
        let length = u32::try_from(length).ok()?.to_le_bytes();
        self.bytes.get_mut(..HEADER)?.copy_from_slice(&length);
        Some(self.bytes)
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: usize) -> Result<usize, Malformed> {
        length(self.array()?, most)
    }

    fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let count = self.count(most)?;
        let text = str::from_utf8(self.take(count)?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    fn said(&mut self) -> Result<Said, Malformed> {
        Ok(Said {
            rule: self.text(MOST_NAME)?,
            verb: Verb::of(self.byte()?)?,
            reason: self.text(MOST_REASON)?,
        })
    }

    fn end<T>(&self, value: T) -> Result<T, Malformed> {
        if self.rest.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            prop::collection::vec((".{0,20}", ".{0,60}"), 0..4).prop_map(Request::Load),
            (any::<u64>(), ".{0,60}", ".{0,60}")
                .prop_map(|(number, call, facts)| Request::Evaluate { number, call, facts }),
        ]
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let verb = prop::sample::select(vec![Verb::Allow, Verb::Deny, Verb::RequireReview]);
        let said = (".{0,20}", verb, ".{0,60}").prop_map(|(rule, verb, reason)| Said {
            rule,
            verb,
            reason,
        });
        let kind = prop::sample::select(vec![Failure::Late, Failure::Broken]);
        prop_oneof![
            prop::collection::vec(".{0,20}", 0..4).prop_map(Answer::Loaded),
            (any::<u64>(), prop::collection::vec(said, 0..4))
                .prop_map(|(number, rules)| Answer::Spoken { number, rules }),
            (any::<u64>(), kind, ".{0,20}", ".{0,60}")
                .prop_map(|(number, kind, rule, why)| Answer::Failed { number, kind, rule, why }),
            (".{0,20}", any::<u32>(), any::<u32>(), ".{0,60}", ".{0,60}", ".{0,60}").prop_map(
                |(file, line, column, what, why, fix)| {
                    Answer::Fault(Place { file, line, column, what, why, fix })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(request in requests(), answer in answers()) {
            let mut pipe: Vec<u8> = Vec::new();
            send(&mut pipe, &request.frame().unwrap()).unwrap();
            send(&mut pipe, &answer.frame().unwrap()).unwrap();
            let mut pipe = pipe.as_slice();
            let body = receive(&mut pipe, MOST_REQUEST).unwrap().unwrap();
            prop_assert_eq!(Request::read(&body), Ok(request));
            let body = receive(&mut pipe, MOST_ANSWER).unwrap().unwrap();
            prop_assert_eq!(Answer::read(&body), Ok(answer));
            prop_assert!(receive(&mut pipe, MOST_ANSWER).unwrap().is_none());
        }

        #[test]
        fn a_frame_that_is_cut_or_goes_on_is_malformed(answer in answers(), at in any::<prop::sample::Index>()) {
            let frame = answer.frame().unwrap();
            let body = &frame[HEADER..];
            prop_assert_eq!(Answer::read(&body[..at.index(body.len())]), Err(Malformed));
            prop_assert_eq!(Answer::read(&[body, &[0]].concat()), Err(Malformed));
        }

        #[test]
        fn any_bytes_are_read_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(answer) = Answer::read(&bytes) {
                prop_assert_eq!(&answer.frame().unwrap()[HEADER..], bytes.as_slice());
            }
            if let Ok(request) = Request::read(&bytes) {
                prop_assert_eq!(&request.frame().unwrap()[HEADER..], bytes.as_slice());
            }
        }
    }

    #[test]
    fn nothing_longer_than_its_maximum_is_sent_or_heard() {
        let long = "x".repeat(MOST_REQUEST);
        assert_eq!(Request::Load(vec![("a".into(), long.clone())]).frame(), None);
        assert_eq!(Answer::Loaded(vec![long]).frame(), None);
        let announced = u32::try_from(MOST_ANSWER + 1).unwrap().to_le_bytes();
        assert!(receive(&mut announced.as_slice(), MOST_ANSWER).is_err());
        let said = Said { rule: "r".into(), verb: Verb::Deny, reason: "x".repeat(MOST_REASON + 1) };
        let frame = Answer::Spoken { number: 1, rules: vec![said] }.frame().unwrap();
        assert_eq!(Answer::read(&frame[HEADER..]), Err(Malformed));
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(MOST_REASON)).len(), MOST_REASON);
        assert_eq!(cut(&format!("x{}", "ä".repeat(MOST_REASON))).len(), MOST_REASON - 1);
    }
}
