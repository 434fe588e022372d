//! Every target without nightly or coverage: a deterministic mutator over the seeds, for
//! `HOTCELL_FUZZ_SECONDS` (2 unless it is set) per target. An input with a new outcome becomes a seed.
//! Files in `corpus/TARGET` and `artifacts/TARGET`, where cargo-fuzz keeps its own, are tried as well.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use hotcell_fuzz::{TARGETS, Target};
use rustix::time::{ClockId, clock_gettime};

/// Longest input that is made.
const LONGEST: usize = 4096;
/// Most inputs that are kept.
const MOST_KEPT: usize = 2048;

/// What one input may take, of those that come from whoever would like the policy to say something else: rule
/// files, conditions, tests and tokens. An order of magnitude above what the worst one takes in a debug build.
const BOUNDED: [&str; 5] = ["rule_file", "when", "expectation", "glob", "bearer"];
/// Of this thread's own processor time, so that others on the machine do not count.
const MOST_TIME: Duration = Duration::from_secs(15);
/// At one time.
const MOST_BYTES: u64 = 256 << 20;

#[test]
fn every_target_holds_for_its_seeds_and_what_comes_of_them() {
    let seconds = std::env::var("HOTCELL_FUZZ_SECONDS")
        .map_or(2.0, |text| text.parse().expect("a number of seconds"));
    let mut wrong = Vec::new();
    for target in TARGETS {
        match fuzz(target, Duration::from_secs_f64(seconds)) {
            Ok(said) => println!("ok {said}"),
            Err(input) => wrong.push(format!("{}: {input:02x?}", target.name)),
        }
    }
    assert!(wrong.is_empty(), "inputs that do not hold:\n{}", wrong.join("\n"));
}

/// What was done, or the input that did not hold.
fn fuzz(target: Target, time: Duration) -> Result<String, Vec<u8>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut kept = (target.seeds)();
    for kind in ["corpus", "artifacts"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name);
        let files = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        kept.extend(files.filter_map(|file| std::fs::read(file.path()).ok()));
    }
    let seeds = kept.len();
    let mut outcomes = HashSet::new();
    for input in &kept {
        outcomes.insert(attempt(target, input)?);
    }
    let deadline = Instant::now() + time;
    let mut tried = 0_u64;
    while Instant::now() < deadline {
        for _ in 0..100 {
            let mut input = random.pick(&kept).clone();
            for _ in 0..=random.below(4) {
                mutate(&mut random, &mut input, &kept);
            }
            tried += 1;
            if outcomes.insert(attempt(target, &input)?) && kept.len() < MOST_KEPT {
                kept.push(input);
            }
        }
    }
    Ok(format!("{}: {seeds} seeds, {tried} inputs, {} outcomes", target.name, outcomes.len()))
}

fn attempt(target: Target, input: &[u8]) -> Result<u64, Vec<u8>> {
    let mut ran = Err(input.to_vec());
    let took = taken(|| {
        let run = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        ran = run.map_err(|_| input.to_vec());
    });
    if BOUNDED.contains(&target.name) && !took.is_bounded() {
        println!("{}: one input took {took:?}", target.name);
        return Err(input.to_vec());
    }
    ran
}

/// What something took.
#[derive(Debug, Clone, Copy)]
struct Taken {
    time: Duration,
    bytes: u64,
}

impl Taken {
    fn is_bounded(self) -> bool {
        self.time <= MOST_TIME && self.bytes <= MOST_BYTES
    }
}

