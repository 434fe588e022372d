//! The one result of a run. Its JSON form is a published contract: docs/result.md.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{LayerReport, Level, Limit};

/// How a run ended. The same words everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The program exited with 0.
    Success,
    /// The program exited with another code.
    Failure,
    /// hotcell itself failed.
    Error,
    Timeout,
    Oom,
    /// Another limit ended it: `Outcome::limit` says which.
    Limit,
    /// A signal ended it that hotcell did not send.
    Killed,
    /// Somebody asked for the end.
    Cancelled,
    /// The policy refused it.
    Blocked,
    /// It waits for somebody to agree.
    Review,
    /// The arguments, or the result, are not what the tool's schema says.
    Invalid,
    /// The tool failed so often that it is left alone for a while.
    CircuitOpen,
    /// hotcell ended between the intent and the outcome.
    Unknown,
}

impl Status {
    pub const ALL: [Status; 13] = [
        Status::Success,
        Status::Failure,
        Status::Error,
        Status::Timeout,
        Status::Oom,
        Status::Limit,
        Status::Killed,
        Status::Cancelled,
        Status::Blocked,
        Status::Review,
        Status::Invalid,
        Status::CircuitOpen,
        Status::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Failure => "failure",
            Status::Error => "error",
            Status::Timeout => "timeout",
            Status::Oom => "oom",
            Status::Limit => "limit",
            Status::Killed => "killed",
            Status::Cancelled => "cancelled",
            Status::Blocked => "blocked",
            Status::Review => "review",
            Status::Invalid => "invalid",
            Status::CircuitOpen => "circuit_open",
            Status::Unknown => "unknown",
        }
    }
}

/// How the program itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(u8),
    Signal(u8),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// `None` when the program never started or its end could not be observed.
    pub exit: Option<Exit>,
    /// The limit that ended the run.
    pub limit: Option<Limit>,
    /// Limits that the program ran into, whether or not they ended it.
    pub limits_hit: Vec<Limit>,
    pub stdout: Output,
    pub stderr: Output,
    /// Files that the run made or changed in its working directory.
    pub artifacts: Vec<Artifact>,
    /// What was there but not taken, and why.
    pub skipped: Vec<Skipped>,
    pub usage: Usage,
    /// Calls that the seccomp profile refused and reported.
    pub blocked_syscalls: Vec<BlockedSyscall>,
    pub level: Level,
    pub layers: Vec<LayerReport>,
    pub timings: Vec<Timing>,
    /// What went out of it and came back, of a run that had a network.
    #[serde(default)]
    pub network: Option<Traffic>,
    /// What was run, and why that one where there was a choice.
    pub interpreter: Option<String>,
    /// What there was before the job came.
    #[serde(default)]
    pub start: Start,
    /// Why `status` is `error`.
    pub error: Option<String>,
}

/// What a run was started from. Whatever it is, the jail is the run's own, with every layer on and read
/// back, and is used once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Nothing: the jail was made for it.
    #[default]
    New,
    /// A jail that waited.
    Ready,
    /// An interpreter that had started, and was forked into a jail made for the run.
    Forked,
    /// The same, made ahead: an interpreter that waited in its jail.
    Waiting,
}

/// What a run did with its network, as it was seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections and requests that were let through, and that were not.
    pub allowed: u64,
    pub refused: u64,
    /// Bytes towards the network, and back.
    pub up: u64,
    pub down: u64,
    /// How often the proxy was lost, and every connection with it.
    #[serde(default)]
    pub lost: u64,
    /// The first of what was refused, each once.
    pub refusals: Vec<Refusal>,
}

/// Something that a run wanted to reach, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub host: String,
    pub why: String,
    pub fix: String,
}

/// A bounded capture of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Invalid UTF-8 is replaced by U+FFFD.
    #[serde(rename = "text", serialize_with = "lossy", deserialize_with = "text")]
    pub bytes: Vec<u8>,
    /// Bytes the program wrote.
    pub total: u64,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Relative to the working directory. Data, never a path to be trusted: U+FFFD replaces what is not UTF-8.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}

/// What the run used. `None` where this host cannot say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_ms: u64,
    pub cpu_ms: Option<u64>,
    pub peak_memory_bytes: Option<u64>,
    /// Most processes and threads at one time.
    pub peak_pids: Option<u64>,
    /// Bytes given to write calls by all processes together.
    pub written_bytes: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedSyscall {
    pub number: u32,
    pub name: Option<Cow<'static, str>>,
    pub count: u64,
}

/// The stages of a run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Finding the interpreter, starting the launcher, making the cgroup.
    Prepare,
    /// Namespaces, mounts, inputs, Landlock, seccomp.
    Build,
    /// Reading back every layer from outside.
    Attest,
    /// From release to the end of the program.
    Execute,
    /// Killing what is left, draining, collecting artifacts, removing the cgroup.
    Finish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    pub stage: Stage,
    pub micros: u64,
}

fn lossy<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&String::from_utf8_lossy(bytes))
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(from).map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_output_is_still_valid_json() {
        let output = Output {
            bytes: b"\x00\xff\x1b[31m\xed\xa0\x80\x1e".to_vec(),
            total: 9,
            truncated: false,
        };
        let json = serde_json::to_string(&output).unwrap();
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["text"], "\u{0}\u{fffd}\u{1b}[31m\u{fffd}\u{fffd}\u{fffd}\u{1e}");
    }
}
