//! What `hotcell run` calls: any program, with files of any content given along with the call.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

use hotcell_request::{Effect, Spec, ToolError};
use hotcell_types::{SomeLimits, Template};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::code::example;
use super::{Attached, Plan, Program, Source, ended, in_sandbox};
use crate::BuiltIn;
use crate::spec::spec;

/// Most words of a command, variables and files.
const WORDS_MOST: usize = 4096;
const VARIABLES_MOST: usize = 1024;
const FILES_MOST: usize = 256;
/// Most secrets.
const PLACEHOLDERS_MOST: usize = 16;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![in_sandbox(
        Spec {
            operation: Some("code.execute"),
            template: Some("code-executor"),
            // What a caller asks for in `limits` counts; this is only the most of it.
            timeout: Some("8784h"),
            ..spec(
                "run",
                "code",
                &[Effect::Execute],
                "Runs a command, or a script with the interpreter of its language, in a sandbox, in an \
                 empty directory with the files that are given along with the call. It does not see the \
                 workspace, and has no network unless it asks for one, of which it reaches what the policy \
                 allows. What it prints and the files it makes are the answer.",
            )
        },
        || [(json!({"command": ["echo", "42"]}), example("42\n"))],
        |args: Run| args.plan(),
        ended,
    )]
}

/// The arguments of the tool `run`. Made by doors, which give the contents of files along with the call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// A program and its arguments, without a shell. Either this or `script`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = WORDS_MOST))]
    pub command: Vec<Word>,
    /// The name of a script, which is one of `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Word>,
    /// The language of the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The arguments of the script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = WORDS_MOST))]
    pub arguments: Vec<Word>,
    /// Variables of the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = VARIABLES_MOST))]
    pub env: BTreeMap<String, Word>,
    /// An environment whose packages it can use, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Whether it is always executed, and never forked from an interpreter that had started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_zygote: bool,
    /// Whether it reaches the hosts that the policy allows, through the proxy that its variables name. The
    /// templates with a restricted network do in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Secrets of which the program is given placeholders. What they stand for is put in outside of the sandbox,
    /// into headers of requests that go over TLS to a host that the secret is bound to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = PLACEHOLDERS_MOST))]
    pub placeholders: Vec<Placeholder>,
    /// Files for the working directory. Their contents come along with the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = FILES_MOST))]
    pub files: Vec<File>,
    /// Standard input, which comes along with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Input>,
    /// Limits, network and seccomp profile to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Limits in place of those of the template.
    #[serde(default, skip_serializing_if = "LimitWords::is_empty")]
    pub limits: LimitWords,
}

/// Text; or bytes, where they are not text in UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Word {
    Text(String),
    Bytes { bytes: Vec<u8> },
}

/// A secret by its name, and the variable that has its placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    pub name: String,
    /// The name of the secret, if nothing else is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
}

/// A file that is given along with the call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct File {
    pub name: Word,
    #[serde(flatten)]
    pub content: Content,
}

/// What a content is known by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    pub bytes: u64,
    /// Lower-case hexadecimal.
    #[schemars(length(equal = 64))]
    pub sha256: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// What somebody writes while the program reads.
    Live,
    Content(Content),
}

/// Limits as people write them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitWords {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl Run {
    fn plan(self) -> Result<Plan, ToolError> {
        let program = self.program()?;
        let template = match &self.template {
            Some(name) => name.parse().map_err(|error| wrong("template", &error))?,
            None => Template::DEFAULT,
        };
        let asked = self.limits.read()?;
        let mut env = BTreeMap::new();
        for (name, value) in self.env {
            env.insert(OsString::from(name), value.os()?);
        }
        let placeholders = placeholders(self.placeholders, &env)?;
        let mut attached = Vec::new();
        for file in self.files {
            attached.push(Attached { name: file.name.os()?, content: file.content });
        }
        check_names(&attached)?;
        check_script(&program, &attached)?;
        let stdin = match self.stdin {
            None => Source::Empty,
            Some(Input::Live) => Source::Live,
            Some(Input::Content(content)) => Source::Attached(content),
        };
        let (environment, template, may_name_host) = (self.environment, Some(template), true);
        let plan = Plan { stdin, env, attached, environment, ..Plan::new(program) };
        let (no_zygote, network) = (self.no_zygote, self.network);
        Ok(Plan { template, asked, may_name_host, no_zygote, network, placeholders, ..plan })
    }

    /// What runs.
    pub fn program(&self) -> Result<Program, ToolError> {
        let words = |words: &[Word]| {
            words.iter().cloned().map(Word::os).collect::<Result<Vec<OsString>, ToolError>>()
        };
        match (&self.script, &self.language) {
            (None, None) if !self.command.is_empty() && self.arguments.is_empty() => {
                Ok(Program::Command(words(&self.command)?))
            }
            (Some(script), Some(language)) if self.command.is_empty() => Ok(Program::Script {
                name: script.clone().os()?,
                language: language.clone(),
                arguments: words(&self.arguments)?,
            }),
            _ => {
                let why = "there is neither a command alone nor a script with its language";
                let fix = "give `command`, or `script` with `language` and `arguments`";
                Err(ToolError::new("it is not clear what to run", why, fix))
            }
        }
    }
}

