//! Asking a person: at the controlling terminal of this process, whatever its standard input is, and
//! only if this process may speak for one (see `ancestors`).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{SigId, flag, low_level};
use zeroize::Zeroizing;

use crate::ancestors::{self, Unfit};
use crate::passphrase::{LEAST_PASSPHRASE, MOST_PASSPHRASE, Passphrase};

/// How long somebody has to type.
pub const MOST_WAIT: Duration = Duration::from_secs(300);

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CLEAR: u8 = 0x15;
const QUIT: u8 = 0x1c;
const DELETE: u8 = 0x7f;

/// Why nobody could be asked, or nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("there is no terminal to ask at; a person has to answer, at a terminal of their own")]
    NoTerminal,
    #[error("this process is in the background of its terminal; bring it to the foreground")]
    Background,
    #[error("this process was started for a model, by `hotcell {role}` (process {pid})")]
    Served { pid: u32, role: String },
    #[error("process {pid}, from which this one descends, cannot be seen in /proc")]
    Unseen { pid: u32 },
    #[error("given up")]
    Cancelled,
    #[error("nothing was typed for {} seconds", MOST_WAIT.as_secs())]
    TimedOut,
    #[error("what is typed has at most {MOST_PASSPHRASE} bytes")]
    TooLong,
    #[error("a new passphrase has at least {LEAST_PASSPHRASE} bytes")]
    TooShort,
    #[error("that key makes no character that can be typed here")]
    NotACharacter,
    #[error("the two passphrases are not the same")]
    Different,
    #[error("the terminal cannot be used")]
    Io(#[from] io::Error),
}

/// The controlling terminal of this process, with nobody but a person at it.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
}

impl Terminal {
    pub fn open() -> Result<Terminal, AskError> {
        ancestors::check().map_err(|unfit| match unfit {
            Unfit::Served(pid, role) => AskError::Served { pid, role },
            Unfit::Unseen(pid) => AskError::Unseen { pid },
        })?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open("/dev/tty", flags, Mode::empty());
        let tty = File::from(tty.map_err(|_| AskError::NoTerminal)?);
        // It would be stopped as soon as it touched the terminal.
        let foreground = tcgetpgrp(&tty).map_err(|_| AskError::NoTerminal)?;
        if foreground == rustix::process::getpgrp() {
            Ok(Terminal { tty })
        } else {
            Err(AskError::Background)
        }
    }

    /// Asks for a passphrase. What is typed is not shown, and what was typed before is not taken. The
    /// terminal is as it was before when this returns, also by Ctrl-C or a signal that ends a process.
    pub fn passphrase(&mut self, prompt: &str) -> Result<Passphrase, AskError> {
        let signals = Signals::catch()?;
        let asked = {
            let _silent = Silent::new(&self.tty)?;
            self.show(prompt)?;
            self.read_line(&signals)
        };
        // Enter was not shown either.
        self.show("\n").map_err(AskError::from).and(asked).map(Passphrase::typed)
    }

    /// Asks for something else that nobody is to see, in the same way.
    pub fn hidden(&mut self, prompt: &str) -> Result<Zeroizing<Vec<u8>>, AskError> {
        self.passphrase(prompt).map(Passphrase::into_bytes)
    }

    /// Asks for a line that anybody may see. What was typed before is not taken.
    pub fn line(&mut self, prompt: &str) -> Result<String, AskError> {
        let signals = Signals::catch()?;
        tcflush(&self.tty, QueueSelector::IFlush).map_err(io::Error::from)?;
        self.show(prompt)?;
        let typed = self.read_line(&signals)?;
        Ok(String::from_utf8_lossy(&typed).into_owned())
    }

    /// Asks for one that was not there before, twice.
    pub fn new_passphrase(&mut self, prompt: &str, again: &str) -> Result<Passphrase, AskError> {
        let first = self.passphrase(prompt)?;
        if first.as_bytes().len() < LEAST_PASSPHRASE {
            return Err(AskError::TooShort);
        }
        if self.passphrase(again)?.is_same(&first) { Ok(first) } else { Err(AskError::Different) }
    }

    /// Shows a text, as it is: whoever calls sees to it that a terminal can.
    pub fn show(&self, text: &str) -> io::Result<()> {
        (&self.tty).write_all(text.as_bytes())
    }

