//! Homes that are not what they should be: every command says so, with the reason, and changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use rusqlite::Connection;

use crate::support::World;

const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// Everything that needs the record.
const COMMANDS: [&[&str]; 11] = [
    &["runs"],
    &["runs", "show", ID],
    &["logs"],
    &["replay", ID],
    &["gc"],
    &["backup", "home.tar"],
    &["audit", "log"],
    &["artifact", "ls"],
    &["token", "ls"],
    &["token", "mint", "add"],
    &["tool", "call", "code_execute", r#"{"language": "shell", "code": "true"}"#],
];

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A home with something recorded.
fn world() -> World {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    let denied = world.run(&["tool", "call", "fs.write", r#"{"path": "a", "text": "b"}"#]);
    assert_eq!(said(&denied).0, 119);
    world
}

fn sql(world: &World, change: &str) {
    Connection::open(world.at("../home/hotcell.db")).unwrap().execute_batch(change).unwrap();
}

#[track_caller]
fn all_refuse(world: &World, what: &str, why: &str) {
    let database = world.at("../home/hotcell.db");
    let before = fs::read(&database).ok();
    for words in COMMANDS {
        let (code, stdout, stderr) = said(&world.run(words));
        assert_eq!((code, stdout.as_str()), (120, ""), "{words:?}: {stderr}");
        assert!(stderr.starts_with(&format!("error: {what}")), "{words:?}: {stderr}");
        assert!(stderr.contains(why) && stderr.contains("\n  fix: "), "{words:?}: {stderr}");
    }
    assert!(before == fs::read(&database).ok(), "it was changed");
    assert!(!world.at("home.tar").exists());
}

#[test]
fn a_database_that_is_damaged_foreign_or_newer_is_refused_and_left_as_it_is() {
    let write =
        |world: &World, bytes: &[u8]| fs::write(world.at("../home/hotcell.db"), bytes).unwrap();
    type Damage<'a> = &'a dyn Fn(&World);
    let cases: [(Damage<'_>, &str); 5] = [
        (&|world| write(world, &[b'x'; 8192]), "file is not a database"),
        (&|world| write(world, b""), "it is empty"),
        (
            &|world| {
                let path = world.at("../home/hotcell.db");
                let length = fs::metadata(&path).unwrap().len();
                fs::File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap();
            },
            "malformed",
        ),
        (&|world| sql(world, "PRAGMA application_id = 7"), "another program"),
        (&|world| sql(world, "PRAGMA user_version = 99"), "this hotcell knows"),
    ];
    for (damage, why) in cases {
        let world = world();
        // What is in its log would repair it.
        sql(&world, "PRAGMA wal_checkpoint(TRUNCATE)");
        damage(&world);
        all_refuse(&world, "the home cannot be used\n  why: cannot open `", why);
    }
}

#[test]
fn artifacts_of_a_newer_hotcell_are_not_touched() {
    let world = world();
    assert_eq!(said(&world.run(&["artifact", "ls"])).0, 0);
    sql(&world, "INSERT INTO artifact_schema VALUES (99)");
    for words in [&["artifact", "ls"][..], &["gc", "--keep", "0d"]] {
        let (code, _, stderr) = said(&world.run(words));
        assert_eq!(code, 120, "{words:?}: {stderr}");
        assert!(stderr.contains("has version 99"), "{words:?}: {stderr}");
        assert!(stderr.contains("fix: use the hotcell that wrote it, or a newer one"), "{stderr}");
    }
}

#[test]
fn a_home_that_cannot_be_made_is_told() {
    let mut world = World::new();
    world.env("HOTCELL_HOME", "/proc/hotcell");
    let (code, _, stderr) = said(&world.run(COMMANDS[10]));
    assert_eq!(code, 120, "{stderr}");
    assert!(
        stderr.starts_with("error: the home cannot be used\n  why: cannot open `/proc/"),
        "{stderr}"
    );
}

/// Runs a script with `$1` as the home and `$2` as the binary, where file systems can be mounted.
fn mounted(world: &World, script: &str) -> Option<Output> {
    let is_root = rustix::process::geteuid().is_root();
    let home = world.at("../home");
    let output = Command::new("unshare")
        .args(if is_root { &["-m"][..] } else { &["-r", "-m"] })
        .args(["sh", "-c", script, "sh"])
        .arg(&home)
        .arg(env!("CARGO_BIN_EXE_hotcell"))
        .env("HOTCELL_HOME", &home)
        .output();
    match output {
        Ok(output) if output.status.code() != Some(77) => Some(output),
        refused => {
            eprintln!("SKIPPED a home on another file system: none can be mounted ({refused:?})");
            None
        }
    }
}

#[test]
fn a_home_that_can_only_be_read_is_told() {
    let world = world();
    let code = "tool call code_execute '{\"language\": \"shell\", \"code\": \"true\"}'";
    for words in ["runs", "logs", "gc", code] {
        let script = format!(
            "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 77; \"$2\" {words}"
        );
        let Some(output) = mounted(&world, &script) else { return };
        let (code, stdout, stderr) = said(&output);
        assert_eq!((code, stdout.as_str()), (120, ""), "{words}: {stderr}");
        assert!(stderr.starts_with("error: the home cannot be used\n  why: "), "{words}: {stderr}");
        assert!(stderr.contains("Read-only file system"), "{words}: {stderr}");
    }
}

#[test]
fn dsk_01_a_disk_that_is_full_is_told_and_nothing_happens_unrecorded() {
    let world = world();
    // Room for the record, and then for nothing.
    let script = "mount -t tmpfs -o size=2m,mode=700 none \"$1\" || exit 77
        printf 'min_level = \"no-proc\"\\n' > \"$1/config.toml\"
        \"$2\" tool call add '{\"a\": 1, \"b\": 2}' || exit 78
        cat /dev/zero > \"$1/fill\" 2> /dev/null
        \"$2\" tool call code_execute '{\"language\": \"shell\", \"code\": \"true\"}'
        echo \"ended $?\"
        rm \"$1/fill\"
        \"$2\" audit verify | head -n 1";
    let Some(output) = mounted(&world, script) else { return };
    let (_, stdout, stderr) = said(&output);
    assert!(stdout.starts_with("3\nended 120\nsound: "), "{stdout}{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    // When it is opened, or when it is written.
    let told = ["fix: free some space on its file system", "why: there is no space left"];
    assert!(told.iter().any(|told| stderr.contains(told)), "{stderr}");
}

#[test]
fn a_database_that_others_may_read_is_refused() {
    let world = world();
    let database = world.at("../home/hotcell.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    all_refuse(&world, "the home cannot be used\n", "others than its owner may use it");
}

#[test]
fn what_is_asked_for_and_is_not_there_has_its_number() {
    let world = world();
    for words in [&["runs", "show", ID][..], &["logs", ID], &["replay", ID]] {
        let (code, stdout, stderr) = said(&world.run(words));
        assert_eq!((code, stdout.as_str()), (127, ""), "{words:?}: {stderr}");
        assert_eq!(
            stderr,
            format!("error: there is no call {ID}\n  fix: `hotcell runs` lists them\n")
        );
    }
    // Nothing ran yet.
    assert_eq!(said(&world.run(&["logs"])).2, "error: there was no call yet\n");
    for words in [&["gc", "--keep", "x"][..], &["gc", "--quota", "0"], &["logs", "x"], &["backup"]]
    {
        assert_eq!(said(&world.run(words)).0, 121, "{words:?}");
    }
    let nobody = World::new();
    for words in COMMANDS.iter().take(8) {
        let (code, stdout, stderr) = said(&nobody.run(words));
        assert_eq!((code, stdout.as_str()), (127, ""), "{words:?}: {stderr}");
    }
    assert_eq!(fs::read_dir(nobody.at("../home")).unwrap().count(), 0, "something was made");
}

#[test]
fn an_artifact_that_was_changed_is_found_by_verifying_the_record() {
    let world = world();
    assert_eq!(said(&world.run(&["artifact", "ls"])).0, 0);
    let verify = || said(&world.run(&["audit", "verify"]));
    assert_eq!(verify().0, 0);
    // A row that nobody recorded.
    sql(
        &world,
        "INSERT INTO artifact (seq, id, tenant, subject, name, version, digest, size, media, type, role,
            created, call, is_kept) VALUES (1, zeroblob(16), 'local', 'a', 'a', 1, zeroblob(32), 3,
            'text/plain', 'data', 'file', 0, zeroblob(16), 0)",
    );
    let (code, stdout, _) = verify();
    assert_eq!(code, 120, "{stdout}");
    assert!(
        stdout.starts_with("broken: ")
            && stdout.contains("\nfault: artifacts, tokens, keys and secrets ("),
        "{stdout}"
    );
}
