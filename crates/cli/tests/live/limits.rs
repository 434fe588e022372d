//! Each limit is enforced, ends the run or is felt by the program, and is named.

use serde_json::{Value, json};

use crate::support::{GRACE, World};

const FILL_MEMORY: &str = "a = []\nwhile True: a.append(bytearray(1 << 20))";

#[test]
fn memory() {
    let Some(world) = World::with_cgroups() else { return };
    let message = "hotcell: ended by the limit on memory (64MiB); --mem raises it\n";
    world.code(&["--mem", "64MiB"], "python", FILL_MEMORY).is(125, "", message);
    let report = world.json(&["--mem", "64MiB"], "python", FILL_MEMORY);
    ended_by(&report, "oom", "memory");
    assert!(report["usage"]["oom_kills"].as_u64() >= Some(1), "{report}");
    let peak = report["usage"]["peak_memory_bytes"].as_u64().unwrap();
    assert!((32 << 20..=64 << 20).contains(&peak), "{peak}");
    let enough = world.code(&["--mem", "256MiB"], "python", "print(len(bytearray(128 << 20)))");
    enough.is(0, "134217728\n", "");
}

#[test]
fn files_are_memory_too() {
    let Some(world) = World::with_cgroups() else { return };
    let ran = world.code(&["--mem", "32MiB", "--disk", "512MiB"], "shell", "cat /dev/zero > file");
    assert_eq!(ran.code, 125, "{ran:?}");
}

#[test]
fn wall_time() {
    let Some(world) = World::alone() else { return };
    let message = "hotcell: ended by the limit on wall time (300ms); --timeout raises it\n";
    let ran = world.code(&["--timeout", "300ms"], "shell", "echo begun; sleep 60");
    ran.is(124, "begun\n", message);
    assert!(
        ran.took.as_millis() >= 300 && ran.took < GRACE + std::time::Duration::from_millis(300),
        "{ran:?}"
    );
    ended_by(&world.json(&["--timeout", "100ms"], "shell", "sleep 60"), "timeout", "timeout");
}

#[test]
fn processor_time() {
    let Some(world) = World::alone().and_then(World::only_with_cgroups) else { return };
    let message = "hotcell: ended by the limit on processor time (200ms); --cpu-time raises it\n";
    let words = ["--cpu-time", "200ms", "--timeout", "20s"];
    world.code(&words, "shell", "while :; do :; done").is(123, "", message);
    // Of all processes together, and not of the time that passes.
    let report =
        world.json(&words, "shell", "for i in 1 2 3 4; do (while :; do :; done) & done; wait");
    ended_by(&report, "limit", "cpu_time");
    let used = report["usage"]["cpu_ms"].as_u64().unwrap();
    assert!((150..1000).contains(&used), "{used}");
    world.code(&["--cpu-time", "5s"], "shell", "sleep 0.3; echo done").is(0, "done\n", "");
}

#[test]
fn share_of_processors() {
    let Some(world) = World::alone().and_then(World::only_with_cgroups) else { return };
    let code = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass";
    let report = world.json(&["--cpu", "0.2"], "python", code);
    let used = report["usage"]["cpu_ms"].as_u64().unwrap();
    assert!(used < 500, "{used} ms in a second at a fifth of a processor");
}

#[test]
fn processes() {
    let Some(world) = World::with_cgroups() else { return };
    let code = "import os, time
made = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        made += 1
except BlockingIOError as e: print(made)";
    let report = world.json(&["--pids", "10"], "python", code);
    let made: u64 = report["stdout"]["text"].as_str().unwrap().trim().parse().unwrap();
    assert!((7..=9).contains(&made), "{report}");
    assert_eq!((&report["status"], &report["limits_hit"]), (&"success".into(), &json!(["pids"])));
    assert!(report["usage"]["peak_pids"].as_u64() <= Some(10), "{report}");
}

#[test]
fn bytes_of_files() {
    let Some(world) = World::new() else { return };
    // The working directory and /tmp together.
    let code = "import os
total = 0
for path in ['/work/a', '/tmp/b', '/dev/shm/c']:
    try:
        with open(path, 'wb', 0) as f:
            for _ in range(24): total += f.write(bytes(1 << 15))
    except OSError as e: print(path, e.strerror)
print(total)";
    let report = world.json(&["--disk", "1MiB"], "python", code);
    let text = report["stdout"]["text"].as_str().unwrap();
    let total: u64 = text.lines().last().unwrap().parse().unwrap();
    assert!((900 << 10..=1 << 20).contains(&total), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert_eq!(report["limits_hit"], json!(["disk"]), "{report}");
}

#[test]
fn the_size_of_one_file() {
    let Some(world) = World::new() else { return };
    let ran = world.run(&["run", "--disk", "1MiB", "--", "truncate", "-s", "2M", "sparse"]);
    ran.is(123, "", "hotcell: ended by the limit on disk (1MiB); --disk raises it\n");
}

#[test]
fn number_of_files() {
    let Some(world) = World::new() else { return };
    let code = "import os
n = 0
try:
    while True: open(['/work/', '/tmp/'][n % 2] + str(n), 'w').close(); n += 1
except OSError as e: print(n, e.strerror)";
    let report = world.json(&["--files", "50"], "python", code);
    let text = report["stdout"]["text"].as_str().unwrap();
    let made: u64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!((40..=50).contains(&made) && text.contains("No space left"), "{text}");
    assert_eq!(report["limits_hit"], json!(["files"]), "{report}");
}

#[test]
fn open_files_of_a_process() {
    let Some(world) = World::new() else { return };
    let code = "import os
try:
    while True: last = os.open('/dev/null', 0)
except OSError as e: print(last, e.strerror)";
    world.code(&["--open-files", "20"], "python", code).is(0, "19 Too many open files\n", "");
}

#[test]
fn output_is_cut_with_a_mark_and_the_run_goes_on() {
    let Some(world) = World::new() else { return };
    let code = "seq 1000; seq 500 >&2; exit 5";
    let ran = world.code(&["--max-output", "8"], "shell", code);
    let marks =
        "hotcell: stdout cut at 8; 3.7KiB dropped\nhotcell: stderr cut at 8; 1.8KiB dropped\n";
    ran.is(5, "1\n2\n3\n4\n", &format!("1\n2\n3\n4\n{marks}"));
    let report = world.json(&["--max-output", "8"], "shell", code);
    assert_eq!(
        report["stdout"],
        json!({ "text": "1\n2\n3\n4\n", "total": 3893, "truncated": true })
    );
    assert_eq!(report["limits_hit"], json!(["output"]));
    assert_eq!(report["status"], "failure");
}

#[track_caller]
fn ended_by(report: &Value, status: &str, limit: &str) {
    assert_eq!((&report["status"], &report["limit"]), (&status.into(), &limit.into()), "{report}");
    assert_eq!(report["limits_hit"], json!([limit]), "{report}");
}
