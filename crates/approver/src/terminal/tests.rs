//! With real terminals: this binary starts itself again, in a session of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::*;

/// What the child is to do, and the name of its terminal, where it has one.
const ROLE: &str = "HOTCELL_TEST_ROLE";
const TTY: &str = "HOTCELL_TEST_TTY";
const SAID: &str = "SAID ";
const PROMPT: &str = "Passphrase for alice: ";
const LONGEST: Duration = Duration::from_secs(30);

/// Not a test: what runs in the child.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "background" {
        return say(Terminal::open().map(|_| ()));
    }
    setsid().unwrap();
    if let Ok(tty) = std::env::var(TTY) {
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let tty = rustix::fs::open(tty, flags, Mode::empty()).unwrap();
        ioctl_tiocsctty(&tty).unwrap();
    }
    match role.as_str() {
        "open" => say(Terminal::open().map(|_| ())),
        "ask" => say(Terminal::open().and_then(|mut terminal| terminal.passphrase(PROMPT))),
        "ask-new" => {
            let again = "Again: ";
            say(Terminal::open().and_then(|mut terminal| terminal.new_passphrase(PROMPT, again)))
        }
        "ask-line" => say(Terminal::open().and_then(|mut terminal| terminal.line(PROMPT))),
        "ask-in-background" => {
            let mut behind = itself();
            let status = behind.env(ROLE, "background").process_group(0).status().unwrap();
            assert!(status.success());
        }
        other => panic!("{other}"),
    }
}

fn say<T: Said>(result: Result<T, AskError>) {
    match result {
        Ok(value) => println!("{SAID}{}", value.said()),
        Err(error) => println!("{SAID}error: {error}"),
    }
    // Until whoever asked has looked at the terminal.
    stdin().read_to_end(&mut Vec::new()).unwrap();
}

trait Said {
    fn said(&self) -> String;
}

impl Said for () {
    fn said(&self) -> String {
        "open".to_owned()
    }
}

impl Said for String {
    fn said(&self) -> String {
        self.clone()
    }
}

impl Said for Passphrase {
    fn said(&self) -> String {
        String::from_utf8(self.as_bytes().to_vec()).unwrap()
    }
}

fn itself() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["terminal::tests::child", "--exact", "--nocapture"]);
    command
}

/// A terminal that somebody sits at.
struct Pty {
    master: OwnedFd,
    name: String,
    seen: Vec<u8>,
}

impl Pty {
    fn new() -> Pty {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        Pty { master, name, seen: Vec::new() }
    }

    fn write(&self, bytes: &[u8]) {
        for part in bytes.chunks(256) {
            assert_eq!(rustix::io::write(&self.master, part).unwrap(), part.len());
        }
    }

    /// Waits until so much has appeared on the screen.
    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + LONGEST;
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            assert!(Instant::now() < deadline, "{:?}", String::from_utf8_lossy(&self.seen));
            self.look(100);
        }
    }

    fn look(&mut self, millis: i64) {
        let mut waiting = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        let most = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
        if poll(&mut waiting, Some(&most)).unwrap() == 1 {
            let mut bytes = [0; 4096];
            let read = rustix::io::read(&self.master, &mut bytes).unwrap_or(0);
            self.seen.extend(&bytes[..read]);
        }
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.master).unwrap()
    }
}

