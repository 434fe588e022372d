//! What `hotcell run` would do without the path: find the program, open a sandbox, run one job, pass on
//! what it prints, and exit. No engine, no record, no digests, no policy; nor what belongs to a command
//! line: clap, configuration files, signals, a thread for output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Input, Job, Network, Sandbox, Settings, Sink, Stdin, in_memory};
use hotcell_types::{Exit, Level, Template};

use crate::peers::Failure;

/// The words are those of `hotcell run`: `-- COMMAND ARGS` or `--lang LANG -c CODE`.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode, Failure> {
    let host = Host::of_this_process();
    let mut inputs = Vec::new();
    let command = match words {
        [dashes, name, rest @ ..] if dashes == "--" => lang::command(&host, name, rest)?,
        [_, language, _, code] => {
            let language: Language = language.to_str().unwrap_or_default().parse()?;
            let name = OsStr::new(language.main_file());
            inputs.push(Input { name: name.into(), file: in_memory(code.as_bytes())? });
            lang::script(&host, language, name, &[])?
        }
        other => return Err(format!("{other:?} is not what `hotcell run` is given here").into()),
    };
    let Template { limits, profile, .. } = Template::DEFAULT;
    let mut env = lang::runtime_env(&limits);
    env.insert("PATH".into(), lang::search_path(&command));
    let home = std::env::var_os("HOTCELL_HOME").map(PathBuf::from).unwrap_or_default();
    let sandbox = Sandbox::open(&Settings { minimum: Level::NoProc, home })?;
    let job = Job {
        command,
        env,
        stdin: Stdin::Empty,
        inputs,
        working_copy: None,
        limits,
        profile,
        network: Network::None,
    };
    let outcome = sandbox.start(job)?.wait(&mut PassOn, None)?;
    Ok(match outcome.exit {
        Some(Exit::Code(code)) => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    })
}

struct PassOn;

impl Sink for PassOn {
    fn stdout(&mut self, chunk: &[u8]) {
        // Whoever measures looks at what arrived.
        io::stdout().write_all(chunk).ok();
        io::stdout().flush().ok();
    }

    fn stderr(&mut self, chunk: &[u8]) {
        io::stderr().write_all(chunk).ok();
    }
}
