//! What befalls hotcell itself: it is killed again and again, has no memory, or its clock jumps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LONG, Started, World, skip};

/// Everything in the home is in order: the record is sound, and nothing in it is open.
#[track_caller]
fn is_in_order(world: &World) {
    let ran = world.run(&["audit", "verify"]);
    assert!(ran.code == 0 && ran.text().starts_with("sound: "), "{ran:?}");
    let ran = world.run(&["runs", "--json", "--limit", "10000"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in ran.text().lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        assert!(call["status"].is_string(), "it is still open: {call}");
    }
    let ran = world.code(&[], "sh", "echo fine");
    ran.is(0, "fine\n", "");
}

const LOAD: [&[&str]; 6] = [
    &["run", "--", "echo", "one"],
    &["run", "--", "sh", "-c", "echo two > two; sleep 0.1"],
    &["tool", "call", "code_execute", r#"{"language": "shell", "code": "echo three; sleep 0.05"}"#],
    &["tool", "call", "add", r#"{"a": 1, "b": 2}"#],
    &["gc", "--keep", "0d"],
    &["artifact", "ls"],
];

#[test]
fn cr_16_killed_at_random_under_mixed_load_everything_is_in_order_each_time() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    world.code(&[], "sh", "true").is(0, "", "");
    let kills = std::env::var("HOTCELL_KILLS").map_or(24, |kills| kills.parse().unwrap());
    // The same numbers each time.
    let mut seed = 16_u64;
    let mut roll = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    for kill in 0..kills {
        let mut load: Vec<Started> = (0..3)
            .map(|_| Started::new(world.command(LOAD[roll(LOAD.len() as u64) as usize])))
            .collect();
        std::thread::sleep(Duration::from_millis(roll(120)));
        let victim = load.swap_remove(roll(3) as usize);
        victim.signal(Signal::KILL);
        victim.finish(LONG);
        for other in load {
            let ran = other.finish(LONG);
            assert_eq!(ran.code, 0, "kill {kill}: {ran:?}");
        }
        if kill % 6 == 5 {
            is_in_order(&world);
        }
    }
    is_in_order(&world);
}

#[test]
fn cr_17_without_memory_it_ends_and_what_it_leaves_is_in_order() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    world.code(&[], "sh", "true").is(0, "", "");
    let (mut worked, mut failed) = (0, 0);
    for mib in [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 2048] {
        // Of address space, which is what an ordinary user can limit.
        let script = format!("ulimit -v {}; exec \"$0\" run -- echo ran", mib * 1024);
        let ran = Started::new(world.shell(&script)).finish(LONG);
        let is_told = ran.code == 0 || ran.stdout.is_empty();
        assert!(is_told, "{mib} MiB: {ran:?}");
        worked += u32::from(ran.code == 0);
        failed += u32::from(ran.code != 0);
    }
    assert!(worked > 0 && failed > 0, "{worked} {failed}");
    is_in_order(&world);
}

/// A library that makes the wall clock jump. `None`, loudly, where there is no compiler.
fn clock(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/clock.c");
    let library = dir.join("clock.so");
    let made = Command::new("gcc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if made.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    skip("there is no gcc here");
    None
}

#[test]
fn clk_02_a_clock_that_jumps_by_years_neither_ends_a_run_nor_lets_it_go_on() {
    const YEARS: i64 = 10 * 365 * 86_400;
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    let Some(library) = clock(&world.at("")) else { return };
    let jumping = |steps: String, words: &[&str]| {
        let mut command = world.command(words);
        command.env("LD_PRELOAD", &library).env("CLOCK_STEPS", steps);
        Started::new(command).finish(LONG)
    };
    // The jump is seen: without it this test shows nothing.
    let now = |steps: String| -> i64 {
        let ran = jumping(steps, &["tool", "call", "current_timestamp", "{}"]);
        ran.text().trim().parse().unwrap_or_else(|_| panic!("{ran:?}"))
    };
    assert!(now(format!("0:{YEARS}")) - now("0:0".into()) > YEARS / 2);
    for steps in [
        format!("0:{YEARS} 0.4:0 0.8:-{YEARS}"),
        format!("0.4:{YEARS}"),
        format!("0.4:-{YEARS}"),
        format!("0:-{}", 3 * 10 * YEARS),
    ] {
        let ran =
            jumping(steps.clone(), &["run", "--json", "--timeout", "20s", "--", "sleep", "1.2"]);
        let document = ran.json();
        assert_eq!(document["status"], "success", "{steps}: {document}");
        let wall = document["usage"]["wall_ms"].as_u64().unwrap();
        assert!((1000..10_000).contains(&wall), "{steps}: {wall}");
        let ran = jumping(steps.clone(), &["run", "--timeout", "1s", "--", "sleep", "60"]);
        assert_eq!(ran.code, 124, "{steps}: {ran:?}");
        assert!(ran.took < Duration::from_secs(4), "{steps}: {ran:?}");
        is_in_order(&world);
    }
}
