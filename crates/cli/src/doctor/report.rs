//! What is said about a host: a table and a few lines, or one JSON document (docs/doctor.md).

use hotcell_sandbox::host::{Check, Next, Obstacle};
use hotcell_types::{Layer, Level, Status};
use serde::Serialize;

use super::Minimum;
use super::probe::{Attempt, Interpreter, Probe};
use crate::print::harmless;
use crate::problem::Problem;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
const VERSION: u32 = 1;

/// Most of a run's own words that is shown.
const MAX_SAID: usize = 200;

pub(super) fn text(probe: &Probe, minimum: &Minimum) -> String {
    let sections =
        [head(probe), layers(probe), level(probe, minimum), languages(probe), run(&probe.run)];
    sections.join("\n")
}

fn head(probe: &Probe) -> String {
    let facts = &probe.facts;
    let landlock = facts.landlock_abi.map_or("none".into(), |abi| format!("ABI {abi}"));
    let mut rows = vec![
        ("hotcell", env!("CARGO_PKG_VERSION").to_owned()),
        ("system", facts.distribution.clone().unwrap_or_else(|| "unknown".into())),
        ("kernel", facts.kernel.clone()),
        ("landlock", landlock),
        ("user", facts.uid.to_string()),
    ];
    rows.extend(around(probe).map(|name| ("inside", name.to_owned())));
    rows.into_iter().map(|(name, value)| format!("{name:<9} {}\n", harmless(&value))).collect()
}

/// What the host is itself in.
fn around(probe: &Probe) -> Option<&'static str> {
    match probe.facts.container {
        Some(container) => Some(container.name()),
        None => probe.facts.wsl.then_some("WSL2"),
    }
}

fn layers(probe: &Probe) -> String {
    let mut text = row("LAYER", "ON", "SEEN");
    for Check { layer, active, seen, .. } in &probe.diagnosis.layers {
        text.push_str(&row(layer.name(), if *active { "yes" } else { "no" }, seen));
    }
    text
}

fn row(layer: &str, on: &str, seen: &str) -> String {
    format!("{layer:<16}  {on:<3}  {}\n", harmless(seen))
}

fn level(probe: &Probe, minimum: &Minimum) -> String {
    let mut text = match probe.diagnosis.level {
        Some(level) => format!("level: {level} ({})\n", level.meaning()),
        None => "level: none (nothing can run here)\n".into(),
    };
    if let Some(next) = &probe.diagnosis.next {
        text.push_str(&next_level(next));
    }
    let met = if minimum.is_met(probe) { "met" } else { "not met, so `hotcell run` refuses" };
    line(&mut text, format!("minimum: {} ({}): {met}", minimum.level, harmless(&minimum.source)));
    if let (Some(level), false) = (probe.diagnosis.level, minimum.is_met(probe)) {
        let accept = format!(
            "or, as the operator, accept this level: `min_level = \"{level}\"` in hotcell's config.toml"
        );
        line(&mut text, format!("  fix: what is said above; {accept}"));
    }
    text
}

fn next_level(next: &Next) -> String {
    let mut text = String::new();
    for Obstacle { layers, reason } in &next.obstacles {
        let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
        let names = if names.is_empty() { "everything".into() } else { names.join(", ") };
        line(&mut text, format!("in the way of {}: {names}", next.level));
        line(&mut text, format!("  why: {}", harmless(&reason.why())));
        line(&mut text, format!("  fix: {}", harmless(&reason.fix())));
    }
    text
}

fn languages(probe: &Probe) -> String {
    let mut text = language_row("LANGUAGE", "VERSION", "INTERPRETER");
    for Interpreter { language, found } in &probe.languages {
        match found {
            Ok(usable) => {
                let version = usable.version.as_deref().unwrap_or("unknown");
                text.push_str(&language_row(language.name(), version, &usable.note));
            }
            Err(problem) => {
                let (why, fix) = (problem.because().unwrap_or_default(), problem.remedy());
                text.push_str(&language_row(language.name(), "none", why));
                if let Some(fix) = fix {
                    line(&mut text, format!("  fix: {}", harmless(fix)));
                }
            }
        }
    }
    text
}

