//! What a decision costs: beside Cedar with the same ten rules, from ten rules to ten thousand of the same
//! operation, and what a token costs among a million. Everything takes turns in one run, so that the ratios hold where the times do not.
//!
//!     cargo run --release --manifest-path bench/policy/Cargo.toml [-- [--quick] [--write] [--check]]

mod cedar;
mod ours;
mod tokens;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const MARKS: [&str; 2] = ["<!-- bench:policy:begin -->", "<!-- bench:policy:end -->"];
/// Decisions in a row, of which one is too short to be measured.
const IN_A_ROW: u32 = 2000;
const ROUNDS: usize = 200;
const SIZES: [usize; 4] = [10, 100, 1000, 10_000];
/// Looks at a token in a row, and how many tokens there are.
const LOOKS_IN_A_ROW: u32 = 200;
const TOKENS: [usize; 3] = [1, 1000, 1_000_000];

/// The promises.
const CEDAR_OVER_OURS: f64 = 3.0;
const GROWTH: f64 = 3.0;
/// Flat: a million rows are three pages of a tree more than one, and no more than that.
const TOKEN_GROWTH: f64 = 1.5;

type Failure = Box<dyn Error>;

/// Somebody who decides, and the time of one decision in nanoseconds, round by round.
struct Lane<'a> {
    decide: Box<dyn Fn() -> bool + 'a>,
    in_a_row: u32,
    nanos: Vec<f64>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("hotcell-bench-policy: {failure}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    let rounds = if has("--quick") { ROUNDS / 10 } else { ROUNDS };
    let call = ours::call()?;
    let facts = ours::facts()?;
    let world = cedar::World::new()?;
    let mut policies = Vec::new();
    for with_when in [false, true] {
        for size in SIZES {
            policies.push(ours::policy(size, with_when)?);
        }
    }
    let stores = TOKENS.map(tokens::Store::new).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut lanes: Vec<Lane<'_>> = vec![Lane::new(IN_A_ROW, || world.allows())];
    let (call, facts) = (&call, &facts);
    let allows = |policy| Lane::new(IN_A_ROW, move || ours::allows(policy, call, facts));
    lanes.extend(policies.iter().map(allows));
    lanes.extend(stores.iter().map(|store| Lane::new(LOOKS_IN_A_ROW, || store.is_good())));
    if !lanes.iter().all(|lane| (lane.decide)()) {
        return Err("somebody does not allow what everybody should".into());
    }
    for _ in 0..rounds {
        lanes.iter_mut().for_each(Lane::measure);
    }
    let medians: Vec<f64> = lanes.iter().map(Lane::median).collect();
    let (text, missed) = tables(&medians)?;
    match has("--write") {
        true => write(&text)?,
        false => println!("{text}"),
    }
    Ok(ExitCode::from(u8::from(has("--check") && missed)))
}

impl<'a> Lane<'a> {
    fn new(in_a_row: u32, decide: impl Fn() -> bool + 'a) -> Lane<'a> {
        Lane { decide: Box::new(decide), in_a_row, nanos: Vec::new() }
    }

    fn measure(&mut self) {
        let begun = Instant::now();
        for _ in 0..self.in_a_row {
            black_box((self.decide)());
        }
        self.nanos.push(begun.elapsed().as_nanos() as f64 / f64::from(self.in_a_row));
    }

    fn median(&self) -> f64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// The tables, and whether a promise is not kept.
fn tables(medians: &[f64]) -> Result<(String, bool), Failure> {
    let (Some((cedar, plain)), n) = (medians.split_first(), SIZES.len()) else {
        return Err("nothing was measured".into());
    };
    let (Some(plain), Some(with_when), Some(tokens)) =
        (plain.get(..n), plain.get(n..2 * n), plain.get(2 * n..))
    else {
        return Err("too little was measured".into());
    };
    let first = |values: &[f64]| values.first().copied().unwrap_or(f64::NAN);
    let last = |values: &[f64]| values.last().copied().unwrap_or(f64::NAN);
    let beside = cedar / first(plain);
    let growth = [last(plain) / first(plain), last(with_when) / first(with_when)];
    let word = |met: bool| if met { "met" } else { "**missed**" };
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    let mut text = format!("Load average {load} at the end, the measurement itself included.\n\n");
    writeln!(text, "| goal | promised | measured | |\n|---|---|---|---|")?;
    let met = beside >= CEDAR_OVER_OURS;
    let goal = "ten rules: Cedar's time over ours";
    writeln!(text, "| {goal} | at least {CEDAR_OVER_OURS} | {beside:.1} | {} |", word(met))?;
    let mut missed = !met;
    for (growth, what) in growth.into_iter().zip(["", ", each with `when`"]) {
        let met = growth <= GROWTH;
        missed |= !met;
        let goal = format!("10,000 rules of one operation over 10{what}");
        writeln!(text, "| {goal} | at most {GROWTH} | {growth:.2} | {} |", word(met))?;
    }
    let growth = last(tokens) / first(tokens);
    let met = growth <= TOKEN_GROWTH;
    missed |= !met;
    let goal = "a token among 1,000,000 over one alone";
    writeln!(text, "| {goal} | at most {TOKEN_GROWTH} | {growth:.2} | {} |", word(met))?;
    writeln!(
        text,
        "\n| a decision, in ns | {} |",
        SIZES.map(|s| format!("{s} rules")).join(" | ")
    )?;
    writeln!(text, "|---|{}", "---|".repeat(n))?;
    let row =
        |values: &[f64]| values.iter().map(|v| format!("{v:.0}")).collect::<Vec<_>>().join(" | ");
    writeln!(text, "| hotcell | {} |", row(plain))?;
    writeln!(text, "| hotcell, each rule with `when` | {} |", row(with_when))?;
    writeln!(
        text,
        "| Cedar {} | {cedar:.0} |{}",
        cedar_policy::get_sdk_version(),
        " – |".repeat(n - 1)
    )?;
    let sizes =
        TOKENS.map(|size| if size == 1 { "1 token".into() } else { format!("{size} tokens") });
    writeln!(text, "\n| whether a token is good, in ns | {} |", sizes.join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(TOKENS.len()))?;
    writeln!(text, "| signature, row, claims | {} |", row(tokens))?;
    Ok((text, missed))
}

fn write(text: &str) -> Result<(), Failure> {
    let readme = fs::read_to_string(README)?;
    let [begin, end] = MARKS;
    let (before, rest) = readme.split_once(begin).ok_or("the README has no place for it")?;
    let (_, after) = rest.split_once(end).ok_or("the README has no place for it")?;
    fs::write(README, format!("{before}{begin}\n{text}{end}{after}"))?;
    Ok(())
}
