//! The documentation is run.
//!
//! In a block marked `console`, a line that begins with `$ ` is a command, and what follows is what it
//! must print. `…` stands for anything, alone on a line for any number of lines. A command that fails
//! is followed by `$ echo $?`. The blocks of one file share a directory with a copy of examples/ in
//! it. What a page leaves running is ended with it, if the page keeps its process in a file `NAME.pid`. A
//! comment before a block says who runs it, or why nobody does:
//!
//! ```text
//! <!-- as root -->
//! <!-- as an ordinary user -->
//! <!-- typed: correct horse -->
//! <!-- not run: it takes a minute -->
//! ```
//!
//! `typed` has the commands run at a terminal, where somebody types that whenever they are asked something.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_tidy::{binary, files, root, skip};

#[path = "../../crates/cli/tests/common/pty.rs"]
#[expect(dead_code, reason = "the tests of the command line need more of it")]
mod pty;

use pty::Pty;

/// The README's first command; the binary was built before.
const CARGO_RUN: &str = "cargo run --release -- ";

/// Longer than any command that a person answers takes.
const LONGEST: Duration = Duration::from_secs(60);

/// Whom root becomes for the blocks of an ordinary user: nobody has no session and no cgroup.
const NOBODY: u32 = 65534;

const ORDINARY: &str = "as an ordinary user";

/// What a person types whenever they are asked, if the block is one for a terminal.
const TYPED: &str = "typed: ";

#[derive(Debug)]
struct Block {
    line: usize,
    /// What the comment before it says.
    mark: String,
    steps: Vec<Step>,
}

#[derive(Debug, Default)]
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The console blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut mark = String::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        if let Some(comment) = text.strip_prefix("<!-- ").and_then(|t| t.strip_suffix(" -->")) {
            mark = comment.to_owned();
        } else if text == "```console" {
            let inside = lines.by_ref().map(|(_, t)| t).take_while(|t| *t != "```");
            blocks.push(Block { line, mark: std::mem::take(&mut mark), steps: steps(inside) });
        } else if !text.is_empty() {
            mark.clear();
        }
    }
    blocks
}

fn steps<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continued = false;
    for line in lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (_, Some(step)) if continued => {
                step.command.push('\n');
                step.command.push_str(line);
                continued = line.ends_with('\\');
            }
            (Some(command), _) => {
                continued = command.ends_with('\\');
                steps.push(Step { command: command.into(), ..Step::default() });
            }
            (None, Some(step)) => step.expected.push(line.into()),
            (None, None) => panic!("a console block begins with `{line}`"),
        }
    }
    steps
}

