//! FS-*: what of the host a run can read, change or reach through files.
//!
//! Not here, because no sandbox is what they are about: FS-14 (`fs_14_one_refused_change_refuses_all_and_is_recorded`
//! in crates/engine/src/tests.rs), FS-22 and FS-23 (`fs_22_fs_23_a_hostile_archive_is_refused_as_a_whole` in
//! crates/cli/tests/live/record.rs).

use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hotcell_tests::{
    Answers, Attack, Canary, Process, Quiet, compile, descendants, hole, is_root_for, skip, text,
    timed, token,
};
use hotcell_types::{Count, Outcome, Status};

fn names(outcome: &Outcome) -> Vec<&str> {
    outcome.artifacts.iter().map(|artifact| artifact.path.as_str()).collect()
}

#[track_caller]
fn skipped<'a>(outcome: &'a Outcome, path: &str) -> &'a str {
    let found = outcome.skipped.iter().find(|skipped| skipped.path == path);
    &found.unwrap_or_else(|| panic!("`{path}` was not skipped: {outcome:?}")).why
}

/// Reads a list of paths, one answer each: the content, or why not.
fn reader(paths: &[String]) -> String {
    format!("for path in {paths:?}: say(path, read(path))")
}

#[test]
fn fs_01_host_secrets_by_absolute_path() {
    let canary = Canary::plant();
    let mut paths: Vec<String> =
        [canary.public(), canary.secret()].map(|p| p.display().to_string()).to_vec();
    let files = [
        "/etc/shadow",
        "/etc/machine-id",
        "/etc/sudoers",
        "/etc/ssh/sshd_config",
        "/root/.ssh/id_ed25519",
        "/root/.bash_history",
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/cmdline",
        "/sys/kernel/notes",
        "/dev/mem",
        "/dev/kmsg",
        "/run/hotcell/ids",
        "/.hotcell",
    ];
    paths.extend(files.map(String::from));
    let outcome = Attack::python(&reader(&paths)).run();
    Answers::of(&outcome).all("ENOENT|EACCES");
    canary.is_unseen_in(&outcome);
}

#[test]
fn fs_01_control_the_root_landlock_and_the_id_each_stop_a_part() {
    if !is_root_for("fs_01 control") {
        return;
    }
    let canary = Canary::plant();
    let [public, secret] = ["public", "secret"].map(|name| canary.at_host(name));
    let attack = || Attack::python(&reader(&[public.clone(), secret.clone()])).without_root();
    let token = canary.token.as_str();
    // Behind the missing root, Landlock alone keeps what everybody may read.
    attack().answers().are(&[(&public, "EACCES"), (&secret, "EACCES")]);
    // Behind Landlock, the id alone keeps what only its owner may read.
    let without = attack().without(hole::LANDLOCK).answers();
    without.are(&[(&public, token), (&secret, "EACCES")]);
    // The id alone is not what Landlock relies on.
    attack().without_own_id().answers().are(&[(&public, "EACCES"), (&secret, "EACCES")]);
    let nothing = attack().without(hole::LANDLOCK).without_own_id().answers();
    nothing.are(&[(&public, token), (&secret, token)]);
}

#[test]
fn fs_02_dot_dot_traversal() {
    let canary = Canary::plant();
    let code = |prefix: &str| {
        format!(
            r"
target = {prefix:?} + {path:?}
say('relative', read('../' * 64 + target))
fd = os.open('.', os.O_RDONLY)
def beneath():
    with os.fdopen(os.open('../' * 64 + target, os.O_RDONLY, dir_fd=fd)) as f: say('openat', f.read())
answer = attempt(beneath)
if answer != 'ok': say('openat', answer)
for _ in range(64): os.chdir('..')
say('chdir', read(target))
say('top', os.getcwd())
say('same', os.stat('/..').st_ino == os.stat('/').st_ino)
",
            path = canary.public().display().to_string().trim_start_matches('/')
        )
    };
    let outcome = Attack::python(&code("")).run();
    let gone = "ENOENT";
    let inside = [("relative", gone), ("openat", gone), ("chdir", gone), ("top", "/")];
    Answers::of(&outcome).are(&inside).is("same", "True");
    canary.is_unseen_in(&outcome);
    if !is_root_for("fs_02 control") {
        return;
    }
    // Where the host's root is shown, the same steps lead there.
    let control = Attack::python(&code("host/")).without_root().without(hole::LANDLOCK).answers();
    let token = canary.token.as_str();
    control.are(&[("relative", token), ("openat", token), ("chdir", token)]);
}

