//! Writes limits and reads back what the kernel made of them.

use std::ffi::CStr;
use std::fmt::Write;

use hotcell_types::{Bytes, Count, Cpus, Limits};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::dir::{Dir, Text};
use super::error::{Cause, CgroupError};
use super::find::{Role, Roles};
use super::parse::{self, Version};

/// Most processes that a kernel can have. `pids.max` takes nothing above it, and nothing above it
/// would be a different limit.
const PIDS_MOST: u64 = 4_194_304;
/// The kernel's own period, in microseconds, which a new v1 cgroup has already.
const PERIOD: u64 = 100_000;
/// For shares below a half, which would otherwise stand still for most of the kernel's period: what has to
/// answer within 100 ms cannot pause for 75.
const SHORT_PERIOD: u64 = 10_000;
const SMALL_SHARE: u64 = 500;
/// The kernel's longest one, for shares whose quota would fall below the least in the usual period.
const LONG_PERIOD: u64 = 1_000_000;
/// The least quota that the kernel takes, in microseconds.
const QUOTA_LEAST: u64 = 1_000;

/// Who dies when there is no memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    /// Everything: what is left of a run is of no use.
    Together,
    /// Who asked for more, and not the others who have this cgroup together.
    Alone,
}

/// Sets the limits that `dir` is there for, and reads back each.
pub(super) fn apply(
    dir: &Dir,
    version: Version,
    roles: Roles,
    limits: &Limits,
    dies: Dies,
) -> Result<(), CgroupError> {
    each(Act::Set, dir, version, roles, limits, dies)
}

/// Whether they still are what they have to be.
pub(super) fn check_all(
    dir: &Dir,
    version: Version,
    roles: Roles,
    limits: &Limits,
    dies: Dies,
) -> Result<(), CgroupError> {
    each(Act::Read, dir, version, roles, limits, dies)
}

/// What is done with a limit. What the kernel then holds is compared in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Set,
    Read,
}

impl Act {
    fn doing(self) -> &'static str {
        match self {
            Act::Set => "set",
            Act::Read => "read back",
        }
    }
}

fn each(
    act: Act,
    dir: &Dir,
    version: Version,
    roles: Roles,
    limits: &Limits,
    dies: Dies,
) -> Result<(), CgroupError> {
    for role in roles.iter() {
        match (role, version) {
            (Role::Memory, Version::V1) => memory_v1(act, dir, limits.memory)?,
            (Role::Memory, Version::V2) => memory_v2(act, dir, limits.memory, dies)?,
            (Role::Pids, _) => pids(act, dir, limits.pids)?,
            (Role::Cpu, Version::V1) => cpu_v1(act, dir, limits.cpu)?,
            (Role::Cpu, Version::V2) => cpu_v2(act, dir, limits.cpu)?,
            (Role::Usage | Role::Freezer, _) => {}
        }
    }
    Ok(())
}

/// The files that hold the limits of a role.
fn files(role: Role, version: Version) -> &'static [&'static CStr] {
    match (role, version) {
        (Role::Memory, Version::V1) => {
            &[c"memory.limit_in_bytes", c"memory.memsw.limit_in_bytes", c"memory.swappiness"]
        }
        (Role::Memory, Version::V2) => &[c"memory.max", c"memory.swap.max", c"memory.oom.group"],
        (Role::Pids, _) => &[c"pids.max"],
        (Role::Cpu, Version::V1) => &[c"cpu.cfs_quota_us", c"cpu.cfs_period_us"],
        (Role::Cpu, Version::V2) => &[c"cpu.max"],
        (Role::Usage | Role::Freezer, _) => &[],
    }
}

/// What the limits are now, controller by controller, as `file=value` with blanks between. A file
/// that this kernel does not have is left out, unless it is the limit itself.
pub(super) fn seen(
    dir: &Dir,
    version: Version,
    roles: Roles,
) -> Result<Vec<(&'static str, String)>, CgroupError> {
    let mut all = Vec::new();
    for role in roles.iter() {
        let mut line = String::new();
        for (i, file) in files(role, version).iter().enumerate() {
            match dir.read(file) {
                Ok(text) => append(&mut line, file, text),
                Err(Errno::NOENT) if i > 0 => {}
                Err(errno) => {
                    let name = name(file);
                    return Err(CgroupError::io("read", role.controller(), &name, errno));
                }
            }
        }
        if !line.is_empty() {
            all.push((role.controller(), line));
        }
    }
    Ok(all)
}

