//! Every target without nightly or coverage: a deterministic mutator over the seeds, for
//! `HOTCELL_FUZZ_SECONDS` (2 unless it is set) per target. An input with a new outcome becomes a seed.
//! Files in `corpus/TARGET` and `artifacts/TARGET`, where cargo-fuzz keeps its own, are tried as well.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_fuzz::{TARGETS, Target};

/// Longest input that is made.
const LONGEST: usize = 4096;
/// Most inputs that are kept.
const MOST_KEPT: usize = 2048;

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
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| input.to_vec())
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
