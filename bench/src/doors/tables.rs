//! The tables and goals of the doors.

use std::collections::BTreeMap;

use super::client::Answered;
use super::resident::{Measured, RESIDENT};
use super::{AXUM, BURST, HOTCELL, IN_PROCESS, MANY, REST, Rates};
use crate::path::Memory;
use crate::peers::BARE;
use crate::report::{Bound, Goal, Report, ratio};
use crate::stats::{Samples, millis, percentile};

/// The promises that are measured here.
const CALLS_OVER_AXUM: f64 = 0.3;
const REST_OVER_IN_PROCESS: f64 = 1.5;
const COMMAND_OVER_BARE: f64 = 1.0;
const WARM_COMMAND_OVER_BARE: f64 = 0.5;
const GROWN: f64 = 1.1;

impl Report {
    pub(super) fn requests(&mut self, all: &[Rates]) {
        self.heading(&format!("Requests per second, {MANY} connections, one key"));
        self.tables += "| who | request, answer in bytes | batches | p10 | median | × bare axum | server µs | server busy | client µs | client busy |\n\
                        |---|---|---|---|---|---|---|---|---|---|\n";
        let of = |who: &str, percent: f64| {
            let found = all.iter().find(|rates| rates.name == who);
            found.map_or(f64::NAN, |rates| percentile(&rates.per_second, percent))
        };
        for Rates { name, per_second, sizes: [request, answer], server_micros, client_micros } in
            all
        {
            let median = of(name, 50.0);
            let busy = |micros: &f64| format!("{:.0} %", median * micros / 1e4);
            self.tables += &format!(
                "| {name} | {request}, {answer} | {} | {:.0} | {median:.0} | {} | {server_micros:.1} | {} | {client_micros:.1} | {} |\n",
                per_second.len(),
                of(name, 10.0),
                ratio(median / of(AXUM, 50.0)),
                busy(server_micros),
                busy(client_micros),
            );
        }
        self.promise(Goal {
            what: format!("calls of `add` per second over HTTP, {MANY} connections, over {AXUM}"),
            bound: Bound::AtLeast(CALLS_OVER_AXUM),
            unit: "×",
            got: of(HOTCELL, 50.0) / of(AXUM, 50.0),
            // Of rates, the high ones are those that little disturbed.
            undisturbed: of(HOTCELL, 90.0) / of(AXUM, 90.0),
        });
    }

    pub(super) fn sandboxed(&mut self, samples: &[Samples]) {
        self.heading("`/bin/true` in a sandbox, recorded, one at a time");
        self.beside(samples, IN_PROCESS, "ms", millis);
        let what = "`/bin/true` in a sandbox, over HTTP over the same in process";
        self.over(samples, REST, IN_PROCESS, REST_OVER_IN_PROCESS, what);
    }

    pub(super) fn bursts(&mut self, all: &[Answered]) {
        self.heading(&format!("{BURST} requests at one moment, one key"));
        self.tables += "| answer | how many | with Retry-After | median ms | p99 ms |\n|---|---|---|---|---|\n";
        let mut by_status: BTreeMap<Option<u16>, Vec<&Answered>> = BTreeMap::new();
        for one in all {
            by_status.entry(one.status).or_default().push(one);
        }
        let mut row = |what: String, those: &[&Answered]| {
            let micros: Vec<f64> = those.iter().map(|one| one.micros).collect();
            let told = those.iter().filter(|one| one.has_retry_after).count();
            let [median, last] = [50.0, 99.0].map(|percent| millis(percentile(&micros, percent)));
            self.tables += &format!("| {what} | {} | {told} | {median} | {last} |\n", those.len());
        };
        for (status, those) in &by_status {
            row(status.map_or("none".into(), |status| status.to_string()), those);
        }
        row("all".into(), &all.iter().collect::<Vec<_>>());
        let is_refusal = |one: &&Answered| matches!(one.status, Some(429 | 503));
        let failed = all.iter().filter(|one| one.status != Some(200) && !is_refusal(one)).count();
        let dishonest = all.iter().filter(is_refusal).filter(|one| !one.has_retry_after).count();
        self.none("answers to a burst that are neither 200, 429 nor 503", failed);
        self.none("refusals in a burst that do not say when to come again", dishonest);
    }

    fn none(&mut self, what: &str, count: usize) {
        let (what, bound, unit) = (what.to_owned(), Bound::AtMost(0.0), "of them");
        let got = count as f64;
        self.promise(Goal { what, bound, unit, got, undisturbed: got });
    }

    pub(super) fn server_memory(&mut self, all: &[(u64, Memory)]) {
        self.heading("Memory of a server");
        self.memory_after(all.iter().map(|(made, memory)| (format!("{made} requests"), *memory)));
        if let [.., (first, before), (last, after)] = all {
            let got = after.rss / before.rss;
            self.promise(Goal {
                what: format!(
                    "resident memory (Rss) of a server after {last} requests over that after {first}"
                ),
                bound: Bound::AtMost(GROWN),
                unit: "×",
                got,
                undisturbed: got,
            });
        }
    }

    pub(super) fn through_resident(&mut self, Measured { samples, start }: &Measured) {
        self.heading("The whole command `hotcell run --lang python -c 'print(1)'`");
        self.tables +=
            &format!("The resident had warmed up until a run's `start` was `{start}`.\n\n");
        self.beside(samples, BARE, "ms", millis);
        let program = "`hotcell run`, `python3 -c 'print(1)'`, through a resident over bare";
        self.over(samples, RESIDENT, BARE, COMMAND_OVER_BARE, program);
        let warm = format!("{program}, warm");
        self.over(samples, RESIDENT, BARE, WARM_COMMAND_OVER_BARE, &warm);
    }
}
