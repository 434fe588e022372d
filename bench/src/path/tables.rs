//! The tables and goals of the path.

use super::calls::{BARE, BUFFERED, Burst, DURABLE, ECHO, KEPT};
use super::idle::{Idle, Memory};
use super::verification::Verified;
use super::{IN_A_ROW, MANY, Rates};
use crate::peers::{HOTCELL, WITHOUT_PATH};
use crate::report::{Bound, Goal, Report, ratio};
use crate::stats::{Samples, find, millis, percentile};

/// The promises that are measured here.
const DURABLE_OVER_COMMIT: f64 = 1.6;
const MANY_OVER_ONE: f64 = 8.0;
const BUFFERED_OVER_ECHO: f64 = 5.0;
const IDLE_MB: f64 = 40.0;
const GROWN: f64 = 1.1;
const COMMAND_MORE_MS: f64 = 1.0;

impl Report {
    pub(super) fn durable(&mut self, samples: &[Samples], bytes: usize) {
        self.heading("A durable call, beside one commit of SQLite with full synchronisation");
        self.tables +=
            &format!("The call leaves {bytes} bytes in the record, and so does the commit.\n\n");
        self.beside(samples, BARE, "ms", millis);
        let what = format!("{DURABLE} over {BARE}");
        self.over(samples, DURABLE, BARE, DURABLE_OVER_COMMIT, &what);
    }

    pub(super) fn rates_of_calls(&mut self, all: &[Rates]) {
        self.heading("Durable calls per second, without a pause between them");
        self.tables += &format!("| who | 1 caller | {MANY} callers | × |\n|---|---|---|---|\n");
        let of = |who: &str, callers: usize, percent: f64| {
            let found = all.iter().find(|rates| rates.name == who && rates.callers == callers);
            found.map_or(f64::NAN, |rates| percentile(&rates.per_second, percent))
        };
        for who in [BARE, DURABLE] {
            let (one, many) = (of(who, 1, 50.0), of(who, MANY, 50.0));
            self.tables += &format!("| {who} | {one:.0} | {many:.0} | {} |\n", ratio(many / one));
        }
        self.promise(Goal {
            what: format!("{DURABLE}s per second, {MANY} callers over one"),
            bound: Bound::AtLeast(MANY_OVER_ONE),
            unit: "×",
            got: of(DURABLE, MANY, 50.0) / of(DURABLE, 1, 50.0),
            // Of rates, the high ones are those that little disturbed.
            undisturbed: of(DURABLE, MANY, 90.0) / of(DURABLE, 1, 90.0),
        });
    }

    pub(super) fn buffered(&mut self, samples: &[Samples], sizes: [usize; 2], burst: Burst) {
        self.heading("A buffered call, beside a request and a reply over a Unix socket");
        let [request, reply] = sizes;
        self.tables += &format!("The request has {request} bytes, the reply {reply}.\n\n");
        self.beside(samples, ECHO, "µs", |micros| format!("{micros:.1}"));
        self.tables += "\n| who | until the reply, median µs |\n|---|---|\n";
        for who in [BUFFERED, KEPT] {
            let [replied, ..] = find(samples, who).map_or([f64::NAN; 5], Samples::stage_medians);
            self.tables += &format!("| {who} | {:.1} |\n", replied / IN_A_ROW as f64);
            let what = format!("{who} over {ECHO}");
            self.over(samples, who, ECHO, BUFFERED_OVER_ECHO, &what);
        }
        let Burst { calls, recorded } = burst;
        self.tables += &format!(
            "\nOf {calls} calls without a pause, {recorded} were in the record afterwards.\n"
        );
        let share = recorded as f64 / calls as f64;
        self.promise(Goal {
            what: format!("share of {calls} buffered calls without a pause that is recorded"),
            bound: Bound::AtLeast(1.0),
            unit: "×",
            got: share,
            undisturbed: share,
        });
    }

    pub(super) fn verification(&mut self, all: &Verified) {
        let Verified { events, made, bytes, verified, hashed } = all;
        self.heading(&format!("Verification of {events} events"));
        let [verified, hashed] = [verified, hashed].map(|rates| percentile(rates, 50.0));
        let seconds = made.as_secs_f64();
        self.tables += "| what | seconds | events per second | × SHA-256 |\n|---|---|---|---|\n";
        let rows = [
            ("recording them, 1000 in a transaction".to_owned(), *events as f64 / seconds),
            ("verifying them".to_owned(), verified),
            (format!("SHA-256 over the same {:.0} MB", *bytes as f64 / 1e6), hashed),
        ];
        for (what, rate) in rows {
            let (took, over) = (*events as f64 / rate, ratio(hashed / rate));
            self.tables += &format!("| {what} | {took:.1} | {rate:.0} | {over} |\n");
        }
    }

    pub(super) fn idle(&mut self, idle: &Idle) {
        self.heading("Memory of a process with an open engine");
        let after = idle.after.iter().map(|(calls, memory)| (format!("{calls} calls"), *memory));
        self.memory_after(after);
        if let [.., (begun, first), (calls, last)] = idle.after.as_slice() {
            let (rss, grown) = (megabytes(last.rss), last.rss / first.rss);
            self.promise(Goal {
                what: format!("resident memory (Rss) of a process after {calls} calls"),
                bound: Bound::AtMost(IDLE_MB),
                unit: "MB",
                got: rss,
                undisturbed: rss,
            });
            self.promise(Goal {
                what: format!("the same over that after {begun} calls"),
                bound: Bound::AtMost(GROWN),
                unit: "×",
                got: grown,
                undisturbed: grown,
            });
        }
    }

    /// What a process has, each time it was looked at.
    pub(crate) fn memory_after(&mut self, after: impl Iterator<Item = (String, Memory)>) {
        self.tables += "| after | Rss MB | Pss MB | private MB |\n|---|---|---|---|\n";
        for (what, memory) in after {
            let sizes = [memory.rss, memory.pss, memory.private];
            let sizes = sizes.map(|kb| format!("{:.1}", megabytes(kb))).join(" | ");
            self.tables += &format!("| {what} | {sizes} |\n");
        }
    }

    pub(super) fn begin_commands_of_path(&mut self) {
        self.heading("`hotcell run`, beside the same run without engine and record");
        self.tables += "| program | rounds | who | p10 ms | median ms | p99 ms | more ms | × without |\n\
                        |---|---|---|---|---|---|---|---|\n";
    }

    pub(super) fn command_of_path(&mut self, program: &str, samples: &[Samples]) {
        let Some(without) = find(samples, WITHOUT_PATH) else { return };
        for one in samples {
            let times = [one.p10(), one.median(), one.p99()].map(millis).join(" | ");
            let more = (one.median() - without.median()) / 1000.0;
            let (rounds, over) = (one.micros.len(), ratio(one.median() / without.median()));
            let line = format!(
                "| `{program}` | {rounds} | {} | {times} | {more:.2} | {over} |\n",
                one.name
            );
            self.tables += &line;
        }
        if let Some(with) = find(samples, HOTCELL) {
            self.promise(Goal {
                what: format!("`hotcell run`, `{program}`, more than without the path"),
                bound: Bound::AtMost(COMMAND_MORE_MS),
                unit: "ms",
                got: (with.median() - without.median()) / 1000.0,
                undisturbed: (with.p10() - without.p10()) / 1000.0,
            });
        }
    }
}

/// Of what the kernel calls kB.
fn megabytes(kilobytes: f64) -> f64 {
    kilobytes * 1024.0 / 1e6
}