#[test]
fn fs_03_05_09_an_artifact_that_is_a_link() {
    let canary = Canary::plant();
    let outputs = tempfile::tempdir().unwrap();
    let before = canary.state();
    let code = format!(
        r"
public, secret, dir = {:?}, {:?}, {:?}
links = {{'absolute': public, 'relative': '../' * 20 + public[1:], 'secret': secret, 'dir': dir,
    'magic-root': '/proc/self/root' + public, 'magic-init': '/proc/1/root' + public,
    'magic-cwd': '/proc/self/cwd/x', 'magic-fd': '/proc/self/fd/0', 'magic-exe': '/proc/1/exe',
    'inside': '/etc/passwd', 'loop': 'loop', 'dangling': 'nowhere'}}
for name, target in links.items(): os.symlink(target, name)
os.mkdir('plain')
os.symlink(dir, 'plain/link')
open('plain/file', 'w').write('plain bytes')
",
        canary.public(),
        canary.secret(),
        canary.dir
    );
    let outcome = Attack::python(&code).outputs(outputs.path()).run();
    assert_eq!(names(&outcome), ["plain/file"], "{outcome:?}");
    let links = [
        "absolute",
        "relative",
        "secret",
        "dir",
        "magic-root",
        "magic-init",
        "magic-cwd",
        "magic-fd",
        "magic-exe",
        "inside",
        "loop",
        "dangling",
        "plain/link",
    ];
    for link in links {
        assert_eq!(skipped(&outcome, link), "it is a symbolic link");
        assert!(fs::symlink_metadata(outputs.path().join(link)).is_err(), "{link}");
    }
    canary.is_unseen_in(&outcome);
    assert_eq!(canary.state(), before, "cleaning up must not follow links");
    // The control: what is a regular file does arrive.
    assert_eq!(fs::read(outputs.path().join("plain/file")).unwrap(), b"plain bytes");
}

#[test]
fn fs_04_a_link_where_the_artifact_will_be_written() {
    let canary = Canary::plant();
    let outputs = tempfile::tempdir().unwrap();
    // What an earlier run, or somebody else, left in the directory.
    symlink(canary.public(), outputs.path().join("out.txt")).unwrap();
    symlink(canary.public(), outputs.path().join(".hotcell-part")).unwrap();
    symlink(&canary.dir, outputs.path().join("sub")).unwrap();
    let before = canary.state();
    let code = "
open('out.txt', 'w').write('new')
os.mkdir('sub')
open('sub/public', 'w').write('new')
";
    let outcome = Attack::python(code).outputs(outputs.path()).run();
    assert_eq!(canary.state(), before);
    let written = fs::symlink_metadata(outputs.path().join("out.txt")).unwrap();
    assert!(written.is_file());
    assert_eq!(fs::read(outputs.path().join("out.txt")).unwrap(), b"new");
    assert!(skipped(&outcome, "sub").starts_with("cannot be copied"));
}

#[test]
fn fs_04_a_link_among_the_inputs_is_replaced_by_nothing() {
    // Inputs are made anew, in an empty directory, by held descriptors: the run that finds its input
    // can turn it into a link, and the next run has a file again.
    let code = "
say('kind', os.path.islink('input.json'))
os.unlink('input.json'); os.symlink('/etc/passwd', 'input.json')
";
    for _ in 0..2 {
        Attack::python(code).input("input.json", b"{}").answers().is("kind", "False");
    }
}

#[test]
fn fs_07_an_artifact_that_is_a_hard_link() {
    let code = "
open('one', 'w').write('x'); os.link('one', 'two')
for path in ['/usr/bin/env', '/etc/hostname', '/dev/null', '/proc/self/status']:
    say(path, attempt(os.link, path, 'stolen'))
";
    let outcome = Attack::python(code).run();
    Answers::of(&outcome).all("EXDEV|EPERM|EACCES");
    assert!(outcome.artifacts.is_empty());
    for name in ["one", "two"] {
        assert_eq!(skipped(&outcome, name), "it has more than one name");
    }
}

