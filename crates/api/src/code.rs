//! Code or a command to run, with everything that it is given, in one document.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use base64ct::{Base64, Encoding};
use hotcell_engine::lang::{Language, language_names};
use hotcell_engine::run::{LimitWords, Placeholder, Run, Word};
use hotcell_engine::{Attachment, Input};
use hotcell_request::{Arguments, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, ProblemKind};

/// What to run. Either `code`, or a `command`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Code {
    /// The code of a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Its language, such as `python`, `javascript` or `shell`. Without it, its first line has to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// A program and its arguments, without a shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The arguments of the script.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Variables of the environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// An environment whose packages it can use, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Whether it is always executed, and never forked from an interpreter that had started and that other
    /// runs are forked from.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_zygote: bool,
    /// Whether it reaches the hosts that the policy allows, through the proxy that its variables name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
    /// Secrets of which it is given placeholders, where the secret is bound to the tool `run`. What they stand for
    /// is put in outside of the sandbox, into headers of requests over TLS to the hosts of the secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<Placeholder>,
    /// What it reads on standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Files for its working directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Limits, network and seccomp profile to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Limits in place of those of the template.
    pub limits: LimitWords,
}

/// A file for the working directory: a plain name, and either text or base64.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// A call of the tool `run`, and what goes along with it.
pub(crate) struct Made {
    pub(crate) request: Request,
    pub(crate) files: Vec<Attachment>,
    pub(crate) stdin: Option<Input>,
}

impl Code {
    /// What it has is moved along with the call, which names it by digest.
    pub(crate) fn make(self) -> Result<Made, Problem> {
        let mut files = Vec::new();
        for (place, file) in self.files.into_iter().enumerate() {
            files.push(file.attachment(place)?);
        }
        let words = |words: Vec<String>| words.into_iter().map(Word::Text).collect();
        let Code { template, limits, environment, no_zygote, network, placeholders, .. } = self;
        let given = Run { placeholders, ..Run::default() };
        let mut run = Run { template, limits, environment, no_zygote, network, ..given };
        match (self.code, self.command.is_empty()) {
            (Some(code), true) => {
                let language = language(self.language.as_deref(), &code)?;
                let name = OsString::from(language.main_file());
                run.script = Some(Word::new(name.clone()));
                run.language = Some(language.name().into());
                run.arguments = words(self.arguments);
                files.push(Attachment::of_bytes(name, code.into_bytes()));
            }
            (None, false) if self.language.is_none() && self.arguments.is_empty() => {
                run.command = words(self.command);
            }
            _ => return Err(unclear()),
        }
        let stdin = self.stdin.map(|text| Attachment::of_bytes("stdin", text.into_bytes()));
        let stdin = stdin.map(Input::Content);
        run.env = self.env.into_iter().map(|(name, value)| (name, Word::Text(value))).collect();
        run.files = files.iter().map(Attachment::described).collect();
        run.stdin = stdin.as_ref().map(Input::described);
        let no_run = |error: &dyn std::fmt::Display| {
            Problem::new(ProblemKind::Error, "the run cannot be written", error.to_string(), "")
        };
        let arguments = serde_json::to_value(&run).map_err(|error| no_run(&error))?;
        let tool = "run".parse().map_err(|error| no_run(&error))?;
        Ok(Made { request: Request::new(tool, Arguments::Value(arguments)), files, stdin })
    }
}

fn language(named: Option<&str>, code: &str) -> Result<Language, Problem> {
    if let Some(name) = named {
        return name.parse().map_err(|error: hotcell_engine::lang::Error| {
            hotcell_engine::Problem::from(error).into()
        });
    }
    Language::detect(Path::new(""), code.as_bytes()).ok_or_else(|| {
        let fix = format!("name it: {}", language_names());
        let what = "the language of the code is not known";
        Problem::new(ProblemKind::Invalid, what, "its first line does not tell", fix)
    })
}

fn unclear() -> Problem {
    let why = "there is neither a command alone nor code";
    let fix = "give `command`, or `code` with `language` and `arguments`";
    Problem::new(ProblemKind::Invalid, "it is not clear what to run", why, fix)
}

impl File {
    fn attachment(self, place: usize) -> Result<Attachment, Problem> {
        let at = format!("/files/{place}");
        let bytes = match (self.text, self.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(coded)) => Base64::decode_vec(&coded)
                .map_err(|error| Problem::invalid(&at, "a file is not in base64", error))?,
            _ => {
                let why = "it has both `text` and `base64`, or neither";
                return Err(Problem::invalid(&at, "the content of a file is not clear", why));
            }
        };
        Ok(Attachment::of_bytes(self.name, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_named_in_the_call() {
        let code: Code =
            serde_json::from_str(r#"{"language": "python", "code": "1", "environment": "data"}"#)
                .unwrap();
        let Arguments::Value(arguments) = code.make().unwrap().request.arguments else {
            panic!("the arguments are a value");
        };
        assert_eq!(arguments["environment"], "data");
        let without: Code = serde_json::from_str(r#"{"language": "python", "code": "1"}"#).unwrap();
        let Arguments::Value(arguments) = without.make().unwrap().request.arguments else {
            panic!("the arguments are a value");
        };
        assert!(arguments.get("environment").is_none());
    }
}
