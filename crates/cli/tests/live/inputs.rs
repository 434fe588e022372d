//! What goes in: names, sizes and kinds of files that somebody will sooner or later give.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::support::{LONG, Started, World};

/// Names that break what is careless, each one path component.
fn names() -> Vec<OsString> {
    let long = "x".repeat(252);
    let bytes: [&[u8]; 14] = [
        b"two words",
        b"quote'\"`$(id)",
        b"new\nline",
        b"-rf",
        b"--json",
        b"\xff\xfe not utf-8",
        "🦀 ünïcode".as_bytes(),
        b"\x1b[2J\x07",
        b"back\\slash",
        b"*?[a]{b}",
        b"...",
        b" ",
        b"~",
        long.as_bytes(),
    ];
    bytes.into_iter().map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

#[test]
fn inputs_arrive_under_their_own_names() {
    let Some(world) = World::new() else { return };
    let mut words: Vec<OsString> = vec!["run".into()];
    for (number, name) in names().iter().enumerate() {
        words.extend(["--input".into(), world.file(name, number.to_string().as_bytes()).into()]);
    }
    let code = "import os
for name in sorted(os.listdir(b'.'), key=lambda n: open(n).read() if n != b'main.py' else ''):
    if name != b'main.py': print(open(name).read(), name.hex())";
    words.extend(["--lang", "python", "-c", code].map(OsString::from));
    let mut expected: Vec<String> = names()
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let hex: String = name.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
            format!("{number} {hex}\n")
        })
        .collect();
    expected.sort();
    world.run(&words).is(0, &expected.concat(), "");
}

#[test]
fn scripts_run_under_their_own_names() {
    let Some(world) = World::new() else { return };
    for name in names() {
        let name = with_suffix(&name, ".py");
        world.file(&name, b"import os, sys; print(os.fsencode(sys.argv[0]).hex(), sys.argv[1:])");
        let ran = world.run(&[
            OsStr::new("run"),
            world.at(&name).as_os_str(),
            OsStr::new("--json"),
            OsStr::new(""),
        ]);
        let path = [b"/work/", name.as_bytes()].concat();
        let hex: String = path.iter().map(|b| format!("{b:02x}")).collect();
        ran.is(0, &format!("{hex} ['--json', '']\n"), "");
    }
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let Some(world) = World::new() else { return };
    fs::create_dir(world.at("directory")).unwrap();
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    );
    fifo.unwrap();
    let _socket = UnixListener::bind(world.at("socket")).unwrap();
    for (link, to) in
        [("dangling", "nowhere"), ("loop", "loop"), ("to-fifo", "fifo"), ("to-device", "/dev/zero")]
    {
        std::os::unix::fs::symlink(to, world.at(link)).unwrap();
    }
    let all = [
        "directory",
        "fifo",
        "socket",
        "dangling",
        "loop",
        "to-fifo",
        "to-device",
        "/dev/zero",
        "/dev/tty",
        "missing",
        "/proc/self/mem/x",
        "",
    ];
    for name in all {
        for option in ["--input", "--stdin"] {
            let ran = Started::new(world.command(&["run", option, name, "--", "true"]))
                .finish(Duration::from_secs(5));
            assert_eq!(ran.code, 121, "{option} {name}: {ran:?}");
            assert!(ran.errors().starts_with("error: ") && ran.stdout.is_empty(), "{ran:?}");
        }
        let ran = Started::new(world.command(&["run", "--lang", "sh", name]))
            .finish(Duration::from_secs(5));
        assert!([126, 127].contains(&ran.code), "{name}: {ran:?}");
    }
}

#[test]
fn a_link_to_a_file_is_given_under_the_name_of_the_link() {
    let Some(world) = World::new() else { return };
    world.file("real", b"content");
    std::os::unix::fs::symlink("real", world.at("link")).unwrap();
    world.run(&["run", "--input", "link", "--", "cat", "link"]).is(0, "content", "");
}

#[test]
fn a_file_of_the_kernel_is_given_or_refused_but_never_half() {
    let Some(world) = World::new() else { return };
    // It says that it has no bytes, and has some.
    let ran = world.run(&["run", "--input", "/proc/self/status", "--", "wc", "-c", "status"]);
    assert!(ran.code == 121 || ran.code == 0, "{ran:?}");
    assert!(ran.code == 121 || !ran.text().starts_with("0 "), "an input lost its content: {ran:?}");
}

#[test]
fn large_code_and_scripts_run() {
    let Some(world) = World::new() else { return };
    // One argument of a command has at most 128 KiB on Linux.
    let code = format!("echo begun\n{}echo over", ": comment\n".repeat(12_000));
    assert!(code.len() > 115 << 10);
    world.code(&[], "shell", &code).is(0, "begun\nover\n", "");
    // Code on standard input.
    let code = format!("echo begun\n{}echo over\n", ": comment\n".repeat(20_480));
    assert!(code.len() > 200 << 10);
    world.file("code", code.as_bytes());
    let mut command = world.command(&["run", "--lang", "sh"]);
    command.stdin(fs::File::open(world.at("code")).unwrap());
    Started::new(command).finish(LONG).is(0, "begun\nover\n", "");
    // A script of 50 MB.
    let mut script = b"echo begun; exit 7\n".to_vec();
    script.resize(50_000_000, b'#');
    world.file("large.sh", &script);
    world.run(&["run", "large.sh"]).is(7, "begun\n", "");
    let ran = world.run(&["run", "--disk", "32MiB", "large.sh"]);
    assert!(ran.code == 121 && ran.errors().contains("--disk"), "{ran:?}");
}

/// Files are memory: an input can fit into the limit on disk and not into that on memory.
#[test]
fn inputs_that_do_not_fit_into_memory_are_refused_by_that_name() {
    let Some(world) = World::with_cgroups() else { return };
    world.file("data", &vec![b'x'; 50_000_000]);
    let ran = world.run(&["run", "--mem", "32MiB", "--input", "data", "--", "true"]);
    assert!([121, 125].contains(&ran.code) && ran.errors().contains("--mem"), "{ran:?}");
}

#[test]
fn too_many_arguments_are_refused() {
    let Some(world) = World::new() else { return };
    let mut words = vec!["run".to_owned(), "--".to_owned(), "true".to_owned()];
    words.extend((0..3000).map(|n| n.to_string()));
    let ran = world.run(&words);
    assert_eq!(ran.code, 121, "{ran:?}");
    let large = "x".repeat(120_000);
    let ran = world.run(&[
        "run",
        "--env",
        &format!("A={large}"),
        "--env",
        &format!("B={large}"),
        "--",
        "true",
    ]);
    assert_eq!(ran.code, 121, "{ran:?}");
}

#[test]
fn from_a_directory_that_is_gone() {
    let Some(world) = World::new() else { return };
    fs::create_dir(world.at("gone")).unwrap();
    let script = "cd gone && rmdir ../gone && exec \"$0\" run --lang sh -c pwd";
    Started::new(world.shell(script)).finish(LONG).is(0, "/work\n", "");
    fs::create_dir(world.at("gone")).unwrap();
    let script = "cd gone && rmdir ../gone && exec \"$0\" run x.py";
    assert_eq!(Started::new(world.shell(script)).finish(LONG).code, 127);
}

#[test]
fn an_input_stays_as_it_is_whatever_the_run_does() {
    let Some(world) = World::new() else { return };
    let path = world.file("data", b"before");
    let code = "echo changed > data; chmod 777 data; rm data; ln -s /etc/passwd data";
    world.code(&["--input", "data"], "shell", code).is(0, "", "");
    assert_eq!(fs::read(&path).unwrap(), b"before");
}
