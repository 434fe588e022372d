//! Each level on a host that gives just that, and `doctor` in agreement.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Person, is_root, words};

const CGROUPS: [&str; 3] = ["cgroup-memory", "cgroup-pids", "cgroup-cpu"];

/// A run and the doctor agree on level and layers, and the doctor is content.
#[track_caller]
fn agree(person: &Person, level: &str, without: &[&str]) {
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    assert_eq!(run.exit, 0, "{run:?}");
    assert_eq!(run.level(), (level.to_owned(), without.iter().map(|s| s.to_string()).collect()));
    let doctor = person.hotcell(&["doctor", "--json"]);
    assert_eq!(doctor.level(), run.level(), "{doctor:?}");
    let document = doctor.json();
    assert_eq!(doctor.exit, 0, "{doctor:?}");
    assert_eq!(document["ok"], true);
    assert_eq!(document["minimum"]["met"], true);
    assert_eq!(document["run"]["status"], "success");
    let text = person.hotcell(&["doctor"]);
    assert_eq!(text.exit, 0, "{text:?}");
    assert!(text.stdout.contains(&format!("\nlevel: {level} (")), "{}", text.stdout);
    for layer in without {
        assert!(text.stdout.contains(&format!("\n{layer:<16}  no ")), "{}", text.stdout);
    }
}

/// Below what is accepted, a run and the doctor refuse and say why; returns what the doctor said.
#[track_caller]
fn refuse(person: &Person, reason: &str, why: &str) -> serde_json::Value {
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    assert_eq!(run.exit, 122, "{run:?}");
    let problem = &run.json()["error"];
    for field in ["what", "why", "fix"] {
        assert!(problem[field].as_str().is_some_and(|t| !t.is_empty()), "{field}: {run:?}");
    }
    let doctor = person.hotcell(&["doctor", "--json"]);
    assert_eq!(doctor.exit, 122, "{doctor:?}");
    let document = doctor.json();
    assert_eq!(document["ok"], false);
    assert_eq!(document["minimum"]["met"], false);
    let first = &document["next"]["obstacles"][0];
    assert_eq!(first["reason"], reason, "{document}");
    assert!(first["why"].as_str().unwrap().contains(why), "{document}");
    assert!(!first["fix"].as_str().unwrap().is_empty(), "{document}");
    document
}

#[test]
fn root_gets_everything() {
    if is_root() {
        agree(&Person::root(), "full", &[]);
    }
}

#[test]
fn a_user_with_cgroups_gets_all_but_an_id_of_its_own() {
    if !is_root() {
        return;
    }
    let person = Person::with_cgroups();
    agree(&person, "user", &["unique-id"]);
    let usage = &person.hotcell(&["run", "--json", "--", "true"]).json()["usage"];
    assert!(usage["peak_memory_bytes"].as_u64().is_some_and(|n| n > 0), "{usage}");
    assert!(usage["peak_pids"].as_u64().is_some_and(|n| n > 0), "{usage}");
}

#[test]
fn a_user_without_cgroups_is_refused_unless_the_operator_accepts_that() {
    if !is_root() {
        return;
    }
    let person = Person::ordinary();
    let document = refuse(&person, "no-cgroup", "cannot be written");
    assert_eq!(document["level"], "no-cgroup");
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    let fix = run.json()["error"]["fix"].as_str().unwrap().to_owned();
    assert!(fix.contains("min_level = \"no-cgroup\""), "{fix}");
    let person = person.accepting("no-cgroup");
    let mut without = vec!["unique-id"];
    without.extend(CGROUPS);
    agree(&person, "no-cgroup", &without);
    // What is not enforced is said and not counted.
    let document = person.hotcell(&["run", "--json", "--", "true"]).json();
    let layers = document["layers"].as_array().unwrap();
    for layer in layers.iter().filter(|l| CGROUPS.contains(&l["layer"].as_str().unwrap())) {
        assert!(layer["seen"].as_str().unwrap().starts_with("not enforced"), "{layer}");
    }
    assert!(document["usage"]["peak_memory_bytes"].is_null(), "{document}");
    // What each process is held by alone is told as the limit that it is, also when it is ignored.
    for trap in ["", "trap '' XCPU; "] {
        let code = format!("{trap}while :; do :; done");
        let words = ["run", "--json", "--cpu-time", "1s", "--", "sh", "-c", &code];
        let document = person.hotcell(&words).json();
        assert_eq!(document["status"], "limit", "{document}");
        assert_eq!(document["limit"], "cpu_time", "{document}");
    }
}

