//! A recorded call again: from its recorded arguments and inputs, as a new call that is judged anew and
//! names the old one as its parent. Then both are compared.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;

use hotcell_ledger::{Artifact, Blob, Digest, Role};
use hotcell_request::{Arguments, Call, Request, VersionReq, canonical};
use hotcell_tools::run::Content;
use hotcell_tools::{BuiltIn, Plan, Source};
use hotcell_types::{CallId, Caller, Door, Exit, Outcome, Output, Span, Status};
use hotcell_workspace::{BadGlob, Globs, Relative};
use serde_json::{Value, json};

use crate::artifacts::{ArtifactAnswer, ArtifactAsk, Which, line};
use crate::attached::{Attached, Attachment, Input};
use crate::engine::{Asker, Engine};
use crate::interrupt::Together;
use crate::reply::{Problem, ProblemKind, Reply};
use crate::show::Shown;

/// What stands where a secret was. Who wrote that himself is told of it as well.
const PLACEHOLDERS: [&str; 2] = ["[secret]", "[redacted:"];
/// Most differences that are told one by one.
pub const MOST_DIFFERENCES: usize = 100;
/// Longest line that is shown of a difference, in characters.
const MOST_LINE: usize = 80;
/// How much of an old output is compared line by line.
const MOST_COMPARED: u64 = 1024 * 1024;

/// What may differ: files by their paths, as patterns, and `exit`, `stdout`, `stderr` and `value` by name.
#[derive(Debug, Default)]
pub struct Ignore {
    words: Vec<String>,
    files: Option<Globs>,
}

/// What came of it.
#[derive(Debug)]
pub struct Replayed {
    pub old: CallId,
    pub new: Box<Reply>,
    /// What was compared and is the same.
    pub same: Vec<String>,
    pub differences: Vec<Difference>,
    /// Of those that are not told.
    pub more: usize,
    pub ignored: Vec<String>,
    /// Texts among the arguments in which a secret was, and a placeholder was given in its place: what comes of
    /// it may be something else for that alone.
    pub placeholders: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `status`, `exit`, `stdout`, `stderr`, `value`, or the path of a file.
    pub what: String,
    pub was: String,
    pub is: String,
}

impl Ignore {
    pub fn new(patterns: &[String]) -> Result<Ignore, BadGlob> {
        let files = if patterns.is_empty() { None } else { Some(Globs::new(patterns)?) };
        Ok(Ignore { words: patterns.to_vec(), files })
    }

    fn covers(&self, thing: &Thing) -> bool {
        match thing {
            Thing::Word(word) => self.words.iter().any(|ignored| ignored == word),
            Thing::File(path) => match (&self.files, Relative::parse(path)) {
                (Some(files), Ok(path)) => files.covers(&path, false),
                _ => false,
            },
        }
    }
}

impl Replayed {
    pub fn is_same(&self) -> bool {
        self.differences.is_empty()
    }
}

impl Engine {
    pub(crate) fn replay(
        &self,
        caller: &Caller,
        id: CallId,
        ignore: &Ignore,
        asker: Asker<'_>,
    ) -> Result<Replayed, Problem> {
        let old = self.show(caller, id)?;
        let (request, attached) = self.again(caller, &old)?;
        let tool = self.registry.get(&request.tool, request.version.as_ref());
        let varies = tool.map(|known| known.tool().varies.clone()).unwrap_or_default();
        let together = Together::new(self, caller, asker);
        let new = together.make(|| together.call(request, attached));
        // It was not even judged, or could not be carried out.
        let is_nothing = new.run.is_none() && matches!(new.status, Status::Error | Status::Invalid);
        if let Some(problem) = new.problems.first().filter(|_| is_nothing) {
            return Err(problem.clone());
        }
        let (was, is) = (Side::of_shown(&old, &varies), Side::of_reply(&new, &varies));
        let has_value = |side: &Side| side.0.contains_key(&Thing::Word("value"));
        // What the tool says of its result, where there is one to compare.
        let of_value = varies.iter().filter(|_| has_value(&was) || has_value(&is));
        let mut replayed = Replayed {
            old: id,
            new: Box::new(new),
            same: Vec::new(),
            differences: Vec::new(),
            more: 0,
            ignored: of_value.map(|at| format!("value{at}")).collect(),
            placeholders: old.arguments.value().map_or(0, placeholders),
        };
        self.compare(caller, &old, (was, is), ignore, &mut replayed);
        Ok(replayed)
    }

