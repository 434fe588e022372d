//! Templates: named limits, network and seccomp profile. The built-in ones are this table.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::{Bytes, Count, Cpus, Limits, Span};

/// A seccomp list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Sockets that are handed to it. For a program of hotcell's own: no template, option or request
    /// names it.
    Airlock,
    /// Compute, memory, time, reading files, open descriptors, AF_UNIX; no fork, no exec after the start.
    Strict,
    /// And fork, execve, writing files, pipes, signals.
    Standard,
    /// And AF_INET, AF_INET6.
    StandardNet,
}

impl Profile {
    /// Whether the start of its program is the only execution that it allows.
    pub fn executes_once(self) -> bool {
        matches!(self, Profile::Airlock | Profile::Strict)
    }
}

/// What a run may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// An empty network namespace.
    None,
    /// Only named hosts, through the proxy.
    Restricted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Template {
    pub name: &'static str,
    pub network: Network,
    pub profile: Profile,
    pub limits: Limits,
}

impl Template {
    /// What `hotcell run` uses when no template is named.
    pub const DEFAULT: Template = Template {
        name: "code-executor",
        network: Network::None,
        profile: Profile::Standard,
        limits: limits(1024, 1000, 100, Span::seconds(300)),
    };

    pub const BUILT_IN: [Template; 5] = [
        Template {
            name: "ai-provider",
            network: Network::Restricted,
            profile: Profile::Strict,
            limits: limits(256, 500, 10, Span::seconds(120)),
        },
        Template::DEFAULT,
        Template {
            name: "policy-sandbox",
            network: Network::None,
            profile: Profile::Strict,
            limits: limits(128, 250, 5, Span::millis(100)),
        },
        Template {
            name: "integration-test",
            network: Network::Restricted,
            profile: Profile::StandardNet,
            limits: limits(1024, 1000, 100, Span::seconds(300)),
        },
        Template {
            name: "tool",
            network: Network::None,
            profile: Profile::Standard,
            limits: limits(512, 500, 64, Span::seconds(30)),
        },
    ];
}

/// The columns of the table that differ; the rest follows from them.
const fn limits(memory_mib: u32, cpu: u32, pids: u32, timeout: Span) -> Limits {
    Limits {
        memory: Bytes::mib(memory_mib),
        cpu: Cpus::thousandths(cpu),
        pids: Count::of(pids),
        timeout,
        cpu_time: None,
        // Files live in memory, so half of it can be files before the program itself feels it.
        disk: Bytes::mib(memory_mib / 2),
        file_size: None,
        files: Count::of(10_000),
        open_files: Count::of(1024),
        output: Bytes::mib(1),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no template `{name}`: the templates are {known}")]
pub struct UnknownTemplate {
    name: String,
    known: String,
}

impl FromStr for Template {
    type Err = UnknownTemplate;

    fn from_str(name: &str) -> Result<Template, UnknownTemplate> {
        Template::BUILT_IN.into_iter().find(|t| t.name == name).ok_or_else(|| UnknownTemplate {
            name: name.into(),
            known: Template::BUILT_IN.map(|t| t.name).join(", "),
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Airlock => "airlock",
            Profile::Strict => "strict",
            Profile::Standard => "standard",
            Profile::StandardNet => "standard-net",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_published_one() {
        let rows = Template::BUILT_IN.map(|t| {
            let l = t.limits;
            format!("{} {} {} {} {} {}", t.name, l.memory, l.cpu, l.pids, l.timeout, t.profile)
        });
        assert_eq!(
            rows,
            [
                "ai-provider 256MiB 0.5 10 2m strict",
                "code-executor 1GiB 1 100 5m standard",
                "policy-sandbox 128MiB 0.25 5 100ms strict",
                "integration-test 1GiB 1 100 5m standard-net",
                "tool 512MiB 0.5 64 30s standard",
            ]
        );
    }

    #[test]
    fn nobody_can_ask_for_the_profile_that_is_hotcells_own() {
        assert!(Profile::Airlock.to_string().parse::<Template>().is_err());
        assert!(Template::BUILT_IN.iter().all(|t| t.profile != Profile::Airlock));
    }

    #[test]
    fn an_unknown_template_lists_the_known_ones() {
        let error = "code_executor".parse::<Template>().unwrap_err().to_string();
        assert!(error.contains("`code_executor`") && error.contains("code-executor"), "{error}");
    }
}
