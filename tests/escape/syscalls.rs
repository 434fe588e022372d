//! SC-*, CLK-04: which calls reach the kernel, by which way, and what is told of those that do not.
//!
//! The lists that calls are judged by are the reviewed ones beside the filter's source.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hotcell_tests::{Answers, Attack, Canary, compile, hole, is_root_for, skip, soak, text, timed};
use hotcell_types::{Exit, Outcome, Profile, Status};

const PROBE: &str = include_str!("probe.c");
const STANDARD: &str = include_str!("../../crates/sandbox/src/seccomp/golden/x86_64-standard.txt");
const STRICT: &str = include_str!("../../crates/sandbox/src/seccomp/golden/x86_64-strict.txt");

/// Highest number that is tried.
const LAST: u64 = 512;
/// uretprobe and uprobe: the kernel answers them before any filter.
const BEFORE_EVERY_FILTER: [u64; 2] = [335, 336];

type Call = [u64; 7];

/// A reviewed list.
struct Golden<'a> {
    calls: BTreeMap<u64, (&'a str, &'a str)>,
    otherwise: &'a str,
}

impl<'a> Golden<'a> {
    fn read(text: &'a str) -> Golden<'a> {
        let mut golden = Golden { calls: BTreeMap::new(), otherwise: "" };
        for line in text.lines() {
            let (number, rest) = line.split_once(' ').unwrap();
            let (name, verdict) = rest.split_once(' ').unwrap();
            match number.parse() {
                Ok(number) => drop(golden.calls.insert(number, (name, verdict))),
                Err(_) => golden.otherwise = verdict,
            }
        }
        assert!(golden.calls.len() > 300 && !golden.otherwise.is_empty());
        golden
    }

    /// What the list says of a call with these arguments.
    fn verdict(&self, call: &Call) -> &'a str {
        let Some((_, rules)) = self.calls.get(&call[0]) else { return self.otherwise };
        for rule in rules.split("; ") {
            match (rule.split_once(" if "), rule.strip_prefix("else ")) {
                (Some((verdict, tests)), _) => {
                    if tests.split(" and ").all(|test| holds(test, call)) {
                        return verdict;
                    }
                }
                (None, Some(verdict)) => return verdict,
                (None, None) => return rule,
            }
        }
        panic!("`{rules}` says nothing");
    }
}

/// Whether `arg1&0xf in [0x1, 0x2]`, `arg0&0x80` or `arg5 is the key` holds.
fn holds(test: &str, call: &Call) -> bool {
    let (left, values) = test.split_once(" in ").unwrap_or((test, ""));
    if test.ends_with("is the key") {
        return false;
    }
    let (argument, mask) = left.split_once('&').unwrap_or((left, "0xffffffff"));
    let argument: usize = argument.strip_prefix("arg").unwrap().parse().unwrap();
    let bits = call[argument + 1] & hex(mask);
    let values: Vec<u64> = list(values);
    if values.is_empty() { bits != 0 } else { values.contains(&bits) }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap()
}

fn list(text: &str) -> Vec<u64> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    inner.split(", ").filter(|value| !value.is_empty()).map(hex).collect()
}

fn errno(name: &str) -> &'static str {
    match name {
        "EPERM" | "report" => "1",
        "EACCES" => "13",
        "EINVAL" => "22",
        "ENOTTY" => "25",
        "ENOSYS" => "38",
        "ENOPROTOOPT" => "92",
        "EPROTONOSUPPORT" => "93",
        "EAFNOSUPPORT" => "97",
        other => panic!("which number is {other}?"),
    }
}

fn as_list(calls: &[Call]) -> String {
    let line = |call: &Call| call.map(|word| format!("{word:x}")).join(" ") + "\n";
    calls.iter().map(line).collect()
}

fn probe(image: &[u8], calls: &[Call], args: &[&str]) -> Attack {
    let args = [&["probe"], args].concat();
    Attack::program("/work/probe", &args)
        .input_with("probe", image, 0o755)
        .input("list", as_list(calls).as_bytes())
        .limits(|limits| limits.open_files = hotcell_types::Count::of(64))
}

