//! Sandboxes that stay. Each program in one has every wall of a run around it; what it shares with the others
//! in there, and what it does not, is tried from inside.
//!
//! One test at a time, since some look at the whole host.

mod killed;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::panic;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use hotcell_sandbox::{
    Item, Keep, Kept, PROGRAMS_MOST, Refusal, Running, Sandbox, Sink, What, WorkingCopy, hole,
};
use hotcell_tests::{
    Answers, Attack, Quiet, Snapshot, descendants, holds_within, is_root_for, settings, soak, text,
    timed, token, with_token,
};
use hotcell_types::{Bytes, Count, Layer, Limit, Limits, Outcome, Profile, Span, Start, Status};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sandbox() -> Sandbox {
    Sandbox::open(&settings()).unwrap()
}

/// As an attack would run by itself.
fn keep_of(attack: &Attack) -> Keep {
    Keep {
        view: attack.job.command.view(),
        limits: attack.job.limits,
        profile: attack.job.profile,
        network: attack.job.network,
        holes: attack.job.holes,
    }
}

fn ordinary() -> Keep {
    keep_of(&Attack::shell("true"))
}

fn limited(change: impl FnOnce(&mut Limits)) -> Keep {
    let mut keep = ordinary();
    change(&mut keep.limits);
    keep
}

#[track_caller]
fn start(kept: &Kept, attack: Attack) -> Running {
    kept.exec(attack.job).unwrap_or_else(|refusal| panic!("it did not start: {refusal:?}"))
}

#[track_caller]
fn exec(kept: &Kept, attack: Attack) -> Outcome {
    start(kept, attack).wait_for_end(&mut Quiet).unwrap()
}

/// What a shell printed; it has to end well.
#[track_caller]
fn says(kept: &Kept, code: &str) -> String {
    let outcome = exec(kept, Attack::shell(code));
    let errors = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
    assert_eq!(outcome.status, Status::Success, "{errors}");
    text(&outcome)
}

/// Tells when a program has said its first word.
struct FirstWord(Option<mpsc::Sender<()>>);

impl Sink for FirstWord {
    fn stdout(&mut self, _: &[u8]) {
        if let Some(first) = self.0.take() {
            first.send(()).ok();
        }
    }

    fn stderr(&mut self, _: &[u8]) {}
}

/// Runs a program that says something and then stays. `meanwhile` is called once it has.
fn beside<T>(
    kept: &Kept,
    attack: Attack,
    meanwhile: impl FnOnce(&hotcell_sandbox::Handle) -> T,
) -> (Outcome, T) {
    let running = start(kept, attack);
    let handle = running.handle();
    let (first, said) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(move || running.wait_for_end(&mut FirstWord(Some(first))).unwrap());
        let done = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            said.recv().expect("it says something");
            meanwhile(&handle)
        }));
        let done = done.unwrap_or_else(|failure| {
            // Or it would be waited for as long as it runs.
            kept.stop().unwrap();
            panic::resume_unwind(failure)
        });
        (waiting.join().unwrap(), done)
    })
}

const STAYS: &str = "echo here; exec sleep 60";

#[test]
fn what_a_program_writes_is_there_for_the_next_one() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    for round in 0..20 {
        let before = says(&kept, "cat count /tmp/count /dev/shm/count 2>/dev/null; true");
        assert_eq!(before, format!("{round}\n").repeat(if round == 0 { 0 } else { 3 }));
        let next = round + 1;
        says(&kept, &format!("for at in . /tmp /dev/shm; do echo {next} > $at/count; done"));
    }
    // Where it has waited for its program, as all but the first have.
    assert_eq!(exec(&kept, Attack::shell("true")).start, Start::Ready);
    let other = own.keep(ordinary()).unwrap();
    assert_eq!(says(&other, "ls -A . /tmp /dev/shm | grep count; true"), "");
}

