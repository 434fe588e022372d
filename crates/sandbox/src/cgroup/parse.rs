//! The texts of the kernel as values. Pure, and total: garbage gives nothing, never a panic.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What `max` stands for in a file that takes a number.
const NO_LIMIT: &[u8] = b"max";

/// One mounted cgroup hierarchy, from `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) version: Version,
    /// The cgroup that is shown at `point`; not `/` in a container without a cgroup namespace.
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    /// The controllers and options of a v1 hierarchy.
    pub(super) options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// One line of `/proc/self/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// Empty for v2. v1 joins several with commas when they share a hierarchy.
    pub(super) controllers: Vec<String>,
    pub(super) path: PathBuf,
}

impl Membership {
    pub(super) fn version(&self) -> Version {
        if self.controllers.is_empty() { Version::V2 } else { Version::V1 }
    }
}

/// The cgroup mounts, in mount order. Later mounts on one point hide earlier ones.
pub(super) fn mounts(mountinfo: &[u8]) -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    for mount in mountinfo.split(|&b| b == b'\n').filter_map(mount) {
        found.retain(|earlier| earlier.point != mount.point);
        found.push(mount);
    }
    found
}

/// `36 35 98:0 /root /point opts [optional…] - type source super-options`
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ').filter(|f| !f.is_empty());
    let root = fields.nth(3)?;
    let point = fields.next()?;
    // Any number of optional fields, none included, ends with a lone hyphen.
    fields.by_ref().find(|f| *f == b"-")?;
    let version = match fields.next()? {
        b"cgroup" => Version::V1,
        b"cgroup2" => Version::V2,
        _ => return None,
    };
    let options = fields.nth(1).unwrap_or_default();
    Some(Mount {
        version,
        root: unescaped(root),
        point: unescaped(point),
        options: words(options, b',').collect(),
    })
}

/// Undoes `\040` and its like; anything else that follows a backslash stays as it is.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.split_first_chunk().and_then(octal)).flatten();
        match octal {
            Some((byte, after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal<'a>((digits, after): (&[u8; 3], &'a [u8])) -> Option<(u8, &'a [u8])> {
    let text = std::str::from_utf8(digits).ok().filter(|t| !t.starts_with('+'))?;
    Some((u8::from_str_radix(text, 8).ok()?, after))
}

/// Where this process is, in every hierarchy.
pub(super) fn memberships(proc_cgroup: &[u8]) -> Vec<Membership> {
    proc_cgroup.split(|&b| b == b'\n').filter_map(membership).collect()
}

/// `4:cpu,cpuacct:/path`, `0::/path`; the path may hold colons.
fn membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |&b| b == b':');
    let id = number(fields.next()?)?;
    let controllers: Vec<String> = words(fields.next()?, b',').collect();
    let path = fields.next()?;
    // Id 0 is v2 and only v2; a line that says both or neither is not the kernel's.
    if !path.starts_with(b"/") || controllers.is_empty() != (id == 0) {
        return None;
    }
    Some(Membership { controllers, path: PathBuf::from(OsString::from_vec(path.to_vec())) })
}

fn words(text: &[u8], separator: u8) -> impl Iterator<Item = String> + '_ {
    text.split(move |&b| b == separator)
        .filter(|w| !w.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
}

/// Whether a list with blanks between (`cgroup.controllers`) names `wanted`.
pub(super) fn lists(text: &[u8], wanted: &str) -> bool {
    text.split(u8::is_ascii_whitespace).any(|word| word == wanted.as_bytes())
}

/// The value of `key` in lines of `key value` (`memory.events`, `cpu.stat`, `pids.events`,
/// `memory.oom_control`, `cgroup.events`).
pub(super) fn keyed(text: &[u8], key: &str) -> Option<u64> {
    text.split(|&b| b == b'\n').find_map(|line| {
        let value = line.strip_prefix(key.as_bytes())?.strip_prefix(b" ")?;
        number(value)
    })
}

/// A whole number, blanks around it allowed, signs and `max` not.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A number where `max` means `most`.
pub(super) fn number_or_max(text: &[u8], most: u64) -> Option<u64> {
    if text.trim_ascii() == NO_LIMIT { Some(most) } else { number(text) }
}

/// `quota period` of `cpu.max`; no limit is `None`.
pub(super) fn cpu_max(text: &[u8]) -> Option<(u64, u64)> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    Some((number(words.next()?)?, number(words.next()?)?))
}

/// The processes of `cgroup.procs`. One that this pid namespace does not show is 0.
pub(super) fn pids(text: &[u8]) -> impl Iterator<Item = u32> + '_ {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| number(line).and_then(|n| u32::try_from(n).ok()))
}

/// Whether `/proc/cgroups` says that the kernel has `controller` and was told not to use it.
pub(super) fn is_disabled(proc_cgroups: &[u8], controller: &str) -> bool {
    proc_cgroups.split(|&b| b == b'\n').any(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        words.next() == Some(controller.as_bytes()) && words.nth(2) == Some(b"0")
    })
}

