//! Many runs, one after the other and at once, ended in every way: what there is on the host is counted
//! before and after, and is the same.
//!
//! `HOTCELL_SOAK` is the number of runs in a row (300 unless it is set), executed ones and then forked ones;
//! 100000 is what is asked of warm starts. Each stage says what it did and
//! how long it took. The first difference ends the program with a list of what was left.

#[path = "../programs/binary.rs"]
mod binary;
mod census;
mod command;
mod resident;
mod warm;

use std::time::Instant;

use census::Census;

const RUNS: usize = 300;

fn main() {
    if std::env::args().any(|word| word == "--list") {
        println!("soak: test");
        return;
    }
    let runs = match std::env::var("HOTCELL_SOAK") {
        Ok(text) => text.parse().expect("HOTCELL_SOAK is a number"),
        Err(_) => RUNS,
    };
    census::prepare();
    if let Err(why) = command::probe() {
        println!("SKIPPED soak: no sandbox on this host: {why}");
        return;
    }
    let mut stages = Stages { wrong: Vec::new() };
    command::stages(&mut stages, runs);
    resident::stages(&mut stages, runs);
    warm::stages(&mut stages, runs);
    census::conclude();
    assert!(stages.wrong.is_empty(), "left behind:\n{}", stages.wrong.join("\n"));
}

/// Runs stages one after the other; one that leaves something does not keep the others from running.
pub(crate) struct Stages {
    wrong: Vec<String>,
}

impl Stages {
    /// Does something that leaves this process without children of its own, after which everything must
    /// be as it was.
    pub(crate) fn stage(&mut self, name: &str, act: impl FnOnce()) {
        let before = Census::take();
        self.judge(name, &before, census::reap_orphans, act);
    }

    /// Does something while a sandbox is open, whose children are not to be reaped by anybody else, after
    /// which everything must be as it was at an earlier time.
    pub(crate) fn from(&mut self, name: &str, before: &Census, act: impl FnOnce()) {
        self.judge(name, before, || {}, act);
    }

    fn judge(&mut self, name: &str, before: &Census, reap: impl Fn(), act: impl FnOnce()) {
        let begun = Instant::now();
        act();
        let took = begun.elapsed();
        match before.is_restored(reap) {
            Ok(()) => println!("ok      {name} ({:.1} s)", took.as_secs_f64()),
            Err(left) => {
                println!("FAILED  {name} ({:.1} s): {left}", took.as_secs_f64());
                self.wrong.push(format!("{name}: {left}"));
            }
        }
    }

    /// Something that must hold.
    pub(crate) fn check(&mut self, name: &str, holds: bool, what: &str) {
        if !holds {
            println!("FAILED  {name}: {what}");
            self.wrong.push(format!("{name}: {what}"));
        }
    }
}
