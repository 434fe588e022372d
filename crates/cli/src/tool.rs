//! `hotcell tool`: what can be called, and calling it.

use std::io::Read;
use std::path::PathBuf;

use hotcell_api::Called;
use hotcell_engine::{Answer, Ask, Attached};
use hotcell_request::{Arguments, Listed, Request, ToolName};
use hotcell_types::Status;

use crate::config::Config;
use crate::kernel::Kernel;
use crate::problem::{self, Problem};
use crate::{exit, home, print, token, wait};

/// Most bytes of arguments.
const MAX_ARGUMENTS: u64 = 16 * 1024 * 1024;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the tools
    Ls {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Finds tools by words
    Search {
        words: Vec<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Shows everything that a tool says of itself, as JSON
    Show {
        name: ToolName,
        /// Print it on one line, and what keeps it from being shown as a document as well
        #[arg(long)]
        json: bool,
    },
    /// Calls a tool: judged, recorded, and in a sandbox if it runs anything
    ///
    /// Prints the result as JSON. The exit status is 0 when it succeeded.
    Call(CallArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    name: ToolName,
    /// The arguments as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}")]
    arguments: String,
    /// The directory that tools read
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// A file with the token that allows it; `-` is standard input. There is no option for the token itself:
    /// whoever lists processes would see it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    asking: wait::AskArgs,
    /// Print the whole reply as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Ls { json } => (list(None, json), json),
        Command::Search { words, json } => (list(Some(words.join(" ")), json), json),
        Command::Show { name, json } => (show(&name, json), json),
        Command::Call(args) => {
            let json = args.json;
            (call(args), json)
        }
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn list(words: Option<String>, json: bool) -> Result<u8, Problem> {
    let engine = home::engine(home::options(&Config::load()?, None))?;
    let Answer::Tools(tools) = engine.ask(&home::caller(), Ask::Tools(words)) else {
        return Err(Problem::error("the tools cannot be listed"));
    };
    let code = if json {
        let tools: Vec<_> = tools.iter().map(|listed| listed.tool.tool()).collect();
        let document = serde_json::json!({ "version": 1, "tools": tools });
        print::data(&format!("{document:#}\n"))
    } else {
        print::data(&table(&tools))
    };
    Ok(home::close(engine, code))
}

fn table(tools: &[Listed]) -> String {
    let mut text = format!("{:<18} {:<10} {:<16} DESCRIPTION\n", "NAME", "CATEGORY", "EFFECTS");
    for listed in tools {
        let tool = listed.tool.tool();
        let effects: Vec<&str> = tool.effects.iter().map(|effect| effect.name()).collect();
        let category = tool.category.as_ref().map(ToString::to_string).unwrap_or_default();
        let description = tool.description.to_string();
        let first = description.lines().next().unwrap_or_default();
        text.push_str(&format!(
            "{:<18} {category:<10} {:<16} {first}\n",
            tool.name.to_string(),
            effects.join(",")
        ));
    }
    text
}

fn show(name: &ToolName, json: bool) -> Result<u8, Problem> {
    let engine = home::engine(home::options(&Config::load()?, None))?;
    let found = engine.registry().get(name, None).map_err(|error| {
        Problem::not_found(error.fault().what().to_owned()).fix("`hotcell tool ls` lists them")
    })?;
    if json {
        return Ok(home::close(engine, print::data(&print::document(found.tool()))));
    }
    let text = serde_json::to_string_pretty(found.tool())
        .map_err(|error| Problem::error("the tool cannot be shown").why(error.to_string()))?;
    Ok(home::close(engine, print::data(&(text + "\n"))))
}

fn call(args: CallArgs) -> Result<u8, Problem> {
    let own_stdin = |file: &PathBuf| file == "-";
    if args.arguments == "-" && args.token_file.as_ref().is_some_and(own_stdin) {
        return Err(Problem::invalid("standard input cannot be both the arguments and the token")
            .fix("give one of them in another way"));
    }
    let token = args.token_file.as_deref().map(token::read).transpose()?;
    let arguments = match args.arguments.as_str() {
        "-" => read_arguments()?,
        text => text.as_bytes().to_vec(),
    };
    let kernel = Kernel::open(args.workspace)?;
    let mut request = Request::new(args.name, Arguments::Bytes(arguments));
    request.token = token;
    request.ask = args.asking.ask;
    let called = kernel.call(request, Attached::default())?;
    let code = match wait::item_of(&called).filter(|_| !args.asking.no_wait) {
        Some(item) => {
            wait::announce(&called);
            wait::to_the_end(&kernel, item, args.json)?
        }
        None => tell(&called, args.json),
    };
    Ok(kernel.close(code))
}

fn read_arguments() -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_ARGUMENTS + 1).read_to_end(&mut bytes);
    read.map_err(|e| {
        Problem::error("standard input could not be read").why(hotcell_sandbox::cause(&e))
    })?;
    Ok(bytes)
}

pub(crate) fn tell(reply: &Called, json: bool) -> u8 {
    let code = exit_of(reply.status);
    if json {
        return print::data_and(&document(reply), code);
    }
    for problem in &reply.problems {
        print::to_people(&Problem::from(problem.clone()).text(print::colour()));
    }
    match &reply.value {
        Some(value) => print::data_and(&print::harmless_json(format!("{value:#}\n")), code),
        None => code,
    }
}

/// A reply on one line. What was seen of a run is in its value, in the tool's own words.
pub(crate) fn document(reply: &Called) -> String {
    print::document(&Called { run: None, ..reply.clone() })
}

pub(crate) fn exit_of(status: Status) -> u8 {
    match status {
        Status::Success => 0,
        Status::Failure | Status::Killed => 1,
        Status::Invalid => exit::INVALID,
        Status::Blocked | Status::Review => exit::BLOCKED,
        Status::Timeout => exit::TIMEOUT,
        Status::Oom => exit::OOM,
        Status::Limit => exit::LIMIT,
        Status::Cancelled => exit::CANCELLED,
        Status::Error | Status::CircuitOpen | Status::Unknown => exit::ERROR,
    }
}
