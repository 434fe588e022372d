//! What an ordinary user does with it, with cgroups and without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Person, Said, is_root};

/// The same for a user with cgroups and for one without.
fn both(check: impl Fn(&mut Person)) {
    if is_root() {
        check(&mut Person::with_cgroups());
        check(&mut Person::ordinary().accepting("no-cgroup"));
    }
}

#[track_caller]
fn prints(said: &Said, text: &str) {
    assert_eq!((said.exit, said.stdout.as_str(), said.stderr.as_str()), (0, text, ""));
}

#[test]
fn every_language_runs() {
    both(|person| {
        prints(&person.hotcell(&["run", "--lang", "python", "-c", "print(6 * 7)"]), "42\n");
        prints(&person.hotcell(&["run", "--lang", "js", "-c", "console.log(6 * 7)"]), "42\n");
        prints(&person.hotcell(&["run", "--lang", "sh", "-c", "echo $((6 * 7))"]), "42\n");
        prints(&person.hotcell(&["run", "--", "echo", "42"]), "42\n");
    });
}

#[test]
fn threads_and_processes_run_beside_many_others_of_the_same_user() {
    both(|person| {
        let mut sleepers: Vec<_> = (0..150)
            .map(|_| {
                let mut sleeper = Command::new("sleep");
                std::os::unix::process::CommandExt::uid(&mut sleeper, person.uid);
                sleeper.arg("60").spawn().unwrap()
            })
            .collect();
        let said = person.python(
            "import threading, subprocess, time\n\
             threads = [threading.Thread(target=time.sleep, args=(0.1,)) for _ in range(20)]\n\
             [t.start() for t in threads]; [t.join() for t in threads]\n\
             print(subprocess.run(['echo', 'ran'], capture_output=True, text=True).stdout)",
        );
        for sleeper in &mut sleepers {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
        assert_eq!(said.program_said(), "ran");
    });
}

/// Leaves a file of each mode, called and containing what it is.
fn leave(person: &Person, modes: &[&str]) -> Said {
    let code = "import os, sys\n\
                for name in sys.argv[1:]:\n \
                    open(name, 'w').write(name)\n \
                    os.chmod(name, int(name, 8))";
    let args = ["run", "--json", "--output-dir", "out", "--lang", "python", "-c", code];
    let said = person.hotcell(&[&args, modes].concat());
    assert_eq!(said.exit, 0, "{said:?}");
    said
}

#[track_caller]
fn collected(person: &Person, names: &[&str], said: &Said) {
    for name in names {
        let file = person.at("here/out").join(name);
        let content = fs::read_to_string(&file);
        assert_eq!(content.ok().as_deref(), Some(*name), "{name}: {said:?}");
        // Whoever asked for them owns them.
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&file).unwrap());
        assert_eq!(owner, person.uid);
    }
}

#[test]
fn files_that_only_their_owner_can_read_are_collected() {
    both(|person| {
        let modes = ["400", "600", "644", "755"];
        collected(person, &modes, &leave(person, &modes));
    });
}

#[test]
fn files_that_not_even_their_owner_can_read_are_collected_by_root() {
    if is_root() {
        let root = Person::root();
        let modes = ["000", "200"];
        collected(&root, &modes, &leave(&root, &modes));
    }
}

#[test]
fn what_cannot_be_collected_is_said() {
    both(|person| {
        let document = leave(person, &["600", "000"]).json();
        let names = |list: &str| -> Vec<String> {
            let list = document[list].as_array().unwrap().iter();
            list.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
        };
        let mut all = [names("artifacts"), names("skipped")].concat();
        all.sort();
        assert_eq!(all, ["000", "600"], "{document}");
    });
}

#[test]
fn files_that_not_even_their_owner_can_read_are_collected() {
    both(|person| {
        let modes = ["000", "200"];
        collected(person, &modes, &leave(person, &modes));
    });
}

#[test]
fn nothing_is_left_in_the_cgroups() {
    if is_root() {
        let person = Person::with_cgroups();
        let left = || person.cgroups.as_ref().unwrap().left();
        person.hotcell(&["doctor"]);
        assert_eq!(left(), Vec::<std::path::PathBuf>::new(), "after doctor");
        person.hotcell(&["run", "--", "true"]);
        assert_eq!(left(), Vec::<std::path::PathBuf>::new(), "after run");
    }
}

#[test]
fn inputs_that_only_the_user_can_read_are_readable_inside() {
    both(|person| {
        let input = person.at("here/secret.txt");
        fs::write(&input, "mine").unwrap();
        fs::set_permissions(&input, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&input, Some(person.uid), Some(person.uid)).unwrap();
        let said = person.hotcell(&["run", "--input", "secret.txt", "--", "cat", "secret.txt"]);
        prints(&said, "mine");
    });
}

