//! What a process with an open engine has of memory, before and after many calls.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Role;
use super::calls::Calls;
use crate::peers::Failure;

/// After so many, everything is there that is made with its first use.
const FIRST: usize = 1000;
/// One call in so many is durable.
const DURABLE: usize = 10;

/// What a process has, in kilobytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    /// All pages that are there, shared ones included.
    pub(crate) rss: f64,
    /// The same, where a page that others have too counts in part.
    pub(crate) pss: f64,
    /// Pages that no other process has.
    pub(crate) private: f64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Memory, Failure> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let sum = |name: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).sum()
        };
        Ok(Memory { rss: sum("Rss:"), pss: sum("Pss:"), private: sum("Private_") })
    }
}

#[derive(Debug)]
pub(super) struct Idle {
    /// How many calls came before, and what was there then.
    pub(super) after: Vec<(usize, Memory)>,
}

pub(super) fn measure(home: &Path, calls: usize) -> Result<Idle, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg(Role::Idle.name())
        .arg(home)
        .arg(calls.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the process with an open engine ended with {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(Idle { after: text.lines().map(read).collect::<Result<_, _>>()? })
}

/// `calls rss pss private`.
fn read(line: &str) -> Result<(usize, Memory), Failure> {
    let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let &[calls, rss, pss, private] = numbers.as_slice() else {
        return Err(format!("the process with an open engine printed `{line}`").into());
    };
    Ok((calls as usize, Memory { rss, pss, private }))
}

/// What the other process does.
pub(super) fn tell(words: &[OsString]) -> Result<(), Failure> {
    let [home, calls] = words else { return Err("a home and a number of calls".into()) };
    let total = calls.to_str().unwrap_or_default().parse()?;
    let calls = Calls::open(Path::new(home))?;
    let mut made = 0;
    for until in [0, FIRST.min(total), total] {
        for number in made..until {
            let called = if number % DURABLE == 0 { calls.write_once() } else { calls.add_once() };
            drop(called?);
        }
        made = until;
        if made > 0 {
            calls.write_rest()?;
        }
        let Memory { rss, pss, private } = Memory::of(std::process::id())?;
        println!("{made} {rss} {pss} {private}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_four_numbers() {
        let memory = Memory { rss: 10.0, pss: 9.5, private: 8.0 };
        assert_eq!(read("1000 10 9.5 8").unwrap(), (1000, memory));
        assert!(read("1000 10 9.5").is_err() && read("1000 10 9.5 x").is_err());
    }

    #[test]
    fn this_process_has_memory() {
        let own = Memory::of(std::process::id()).unwrap();
        assert!(own.rss >= own.pss && own.pss >= own.private && own.private > 0.0, "{own:?}");
    }
}