#[test]
fn fs_03_artifacts_that_are_no_files() {
    let code = "
import socket
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
say('device', attempt(os.mknod, 'device', 0o20666, os.makedev(1, 3)))
open(b'bad-\\xff', 'w'); open('line\\nbreak', 'w'); open('esc\\x1b[31m', 'w')
";
    let (outcome, took) = timed(|| Attack::python(code).run());
    Answers::of(&outcome).is("device", "EPERM");
    assert!(outcome.artifacts.is_empty(), "{outcome:?}");
    assert_eq!(skipped(&outcome, "fifo"), "it is a pipe");
    assert_eq!(skipped(&outcome, "socket"), "it is a socket");
    assert_eq!(outcome.skipped.len(), 5, "{outcome:?}");
    assert!(took < Duration::from_secs(5), "a pipe without a writer must not be waited for");
}

#[test]
fn fs_09_magic_links_lead_nowhere_outside() {
    let canary = Canary::plant();
    let roots = ["/proc/self/root", "/proc/1/root", "/proc/self/cwd/..", "/proc/thread-self/root"];
    let paths: Vec<String> =
        roots.iter().map(|root| format!("{root}{}", canary.public().display())).collect();
    let outcome = Attack::python(&reader(&paths)).run();
    Answers::of(&outcome).all("ENOENT|EACCES|EPERM");
    canary.is_unseen_in(&outcome);
    if !is_root_for("fs_09 control") {
        return;
    }
    // The same link where the root is not new.
    let path = format!("/proc/self/root{}", canary.at_host("public"));
    let control = Attack::python(&reader(std::slice::from_ref(&path)));
    control.without_root().without(hole::LANDLOCK).answers().is(&path, &canary.token);
}

/// Which descriptors are open, with what they are.
const DESCRIPTORS: &str = r"
import stat
own = os.open('/proc/self/fd', os.O_RDONLY)
for fd in sorted(int(fd) for fd in os.listdir(own)):
    if fd != own:
        try: say(fd, os.readlink(f'/proc/self/fd/{fd}').split(':')[0])
        except FileNotFoundError: pass
";

#[test]
fn fs_10_leaked_descriptors() {
    let answers = Attack::python(DESCRIPTORS).answers();
    let seen: Vec<_> = answers.iter().collect();
    assert_eq!(seen, [("0", "pipe"), ("1", "pipe"), ("2", "pipe")]);
    let code = r"
say('cwd', os.getcwd())
say('open', [fd for fd in range(3, 1024) if attempt(os.fstat, fd) == 'ok'])
for fd in range(3, 20): say(f'chdir{fd}', attempt(os.chdir, f'/proc/self/fd/{fd}'))
";
    let answers = Attack::python(code).answers();
    answers.are(&[("cwd", "/work"), ("open", "[]"), ("chdir7", "ENOENT"), ("chdir12", "ENOENT")]);
    // The layer alone: a descriptor that is not closed is there.
    let control = Attack::python(DESCRIPTORS).without(hole::DESCRIPTORS).answers();
    control.is("801", "socket");
}

#[test]
fn fs_10_an_inherited_descriptor_would_speak_to_the_launcher() {
    // What hotcell hears on that socket is believed: `Ended`, exit code 0, a year of processor time.
    // Nobody can say it who has only 0, 1 and 2.
    let code = r"
import socket, struct
ended = b'\x04' + b'\x01' + struct.pack('<Q', 0) + struct.pack('<Q', 31536000000000) + b'\x00' + bytes(8)
say('sent', attempt(os.write, 801, ended))
os._exit(7)
";
    let outcome = Attack::python(code).run();
    Answers::of(&outcome).is("sent", "EBADF");
    assert_eq!(outcome.status, Status::Failure);
    let control = Attack::python(code).without(hole::DESCRIPTORS).run();
    assert_eq!(control.status, Status::Success, "{control:?}");
}

#[test]
fn fs_11_overwriting_the_launcher() {
    let launcher = || {
        let guards = descendants(std::process::id());
        let mut images =
            guards.iter().filter_map(|p| fs::read(format!("/proc/{}/exe", p.pid)).ok());
        images.find(|image| image.len() < 1 << 20).unwrap_or_default()
    };
    let code = r"
for path in ['/proc/self/exe', '/proc/1/exe', '/usr/bin/python3', '/bin/sh']:
    say('write ' + path, attempt(os.open, path, os.O_WRONLY))
    say('truncate ' + path, attempt(os.truncate, path, 0))
say('read init', attempt(os.open, '/proc/1/exe', os.O_RDONLY))
open('script', 'w').write('#!/proc/self/exe\n'); os.chmod('script', 0o755)
child = os.fork()
if child == 0:
    try: os.execv('./script', ['script'])
    except OSError: os._exit(3)
os.waitpid(child, 0)
";
    Attack::shell("true").run();
    let before = launcher();
    assert!(!before.is_empty(), "the launcher's image can be read from outside");
    let answers = Attack::python(code).answers();
    answers.all("EACCES|EROFS|ETXTBSY|EPERM");
    assert_eq!(launcher(), before);
}

