//! Every way to end, with its number.

use crate::support::World;

#[test]
fn the_status_of_the_program_passes_through() {
    let Some(world) = World::new() else { return };
    for code in 0..=255 {
        let ran = world.run(&["run", "--", "sh", "-c", &format!("exit {code}")]);
        ran.is(code, "", "");
    }
}

#[test]
fn a_signal_that_ends_the_program_is_128_and_its_number() {
    let Some(world) = World::new() else { return };
    // Not those that are ignored or stop, nor SIGXCPU and SIGXFSZ, which stand for limits.
    for signal in
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 26, 27, 29, 30, 31, 34, 64]
    {
        let ran = world.run(&["run", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        ran.is(128 + signal, "", "");
    }
    let report = world.json(&[], "shell", "kill -11 $$");
    assert_eq!(report["status"], "killed");
    assert_eq!(report["exit"], serde_json::json!({ "signal": 11 }));
}

#[test]
fn numbers_of_ours_that_a_program_uses_are_told_apart_in_the_document() {
    let Some(world) = World::new() else { return };
    for code in 120..=127 {
        let ran = world.code(&["--json"], "shell", &format!("exit {code}"));
        let report = ran.json();
        assert_eq!((ran.code, &report["status"]), (code, &"failure".into()), "{report}");
        assert_eq!(report["exit"], serde_json::json!({ "code": code }));
    }
}

#[test]
fn what_the_program_leaves_running_ends_with_it() {
    let Some(world) = World::new() else { return };
    let ran = world.code(&[], "shell", "sleep 100 & (setsid sleep 100 &) ; echo over; exit 3");
    ran.is(3, "over\n", "");
    assert!(ran.took.as_secs() < 10, "{:?}", ran.took);
}

#[test]
fn an_end_at_the_very_deadline_is_either_of_the_two() {
    let Some(world) = World::new() else { return };
    for extra in 0..40 {
        let seconds = format!("0.0{}", 95 + extra % 5);
        let ran = world.run(&["run", "--timeout", "100ms", "--", "sleep", &seconds]);
        assert!([0, 124].contains(&ran.code), "{ran:?}");
    }
}