#[test]
fn every_layer_is_on_in_each_program() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    let single = Attack::shell("true").start_in(&own).wait(&mut Quiet, None).unwrap();
    for _ in 0..3 {
        let outcome = exec(&kept, Attack::shell("true"));
        assert_eq!(outcome.level, single.level);
        let on = |outcome: &Outcome| -> Vec<(Layer, bool)> {
            outcome.layers.iter().map(|report| (report.layer, report.active)).collect()
        };
        assert_eq!(on(&outcome), on(&single));
    }
}

#[test]
fn a_program_sees_no_other_and_none_of_the_one_that_holds_the_sandbox() {
    let _alone = alone();
    let own = sandbox();
    let look = "import os\npids = [n for n in os.listdir('/proc') if n.isdigit()]\n\
                print('pids=%s' % ' '.join(sorted(pids)))\n\
                def names(p):\n    try: return open('/proc/%s/comm' % p).read().strip()\n    \
                except OSError as e: return e.strerror\n\
                print('names=%s' % ','.join(sorted(names(p) for p in pids)))\n\
                def kill():\n    try: os.kill(-1, 0); return 'somebody'\n    \
                except OSError as e: return e.strerror\n\
                print('others=%s' % kill())\n";
    let kept = own.keep(ordinary()).unwrap();
    let (_, seen) = beside(&kept, Attack::shell(STAYS), |handle| {
        let seen = Answers::of(&exec(&kept, Attack::executed(look)));
        handle.cancel();
        seen
    });
    seen.is("pids", "1 2").is("names", "hotcell-init,python3").is("others", "No such process");
    // Without the pid namespaces, somebody else would be there.
    let mut open = ordinary();
    open.holes.layers |= hole::PID | hole::LANDLOCK;
    let kept = own.keep(open).unwrap();
    let (_, seen) = beside(&kept, Attack::shell(STAYS), |handle| {
        let seen = Answers::of(&exec(&kept, Attack::executed(look)));
        handle.cancel();
        seen
    });
    seen.is("others", "somebody");
}

#[test]
fn a_program_ends_as_a_whole_and_the_others_go_on() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    let token = token();
    let (outcome, ()) = beside(&kept, Attack::shell(STAYS), |handle| {
        let left =
            format!("sh -c 'sleep 60; true' {token} & setsid sh -c 'sleep 60; true' {token} &");
        let outcome = exec(&kept, Attack::shell(&format!("{left} sleep 0.1; echo done")));
        assert_eq!((outcome.status, text(&outcome).as_str()), (Status::Success, "done\n"));
        assert!(with_token(&token).is_empty(), "it left something running");
        assert_eq!(kept.programs_running(), 1);
        handle.cancel();
    });
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(says(&kept, "echo still here"), "still here\n");
}

#[test]
fn what_is_killed_or_takes_too_long_is_one_program_only() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    let killed = exec(&kept, Attack::shell("kill -9 $$"));
    assert_eq!(killed.status, Status::Killed);
    let (late, took) = timed(|| exec(&kept, Attack::shell("sleep 60").timeout(200)));
    assert_eq!((late.status, late.limit), (Status::Timeout, Some(Limit::Timeout)));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(exec(&kept, Attack::shell("exit 7")).exit, Some(hotcell_types::Exit::Code(7)));
    let unknown = kept.exec(Attack::program("/usr/bin/no-such-program", &["x"]).job);
    assert!(matches!(unknown, Err(Refusal::NotRunnable { .. })), "{unknown:?}");
    assert_eq!(says(&kept, "echo still here"), "still here\n");
}