#[test]
fn fs_11_control_only_its_opacity_hides_the_init() {
    if !is_root_for("fs_11 control") {
        return;
    }
    let code = r"
try: say('exe', os.readlink('/proc/1/exe'))
except OSError as e: say('exe', name_of(e.errno))
say('write', attempt(os.open, '/proc/1/exe', os.O_WRONLY))
";
    Attack::python(code).answers().are(&[("exe", "EACCES|EPERM"), ("write", "EACCES|EPERM")]);
    // A change of id makes a process opaque by itself, and so does a Landlock domain above one's own:
    // all three are left out.
    let attack = || Attack::python(code).without_own_id();
    attack().without(hole::LANDLOCK).answers().is("exe", "EACCES|EPERM");
    attack().without(hole::DUMPABLE).answers().is("exe", "EACCES|EPERM");
    let control = attack().without(hole::DUMPABLE | hole::LANDLOCK).answers();
    assert!(control.get("exe").contains("hotcell-jail"), "{control:?}");
    // Even then it is a sealed copy that executes.
    control.is("write", "EPERM|ETXTBSY|EACCES");
}

#[test]
fn fs_12_a_hostile_tree_that_is_shown() {
    // Others can write only where runs have places of their own.
    if !is_root_for("fs_12") {
        return;
    }
    let canary = Canary::plant();
    let shown = canary.dir.join("shown");
    fs::create_dir_all(shown.join("dev")).unwrap();
    symlink("/proc/sysrq-trigger", shown.join("dev/null")).unwrap();
    symlink(&canary.dir, shown.join("proc")).unwrap();
    symlink("/", shown.join("etc")).unwrap();
    symlink(&canary.dir, shown.join("host")).unwrap();
    let before = canary.state();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let paths = ["proc/public", "host/public", &format!("etc{}", canary.public().display())]
        .map(|path| format!("{}/{path}", shown.display()));
    let outcome = Attack::python(&reader(&paths)).shows(&shown).run();
    Answers::of(&outcome).all("ENOENT");
    canary.is_unseen_in(&outcome);
    assert_eq!(canary.state(), before);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

#[test]
fn fs_12_a_shown_path_below_a_link_of_ours_is_made_in_the_new_root() {
    // /var/tmp is a link to /tmp inside. A path below it must not be made through that link, in the
    // host's /tmp.
    let name = token();
    let shown = Path::new("/var/tmp").join(&name);
    let stray = Path::new("/tmp").join(&name);
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("file"), "shown").unwrap();
    let code = format!("say('file', read({:?}))", shown.join("file"));
    let outcome = Attack::python(&code).shows(&shown).try_run();
    let strayed = stray.exists();
    fs::remove_dir_all(&shown).unwrap();
    if strayed {
        fs::remove_dir(&stray).unwrap();
    }
    assert!(!strayed, "the launcher made `{}` on the host", stray.display());
    if let Ok(outcome) = outcome {
        Answers::of(&outcome).is("file", "shown");
    }
}

const MOUNTS: &str = r"
tmpfs = b'tmpfs'
say('mount', call(165, tmpfs, b'/tmp', tmpfs, 0, 0))
say('remount', call(165, 0, b'/usr', 0, 0x20 | 0x1000, 0))
say('umount', call(166, b'/work', 2))
say('pivot_root', call(155, b'/tmp', b'/tmp'))
say('chroot', call(161, b'/tmp'))
say('open_tree', call(428, -100, b'/usr', 1))
say('move_mount', call(429, -100, b'/usr', -100, b'/tmp', 0))
say('fsopen', call(430, tmpfs, 0))
say('fsconfig', call(431, 0, 6, 0, 0, 0))
say('fsmount', call(432, 0, 0, 0))
say('fspick', call(433, -100, b'/tmp', 0))
say('mount_setattr', call(442, -100, b'/usr', 0, bytes(32), 32))
";

