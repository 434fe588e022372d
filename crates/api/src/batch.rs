//! Many runs in one stream: a line is a job, and each has one result. What is wrong with a line is the result
//! of that line, and the rest goes on. Read [`Jobs`] for the way in and [`Task::answer`] for the way out.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_engine::{Attached, Brake, Engine, new_id};
use hotcell_request::{Key, json};
use hotcell_types::{Caller, Status, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::answer::{Answer, With, answer};
use crate::ask::{Ask, Manner};
use crate::call::Called;
use crate::code::Code;
use crate::problem::{Problem, ProblemKind, without_types};

/// Longest line, in bytes. Each job that goes at one time holds one.
pub const LINE_MOST: usize = 8 << 20;
/// Longest id, in bytes.
pub const ID_MOST: usize = 128;
/// Most ids of one batch: they are remembered until its end, so that none is there twice. Jobs without an
/// id are not counted.
pub const IDS_MOST: usize = 1_000_000;
/// How long a job waits for room that others have.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// How long it rests until it asks again: soon at first.
const RESTS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// One line of a batch: a run, as `POST /v1/runs` has it, and by what its result is to be known.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchJob")]
pub struct Job {
    /// No other job of the batch has it. Without one, the number of the line is the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub id: Option<String>,
    pub run: Box<Code>,
    #[serde(default)]
    pub manner: Manner,
}

/// By what a result is known: what the job said, or the number of its line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JobId {
    Line(u64),
    Given(String),
}

/// The result of one line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BatchResult")]
pub struct Done {
    pub id: JobId,
    /// Counted from 1.
    pub line: u64,
    /// The SHA-256 of the line, without its end.
    pub job: String,
    /// What became of it. With the status `invalid`, the first problem says what is wrong with the line.
    pub result: Called,
}

/// One line, as it was read. What is too long is not kept.
#[derive(Debug)]
pub struct Line {
    /// Counted from 1.
    pub number: u64,
    pub bytes: Vec<u8>,
    /// Of all of it, in bytes.
    length: u64,
    digest: [u8; 32],
}

