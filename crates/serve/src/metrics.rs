//! Numbers, in the text format of Prometheus. A dozen families with short lists of labels need no registry:
//! what the server counts is a map, and what goes on is asked for when somebody looks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_api::Called;
use hotcell_engine::{Load, Stage};
use hotcell_types::{CallId, Status};

use crate::route::Lane;

/// Upper ends of the buckets of durations, in seconds.
const BUCKETS: [f64; 12] =
    [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0, 600.0];

/// Everything that is counted. Labels are words of ours, never of a request: there are only so many.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counts: Mutex<BTreeMap<(&'static str, String), f64>>,
    times: Mutex<BTreeMap<(&'static str, String), Times>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// By bucket, each counting what fell into it alone.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// What goes on at the moment of looking.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) load: Load,
    pub(crate) lanes: Vec<(Lane, usize, usize)>,
    pub(crate) connections: usize,
    pub(crate) log_dropped: u64,
    pub(crate) spans: Option<Spans>,
}

/// What became of spans, where there is a collector for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spans {
    pub(crate) sent: u64,
    pub(crate) no_room: u64,
    pub(crate) not_taken: u64,
}

/// Families: name, sort and what it is.
const FAMILIES: [(&str, &str, &str); 15] = [
    ("hotcell_requests_total", "counter", "Requests, by route and status of HTTP"),
    ("hotcell_request_seconds", "histogram", "How long requests took, by route"),
    ("hotcell_calls_total", "counter", "Calls, by how they ended"),
    ("hotcell_decisions_total", "counter", "Calls, by what the policy decided"),
    ("hotcell_denials_total", "counter", "Requests that were refused, by why"),
    ("hotcell_limits_hit_total", "counter", "Limits that runs ran into"),
    ("hotcell_run_cpu_seconds_total", "counter", "Processor time of runs"),
    ("hotcell_run_memory_bytes_max", "gauge", "Most memory that a run used so far"),
    ("hotcell_stage_seconds", "histogram", "How long calls took from the stage before"),
    ("hotcell_connections_refused_total", "counter", "Connections that were closed, by why"),
    ("hotcell_key_guesses_total", "counter", "Requests with a key that is worth nothing"),
    ("hotcell_log_lines_lost_total", "counter", "Lines of the log that nobody read"),
    ("hotcell_spans_sent_total", "counter", "Spans that a collector has taken"),
    ("hotcell_spans_lost_total", "counter", "Spans that no collector has, by why"),
    ("hotcell_panics_total", "counter", "Requests that ended in a panic"),
];

thread_local! {
    /// Stages of a call are told on the call's own thread, one after the other.
    static LAST: Cell<Option<(CallId, Instant)>> = const { Cell::new(None) };
}

impl Metrics {
    pub(crate) fn count(&self, family: &'static str, labels: &[(&str, &str)]) {
        self.add(family, labels, 1.0);
    }

    pub(crate) fn add(&self, family: &'static str, labels: &[(&str, &str)], much: f64) {
        *lock(&self.counts).entry((family, labelled(labels))).or_default() += much;
    }

    pub(crate) fn time(&self, family: &'static str, labels: &[(&str, &str)], took: Duration) {
        let seconds = took.as_secs_f64();
        let mut times = lock(&self.times);
        let times = times.entry((family, labelled(labels))).or_default();
        times.count += 1;
        times.sum += seconds;
        let place = BUCKETS.iter().position(|end| seconds <= *end);
        if let Some(bucket) = place.and_then(|place| times.buckets.get_mut(place)) {
            *bucket += 1;
        }
    }