fn append(line: &mut String, file: &CStr, text: Text) {
    if !line.is_empty() {
        line.push(' ');
    }
    line.push_str(&name(file));
    line.push('=');
    line.push_str(&text.to_line());
}

fn memory_v1(act: Act, dir: &Dir, limit: Bytes) -> Result<(), CgroupError> {
    bytes(act, dir, c"memory.limit_in_bytes", limit.get())?;
    // Memory and swap together: the same number leaves nothing for swap.
    swap(act, dir, c"memory.memsw.limit_in_bytes", limit.get())
}

fn memory_v2(act: Act, dir: &Dir, limit: Bytes, dies: Dies) -> Result<(), CgroupError> {
    bytes(act, dir, c"memory.max", limit.get())?;
    swap(act, dir, c"memory.swap.max", 0)?;
    let (group, wanted): (&[u8], _) = match dies {
        Dies::Together => (b"1", 1),
        Dies::Alone => (b"0", 0),
    };
    let is_so = |seen: &[u8]| parse::number(seen) == Some(wanted);
    match one(act, dir, "memory", c"memory.oom.group", group, is_so) {
        // Old kernels kill one process of the run instead of all.
        Err(e) if is_not_there(&e) => Ok(()),
        done => done,
    }
}

/// The file is missing where the kernel does not count swap, which is harmless only without swap.
fn swap(act: Act, dir: &Dir, file: &CStr, value: u64) -> Result<(), CgroupError> {
    match bytes(act, dir, file, value) {
        Err(e) if is_not_there(&e) && swap_is_on() => Err(CgroupError {
            cause: Cause::UncountedSwap,
            fix: "swapoff -a, or boot with swapaccount=1".into(),
            ..e
        }),
        Err(e) if is_not_there(&e) => Ok(()),
        done => done,
    }
}

fn is_not_there(error: &CgroupError) -> bool {
    matches!(&error.cause, Cause::Io(e) if e.kind() == std::io::ErrorKind::NotFound)
}

/// A table that cannot be read counts as full.
fn swap_is_on() -> bool {
    std::fs::read("/proc/swaps").map_or(true, |text| parse::swap_is_on(&text))
}

/// The kernel counts in pages and rounds down; what is beyond its counter reads back as `max`.
fn bytes(act: Act, dir: &Dir, file: &CStr, value: u64) -> Result<(), CgroupError> {
    let page = rustix::param::page_size() as u64;
    let whole_pages = |bytes: u64| bytes - bytes % page;
    let most = whole_pages(i64::MAX as u64);
    let wanted = Some(whole_pages(value));
    let value = DecInt::new(value);
    let is_right = |seen: &[u8]| parse::number_or_max(seen, most) == wanted;
    one(act, dir, "memory", file, value.as_bytes(), is_right)
}

fn pids(act: Act, dir: &Dir, limit: Count) -> Result<(), CgroupError> {
    let limit = limit.get().min(PIDS_MOST);
    let value = DecInt::new(limit);
    let is_limit = |seen: &[u8]| parse::number(seen) == Some(limit);
    one(act, dir, "pids", c"pids.max", value.as_bytes(), is_limit)
}

fn cpu_v1(act: Act, dir: &Dir, share: Cpus) -> Result<(), CgroupError> {
    let (quota, period) = quota(share);
    // A new one has the usual period already.
    let of_period = if period == PERIOD { Act::Read } else { act };
    let value = DecInt::new(period);
    let is_period = |seen: &[u8]| parse::number(seen) == Some(period);
    one(of_period, dir, "cpu", c"cpu.cfs_period_us", value.as_bytes(), is_period)?;
    let value = DecInt::new(quota);
    let is_quota = |seen: &[u8]| parse::number(seen) == Some(quota);
    one(act, dir, "cpu", c"cpu.cfs_quota_us", value.as_bytes(), is_quota)
}

fn cpu_v2(act: Act, dir: &Dir, share: Cpus) -> Result<(), CgroupError> {
    let (quota, period) = quota(share);
    let mut value = String::with_capacity(24);
    // Writing to a string cannot fail; were it cut short, reading back would show it.
    write!(value, "{quota} {period}").ok();
    let is_both = |seen: &[u8]| parse::cpu_max(seen) == Some((quota, period));
    one(act, dir, "cpu", c"cpu.max", value.as_bytes(), is_both)
}