    /// The same request, with the same contents.
    fn again(&self, caller: &Caller, old: &Shown) -> Result<(Request, Attached<'static>), Problem> {
        match old.status() {
            None => return Err(refused(old, "it still goes on", "wait until it has ended")),
            Some(Status::Unknown) => {
                let why = "what became of it is not known, so that there is nothing to compare";
                return Err(refused(old, why, "make the call anew"));
            }
            Some(_) => {}
        }
        let arguments = old.arguments.value().ok_or_else(|| {
            let why = old.arguments.why_not().unwrap_or("it has no arguments");
            refused(old, &format!("its arguments cannot be read: {why}"), "make the call anew")
        })?;
        // A text can be given as it was recorded. A name is what the tool goes by.
        if has_placeholder_in_names(arguments) {
            let why = "something secret is among the names of its arguments, and was not recorded";
            return Err(refused(old, why, "make the call anew, with the secret"));
        }
        let tool = old.begin.tool.as_deref().and_then(|tool| tool.rsplit_once('@'));
        let tool =
            tool.and_then(|(name, version)| Some((name.parse().ok()?, version.parse().ok()?)));
        let Some(key) = tool else {
            return Err(refused(old, "its tool has no name", "make the call anew"));
        };
        let attached = match self.built_in.get(&key).map(|tool| &**tool) {
            Some(BuiltIn::Sandboxed(tool)) => {
                let plan = tool.plan(arguments);
                let plan = plan.map_err(|e| Problem::from(e).of(ProblemKind::Invalid))?;
                if plan.inside.is_some() {
                    let why = "it ran in a sandbox that stays, with files that others left there";
                    return Err(refused(old, why, "make the call anew"));
                }
                // What another door may not have, whoever replays it would give it.
                let is_persons = matches!(old.begin.caller.door, Door::Cli | Door::Library);
                if !plan.placeholders.is_empty() && !is_persons {
                    let why = "it asked for secrets, and through a door that is not a person's";
                    return Err(refused(old, why, "make the call anew"));
                }
                self.attach(caller, old, plan)?
            }
            Some(BuiltIn::Tree(_)) => return Err(refused_live(old)),
            Some(BuiltIn::Environment(_)) => {
                let why = "it is about environments, which are others by now";
                return Err(refused(old, why, "make the call anew"));
            }
            Some(BuiltIn::Stay(_)) => {
                let why = "it is about a sandbox that stays, which is another by now";
                return Err(refused(old, why, "make the call anew"));
            }
            Some(BuiltIn::Web(_)) => {
                let why = "it asked others, who answer otherwise by now";
                return Err(refused(old, why, "make the call anew"));
            }
            Some(BuiltIn::Pure(_) | BuiltIn::Absent(_)) | None => Attached::default(),
        };
        let (name, version) = key;
        let mut request = Request::new(name, Arguments::Value(arguments.clone()));
        request.version = Some(VersionReq::exactly(version));
        request.parent = Some(old.id);
        request.timeout = timeout(old);
        Ok((request, attached))
    }

    /// What went along with a call that waited, and is carried out now.
    pub(crate) fn given_again(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Result<Attached<'static>, Problem> {
        let key = (call.name().clone(), call.version());
        let Some(BuiltIn::Sandboxed(tool)) = self.built_in.get(&key).map(|tool| &**tool) else {
            return Ok(Attached::default());
        };
        let plan = tool.plan(call.args());
        let plan = plan.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
        if plan.attached.is_empty() && matches!(plan.stdin, Source::Empty | Source::Text(_)) {
            return Ok(Attached::default());
        }
        let old = self.show(caller, call.id())?;
        // It works on the workspace as it is then, whenever that is.
        let plan = Plan { working_copy: false, ..plan };
        self.attach(caller, &old, plan).map_err(|problem| {
            let what = format!("the call {} cannot be carried out from here", call.id());
            let fix = "make the same call again, with the same files: the approval counts for it";
            Problem { what, fix: fix.into(), ..problem }
        })
    }