    /// What became of a call. One that was counted before is not another one.
    pub(crate) fn called(&self, called: &Called) {
        if called.again {
            return;
        }
        self.count("hotcell_calls_total", &[("status", called.status.name())]);
        if let Some(decision) = decision(called) {
            self.count("hotcell_decisions_total", &[("decision", decision)]);
        }
        let Some(run) = &called.run else { return };
        for limit in &run.limits_hit {
            self.count("hotcell_limits_hit_total", &[("limit", &limit.to_string())]);
        }
        if let Some(cpu) = run.usage.cpu_ms {
            self.add("hotcell_run_cpu_seconds_total", &[], cpu as f64 / 1e3);
        }
        if let Some(peak) = run.usage.peak_memory_bytes {
            let mut counts = lock(&self.counts);
            let most = counts.entry(("hotcell_run_memory_bytes_max", String::new())).or_default();
            *most = most.max(peak as f64);
        }
    }

    /// That a call has come so far.
    pub(crate) fn passed(&self, call: CallId, stage: Stage) {
        let now = Instant::now();
        if let Some((last, since)) = LAST.get()
            && last == call
            && stage != Stage::Called
        {
            let took = now.saturating_duration_since(since);
            self.time("hotcell_stage_seconds", &[("stage", word(stage))], took);
        }
        LAST.set(Some((call, now)));
    }

    /// The whole text.
    pub(crate) fn text(&self, now: &Now) -> String {
        let mut text = String::new();
        for (name, sort, what) in FAMILIES {
            text.push_str(&format!("# HELP {name} {what}\n# TYPE {name} {sort}\n"));
            for ((family, labels), value) in &*lock(&self.counts) {
                if *family == name {
                    text.push_str(&format!("{name}{} {value}\n", braces(labels)));
                }
            }
            for ((family, labels), times) in &*lock(&self.times) {
                if *family == name {
                    times.write(&mut text, name, labels);
                }
            }
            if name == "hotcell_log_lines_lost_total" {
                text.push_str(&format!("{name} {}\n", now.log_dropped));
            }
            if let Some(spans) = &now.spans {
                spans.write(&mut text, name);
            }
        }
        now.write(&mut text);
        text
    }
}

/// What the policy decided about a call, as far as what became of it shows that.
fn decision(called: &Called) -> Option<&'static str> {
    match called.status {
        Status::Blocked => Some("deny"),
        Status::Review => Some("review"),
        // It came to no decision.
        Status::Invalid => None,
        // It may have come to one: then rules spoke, or there was a run.
        Status::Error | Status::Cancelled | Status::Unknown => {
            (called.run.is_some() || !called.rules.is_empty()).then_some("allow")
        }
        Status::Success
        | Status::Failure
        | Status::Timeout
        | Status::Oom
        | Status::Limit
        | Status::Killed
        | Status::CircuitOpen => Some("allow"),
    }
}

impl Times {
    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (end, count) in BUCKETS.iter().zip(self.buckets) {
            sum += count;
            text.push_str(&format!("{name}_bucket{{{labels}{comma}le=\"{end}\"}} {sum}\n"));
        }
        let Times { count, sum, .. } = self;
        text.push_str(&format!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}\n"));
        text.push_str(&format!("{name}_sum{} {sum}\n", braces(labels)));
        text.push_str(&format!("{name}_count{} {count}\n", braces(labels)));
    }
}

impl Spans {
    fn write(&self, text: &mut String, name: &str) {
        let Spans { sent, no_room, not_taken } = self;
        match name {
            "hotcell_spans_sent_total" => text.push_str(&format!("{name} {sent}\n")),
            "hotcell_spans_lost_total" => text.push_str(&format!(
                "{name}{{why=\"no_room\"}} {no_room}\n{name}{{why=\"not_taken\"}} {not_taken}\n"
            )),
            _ => {}
        }
    }
}