/// Quota and period in microseconds.
fn quota(share: Cpus) -> (u64, u64) {
    let thousandths = u64::from(share.as_thousandths());
    let in_period = |period: u64| (thousandths * (period / 1000), period);
    let first = if thousandths < SMALL_SHARE { SHORT_PERIOD } else { PERIOD };
    let periods = [first, PERIOD].map(in_period);
    let found = periods.into_iter().find(|(quota, _)| *quota >= QUOTA_LEAST);
    found.unwrap_or_else(|| in_period(LONG_PERIOD))
}

/// One limit, and what the kernel holds then.
fn one(
    act: Act,
    dir: &Dir,
    controller: &'static str,
    file: &CStr,
    value: &[u8],
    is_right: impl Fn(&[u8]) -> bool,
) -> Result<(), CgroupError> {
    let seen = match act {
        Act::Set => dir.write_and_read(file, value),
        Act::Read => dir.read(file),
    };
    let seen = seen.map_err(|errno| {
        CgroupError::io(act.doing(), controller, &name(file), errno).with_value(value)
    })?;
    if is_right(seen.as_bytes()) {
        return Ok(());
    }
    Err(CgroupError {
        doing: act.doing(),
        controller,
        file: name(file).into(),
        value: Some(String::from_utf8_lossy(value).into()),
        cause: Cause::ReadBack { seen: seen.to_line().into() },
        fix: match act {
            Act::Set => {
                "report this with the kernel's version (`uname -r`): the limit would not hold"
            }
            Act::Read => {
                "look for what else changes cgroups on this host: the limit was another one when \
                          it was set"
            }
        }
        .into(),
    })
}