#[test]
fn its_limits_hold_for_all_programs_together() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(limited(|limits| {
        limits.memory = Bytes::mib(96);
        limits.disk = Bytes::mib(8);
        limits.pids = Count::of(24);
    }));
    let kept = kept.unwrap();
    // What one has written is not there for the other.
    assert_eq!(exec(&kept, Attack::shell("head -c 6M /dev/zero > one")).status, Status::Success);
    let full = exec(&kept, Attack::shell("head -c 6M /dev/zero > two"));
    assert_eq!(full.status, Status::Failure);
    assert!(full.limits_hit.contains(&Limit::Disk), "{:?}", full.limits_hit);
    assert!(kept.usage().disk_bytes >= 6 << 20, "{:?}", kept.usage());
    says(&kept, "rm one two");
    // Memory: only who asks for too much ends.
    if kept.usage().memory_bytes.is_some() {
        let greedy = exec(&kept, Attack::executed("x = bytearray(1 << 28)"));
        assert_eq!((greedy.status, greedy.limit), (Status::Oom, Some(Limit::Memory)));
        let before = exec(&kept, Attack::shell("true"));
        assert_eq!(before.usage.oom_kills, Some(0), "it counts what happened before it came");
        assert!(kept.usage().oom_kills >= Some(1));
    }
    // Processes: a flood ends with its program, and makes room.
    let flood = "n=0; while [ $n -lt 60 ]; do sleep 30 & n=$((n+1)); done; echo flooded";
    let flooded = exec(&kept, Attack::shell(flood));
    assert!(flooded.status != Status::Success || flooded.limits_hit.contains(&Limit::Pids));
    let again = holds_within(Duration::from_secs(5), || {
        kept.exec(Attack::shell("true").job)
            .and_then(|running| running.wait_for_end(&mut Quiet))
            .is_ok_and(|outcome| outcome.status == Status::Success)
    });
    assert!(again, "nothing can be started after a flood");
}

#[test]
fn a_pause_stops_everything_and_takes_nobodys_time() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    if matches!(kept.pause(), Err(Refusal::Layer { .. })) {
        return hotcell_tests::skip("a_pause_stops_everything", "there is no cgroup here");
    }
    kept.resume().unwrap();
    let counts =
        "echo here; n=0; while [ $n -lt 20 ]; do sleep 0.05; n=$((n+1)); echo $n > n; done";
    let work = |kept: &Kept| kept.work_dir().map(|dir| read_below(&dir, c"n")).unwrap();
    let (outcome, ()) = beside(&kept, Attack::shell(counts).timeout(3_000), |handle| {
        assert!(matches!(handle.pause(), Err(Refusal::Invalid { .. })));
        kept.pause().unwrap();
        kept.pause().unwrap();
        let stands = work(&kept);
        // Longer than it may run.
        std::thread::sleep(Duration::from_millis(3_500));
        assert_eq!(work(&kept), stands);
        let Err(Refusal::Invalid { why, fix, .. }) = kept.exec(Attack::shell("true").job) else {
            panic!("a program started in a paused sandbox");
        };
        assert!(why.contains("paused") && fix.contains("resume"), "{why} {fix}");
        kept.resume().unwrap();
    });
    assert_eq!(outcome.status, Status::Success, "its time went on while it stood still");
    assert_eq!(says(&kept, "cat n"), "20\n");
}

#[test]
fn who_is_cancelled_in_a_paused_sandbox_is_told_so_at_once_and_never_goes_on() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    if kept.pause().is_err() {
        return hotcell_tests::skip("who_is_cancelled", "there is no cgroup here");
    }
    kept.resume().unwrap();
    let (token, both) = (token(), "echo here; exec sleep 60");
    let running = [
        start(&kept, Attack::shell(&format!("{both}; true {token}"))),
        start(&kept, Attack::shell(&format!("{both}; true {token}"))),
    ];
    kept.pause().unwrap();
    for program in running {
        let handle = program.handle();
        handle.cancel();
        let (outcome, took) = timed(|| program.wait_for_end(&mut Quiet).unwrap());
        assert_eq!(outcome.status, Status::Cancelled);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    kept.resume().unwrap();
    let are_gone = || with_token(&token).is_empty();
    assert!(holds_within(Duration::from_secs(5), are_gone), "they go on");
    assert_eq!(says(&kept, "echo still here"), "still here\n");
}