/// As Docker has it: parts of /proc are covered, others read-only.
const MASK: &str = "
    for dir in /proc/acpi /proc/scsi /proc/irq /proc/fs; do
        if [ -d $dir ]; then mount -t tmpfs -o ro mask $dir; fi
    done
    for file in /proc/kcore /proc/keys /proc/timer_list; do
        if [ -e $file ]; then mount --bind /dev/null $file; fi
    done
    mount --bind /proc/sys /proc/sys
    mount -o remount,bind,ro /proc/sys";

#[test]
fn where_proc_is_masked_there_is_none_inside() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary();
    person.after(MASK);
    person.inside(&words("unshare --mount --pid --fork --mount-proc"));
    let document = refuse(&person, "masked-proc", "/proc/");
    assert_eq!(document["level"], "no-proc");
    let person = person.accepting("no-proc");
    agree(&person, "no-proc", &["proc", "unique-id", CGROUPS[0], CGROUPS[1], CGROUPS[2]]);
    let inside = person.python("import os; print(os.listdir('/proc'))");
    assert_eq!(inside.program_said(), "[]");
}

/// As in a rootless container, whose root and users are others outside.
#[test]
fn where_proc_is_masked_in_a_user_namespace_there_is_none_inside() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary();
    person.after(MASK);
    person.inside(&words("unshare --mount --pid --fork --mount-proc"));
    person.below_a_user_namespace("");
    let document = refuse(&person, "masked-proc", "/proc/");
    assert_eq!(document["level"], "no-proc");
    let person = person.accepting("no-proc");
    agree(&person, "no-proc", &["proc", "unique-id", CGROUPS[0], CGROUPS[1], CGROUPS[2]]);
}

#[test]
fn root_of_a_container_with_many_ids_gives_each_run_its_own() {
    if is_root() {
        let mut person = Person::root().accepting("no-cgroup");
        person.below_a_user_namespace("");
        let run = person.hotcell(&["run", "--json", "--", "true"]);
        assert_eq!(run.exit, 0, "{run:?}");
        let layers = run.json()["layers"].as_array().unwrap().clone();
        let id = layers.iter().find(|layer| layer["layer"] == "unique-id").unwrap();
        assert_eq!(id["active"], true, "{id}");
        let doctor = person.hotcell(&["doctor", "--json"]);
        assert_eq!(doctor.level(), run.level(), "{doctor:?}");
    }
}

/// Where the kernel makes no user namespaces. The limit is that of the user namespace above: the
/// host's own stays as it is.
fn without_namespaces() -> Person {
    let mut person = Person::ordinary();
    person.below_a_user_namespace("echo 0 > /proc/sys/user/max_user_namespaces");
    person
}

#[test]
fn without_namespaces_landlock_is_what_remains() {
    if !is_root() {
        return;
    }
    let person = without_namespaces();
    let document = refuse(&person, "namespaces-forbidden", "user.max_user_namespaces is 0");
    assert_eq!(document["level"], "landlock-only");
    let fix = document["next"]["obstacles"][0]["fix"].as_str().unwrap();
    assert!(fix.contains("sysctl user.max_user_namespaces="), "{fix}");
    let person = person.accepting("landlock-only");
    let without = "user-namespace mount-namespace pid-namespace net-namespace ipc-namespace \
                   uts-namespace cgroup-namespace root proc unique-id cgroup-memory cgroup-pids \
                   cgroup-cpu";
    agree(&person, "landlock-only", &without.split_whitespace().collect::<Vec<_>>());
}