/// On this thread.
fn taken(run: impl FnOnce()) -> Taken {
    let begun = thread_time();
    let bytes = measure(run).bytes_max;
    Taken { time: thread_time() - begun, bytes }
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// The bounds hold where they are hardest to hold: files as large as one may be, made of what parsers, globs and
/// regular expressions take longest for.
#[test]
fn the_worst_that_somebody_can_write_is_read_in_bounded_time_and_memory() {
    let most = hotcell_policy::FILE_MOST;
    let fill = |begin: &str, unit: &str, end: &str| {
        let times = (most - begin.len() - end.len()) / unit.len();
        format!("{begin}{}{end}", unit.repeat(times)).into_bytes()
    };
    let rule = |field: &str| format!("rules: [{{ name: a, match: {{ {field} }}, action: allow }}]");
    let when = |text: &str| {
        let text = serde_json::Value::from(text);
        format!("rules: [{{ name: a, match: {{}}, action: allow, when: {text} }}]").into_bytes()
    };
    let redact = |regex: &str| {
        format!("redact: [{{ regex: {} }}]", serde_json::Value::from(regex)).into_bytes()
    };
    let many = (0..8000).map(|n| {
        format!("- {{ name: r{n}, match: {{ path: ['**/a*{n}*b/**/c?'] }}, action: allow, when: args.size < {n} }}\n")
    });
    let wide: Vec<String> = (0..10_000).map(|n| format!("'**/{n}*/**/x{n}?[a-z]'")).collect();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("open lists", fill("rules: ", "[", "")),
        ("open maps", fill("rules: ", "{a: ", "")),
        ("nested blocks", fill("a:\n", "- ", "")),
        (
            "deeper and deeper",
            (0..1400).map(|n| " ".repeat(n) + "a:\n").collect::<String>().into_bytes(),
        ),
        ("anchors", fill("a: &a [x]\nb: [", "*a,", "]\n")),
        ("one long word", fill("rules: \"", "a", "\"\n")),
        ("escapes", fill("rules: \"", "\\u0041", "\"\n")),
        ("keys", fill("", "a: 1\n", "")),
        ("empty documents", fill("", "---\n", "")),
        ("comments", fill("", "#\n", "")),
        ("rules without anything", fill("rules:\n", "- {}\n", "")),
        (
            "many rules",
            ["rules:\n".to_owned()].into_iter().chain(many).collect::<String>().into_bytes(),
        ),
        ("many globs", rule(&format!("path: [{}]", wide.join(", "))).into_bytes()),
        ("stars", rule(&format!("path: ['{}x']", "*a".repeat(2000))).into_bytes()),
        ("directories", rule(&format!("path: ['{}x']", "**/a/".repeat(800))).into_bytes()),
        ("brackets", when(&"(".repeat(10_000))),
        ("nots", when(&"!".repeat(10_000))),
        ("a sum", when(&("1".to_owned() + &"+1".repeat(10_000) + " == 0"))),
        ("lists in lists", when(&("[".repeat(5_000) + &"]".repeat(5_000)))),
        (
            "a loop of loops",
            when("paths.all(a, paths.all(b, paths.all(c, paths.all(d, a + b == c + d))))"),
        ),
        ("a repeated repetition", when("args.text.matches('((a{100}){100}){100}')")),
        ("a class, repeated", when("args.text.matches('[\\\\p{L}]{1000}{1000}')")),
        ("a slow secret", redact("(x+x+)+y")),
        ("a large secret", redact("(a|b|c|d){400}[ab]*a[ab]{400}c")),
        ("letters", redact("\\p{L}{500}\\p{N}{500}")),
    ];
    let mut wrong = Vec::new();
    let mut check = |what: &str, name: &str, input: &[u8]| {
        let target = TARGETS.into_iter().find(|target| target.name == name).unwrap();
        let took = taken(|| {
            (target.run)(input);
        });
        println!("{what}: {took:?}");
        wrong.extend((!took.is_bounded()).then(|| format!("{what}: {took:?}")));
    };
    for (what, file) in &files {
        assert!(file.len() <= most, "{what}");
        check(what, "rule_file", file);
    }
    check("tests", "expectation", &fill("tests:\n", "- { call: a, args: {}, expect: deny }\n", ""));
    check("a long token", "bearer", &fill("hct_", "A", ""));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Otherwise nothing above could fail.
#[test]
fn what_takes_too_long_or_too_much_is_found() {
    let idle = taken(|| {});
    assert!(idle.is_bounded(), "{idle:?}");
    assert!(!Taken { time: MOST_TIME * 2, ..idle }.is_bounded());
    assert!(!Taken { bytes: MOST_BYTES * 2, ..idle }.is_bounded());
    let slow = taken(|| {
        let begun = thread_time();
        while thread_time() - begun < Duration::from_millis(50) {}
    });
    assert!(slow.time >= Duration::from_millis(50), "{slow:?}");
    // Who waits takes nothing.
    let waits = taken(|| std::thread::sleep(Duration::from_millis(50)));
    assert!(waits.time < Duration::from_millis(50), "{waits:?}");
    let run = |input: &[u8]| vec![0_u8; input.len() << 20].len() as u64;
    let greedy = Target { name: "rule_file", run, seeds: Vec::new };
    let most = MOST_BYTES as usize >> 20;
    assert!(attempt(greedy, &vec![0; most + 1]).is_err() && attempt(greedy, &[0]).is_ok());
}

/// Xorshift: the same inputs every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `most`, which is not zero.
    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// One small change: where parsers are careless, it is about edges, lengths and repetition.
fn mutate(random: &mut Random, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
    const EDGES: [u64; 12] = [
        0,
        1,
        0x7f,
        0x80,
        0xff,
        0x100,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        i64::MAX as u64,
        u64::MAX,
    ];
    const BYTES: &[u8] = b"\0\x01\xff\n\r \t/.-+=:#!0123456789aAzZ'\"\\\x7f\x80";
    let at = random.below(input.len() + 1);
    let end = at + random.below(input.len() - at + 1);
    match random.below(8) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = *random.pick(BYTES),
        2 => input.insert(at, *random.pick(BYTES)),
        3 => drop(input.drain(at..end)),
        4 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        5 => {
            let width = *random.pick(&[1, 2, 4, 8]);
            let edge = random.pick(&EDGES).to_le_bytes();
            let end = (at + width).min(input.len());
            input[at..end].copy_from_slice(&edge[..end - at]);
        }
        6 => {
            let other = random.pick(kept);
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ if at < input.len() => input[at] = input[at].wrapping_add(random.next() as u8 | 1),
        _ => input.push(random.next() as u8),
    }
    input.truncate(LONGEST);
}
