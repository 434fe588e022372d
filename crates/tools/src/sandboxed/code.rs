//! Programs that a caller wrote or named.

use std::collections::BTreeMap;

use hotcell_request::{Effect, Spec, ToolError};
use hotcell_workspace::Relative;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, Program, ended, in_sandbox, variables};
use crate::BuiltIn;
use crate::spec::spec;

/// Most characters of a program, of its standard input and of a file.
const TEXT_MOST: usize = 1 << 20;
/// Most characters of a command for the shell, which is one argument.
const COMMAND_MOST: usize = 100_000;
/// Most files, variables and arguments.
const FILES_MOST: usize = 64;
const VARIABLES_MOST: usize = 64;
const ARGUMENTS_MOST: usize = 256;
const VARIABLE_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]{0,127}$";

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        in_sandbox(
            Spec {
                operation: Some("code.execute"),
                template: Some("code-executor"),
                ..spec(
                    "code_execute",
                    "code",
                    &[Effect::Execute],
                    "Runs a program in a sandbox, in an empty directory with the given files. It has no \
                     network and does not see the workspace. What it prints and the files it makes are the \
                     answer.",
                )
            },
            || [(json!({"language": "python", "code": "print(6 * 7)"}), example("42\n"))],
            |args: CodeExecute| args.plan(),
            ended,
        ),
        in_sandbox(
            Spec {
                template: Some("code-executor"),
                ..spec(
                    "shell.run",
                    "code",
                    &[Effect::Read, Effect::Write, Effect::Execute],
                    "Runs a command with the shell in a sandbox, in a copy of the workspace. It has no \
                     network. What it changes in the copy is applied to the workspace if the policy allows \
                     every single change.",
                )
            },
            || [(json!({"command": "grep -c x notes.txt | sort"}), example("3\n"))],
            |args: ShellRun| args.plan(),
            ended,
        ),
        in_sandbox(
            Spec {
                template: Some("code-executor"),
                ..spec(
                    "test.run",
                    "code",
                    &[Effect::Read, Effect::Execute],
                    "Runs a command, without a shell, in a sandbox, in a copy of the workspace, and throws \
                     the copy away. For tests and checks: nothing of the workspace is changed.",
                )
            },
            || [(json!({"command": ["make", "check"]}), example("ok\n"))],
            |args: TestRun| args.plan(),
            ended,
        ),
    ]
}

pub(super) fn example(stdout: &str) -> Value {
    json!({
        "status": "success",
        "exit_code": 0,
        "stdout": stdout,
        "stderr": "",
        "truncated": false,
        "artifacts": [],
    })
}

#[derive(Deserialize, JsonSchema)]
struct CodeExecute {
    language: Language,
    #[schemars(length(max = TEXT_MOST))]
    code: String,
    /// Standard input.
    #[schemars(length(max = TEXT_MOST))]
    stdin: Option<String>,
    /// Variables of the environment.
    #[serde(default)]
    #[schemars(extend("maxProperties" = VARIABLES_MOST, "propertyNames" = {"pattern": VARIABLE_PATTERN}))]
    env: BTreeMap<String, String>,
    /// Files for the working directory: a path in it, and the text.
    #[serde(default)]
    #[schemars(extend("maxProperties" = FILES_MOST))]
    files: BTreeMap<String, String>,
    /// An environment whose packages it can use, by name.
    environment: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Language {
    Python,
    JavaScript,
    Shell,
}

impl CodeExecute {
    fn plan(self) -> Result<Plan, ToolError> {
        check_names(&self.files)?;
        let language = match self.language {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::Shell => "shell",
        };
        let program = Program::Code { language: language.into(), code: self.code };
        let (stdin, env) = (self.stdin.into(), variables(self.env));
        let (files, environment) = (self.files, self.environment);
        Ok(Plan { stdin, env, files, environment, ..Plan::new(program) })
    }
}

fn check_names(files: &BTreeMap<String, String>) -> Result<(), ToolError> {
    for name in files.keys() {
        let path = Relative::parse(name).map_err(|bad| {
            let fix = "name files by plain paths, relative to the working directory";
            ToolError::new(bad.to_string(), bad.why(), fix)
        })?;
        if let Some(both) = path.ancestors().find(|above| files.contains_key(above.as_str())) {
            let what = format!("`{both}` would be a file and a directory");
            let why = format!("`{path}` is among the files as well");
            return Err(ToolError::new(what, why, "name one of them otherwise"));
        }
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct ShellRun {
    /// What the shell is to do.
    #[schemars(length(min = 1, max = COMMAND_MOST))]
    command: String,
    /// Standard input.
    #[schemars(length(max = TEXT_MOST))]
    stdin: Option<String>,
    /// Variables of the environment.
    #[serde(default)]
    #[schemars(extend("maxProperties" = VARIABLES_MOST, "propertyNames" = {"pattern": VARIABLE_PATTERN}))]
    env: BTreeMap<String, String>,
}

impl ShellRun {
    fn plan(self) -> Result<Plan, ToolError> {
        // Not as code in a file: that would lie in the copy, and be one of its changes.
        let program = Program::command(["sh".into(), "-c".into(), self.command]);
        let (stdin, env) = (self.stdin.into(), variables(self.env));
        Ok(Plan { stdin, env, brings_changes: true, ..Plan::in_copy(program) })
    }
}

#[derive(Deserialize, JsonSchema)]
struct TestRun {
    /// The program and its arguments, each as it is: there is no shell.
    #[schemars(length(min = 1, max = ARGUMENTS_MOST))]
    command: Vec<String>,
    /// Variables of the environment.
    #[serde(default)]
    #[schemars(extend("maxProperties" = VARIABLES_MOST, "propertyNames" = {"pattern": VARIABLE_PATTERN}))]
    env: BTreeMap<String, String>,
}

impl TestRun {
    fn plan(self) -> Result<Plan, ToolError> {
        Ok(Plan { env: variables(self.env), ..Plan::in_copy(Program::command(self.command)) })
    }
}
