//! `hotcell artifact`: what calls were given and what they made, where it came from, and whether it is
//! still what it was.

mod lineage;

use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hotcell_engine::artifacts::{ArtifactAnswer, ArtifactAsk, Checked, Which, verify_artifacts};
use hotcell_engine::{Answer, Ask};
use hotcell_ledger::{
    Artifact, Aspect, Content, Filter, MANIFEST, MAX_PAGE, Media, Named, Note, Page, Role, Ruling,
    Search, Tag,
};
use hotcell_record::Standing;
use hotcell_sandbox::cause;
use hotcell_types::{CallId, Name};

use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::{audit, exit, home, progress};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists artifacts, those that were registered last first
    Ls(LsArgs),
    /// Writes the content of an artifact
    ///
    /// It is checked as a whole before the first byte is written.
    Get(GetArgs),
    /// Shows what an artifact came from, and what came from it
    Lineage {
        /// An id, a name, or NAME@VERSION
        artifact: Which,
        /// Most steps in each direction
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
        depth: u32,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Checks every artifact: its row against the record, its content against its digest
    ///
    /// Exits with 0 if all is as it was, 122 if something is missing that would prove it, 120 if not.
    Verify {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Sets a tag on an artifact
    Tag {
        /// An id, a name, or NAME@VERSION
        artifact: Which,
        /// One line of at most 64 bytes
        tag: Tag,
        /// Lift the tag instead
        #[arg(long)]
        remove: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Says what you think of an artifact: a verdict, which stays with it
    ///
    /// What has a verdict keeps its content when `hotcell gc` makes room. Verdicts are never taken back; a later
    /// one stands beside those before it.
    Judge(JudgeArgs),
    /// Writes contents into a directory, with a list of what is known of each
    ///
    /// The files have names that are safe anywhere; `manifest.jsonl` has one line of JSON for each, with its real
    /// name, where it came from, its tags and its verdicts. It appears when everything else is there. A content
    /// that is missing, or not what was stored, is not written and is told there; the exit is 120 then.
    Export(ExportArgs),
    /// Makes an old version of a name its newest; nothing is removed
    Rollback {
        /// NAME@VERSION
        version: Which,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// An id, a name, or NAME@VERSION
    artifact: Which,
    /// What it is about: confidence, review, test, security or compliance
    #[arg(long)]
    aspect: Aspect,
    /// What it says: accept, reject, escalate or revision-needed
    #[arg(long)]
    ruling: Ruling,
    /// Why, in one line
    #[arg(long, value_name = "TEXT")]
    note: Option<Note>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// A directory that is empty, or not there yet
    dir: PathBuf,
    #[command(flatten)]
    only: Only,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Which artifacts.
#[derive(Debug, clap::Args)]
pub(crate) struct Only {
    /// Only versions of this name; of all that begin so if it ends with `*`
    #[arg(long)]
    name: Option<String>,
    /// Only what was this in its run: script, input, output, file, stdout or stderr
    #[arg(long)]
    role: Option<Role>,
    /// Only what has this tag
    #[arg(long)]
    tag: Option<Tag>,
    /// Only what this call was given or made
    #[arg(long, value_name = "CALL")]
    run: Option<CallId>,
}

impl Only {
    fn filter(self) -> Result<Filter, Problem> {
        let name = self.name.map(|name| match name.strip_suffix('*') {
            Some(begin) => Ok(Named::Beginning(begin.to_owned())),
            None => name.parse().map(Named::Exactly),
        });
        let name = name.transpose().map_err(|error| wrong("--name", &error.to_string()))?;
        Ok(Filter {
            name,
            role: self.role,
            tag: self.tag,
            call: self.run,
            ..Filter::of(Name::LOCAL)
        })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only those in which each of these occurs: in the name, a tag, the tool or the media type
    words: Vec<String>,
    #[command(flatten)]
    only: Only,
    /// Most artifacts, 1000 at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// An id, a name (its newest version), or NAME@VERSION
    artifact: Which,
    /// A file that is not there yet; without it, standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over the file if it is there
    #[arg(long, requires = "output")]
    force: bool,
    /// Print what is known of it as one JSON document, and not its content
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Ls(args) => {
            let json = args.json;
            (list(args), json)
        }
        Command::Get(args) => {
            let json = args.json;
            (if json { describe(args.artifact) } else { get(args) }, json)
        }
        Command::Lineage { artifact, depth, json } => (lineage::show(artifact, depth, json), json),
        Command::Verify { json } => (verify(json), json),
        Command::Tag { artifact: which, tag, remove, json } => {
            let ask = match remove {
                true => ArtifactAsk::Untag { which, tag },
                false => ArtifactAsk::Tag { which, tag },
            };
            (change(ask, json), json)
        }
        Command::Judge(args) => {
            let JudgeArgs { artifact: which, aspect, ruling, note, json } = args;
            (change(ArtifactAsk::Judge { which, aspect, ruling, note }, json), json)
        }
        Command::Export(args) => {
            let json = args.json;
            (export(args), json)
        }
        Command::Rollback { version, json } => (rollback(version, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn ask(ask: ArtifactAsk) -> Result<ArtifactAnswer, Problem> {
    let engine = home::look()?;
    let answer = engine.ask(&home::caller(), Ask::Artifact(ask));
    let told = |problem: hotcell_engine::Problem, as_what: fn(String) -> Problem| {
        Err(as_what(problem.what).why(problem.why).fix(problem.fix))
    };
    match answer {
        Answer::Artifact(ArtifactAnswer::Absent(problem)) => told(problem, Problem::not_found),
        Answer::Artifact(answer) => Ok(answer),
        Answer::Failed(problem) => told(problem, Problem::error),
        _ => Err(no_answer()),
    }
}

fn list(args: LsArgs) -> Result<u8, Problem> {
    let words = Some(args.words.join(" ")).filter(|words| !words.is_empty());
    let words = words.map(|words| words.parse::<Search>()).transpose();
    let words = words.map_err(|error| wrong("a word", &error.to_string()))?;
    let filter = Box::new(args.only.filter()?);
    let page = Page::first(args.limit.min(MAX_PAGE));
    let list = ArtifactAsk::List { filter, words, page };
    let ArtifactAnswer::Listed(artifacts) = ask(list)? else { return Err(no_answer()) };
    Ok(print::data(&match args.json {
        true => print::document(&hotcell_api::Artifacts::of(&artifacts, page.limit)),
        false => table(&artifacts),
    }))
}

fn table(artifacts: &[Artifact]) -> String {
    let row = |id: &str, made: &str, role: &str, size: &str, name: &str| {
        format!("{id:<26}  {made:<20}  {role:<6}  {size:>12}  {name}\n")
    };
    let mut text = row("ID", "MADE", "ROLE", "BYTES", "NAME");
    for artifact in artifacts {
        text.push_str(&row(
            &artifact.id.to_string(),
            &home::moment(artifact.created),
            artifact.role.name(),
            &artifact.blob.size.to_string(),
            &title(artifact),
        ));
    }
    text
}

/// As people know it.
pub(crate) fn title(artifact: &Artifact) -> String {
    let not_kept = if artifact.is_kept { "" } else { " (not kept)" };
    format!("{}@{}{not_kept}", harmless(artifact.name.as_str()), artifact.version)
}

fn describe(which: Which) -> Result<u8, Problem> {
    let ArtifactAnswer::Details(details) = ask(ArtifactAsk::Details(which))? else {
        return Err(no_answer());
    };
    Ok(print::data(&print::document(&hotcell_api::Details::from(&*details))))
}

fn get(args: GetArgs) -> Result<u8, Problem> {
    let found = |which| match ask(ArtifactAsk::Content(which))? {
        ArtifactAnswer::Content { artifact, content } => Ok((artifact, content)),
        _ => Err(no_answer()),
    };
    let (artifact, mut content) = found(args.artifact)?;
    let Some(path) = args.output else {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            if !is_fit_for_people(&artifact, &mut content)? {
                return Err(Problem::invalid(format!("`{}` is not text", artifact.name))
                    .why("a terminal would obey some of it")
                    .fix("write it to a file with -o FILE, or send it to another program"));
            }
            // That one was read to its end.
            content = found(Which::Id(artifact.id))?.1;
        }
        return copied(&mut content, &mut out).map(print::exit_of);
    };
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).create(true).create_new(!args.force).truncate(args.force);
    let mut file = options.open(&path).map_err(|error| not_made(&path, &error))?;
    let written = copied(&mut content, &mut file);
    if !args.force && !matches!(written, Ok(Ok(()))) {
        // Half of it is worse than nothing; what is not removed is told by the error all the same.
        std::fs::remove_file(&path).ok();
    }
    written?.map_err(|error| Problem::not_written(&error))?;
    Ok(0)
}

/// The content of one, written by whoever is given a place for it.
pub(crate) fn save(
    id: &str,
    write: impl FnOnce(&mut dyn FnMut(&mut dyn Write) -> Result<(), Problem>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let which = id.parse().map_err(|_| no_answer())?;
    let ArtifactAnswer::Content { mut content, .. } = ask(ArtifactAsk::Content(which))? else {
        return Err(no_answer());
    };
    write(&mut |mut file| {
        copied(&mut content, &mut file)?.map_err(|error| Problem::not_written(&error))
    })
}

fn not_made(path: &Path, error: &io::Error) -> Problem {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Problem::invalid(format!("`{}` is there already", path.display()))
            .fix("give another file, or --force to write over it");
    }
    Problem::error(format!("`{}` cannot be written", path.display())).why(cause(error))
}

/// What ends it is either what is read or, inside, what is written to.
fn copied(content: &mut Content, out: &mut impl Write) -> Result<io::Result<()>, Problem> {
    loop {
        let chunk = content.fill_buf().map_err(|error| not_read(&error))?;
        if chunk.is_empty() {
            return Ok(out.flush());
        }
        let length = chunk.len();
        if let Err(error) = out.write_all(chunk) {
            return Ok(Err(error));
        }
        content.consume(length);
    }
}

fn not_read(error: &io::Error) -> Problem {
    Problem::error("the artifact was changed while it was read")
        .why(error.to_string())
        .fix("`hotcell artifact verify` lists everything that is not as it was")
}

fn is_fit_for_people(artifact: &Artifact, content: &mut Content) -> Result<bool, Problem> {
    let is_text = artifact.media == Media::Text || artifact.blob.size == 0;
    Ok(is_text && is_plain(content).map_err(|error| not_read(&error))?)
}

/// Whether there is nothing in a text that a terminal would obey.
fn is_plain(content: &mut impl BufRead) -> io::Result<bool> {
    let mut last = 0;
    loop {
        let chunk = content.fill_buf()?;
        for &byte in chunk {
            let is_control = byte < 0x20 && !b"\t\n\r".contains(&byte) || byte == 0x7f;
            // U+0080 to U+009F, in UTF-8.
            if is_control || last == 0xc2 && (0x80..0xa0).contains(&byte) {
                return Ok(false);
            }
            last = byte;
        }
        let length = chunk.len();
        if length == 0 {
            return Ok(true);
        }
        content.consume(length);
    }
}

fn export(args: ExportArgs) -> Result<u8, Problem> {
    let filter = Box::new(args.only.filter()?);
    let write = || ask(ArtifactAsk::Export { filter, to: args.dir.clone() });
    let ArtifactAnswer::Exported(done) = progress::while_doing("writing artifacts", write)? else {
        return Err(no_answer());
    };
    let code = if done.refused == 0 { 0 } else { exit::ERROR };
    let text = if args.json {
        print::document(&serde_json::json!({
            "version": 1, "files": done.files, "bytes": done.bytes, "refused": done.refused,
            "is_cut": done.is_cut,
        }))
    } else {
        let (files, bytes) = (done.files, size(done.bytes));
        let refused = match done.refused {
            0 => String::new(),
            refused => format!(", {refused} refused: `{MANIFEST}` says why"),
        };
        let cut = if done.is_cut { "; there are more than one export takes" } else { "" };
        format!("written: {files} contents ({bytes}){refused}{cut}\n")
    };
    Ok(print::data_and(&text, code))
}

fn rollback(version: Which, json: bool) -> Result<u8, Problem> {
    match version {
        Which::Named { name, version: Some(version) } => {
            change(ArtifactAsk::Rollback { name, version }, json)
        }
        _ => Err(Problem::invalid("there is no version to go back to")
            .fix("write NAME@VERSION; `hotcell artifact ls --name NAME` lists the versions")),
    }
}

fn change(change: ArtifactAsk, json: bool) -> Result<u8, Problem> {
    let ArtifactAnswer::Written { artifact, is_changed } = ask(change)? else {
        return Err(no_answer());
    };
    Ok(print::data(&match (json, is_changed) {
        (true, _) => print::document(&hotcell_api::Written::of(&artifact, is_changed)),
        (false, true) => format!("{}  {}\n", artifact.id, title(&artifact)),
        (false, false) => format!("{}  {}: nothing to change\n", artifact.id, title(&artifact)),
    }))
}

fn verify(json: bool) -> Result<u8, Problem> {
    // From its files alone: a record that cannot be opened any more is one to be verified.
    let (database, anchor) = home::database_and_anchor()?;
    let record = audit::verified_with(&database, &anchor);
    let home = database.parent().unwrap_or(&database);
    let checked = progress::while_doing("checking artifacts", || verify_artifacts(home))
        .map_err(|problem| Problem::error(problem.what).why(problem.why).fix(problem.fix))?;
    let code = match record.standing {
        Standing::Broken => exit::ERROR,
        _ if !checked.is_fine() => exit::ERROR,
        Standing::Unproven => exit::REFUSED,
        Standing::Sound => 0,
    };
    let fault = record.fault.as_ref().map(ToString::to_string);
    let text = if json {
        document(&serde_json::json!({
            "version": 1, "sound": code == 0, "record_fault": fault, "missing": record.missing,
            "artifacts": checked,
        }))
    } else {
        let word = match code {
            0 => "sound",
            exit::REFUSED => "unproven",
            _ => "broken",
        };
        let faults = fault.map(|fault| format!("the record: {fault}")).into_iter();
        words(word, &checked, faults.chain(checked.told.iter().cloned()), &record.missing)
    };
    Ok(match print::data(&text) {
        0 => code,
        not_written => not_written,
    })
}

fn words(
    word: &str,
    checked: &Checked,
    faults: impl Iterator<Item = String>,
    missing: &[String],
) -> String {
    let Checked { artifacts, taggings, verdicts, contents, bytes, unreferenced, .. } = checked;
    let mut text = format!(
        "{word}: {artifacts} artifacts, {taggings} tags, {verdicts} verdicts, \
         {contents} contents of {bytes} bytes checked\n"
    );
    for fault in faults {
        text.push_str(&format!("fault: {}\n", harmless(&fault)));
    }
    let more = checked.faults.saturating_sub(checked.told.len() as u64);
    if more > 0 {
        text.push_str(&format!("fault: and {more} more\n"));
    }
    for missing in missing {
        text.push_str(&format!("missing: {}\n", harmless(missing)));
    }
    if *unreferenced > 0 {
        text.push_str(&format!(
            "not registered: {unreferenced} contents, as a crash leaves them\n"
        ));
    }
    text
}

fn document(value: &serde_json::Value) -> String {
    format!("{value}\n")
}

fn wrong(what: &str, why: &str) -> Problem {
    Problem::invalid(format!("{what} cannot be used")).why(why)
}

fn no_answer() -> Problem {
    Problem::error("the artifacts gave no answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_plain() {
        for (text, expected) in [
            ("", true),
            ("a\tb\r\nü\u{a0}€", true),
            ("\u{1b}[2J", false),
            ("a\u{9b}31m", false),
            ("\0", false),
            ("\u{7f}", false),
        ] {
            // In pieces of one byte, as it may come.
            let mut content = io::BufReader::with_capacity(1, text.as_bytes());
            assert_eq!(is_plain(&mut content).unwrap(), expected, "{text:?}");
        }
    }
}