fn parse(outcome: &Outcome) -> BTreeMap<usize, String> {
    let said = text(outcome);
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(at, answer)| (at.parse().unwrap(), answer.to_owned())).collect()
}

/// Each call in a process of its own.
fn apart(attack: Attack, calls: &[Call]) -> Vec<String> {
    let outcome = attack.run();
    let answers = parse(&outcome);
    assert_eq!(answers.len(), calls.len(), "{outcome:?}");
    answers.into_values().collect()
}

/// All in one process, and in another one after each that ends it.
fn one_after_another(image: &[u8], calls: &[Call]) -> Vec<String> {
    let mut all = BTreeMap::new();
    while all.len() < calls.len() {
        let from = all.len().to_string();
        let outcome = probe(image, calls, &["here", &from]).profile(Profile::Strict).run();
        let before = all.len();
        all.extend(parse(&outcome));
        if all.len() < calls.len() {
            all.insert(all.len(), format!("ended {:?}", outcome.exit));
        }
        assert!(all.len() > before);
    }
    all.into_values().collect()
}

/// Every refusal is exactly the one on the list, and every other call answers what it answers without
/// a filter.
fn compare(golden: &Golden<'_>, calls: &[Call], filtered: &[String], free: &[String]) {
    let mut wrong = Vec::new();
    for ((call, filtered), free) in calls.iter().zip(filtered).zip(free) {
        if BEFORE_EVERY_FILTER.contains(&call[0]) {
            continue;
        }
        let verdict = golden.verdict(call);
        let good = match verdict {
            "allow" => filtered == free,
            refused => filtered == errno(refused),
        };
        if !good {
            let name = golden.calls.get(&call[0]).map_or("?", |call| call.0);
            wrong.push(format!("{name} {call:x?}: {verdict}, answered {filtered}, freely {free}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn whole_table() -> Vec<Call> {
    (0..=LAST).map(|number| [number, 0, 0, 0, 0, 0, 0]).collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sc_01_the_whole_table_is_the_reviewed_list() {
    let Some(image) = compile("sc_01", PROBE, &[]) else { return };
    let (golden, calls) = (Golden::read(STANDARD), whole_table());
    let filtered = apart(probe(&image, &calls, &["fork"]), &calls);
    let free = apart(probe(&image, &calls, &["fork"]).without_seccomp(), &calls);
    compare(&golden, &calls, &filtered, &free);
    // The control: without the filter, what the list refuses reaches the kernel, which then answers
    // something else for all but those that it has not or that need a capability.
    let refused = calls.iter().filter(|call| golden.verdict(call) != "allow").count();
    let reached = calls
        .iter()
        .zip(filtered.iter().zip(&free))
        .filter(|(call, (filtered, free))| golden.verdict(call) != "allow" && filtered != free)
        .count();
    assert!(refused > 100 && reached > 60, "{reached} of {refused}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sc_01_the_whole_table_under_strict() {
    let Some(image) = compile("sc_01 strict", PROBE, &[]) else { return };
    let (golden, calls) = (Golden::read(STRICT), whole_table());
    let filtered = one_after_another(&image, &calls);
    let mut wrong = Vec::new();
    for (call, answer) in calls.iter().zip(&filtered) {
        let verdict = golden.verdict(call);
        // In one process after another, what is allowed answers all sorts of things; that it is not
        // simply missing is what can be said.
        let good = match verdict {
            _ if BEFORE_EVERY_FILTER.contains(&call[0]) => true,
            "allow" => answer != "38",
            refused => answer == errno(refused),
        };
        if !good {
            wrong.push(format!("{call:x?}: {verdict}, answered {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For each test of each rule: every listed value, and each with one bit flipped, with a million
/// added, and with the upper half set, which the kernel does not read.
fn variations(golden: &Golden<'_>) -> Vec<Call> {
    let mut calls = Vec::new();
    for (&number, (_, rules)) in &golden.calls {
        for test in rules.split("; ").flat_map(|rule| {
            rule.split_once(" if ").map(|(_, tests)| tests).unwrap_or("").split(" and ")
        }) {
            let Some(rest) = test.strip_prefix("arg") else { continue };
            let argument: usize = rest[..1].parse().unwrap();
            let values = match test.split_once(" in ") {
                Some((_, values)) => list(values),
                None => vec![0],
            };
            for value in values {
                let flipped = (0..32).map(|bit| value ^ (1 << bit));
                let all = [value, value + 1_000_000, value | (7 << 32)].into_iter().chain(flipped);
                for value in all {
                    let mut call = [number, 0, 0, 0, 0, 0, 0];
                    // Descriptors that are not there: the question is only who answers.
                    if number == 16 || number == 54 {
                        call[1] = 63;
                    }
                    if number == 54 && argument == 2 {
                        call[2] = 1;
                    }
                    call[argument + 1] = value;
                    calls.push(call);
                }
            }
        }
    }
    calls.sort_unstable();
    calls.dedup();
    calls
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sc_02_rules_about_arguments() {
    /// Its arguments decide who shares what with whom; without a filter the answers vary.
    const CLONE: u64 = 56;
    let Some(image) = compile("sc_02", PROBE, &[]) else { return };
    let golden = Golden::read(STANDARD);
    let all = variations(&golden);
    assert!(all.len() > 1000, "{}", all.len());
    let calls: Vec<Call> = all.iter().filter(|call| call[0] != CLONE).copied().collect();
    let filtered = apart(probe(&image, &calls, &["fork"]), &calls);
    let free = apart(probe(&image, &calls, &["fork"]).without_seccomp(), &calls);
    compare(&golden, &calls, &filtered, &free);
    let clones: Vec<Call> = all
        .into_iter()
        .filter(|call| call[0] == CLONE && golden.verdict(call) != "allow")
        .collect();
    assert!(clones.len() > 7);
    for (call, answer) in clones.iter().zip(apart(probe(&image, &clones, &["fork"]), &clones)) {
        assert_eq!(answer, "1", "{call:x?}");
    }
}

#[test]
fn sc_03_io_uring() {
    let code = "
say('setup', call(425, 8, ctypes.create_string_buffer(120)))
say('enter', call(426, 0, 0, 0, 0, 0))
say('register', call(427, 0, 0, 0, 0))
";
    let answers = Attack::python(code).answers();
    answers.are(&[("setup", "ENOSYS"), ("enter", "EPERM"), ("register", "EPERM")]);
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if disabled.is_ok_and(|value| value.trim() != "0") {
        return skip("sc_03 control", "io_uring is switched off on this host");
    }
    // The filter alone.
    Attack::python(code).without_seccomp().answers().is("setup", "ok");
}

/// Calls by the 32-bit and x32 entries: socket, mount, getpid.
const OTHER_ENTRIES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **args) {
    long answer, number = atol(args[2]);
    if (!strcmp(args[1], "int80"))
        __asm__ volatile("int $0x80" : "=a"(answer) : "a"(number), "b"(2), "c"(1), "d"(0) : "memory");
    else
        __asm__ volatile("syscall" : "=a"(answer) : "a"(number | 0x40000000), "D"(2), "S"(1), "d"(0)
            : "rcx", "r11", "memory");
    printf("answer=%ld\n", answer);
    return 0;
}
"#;

/// A 32-bit program: exit_group(42).
const ELF32: &str = r#"
void _start(void) { __asm__ volatile("int $0x80" : : "a"(252), "b"(42)); }
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn sc_04_other_entries_into_the_kernel() {
    let Some(image) = compile("sc_04", OTHER_ENTRIES, &[]) else { return };
    let attack = |entry: &str, number: &str| {
        Attack::program("/work/a", &["a", entry, number]).input_with("a", &image, 0o755)
    };
    // getpid, socketcall, mount, ptrace of i386; getpid, socket of x32.
    let calls = [
        ("int80", "20"),
        ("int80", "102"),
        ("int80", "21"),
        ("int80", "26"),
        ("x32", "39"),
        ("x32", "41"),
    ];
    for (entry, number) in calls {
        let outcome = attack(entry, number).run();
        assert_eq!(outcome.exit, Some(Exit::Signal(31)), "{entry} {number}: {outcome:?}");
        assert_eq!(outcome.status, Status::Killed);
    }
    let free = attack("int80", "20").without_seccomp().run();
    let emulated = Answers::of(&free).get("answer").parse::<i64>().unwrap() > 0;
    if !emulated {
        skip("sc_04 control", "this kernel has no 32-bit entry");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sc_04_a_32_bit_program() {
    let flags = ["-m32", "-nostdlib", "-fno-pic", "-fno-stack-protector"];
    let Some(image) = compile("sc_04 ELF32", ELF32, &flags) else { return };
    let attack = || Attack::program("/work/a", &["a"]).input_with("a", &image, 0o755);
    let outcome = attack().run();
    assert_eq!(outcome.exit, Some(Exit::Signal(31)), "{outcome:?}");
    match attack().without_seccomp().try_run() {
        Ok(free) => assert_eq!(free.exit, Some(Exit::Code(42)), "{free:?}"),
        Err(_) => skip("sc_04 ELF32 control", "this kernel runs no 32-bit programs"),
    }
}

const RISKY: &[(&str, u32)] = &[
    ("bpf", 321),
    ("perf_event_open", 298),
    ("userfaultfd", 323),
    ("add_key", 248),
    ("request_key", 249),
    ("keyctl", 250),
    ("kexec_load", 246),
    ("kexec_file_load", 320),
    ("init_module", 175),
    ("finit_module", 313),
    ("delete_module", 176),
    ("fanotify_init", 300),
    ("quotactl", 179),
    ("swapon", 167),
    ("swapoff", 168),
    ("reboot", 169),
    ("syslog", 103),
    ("ioperm", 173),
    ("iopl", 172),
    ("move_pages", 279),
    ("migrate_pages", 256),
    ("mbind", 237),
    ("set_mempolicy", 238),
    ("lookup_dcookie", 212),
    ("acct", 163),
    ("vhangup", 153),
    ("personality", 135),
    ("chroot", 161),
    ("pivot_root", 155),
    ("mount", 165),
    ("umount2", 166),
    ("clock_settime", 227),
    ("settimeofday", 164),
    ("adjtimex", 159),
    ("clock_adjtime", 305),
    ("sethostname", 170),
    ("setdomainname", 171),
    ("seccomp", 317),
    ("landlock_create_ruleset", 444),
    ("memfd_secret", 447),
    ("process_vm_readv", 310),
    ("open_by_handle_at", 304),
    ("name_to_handle_at", 303),
    ("setns", 308),
    ("unshare", 272),
    ("ptrace", 101),
    ("kcmp", 312),
    ("shmget", 29),
    ("semget", 64),
    ("msgget", 68),
    ("mq_open", 240),
    ("modify_ldt", 154),
    ("pidfd_getfd", 438),
    ("io_uring_setup", 425),
];

#[test]
fn sc_06_privileged_and_risky_calls() {
    let lines: String = RISKY
        .iter()
        .map(|(name, number)| format!("say({name:?}, call({number}, 1, 1, 1, 1, 1))\n"))
        .collect();
    Attack::python(&lines).answers().all("EPERM|ENOSYS");
}

#[test]
fn sc_06_control_what_the_filter_alone_stops() {
    let code = r"
flags = 1 # user mode only
say('userfaultfd', call(323, flags))
say('keyctl', call(250, 0, -3, 1, 0, 0)) # the id of the session keyring
say('add_key', call(248, b'user', b'hotcell-test', b'x', 1, -3))
say('shmget', call(29, 0, 4096, 0o1600))
say('semget', call(64, 0, 1, 0o1600))
say('msgget', call(68, 0, 0o1600))
say('seccomp', call(317, 2, 0, ctypes.create_string_buffer(bytes([0, 0, 0xff, 0x7f]))))
say('landlock', call(444, 0, 0, 1))
say('set_mempolicy', call(238, 0, 0, 0))
say('netlink', call(41, 16, 3, 0))
say('inet', call(41, 2, 1, 0))
say('personality', call(135, 0x0040000))
";
    let refused = Attack::python(code).answers();
    refused.all("EPERM|ENOSYS|EAFNOSUPPORT|EACCES");
    let control = Attack::python(code).without_seccomp().answers();
    for (name, answer) in control.iter() {
        assert_eq!(answer, "ok", "{name} without a filter");
    }
}

#[test]
fn sc_07_unknown_calls_and_many_starts() {
    let code = "
for number in list(range(472, 481)) + [600, 1023, 0xffff, 0x7fffffff]: say(number, call(number, 0, 0, 0))
";
    Attack::python(code).answers().all("ENOSYS");
    // Nothing that an ordinary start does is refused now and then.
    let mut programs = vec![
        ("/usr/bin/python3", vec!["python3", "-c", "print('up')"]),
        ("/bin/bash", vec!["bash", "-c", "echo up"]),
    ];
    for (path, args) in [
        ("/usr/bin/node", vec!["node", "-e", "console.log('up')"]),
        ("/usr/bin/git", vec!["git", "--version"]),
    ] {
        if Path::new(path).exists() {
            programs.push((path, args));
        }
    }
    let each = soak(60) / programs.len();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let programs = &programs;
            scope.spawn(move || {
                for round in 0..each {
                    let (path, args) = &programs[(round + thread) % programs.len()];
                    let outcome = Attack::program(*path, args).run();
                    assert_eq!(outcome.status, Status::Success, "{path}: {outcome:?}");
                    assert!(!text(&outcome).is_empty());
                    assert!(outcome.blocked_syscalls.is_empty(), "{path}: {outcome:?}");
                }
            });
        }
    });
}

const FAMILIES: &str = r"
families = {'NETLINK': 16, 'PACKET': 17, 'ALG': 38, 'VSOCK': 40, 'XDP': 44, 'TIPC': 30, 'RDS': 21,
    'CAN': 29, 'BLUETOOTH': 31, 'QIPCRTR': 42, 'KEY': 15, 'X25': 9, 'AX25': 3, 'IPX': 4, 'APPLETALK': 5,
    'LLC': 26, 'PPPOX': 24, 'SMC': 43, 'NFC': 39, 'KCM': 41, 'IB': 27, 'PHONET': 35, 'IEEE802154': 36,
    'INET': 2, 'INET6': 10, 'MCTP': 45}
for name, family in families.items():
    for kind in (1, 2, 3, 5, 10):
        say(f'{name} {kind}', call(41, family, kind, 0))
    say(f'{name} pair', call(53, family, 1, 0, ctypes.create_string_buffer(8)))
    # The kernel reads the lower half only.
    say(f'{name} high', call(41, family | (1 << 32), 1, 0))
say('SOCK_PACKET', call(41, 2, 10, 0x300))
";

#[test]
fn sc_08_socket_families() {
    let outcome = Attack::python(FAMILIES).run();
    Answers::of(&outcome).all("EPERM|EAFNOSUPPORT|EACCES");
    let named: Vec<_> = outcome.blocked_syscalls.iter().filter_map(|b| b.name.as_deref()).collect();
    assert_eq!(named, ["socket", "socketpair"]);
    let control = Attack::python(FAMILIES).without_seccomp().answers();
    // The filter alone: a netlink socket is had, whose parsers are the kernel's largest.
    control.are(&[("NETLINK 3", "ok"), ("INET 1", "ok"), ("INET6 2", "ok"), ("INET high", "ok")]);
    // Where the internet is allowed, nothing else is.
    let net = Attack::python(FAMILIES).profile(Profile::StandardNet).answers();
    net.are(&[("INET 1", "ok"), ("INET6 2", "ok"), ("INET 3", "EPERM"), ("INET6 3", "EPERM")]);
    net.are(&[("SOCK_PACKET", "EPERM"), ("NETLINK 3", "EAFNOSUPPORT"), ("PACKET 3", "EPERM")]);
}

#[test]
fn sc_10_shedding_the_filter() {
    let code = r"
import struct, subprocess, threading
allow_all = struct.pack('<HBBI', 6, 0, 0, 0x7fff0000)
program = ctypes.create_string_buffer(allow_all)
fprog = struct.pack('<HxxxxxxQ', 1, ctypes.addressof(program))
say('seccomp', call(317, 1, 0, ctypes.create_string_buffer(fprog)))
say('prctl', call(157, 22, 2, ctypes.create_string_buffer(fprog), 0, 0))
say('dispatch', call(157, 59, 1, 0, 0, 0))
say('tracer', call(157, 0x59616d61, -1, 0, 0, 0))
call(157, 4, 0, 0, 0, 0); call(157, 4, 1, 0, 0, 0) # dumpable
def state(who): return field(read(f'/proc/{who}/status'), 'Seccomp:')
say('here', state('self'))
say('exec', subprocess.run(['/bin/sh', '-c', 'grep Seccomp: /proc/self/status'], capture_output=True, text=True).stdout.split()[-1])
answers = []
t = threading.Thread(target=lambda: answers.append(state('thread-self'))); t.start(); t.join()
say('thread', answers[0])
say('init', state('1') in ('0', '2'))
";
    let answers = Attack::python(code).answers();
    answers.are(&[("seccomp", "ENOSYS"), ("prctl", "EINVAL"), ("dispatch", "EINVAL")]);
    answers.are(&[("tracer", "EINVAL"), ("here", "2"), ("exec", "2"), ("thread", "2")]);
}

#[test]
fn sc_10_a_filter_of_its_own_could_hide_a_report() {
    // What the control does is what the profile forbids, so that every refusal is counted.
    let code = r"
import struct
# if the number is unshare's: errno 38, else allow
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (6, 0, 0, 0x50026), (6, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b''.join(struct.pack('<HBBI', *r) for r in rules))
fprog = struct.pack('<HxxxxxxQ', len(rules), ctypes.addressof(program))
say('seccomp', call(317, 1, 0, ctypes.create_string_buffer(fprog)))
say('unshare', call(272, 0x10000000))
";
    let outcome = Attack::python(code).run();
    Answers::of(&outcome).are(&[("seccomp", "ENOSYS"), ("unshare", "EPERM")]);
    assert_eq!(outcome.blocked_syscalls.len(), 1);
    let control = Attack::python(code).without_seccomp().answers();
    control.are(&[("seccomp", "ok"), ("unshare", "ENOSYS")]);
}

#[test]
fn sc_11_code_that_runs_before_the_program() {
    let canary = Canary::plant();
    let dump = "import sys\nseen = open('/proc/self/status').read()\nwanted = ['Seccomp:\\t2', 'NoNewPrivs:\\t1', 'CapEff:\\t0000000000000000', 'CapBnd:\\t0000000000000000']\nsys.stdout.write('early ' + str(all(w in seen for w in wanted)) + '\\n')\ntry: sys.stdout.write(open(CANARY).read())\nexcept OSError as e: sys.stdout.write(type(e).__name__ + '\\n')\n";
    let dump = dump.replace("CANARY", &format!("{:?}", canary.public()));
    let attack = Attack::program("/usr/bin/python3", &["python3", "-c", "print('late')"])
        .input("sitecustomize.py", dump.as_bytes())
        .input("usercustomize.py", dump.as_bytes())
        .input("start.sh", b"echo from-shell")
        .env("PYTHONPATH", "/work")
        .env("PYTHONSTARTUP", "/work/sitecustomize.py")
        .env("BASH_ENV", "/work/start.sh")
        .env("ENV", "/work/start.sh")
        .env("LD_AUDIT", "/work/none.so")
        .env("GCONV_PATH", "/work");
    let outcome = attack.run();
    // Executed, with everything already on, and it saw nothing.
    let said = text(&outcome);
    assert!(said.contains("early True") && said.contains("FileNotFoundError"), "{outcome:?}");
    assert!(said.ends_with("late\n") && !said.contains("early False"), "{said}");
    canary.is_unseen_in(&outcome);
    let bash =
        Attack::program("/bin/bash", &["bash", "-c", "grep -E 'Seccomp:|NoNew' /proc/self/status"])
            .input("start.sh", b"grep Seccomp: /proc/self/status")
            .env("BASH_ENV", "/work/start.sh")
            .run();
    assert_eq!(text(&bash), "Seccomp:\t2\nNoNewPrivs:\t1\nSeccomp:\t2\n");
}

#[test]
fn sc_11_a_preloaded_library() {
    let source = r#"
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void early(void) {
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) if (!strncmp(line, "Seccomp:", 8)) fputs(line, stdout);
    fflush(stdout);
}
"#;
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a.c"), dir.path().join("a.so"));
    std::fs::write(&from, source).unwrap();
    let made = std::process::Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&to, &from])
        .status();
    if !made.is_ok_and(|made| made.success()) {
        return skip("sc_11 LD_PRELOAD", "there is no gcc here");
    }
    let outcome = Attack::program("/bin/true", &["true"])
        .input_with("a.so", &std::fs::read(&to).unwrap(), 0o755)
        .env("LD_PRELOAD", "/work/a.so")
        .run();
    assert_eq!(text(&outcome), "Seccomp:\t2\n", "{outcome:?}");
}

#[test]
fn sc_12_native_code() {
    // Policy knows no interpreter-only runs yet; here it is that strict executes nothing after the
    // start, by any way.
    let code = r"
fd = os.memfd_create('x')
say('execve', call(59, b'/bin/true', 0, 0))
say('execveat', call(322, -100, b'/bin/true', 0, 0, 0))
say('fexecve', call(322, fd, b'', 0, 0, 0x1000))
say('ld.so', call(59, b'/lib64/ld-linux-x86-64.so.2', 0, 0))
say('guess', call(322, -100, b'/bin/true', 0, 0, 0, 0x123456789))
say('fork', call(57))
say('vfork', call(58))
say('clone', call(56, 17, 0, 0, 0, 0))
say('write', attempt(os.open, '/work/x', os.O_WRONLY | os.O_CREAT))
";
    let code = code.replace("fd = os.memfd_create('x')", "fd = 0");
    let strict = Attack::python(&code).profile(Profile::Strict).answers();
    strict.all("EPERM|ENOSYS|EACCES");
    let standard = "
import subprocess
fd = os.memfd_create('x'); os.write(fd, open('/bin/true', 'rb').read())
child = os.fork()
if child == 0: os.execve(fd, ['true'], {})
say('memfd', os.waitpid(child, 0)[1])
";
    Attack::python(standard).answers().is("memfd", "0");
}

#[test]
fn sc_13_blocked_calls_are_reported() {
    let code = "
for _ in range(3): call(272, 0x10000000)
call(101, 16, 1, 0, 0); call(250, 0, 0, 0, 0)
call(321, 0, 0, 0)
";
    let outcome = Attack::python(code).run();
    let seen: Vec<_> =
        outcome.blocked_syscalls.iter().map(|b| (b.number, b.name.as_deref(), b.count)).collect();
    let wanted = [
        (272, Some("unshare"), 3),
        (101, Some("ptrace"), 1),
        (250, Some("keyctl"), 1),
        (321, Some("bpf"), 1),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(outcome.status, Status::Success, "a refusal is an answer, not an end");
    let quiet = Attack::python("say('x', call(425, 1, 0))").run();
    assert!(quiet.blocked_syscalls.is_empty(), "what programs do in passing is not reported");
}

#[test]
fn sc_14_a_storm_of_reported_calls() {
    // The supervisor decides by the number alone and always refuses, so that there is nothing to race
    // for; it must not be kept busy either.
    let code = "
import threading
answers = set()
def storm():
    for _ in range(3000): answers.add(call(272, 0x10000000))
threads = [threading.Thread(target=storm) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
say('answers', sorted(answers))
say('user', os.getuid())
";
    let (outcome, took) = timed(|| Attack::python(code).run());
    // Beyond what is counted, the kernel answers by itself.
    let answers = Answers::of(&outcome);
    answers.is("answers", "['ENOSYS', 'EPERM']").is("user", "1000");
    assert_eq!(outcome.blocked_syscalls[0].count, 4096);
    assert!(took < Duration::from_secs(20), "{took:?}");
    // The launcher still serves.
    let (next, took) = timed(|| Attack::shell("true").run());
    assert_eq!(next.status, Status::Success);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn clk_04_setting_the_clock() {
    let code = r"
import struct, time
now = struct.pack('<qq', 1, 0)
say('clock_settime', call(227, 0, now))
say('settimeofday', call(164, now, 0))
say('adjtimex', call(159, ctypes.create_string_buffer(struct.pack('<I', 1) + bytes(252))))
say('clock_adjtime', call(305, 0, ctypes.create_string_buffer(struct.pack('<I', 1) + bytes(252))))
say('rtc', attempt(os.open, '/dev/rtc0', os.O_WRONLY))
say('timens', attempt(os.open, '/proc/self/timens_offsets', os.O_WRONLY))
say('unshare', call(272, 0x80))
";
    let before = std::time::SystemTime::now();
    Attack::python(code).answers().all("EPERM|ENOENT|EROFS|EACCES");
    let passed = before.elapsed().expect("the clock did not go back");
    assert!(passed < Duration::from_secs(60), "{passed:?}");
    // No control: a run that could set the clock would set everybody's. Without the filter, the
    // capability that it has not is asked for.
    let free = Attack::python(code).without_seccomp().answers();
    free.are(&[("clock_settime", "EPERM"), ("settimeofday", "EPERM"), ("adjtimex", "EPERM")]);
}

#[test]
fn keyrings_are_new_for_each_run() {
    let test = "keyrings";
    if !is_root_for(test) {
        return;
    }
    // A helper with a key in its session keyring, as a login has.
    let name = hotcell_tests::token();
    let before = format!(
        r"
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.syscall(250, 1, 0, 0, 0, 0) # a new session keyring
assert libc.syscall(248, b'user', b'{name}', b'{name}', {length}, -3) > 0
os.execv(sys.argv[1], sys.argv[1:])
",
        length = name.len()
    );
    let code = format!(
        r"
key = libc.syscall(ctypes.c_long(250), 10, -3, b'user', b'{name}', 0)
say('search', 'ok' if key > 0 else name_of(ctypes.get_errno()))
buffer = ctypes.create_string_buffer(64)
say('read', libc.syscall(ctypes.c_long(250), 11, key, buffer, 64))
say('key', buffer.value.decode())
"
    );
    let behind = ["/usr/bin/python3", "-c", &before];
    let with = |layers: u32, flags: &str| crate::victim::run_behind(&behind, &code, layers, flags);
    // The filter alone, and the new keyring alone.
    let said = with(hole::KEYRING, "");
    assert!(said.contains("search=EPERM") && !said.contains(&format!("key={name}")), "{said}");
    let said = with(0, "seccomp");
    assert!(said.contains("search=ENOKEY") && !said.contains(&format!("key={name}")), "{said}");
    let control = with(hole::KEYRING, "seccomp");
    assert!(control.contains(&format!("key={name}")), "{control}");
}
