//! The environment of a run, constructed from nothing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use hotcell_types::Limits;

use super::find::is_system;
use crate::Command;

/// Where programs are looked for inside.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables by which run-times and numeric libraries size their pools of threads. They cannot see
/// the limit themselves: the cgroup's share is not in /proc, and the machine is hidden.
const THREADS: [&str; 7] = [
    "GOMAXPROCS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "RAYON_NUM_THREADS",
];

/// Fewest threads for blocking file and name operations in Node: with one, two operations of which
/// the first waits for the second never end.
const UV_THREADS_LEAST: u32 = 2;

/// Everything that a run's environment contains before the user's own additions.
///
/// Java is not told: its variables make it print a line to stderr, and it reads cgroups itself.
pub fn runtime_env(limits: &Limits) -> BTreeMap<OsString, OsString> {
    let memory = limits.memory.get();
    let threads = limits.cpu.whole();
    let mut env = BTreeMap::from(
        [
            ("HOME", "/tmp".into()),
            ("LANG", "C.UTF-8".into()),
            ("PATH", SEARCH_PATH.into()),
            ("TMPDIR", "/tmp".into()),
            // Otherwise each run that imports one of its inputs leaves a __pycache__ artifact.
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("UV_THREADPOOL_SIZE", threads.max(UV_THREADS_LEAST).to_string()),
            ("NODE_OPTIONS", node_options(memory, threads)),
            // The garbage collector works harder from here on; the rest is stacks and C memory.
            ("GOMEMLIMIT", format!("{}B", part(memory, 9, 10))),
        ]
        .map(|(key, value): (&str, String)| (key.into(), value.into())),
    );
    env.extend(THREADS.map(|key| (key.into(), threads.to_string().into())));
    env
}

/// Three quarters for the heap of JavaScript objects; the rest is the young generation, buffers,
/// code and stacks.
fn node_options(memory: u64, threads: u32) -> String {
    let heap_mib = (part(memory, 3, 4) >> 20).max(1);
    format!("--max-old-space-size={heap_mib} --v8-pool-size={threads}")
}

/// `n * over / under` without overflow.
fn part(n: u64, over: u64, under: u64) -> u64 {
    n / under * over + n % under * over / under
}

/// `PATH` for a command: the directory of its program first, so that `python3` inside is the one
/// that was started.
pub fn search_path(command: &Command) -> OsString {
    let own = command
        .args
        .first()
        .map(Path::new)
        .filter(|p| p.is_absolute())
        .or(Some(&command.program))
        .and_then(Path::parent)
        .filter(|dir| !is_system(dir) && !dir.as_os_str().as_encoded_bytes().contains(&b':'));
    match own {
        Some(dir) => [dir.as_os_str(), OsStr::new(SEARCH_PATH)].join(OsStr::new(":")),
        None => SEARCH_PATH.into(),
    }
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Bytes, Cpus, Template};

    use super::*;

    fn show(limits: &Limits) -> Vec<String> {
        runtime_env(limits)
            .into_iter()
            .map(|(k, v)| format!("{}={}", k.to_str().unwrap(), v.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn runtimes_are_told_their_limits() {
        assert_eq!(
            show(&Template::DEFAULT.limits),
            [
                "GOMAXPROCS=1",
                "GOMEMLIMIT=966367641B",
                "HOME=/tmp",
                "LANG=C.UTF-8",
                "MKL_NUM_THREADS=1",
                "NODE_OPTIONS=--max-old-space-size=768 --v8-pool-size=1",
                "NUMEXPR_NUM_THREADS=1",
                "OMP_NUM_THREADS=1",
                "OPENBLAS_NUM_THREADS=1",
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "PYTHONDONTWRITEBYTECODE=1",
                "PYTHON_CPU_COUNT=1",
                "RAYON_NUM_THREADS=1",
                "TMPDIR=/tmp",
                "UV_THREADPOOL_SIZE=2",
            ]
        );
    }

    #[test]
    fn extreme_limits_do_not_overflow() {
        let mut limits = Template::DEFAULT.limits;
        limits.memory = "9223372036854775807".parse().unwrap();
        limits.cpu = Cpus::thousandths(4_096_000);
        assert!(show(&limits).contains(&"OMP_NUM_THREADS=4096".to_owned()));
        limits.memory = "1".parse::<Bytes>().unwrap();
        assert!(
            show(&limits).iter().any(|v| v.starts_with("NODE_OPTIONS=--max-old-space-size=1 "))
        );
    }

    #[test]
    fn the_interpreter_that_was_started_is_first_on_the_path() {
        let check = |program: &str, argv0: &str, expected: &str| {
            let command = Command {
                program: program.into(),
                args: vec![argv0.into()],
                read_only: vec![],
                tree: None,
                note: None,
                forks: false,
            };
            assert_eq!(search_path(&command), expected, "{program}");
        };
        check("/usr/bin/python3.11", "/usr/bin/python3", SEARCH_PATH);
        check("/usr/bin/ls", "ls", SEARCH_PATH);
        check("/opt/py/bin/python3", "/opt/py/bin/python3", &format!("/opt/py/bin:{SEARCH_PATH}"));
        check("/usr/bin/python3.11", "/srv/v/bin/python", &format!("/srv/v/bin:{SEARCH_PATH}"));
        check("/opt/a:b/bin/x", "x", SEARCH_PATH);
    }
}