/// Whether lines are as expected, where `…` is anything.
fn matches(expected: &[String], actual: &[&str]) -> bool {
    match (expected, actual) {
        ([], []) => true,
        ([first, rest @ ..], _) if first == "…" => {
            (0..=actual.len()).any(|skipped| matches(rest, &actual[skipped..]))
        }
        ([first, rest @ ..], [line, others @ ..]) => {
            line_matches(first, line) && matches(rest, others)
        }
        _ => false,
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    match expected.split_once('…') {
        None => expected == actual,
        Some((before, after)) => actual.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

/// A directory that every user can read, with the binary and the examples.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
        let examples = "here/examples";
        for name in ["bin", "here", examples, "here/examples/policies", "root", "user"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            open(&dir.path().join(name)).unwrap();
        }
        open(dir.path()).unwrap();
        fs::copy(binary(), dir.path().join("bin/hotcell")).unwrap();
        for from in ["examples", "examples/policies"] {
            for example in fs::read_dir(root().join(from)).unwrap().map(Result::unwrap) {
                if example.file_type().unwrap().is_dir() {
                    continue;
                }
                let copy = dir.path().join("here").join(from).join(example.file_name());
                fs::copy(example.path(), &copy).unwrap();
                fs::set_permissions(copy, fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
        World { dir }
    }

    fn bash(&self, script: &str, ordinary: bool) -> Command {
        let mut bash = Command::new("bash");
        let home = self.dir.path().join(if ordinary { "user" } else { "root" });
        bash.args(["-c", script])
            .current_dir(self.dir.path().join("here"))
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/local/bin:/usr/bin:/bin", self.dir.path().display()))
            .env("HOME", home)
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        if ordinary {
            bash.uid(NOBODY).gid(NOBODY);
        }
        bash
    }

    /// Runs one command after another that ended with `before`: what it printed, and how it ended.
    fn run(&self, command: &str, before: i32, ordinary: bool) -> (String, i32) {
        let output = self.bash(&script(command, before), ordinary).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    }

    /// The same at a terminal: what is on its screen in the end.
    fn run_typed(&self, command: &str, before: i32, typed: &str) -> (String, i32) {
        let bash = self.bash(&script(command, before), false);
        let (mut pty, mut child) = Pty::start_with(&bash, |child, tty| {
            let stream = || Stdio::from(tty.try_clone().unwrap());
            child.stdout(stream()).stderr(stream());
        });
        let (begun, mut answered) = (Instant::now(), 0);
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LONGEST, "$ {command}\n{}", screen(&pty));
            pty.look();
            // A question ends within its line.
            if pty.seen.len() > answered && pty.seen.ends_with(b": ") {
                answered = pty.seen.len();
                pty.write(format!("{typed}\n").as_bytes());
            }
        }
        let code = pty.until_end(&mut child).unwrap();
        (screen(&pty), code)
    }

    /// Why runs are refused here, if they are.
    fn refusal(&self) -> Option<String> {
        let (text, code) = self.run("hotcell run -- true", 0, false);
        (code == 122).then(|| text.lines().next().unwrap_or_default().replace("error: ", ""))
    }

    fn check(&self, block: &Block) -> Result<(), String> {
        let ordinary = block.mark == ORDINARY;
        let mut before = 0;
        let mut steps = block.steps.iter().peekable();
        while let Some(Step { command, expected }) = steps.next() {
            let (text, code) = match block.mark.strip_prefix(TYPED) {
                Some(typed) => self.run_typed(command, before, typed),
                None => self.run(command, before, ordinary),
            };
            let actual: Vec<&str> = text.lines().collect();
            if !matches(expected, &actual) {
                let expected = expected.join("\n");
                return Err(format!("$ {command}\n--- expected\n{expected}\n--- printed\n{text}"));
            }
            let told = steps.peek().is_some_and(|next| next.command == "echo $?");
            if code != 0 && !told {
                return Err(format!("$ {command}\nended with {code}, which the page does not say"));
            }
            before = code;
        }
        Ok(())
    }
}

/// A command of a page, as bash has it.
fn script(command: &str, before: i32) -> String {
    let command = match command.strip_prefix(CARGO_RUN) {
        Some(words) => format!("hotcell {words}"),
        None => command.into(),
    };
    format!("exec 2>&1; (exit {before}); {command}")
}

/// What a person sees.
fn screen(pty: &Pty) -> String {
    String::from_utf8_lossy(&pty.seen).replace("\r\n", "\n")
}

/// Ends what the page started.
impl Drop for World {
    fn drop(&mut self) {
        let files = fs::read_dir(self.dir.path().join("here")).into_iter().flatten().flatten();
        for file in files.filter(|file| file.path().extension().is_some_and(|end| end == "pid")) {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            if let Some(pid) = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
    }
}

/// Why a block cannot be run here, apart from the host's level.
fn obstacle(block: &Block) -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    match block.mark.as_str() {
        mark if mark.starts_with("not run: ") => Some(mark["not run: ".len()..].to_owned()),
        "as root" if !root => Some("it is for root".into()),
        ORDINARY if !root => Some("only root can become another user".into()),
        mark if mark.starts_with(TYPED) => None,
        "" | "as root" | ORDINARY => None,
        other => panic!("line {}: unknown mark `{other}`", block.line),
    }
}

fn pages() -> Vec<String> {
    let pages = |f: &String| f.ends_with(".md") && !f.starts_with("tests/");
    match files() {
        Some(files) => files.into_iter().filter(pages).collect(),
        None => ["README.md", "SECURITY.md"].map(str::to_owned).into(),
    }
}

#[test]
fn every_command_prints_what_the_page_says() {
    let mut wrong = Vec::new();
    for page in pages() {
        let blocks = blocks(&fs::read_to_string(root().join(&page)).unwrap());
        if blocks.is_empty() {
            continue;
        }
        let world = World::new();
        let refusal = world.refusal();
        for block in &blocks {
            let place = format!("{page}:{}", block.line);
            match (obstacle(block), &refusal) {
                (Some(why), _) => skip(&place, &why),
                // The same for all of them.
                (None, Some(why)) if block.mark != ORDINARY => skip(&page, why),
                _ => wrong.extend(world.check(block).err().map(|e| format!("{place}\n{e}"))),
            }
        }
    }
    assert!(wrong.is_empty(), "{} blocks are wrong\n\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|t| !t.contains("://") && !t.starts_with('#')) {
            let file = target.split('#').next().unwrap();
            if !root().join(&page).parent().unwrap().join(file).exists() {
                wrong.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_page_is_read_and_compared_as_the_top_says() {
    let page =
        "<!-- as root -->\n```console\n$ a \\\n  b\n1\n…\n9\n$ c\n```\n\ntext\n```sh\n$ no\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].mark, "as root");
    assert_eq!(blocks[0].steps[0].command, "a \\\n  b");
    let expected = &blocks[0].steps[0].expected;
    assert!(matches(expected, &["1", "2", "3", "9"]) && matches(expected, &["1", "9"]));
    assert!(!matches(expected, &["1", "2"]) && !matches(expected, &["9"]));
    assert!(line_matches("uid …, gid …", "uid 7, gid 8") && !line_matches("a…b", "a"));
}