fn language_row(language: &str, version: &str, interpreter: &str) -> String {
    format!("{language:<10}  {:<9}  {}\n", harmless(version), harmless(interpreter))
}

fn run(attempt: &Attempt) -> String {
    let what = attempt.what;
    let millis = attempt.took.as_millis();
    match &attempt.result {
        Ok(outcome) if outcome.status == Status::Success => {
            format!("run: {what}: success in {millis} ms\n")
        }
        Ok(outcome) => {
            let mut text = format!("run: {what}: {} after {millis} ms\n", word(outcome.status));
            let said = said(attempt);
            if !said.is_empty() {
                line(&mut text, format!("  why: {}", harmless(&said)));
            }
            text
        }
        Err(problem) => {
            // What would help is said with the level.
            let why = [Some(problem.headline()), problem.because()];
            let why: Vec<&str> = why.into_iter().flatten().collect();
            format!("run: {what}: refused\n  why: {}\n", harmless(&why.join(": ")))
        }
    }
}

fn word(status: Status) -> String {
    format!("{status:?}").to_lowercase()
}

/// The last line of what a program complained about: a traceback ends with its cause.
fn said(attempt: &Attempt) -> String {
    let Ok(outcome) = &attempt.result else { return String::new() };
    let stderr = String::from_utf8_lossy(&outcome.stderr.bytes);
    let own = outcome.error.as_deref();
    own.or(stderr.lines().last()).unwrap_or_default().chars().take(MAX_SAID).collect()
}

fn line(text: &mut String, line: impl AsRef<str>) {
    text.push_str(line.as_ref());
    text.push('\n');
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    hotcell: &'static str,
    /// Whether the minimum is met and the run worked.
    ok: bool,
    level: Option<Level>,
    next: Option<NextDocument>,
    minimum: MinimumDocument<'a>,
    layers: Vec<LayerDocument<'a>>,
    host: HostDocument<'a>,
    languages: Vec<LanguageDocument<'a>>,
    run: RunDocument<'a>,
}

#[derive(Serialize)]
struct NextDocument {
    level: Level,
    obstacles: Vec<ObstacleDocument>,
}

#[derive(Serialize)]
struct ObstacleDocument {
    layers: Vec<Layer>,
    reason: &'static str,
    why: String,
    fix: String,
}

#[derive(Serialize)]
struct MinimumDocument<'a> {
    level: Level,
    source: &'a str,
    met: bool,
}

#[derive(Serialize)]
struct LayerDocument<'a> {
    layer: Layer,
    active: bool,
    seen: &'a str,
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct HostDocument<'a> {
    kernel: &'a str,
    distribution: Option<&'a str>,
    landlock_abi: Option<u32>,
    inside: Option<&'static str>,
    uid: u32,
}

#[derive(Serialize)]
struct LanguageDocument<'a> {
    language: &'static str,
    interpreter: Option<&'a str>,
    version: Option<&'a str>,
    note: Option<&'a str>,
    error: Option<&'a Problem>,
}

#[derive(Serialize)]
struct RunDocument<'a> {
    what: &'static str,
    program: &'a str,
    status: Option<Status>,
    millis: u64,
    error: Option<&'a Problem>,
}

pub(super) fn document(probe: &Probe, minimum: &Minimum) -> String {
    let document = Document {
        version: VERSION,
        hotcell: env!("CARGO_PKG_VERSION"),
        ok: super::is_well(probe, minimum),
        level: probe.diagnosis.level,
        next: probe.diagnosis.next.as_ref().map(next_document),
        minimum: MinimumDocument {
            level: minimum.level,
            source: &minimum.source,
            met: minimum.is_met(probe),
        },
        layers: probe.diagnosis.layers.iter().map(layer_document).collect(),
        host: HostDocument {
            kernel: &probe.facts.kernel,
            distribution: probe.facts.distribution.as_deref(),
            landlock_abi: probe.facts.landlock_abi,
            inside: around(probe),
            uid: probe.facts.uid,
        },
        languages: probe.languages.iter().map(language_document).collect(),
        run: run_document(&probe.run),
    };
    match serde_json::to_string(&document) {
        Ok(json) => json + "\n",
        // Not reachable with these types; still a document if it were.
        Err(_) => "{\"version\":1,\"ok\":false}\n".into(),
    }
}