fn name(file: &CStr) -> String {
    file.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ALL: Roles = Roles::REQUIRED;

    fn limits(memory: &str, cpu: &str, pids: &str) -> Limits {
        Limits {
            memory: memory.parse().unwrap(),
            cpu: cpu.parse().unwrap(),
            pids: pids.parse().unwrap(),
            ..crate::cgroup::tests::LIMITS
        }
    }

    fn with_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Dir) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let held = Dir::open(dir.path()).unwrap();
        (dir, held)
    }

    fn text(dir: &Path, file: &str) -> String {
        std::fs::read_to_string(dir.join(file)).unwrap()
    }

    const V2_FILES: [(&str, &str); 5] = [
        ("memory.max", ""),
        ("memory.swap.max", ""),
        ("memory.oom.group", ""),
        ("pids.max", ""),
        ("cpu.max", ""),
    ];

    #[test]
    fn v2_gets_every_limit_and_no_swap() {
        let (path, dir) = with_files(&V2_FILES);
        apply(&dir, Version::V2, ALL, &limits("64MiB", "1.5", "32"), Dies::Together).unwrap();
        assert_eq!(text(path.path(), "memory.max"), "67108864");
        assert_eq!(text(path.path(), "memory.swap.max"), "0");
        assert_eq!(text(path.path(), "memory.oom.group"), "1");
        assert_eq!(text(path.path(), "pids.max"), "32");
        assert_eq!(text(path.path(), "cpu.max"), "150000 100000");
        let seen = seen(&dir, Version::V2, ALL).unwrap();
        let line = "memory.max=67108864 memory.swap.max=0 memory.oom.group=1";
        assert_eq!(seen[0], ("memory", line.into()));
        assert_eq!(seen[2], ("cpu", "cpu.max=150000 100000".into()));
    }

    #[test]
    fn where_others_have_it_as_well_who_asks_for_too_much_dies_alone() {
        let (path, dir) = with_files(&V2_FILES);
        let wanted = limits("64MiB", "1.5", "32");
        apply(&dir, Version::V2, ALL, &wanted, Dies::Alone).unwrap();
        assert_eq!(text(path.path(), "memory.oom.group"), "0");
        assert!(check_all(&dir, Version::V2, ALL, &wanted, Dies::Alone).is_ok());
        assert!(check_all(&dir, Version::V2, ALL, &wanted, Dies::Together).is_err());
    }

    #[test]
    fn a_tiny_share_gets_a_longer_period_and_a_huge_count_the_most_there_is() {
        let (path, dir) = with_files(&V2_FILES);
        apply(&dir, Version::V2, ALL, &limits("64MiB", "0.001", "2147483648"), Dies::Together)
            .unwrap();
        assert_eq!(text(path.path(), "cpu.max"), "1000 1000000");
        assert_eq!(text(path.path(), "pids.max"), "4194304");
        assert_eq!(quota("0.01".parse().unwrap()), (1000, 100_000));
        assert_eq!(quota("0.25".parse().unwrap()), (2500, 10_000));
        assert_eq!(quota("0.5".parse().unwrap()), (50_000, 100_000));
        assert_eq!(quota("4096".parse().unwrap()), (409_600_000, 100_000));
    }

    #[test]
    fn a_value_that_the_kernel_changed_is_an_error_that_names_it() {
        // The longer text that was there shows through: the file does not take what is written.
        let (_path, dir) = with_files(&[("pids.max", "99999")]);
        let wanted = limits("64MiB", "1", "32");
        let error = apply(&dir, Version::V2, Roles::of_one(Role::Pids), &wanted, Dies::Together)
            .unwrap_err();
        assert_eq!(error.to_string(), "cannot set `pids.max` of controller `pids` to `32`");
        assert_eq!(error.cause.to_string(), "the kernel holds `32999` instead");
    }

    #[test]
    fn a_limit_that_somebody_changed_afterwards_is_seen_in_every_file() {
        let wanted = limits("64MiB", "0.25", "32");
        let v1 = [
            ("memory.limit_in_bytes", ""),
            ("memory.memsw.limit_in_bytes", ""),
            ("pids.max", ""),
            ("cpu.cfs_period_us", ""),
            ("cpu.cfs_quota_us", ""),
        ];
        for (version, files) in [(Version::V1, v1), (Version::V2, V2_FILES)] {
            let (path, dir) = with_files(&files);
            apply(&dir, version, ALL, &wanted, Dies::Together).unwrap();
            check_all(&dir, version, ALL, &wanted, Dies::Together).unwrap();
            for (file, _) in files {
                let right = text(path.path(), file);
                for wrong in ["max", "0 0", ""] {
                    std::fs::write(path.path().join(file), wrong).unwrap();
                    let error = check_all(&dir, version, ALL, &wanted, Dies::Together).unwrap_err();
                    assert_eq!((error.doing, &*error.file), ("read back", file), "{wrong}");
                }
                std::fs::write(path.path().join(file), right).unwrap();
            }
            check_all(&dir, version, ALL, &wanted, Dies::Together).unwrap();
        }
    }

    #[test]
    fn bytes_that_are_not_whole_pages_are_rounded_down_by_the_kernel() {
        // A file that answers as the kernel would cannot be faked; the comparison can.
        let (_path, dir) = with_files(&[("memory.max", "")]);
        let memory = Roles::of_one(Role::Memory);
        let wanted = limits("4097", "1", "32");
        let error = apply(&dir, Version::V2, memory, &wanted, Dies::Together).unwrap_err();
        assert!(matches!(error.cause, Cause::ReadBack { .. }), "{error:?}");
    }

    #[test]
    fn a_missing_controller_is_named_with_the_file() {
        let (_path, dir) = with_files(&[]);
        let wanted = limits("64MiB", "1", "32");
        let error = apply(&dir, Version::V2, ALL, &wanted, Dies::Together).unwrap_err();
        assert_eq!(error.controller, "memory");
        assert_eq!(&*error.file, "memory.max");
        assert!(error.fix().contains("hotcell doctor"));
    }

    #[test]
    fn v1_gets_every_limit() {
        let (path, dir) = with_files(&[
            ("memory.limit_in_bytes", ""),
            ("memory.memsw.limit_in_bytes", ""),
            ("pids.max", ""),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.cfs_quota_us", ""),
        ]);
        apply(&dir, Version::V1, ALL, &limits("64MiB", "0.5", "32"), Dies::Together).unwrap();
        assert_eq!(text(path.path(), "memory.limit_in_bytes"), "67108864");
        assert_eq!(text(path.path(), "memory.memsw.limit_in_bytes"), "67108864");
        assert_eq!(text(path.path(), "cpu.cfs_quota_us"), "50000");
    }
}
