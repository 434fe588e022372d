//! What can go wrong, in the words of the person who has to change it.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// Something about one cgroup that could not be done. `Display` says what, `source` says why and
/// [`fix`](CgroupError::fix) what would help.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{file}` of controller `{controller}`{}", Given(.value))]
pub struct CgroupError {
    pub doing: &'static str,
    pub controller: &'static str,
    pub file: Box<str>,
    pub value: Option<Box<str>>,
    #[source]
    pub cause: Cause,
    pub fix: Box<str>,
}

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the kernel holds `{seen}` instead")]
    ReadBack { seen: Box<str> },
    #[error("it was not done within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("this kernel or mount does not have it")]
    Missing,
    #[error("swap is on, and the kernel does not count it per cgroup")]
    UncountedSwap,
}

struct Given<'a>(&'a Option<Box<str>>);

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, " to `{value}`"),
            None => Ok(()),
        }
    }
}

impl CgroupError {
    /// What would help.
    pub fn fix(&self) -> &str {
        &self.fix
    }

    pub(super) fn io(
        doing: &'static str,
        controller: &'static str,
        file: &str,
        errno: Errno,
    ) -> CgroupError {
        let fix = fix_for(errno, controller, file);
        CgroupError::new(doing, controller, file, Cause::Io(errno.into()), fix)
    }

    pub(super) fn timed_out(
        doing: &'static str,
        controller: &'static str,
        file: &str,
        waited: Duration,
    ) -> CgroupError {
        let fix = "look for processes in state D with `ps -eo pid,stat,wchan,args`; what is left is \
                   removed when hotcell next starts";
        CgroupError::new(doing, controller, file, Cause::TimedOut(waited), fix.into())
    }

    pub(super) fn missing(
        doing: &'static str,
        controller: &'static str,
        file: &str,
        fix: &str,
    ) -> CgroupError {
        CgroupError::new(doing, controller, file, Cause::Missing, fix.into())
    }

    fn new(
        doing: &'static str,
        controller: &'static str,
        file: &str,
        cause: Cause,
        fix: String,
    ) -> CgroupError {
        CgroupError { doing, controller, file: file.into(), value: None, cause, fix: fix.into() }
    }

    pub(super) fn with_value(self, value: &[u8]) -> CgroupError {
        CgroupError { value: Some(String::from_utf8_lossy(value).into()), ..self }
    }
}

fn fix_for(errno: Errno, controller: &str, file: &str) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            "run `hotcell doctor`: it names the command that gives this user a cgroup".into()
        }
        Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP => {
            format!("give the {controller} controller to this cgroup: run `hotcell doctor`")
        }
        Errno::INVAL if controller == "cpu" => {
            "ask for fewer processors than the cgroups above give: read `cpu.cfs_quota_us` or \
             `cpu.max` there"
                .into()
        }
        Errno::INVAL => format!("choose another value for `{file}`"),
        Errno::BUSY => "end the processes that are still in it".into(),
        Errno::NOSPC | Errno::AGAIN | Errno::NOMEM => {
            "remove cgroups that are no longer used: the host allows no more of them".into()
        }
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)".into(),
        _ => "run `hotcell doctor`".into(),
    }
}

/// Why this process may not make cgroups, controller by controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub missing: Vec<Missing>,
}

/// One controller that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub controller: &'static str,
    pub why: String,
    /// The command that would change it.
    pub fix: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, missing) in self.missing.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}no controller `{}`: {}", missing.controller, missing.why)?;
        }
        Ok(())
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    /// The first thing to do about it.
    pub fn fix(&self) -> String {
        self.missing.first().map(|missing| missing.fix.clone()).unwrap_or_default()
    }
}