/// Whether `/proc/swaps` lists anything below its heading.
pub(super) fn swap_is_on(proc_swaps: &[u8]) -> bool {
    proc_swaps.split(|&b| b == b'\n').skip(1).any(|line| !line.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn membership_of(line: &str) -> Option<(Vec<String>, PathBuf)> {
        memberships(line.as_bytes()).pop().map(|m| (m.controllers, m.path))
    }

    #[test]
    fn mounts_of_a_legacy_host_with_joined_controllers() {
        let text = b"25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            31 23 0:28 / /sys/fs/cgroup ro,relatime shared:9 master:2 - tmpfs tmpfs ro,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = mounts(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].version, Version::V1);
        assert_eq!(found[0].point, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found[0].options, ["rw", "cpu", "cpuacct"]);
        assert_eq!(found[1].version, Version::V2);
    }

    #[test]
    fn a_mount_point_with_blanks_and_backslashes_is_unescaped() {
        let found = mounts(b"1 2 0:3 /a\\134b /m\\040n\\011\\012x rw - cgroup2 none rw");
        assert_eq!(found[0].root, PathBuf::from("/a\\b"));
        assert_eq!(found[0].point, PathBuf::from("/m n\t\nx"));
        // Not octal, or cut short: kept as it is.
        let odd = mounts(b"1 2 0:3 / /m\\9\\04 rw - cgroup2 none rw");
        assert_eq!(odd[0].point, PathBuf::from("/m\\9\\04"));
        assert_eq!(mounts(b"1 2 0:3 / /m\\777\\+12 rw - cgroup2 n rw")[0].point, {
            PathBuf::from("/m\\777\\+12")
        });
    }

    #[test]
    fn the_last_mount_on_a_point_is_the_one_that_shows() {
        let found = mounts(b"1 2 0:3 / /m rw - cgroup c rw,pids\n4 1 0:5 / /m rw - cgroup2 c rw\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].version, Version::V2);
    }

    #[test]
    fn lines_that_are_not_mountinfo_are_passed_over() {
        for line in ["", "1", "1 2 0:3 / /m rw cgroup2 none rw", "1 2 0:3 / /m rw -", "- - - - -"] {
            assert_eq!(mounts(line.as_bytes()), [], "{line}");
        }
        // Options may be missing without harm.
        assert_eq!(mounts(b"1 2 0:3 / /m rw - cgroup2 none").len(), 1);
    }

    #[test]
    fn memberships_split_joined_controllers_and_keep_colons_in_paths() {
        let joined = membership_of("4:cpu,cpuacct:/a:b").unwrap();
        assert_eq!(joined, (vec!["cpu".into(), "cpuacct".into()], "/a:b".into()));
        assert_eq!(membership_of("0::/").unwrap().1, PathBuf::from("/"));
        assert_eq!(membership_of("9:name=systemd:/x").unwrap().0, ["name=systemd"]);
        for line in ["", "0:", "0::", "0::relative", "x::/a", "0:memory:/a", "7::/a", "-1:cpu:/"] {
            assert_eq!(membership_of(line), None, "{line}");
        }
    }

    #[test]
    fn keyed_values_need_the_whole_key_and_a_number() {
        let text =
            b"oom_kill_disable 0\nunder_oom 1\noom_kill 7\nbig 18446744073709551616\nmax max";
        assert_eq!(keyed(text, "oom_kill"), Some(7));
        assert_eq!(keyed(text, "oom"), None);
        assert_eq!(keyed(text, "big"), None);
        assert_eq!(keyed(text, "max"), None);
        assert_eq!(keyed(b"", "max"), None);
        assert_eq!(keyed(b"max 3", "max"), Some(3));
    }

    #[test]
    fn numbers_take_no_signs_and_do_not_wrap() {
        for (text, value) in [("12\n", Some(12)), ("", None), ("-1", None), ("+1", None)] {
            assert_eq!(number(text.as_bytes()), value, "{text}");
        }
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number_or_max(b"max\n", 9), Some(9));
        assert_eq!(cpu_max(b"50000 100000\n"), Some((50_000, 100_000)));
        assert_eq!(cpu_max(b"max 100000\n"), None);
        assert_eq!(cpu_max(b"50000"), None);
    }

    #[test]
    fn pids_and_swaps_and_lists() {
        assert_eq!(pids(b"1\n0\nx\n4294967296\n77\n").collect::<Vec<_>>(), [1, 0, 77]);
        assert!(!swap_is_on(b"Filename Type Size Used Priority\n"));
        assert!(!swap_is_on(b""));
        assert!(swap_is_on(b"Filename Type\n/swap file 1 0 -2\n"));
        assert!(lists(b"cpuset cpu io\n", "cpu"));
        assert!(!lists(b"cpuset io\n", "cpu"));
        let table = b"#subsys_name\thierarchy\tnum\tenabled\nmemory\t0\t1\t0\npids\t8\t1\t1\nx";
        assert!(is_disabled(table, "memory"));
        assert!(!is_disabled(table, "pids") && !is_disabled(table, "x") && !is_disabled(b"", "x"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>, key in "[a-z_]{0,8}") {
            mounts(&text);
            memberships(&text);
            keyed(&text, &key);
            number_or_max(&text, 1);
            cpu_max(&text);
            pids(&text).count();
            swap_is_on(&text);
            lists(&text, &key);
            is_disabled(&text, &key);
        }

        #[test]
        fn nothing_panics_on_almost_right_lines(
            root in "[/a-z\\\\0-9]{0,12}", kind in "cgroup2?|tmpfs", tail in "[ -~]{0,20}"
        ) {
            mounts(format!("1 2 3:4 {root} {root} rw - {kind} none {tail}").as_bytes());
            memberships(format!("3:{tail}:{root}\n0::{root}").as_bytes());
        }

        #[test]
        fn any_point_survives_the_escaping_of_the_kernel(point in "/[a-z \t\n\\\\]{0,12}") {
            let mut escaped = String::new();
            for c in point.chars() {
                match c {
                    ' ' | '\t' | '\n' | '\\' => escaped.push_str(&format!("\\{:03o}", c as u32)),
                    c => escaped.push(c),
                }
            }
            let found = mounts(format!("1 2 3:4 / {escaped} rw - cgroup2 none rw").as_bytes());
            prop_assert_eq!(&found[0].point, &PathBuf::from(point));
        }
    }
}