/// The lines of a stream. Never more than one is held, and never more than [`LINE_MOST`] of it.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(source: R) -> Lines<R> {
        Lines { source, number: 0 }
    }

    /// `None` at the end. The last line need not have an end of its own.
    fn read(&mut self) -> io::Result<Option<Line>> {
        let (mut bytes, mut length, mut hash) = (Vec::new(), 0, Sha256::new());
        let mut has_begun = false;
        loop {
            let part = match self.source.fill_buf() {
                Ok(part) => part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if part.is_empty() {
                if !has_begun {
                    return Ok(None);
                }
                break;
            }
            has_begun = true;
            let mut pieces = part.splitn(2, |&byte| byte == b'\n');
            let piece = pieces.next().unwrap_or_default();
            let is_whole = pieces.next().is_some();
            hash.update(piece);
            length += piece.len() as u64;
            if length <= LINE_MOST as u64 {
                bytes.extend_from_slice(piece);
            } else {
                bytes = Vec::new();
            }
            let used = piece.len() + usize::from(is_whole);
            self.source.consume(used);
            if is_whole {
                break;
            }
        }
        self.number += 1;
        let digest = hash.finalize().into();
        Ok(Some(Line { number: self.number, bytes, length, digest }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<io::Result<Line>> {
        self.read().transpose()
    }
}

/// What makes a batch the same batch when it comes again.
#[derive(Debug, Clone)]
pub struct Name(String);

impl Name {
    pub fn new(name: impl Into<String>) -> Name {
        Name(name.into())
    }

    /// The key of a job's call: the same job of the same batch is the same call.
    fn key(&self, id: &JobId) -> Option<Key> {
        let mut hash = Sha256::new();
        for part in ["hotcell batch", &self.0] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        match id {
            JobId::Line(line) => {
                hash.update([0]);
                hash.update(line.to_be_bytes());
            }
            JobId::Given(id) => {
                hash.update([1]);
                hash.update(id);
            }
        }
        hex::text(&hash.finalize()).parse().ok()
    }
}

/// The jobs of a stream of lines, as they arrive. Blank lines are none.
#[derive(Debug)]
pub struct Jobs<R> {
    lines: Lines<R>,
    /// The ends of their digests: a million ids are not a million texts.
    ids: HashSet<[u8; 16]>,
    name: Option<Name>,
    /// Reading failed.
    is_over: bool,
}

/// One line, on its way to its result.
#[derive(Debug)]
pub struct Task {
    pub id: JobId,
    pub line: u64,
    pub job: [u8; 32],
    /// What to ask for, or what is wrong with the line.
    pub ask: Result<Ask, Problem>,
}

impl<R: BufRead> Jobs<R> {
    /// With a name, a job that was carried out is not carried out again when the batch comes again: it has
    /// the result that it had.
    pub fn new(source: R, name: Option<Name>) -> Jobs<R> {
        Jobs { lines: Lines::new(source), ids: HashSet::new(), name, is_over: false }
    }

    fn task(&mut self, line: Line) -> Task {
        let (number, job) = (line.number, line.digest);
        let mut id = JobId::Line(number);
        let ask = self.read(&line, &mut id);
        Task { id, line: number, job, ask }
    }

    /// What is asked for. The id is told also if nothing else can be read.
    fn read(&mut self, line: &Line, id: &mut JobId) -> Result<Ask, Problem> {
        let document = line.document()?;
        if let Some(given) = document.get("id").and_then(Value::as_str) {
            self.is_new(given)?;
            *id = JobId::Given(given.to_owned());
        }
        let Job { run, mut manner, .. } = serde_json::from_value(document)
            .map_err(|error| wrong("", "the line is not a job", without_types(&error), FORM))?;
        if let (Some(name), None) = (&self.name, &manner.key) {
            manner.key = name.key(id);
        }
        Ok(Ask::Run { run, manner })
    }

    fn is_new(&mut self, id: &str) -> Result<(), Problem> {
        if !(1..=ID_MOST).contains(&id.len()) {
            let why = format!("it has {} bytes", id.len());
            let fix = format!("give it 1 to {ID_MOST}, or leave it out");
            return Err(wrong("/id", "the id does not fit", why, fix));
        }
        if self.ids.len() >= IDS_MOST {
            let why = format!("{IDS_MOST} ids of one batch are remembered");
            let fix = "leave it out: the number of the line is the id then; or split the batch";
            return Err(wrong("/id", "there are too many ids", why, fix));
        }
        let digest: [u8; 32] = Sha256::digest(id).into();
        let (half, _) = digest.as_chunks::<16>();
        if half.first().is_some_and(|half| self.ids.insert(*half)) {
            return Ok(());
        }
        let (what, why) = (format!("the id {id:?} is there twice"), "a line before has it");
        Err(wrong("/id", what, why, "give each job an id of its own"))
    }
}

impl<R: BufRead> Iterator for Jobs<R> {
    type Item = io::Result<Task>;

    fn next(&mut self) -> Option<io::Result<Task>> {
        while !self.is_over {
            match self.lines.next()? {
                Ok(line) if line.is_blank() => {}
                Ok(line) => return Some(Ok(self.task(line))),
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Line {
    fn is_blank(&self) -> bool {
        self.length <= LINE_MOST as u64 && self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    fn document(&self) -> Result<Value, Problem> {
        if self.length > LINE_MOST as u64 {
            let why = format!("it has {} bytes, and {LINE_MOST} are the most", self.length);
            return Err(wrong("", "the line is too long", why, "split the job"));
        }
        let value =
            json::parse(&self.bytes, &json::Bounds::CALL).map_err(|fault| Problem::from(&fault))?;
        if !value.is_object() {
            let why = "it is another kind of JSON";
            return Err(wrong("", "the line is not an object", why, FORM));
        }
        Ok(value)
    }
}

const FORM: &str =
    "write {\"id\": …, \"run\": {\"language\": …, \"code\": …}}, as docs/batch.md says";

fn wrong(
    at: &str,
    what: impl Into<String>,
    why: impl Into<String>,
    fix: impl Into<String>,
) -> Problem {
    Problem { at: at.into(), ..Problem::new(ProblemKind::Invalid, what, why, fix) }
}

impl Task {
    /// Its result, from this process. `None` if the brake was pulled before it was begun.
    pub fn answer(self, engine: &Engine, caller: &Caller, brake: &Brake) -> Option<Done> {
        self.answered(brake, |ask| {
            let call = new_id();
            let _held = brake.holds(call)?;
            let attached = Attached { id: Some(call), ..Attached::default() };
            let with = With { attached, interrupt: brake.flag(), log: &mut |_, _| true };
            let called = match answer(engine, caller, ask, with) {
                Ok(Answer::Called(called)) => *called,
                Ok(_) => Called::failed(call, Problem::no_answer()),
                Err(problem) => Called::failed(call, problem),
            };
            Some(called)
        })
    }

    /// The same, from wherever it is carried out. A call gives up when its turn has not come within the time
    /// that it may take; a job of a batch has time, and waits for its turn as long as there is no room.
    pub fn answered(
        self,
        brake: &Brake,
        mut ask: impl FnMut(Ask) -> Option<Called>,
    ) -> Option<Done> {
        let Task { id, line, job, ask: asked } = self;
        let done = |result| Some(Done { id, line, job: hex::text(&job), result });
        let asked = match asked {
            Ok(asked) => asked,
            Err(problem) => return done(Called::failed(new_id(), problem)),
        };
        let (begun, (mut rest, longest)) = (Instant::now(), RESTS);
        loop {
            let called = ask(asked.clone())?;
            if !called.found_no_room() || begun.elapsed() > PATIENCE {
                return done(called);
            }
            thread::sleep(rest);
            if brake.is_pulled() {
                return None;
            }
            rest = longest.min(rest * 2);
        }
    }
}

impl Called {
    /// Whether nothing was begun because others were.
    fn found_no_room(&self) -> bool {
        let is_busy = |problem: &Problem| problem.kind == ProblemKind::Busy;
        self.status == Status::Error && self.run.is_none() && self.problems.iter().all(is_busy)
    }

    /// Nothing came of it.
    pub fn failed(id: hotcell_types::CallId, problem: Problem) -> Called {
        let status = match problem.kind {
            ProblemKind::Invalid
            | ProblemKind::NotFound
            | ProblemKind::NotRunnable
            | ProblemKind::Conflict => Status::Invalid,
            ProblemKind::Blocked => Status::Blocked,
            ProblemKind::Failed => Status::Failure,
            ProblemKind::Refused | ProblemKind::Busy | ProblemKind::Error => Status::Error,
        };
        Called { problems: vec![problem], ..Called::new(id, status) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor, Read};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the bytes are, each line that is not blank is one task, known by an id of its own.
        #[test]
        fn each_line_is_one_task(
            parts in prop::collection::vec(
                prop_oneof![
                    any::<Vec<u8>>(),
                    "[ \\r\\t]{0,3}\n".prop_map(String::into_bytes),
                    "\\{\"id\": \"[ab]?\", \"run\": \\{\"code\": \"x\"\\}\\}\n".prop_map(String::into_bytes),
                    "\\{(\"(id|run|manner)\": (1|null|\\{\\}|\"a\"),?){0,3}\\}\n".prop_map(String::into_bytes),
                ],
                0..20,
            ),
            size in 1..64_usize,
        ) {
            let text = parts.concat();
            let lines = text.split(|&byte| byte == b'\n');
            let full = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)).count();
            let found = tasks(&text);
            prop_assert_eq!(found.len(), full);
            let ids: HashSet<&JobId> = found.iter().map(|task| &task.id).collect();
            prop_assert_eq!(ids.len(), full);
            let slow = Jobs::new(BufReader::with_capacity(size, &*text), None);
            let slow: Vec<_> = slow.map(Result::unwrap).collect();
            prop_assert_eq!(format!("{slow:?}"), format!("{found:?}"));
        }
    }

    fn tasks(text: &[u8]) -> Vec<Task> {
        Jobs::new(Cursor::new(text), None).map(Result::unwrap).collect()
    }

    const RUN: &str = r#""run": {"command": ["true"]}"#;

    #[test]
    fn a_line_is_a_job_with_an_id_or_a_number() {
        let text =
            format!("{{{RUN}}}\n\n  \r\n{{\"id\": \"a\", {RUN}}}\r\n{{\"id\": \"4\", {RUN}}}");
        let tasks = tasks(text.as_bytes());
        let ids: Vec<_> = tasks.iter().map(|task| (task.id.clone(), task.line)).collect();
        let given = |id: &str| JobId::Given(id.into());
        assert_eq!(ids, [(JobId::Line(1), 1), (given("a"), 4), (given("4"), 5)]);
        assert!(tasks.iter().all(|task| task.ask.is_ok()), "{tasks:?}");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_the_result_of_that_line() {
        let long = format!("{{{RUN}, \"x\": \"{}\"}}", "x".repeat(LINE_MOST));
        let deep = "[".repeat(100);
        let long_id = format!("{{\"id\": \"{}\", {RUN}}}", "x".repeat(ID_MOST + 1));
        let (unknown, inside) = (format!("{{{RUN}, \"uid\": 0}}"), r#"{"run": {"uid": 0}}"#);
        let (number, empty) = (format!("{{\"id\": 7, {RUN}}}"), format!("{{\"id\": \"\", {RUN}}}"));
        let twice = format!("{{{RUN}, {RUN}}}");
        let torn = "{\"run\": {\"comm";
        for (line, what) in [
            ("nonsense", "this is not JSON"),
            (torn, "this is not JSON"),
            (&deep, "arrays and objects are nested more than 64 deep"),
            ("[]", "the line is not an object"),
            ("null", "the line is not an object"),
            (&twice, "the key `run` is there twice"),
            (&unknown, "the line is not a job"),
            (inside, "the line is not a job"),
            ("{}", "the line is not a job"),
            (&number, "the line is not a job"),
            (&empty, "the id does not fit"),
            (&long_id, "the id does not fit"),
            (&long, "the line is too long"),
            ("{\"id\": \"a\", \"run\": {}}", "the id \"a\" is there twice"),
            ("\u{feff}{}", "the document begins with a byte order mark"),
        ] {
            let first = format!("{{\"id\": \"a\", {RUN}}}\n");
            let tasks = tasks(format!("{first}{line}\n{{{RUN}}}\n").as_bytes());
            assert_eq!(tasks.len(), 3, "{what}");
            let problem = tasks[1].ask.as_ref().unwrap_err();
            assert_eq!(problem.what, what, "{problem:?}");
            assert_eq!(problem.kind, ProblemKind::Invalid);
            assert!(!problem.why.contains("struct"), "{problem:?}");
            assert_eq!(tasks[1].id, JobId::Line(2));
            assert!(tasks[0].ask.is_ok() && tasks[2].ask.is_ok(), "{what}");
        }
        let named = format!("{{\"id\": \"b\", {RUN}, \"uid\": 0}}");
        assert_eq!(tasks(named.as_bytes())[0].id, JobId::Given("b".into()));
        let binary = tasks(b"{\"run\": {\"code\": \"\xff\"}}\n");
        assert_eq!(binary[0].ask.as_ref().unwrap_err().what, "the document is not UTF-8");
    }

    #[test]
    fn a_line_is_the_same_however_it_arrives() {
        let text = format!("{{{RUN}}}\n{}\n\n{{{RUN}}}", "y".repeat(LINE_MOST + 1));
        let whole = tasks(text.as_bytes());
        for size in [1 << 10, 1 << 20] {
            let slow = BufReader::with_capacity(size, text.as_bytes());
            let slow: Vec<_> = Jobs::new(slow, None).map(Result::unwrap).collect();
            let told = |tasks: &[Task]| format!("{tasks:?}");
            assert_eq!(told(&slow), told(&whole));
        }
        assert_eq!(whole[0].job, whole[2].job);
    }

    #[test]
    fn what_breaks_off_is_no_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let source = format!("{{{RUN}}}\n{{{RUN}}}");
        let source = BufReader::new(source.as_bytes().chain(Broken));
        let found: Vec<bool> = Jobs::new(source, None).map(|task| task.is_ok()).collect();
        assert_eq!(found, [true, false]);
    }

    #[test]
    fn a_key_is_that_of_a_job_of_a_batch() {
        let key = |name: &str, id: JobId| Name::new(name).key(&id).unwrap();
        let all = [
            key("a", JobId::Line(1)),
            key("a", JobId::Line(2)),
            key("b", JobId::Line(1)),
            key("a", JobId::Given("1".into())),
            key("a1", JobId::Given("".into())),
            key("a", JobId::Given("\0\0\0\0\0\0\0\u{1}".into())),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(key("a", JobId::Line(1)), all[0]);
        let text = format!("{{{RUN}}}\n{{{RUN}, \"manner\": {{\"key\": \"own\"}}}}\n");
        let tasks = Jobs::new(Cursor::new(text), Some(Name::new("a")));
        let keys: Vec<_> = tasks
            .map(|task| match task.unwrap().ask {
                Ok(Ask::Run { manner, .. }) => manner.key.unwrap().as_str().to_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, [all[0].as_str(), "own"]);
    }
}