impl Now {
    fn write(&self, text: &mut String) {
        let Load { running, waiting, record } = self.load;
        let mut gauge = |name: &str, what: &str, values: Vec<(String, f64)>| {
            text.push_str(&format!("# HELP {name} {what}\n# TYPE {name} gauge\n"));
            for (labels, value) in values {
                text.push_str(&format!("{name}{} {value}\n", braces(&labels)));
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        gauge("hotcell_sandboxes_running", "Calls that have their turn", one(running as f64));
        gauge("hotcell_queue_depth", "Calls that wait for a turn", one(waiting as f64));
        gauge(
            "hotcell_record_waiting",
            "Events on their way to the disk",
            one(record.waiting as f64),
        );
        let unsigned = "Events since the last signed checkpoint";
        gauge("hotcell_record_unsigned", unsigned, one(record.unsigned as f64));
        gauge("hotcell_connections", "Connections that are open", one(self.connections as f64));
        let of_lanes = |pick: fn(&(Lane, usize, usize)) -> usize| {
            let one = |lane: &(Lane, usize, usize)| {
                (labelled(&[("lane", lane.0.name())]), pick(lane) as f64)
            };
            self.lanes.iter().map(one).collect()
        };
        gauge("hotcell_lane_taken", "Requests that are served, by lane", of_lanes(|lane| lane.1));
        gauge("hotcell_lane_waiting", "Requests that wait, by lane", of_lanes(|lane| lane.2));
    }
}

pub(crate) fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Called => "called",
        Stage::Judged => "judged",
        Stage::Prepared => "prepared",
        Stage::Intended => "intended",
        Stage::Scheduled => "scheduled",
        Stage::CarriedOut => "carried_out",
        Stage::Recorded => "recorded",
    }
}

fn labelled(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        write!(text, "{comma}{name}=\"{value}\"").ok();
    }
    text
}

fn braces(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_and_as_what_was_decided_about_it() {
        let metrics = Metrics::default();
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let of = |status| Called::new(id, status);
        let judged = |status| Called { rules: vec!["a-rule".into()], ..of(status) };
        metrics.called(&judged(Status::Success));
        metrics.called(&Called { again: true, ..judged(Status::Success) });
        metrics.called(&of(Status::Blocked));
        metrics.called(&Called { again: true, ..of(Status::Blocked) });
        // The record cannot be written, the policy cannot be used; or a run that was allowed is broken off.
        metrics.called(&of(Status::Error));
        metrics.called(&judged(Status::Error));
        metrics.called(&of(Status::Cancelled));
        metrics.called(&of(Status::Invalid));
        let counts = lock(&metrics.counts);
        let number = |family: &'static str, labels: &[(&str, &str)]| {
            counts.get(&(family, labelled(labels))).copied().unwrap_or(0.0)
        };
        let calls = |status| number("hotcell_calls_total", &[("status", status)]);
        let decisions = |decision| number("hotcell_decisions_total", &[("decision", decision)]);
        assert_eq!((calls("success"), calls("blocked"), calls("error")), (1.0, 1.0, 2.0));
        assert_eq!((decisions("allow"), decisions("deny"), decisions("review")), (2.0, 1.0, 0.0));
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.count("hotcell_requests_total", &[("route", "run"), ("status", "200")]);
        metrics.time("hotcell_request_seconds", &[("route", "run")], Duration::from_millis(3));
        let now = Now {
            load: Load::default(),
            lanes: vec![(Lane::Calls, 1, 2)],
            connections: 3,
            log_dropped: 4,
            spans: Some(Spans { sent: 5, no_room: 6, not_taken: 7 }),
        };
        let text = metrics.text(&now);
        for line in [
            "hotcell_requests_total{route=\"run\",status=\"200\"} 1",
            "hotcell_request_seconds_bucket{route=\"run\",le=\"0.001\"} 0",
            "hotcell_request_seconds_bucket{route=\"run\",le=\"0.005\"} 1",
            "hotcell_request_seconds_bucket{route=\"run\",le=\"+Inf\"} 1",
            "hotcell_request_seconds_count{route=\"run\"} 1",
            "hotcell_lane_waiting{lane=\"calls\"} 2",
            "hotcell_connections 3",
            "hotcell_log_lines_lost_total 4",
            "hotcell_spans_sent_total 5",
            "hotcell_spans_lost_total{why=\"no_room\"} 6",
            "hotcell_spans_lost_total{why=\"not_taken\"} 7",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').unwrap().1.parse::<f64>().is_ok(), "{line}");
        }
    }
}