    /// What went along with the call.
    fn attach(
        &self,
        caller: &Caller,
        old: &Shown,
        plan: Plan,
    ) -> Result<Attached<'static>, Problem> {
        if plan.working_copy {
            return Err(refused_live(old));
        }
        let mut attached = Attached::default();
        for wanted in plan.attached {
            attached.files.push(self.kept(caller, old, wanted.name, &wanted.content)?);
        }
        match plan.stdin {
            Source::Live => {
                let why = "its standard input was passed on while it ran, and not kept";
                return Err(refused(old, why, "give it as a file: `--stdin FILE`"));
            }
            Source::Attached(content) => {
                let stdin = self.kept(caller, old, "stdin".into(), &content)?;
                attached.stdin = Some(Input::Content(stdin));
            }
            Source::Empty | Source::Text(_) => {}
        }
        Ok(attached)
    }

    /// What the ledger has of something that the call was given.
    fn kept(
        &self,
        caller: &Caller,
        old: &Shown,
        name: OsString,
        wanted: &Content,
    ) -> Result<Attachment, Problem> {
        let is_it = |artifact: &&Artifact| {
            matches!(artifact.role, Role::Script | Role::Input)
                && artifact.blob.digest.to_string() == wanted.sha256
        };
        let found = old.artifacts.iter().find(is_it).filter(|artifact| artifact.is_kept);
        let content = found.and_then(|artifact| self.content(caller, artifact).ok()?);
        let again =
            content.and_then(|content| Attachment::of_source(name, content, wanted.bytes).ok());
        again.filter(|again| again.content() == wanted).ok_or_else(|| {
            let why = format!(
                "the content {} that it was given, of {} bytes, was not kept",
                wanted.sha256, wanted.bytes
            );
            refused(old, &why, "make the call anew, with the same files")
        })
    }

    fn content(
        &self,
        caller: &Caller,
        artifact: &Artifact,
    ) -> Result<Option<hotcell_ledger::Content>, Problem> {
        let ask = ArtifactAsk::Content(Which::Id(artifact.id));
        Ok(match self.artifacts.ask(self.recording()?, caller, ask)? {
            ArtifactAnswer::Content { content, .. } => Some(content),
            _ => None,
        })
    }

    fn compare(
        &self,
        caller: &Caller,
        old: &Shown,
        (mut was, is): (Side, Side),
        ignore: &Ignore,
        replayed: &mut Replayed,
    ) {
        let mut pairs: Vec<(Thing, Option<Known>, Option<Known>)> = Vec::new();
        for (thing, known) in is.0 {
            let before = was.0.remove(&thing);
            pairs.push((thing, before, Some(known)));
        }
        pairs.extend(was.0.into_iter().map(|(thing, known)| (thing, Some(known), None)));
        for (thing, was, is) in pairs {
            if was == is {
                replayed.same.push(thing.to_string());
            } else if ignore.covers(&thing) {
                replayed.ignored.push(thing.to_string());
            } else if replayed.differences.len() >= MOST_DIFFERENCES {
                replayed.more += 1;
            } else {
                let lines = self.lines(caller, old, &thing, &replayed.new);
                let absent = || "nothing".to_owned();
                let (was, is) = lines.unwrap_or_else(|| {
                    (
                        was.map_or_else(absent, |w| w.to_string()),
                        is.map_or_else(absent, |i| i.to_string()),
                    )
                });
                replayed.differences.push(Difference { what: thing.to_string(), was, is });
            }
        }
    }

    /// The first line of a stream that is another.
    fn lines(
        &self,
        caller: &Caller,
        old: &Shown,
        thing: &Thing,
        new: &Reply,
    ) -> Option<(String, String)> {
        let run = new.run.as_ref()?;
        let (role, is) = match thing {
            Thing::Word("stdout") => (Role::Stdout, &run.stdout.bytes),
            Thing::Word("stderr") => (Role::Stderr, &run.stderr.bytes),
            _ => return None,
        };
        let artifact = old.artifacts.iter().find(|artifact| artifact.role == role);
        let was = match artifact {
            Some(artifact) => {
                let content = self.content(caller, artifact).ok()??;
                let mut was = Vec::new();
                content.take(MOST_COMPARED).read_to_end(&mut was).ok()?;
                was
            }
            None => Vec::new(),
        };
        let mut lines = (was.split(|b| *b == b'\n'), is.split(|b| *b == b'\n'));
        let mut number = 1;
        loop {
            match (lines.0.next(), lines.1.next()) {
                (None, None) => return None,
                (was, is) if was == is => number += 1,
                (was, is) => return Some((told(number, was), told(number, is))),
            }
        }
    }
}

