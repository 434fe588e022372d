//! How much a run may use. Every field is a maximum that is enforced; nothing is unlimited.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Count, Cpus, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// All memory that the kernel holds for the run, files in its writable places included; no swap.
    pub memory: Bytes,
    /// Share of processors.
    pub cpu: Cpus,
    /// Processes and threads at one time.
    pub pids: Count,
    /// Wall time.
    pub timeout: Span,
    /// Processor time of all processes together.
    pub cpu_time: Option<Span>,
    /// Bytes in all writable places together.
    pub disk: Bytes,
    /// Largest file that it may write, where that is less than all of `disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Bytes>,
    /// Files and directories in all writable places together.
    pub files: Count,
    /// Descriptors open at one time, per process.
    pub open_files: Count,
    /// Bytes kept of stdout, and of stderr; the rest is counted and dropped.
    pub output: Bytes,
}

/// Limits of which not all are said: what a call asks for, or the most that an operator lets it have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SomeLimits {
    pub memory: Option<Bytes>,
    pub cpu: Option<Cpus>,
    pub pids: Option<Count>,
    pub timeout: Option<Span>,
    pub cpu_time: Option<Span>,
    pub disk: Option<Bytes>,
    pub files: Option<Count>,
    pub open_files: Option<Count>,
    pub output: Option<Bytes>,
}

/// A limit that is asked for and is above the most.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked} of `{limit}` is above the most that is allowed, {most}")]
pub struct Above {
    /// As the fields of [`Limits`] are called.
    pub limit: &'static str,
    pub asked: String,
    pub most: String,
}

impl SomeLimits {
    /// These where they say something, and those of `base` otherwise.
    pub fn over(self, base: Limits) -> Limits {
        Limits {
            memory: self.memory.unwrap_or(base.memory),
            cpu: self.cpu.unwrap_or(base.cpu),
            pids: self.pids.unwrap_or(base.pids),
            timeout: self.timeout.unwrap_or(base.timeout),
            cpu_time: self.cpu_time.or(base.cpu_time),
            disk: self.disk.unwrap_or(base.disk),
            file_size: base.file_size,
            files: self.files.unwrap_or(base.files),
            open_files: self.open_files.unwrap_or(base.open_files),
            output: self.output.unwrap_or(base.output),
        }
    }

    /// The lower of each.
    pub fn and(self, other: SomeLimits) -> SomeLimits {
        SomeLimits {
            memory: lower(self.memory, other.memory),
            cpu: lower(self.cpu, other.cpu),
            pids: lower(self.pids, other.pids),
            timeout: lower(self.timeout, other.timeout),
            cpu_time: lower(self.cpu_time, other.cpu_time),
            disk: lower(self.disk, other.disk),
            files: lower(self.files, other.files),
            open_files: lower(self.open_files, other.open_files),
            output: lower(self.output, other.output),
        }
    }

    /// Limits with none above these.
    pub fn cap(self, limits: Limits) -> Limits {
        self.and(limits.into()).over(limits)
    }

    /// The first that is above the same one of `most`.
    pub fn above(&self, most: &SomeLimits) -> Option<Above> {
        let pairs = self.each().into_iter().zip(most.each());
        pairs
            .filter_map(|((limit, asked), (_, most))| Some((limit, asked?, most?)))
            .find(|(_, asked, most)| asked.0 > most.0)
            .map(|(limit, (_, asked), (_, most))| Above { limit, asked, most })
    }

    /// Those that are said, by name.
    pub fn said(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.each().into_iter().filter_map(|(name, said)| Some((name, said?.1)))
    }

    fn each(&self) -> [(&'static str, Said); 9] {
        let bytes = |limit: Option<Bytes>| limit.map(|limit| (limit.get(), limit.to_string()));
        let count = |limit: Option<Count>| limit.map(|limit| (limit.get(), limit.to_string()));
        let span = |limit: Option<Span>| limit.map(|limit| (limit.as_millis(), limit.to_string()));
        let cpus = self.cpu.map(|limit| (limit.as_thousandths().into(), limit.to_string()));
        [
            ("memory", bytes(self.memory)),
            ("cpu", cpus),
            ("pids", count(self.pids)),
            ("timeout", span(self.timeout)),
            ("cpu_time", span(self.cpu_time)),
            ("disk", bytes(self.disk)),
            ("files", count(self.files)),
            ("open_files", count(self.open_files)),
            ("output", bytes(self.output)),
        ]
    }
}

/// A value as a number to compare, and as people write it.
type Said = Option<(u64, String)>;

fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl From<Limits> for SomeLimits {
    fn from(limits: Limits) -> SomeLimits {
        SomeLimits {
            memory: Some(limits.memory),
            cpu: Some(limits.cpu),
            pids: Some(limits.pids),
            timeout: Some(limits.timeout),
            cpu_time: limits.cpu_time,
            disk: Some(limits.disk),
            files: Some(limits.files),
            open_files: Some(limits.open_files),
            output: Some(limits.output),
        }
    }
}

/// The limit that ended a run, or that it ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Memory,
    Pids,
    Timeout,
    CpuTime,
    Disk,
    Files,
    FileSize,
    Output,
}

impl Limit {
    /// The option of `hotcell run` that sets it, or what else does.
    pub fn flag(self) -> &'static str {
        match self {
            Limit::Memory => "--mem",
            Limit::Pids => "--pids",
            Limit::Timeout => "--timeout",
            Limit::CpuTime => "--cpu-time",
            Limit::Disk => "--disk",
            Limit::FileSize => "`max_file_size` in the policy",
            Limit::Files => "--files",
            Limit::Output => "--max-output",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Memory => "memory",
            Limit::Pids => "processes",
            Limit::Timeout => "wall time",
            Limit::CpuTime => "processor time",
            Limit::Disk => "disk",
            Limit::Files => "number of files",
            Limit::FileSize => "file size",
            Limit::Output => "output",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Template;

    #[test]
    fn what_is_not_asked_for_is_lowered_to_the_ceiling_and_what_is_asked_for_is_compared_with_it() {
        let ceiling = SomeLimits {
            memory: Some(Bytes::mib(256)),
            cpu_time: Some(Span::seconds(7)),
            pids: Some(Count::of(1000)),
            ..SomeLimits::default()
        };
        let usual = Template::DEFAULT.limits;
        let capped = ceiling.cap(usual);
        let expected =
            Limits { memory: Bytes::mib(256), cpu_time: Some(Span::seconds(7)), ..usual };
        assert_eq!(capped, expected);
        let asks =
            |memory| SomeLimits { memory: Some(Bytes::mib(memory)), ..SomeLimits::default() };
        assert_eq!(asks(256).above(&ceiling), None);
        assert_eq!(asks(1 << 20).above(&SomeLimits::default()), None);
        let above = asks(257).above(&ceiling).unwrap();
        assert_eq!(
            above.to_string(),
            "257MiB of `memory` is above the most that is allowed, 256MiB"
        );
        assert_eq!(asks(1).over(capped).memory, Bytes::mib(1));
        assert_eq!(SomeLimits::from(usual).and(ceiling).memory, ceiling.memory);
    }
}
