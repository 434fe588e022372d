//! How short the machine, or the cgroup that this process is in, is of memory. What was made ahead is the
//! first thing to go.

use std::fs;
use std::path::{Path, PathBuf};

/// Of a hundred parts of memory, how many are used where it begins to matter, and where it is urgent.
const TIGHT_FROM: u64 = 80;
const SHORT_FROM: u64 = 90;
/// Of the last ten seconds, the share that somebody waited for memory, in hundredths.
const STALLED_FROM: f64 = 10.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    None,
    Tight,
    Short,
}

impl Pressure {
    /// As it is now. What cannot be read says nothing.
    pub(crate) fn now() -> Pressure {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let meminfo = read("/proc/meminfo");
        let machine = of_machine(&meminfo);
        // A run that waits at its own limit is no reason to take something from the others.
        let is_half_used = use_of_machine(&meminfo).is_some_and(|(used, most)| used > most / 2);
        let stalls = if is_half_used { read("/proc/pressure/memory") } else { String::new() };
        let stalls = of_stalls(&stalls);
        machine.max(stalls).max(of_own_cgroups(&read("/proc/self/cgroup")))
    }

    fn of_use(used: u64, most: u64) -> Pressure {
        let reaches = |part: u64| used >= most / 100 * part;
        match most {
            0 => Pressure::None,
            _ if reaches(SHORT_FROM) => Pressure::Short,
            _ if reaches(TIGHT_FROM) => Pressure::Tight,
            _ => Pressure::None,
        }
    }
}

fn of_machine(meminfo: &str) -> Pressure {
    use_of_machine(meminfo).map_or(Pressure::None, |(used, most)| Pressure::of_use(used, most))
}

fn use_of_machine(meminfo: &str) -> Option<(u64, u64)> {
    let total = number_after(meminfo, "MemTotal:")?;
    let available = number_after(meminfo, "MemAvailable:")?;
    Some((total.saturating_sub(available), total))
}

/// Where the kernel says how long anybody waits for memory, and how long everybody does.
fn of_stalls(pressure: &str) -> Pressure {
    let average = |kind: &str| {
        let line = pressure.lines().find_map(|line| line.strip_prefix(kind))?;
        let value = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        value.parse::<f64>().ok()
    };
    let stalls = |kind: &str| average(kind).is_some_and(|share| share >= STALLED_FROM);
    match (stalls("full "), stalls("some ")) {
        (true, _) => Pressure::Short,
        (false, true) => Pressure::Tight,
        (false, false) => Pressure::None,
    }
}

/// Of this process's cgroup and all above it, the one that is nearest to its limit.
fn of_own_cgroups(own: &str) -> Pressure {
    let places = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next()?, fields.next()?) {
            ("", path) => Some(("/sys/fs/cgroup", path, V2)),
            (names, path) if names.split(',').any(|name| name == "memory") => {
                Some(("/sys/fs/cgroup/memory", path, V1))
            }
            _ => None,
        }
    });
    let each = places.flat_map(|(root, path, files)| {
        let path = Path::new(path.trim_start_matches('/')).to_owned();
        let above: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        above.into_iter().map(move |dir| of_cgroup(&Path::new(root).join(dir), &files))
    });
    each.max().unwrap_or(Pressure::None)
}

/// Names of files: what is used, the most of it, and the field of what could be given back at once.
struct Files {
    used: &'static str,
    most: &'static str,
    idle: &'static str,
}

const V2: Files = Files { used: "memory.current", most: "memory.max", idle: "inactive_file " };
const V1: Files = Files {
    used: "memory.usage_in_bytes",
    most: "memory.limit_in_bytes",
    idle: "total_inactive_file ",
};

fn of_cgroup(dir: &Path, files: &Files) -> Pressure {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (Some(used), Some(most)) = (number(files.used), number(files.most)) else {
        return Pressure::None;
    };
    let idle = read("memory.stat").and_then(|text| number_after(&text, files.idle));
    Pressure::of_use(used.saturating_sub(idle.unwrap_or(0)), most)
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_tight_at_80_and_short_at_90() {
        for (available, expected) in [
            (500, Pressure::None),
            (201, Pressure::None),
            (200, Pressure::Tight),
            (99, Pressure::Short),
        ] {
            let text = format!("MemTotal:       1000 kB\nMemAvailable:    {available} kB\n");
            assert_eq!(of_machine(&text), expected, "{available}");
        }
        assert_eq!(of_machine("MemTotal: 1000 kB"), Pressure::None);
    }

    #[test]
    fn who_waits_for_memory_is_short_of_it() {
        let text = |some: &str, full: &str| {
            format!("some avg10={some} avg60=0.00 total=1\nfull avg10={full} avg60=0.00 total=1\n")
        };
        assert_eq!(of_stalls(&text("0.00", "0.00")), Pressure::None);
        assert_eq!(of_stalls(&text("12.50", "3.00")), Pressure::Tight);
        assert_eq!(of_stalls(&text("40.00", "20.00")), Pressure::Short);
        assert_eq!(of_stalls(""), Pressure::None);
    }

    #[test]
    fn a_cgroup_counts_without_what_it_could_give_back() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("memory.current", "950\n");
        write("memory.max", "1000\n");
        write("memory.stat", "anon 1\ninactive_file 0\n");
        assert_eq!(of_cgroup(dir.path(), &V2), Pressure::Short);
        write("memory.stat", "inactive_file 140\n");
        assert_eq!(of_cgroup(dir.path(), &V2), Pressure::Tight);
        write("memory.stat", "inactive_file 500\n");
        assert_eq!(of_cgroup(dir.path(), &V2), Pressure::None);
        write("memory.max", "max\n");
        assert_eq!(of_cgroup(dir.path(), &V2), Pressure::None);
    }
}