fn told(number: usize, line: Option<&[u8]>) -> String {
    match line {
        None => format!("no line {number}"),
        Some(line) => {
            let text = String::from_utf8_lossy(line);
            let cut: String = text.chars().take(MOST_LINE).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            format!("line {number} `{cut}{more}`")
        }
    }
}

fn refused(old: &Shown, why: &str, fix: &str) -> Problem {
    let what = format!("the call {} cannot be replayed", old.id);
    Problem::new(what, why, fix).of(ProblemKind::Invalid)
}

fn refused_live(old: &Shown) -> Problem {
    let why = "it read a workspace, which may be another by now";
    refused(old, why, "make the call anew")
}

/// Also among the names of fields.
pub(crate) fn has_placeholder(value: &Value) -> bool {
    placeholders(value) > 0 || has_placeholder_in_names(value)
}

/// In how many texts of a value there is one.
fn placeholders(value: &Value) -> usize {
    match value {
        Value::String(text) => is_placeholder_in(text).into(),
        Value::Array(items) => items.iter().map(placeholders).sum(),
        Value::Object(fields) => fields.values().map(placeholders).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn has_placeholder_in_names(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_placeholder_in_names),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| is_placeholder_in(name) || has_placeholder_in_names(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_placeholder_in(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|placeholder| text.contains(placeholder))
}

/// Takes a place out of a value, if it is there.
fn take_out(value: &mut Value, at: &str) {
    let Some((above, name)) = at.rsplit_once('/') else {
        *value = Value::Null;
        return;
    };
    let name = name.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(above) {
        Some(Value::Object(fields)) => drop(fields.remove(&name)),
        Some(Value::Array(items)) => {
            let item = name.parse::<usize>().ok().and_then(|number| items.get_mut(number));
            item.into_iter().for_each(|item| *item = Value::Null);
        }
        _ => {}
    }
}

/// As long as the first one was allowed to take.
fn timeout(old: &Shown) -> Option<Span> {
    let millis = old.result.value()?.pointer("/run/limits/timeout")?.as_u64()?;
    format!("{millis}ms").parse().ok()
}

/// Something that can be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Word(&'static str),
    File(String),
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Thing::Word(word) => word,
            Thing::File(path) => path,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Text(String),
    Content(Blob),
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Known::Text(text) => f.write_str(text),
            Known::Content(Blob { digest, size }) => write!(f, "{size} bytes, {digest}"),
        }
    }
}

/// What came of one of the two.
#[derive(Debug)]
struct Side(BTreeMap<Thing, Known>);

impl Side {
    fn of_shown(old: &Shown, varies: &[String]) -> Side {
        let status = old.status().unwrap_or(Status::Unknown);
        let mut side = Side::new(status);
        let result = old.result.value().cloned().unwrap_or(Value::Null);
        match result.get("run") {
            Some(run) => side.text("exit", run.get("exit").unwrap_or(&Value::Null)),
            None => side.value(result.get("value"), result.get("value_known"), varies),
        }
        for artifact in &old.artifacts {
            let thing = match artifact.role {
                Role::Stdout => Thing::Word("stdout"),
                Role::Stderr => Thing::Word("stderr"),
                Role::Script | Role::Input => continue,
                _ => Thing::File(artifact.name.to_string()),
            };
            side.0.insert(thing, Known::Content(artifact.blob));
        }
        side
    }

    fn of_reply(new: &Reply, varies: &[String]) -> Side {
        let mut side = Side::new(new.status);
        match &new.run {
            Some(run) => side.run(run),
            None => side.value(new.value.as_ref(), None, varies),
        }
        side
    }

