//! The tables, as they stand in README.md between two marks for each part.

use std::fmt::{self, Write as _};
use std::fs;

use hotcell_sandbox::lang::Language;

use crate::host::{self, Observed};
use crate::layers::Layer;
use crate::memory::Memory;
use crate::peers::{BARE, BWRAP, DOCKER, Failure, HOTCELL, HOTCELL_UNLIKE, Peers, Program};
use crate::stats::{Samples, find, millis};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

const STAGES: [&str; 5] = ["prepare", "build", "attest", "execute", "finish"];

/// The promises that are measured here.
const TRUE_OVER_BWRAP: f64 = 0.4;
const PYTHON_OVER_BARE: f64 = 1.15;
const COMMAND_OVER_BWRAP: f64 = 1.0;
const MEMORY_KB: f64 = 3.0 * 1000.0;

/// Share of the processors taken by others from which on a missed goal says little.
const BUSY: f64 = 0.1;

/// What is measured by itself, with goals of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    #[default]
    Sandbox,
    Path,
    Doors,
    Warm,
    Stay,
}

impl Part {
    pub(crate) const ALL: [Part; 5] =
        [Part::Sandbox, Part::Path, Part::Doors, Part::Warm, Part::Stay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Sandbox => "sandbox",
            Part::Path => "path",
            Part::Doors => "doors",
            Part::Warm => "warm",
            Part::Stay => "stay",
        }
    }

    /// Between which its tables stand.
    fn marks(self) -> [&'static str; 2] {
        match self {
            Part::Sandbox => ["<!-- bench:begin -->", "<!-- bench:end -->"],
            Part::Path => ["<!-- bench:path:begin -->", "<!-- bench:path:end -->"],
            Part::Doors => ["<!-- bench:doors:begin -->", "<!-- bench:doors:end -->"],
            Part::Warm => ["<!-- bench:warm:begin -->", "<!-- bench:warm:end -->"],
            Part::Stay => ["<!-- bench:stay:begin -->", "<!-- bench:stay:end -->"],
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    part: Part,
    setting: String,
    circumstances: String,
    goals: Vec<Goal>,
    pub(crate) tables: String,
    stages: String,
    skipped: Vec<String>,
    /// Share of the processors that everything else took.
    others: f64,
}

/// What was promised.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    /// What is not a number is within no bound.
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(most) => write!(f, "at most {}", ratio(*most)),
            Bound::AtLeast(least) => write!(f, "at least {}", ratio(*least)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) unit: &'static str,
    /// Of the medians, which is what counts.
    pub(crate) got: f64,
    /// Of the 10th percentiles, which a busy machine changes less.
    pub(crate) undisturbed: f64,
}

impl Goal {
    fn is_met(&self) -> bool {
        self.bound.holds(self.got)
    }

    /// In a word, given how much of the machine others took.
    fn verdict(&self, others: f64) -> &'static str {
        // What is counted and not timed is the same however busy the machine is.
        let is_timed = self.got != self.undisturbed;
        let is_sure = self.is_met() && self.bound.holds(self.undisturbed);
        match self.is_met() {
            _ if others > BUSY && is_timed && !is_sure => "**undecided**: the machine was busy",
            true => "met",
            false => "**missed**",
        }
    }
}

impl Report {
    pub(crate) fn of(part: Part) -> Report {
        Report { part, ..Report::default() }
    }