#[test]
fn who_looks_at_its_files_undoes_nobodys_pause() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    if kept.pause().is_err() {
        return hotcell_tests::skip("who_looks_at_its_files", "there is no cgroup here");
    }
    kept.resume().unwrap();
    let counts = "n=0; while true; do n=$((n+1)); echo $n > n; echo $n; sleep 0.01; done";
    let work = || kept.work_dir().map(|dir| read_below(&dir, c"n")).unwrap();
    let stands = || {
        let before = work();
        std::thread::sleep(Duration::from_millis(100));
        work() == before
    };
    let (_, ()) = beside(&kept, Attack::shell(counts), |handle| {
        let looks = [kept.stand_still().unwrap(), kept.stand_still().unwrap()];
        assert!(stands());
        kept.pause().unwrap();
        drop(looks);
        assert!(stands(), "the pause is over");
        let look = kept.stand_still().unwrap();
        kept.resume().unwrap();
        assert!(stands(), "somebody looks");
        drop(look);
        assert!(holds_within(Duration::from_secs(5), || !stands()), "it does not go on");
        handle.cancel();
    });
}

#[test]
fn nothing_is_left_of_one_that_was_stopped_whatever_it_was_doing() {
    let _alone = alone();
    drop(sandbox().keep(ordinary()).map(|kept| says(&kept, "true")));
    let before = Snapshot::take();
    let own = sandbox();
    for paused in [false, true] {
        let kept = own.keep(ordinary()).unwrap();
        let (outcome, ()) = beside(&kept, Attack::shell(STAYS), |_| {
            if paused {
                kept.pause().ok();
            }
            kept.stop().unwrap();
            kept.stop().unwrap();
        });
        assert_eq!(outcome.status, Status::Cancelled, "paused: {paused}");
        assert!(kept.has_ended());
        let Err(Refusal::Invalid { why, .. }) = kept.exec(Attack::shell("true").job) else {
            panic!("a program started in a sandbox that was stopped");
        };
        assert!(why.contains("stopped"), "{why}");
    }
    // Dropped with programs in it, and nobody who waits for them.
    let kept = own.keep(ordinary()).unwrap();
    let running = start(&kept, Attack::shell("sleep 60"));
    drop(kept);
    drop(running);
    drop(own);
    let left = before.left_over();
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn one_whose_holder_is_killed_ends_with_everything_in_it_and_says_so() {
    let _alone = alone();
    if !is_root_for("one_whose_holder_is_killed") {
        return;
    }
    let own = sandbox();
    let kept = own.keep(limited(|limits| limits.files = Count::of(4711))).unwrap();
    let (outcome, ()) = beside(&kept, Attack::shell(STAYS), |_| {
        // The first init that was made.
        let inits = descendants(std::process::id());
        let inits = inits.iter().filter(|process| process.name == "hotcell-init");
        let holder = inits.min_by_key(|process| (process.started, process.pid)).unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(holder.pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert!(holds_within(Duration::from_secs(5), || kept.has_ended()));
    });
    assert_ne!(outcome.status, Status::Success);
    assert!(kept.exec(Attack::shell("true").job).is_err());
    kept.stop().unwrap();
    // The launcher lives, and makes others.
    assert_eq!(says(&own.keep(ordinary()).unwrap(), "echo another"), "another\n");
}

#[test]
fn its_programs_have_one_network_together_and_with_nobody_else() {
    let _alone = alone();
    let own = sandbox();
    let serves = "import socket\ns = socket.create_server(('127.0.0.1', 4711))\n\
                  print('here', flush=True)\nwhile True:\n    c, _ = s.accept(); c.sendall(b'hello'); c.close()\n";
    let asks = "import socket\n\
                def ask():\n    try: return socket.create_connection(('127.0.0.1', 4711), 2).recv(9).decode()\n    \
                except OSError as e: return e.strerror\n\
                print('answer=%s' % ask())\n";
    let keep = || keep_of(&Attack::shell("true").profile(Profile::StandardNet));
    let (kept, other) = (own.keep(keep()).unwrap(), own.keep(keep()).unwrap());
    let (_, ()) = beside(&kept, Attack::executed(serves), |handle| {
        Answers::of(&exec(&kept, Attack::executed(asks))).is("answer", "hello");
        Answers::of(&exec(&other, Attack::executed(asks))).is("answer", "Connection refused");
        let single = Attack::executed(asks).profile(Profile::StandardNet);
        Answers::of(&single.start_in(&own).wait(&mut Quiet, None).unwrap())
            .is("answer", "Connection refused");
        handle.cancel();
    });
}

#[test]
fn the_way_out_of_one_is_made_once_and_there_for_each_program() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(keep_of(&Attack::shell("true").proxied())).unwrap();
    let listeners = kept.listeners();
    assert_eq!((listeners.len(), kept.listeners().len()), (1, 0));
    let asks = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/run/hotcell/proxy.sock')\n\
                print('answer=%s' % s.recv(9).decode())\n";
    for _ in 0..3 {
        let running = start(&kept, Attack::executed(asks));
        let accepting = listeners[0].try_clone().unwrap();
        let serving = std::thread::spawn(move || {
            let mut ready = [rustix::event::PollFd::new(&accepting, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).unwrap();
            let accepted = rustix::net::accept(&accepting).unwrap();
            rustix::io::write(&accepted, b"hello").unwrap();
        });
        let outcome = running.wait_for_end(&mut Quiet).unwrap();
        serving.join().unwrap();
        Answers::of(&outcome).is("answer", "hello");
    }
}

/// A file in the working directory, as somebody outside reads it.
fn read_below(dir: &std::os::fd::OwnedFd, name: &std::ffi::CStr) -> String {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => io::read_to_string(File::from(file)).unwrap(),
        Err(_) => String::new(),
    }
}

/// Files, directories and links by name and content.
#[derive(Debug)]
struct Copy(Vec<(&'static str, Content)>);

#[derive(Debug, Clone)]
enum Content {
    File(Vec<u8>),
    Directory,
    Link(&'static str),
}

impl WorkingCopy for Copy {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        Box::new(self.0.iter().map(|(path, content)| {
            let what = match content {
                Content::File(bytes) => What::File(hotcell_sandbox::in_memory(bytes)?),
                Content::Directory => What::Directory,
                Content::Link(to) => What::Link(CString::new(*to)?),
            };
            Ok(Item { path: CString::new(*path)?, what })
        }))
    }
}

fn file(content: &str) -> Content {
    Content::File(content.into())
}

#[test]
fn it_is_filled_at_any_time_and_what_was_there_is_replaced() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(ordinary()).unwrap();
    let first = vec![("a", file("one")), ("d", Content::Directory), ("d/b", file("two"))];
    kept.fill(&Copy(first)).unwrap();
    assert_eq!(says(&kept, "cat a d/b; echo more > d/c"), "onetwo");
    let second = vec![
        ("a", file("three")),
        ("d", Content::Directory),
        ("d/b", Content::Link("../a")),
        ("e", file("")),
    ];
    kept.fill(&Copy(second)).unwrap();
    assert_eq!(
        says(&kept, "cat a d/b d/c; ls -A . d"),
        "threethreemore\n.:\na\nd\ne\n\nd:\nb\nc\n"
    );
    let many: Vec<_> = (0..soak(300)).map(|_| ("a", file("again"))).collect();
    kept.fill(&Copy(many)).unwrap();
    assert_eq!(says(&kept, "cat a"), "again");
}

#[test]
fn what_cannot_be_filled_in_is_refused_with_its_name_and_the_sandbox_goes_on() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(limited(|limits| limits.disk = Bytes::mib(4))).unwrap();
    says(&kept, "mkdir dir; echo mine > mine; echo x > dir/x; ln -s /tmp out");
    for (copy, name, says) in [
        (vec![("dir", file("x"))], "dir", "directory"),
        (vec![("ok", file("x")), ("huge", Content::File(vec![1; 5 << 20]))], "huge", "disk"),
        (vec![("no/where", file("x"))], "no/where", "directory of the working copy"),
    ] {
        let Err(Refusal::Invalid { what, why, .. }) = kept.fill(&Copy(copy)) else {
            panic!("{name} was taken");
        };
        assert!(what.contains(name) && why.contains(says), "{what}: {why}");
    }
    // A link that a program left is not gone through.
    let through = vec![("out", Content::Directory), ("out/x", file("x"))];
    assert!(kept.fill(&Copy(through)).is_err() || says_nothing(&kept, "cat /tmp/x 2>/dev/null"));
    assert_eq!(says(&kept, "rm -f huge; cat mine dir/x"), "mine\nx\n");
}

#[track_caller]
fn says_nothing(kept: &Kept, code: &str) -> bool {
    text(&exec(kept, Attack::shell(code))).is_empty()
}

#[test]
fn only_so_many_programs_run_at_one_time() {
    let _alone = alone();
    let own = sandbox();
    let kept = own.keep(limited(|limits| limits.pids = Count::of(512))).unwrap();
    let running: Vec<_> =
        (0..PROGRAMS_MOST).map(|_| start(&kept, Attack::shell("sleep 60"))).collect();
    let more = kept.exec(Attack::shell("true").job);
    assert!(matches!(more, Err(Refusal::Busy { .. })), "{more:?}");
    drop(running);
    assert!(holds_within(Duration::from_secs(5), || kept.exec(Attack::shell("true").job).is_ok()));
}

#[test]
fn many_start_at_one_time_and_each_gets_its_own_answer() {
    let _alone = alone();
    let own = sandbox();
    let kept = Arc::new(own.keep(limited(|limits| limits.pids = Count::of(512))).unwrap());
    let asking: Vec<_> = (0..4)
        .map(|caller| {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                for round in 0..soak(15) {
                    let word = format!("{caller}-{round}");
                    assert_eq!(says(&kept, &format!("echo {word}")), format!("{word}\n"));
                }
            })
        })
        .collect();
    asking.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(kept.programs_running(), 0);
}