#[test]
fn fs_16_changing_the_mounts() {
    let attack = format!(
        "before = read('/proc/self/mountinfo')\n{MOUNTS}\nsay('same', before == read('/proc/self/mountinfo'))"
    );
    let outcome = Attack::python(&attack).run();
    let answers = Answers::of(&outcome);
    for (name, answer) in answers.iter() {
        assert_eq!(answer, if name == "same" { "True" } else { "EPERM" }, "{name}");
    }
    let named: Vec<_> = outcome.blocked_syscalls.iter().filter_map(|b| b.name.as_deref()).collect();
    assert!(named.contains(&"mount") && named.contains(&"fsopen"), "{named:?}");
}

/// Makes effective what is permitted.
const RAISE: &str = r"
import struct
permitted = int(field(read('/proc/self/status'), 'CapPrm:'), 16)
low, high = permitted & 0xffffffff, permitted >> 32
sets = struct.pack('<6I', low, low, 0, high, high, 0)
call(126, struct.pack('<Ii', 0x20080522, 0), sets)
";

/// A copy of the interpreter with capabilities of its own, on the host's root file system.
fn capable_python(canary: &Canary, test: &str) -> Option<String> {
    let python = canary.dir.join("python");
    fs::copy("/usr/bin/python3", &python).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let capabilities = "cap_sys_admin,cap_setgid,cap_sys_chroot=p";
    match Command::new("setcap").arg(capabilities).arg(&python).output() {
        Ok(done) if done.status.success() => Some(canary.at_host("python")),
        Ok(done) => {
            skip(test, &format!("setcap: {}", String::from_utf8_lossy(&done.stderr)));
            None
        }
        Err(error) => {
            skip(test, &format!("there is no setcap here: {error}"));
            None
        }
    }
}

/// What a program with capabilities in its file gains; started by the launcher, or by the program.
fn privileges(python: &str) -> Attack {
    let code = format!(
        "{RAISE}\nsay('capabilities', field(read('/proc/self/status'), 'CapEff:'))\nsay('setgroups', attempt(os.setgroups, []))\n{MOUNTS}"
    );
    let mut attack = Attack::python(&code);
    attack.job.command.program = python.into();
    attack
}

const GAINED: &[(&str, &str)] = &[("setgroups", "ok"), ("mount", "ok"), ("fsopen", "ok")];
const REFUSED: &[(&str, &str)] = &[
    ("capabilities", "0000000000000000"),
    ("setgroups", "EPERM"),
    ("mount", "EPERM"),
    ("fsopen", "EPERM"),
];

#[test]
fn fs_16_control_empty_capability_sets_alone_keep_privileges_away() {
    let test = "fs_16 control";
    if !is_root_for(test) {
        return;
    }
    let canary = Canary::plant();
    let Some(python) = capable_python(&canary, test) else { return };
    let attack = || privileges(&python).without_root().without_seccomp().without(hole::LANDLOCK);
    attack().answers().are(REFUSED);
    let control = attack().without(hole::CAPABILITIES).answers();
    // The kernel itself has locked what came from outside.
    control.are(GAINED).is("remount", "EPERM|EINVAL");
    // The filter alone stops the mounts that capabilities would allow. (Landlock does too, but the
    // program is then not executed at all.)
    let mut filtered = privileges(&python).without_root();
    filtered = filtered.without(hole::LANDLOCK | hole::CAPABILITIES);
    filtered.answers().are(&[("setgroups", "ok"), ("mount", "EPERM"), ("fsopen", "EPERM")]);
}

#[test]
fn pn_13_control_no_new_privs_and_nosuid_each_keep_the_privileges_of_a_file_away() {
    let test = "pn_13 control";
    if !is_root_for(test) {
        return;
    }
    let canary = Canary::plant();
    let Some(at_host) = capable_python(&canary, test) else { return };
    let shown = canary.dir.join("python").display().to_string();
    // The program, which has no capability left, executes a file that has some.
    let attack = |python: &str, layers: u32| {
        let mut attack = privileges(python);
        let args = attack.job.command.args[1..].to_vec();
        let args: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        let code = format!("os.execv({python:?}, ['python3'] + {args:?})");
        attack.job.command = Attack::executed(&code).job.command;
        let attack = attack.shows(&canary.dir).without_seccomp();
        attack.without_root().without(hole::LANDLOCK | hole::CAPABILITIES | layers).answers()
    };
    attack(&at_host, 0).are(REFUSED);
    attack(&at_host, hole::NO_NEW_PRIVS).are(GAINED);
    attack(&shown, hole::NO_NEW_PRIVS).are(REFUSED);
}