#[test]
fn ctrl_c_ends_everything() {
    both(|person| {
        let code = "import subprocess, sys, signal, time\n\
                    signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                    subprocess.Popen(['sleep', '1000'])\n\
                    print('up', flush=True); time.sleep(1000)";
        let mut command = person.command(&["run", "--lang", "python", "-c", code]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
        // setpriv and the shell that entered the cgroups have become hotcell by now.
        let begun = Instant::now();
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{status:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(processes_of(person.uid), Vec::<String>::new());
    });
}

#[test]
fn ctrl_c_at_a_terminal_ends_everything() {
    both(|person| {
        let mut command = person.command(&["run", "--", "sh", "-c", "echo up; sleep 1000"]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        // A terminal sends it to everything in the foreground.
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{status:?}");
        assert_eq!(processes_of(person.uid), Vec::<String>::new());
    });
}

/// The command lines of a user's processes.
fn processes_of(uid: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
        if line.split_whitespace().any(|word| word == uid.to_string()) {
            let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{:?} {}", entry.file_name(), line.replace('\0', " ")));
        }
    }
    found
}

#[test]
fn further_groups_do_not_matter() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary().accepting("no-cgroup");
    let uid = person.uid;
    person.becoming(&format!("setpriv --reuid={uid} --regid={uid} --groups=4,24,27,100"));
    let said = person.python("import os; print(os.getuid(), os.getgid(), os.access('/', os.W_OK))");
    assert_eq!(said.program_said(), "1000 1000 False");
}

/// The kernel lets no ordinary user give up a group: a run has those of its user, without their
/// numbers. Among what it sees nothing is for them alone.
#[test]
fn further_groups_have_no_name_inside() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary().accepting("no-cgroup");
    let uid = person.uid;
    person.becoming(&format!("setpriv --reuid={uid} --regid={uid} --groups=4,24,27,100"));
    let said = person.python("import os; print(sorted(set(os.getgroups()) - {1000, 65534}))");
    assert_eq!(said.program_said(), "[]");
}

#[test]
fn without_a_home_there_is_a_clear_error_and_hotcell_home_helps() {
    if !is_root() {
        return;
    }
    let mut person = Person::ordinary().accepting("no-cgroup");
    person.without_env("HOME");
    assert_eq!(person.python("print(1)").program_said(), "1");
    person.without_env("HOTCELL_HOME");
    let said = person.hotcell(&["run", "--", "true"]);
    assert_eq!(said.exit, 121, "{said:?}");
    assert!(said.stderr.contains("HOTCELL_HOME"), "{said:?}");
}

/// No audit, no action: what cannot be recorded does not happen.
#[test]
fn a_home_that_cannot_be_written_is_a_clear_error_and_nothing_runs() {
    if !is_root() {
        return;
    }
    let mut person = Person::with_cgroups();
    person.without_env("HOTCELL_HOME");
    let home = person.at("home");
    std::os::unix::fs::chown(&home, Some(0), Some(0)).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).unwrap();
    let homes = [home.to_str().unwrap().to_owned(), "/nonexistent".to_owned()];
    for home in homes {
        person.env("HOME", &home);
        let said = person.hotcell(&["run", "--", "echo", "ran"]);
        assert_eq!((said.exit, said.stdout.as_str()), (120, ""), "{said:?}");
        assert!(said.stderr.contains("HOTCELL_HOME"), "{said:?}");
    }
    person.env("HOTCELL_HOME", person.at("here/new/home").to_str().unwrap());
    assert_eq!(person.python("print(1)").program_said(), "1", "one that is not there is made");
}

#[test]
fn a_missing_run_user_is_no_obstacle() {
    both(|person| {
        person.env("XDG_RUNTIME_DIR", &format!("/run/user/{}", person.uid));
        person.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
        assert_eq!(person.python("print(1)").program_said(), "1");
    });
}

#[test]
fn a_directory_that_cannot_be_entered_is_no_obstacle() {
    both(|person| {
        let here = person.at("here");
        fs::set_permissions(&here, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(person.python("print(1)").program_said(), "1");
        fs::set_permissions(&here, fs::Permissions::from_mode(0o700)).unwrap();
    });
}

#[test]
fn a_strict_umask_is_no_obstacle() {
    both(|person| {
        person.inside(&["sh", "-c", "umask 077; exec \"$@\"", "sh"].map(str::to_owned));
        let said = person.hotcell(&[
            "run",
            "--output-dir",
            "out",
            "--",
            "sh",
            "-c",
            "echo x > f; cat /etc/passwd >/dev/null",
        ]);
        prints(&said, "");
        assert_eq!(fs::read_to_string(person.at("here/out/f")).unwrap(), "x\n");
    });
}

#[test]
fn without_cgroups_each_process_still_has_its_limits() {
    if !is_root() {
        return;
    }
    let person = Person::ordinary().accepting("no-cgroup");
    let code = "x = bytearray(400 << 20)";
    let run =
        |mem: &str| person.hotcell(&["run", "--mem", mem, "--lang", "python", "-c", code]).exit;
    assert_eq!((run("1GiB"), run("200MiB")), (0, 1));
    let forks = "import os, time\nn = 0\ntry:\n while n < 50:\n  if os.fork() == 0: time.sleep(5); os._exit(0)\n  n += 1\nexcept OSError: pass\nprint(n < 50)";
    let said = person.hotcell(&["run", "--pids", "20", "--lang", "python", "-c", forks]);
    prints(&said, "True\n");
}
