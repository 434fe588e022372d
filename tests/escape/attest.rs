//! What the launcher reads back. A layer that is missing by mistake is seen, and there is no run: one row for
//! each that can be left out, and for each the same run where that is overlooked.

use hotcell_sandbox::Refusal;
use hotcell_tests::{Attack, Quiet, hole, is_root_for, sandbox};
use hotcell_types::{Layer, Level, Status};

/// A program that is there in every run; what it does is not looked at.
fn program() -> Attack {
    Attack::shell("true")
}

#[track_caller]
fn is_refused(name: &str, attack: Attack, expected: &[Layer]) {
    match attack.without(hole::SEEN).try_run() {
        Err(Refusal::Layer { layer, .. }) => {
            assert!(expected.contains(&layer), "{name}: {layer:?}")
        }
        other => panic!("{name} is missing, and it ran: {other:?}"),
    }
}

#[test]
fn every_layer_that_is_missing_is_seen_before_the_program_starts() {
    // The control: nothing is missing.
    assert_eq!(program().without(hole::SEEN).run().status, Status::Success);
    let namespaces = &[Layer::PidNamespace][..];
    for (name, left_out, layers) in [
        ("net", hole::NET, namespaces),
        ("ipc", hole::IPC, namespaces),
        ("uts", hole::UTS, namespaces),
        ("pid", hole::PID, namespaces),
        ("cgroup namespace", hole::CGROUP_NAMESPACE, namespaces),
        ("landlock", hole::LANDLOCK, &[Layer::Landlock]),
        ("capabilities", hole::CAPABILITIES, &[Layer::Capabilities]),
        ("privileges", hole::NO_NEW_PRIVS | hole::CAPABILITIES, &[Layer::Capabilities]),
        ("session", hole::SESSION, &[Layer::Session]),
        ("limits", hole::RLIMITS, &[Layer::Rlimits]),
        ("descriptors", hole::DESCRIPTORS, &[Layer::Session]),
    ] {
        is_refused(name, program().without(left_out), layers);
        // Overlooked, it runs: it was looking that refused it.
        let overlooked = program().without(left_out).run();
        assert_eq!(overlooked.status, Status::Success, "{name}: {overlooked:?}");
    }
    if !is_root_for("a tree with a hole") {
        return;
    }
    is_refused("root", program().without_root(), &[Layer::Root]);
    assert_eq!(program().without_root().run().status, Status::Success);
}

#[test]
fn what_a_level_promises_and_a_run_has_not_is_seen() {
    let level = sandbox().level();
    if level >= Level::Full {
        is_refused("own id", program().without_own_id(), &[Layer::UniqueId]);
    }
    if level >= Level::User {
        let cgroups = [Layer::CgroupMemory, Layer::CgroupPids, Layer::CgroupCpu];
        is_refused("cgroup", program().without_cgroup(), &cgroups);
    }
    let all = program().start().unwrap().wait(&mut Quiet, None).unwrap();
    let missing = all.layers.iter().find(|l| !l.active && l.layer.since() <= level);
    assert!(missing.is_none(), "{missing:?}");
}
