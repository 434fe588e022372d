//! The approver's key of a home, opened with what is typed at the terminal and nothing else.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hotcell_approver::{Approver, AskError, FileError, SealError, Sealed, Terminal};
use hotcell_types::Name;

use crate::problem::Problem;

/// Where it lies.
pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("keys").join("approver.key")
}

/// The terminal, where a person is at it.
pub(crate) fn terminal() -> Result<Terminal, Problem> {
    Terminal::open().map_err(|error| not_asked(&error))
}

/// The key of a home, still sealed.
pub(crate) fn read(home: &Path) -> Result<Sealed, Problem> {
    let path = path(home);
    if path.symlink_metadata().is_err() {
        return Err(Problem::not_found(format!("there is no key in `{}`", path.display()))
            .fix("`hotcell approver new NAME` makes one; a policy has to name its line"));
    }
    Sealed::read(&path).map_err(unusable)
}

/// Opens the key that is there, with its passphrase. `why` is what it is asked for.
pub(crate) fn open(home: &Path, terminal: &mut Terminal, why: &str) -> Result<Approver, Problem> {
    let sealed = read(home)?;
    let prompt = format!("Passphrase of {}, {why}: ", sealed.public().name());
    let typed = terminal.passphrase(&prompt).map_err(|error| not_asked(&error))?;
    sealed.open(&typed).map_err(|error| {
        let problem = match error {
            SealError::Passphrase => Problem::blocked("the key stays closed"),
            SealError::Memory | SealError::Chance(_) => Problem::error("the key stays closed"),
        };
        problem.why(error.to_string()).fix("try again; nothing was signed")
    })
}

/// Makes one, with a passphrase that is typed twice.
pub(crate) fn make(home: &Path, name: Name, terminal: &mut Terminal) -> Result<Approver, Problem> {
    let path = path(home);
    let failed =
        |error: std::io::Error| Problem::error("the key could not be made").why(error.to_string());
    let prompt = format!("New passphrase for {name}: ");
    let typed = terminal.new_passphrase(&prompt, "The same again: ");
    let typed = typed.map_err(|error| not_asked(&error))?;
    let approver = Approver::make(name).map_err(failed)?;
    let sealed = Sealed::new(&approver, &typed)
        .map_err(|error| Problem::error("the key could not be made").why(error.to_string()))?;
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    sealed.write_new(&path).map_err(unusable)?;
    Ok(approver)
}

pub(crate) fn not_asked(error: &AskError) -> Problem {
    let fix = match error {
        AskError::NoTerminal | AskError::Served { .. } | AskError::Unseen { .. } => {
            "answer in a terminal of your own, outside of what hotcell started"
        }
        AskError::Background => "`fg` brings it to the foreground",
        _ => "try again; nothing was changed",
    };
    Problem::blocked("nobody could be asked for a passphrase").why(error.to_string()).fix(fix)
}

fn unusable(error: FileError) -> Problem {
    let fix = error.fix.clone();
    Problem::error(format!("the approver's key `{}` cannot be used", error.path.display()))
        .why(error.why)
        .fix(fix)
}