#[test]
fn fs_17_mounts_do_not_propagate() {
    if !is_root_for("fs_17") {
        return;
    }
    let canary = Canary::plant();
    let below = canary.dir.join("below");
    fs::create_dir(&below).unwrap();
    let code = format!(
        "
import time
os.write(1, b'ready\\n')
for _ in range(200):
    if os.path.exists({at:?} + '/mounted'): say('seen', 'inside'); break
    if os.path.exists({at:?} + '/../stop'): say('seen', 'nothing'); break
    time.sleep(0.02)
",
        at = below.display().to_string()
    );
    let running = Attack::python(&code).shows(&canary.dir).start().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&below).status().unwrap();
    assert!(mounted.success());
    fs::write(below.join("mounted"), "").unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    fs::write(canary.dir.join("stop"), "").unwrap();
    let outcome = running.wait(&mut Quiet, None).unwrap();
    assert!(Command::new("umount").arg(&below).status().unwrap().success());
    Answers::of(&outcome).is("seen", "nothing");
    let ours = mounts.lines().filter(|line| line.contains("/.hotcell") || line.contains(" /work "));
    assert_eq!(ours.count(), 0, "a run's mounts are seen on the host: {mounts}");
}

#[test]
fn fs_18_modes_and_attributes_of_artifacts() {
    let outputs = tempfile::tempdir().unwrap();
    let code = r"
open('tool', 'w').write('#!/bin/sh\n'); os.chmod('tool', 0o6755)
say('user', attempt(os.setxattr, 'tool', 'user.x', b'1'))
say('capability', attempt(os.setxattr, 'tool', 'security.capability', bytes.fromhex('0100000200040000000000000000000000000000')))
os.mkdir('wide'); os.chmod('wide', 0o7777)
open('wide/data', 'w').write('x'); os.chmod('wide/data', 0o666)
";
    let outcome = Attack::python(code).outputs(outputs.path()).run();
    assert_eq!(names(&outcome), ["tool", "wide/data"]);
    for (path, most) in [("tool", 0o755), ("wide", 0o755), ("wide/data", 0o644)] {
        let found = fs::metadata(outputs.path().join(path)).unwrap();
        assert_eq!(found.mode() & 0o7777 & !most, 0, "{path}: {:o}", found.mode());
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw(), "{path}");
    }
    let mut names = [0; 256];
    let listed = rustix::fs::listxattr(outputs.path().join("tool"), &mut names).unwrap();
    assert_eq!(listed, 0);
}

