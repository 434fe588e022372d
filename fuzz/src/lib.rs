//! What is fuzzed: plain functions that take bytes, panic when something does not hold, and return a
//! number that tells outcomes apart, by which a driver without coverage can keep what is interesting.
//!
//! Not reachable from here: the readers of kernel texts in `hotcell-sandbox::cgroup::parse` and
//! `hotcell-jail::proc`, the `#!` line itself, and the configuration file, which is fuzzed through the
//! binary (crates/cli/tests/config_fuzz.rs).

mod access;
mod airlock;
mod approver;
mod bearer;
mod egress;
mod extension;
mod home;
mod lang;
mod policy;
mod request;
mod seccomp;
mod socket;
mod text;
mod wire;

pub use access::api_key;
pub use airlock::{
    airlock_chunked, airlock_hello, airlock_packet, airlock_request, airlock_response,
    airlock_socks,
};
pub use approver::{approver_key, approver_lines};
pub use bearer::bearer;
pub use egress::{egress_body, egress_found, egress_head, egress_url};
pub use extension::{evaluator_answer, evaluator_request, strip};
pub use home::{backup, checkpoint, requirement};
pub use lang::{language, run_env};
pub use policy::{expectation, glob, rule_file, when};
pub use request::{batch_lines, call, request, schema, tool};
pub use seccomp::seccomp;
pub use socket::socket_frame;
pub use text::{names, units};
pub use wire::{wire_job, wire_order, wire_report, wire_setup, wire_supplies, wire_zygote};

/// A target by its name, with inputs to begin from.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]) -> u64,
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: [Target; 41] = [
    Target { name: "units", run: units, seeds: text::unit_seeds },
    Target { name: "names", run: names, seeds: text::name_seeds },
    Target { name: "approver_key", run: approver_key, seeds: approver::key_seeds },
    Target { name: "approver_lines", run: approver_lines, seeds: approver::line_seeds },
    Target { name: "language", run: language, seeds: lang::language_seeds },
    Target { name: "run_env", run: run_env, seeds: lang::env_seeds },
    Target { name: "wire_setup", run: wire_setup, seeds: wire::setup_seeds },
    Target { name: "wire_order", run: wire_order, seeds: wire::order_seeds },
    Target { name: "wire_zygote", run: wire_zygote, seeds: wire::zygote_seeds },
    Target { name: "wire_job", run: wire_job, seeds: wire::job_seeds },
    Target { name: "wire_report", run: wire_report, seeds: wire::report_seeds },
    Target { name: "wire_supplies", run: wire_supplies, seeds: wire::supplies_seeds },
    Target { name: "bearer", run: bearer, seeds: bearer::bearer_seeds },
    Target { name: "api_key", run: api_key, seeds: access::key_seeds },
    Target { name: "strip", run: strip, seeds: extension::strip_seeds },
    Target { name: "evaluator_request", run: evaluator_request, seeds: extension::request_seeds },
    Target { name: "evaluator_answer", run: evaluator_answer, seeds: extension::answer_seeds },
    Target { name: "glob", run: glob, seeds: policy::glob_seeds },
    Target { name: "rule_file", run: rule_file, seeds: policy::file_seeds },
    Target { name: "when", run: when, seeds: policy::when_seeds },
    Target { name: "expectation", run: expectation, seeds: policy::expectation_seeds },
    Target { name: "request", run: request, seeds: request::request_seeds },
    Target { name: "call", run: call, seeds: request::call_seeds },
    Target { name: "tool", run: tool, seeds: request::tool_seeds },
    Target { name: "schema", run: schema, seeds: request::schema_seeds },
    Target { name: "batch_lines", run: batch_lines, seeds: request::batch_seeds },
    Target { name: "checkpoint", run: checkpoint, seeds: home::checkpoint_seeds },
    Target { name: "backup", run: backup, seeds: home::backup_seeds },
    Target { name: "requirement", run: requirement, seeds: home::requirement_seeds },
    Target { name: "socket_frame", run: socket_frame, seeds: socket::seeds },
    Target { name: "airlock_request", run: airlock_request, seeds: airlock::request_seeds },
    Target { name: "airlock_response", run: airlock_response, seeds: airlock::response_seeds },
    Target { name: "airlock_chunked", run: airlock_chunked, seeds: airlock::chunked_seeds },
    Target { name: "airlock_hello", run: airlock_hello, seeds: airlock::hello_seeds },
    Target { name: "airlock_socks", run: airlock_socks, seeds: airlock::socks_seeds },
    Target { name: "airlock_packet", run: airlock_packet, seeds: airlock::packet_seeds },
    Target { name: "egress_head", run: egress_head, seeds: egress::head_seeds },
    Target { name: "egress_body", run: egress_body, seeds: egress::body_seeds },
    Target { name: "egress_url", run: egress_url, seeds: egress::url_seeds },
    Target { name: "egress_found", run: egress_found, seeds: egress::found_seeds },
    Target { name: "seccomp", run: seccomp, seeds: seccomp::seeds },
];

/// The outcome of several questions as one number.
fn outcome(answers: &[bool]) -> u64 {
    answers.iter().fold(1, |all, &answer| all << 1 | u64::from(answer))
}