/// Somebody who has a file of their own.
fn without_namespaces_and_with_a_secret() -> (Person, std::path::PathBuf) {
    let person = without_namespaces().accepting("landlock-only");
    let secret = person.at("home/secret");
    std::fs::write(&secret, "mine").unwrap();
    std::os::unix::fs::chown(&secret, Some(person.uid), Some(person.uid)).unwrap();
    (person, secret)
}

#[test]
fn without_namespaces_the_users_files_and_processes_are_out_of_reach() {
    if !is_root() {
        return;
    }
    let (person, secret) = without_namespaces_and_with_a_secret();
    let code = format!(
        "import os, socket\n\
         def refused(call, *args):\n try: call(*args)\n except OSError: return True\n\
         path = '{}'\n\
         print([refused(*call) for call in [(open, path), (open, path, 'a'), (os.truncate, path, 0), \
         (os.rename, path, path + '2'), (os.unlink, path), (os.link, path, 'here'), \
         (os.listdir, '/home'), (os.listdir, '/proc'), \
         (socket.socket, socket.AF_INET), (socket.socket, socket.AF_UNIX)]].count(True))",
        secret.display()
    );
    assert_eq!(person.python(&code).program_said(), "10");
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "mine");
    // Landlock holds signals back since ABI 6.
    let abi = person.hotcell(&["doctor", "--json"]).json()["host"]["landlock_abi"].as_u64();
    if abi >= Some(6) {
        let said = person.python("import os; os.kill(os.getppid(), 0)");
        assert!(said.stdout.contains("PermissionError"), "{said:?}");
    }
}

#[test]
fn without_namespaces_not_even_the_mode_of_a_file_can_be_changed() {
    if !is_root() {
        return;
    }
    let (person, secret) = without_namespaces_and_with_a_secret();
    let code = format!(
        "import os\n\
         def refused(call, *args):\n try: call(*args)\n except OSError: return True\n\
         path = '{}'\n\
         print(refused(os.chmod, path, 0o777), refused(os.utime, path, (0, 0)), \
         refused(os.chown, path, -1, -1), refused(os.setxattr, path, 'user.x', b'1'))",
        secret.display()
    );
    assert_eq!(person.python(&code).program_said(), "True True True True");
}

/// A directory of the host has the host's limits, and the result says so.
#[test]
fn without_namespaces_the_result_says_that_the_disk_is_not_limited() {
    if !is_root() {
        return;
    }
    let person = without_namespaces().accepting("landlock-only");
    let result = person.hotcell(&["run", "--json", "--disk", "1MiB", "--", "true"]).json();
    let root = result["layers"].as_array().unwrap().iter().find(|l| l["layer"] == "root").unwrap();
    assert_eq!(root["active"], false);
    assert!(root["seen"].as_str().unwrap().contains("disk and number of files are not limited"));
}

#[test]
fn where_network_namespaces_are_forbidden_nothing_runs_and_the_sysctl_is_named() {
    if !is_root() {
        return;
    }
    for _ in 0..5 {
        let mut person = Person::ordinary().accepting("landlock-only");
        person.below_a_user_namespace("echo 0 > /proc/sys/user/max_net_namespaces");
        nothing_runs(&person, "namespaces-forbidden");
    }
}

/// What the doctor says is in the way, where nothing runs.
#[track_caller]
fn nothing_runs(person: &Person, reason: &str) {
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    assert_eq!(run.exit, 122, "{run:?}");
    let doctor = person.hotcell(&["doctor", "--json"]);
    let document = doctor.json();
    assert_eq!(doctor.exit, 122, "{document}");
    assert!(document["level"].is_null(), "{document}");
    assert_eq!(document["next"]["obstacles"][0]["reason"], reason, "{document}");
}