    pub(crate) fn promise(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    /// What everything was measured with.
    pub(crate) fn made_with(&mut self, parts: &[String]) {
        self.setting = parts.join(", ");
    }

    pub(crate) fn setting(&mut self, peers: &Peers) {
        let python = Program::hello(Language::Python, &[]).and_then(|p| p.version());
        let node = Program::hello(Language::JavaScript, &[]).and_then(|p| p.version());
        let parts = [
            Some(format!("Linux {}", host::kernel())),
            Some(format!("{} processors", host::cores())),
            Some(format!("hotcell at level `{}`", peers.sandbox.level())),
            peers.bwrap.clone(),
            python,
            node.map(|version| format!("Node {version}")),
        ];
        self.made_with(&parts.into_iter().flatten().collect::<Vec<_>>());
        if peers.bwrap.is_none() {
            self.skip("bubblewrap: it is not installed");
        }
    }

    pub(crate) fn circumstances(&mut self, begun: &Observed, ended: &Observed, quick: bool) {
        let (others, stolen) = ended.others_since(begun);
        self.others = others;
        let short = if quick { " A quick run: a tenth of the rounds." } else { "" };
        self.circumstances = format!(
            "Load average {:.2} at the start and {:.2} at the end, the measurement itself included; \
             meanwhile everything else took {:.0} % of the processors and other machines {:.0} %.{short}",
            begun.load,
            ended.load,
            others * 100.0,
            stolen * 100.0
        );
    }

    pub(crate) fn skip(&mut self, what: &str) {
        eprintln!("skipped: {what}");
        self.skipped.push(what.to_owned());
    }

    pub(crate) fn begin_starts(&mut self) {
        self.heading("From a running hotcell process: create, run, destroy");
        self.contest_header();
    }

    pub(crate) fn start(&mut self, program: &Program, at_once: usize, samples: &[Samples]) {
        self.contest(program, at_once, samples);
        match (program.language, program.name.as_str()) {
            (None, name) => {
                self.goal(samples, BWRAP, TRUE_OVER_BWRAP, &format!("`{name}`, {at_once} at once"));
            }
            (Some(Language::Python), name) => {
                self.goal(samples, BARE, PYTHON_OVER_BARE, &format!("`{name}`, {at_once} at once"));
            }
            _ => {}
        }
        if let Some(hotcell) = find(samples, HOTCELL) {
            let medians = hotcell.stage_medians().map(|micros| format!("{micros:.0}"));
            let name = &program.name;
            self.stages += &format!("| `{name}` | {at_once} | {} |\n", medians.join(" | "));
        }
    }

    pub(crate) fn begin_commands(&mut self) {
        self.heading("The whole command: `hotcell run` beside `bwrap …`");
        self.contest_header();
    }

    pub(crate) fn command(&mut self, program: &Program, at_once: usize, samples: &[Samples]) {
        self.contest(program, at_once, samples);
        if program.language.is_some() {
            let what = format!("whole command, `{}`, {at_once} at once", program.name);
            self.goal(samples, BWRAP, COMMAND_OVER_BWRAP, &what);
        }
    }

    fn contest_header(&mut self) {
        self.tables += "| program | at once | rounds | who | p10 ms | median ms | p99 ms | × bare | × bubblewrap |\n\
                        |---|---|---|---|---|---|---|---|---|\n";
    }

    fn contest(&mut self, program: &Program, at_once: usize, samples: &[Samples]) {
        for one in samples {
            let over =
                |peer| find(samples, peer).map_or(f64::NAN, |peer| one.median() / peer.median());
            let line = format!(
                "| `{}` | {at_once} | {} | {} | {} | {} | {} | {} | {} |\n",
                program.name,
                one.micros.len() / at_once,
                one.name,
                millis(one.p10()),
                millis(one.median()),
                millis(one.p99()),
                ratio(over(BARE)),
                ratio(over(BWRAP)),
            );
            self.tables += &line;
        }
    }

    fn goal(&mut self, samples: &[Samples], peer: &str, most: f64, what: &str) {
        self.over(samples, HOTCELL, peer, most, &format!("{what}, hotcell over {peer}"));
    }

    /// One line each, with the ratio to one of them.
    pub(crate) fn beside(
        &mut self,
        samples: &[Samples],
        peer: &str,
        unit: &str,
        show: fn(f64) -> String,
    ) {
        self.tables += &format!(
            "| who | rounds | p10 {unit} | median {unit} | p99 {unit} | × {peer} |\n\
             |---|---|---|---|---|---|\n"
        );
        let base = find(samples, peer).map_or(f64::NAN, Samples::median);
        for one in samples {
            let times = [one.p10(), one.median(), one.p99()].map(show).join(" | ");
            let (rounds, over) = (one.micros.len(), ratio(one.median() / base));
            self.tables += &format!("| {} | {rounds} | {times} | {over} |\n", one.name);
        }
    }

    /// That one of them takes at most so many times as long as another.
    pub(crate) fn over(
        &mut self,
        samples: &[Samples],
        who: &str,
        peer: &str,
        most: f64,
        what: &str,
    ) {
        if let (Some(one), Some(other)) = (find(samples, who), find(samples, peer)) {
            self.promise(Goal {
                what: what.to_owned(),
                bound: Bound::AtMost(most),
                unit: "×",
                got: one.median() / other.median(),
                undisturbed: one.p10() / other.p10(),
            });
        }
    }

    pub(crate) fn begin_rates(&mut self) {
        self.heading("Runs per second, without a pause between them");
        self.tables += "| program | who | 1 worker | 2 workers | × bubblewrap, 1 / 2 |\n\
                        |---|---|---|---|---|\n";
    }

    pub(crate) fn rate(
        &mut self,
        program: &Program,
        one: &[(&'static str, f64)],
        two: &[(&'static str, f64)],
    ) {
        let of = |rates: &[(&str, f64)], who: &str| {
            rates.iter().find(|(name, _)| *name == who).map_or(f64::NAN, |(_, rate)| *rate)
        };
        for (who, rate) in one {
            let second = of(two, who);
            let (over_one, over_two) = (rate / of(one, BWRAP), second / of(two, BWRAP));
            let line = format!(
                "| `{}` | {who} | {rate:.0} | {second:.0} | {} / {} |\n",
                program.name,
                ratio(over_one),
                ratio(over_two)
            );
            self.tables += &line;
        }
    }

    pub(crate) fn docker(&mut self, samples: &[Samples]) {
        self.heading("Beside `docker run`, `true`, one at a time");
        self.tables += "| who | median ms | p99 ms | × docker run |\n|---|---|---|---|\n";
        let docker = find(samples, DOCKER).map_or(f64::NAN, Samples::median);
        for one in samples.iter().filter(|s| s.name != HOTCELL_UNLIKE) {
            let line = format!(
                "| {} | {} | {} | {} |\n",
                one.name,
                millis(one.median()),
                millis(one.p99()),
                ratio(one.median() / docker)
            );
            self.tables += &line;
        }
    }

    pub(crate) fn memory(&mut self, measured: Result<Memory, Failure>) {
        let memory = match measured {
            Ok(memory) => memory,
            Err(error) => return self.skip(&format!("memory: {error} (reading it needs root)")),
        };
        self.heading("Memory of a sandbox whose program sleeps");
        let many = Memory::MANY;
        let whole = |kb: Option<f64>| kb.map_or("–".into(), |kb| format!("{kb:.0}"));
        let rows = [
            ("unshared pages of the run's init".into(), format!("{:.0}", memory.init)),
            ("unshared pages of the guard, one per process".into(), format!("{:.0}", memory.guard)),
            (
                "unshared pages of the spawner, one per process".into(),
                format!("{:.0}", memory.spawner),
            ),
            (
                "kernel memory charged to the run's cgroup, `sleep`'s own included".into(),
                whole(memory.charged),
            ),
            ("**together, one sandbox alone**".into(), format!("**{:.0}**", memory.alone())),
            (format!("together, each of {many}"), format!("{:.0}", memory.among_many())),
            (
                format!("the whole machine's, each of {many} (namespaces and mounts included)"),
                whole(memory.of_many.map(|(sandboxes, _)| sandboxes)),
            ),
            (
                format!("the same for {many} bare `sleep`"),
                whole(memory.of_many.map(|(_, bare)| bare)),
            ),
        ];
        self.tables += "| what | kB |\n|---|---|\n";
        for (what, kilobytes) in rows {
            self.tables += &format!("| {what} | {kilobytes} |\n");
        }
        self.promise(Goal {
            what: "unshared memory of one sandbox alone, its kernel memory included".into(),
            bound: Bound::AtMost(MEMORY_KB),
            unit: "kB",
            got: memory.alone(),
            undisturbed: memory.alone(),
        });
    }

    pub(crate) fn stages(&mut self) {
        self.heading("Where a run's time goes, by stage (median µs)");
        let header = STAGES.join(" | ");
        self.tables +=
            &format!("| program | at once | {header} |\n|---|---|---|---|---|---|---|\n");
        self.tables += &std::mem::take(&mut self.stages);
    }

    pub(crate) fn layers(&mut self, measured: Result<Vec<Layer>, Failure>) {
        match measured {
            Ok(layers) => {
                self.heading("What each layer adds to `/bin/true` (µs)");
                self.tables += "| layer | work | latency |\n|---|---|---|\n";
                for Layer { name, work, latency } in layers {
                    self.tables += &format!("| {name} | {work:.0} | {latency:.0} |\n");
                }
            }
            Err(error) => self.skip(&error.to_string()),
        }
    }

    pub(crate) fn heading(&mut self, title: &str) {
        self.tables += &format!("\n### {title}\n\n");
    }

    pub(crate) fn missed(&self) -> impl Iterator<Item = String> {
        let missed = self.goals.iter().filter(|goal| !goal.is_met());
        missed.map(|goal| {
            let Goal { what, bound, unit, got, .. } = goal;
            format!("{what}: {} {unit} instead of {bound} {unit}", ratio(*got))
        })
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}.\n{}\n", self.setting, self.circumstances);
        text += "\n### Goals\n\n| what | goal | measured | at p10 | |\n|---|---|---|---|---|\n";
        for goal in &self.goals {
            let Goal { what, bound, unit, got, undisturbed } = goal;
            let verdict = goal.verdict(self.others);
            let (got, undisturbed) = (ratio(*got), ratio(*undisturbed));
            let line = format!(
                "| {what} | {bound} {unit} | {got} {unit} | {undisturbed} {unit} | {verdict} |"
            );
            text += &line;
            text.push('\n');
        }
        text += &self.tables;
        if !self.skipped.is_empty() {
            text += "\n### Not measured in this run\n\n";
            for what in &self.skipped {
                // Writing to a string cannot fail.
                writeln!(text, "- {what}").ok();
            }
        }
        text
    }

    /// Puts the tables between the two marks.
    pub(crate) fn write_into_readme(&self) -> Result<(), Failure> {
        let readme = fs::read_to_string(README)?;
        let [begin, end] = self.part.marks();
        let whole = between(&readme, [begin, end], &self.markdown())
            .ok_or_else(|| format!("bench/README.md has lost its marks `{begin}` and `{end}`"))?;
        Ok(fs::write(README, whole)?)
    }
}

fn between(readme: &str, [begin, end]: [&str; 2], tables: &str) -> Option<String> {
    let (before, rest) = readme.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{tables}{end}{after}"))
}

pub(crate) fn ratio(value: f64) -> String {
    match value {
        _ if value.is_nan() => "–".into(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_its_marks_changes() {
        let text = |sandbox: &str, path: &str| {
            let [[a, b], [c, d], ..] = Part::ALL.map(Part::marks);
            format!("1\n{a}\n{sandbox}{b}\n2\n{c}\n{path}{d}\n3\n")
        };
        let old = text("old\n", "old\n");
        let new = |part: Part, text: &str| between(text, part.marks(), "new\n");
        assert_eq!(new(Part::Sandbox, &old), Some(text("new\n", "old\n")));
        assert_eq!(new(Part::Path, &old), Some(text("old\n", "new\n")));
        assert_eq!(new(Part::Path, "no marks"), None);
    }

    #[test]
    fn a_missed_goal_is_told() {
        let goal = |bound, got| Goal { what: "x".into(), bound, unit: "×", got, undisturbed: got };
        let goals = vec![
            goal(Bound::AtMost(0.4), 0.3),
            goal(Bound::AtMost(0.4), 0.41),
            goal(Bound::AtLeast(8.0), 8.1),
            goal(Bound::AtLeast(8.0), 7.9),
        ];
        let report = Report { goals, ..Report::default() };
        let expected =
            ["x: 0.41 × instead of at most 0.40 ×", "x: 7.90 × instead of at least 8.00 ×"];
        assert_eq!(report.missed().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_goal_that_could_not_be_measured_is_not_met() {
        let nan = f64::NAN;
        for bound in [Bound::AtMost(0.4), Bound::AtLeast(0.4)] {
            let goal = Goal { what: "x".into(), bound, unit: "×", got: nan, undisturbed: nan };
            assert!(!goal.is_met());
            assert_eq!(goal.verdict(0.0), "**missed**");
            assert!(goal.verdict(0.5).contains("busy"));
        }
    }

    #[test]
    fn a_busy_machine_decides_only_what_it_cannot_disturb() {
        let verdict = |got, undisturbed, others| {
            let bound = Bound::AtMost(1.0);
            Goal { what: "x".into(), bound, unit: "ms", got, undisturbed }.verdict(others)
        };
        let (quiet, busy) = (0.01, 0.5);
        assert_eq!([verdict(0.9, 1.1, quiet), verdict(0.9, 0.8, busy)], ["met", "met"]);
        assert_eq!([verdict(1.1, 0.9, quiet), verdict(1.1, 1.1, busy)], ["**missed**"; 2]);
        for (got, undisturbed) in [(0.9, 1.1), (1.1, 0.9), (1.2, 1.1)] {
            assert!(verdict(got, undisturbed, busy).contains("busy"));
        }
    }
}
