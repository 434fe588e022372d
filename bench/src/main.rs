//! Measures hotcell beside its peers, in parts: the sandbox beside bare execution, bubblewrap and docker;
//! the path and its record beside SQLite, a socket and a sandbox without them; the doors beside a bare server
//! and beside no door; warm starts beside others; a program in a sandbox that stays. Everything that is compared runs in turns in one run, so
//! that the ratios hold even where the times do not. `README.md` says how to read the result.

mod docker;
mod doors;
mod host;
mod layers;
mod memory;
mod path;
mod peers;
mod report;
mod rounds;
mod scratch;
mod stats;
mod stay;
mod warm;

use std::process::ExitCode;

use hotcell_sandbox::lang::Language;

use docker::Docker;
use host::Observed;
use peers::{Failure, Peers, Program};
use report::{Part, Report};

const USAGE: &str =
    "hotcell-bench [--only PART] [--quick] [--markdown] [--write] [--check] [--docker] [--no-layers]

  --only PART  only `sandbox`, `path`, `doors`, `warm` or `stay`
  --quick      a tenth of the rounds: enough to see whether it works
  --markdown   print the tables as they stand in bench/README.md
  --write      put them there
  --check      exit with 1 when a goal is missed
  --docker     start a docker daemon for as long as it is measured, and end it
  --no-layers  leave out the cost of each layer, which builds a second hotcell";

#[derive(Debug, Default, Clone, Copy)]
struct Options {
    only: Option<Part>,
    quick: bool,
    markdown: bool,
    write: bool,
    check: bool,
    docker: bool,
    no_layers: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--only" => {
                    let name = words.next().unwrap_or_default();
                    let part = Part::ALL.into_iter().find(|part| part.name() == name);
                    options.only =
                        Some(part.ok_or_else(|| format!("`{name}` is no part\n\n{USAGE}"))?);
                }
                "--quick" => options.quick = true,
                "--markdown" => options.markdown = true,
                "--write" => options.write = true,
                "--check" => options.check = true,
                "--docker" => options.docker = true,
                "--no-layers" => options.no_layers = true,
                other => return Err(format!("`{other}` is not an option\n\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// How many rounds, of a number that is enough on a busy machine.
    fn rounds(self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if let Some(role) = words.peek().and_then(|word| path::Role::named(word)) {
        return path::play(role, words.skip(1).collect());
    }
    if let Some(role) = words.peek().and_then(|word| doors::Role::named(word)) {
        return doors::play(role, words.skip(1).collect());
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match measure(options).and_then(|reports| publish(options, &reports)) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("hotcell-bench: {failure}");
            ExitCode::from(2)
        }
    }
}

fn publish(options: Options, reports: &[Report]) -> Result<ExitCode, Failure> {
    for report in reports {
        if options.markdown || !options.write {
            println!("{}", report.markdown());
        }
        if options.write {
            report.write_into_readme()?;
        }
    }
    let missed: Vec<String> = reports.iter().flat_map(Report::missed).collect();
    for missed in &missed {
        eprintln!("goal missed: {missed}");
    }
    Ok(ExitCode::from(u8::from(options.check && !missed.is_empty())))
}

/// One part after the other, each with what the machine did meanwhile.
fn measure(options: Options) -> Result<Vec<Report>, Failure> {
    host::warn_when_busy();
    let parts = Part::ALL.into_iter().filter(|part| options.only.is_none_or(|only| only == *part));
    parts
        .map(|part| {
            let begun = Observed::now()?;
            let mut report = Report::of(part);
            match part {
                Part::Sandbox => sandbox(options, &mut report)?,
                Part::Path => path::measure(options, &mut report)?,
                Part::Doors => doors::measure(options, &mut report)?,
                Part::Warm => warm::measure(options, &mut report)?,
                Part::Stay => stay::measure(options, &mut report)?,
            }
            report.circumstances(&begun, &Observed::now()?, options.quick);
            Ok(report)
        })
        .collect()
}

/// One measurement after the other, each with its peers.
fn sandbox(options: Options, report: &mut Report) -> Result<(), Failure> {
    {
        let peers = Peers::find()?;
        report.setting(&peers);
        starts(options, &peers, report)?;
        whole_command(options, &peers, report)?;
        rates(options, &peers, report)?;
        docker(options, &peers, report)?;
    }
    say("memory");
    report.memory(memory::measure());
    report.stages();
    if !options.no_layers {
        say("the cost of each layer");
        report.layers(layers::measure(options.rounds(40)));
    }
    Ok(())
}

fn say(what: &str) {
    eprintln!("measuring {what} …");
}

/// From a running hotcell process.
fn starts(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    let cases = [
        (Some(Program::nothing()), 400),
        (Program::hello(Language::Shell, &[]), 200),
        (Program::hello(Language::Python, &["-I", "-S"]), 100),
        (Program::hello(Language::Python, &[]), 100),
        (Program::hello(Language::JavaScript, &[]), 40),
    ];
    report.begin_starts();
    for (program, rounds) in cases {
        let Some(program) = program else {
            report.skip("a language whose interpreter was not found on this machine");
            continue;
        };
        for at_once in [1, 2] {
            say(&format!("`{}`, {at_once} at once", program.name));
            let contestants = peers.resident(&program);
            let samples = rounds::interleave(&contestants, options.rounds(rounds), at_once)?;
            report.start(&program, at_once, &samples);
        }
    }
    Ok(())
}

/// The command `hotcell run`, which starts from nothing and leaves nothing.
fn whole_command(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    report.begin_commands();
    let python = Program::hello(Language::Python, &[]);
    for (program, rounds) in [(Some(Program::nothing()), 200), (python, 100)] {
        let Some(program) = program else { continue };
        for at_once in [1, 2] {
            say(&format!("the whole command, `{}`, {at_once} at once", program.name));
            let contestants = peers.commands(&program);
            let samples = rounds::interleave(&contestants, options.rounds(rounds), at_once)?;
            report.command(&program, at_once, &samples);
        }
    }
    Ok(())
}

fn rates(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    report.begin_rates();
    let python = Program::hello(Language::Python, &["-I", "-S"]);
    for program in [Some(Program::nothing()), python].into_iter().flatten() {
        say(&format!("runs per second, `{}`", program.name));
        let contestants = peers.resident(&program);
        let one = rounds::rates(&contestants, options.rounds(20), 1)?;
        let two = rounds::rates(&contestants, options.rounds(20), 2)?;
        report.rate(&program, &one, &two);
    }
    Ok(())
}

fn docker(options: Options, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    let docker = if options.docker { Ok(Docker::started()?) } else { Docker::found() };
    match docker {
        Ok(docker) => {
            say("docker run");
            let contestants = peers.beside_docker(&docker);
            report.docker(&rounds::interleave(&contestants, options.rounds(30), 1)?);
        }
        Err(why) => report.skip(&format!("`docker run`: {why}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parse("").unwrap().only, None);
        let options = parse("--quick --only path --check").unwrap();
        assert_eq!((options.only, options.quick, options.check), (Some(Part::Path), true, true));
        for wrong in ["--only", "--only both", "--fast"] {
            assert!(parse(wrong).unwrap_err().contains(USAGE), "{wrong}");
        }
    }
}