#[test]
fn where_nothing_is_executed_from_memory_the_launcher_is_roots_own_file() {
    if !is_root() {
        return;
    }
    // On a file system of its own, so that this host has no such file before or after.
    let place = tempfile::tempdir().unwrap();
    let bind = format!(
        "mkdir -p /var/lib/hotcell; mount --bind {} /var/lib/hotcell",
        place.path().display()
    );
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let without_memory = |mut person: Person| {
        // The setting is that of a pid namespace.
        person.after(&format!("{bind}; echo 2 > /proc/sys/vm/memfd_noexec"));
        person.inside(&words("unshare --mount --pid --fork --mount-proc"));
        person
    };
    let (root, ordinary) =
        (without_memory(Person::root()), without_memory(Person::ordinary().accepting("no-cgroup")));
    nothing_runs(&ordinary, "memfd-noexec");
    for person in [&root, &ordinary] {
        let run = person.hotcell(&["run", "--json", "--", "true"]);
        assert_eq!(run.exit, 0, "{run:?}");
    }
    let launcher = std::fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::set_permissions(&launcher, PermissionsExt::from_mode(0o777)).unwrap();
    nothing_runs(&root, "memfd-noexec");
    nothing_runs(&ordinary, "memfd-noexec");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn under_the_filter_of_a_container_nothing_runs_and_the_container_is_named() {
    if !is_root() {
        return;
    }
    for mut person in [Person::root(), Person::ordinary().accepting("no-cgroup")] {
        let filter = ["/usr/bin/python3", "-c", include_str!("filter.py")];
        person.inside(&filter.map(str::to_owned));
        // Whether this very host looks like a container.
        let inside = !person.hotcell(&["doctor", "--json"]).json()["host"]["inside"].is_null();
        nothing_runs(&person, if inside { "container" } else { "under-seccomp" });
    }
}

#[test]
fn in_a_chroot_the_kernel_makes_no_user_namespaces() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary().accepting("no-cgroup");
    let root = person.at("root");
    std::fs::create_dir(&root).unwrap();
    let root = root.display();
    // Not itself a mount, so that everybody can tell.
    person.after(&format!(
        "cd {root}
        for dir in /* /*/; do
            dir=${{dir%/}}
            if [ -L $dir ]; then cp -P $dir .$dir
            elif [ -d $dir ] && [ $dir != /tmp ]; then mkdir -p .$dir; mount --rbind $dir .$dir; fi
        done
        mkdir -p tmp; mount --rbind /tmp tmp
        set -- chroot {root} \"$@\""
    ));
    person.inside(&words("unshare --mount"));
    let document = refuse(&person, "chroot", "in a chroot");
    assert_eq!(document["level"], "landlock-only");
}

#[test]
fn below_a_user_namespace_that_forbids_nothing_all_is_as_outside() {
    if is_root() {
        let mut person = Person::ordinary().accepting("no-cgroup");
        person.below_a_user_namespace("");
        let run = person.hotcell(&["run", "--json", "--", "true"]);
        assert_eq!(run.level().0, "no-cgroup", "{run:?}");
    }
}

/// Without the right to give ids away, runs would have root's.
#[test]
fn root_without_privileges_is_refused() {
    if !is_root() {
        return;
    }
    let mut person = Person::root().accepting("landlock-only");
    person.inside(&words("setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin"));
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    assert_eq!(run.exit, 122, "{run:?}");
    assert!(run.json()["error"]["what"].as_str().unwrap().contains("unique-id"), "{run:?}");
    let document = person.hotcell(&["doctor", "--json"]).json();
    let first = &document["next"]["obstacles"][0];
    assert_eq!(first["reason"], "root-without-privileges", "{document}");
}

#[test]
fn root_of_a_rootless_container_is_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary().accepting("no-cgroup");
    let uid = person.uid;
    person.becoming(&format!(
        "setpriv --reuid={uid} --regid={uid} --clear-groups unshare --user --map-root-user --mount \
         --pid --fork --mount-proc"
    ));
    let run = person.hotcell(&["run", "--json", "--", "true"]);
    assert_eq!(run.exit, 0, "{run:?}");
}