/// A child that says something, and then waits.
struct Asked {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Asked {
    fn start(command: &mut Command, role: &str, tty: Option<&str>) -> Asked {
        command.env(ROLE, role).env_remove(TTY);
        if let Some(tty) = tty {
            command.env(TTY, tty);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Asked { child, out }
    }

    fn said(&mut self) -> String {
        self.hear().expect("it said nothing")
    }

    /// What it says, unless it ends first.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            // The harness may have begun the line.
            if let Some((_, said)) = line.split_once(SAID) {
                return Some(said.trim_end_matches('\n').to_owned());
            }
            line.clear();
        }
        None
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn is_plain(termios: &Termios) -> bool {
    let modes = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    termios.local_modes.contains(modes)
}

/// Types at the prompt; what came of it, with the terminal as it was before, and nothing shown.
fn ask(role: &str, typed: &[&[u8]]) -> String {
    let mut pty = Pty::new();
    let mut asked = Asked::start(&mut itself(), role, Some(&pty.name));
    for (typed, prompt) in typed.iter().zip([PROMPT, "Again: "]) {
        pty.wait_for(prompt);
        assert!(!pty.modes().local_modes.contains(LocalModes::ECHO));
        pty.write(typed);
    }
    let said = asked.said();
    assert!(is_plain(&pty.modes()), "{:?}", pty.modes());
    pty.look(10);
    asked.end();
    let seen = String::from_utf8_lossy(&pty.seen).into_owned();
    assert!(!seen.contains("secret"), "{seen:?}");
    assert!(seen.ends_with("\r\n"), "{seen:?}");
    said
}

#[test]
fn a_passphrase_is_typed_unseen_and_the_terminal_is_as_before() {
    let longest = "x".repeat(MOST_PASSPHRASE);
    let (long, too_long) = (format!("{longest}\n"), format!("{longest}x\n"));
    let not = "error: that key makes no character that can be typed here";
    for (typed, expected) in [
        (&b"secret horse\n"[..], "secret horse"),
        (b"secret\r", "secret"),
        (b"\n", ""),
        ("secr\u{e9}t\n".as_bytes(), "secr\u{e9}t"),
        (b"secretx\x7f\n", "secret"),
        ("x\u{e9}\u{7f}\u{8}secret\n".as_bytes(), "secret"),
        (b"\x7f\x7fsecret\n", "secret"),
        (b"wrong\x15secret\n", "secret"),
        (b"secret\x03", "error: given up"),
        (b"secret\x1c", "error: given up"),
        (b"secret\x04", "error: given up"),
        (b"secret\x1b[A\n", not),
        (b"secret\t\n", not),
        (b"secret\xff\n", not),
        (long.as_bytes(), &longest),
        (too_long.as_bytes(), "error: what is typed has at most 1024 bytes"),
    ] {
        assert_eq!(ask("ask", &[typed]), expected, "{:?}", String::from_utf8_lossy(typed));
    }
}

#[test]
fn a_new_passphrase_is_typed_twice_and_not_too_short() {
    for (typed, expected) in [
        (&[&b"secret horse\n"[..], b"secret horse\n"][..], "secret horse"),
        (&[b"secret horse\n", b"secret hors\n"], "error: the two passphrases are not the same"),
        (&[b"secret horse\n", b"\x03"], "error: given up"),
        (&[b"secret\n"], "error: a new passphrase has at least 8 bytes"),
    ] {
        assert_eq!(ask("ask-new", typed), expected);
    }
}

#[test]
fn a_line_is_typed_for_all_to_see_and_what_came_before_is_not_taken() {
    for (typed, expected) in [
        (&b"accept 6 of them\n"[..], "accept 6 of them"),
        (b"half\x15whole\n", "whole"),
        (b"half\x03", "error: given up"),
        (b"\x04", "error: given up"),
    ] {
        let mut pty = Pty::new();
        pty.write(b"typed ahead\n");
        let mut asked = Asked::start(&mut itself(), "ask-line", Some(&pty.name));
        pty.wait_for(PROMPT);
        assert!(is_plain(&pty.modes()));
        pty.write(typed);
        assert_eq!(asked.said(), expected, "{:?}", String::from_utf8_lossy(typed));
        asked.end();
    }
}

#[test]
fn a_signal_that_ends_a_process_leaves_the_terminal_as_it_was() {
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let mut pty = Pty::new();
        let mut asked = Asked::start(&mut itself(), "ask", Some(&pty.name));
        pty.wait_for(PROMPT);
        pty.write(b"half");
        let pid = Pid::from_raw(asked.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(asked.said(), "error: given up", "{signal:?}");
        assert!(is_plain(&pty.modes()), "{signal:?}");
        // Now that nobody is asked, it does what it does by default.
        kill_process(pid, signal).unwrap();
        assert!(!asked.child.wait().unwrap().success(), "{signal:?}");
    }
}

#[test]
fn what_was_typed_before_the_prompt_is_not_taken() {
    let mut pty = Pty::new();
    pty.write(b"typed ahead\n");
    let mut asked = Asked::start(&mut itself(), "ask", Some(&pty.name));
    pty.wait_for(PROMPT);
    pty.write(b"typed now\n");
    assert_eq!(asked.said(), "typed now");
    asked.end();
}

#[test]
fn a_terminal_that_goes_away_ends_the_asking() {
    let mut pty = Pty::new();
    let mut asked = Asked::start(&mut itself(), "ask", Some(&pty.name));
    pty.wait_for(PROMPT);
    drop(pty);
    // The kernel also sends a signal, which may come when nobody is asked any more.
    match asked.hear() {
        Some(said) => assert!(said.starts_with("error: "), "{said}"),
        None => assert_eq!(asked.child.wait().unwrap().signal(), Some(SIGHUP)),
    }
}

#[test]
fn without_a_terminal_in_the_foreground_nobody_is_asked() {
    let none = "error: there is no terminal to ask at; \
                a person has to answer, at a terminal of their own";
    let mut asked = Asked::start(&mut itself(), "open", None);
    assert_eq!(asked.said(), none);
    asked.end();

    let pty = Pty::new();
    let mut asked = Asked::start(&mut itself(), "ask-in-background", Some(&pty.name));
    let said = asked.said();
    assert!(said.starts_with("error: this process is in the background"), "{said}");
    asked.end();
}

/// A shell under the name of hotcell, and between it and whoever asks a terminal that was made for it.
#[test]
fn tok_12_who_descends_from_a_hotcell_that_serves_models_cannot_answer() {
    let dir = tempfile::tempdir().unwrap();
    let served = dir.path().join("hotcell");
    fs::copy(fs::canonicalize("/bin/sh").unwrap(), &served).unwrap();
    let itself = itself();
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let mut words = vec![quoted(itself.get_program())];
    words.extend(itself.get_args().map(quoted));
    // Not the last command, which a shell may become itself.
    let script = format!("{}; exit $?", words.join(" "));
    let start = |program: &Path, role: &str| {
        let pty = Pty::new();
        let mut shell = Command::new(program);
        let mut asked = Asked::start(shell.args(["-c", &script, role]), "open", Some(&pty.name));
        let said = asked.said();
        asked.end();
        said
    };
    for role in crate::SERVING {
        let said = start(&served, role);
        let expected = format!("error: this process was started for a model, by `hotcell {role}`");
        assert!(said.starts_with(&expected), "{said}");
    }
    // It is not for want of anything else.
    assert_eq!(start(&served, "logs"), "open");
    assert_eq!(start(Path::new("/bin/sh"), "mcp"), "open");
}
