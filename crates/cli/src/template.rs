//! `hotcell template`: the named sets of limits.

use hotcell_types::{Network, Template};

use crate::print;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the templates
    ///
    /// `restricted`: a run reaches the hosts that the policy allows, through hotcell's proxy, and nothing else
    /// (docs/network.md).
    Ls(LsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    match command {
        Command::Ls(args) if args.json => print::data(&json()),
        Command::Ls(_) => print::data(&table()),
    }
}

fn json() -> String {
    let document = serde_json::json!({ "version": 1, "templates": Template::BUILT_IN });
    format!("{document:#}\n")
}

fn table() -> String {
    let head = ["NAME", "NETWORK", "MEM", "CPU", "PIDS", "TIMEOUT", "DISK", "SECCOMP"];
    let mut rows = vec![head.map(String::from)];
    rows.extend(Template::BUILT_IN.map(|t| row(&t)));
    let mut text = String::new();
    for [name, network, memory, cpu, pids, timeout, disk, seccomp] in rows {
        text.push_str(&format!(
            "{name:<17} {network:<11} {memory:<7} {cpu:<5} {pids:<5} {timeout:<8} {disk:<7} {seccomp}\n"
        ));
    }
    text
}

fn row(template: &Template) -> [String; 8] {
    let l = &template.limits;
    [
        template.name.into(),
        match template.network {
            Network::None => "none".into(),
            Network::Restricted => "restricted".into(),
        },
        l.memory.to_string(),
        l.cpu.to_string(),
        l.pids.to_string(),
        l.timeout.to_string(),
        l.disk.to_string(),
        template.profile.to_string(),
    ]
}