    fn read_line(&self, signals: &Signals) -> Result<Zeroizing<Vec<u8>>, AskError> {
        let deadline = Instant::now() + MOST_WAIT;
        // It never grows, so that nothing is left behind elsewhere.
        let mut typed = Zeroizing::new(Vec::with_capacity(MOST_PASSPHRASE));
        loop {
            match self.read_byte(signals, deadline)? {
                b'\n' | b'\r' => break,
                INTERRUPT | QUIT | END => return Err(AskError::Cancelled),
                BACKSPACE | DELETE => remove_last(&mut typed),
                CLEAR => typed.clear(),
                0..b' ' => return Err(AskError::NotACharacter),
                _ if typed.len() == MOST_PASSPHRASE => return Err(AskError::TooLong),
                byte => typed.push(byte),
            }
        }
        // Otherwise it could not be typed again at another terminal.
        match std::str::from_utf8(&typed) {
            Ok(_) => Ok(typed),
            Err(_) => Err(AskError::NotACharacter),
        }
    }

    fn read_byte(&self, signals: &Signals, deadline: Instant) -> Result<u8, AskError> {
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(AskError::TimedOut);
            }
            let mut waiting = [
                PollFd::new(&self.tty, PollFlags::IN),
                PollFd::new(&signals.arriving, PollFlags::IN),
            ];
            let rest =
                Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
            match poll(&mut waiting, Some(&rest)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                polled => polled.map_err(io::Error::from)?,
            };
            let [tty, signal] = waiting.map(|waiting| !waiting.revents().is_empty());
            if signal {
                return Err(AskError::Cancelled);
            }
            if tty {
                let mut byte = Zeroizing::new([0]);
                let read = rustix::io::read(&self.tty, &mut *byte).map_err(io::Error::from)?;
                let [byte] = *byte;
                return if read == 1 { Ok(byte) } else { Err(AskError::Cancelled) };
            }
        }
    }
}

/// One character, of however many bytes.
fn remove_last(typed: &mut Vec<u8>) {
    while typed.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
}

/// As long as it is there, nothing that is typed is shown or means anything to the kernel.
struct Silent<'a> {
    tty: &'a File,
    before: Termios,
}

impl Silent<'_> {
    fn new(tty: &File) -> io::Result<Silent<'_>> {
        let before = tcgetattr(tty)?;
        let mut silent = before.clone();
        let all = LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON;
        silent.local_modes.remove(all | LocalModes::ISIG | LocalModes::IEXTEN);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        let made = Silent { tty, before };
        tcsetattr(tty, OptionalActions::Now, &silent)?;
        tcflush(tty, QueueSelector::IFlush)?;
        Ok(made)
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // The rest of what was typed is not for the next program. If the terminal is gone, there is
        // nothing to restore.
        tcflush(self.tty, QueueSelector::IFlush).ok();
        tcsetattr(self.tty, OptionalActions::Now, &self.before).ok();
    }
}

/// What ends a process from outside. While somebody is asked, it ends the asking, and at other times the
/// process, as it does by default.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

struct Signals {
    arriving: UnixStream,
    registered: Vec<SigId>,
    by_default: Arc<AtomicBool>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        static ASKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        let by_default = by_default()?;
        let (arriving, arrives) = UnixStream::pair()?;
        let mut signals = Signals { arriving, registered: Vec::new(), by_default, _one_at_a_time };
        for signal in ENDING {
            let id = low_level::pipe::register(signal, arrives.try_clone()?)?;
            signals.registered.push(id);
        }
        signals.by_default.store(false, Ordering::SeqCst);
        Ok(signals)
    }
}

/// Whether such signals do what they do by default. Once they are caught, somebody has to see to that.
fn by_default() -> io::Result<Arc<AtomicBool>> {
    static BY_DEFAULT: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(known) = BY_DEFAULT.get() {
        return Ok(Arc::clone(known));
    }
    let by_default = Arc::new(AtomicBool::new(true));
    for signal in ENDING {
        flag::register_conditional_default(signal, Arc::clone(&by_default))?;
    }
    Ok(Arc::clone(BY_DEFAULT.get_or_init(|| by_default)))
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.by_default.store(true, Ordering::SeqCst);
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests;