#[test]
fn a_program_sees_only_what_the_sandbox_was_made_with() {
    let _alone = alone();
    let own = sandbox();
    // On every host, readable, and nothing that runs see.
    let logs = Path::new("/var/log");
    let kept = own.keep(ordinary()).unwrap();
    let refused = kept.exec(Attack::shell("true").shows(logs).job);
    let Err(Refusal::Invalid { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("made without"), "{why}");
    let looks = "if [ -e /var/log ]; then echo seen; fi";
    assert_eq!(says(&kept, looks), "");
    let shown = own.keep(keep_of(&Attack::shell("true").shows(logs))).unwrap();
    assert_eq!(says(&shown, looks), "seen\n");
    // What is for a sandbox is for each of its programs, and for none of another.
    assert_eq!(exec(&shown, Attack::shell("true").shows(logs)).status, Status::Success);
    assert_eq!(says(&kept, looks), "");
}

#[test]
fn what_a_sandbox_needs_is_asked_for_when_it_is_made() {
    let _alone = alone();
    let own = sandbox();
    let few = own.keep(limited(|limits| limits.pids = Count::of(5)));
    assert!(matches!(few, Err(Refusal::Invalid { .. })), "{few:?}");
    let kept = own.keep(limited(|limits| limits.timeout = Span::seconds(1))).unwrap();
    // A program's time is its own.
    assert_eq!(exec(&kept, Attack::shell("sleep 1.2").timeout(5_000)).status, Status::Success);
}