#[test]
fn fs_20_a_directory_20_000_deep() {
    let code = r"
depth = 0
try:
    while depth < 20000:
        os.mkdir('d'); os.chdir('d'); depth += 1
except OSError as e: say('stopped', name_of(e.errno))
say('depth', depth)
";
    let attack = Attack::python(code).limits(|limits| limits.files = Count::of(30_000));
    // What is asked is whether it can be cleaned up. Landlock looks at every directory above, so that
    // with it such a tree takes its maker most of the run's time.
    let attack = attack.without(hole::LANDLOCK);
    let (outcome, took) = timed(|| attack.run());
    Answers::of(&outcome).is("depth", "20000");
    assert!(outcome.skipped.iter().any(|s| s.why == "it is too deep"), "{:?}", outcome.skipped);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn fs_21_a_tree_that_nobody_may_enter() {
    let code = r"
import mmap
os.makedirs('a/b/c'); open('a/b/c/f', 'w').write('x' * 4096)
held = open('a/b/c/f', 'r+b'); mapped = mmap.mmap(held.fileno(), 0)
os.chmod('a/b', 0); os.chmod('a', 0)
";
    let (outcome, took) = timed(|| Attack::python(code).run());
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let next =
        Attack::python("say('left', [f for f in os.listdir('/work') if f != 'main.py'])").answers();
    next.is("left", "[]");
}

#[test]
fn fs_21_a_working_directory_that_nobody_may_enter() {
    // Root passes; an ordinary user's collector is refused, and then nothing at all is told.
    for place in ["/work", "/.cell"] {
        let code = format!("open('file', 'w').write('x'); os.chmod({place:?}, 0)");
        let outcome = Attack::python(&code).run();
        assert_eq!(outcome.status, Status::Success, "{place}");
    }
}

#[test]
fn fs_24_host_unix_sockets() {
    let canary = Canary::plant();
    let path = canary.dir.join("socket");
    let by_path = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let name = token();
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    for listener in [&by_path, &by_name] {
        listener.set_nonblocking(true).unwrap();
    }
    let attack = |prefix: &str| {
        let mut paths = vec![format!("{prefix}{}", path.display())];
        let known = ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket"];
        paths.extend(known.map(String::from));
        Attack::python(&format!(
            "
import socket
def connect(to):
    s = socket.socket(socket.AF_UNIX); s.connect(to)
for i, path in enumerate({paths:?}): say(i, attempt(connect, path))
say('abstract', attempt(connect, '\\0{name}'))
"
        ))
    };
    attack("").answers().all("ENOENT|ECONNREFUSED|EPERM");
    assert!(by_path.accept().is_err() && by_name.accept().is_err());
    if !is_root_for("fs_24 control") {
        return;
    }
    // The root alone keeps the path away; the network namespace and Landlock, each, the name.
    let control = attack("/host").without_root().answers();
    control.are(&[("0", "ok"), ("abstract", "ECONNREFUSED|EPERM")]);
    assert!(by_path.accept().is_ok());
    attack("").without(hole::LANDLOCK).answers().is("abstract", "ECONNREFUSED");
    attack("").without(hole::NET).answers().is("abstract", "EPERM");
    attack("").without(hole::NET | hole::LANDLOCK).answers().is("abstract", "ok");
    assert!(by_name.accept().is_ok());
}

#[test]
fn fs_25_descriptors_sent_to_the_trusted_side() {
    let code = r"
import array, socket
try: s = socket.socket(fileno=800)
except OSError as e: say('socket', name_of(e.errno)); sys.exit()
fds = [os.memfd_create('x') for _ in range(200)]
def send():
    s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))])
for _ in range(3): answer = attempt(send)
say('socket', answer)
import time; time.sleep(60)
";
    Attack::python(code).answers().is("socket", "EBADF");
    // With a socket to the launcher, what comes over it is closed again.
    let most_open = || {
        let open =
            |p: Process| fs::read_dir(format!("/proc/{}/fd", p.pid)).map_or(0, Iterator::count);
        descendants(std::process::id()).into_iter().map(open).max()
    };
    let control = Attack::python(code).without(hole::DESCRIPTORS).run();
    // The launcher ends a run that says what no cell says.
    assert_eq!(control.status, Status::Killed, "{}", text(&control));
    assert!(most_open() < Some(150), "{:?}", most_open());
}

/// Changes to what a file is, not to what is in it.
fn metadata(paths: &[&str]) -> String {
    format!(
        r"
import fcntl
for path in {paths:?}:
    say('chmod ' + path, attempt(os.chmod, path, 0o777))
    say('utime ' + path, attempt(os.utime, path, (1, 1)))
    say('touch ' + path, attempt(os.utime, path))
    say('chown ' + path, attempt(os.chown, path, os.getuid(), os.getgid()))
    say('xattr ' + path, attempt(os.setxattr, path, 'user.x', b'1'))
"
    )
}

#[test]
fn fs_26_metadata_of_read_only_data() {
    let paths = ["/usr/bin/env", "/etc/hostname", "/etc/ld.so.cache", "/usr", "/dev/null", "/"];
    let mut code = metadata(&paths);
    code += r"
for path in ['/usr/bin/env', '/etc/hostname']:
    say('truncate ' + path, attempt(os.truncate, path, 0))
    say('write ' + path, attempt(os.open, path, os.O_WRONLY))
    say('unlink ' + path, attempt(os.unlink, path))
    say('rename ' + path, attempt(os.rename, path, path + 'x'))
for dir in ['/', '/usr', '/etc', '/dev', '/var']:
    say('create ' + dir, attempt(os.open, dir + '/x', os.O_WRONLY | os.O_CREAT))
    say('mkdir ' + dir, attempt(os.mkdir, dir + '/x'))
";
    let before = fs::metadata("/usr/bin/env").unwrap();
    Attack::python(&code).answers().all("EROFS|EPERM|EACCES|EXDEV|ENOTSUP");
    let after = fs::metadata("/usr/bin/env").unwrap();
    assert_eq!(
        (before.mode(), before.ctime(), before.uid()),
        (after.mode(), after.ctime(), after.uid())
    );
}