fn next_document(next: &Next) -> NextDocument {
    let obstacle = |o: &Obstacle| ObstacleDocument {
        layers: o.layers.clone(),
        reason: o.reason.id(),
        why: o.reason.why(),
        fix: o.reason.fix(),
    };
    NextDocument { level: next.level, obstacles: next.obstacles.iter().map(obstacle).collect() }
}

fn layer_document(check: &Check) -> LayerDocument<'_> {
    LayerDocument {
        layer: check.layer,
        active: check.active,
        seen: &check.seen,
        reason: check.reason.as_ref().map(|reason| reason.id()),
    }
}

fn language_document(interpreter: &Interpreter) -> LanguageDocument<'_> {
    let usable = interpreter.found.as_ref().ok();
    LanguageDocument {
        language: interpreter.language.name(),
        interpreter: usable.map(|u| u.path.as_str()),
        version: usable.and_then(|u| u.version.as_deref()),
        note: usable.map(|u| u.note.as_str()),
        error: interpreter.found.as_ref().err(),
    }
}

fn run_document(attempt: &Attempt) -> RunDocument<'_> {
    RunDocument {
        what: attempt.what,
        program: &attempt.program,
        status: attempt.result.as_ref().ok().map(|outcome| outcome.status),
        millis: attempt.took.as_millis().try_into().unwrap_or(u64::MAX),
        error: attempt.result.as_ref().err(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotcell_sandbox::cgroup::Missing;
    use hotcell_sandbox::host::{HostFacts, Trial, diagnose};
    use hotcell_sandbox::lang::Language;
    use hotcell_types::LayerReport;

    use super::super::probe::Usable;
    use super::*;
    use crate::run::report::tests::outcome;

    fn facts() -> HostFacts {
        let missing = |controller| Missing {
            controller,
            why: "`/sys/fs/cgroup` is mounted read-only".into(),
            fix: "mount -o remount,rw /sys/fs/cgroup".into(),
        };
        HostFacts {
            kernel: "6.1.0-28-amd64".into(),
            distribution: Some("Debian GNU/Linux 12 (bookworm)".into()),
            families: vec!["debian".into()],
            program: "/usr/local/bin/hotcell".into(),
            uid: 1000,
            sys_admin: false,
            ids_mapped: true,
            landlock_abi: Some(2),
            lsm: None,
            apparmor_restricts: false,
            userns_clone_off: false,
            forbidden_namespaces: vec![],
            memfd_noexec: 0,
            seccomp_filters: true,
            open_files: 524_288,
            under_seccomp: false,
            container: None,
            wsl: false,
            chrooted: false,
            masked_proc: vec![],
            missing_controllers: ["memory", "pids", "cpu"].map(missing).into(),
        }
    }

    /// What a run on such a host reads back.
    fn seen(layer: Layer) -> &'static str {
        match layer {
            Layer::Root => "26 mounts, 4 writable",
            Layer::Proc => "its own processes only, read-only",
            Layer::Landlock => "ABI 2",
            Layer::Seccomp => "profile standard, 1 filters",
            Layer::Capabilities => "all sets 0x0",
            Layer::NoNewPrivs => "set",
            Layer::Session => "own session, no terminal, 3 descriptors",
            Layer::Rlimits => "1024 open files, no core",
            _ => "inode 4026532186",
        }
    }

    fn no_cgroup() -> Probe {
        let facts = facts();
        let report = |layer: Layer| LayerReport {
            layer,
            active: layer.since() <= Level::NoCgroup,
            seen: seen(layer).into(),
        };
        let trial = Trial::Ran { level: Level::NoCgroup, layers: Layer::ALL.map(report).into() };
        let usable = |path: &str, version: &str| Usable {
            path: path.into(),
            note: path.into(),
            version: Some(version.into()),
        };
        let node = Problem::not_found("no interpreter for javascript was found")
            .why("nothing of that name is on PATH or in /usr/bin")
            .fix("`sudo apt install nodejs`, or put one on PATH that every user can read and execute");
        let found = [
            (Language::Python, Ok(usable("/usr/bin/python3.11", "3.11.2"))),
            (Language::JavaScript, Err(node)),
            (Language::Shell, Ok(usable("/usr/bin/bash", "5.2.15"))),
        ];
        Probe {
            diagnosis: diagnose(&facts, &trial),
            facts,
            languages: found.map(|(language, found)| Interpreter { language, found }).into(),
            run: Attempt {
                what: "hello from Python",
                program: "/usr/bin/python3.11".into(),
                result: Ok(outcome(Status::Success)),
                took: Duration::from_millis(15),
            },
        }
    }

    fn refused() -> Probe {
        let facts = HostFacts { apparmor_restricts: true, ..facts() };
        let why = "making a user namespace: Operation not permitted";
        let trial = Trial::Refused {
            layer: Some(Layer::UserNamespace),
            why: why.into(),
            fix: String::new(),
        };
        let problem = Problem::error("layer `user-namespace` could not be set up").why(why);
        Probe {
            diagnosis: diagnose(&facts, &trial),
            facts,
            run: Attempt { result: Err(problem), ..no_cgroup().run },
            ..no_cgroup()
        }
    }

    fn minimum(level: Level) -> Minimum {
        Minimum { level, source: "default".into() }
    }

    fn docs() -> String {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
        std::fs::read_to_string(file).unwrap()
    }

    #[test]
    fn the_documented_example_is_what_is_printed() {
        let text = text(&no_cgroup(), &minimum(Level::User));
        assert!(
            docs().contains(&format!("```text\n{text}```\n")),
            "not in docs/doctor.md:\n{text}"
        );
    }

    #[test]
    fn the_documented_document_is_what_is_printed() {
        let json = document(&no_cgroup(), &minimum(Level::User));
        let got: serde_json::Value = serde_json::from_str(&json).unwrap();
        let docs = docs();
        let block = docs.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
        let mut expected: serde_json::Value = serde_json::from_str(block.unwrap()).unwrap();
        // Of the layers the documentation shows two, one on and one off.
        let layers = got["layers"].as_array().unwrap();
        for shown in expected["layers"].as_array().unwrap() {
            assert!(layers.contains(shown), "{shown}");
        }
        expected["layers"] = got["layers"].clone();
        assert_eq!(got, expected, "docs/doctor.md has another example:\n{got:#}");
    }

    #[test]
    fn the_minimum_and_the_run_decide_whether_all_is_well() {
        let well = |probe: &Probe, level| super::super::is_well(probe, &minimum(level));
        assert!(well(&no_cgroup(), Level::NoCgroup));
        assert!(well(&no_cgroup(), Level::LandlockOnly));
        assert!(!well(&no_cgroup(), Level::User));
        assert!(!well(&refused(), Level::LandlockOnly));
        let mut failed = no_cgroup();
        failed.run.result = Ok(outcome(Status::Failure));
        assert!(!well(&failed, Level::NoCgroup));
    }

    #[test]
    fn a_host_where_nothing_runs_says_what_to_do() {
        let text = text(&refused(), &minimum(Level::User));
        for part in [
            "\nlevel: none (nothing can run here)\n",
            "\nuser-namespace    no   AppArmor allows",
            "\nlandlock          yes  ABI 2 (asked, not tried)\n",
            "  fix: `printf '%s\\n' 'abi <abi/4.0>,'",
            "\nminimum: user (default): not met, so `hotcell run` refuses\n",
            "\nrun: hello from Python: refused\n  why: layer `user-namespace` could not be set up: \
             making a user namespace: Operation not permitted\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_run_that_fails_shows_its_last_words() {
        let mut probe = no_cgroup();
        let mut failed = outcome(Status::Failure);
        failed.stderr.bytes = b"Traceback\n  x\nImportError: \x1b[2J no encodings\n".to_vec();
        probe.run.result = Ok(failed);
        let text = text(&probe, &minimum(Level::NoCgroup));
        let end = "run: hello from Python: failure after 15 ms\n  why: ImportError: \\u{1b}[2J no encodings\n";
        assert!(text.ends_with(end), "{text}");
    }
}