/// Secrets by the variables that they are given in, none of which is given as anything else.
fn placeholders(
    wanted: Vec<Placeholder>,
    env: &BTreeMap<OsString, OsString>,
) -> Result<BTreeMap<String, String>, ToolError> {
    let mut all = BTreeMap::new();
    for Placeholder { name, variable } in wanted {
        let variable = variable.unwrap_or_else(|| name.clone());
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_name = variable.bytes().all(is_letter)
            && variable.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        let what = format!("a placeholder of `{}` cannot be given", name.escape_debug());
        let why = if !is_name {
            "a variable has letters, digits and `_`, and no digit first"
        } else if env.contains_key(OsString::from(&variable).as_os_str())
            || all.contains_key(&variable)
        {
            "the variable is given something else"
        } else {
            all.insert(variable, name);
            continue;
        };
        return Err(ToolError::new(what, why, "give it in another variable"));
    }
    Ok(all)
}

/// One path component each, and no two the same.
fn check_names(attached: &[Attached]) -> Result<(), ToolError> {
    let mut seen = BTreeSet::new();
    for Attached { name, .. } in attached {
        let bytes = name.as_bytes();
        let is_plain = !bytes.is_empty()
            && bytes.len() <= 255
            && bytes != b"."
            && bytes != b".."
            && !bytes.iter().any(|byte| matches!(byte, b'/' | 0));
        let why = match (is_plain, seen.insert(name)) {
            (false, _) => "it is not the name of a file in one directory",
            (true, false) => "another file has the same name",
            (true, true) => continue,
        };
        let what = format!("the file `{}` cannot be given to the run", name.display());
        return Err(ToolError::new(what, why, "name it otherwise"));
    }
    Ok(())
}

/// A script is what came along, and nothing else that a path may lead to.
fn check_script(program: &Program, attached: &[Attached]) -> Result<(), ToolError> {
    match program {
        Program::Script { name, .. } if attached.iter().all(|file| file.name != *name) => {
            let what = format!("there is no script `{}`", name.display());
            let why = "it is not one of `files`";
            Err(ToolError::new(what, why, "give it along with the call, and name it in `files`"))
        }
        _ => Ok(()),
    }
}

impl Word {
    pub fn new(word: OsString) -> Word {
        match word.into_string() {
            Ok(text) => Word::Text(text),
            Err(word) => Word::Bytes { bytes: word.into_vec() },
        }
    }

    /// One spelling for each: a rule that looks for a text must not miss it as bytes.
    pub(super) fn os(self) -> Result<OsString, ToolError> {
        match self {
            Word::Text(text) => Ok(text.into()),
            Word::Bytes { bytes } => match String::from_utf8(bytes) {
                Err(not_text) => Ok(OsString::from_vec(not_text.into_bytes())),
                Ok(_) => {
                    let why = "bytes that are text in UTF-8 are written as text";
                    Err(ToolError::new("a word has the wrong form", why, "send a string"))
                }
            },
        }
    }
}

impl From<Word> for OsString {
    /// For words that no rule looks at: every spelling will do.
    fn from(word: Word) -> OsString {
        match word {
            Word::Text(text) => text.into(),
            Word::Bytes { bytes } => OsString::from_vec(bytes),
        }
    }
}

impl LimitWords {
    pub(crate) fn is_empty(&self) -> bool {
        *self == LimitWords::default()
    }

    /// As people write them.
    pub fn of(limits: &SomeLimits) -> LimitWords {
        LimitWords {
            memory: limits.memory.map(|limit| limit.to_string()),
            cpu: limits.cpu.map(|limit| limit.to_string()),
            pids: limits.pids.map(|limit| limit.to_string()),
            timeout: limits.timeout.map(|limit| limit.to_string()),
            cpu_time: limits.cpu_time.map(|limit| limit.to_string()),
            disk: limits.disk.map(|limit| limit.to_string()),
            files: limits.files.map(|limit| limit.to_string()),
            open_files: limits.open_files.map(|limit| limit.to_string()),
            output: limits.output.map(|limit| limit.to_string()),
        }
    }

    /// What they say.
    pub fn read(&self) -> Result<SomeLimits, ToolError> {
        Ok(SomeLimits {
            memory: read("memory", &self.memory)?,
            cpu: read("cpu", &self.cpu)?,
            pids: read("pids", &self.pids)?,
            timeout: read("timeout", &self.timeout)?,
            cpu_time: read("cpu_time", &self.cpu_time)?,
            disk: read("disk", &self.disk)?,
            files: read("files", &self.files)?,
            open_files: read("open_files", &self.open_files)?,
            output: read("output", &self.output)?,
        })
    }
}

fn read<T: FromStr<Err: Display>>(
    name: &str,
    text: &Option<String>,
) -> Result<Option<T>, ToolError> {
    let read = text.as_ref().map(|text| text.parse());
    read.transpose().map_err(|error| wrong(&format!("limits.{name}"), &error))
}

fn wrong(field: &str, error: &dyn Display) -> ToolError {
    ToolError::new(format!("`{field}` cannot be used"), error.to_string(), "write it as it says")
}