#[test]
fn fs_26_control_the_read_only_mount_alone_stops_them() {
    if !is_root_for("fs_26 control") {
        return;
    }
    let canary = Canary::plant();
    // Shown read-only to a run that has the owner's id: nothing but the mount is left.
    let shown = canary.public().display().to_string();
    let answers = Attack::python(&metadata(&[&shown]))
        .shows(&canary.dir)
        .without_own_id()
        .without(hole::LANDLOCK)
        .answers();
    answers.all("EROFS");
    // The same file through a mount that is not: Landlock does not look at any of this.
    let open = canary.at_host("public");
    let control = Attack::python(&metadata(&[&open])).without_root().without_own_id().answers();
    control.all("ok");
}

#[test]
fn fs_26_nothing_of_the_host_is_behind_standard_input() {
    // What can be changed through an empty standard input is the run's own pipe.
    let code = r"
say('stamp', attempt(os.utime, 0, (1, 1)))
say('chmod', attempt(os.fchmod, 0, 0o600))
say('kind', os.readlink('/proc/self/fd/0').split(':')[0])
";
    let state = || {
        let metadata = fs::metadata("/dev/null").unwrap();
        (metadata.mtime_nsec(), metadata.mode())
    };
    let before = state();
    Attack::python(code).answers().is("kind", "pipe");
    assert_eq!(state(), before);
}

#[test]
fn the_writable_places_are_the_only_ones() {
    let code = r"
found = set()
for top, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ('/proc',)]
    if os.access(top, os.W_OK) and attempt(os.mkdir, top + '/hotcell-probe') == 'ok':
        found.add(top); os.rmdir(top + '/hotcell-probe')
    if top.count('/') > 3: dirs[:] = []
say('writable', sorted(found))
";
    let answers = Attack::python(code).answers();
    answers.is(
        "writable",
        // The last three are the first three by another name.
        "['/.cell/shm', '/.cell/tmp', '/.cell/work', '/dev/shm', '/tmp', '/work']",
    );
}

#[test]
fn res_20_fs_18_a_helper_named_like_ours() {
    // The collector's own name for a file that is not complete is nobody's to occupy.
    let outputs = tempfile::tempdir().unwrap();
    let code = r"
os.mkdir('.hotcell-part'); open('.hotcell-part/x', 'w').write('x')
open('a', 'w').write('a'); open('z', 'w').write('z')
";
    let outcome = Attack::python(code).outputs(outputs.path()).run();
    let mut read = String::new();
    for name in ["a", "z"] {
        fs::File::open(outputs.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}: {:?}", outcome.skipped))
            .read_to_string(&mut read)
            .unwrap();
    }
    assert_eq!(read, "az");
}

#[test]
fn a_program_of_the_host_that_no_rule_shows_cannot_be_executed() {
    if !is_root_for("executing a host's program") {
        return;
    }
    // Landlock alone: behind the missing root, nothing there may be executed.
    let Some(image) = compile("executing a host's program", "int main(){return 42;}", &[]) else {
        return;
    };
    let canary = Canary::plant();
    fs::write(canary.dir.join("program"), image).unwrap();
    fs::set_permissions(canary.dir.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let code = format!("say('exec', attempt(os.execv, {:?}, ['x']))", canary.at_host("program"));
    Attack::python(&code).without_root().answers().is("exec", "EACCES");
    let control = Attack::python(&code).without_root().without(hole::LANDLOCK).run();
    assert_eq!(control.exit, Some(hotcell_types::Exit::Code(42)), "{control:?}");
}

/// Size and time of a file are the program's to choose; when it was changed last is the kernel's to say.
#[test]
fn an_input_that_was_changed_and_given_its_old_time_is_taken_as_changed() {
    let code = "
import time
before = os.stat('/work/changed')
# Longer than the tick in which the program was let go.
time.sleep(0.1)
open('/work/changed', 'r+b').write(b'CHANGED')
os.utime('/work/changed', ns=(before.st_atime_ns, before.st_mtime_ns))
after = os.stat('/work/changed')
say('same', (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns))
";
    let attack = Attack::python(code).input("changed", b"changed").input("kept", b"kept");
    let outcome = attack.run();
    Answers::of(&outcome).is("same", "True");
    let taken: Vec<&str> = outcome.artifacts.iter().map(|a| a.path.as_str()).collect();
    assert_eq!(taken, ["changed"], "{outcome:?}");
}
