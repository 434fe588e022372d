//! How much a run may use. Every field is a maximum that is enforced; nothing is unlimited.

use std::fmt;

use serde::Serialize;

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
    /// Files and directories in all writable places together.
    pub files: Count,
    /// Descriptors open at one time, per process.
    pub open_files: Count,
    /// Bytes kept of stdout, and of stderr; the rest is counted and dropped.
    pub output: Bytes,
}

/// The limit that ended a run, or that it ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    /// The option of `hotcell run` that sets it.
    pub fn flag(self) -> &'static str {
        match self {
            Limit::Memory => "--mem",
            Limit::Pids => "--pids",
            Limit::Timeout => "--timeout",
            Limit::CpuTime => "--cpu-time",
            Limit::Disk | Limit::FileSize => "--disk",
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
