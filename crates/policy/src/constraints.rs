//! What an allow is bound to.

use std::fmt;

use hotcell_types::{Bytes, Count, Cpus, Span, Template};

/// What has to be kept to by whoever carries the call out. `None` says nothing: what held before holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Constraints {
    /// The name of the template that it runs in.
    pub sandbox: Option<&'static str>,
    /// Largest file that it may write.
    pub max_file_size: Option<Bytes>,
    pub memory: Option<Bytes>,
    pub timeout: Option<Span>,
    pub cpu: Option<Cpus>,
    pub processes: Option<Count>,
    pub disk: Option<Bytes>,
    pub output: Option<Bytes>,
}

/// Two rules want different sandboxes, and a call runs in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it would have to run in `{0}` and in `{1}`")]
pub struct TwoSandboxes(pub &'static str, pub &'static str);

impl Constraints {
    /// Both: the tightest of each.
    pub fn and(self, other: Constraints) -> Result<Constraints, TwoSandboxes> {
        let sandbox = match (self.sandbox, other.sandbox) {
            // In this order, whichever comes first.
            (Some(one), Some(two)) if one != two => {
                return Err(TwoSandboxes(one.min(two), one.max(two)));
            }
            (one, two) => one.or(two),
        };
        Ok(Constraints {
            sandbox,
            max_file_size: tightest(self.max_file_size, other.max_file_size),
            memory: tightest(self.memory, other.memory),
            timeout: tightest(self.timeout, other.timeout),
            cpu: tightest(self.cpu, other.cpu),
            processes: tightest(self.processes, other.processes),
            disk: tightest(self.disk, other.disk),
            output: tightest(self.output, other.output),
        })
    }

    pub fn is_empty(&self) -> bool {
        *self == Constraints::default()
    }

    /// The template that it has to run in.
    pub fn template(&self) -> Option<Template> {
        self.sandbox?.parse().ok()
    }
}

fn tightest<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// As they are written in a rule.
impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: Option<String>| value.unwrap_or_default();
        let all = [
            ("sandbox", text(self.sandbox.map(str::to_owned))),
            ("max_file_size", text(self.max_file_size.map(|v| v.to_string()))),
            ("memory", text(self.memory.map(|v| v.to_string()))),
            ("timeout", text(self.timeout.map(|v| v.to_string()))),
            ("cpu", text(self.cpu.map(|v| v.to_string()))),
            ("processes", text(self.processes.map(|v| v.to_string()))),
            ("disk", text(self.disk.map(|v| v.to_string()))),
            ("output", text(self.output.map(|v| v.to_string()))),
        ];
        let set = all.iter().filter(|(_, value)| !value.is_empty());
        let words: Vec<String> = set.map(|(name, value)| format!("{name}: {value}")).collect();
        write!(f, "{}", words.join(", "))
    }
}
