//! A program in a sandbox that stays.

use std::collections::BTreeMap;
use std::ffi::OsString;

use hotcell_request::{Effect, Spec, ToolError};
use hotcell_types::SomeLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::code::example;
use super::run::{Input, LimitWords, Word};
use super::{Plan, Program, Source, ended, in_sandbox};
use crate::BuiltIn;
use crate::spec::spec;
use crate::stay::ID_MOST;

pub const EXEC: &str = "sandbox.exec";

/// Most characters of code, which is one argument, of standard input, and of a length of time.
const CODE_MOST: usize = 100_000;
const TEXT_MOST: usize = 1 << 20;
const SPAN_MOST: usize = 32;
/// Most words of a command, and most variables.
const WORDS_MOST: usize = 4096;
const VARIABLES_MOST: usize = 1024;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![in_sandbox(
        Spec {
            operation: Some("code.execute"),
            template: Some("code-executor"),
            // What a caller asks for counts; this is only the most of it.
            timeout: Some("8784h"),
            ..spec(
                EXEC,
                "sandbox",
                &[Effect::Execute],
                "Runs a program in a sandbox that stays, in its working directory, where it finds what others \
                 left. Everything that it started ends with it; what it wrote stays.",
            )
        },
        || {
            let asked = json!({"sandbox": "01hq3k5j3v8m6n0p2r4t6w8y0a", "command": ["echo", "42"]});
            [(asked, example("42\n"))]
        },
        |args: Exec| args.plan(),
        ended,
    )]
}

/// The arguments of `sandbox.exec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Exec {
    /// The sandbox, by its id.
    #[schemars(length(max = ID_MOST))]
    pub sandbox: String,
    /// A program and its arguments, without a shell. Either this or `code`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = WORDS_MOST))]
    pub command: Vec<Word>,
    /// The language of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = CODE_MOST))]
    pub code: Option<String>,
    /// Variables of the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = VARIABLES_MOST))]
    pub env: BTreeMap<String, Word>,
    /// Standard input as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_MOST))]
    pub text: Option<String>,
    /// Standard input that comes along with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Input>,
    /// How long it may take, in place of what is usual in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SPAN_MOST))]
    pub timeout: Option<String>,
    /// How many bytes of each stream are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SPAN_MOST))]
    pub output: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    JavaScript,
    Shell,
}

impl Language {
    /// Not as a file: that would lie among those of the sandbox.
    fn with(self, code: String) -> Vec<String> {
        let words: &[&str] = match self {
            Language::Python => &["python3", "-u", "-c"],
            Language::JavaScript => &["node", "-e"],
            Language::Shell => &["sh", "-c"],
        };
        words.iter().map(|word| (*word).to_owned()).chain([code]).collect()
    }
}

impl Exec {
    fn plan(self) -> Result<Plan, ToolError> {
        let program = match (self.language, self.code) {
            (Some(language), Some(code)) if self.command.is_empty() => {
                Program::command(language.with(code))
            }
            (None, None) if !self.command.is_empty() => {
                let words = self.command.into_iter().map(Word::os);
                Program::Command(words.collect::<Result<_, _>>()?)
            }
            _ => {
                let why = "there is neither a command alone nor code with its language";
                let fix = "give `command`, or `code` and `language`";
                return Err(ToolError::new("it is not clear what to run", why, fix));
            }
        };
        let stdin = match (self.text, self.stdin) {
            (None, None) => Source::Empty,
            (Some(text), None) => Source::Text(text),
            (None, Some(Input::Live)) => Source::Live,
            (None, Some(Input::Content(content))) => Source::Attached(content),
            (Some(_), Some(_)) => {
                let why = "it is given as text, and as something that comes along";
                let what = "it is not clear what standard input is";
                return Err(ToolError::new(what, why, "give one of them"));
            }
        };
        let mut env = BTreeMap::new();
        for (name, value) in self.env {
            env.insert(OsString::from(name), value.os()?);
        }
        let limits =
            LimitWords { timeout: self.timeout, output: self.output, ..LimitWords::default() };
        let SomeLimits { timeout, output, .. } = limits.read()?;
        let asked = SomeLimits { timeout, output, ..SomeLimits::default() };
        let (no_zygote, inside) = (true, Some(self.sandbox));
        Ok(Plan { stdin, env, asked, no_zygote, inside, ..Plan::new(program) })
    }
}
