//! `hotcell` alone at a terminal, typed at as a person would.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;

use crate::person::{self, Pty};
use crate::screen;
use crate::support::World;

const PROMPT: &str = "hotcell> ";
const CTRL_C: &[u8] = b"\x03";
const CTRL_D: &[u8] = b"\x04";

/// A prompt, and whoever types at it.
struct Session {
    pty: Pty,
    child: Child,
}

impl Session {
    fn open(world: &World) -> Session {
        let (pty, child) = screen::with_all(&world.command::<&str>(&[]));
        let mut session = Session { pty, child };
        session.pty.wait_for(PROMPT);
        session
    }

    /// Types bytes, and waits until the screen has this after them.
    #[track_caller]
    fn press(&mut self, bytes: &[u8], then: &str) -> String {
        self.pty.seen.clear();
        self.pty.write(bytes);
        self.pty.wait_for(then);
        self.screen()
    }

    /// A line, up to the next prompt; what came of it.
    #[track_caller]
    fn line(&mut self, line: &str) -> String {
        // The line is drawn as it is typed, with a prompt each time: the next one comes after the end of it.
        self.press(line.as_bytes(), line);
        self.press(b"\r", PROMPT)
    }

    /// Waits until this is on the screen, and a prompt after it: one that was there before the line was typed is
    /// not the next one.
    #[track_caller]
    fn ready_after(&mut self, text: &str) {
        self.pty.wait_until(|screen| {
            screen.rsplit_once(text).is_some_and(|(_, after)| after.contains(PROMPT))
        });
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.pty.seen).into_owned()
    }

    fn end(mut self) -> Option<i32> {
        self.pty.write(CTRL_D);
        self.pty.until_end(&mut self.child)
    }
}

fn world() -> World {
    let mut world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    world.env("TERM", "xterm");
    world
}

#[test]
fn each_line_is_a_command_with_its_own_exit_status() {
    let world = world();
    let mut session = Session::open(&world);
    let added = session.line("tool call add '{\"a\": 20, \"b\": 22}'");
    assert!(added.contains("\r\n42\r\n") && !added.contains("[0]"), "{added:?}");
    let refused = session.line("tool call fs.write '{\"path\": \"a\", \"text\": \"b\"}'");
    assert!(refused.contains("error:") && refused.contains("\r\n[119]\r\n"), "{refused:?}");
    let unknown = session.line("frobnicate");
    assert!(unknown.contains("unrecognized subcommand `frobnicate`"), "{unknown:?}");
    assert!(unknown.contains("\r\n[121]\r\n"), "{unknown:?}");
    assert_eq!(session.end(), Some(121));
}

#[test]
fn ctrl_c_ends_what_runs_and_not_the_prompt() {
    let world = world();
    let mut session = Session::open(&world);
    session.line("tool call add '{\"a\": 1, \"b\": 2}'");
    // Goes on until somebody ends it.
    session.press(b"approvals --watch\r", "SINCE");
    let ended = session.press(CTRL_C, PROMPT);
    assert!(ended.contains("[130]\r\n"), "{ended:?}");
    // A line that nobody wants is forgotten.
    session.press(b"gc --dry-run", "gc --dry-run");
    let forgotten = session.press(CTRL_C, PROMPT);
    assert!(!forgotten.contains("would be removed"), "{forgotten:?}");
    assert!(session.line("template ls").contains("code-executor"));
    session.pty.write(b"exit\r");
    assert_eq!(session.pty.until_end(&mut session.child), Some(0));
}

#[test]
fn what_is_wrong_with_a_line_is_told_and_nothing_is_done() {
    let world = world();
    let mut session = Session::open(&world);
    let open = session.line("tool call add '{\"a\": 1");
    assert!(open.contains("a ' has no end") && open.contains("fix: close it"), "{open:?}");
    // What stands after the bad byte is not a line of its own.
    session.pty.seen.clear();
    session.pty.write(b"runs \xff\xfe tool call add {}\r");
    session.ready_after("the line is not UTF-8");
    // As a terminal sends what is pasted.
    let long = format!("\x1b[200~runs {}\x1b[201~\r", "x".repeat(70_000));
    session.pty.seen.clear();
    session.pty.write(long.as_bytes());
    session.pty.wait_for("more than 65536 bytes");
    session.ready_after("[121]\r\n");
    assert_eq!(session.end(), Some(121));
    assert!(!world.home().join("hotcell.db").exists());
}

#[test]
fn lines_are_remembered_for_the_next_prompt_and_secrets_are_not() {
    let world = world();
    let mut session = Session::open(&world);
    session.line("template ls");
    session.line("token revoke hct_0123456789abcdef0123");
    session.line(" config show");
    assert!(session.end().is_some());
    let file = world.home().join("history");
    assert_eq!(fs::read_to_string(&file).unwrap(), "template ls\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut session = Session::open(&world);
    session.press(b"\x1b[A", "template ls");
    assert!(session.press(b"\r", PROMPT).contains("code-executor"));
    assert_eq!(session.end(), Some(0));
}

#[test]
fn commands_options_and_tools_are_completed() {
    let world = world();
    let mut session = Session::open(&world);
    session.press(b"temp\t", "template ");
    let shown = session.press(b"l\t\r", "code-executor");
    assert!(shown.contains("template ls"), "{shown:?}");
    session.ready_after("code-executor");
    session.press(b"tool show fs.wri\t", "fs.write ");
    let shown = session.press(b"--js\t\r", "\"name\":\"fs.write\"");
    assert!(shown.contains("--json"), "{shown:?}");
    session.ready_after("\"name\":\"fs.write\"");
    session.press(b"help tool\r", "Tools: what can be called, and calling it");
    session.ready_after("Tools: what can be called, and calling it");
    session.press(b"help\r", "There are no variables, patterns or pipes.");
    session.ready_after("--json tells them apart.");
    assert_eq!(session.end(), Some(0));
}

#[test]
fn an_approver_can_be_made_at_the_prompt() {
    let world = world();
    let mut session = Session::open(&world);
    session.press(b"approver new alice\r", "New passphrase for alice: ");
    session.press(format!("{}\r", person::PASSPHRASE).as_bytes(), "The same again: ");
    let made = session.press(format!("{}\r", person::PASSPHRASE).as_bytes(), "lets it answer");
    assert!(!made.contains(person::PASSPHRASE), "{made:?}");
    session.ready_after("lets it answer");
    assert_eq!(session.end(), Some(0));
    assert_eq!(fs::read_to_string(world.home().join("history")).unwrap(), "approver new alice\n");
}

#[test]
fn without_a_terminal_there_is_no_prompt() {
    let text = world().transcript::<&str>(&[]);
    assert!(text.contains("no command was given") && text.ends_with("[121]\n\n"), "{text}");
}

#[test]
fn a_dumb_terminal_has_a_prompt_as_well() {
    let mut world = world();
    world.env("TERM", "dumb");
    let mut session = Session::open(&world);
    session.pty.seen.clear();
    session.pty.write(b"template ls\n");
    session.ready_after("policy-sandbox");
    assert_eq!(session.end(), Some(0));
}