    fn new(status: Status) -> Side {
        Side(BTreeMap::from([(Thing::Word("status"), Known::Text(status.name().into()))]))
    }

    fn run(&mut self, run: &Outcome) {
        let exit = match run.exit {
            Some(Exit::Code(code)) => json!({ "code": code }),
            Some(Exit::Signal(signal)) => json!({ "signal": signal }),
            None => Value::Null,
        };
        self.text("exit", &exit);
        for (word, output) in [("stdout", &run.stdout), ("stderr", &run.stderr)] {
            let Output { bytes, total, .. } = output;
            // What printed nothing has no artifact.
            if *total > 0 {
                self.0.insert(Thing::Word(word), Known::Content(Blob::of(bytes)));
            }
        }
        for file in &run.artifacts {
            if let Ok(digest) = file.sha256.parse::<Digest>() {
                let blob = Blob { digest, size: file.bytes };
                self.0.insert(Thing::File(line(&file.path).0), Known::Content(blob));
            }
        }
    }

    fn text(&mut self, word: &'static str, value: &Value) {
        let known = match value.as_object().and_then(|fields| fields.iter().next()) {
            Some((how, number)) => format!("{how} {number}"),
            None => "unknown".into(),
        };
        self.0.insert(Thing::Word(word), Known::Text(known));
    }

    /// A value is known by its digest, as the record knows a large one: of those, what varies cannot be
    /// left out.
    fn value(&mut self, value: Option<&Value>, known: Option<&Value>, varies: &[String]) {
        let fixed = |value: &Value| {
            let mut value = value.clone();
            varies.iter().for_each(|at| take_out(&mut value, at));
            Blob::of(&canonical::bytes(&value))
        };
        let blob = value.map(fixed).or_else(|| {
            let known = known?;
            let digest = known.get("sha256")?.as_str()?.parse().ok()?;
            Some(Blob { digest, size: known.get("bytes")?.as_u64()? })
        });
        if let Some(blob) = blob {
            self.0.insert(Thing::Word("value"), Known::Content(blob));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_wherever_they_are() {
        for (value, expected) in [
            (json!({"a": [1, {"b": "x [redacted:sk] y"}]}), true),
            (json!({"a": "[secret]"}), true),
            (json!({"[redacted:sk]": 1}), true),
            (json!({"a": ["secret", null, true, 1.5, "redacted"]}), false),
        ] {
            assert_eq!(has_placeholder(&value), expected, "{value}");
        }
        let value = json!({"a": ["[secret]", {"b": "[redacted:sk] and [redacted:sk]"}], "c": 1});
        assert_eq!((placeholders(&value), has_placeholder_in_names(&value)), (2, false));
        assert!(has_placeholder_in_names(&json!([{"x": {"[secret]": 1}}])));
    }

    #[test]
    fn what_varies_is_taken_out_and_nothing_else() {
        for (at, expected) in [
            ("", json!(null)),
            ("/a", json!({"b": [1, {"c": 2}], "x/y": 3})),
            ("/b/0", json!({"a": 0, "b": [null, {"c": 2}], "x/y": 3})),
            ("/b/1/c", json!({"a": 0, "b": [1, {}], "x/y": 3})),
            ("/x~1y", json!({"a": 0, "b": [1, {"c": 2}]})),
            ("/none/0", json!({"a": 0, "b": [1, {"c": 2}], "x/y": 3})),
        ] {
            let mut value = json!({"a": 0, "b": [1, {"c": 2}], "x/y": 3});
            take_out(&mut value, at);
            assert_eq!(value, expected, "{at:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_named_by_word_or_by_pattern() {
        let ignore = Ignore::new(&["stderr".into(), "*.log".into(), "tmp/".into()]).unwrap();
        for (thing, expected) in [
            (Thing::Word("stderr"), true),
            (Thing::Word("stdout"), false),
            (Thing::Word("status"), false),
            (Thing::File("a.log".into()), true),
            (Thing::File("tmp/a".into()), true),
            (Thing::File("a.txt".into()), false),
        ] {
            assert_eq!(ignore.covers(&thing), expected, "{thing}");
        }
        assert!(!Ignore::new(&[]).unwrap().covers(&Thing::Word("stdout")));
    }
}
