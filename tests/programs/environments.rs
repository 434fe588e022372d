//! Environments, with the real binary and the real pip: packages from the index, and wheels that are made
//! here, of which many mean no good. What pip finds is said by its own configuration, as on any host.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::binary::binary;
use crate::support::{judge, skip};

/// Longest time that something is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A home, and wheels that pip finds in place of an index.
struct World {
    dir: TempDir,
    /// Whether pip knows nothing else.
    is_alone: bool,
}

impl World {
    fn new() -> World {
        let world = World { dir: tempfile::tempdir().unwrap(), is_alone: true };
        fs::create_dir(world.dir.path().join("wheels")).unwrap();
        fs::DirBuilder::new().mode(0o700).create(world.home()).unwrap();
        world.configure("");
        world
    }

    fn with_the_index() -> World {
        World { is_alone: false, ..World::new() }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The user's configuration. Whatever level this host gives is good enough here.
    fn configure(&self, more: &str) {
        let text = format!("min_level = \"no-proc\"\n{more}");
        fs::write(self.home().join("config.toml"), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(words).env("HOTCELL_HOME", self.home()).stdin(Stdio::null());
        if self.is_alone {
            command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.dir.path().join("wheels"));
        }
        command
    }

    fn hotcell(&self, words: &[&str]) -> (i32, String, String) {
        said(self.command(words).output().unwrap())
    }

    fn good(&self, words: &[&str]) -> String {
        let (code, stdout, stderr) = self.hotcell(words);
        assert_eq!(code, 0, "{words:?}: {stdout}{stderr}");
        stdout
    }

    /// A file that asks for this.
    fn asking(&self, lines: &str) -> String {
        let path = self.dir.path().join("requirements.txt");
        fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn create(&self, name: &str, lines: &str) -> (i32, String, String) {
        self.hotcell(&["env", "create", name, "--python", &self.asking(lines)])
    }

    /// Makes a wheel: a Python program adds what it wants with `add(name, content, mode)`.
    fn wheel(&self, name: &str, more: &str) {
        let wheels = self.dir.path().join("wheels");
        let made = Command::new("python3")
            .args(["-I", "-c", &format!("{WHEEL}\n{more}\nfinish()"), name])
            .current_dir(wheels)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// What is in `envs`: trees by digest, and what should not be left there.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home().join("envs")).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What is at work below the home on the host.
    fn busy(&self) -> Vec<String> {
        let own = |path: &Path| fs::read_link(path).is_ok_and(|path| path.starts_with(self.home()));
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .map(|process| process.path())
            .filter(|process| own(&process.join("cwd")))
            .map(|process| process.display().to_string())
            .collect()
    }
}

const WHEEL: &str = r#"
import sys, zipfile
name = sys.argv[1]
info = f"{name}-1.0.dist-info"
wheel = zipfile.ZipFile(f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED)
names = []
def add(path, content="", mode=0o100644):
    entry = zipfile.ZipInfo(path)
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)
    names.append(path)
def finish():
    add(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    add(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    add(f"{info}/RECORD", "".join(f"{path},,\n" for path in names + [f"{info}/RECORD"]))
    wheel.close()
"#;

const PLAIN: &str = r#"add("plain.py", "VALUE = 42\ndef main():\n    print('from a script')\n")
add(f"{info}/entry_points.txt", "[console_scripts]\nplain-tool = plain:main\n")"#;

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn numpy_pandas_and_a_plot_from_the_preset() {
    let world = World::with_the_index();
    let (code, stdout, stderr) = world.hotcell(&["env", "create", "data", "--preset", "data"]);
    if code != 0 && stderr.contains("cannot be downloaded") {
        return skip("the preset data", &stderr);
    }
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("data: Python 3."), "{stdout}");
    let code = "import numpy as np, pandas as pd, matplotlib, matplotlib.pyplot as plt
a = np.random.default_rng(0).normal(size=(50, 50)); print(np.allclose(a @ np.linalg.inv(a), np.eye(50)))
print(pd.DataFrame({'a': [1, 2], 'b': [3, 4]}).groupby('a').b.sum().to_dict())
plt.plot([1, 4, 9]); plt.savefig('plot.png', dpi=50)
print(all(module.__file__.startswith('/env/') for module in (np, pd, matplotlib)))
try: open('/env/x', 'w')
except OSError: print('refused')
";
    let out = world.dir.path().join("out");
    let words = ["run", "--json", "--env", "data", "--output-dir", out.to_str().unwrap()];
    let words = [&words[..], &["--lang", "python", "-c", code]].concat();
    let report: Value = serde_json::from_str(&world.hotcell(&words).1).unwrap();
    judge("data", &report, "True\n{1: 3, 2: 4}\nTrue\nrefused\n").unwrap();
    assert!(fs::read(out.join("plot.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(report["interpreter"].as_str().unwrap().contains("environment data ("), "{report}");
    let script = world.good(&["run", "--env", "data", "--", "f2py", "-v"]);
    assert!(script.starts_with(|c: char| c.is_ascii_digit()), "{script}");
    let listed: Value = serde_json::from_str(&world.good(&["env", "ls", "--json"])).unwrap();
    let data = &listed["environments"][0];
    let packages = data["packages"].as_array().unwrap();
    for name in ["numpy", "pandas", "matplotlib"] {
        assert!(packages.iter().any(|package| package["name"] == name), "{data}");
    }
    assert!(data["bytes"].as_u64().unwrap() > 50_000_000, "{data}");
    world.good(&["env", "rm", "data"]);
    assert!(world.kept().is_empty());
}

#[test]
fn an_environment_is_made_used_shown_shared_replaced_and_removed() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    world.wheel("other", "add('other.py', 'VALUE = 1')");
    assert_eq!(world.create("a", "plain  # with a remark\n").0, 0);
    for words in [
        &["run", "--env", "a", "--lang", "python", "-c", "import plain; print(plain.VALUE)"][..],
        &["run", "--env", "a", "--", "python3", "-c", "import plain; print(plain.VALUE)"],
        &["run", "--env", "a", "--", "sh", "-c", "python3 -c 'import plain; print(plain.VALUE)'"],
        &[
            "run",
            "--env",
            "X=42",
            "--env",
            "a",
            "--lang",
            "python",
            "-c",
            "import os; print(os.environ['X'])",
        ],
    ] {
        assert_eq!(world.good(words), "42\n", "{words:?}");
    }
    assert_eq!(world.good(&["run", "--env", "a", "--", "plain-tool"]), "from a script\n");
    assert_eq!(
        world.good(&["run", "--env", "a", "--", "sh", "-c", "plain-tool"]),
        "from a script\n"
    );
    let arguments =
        r#"{"language": "python", "code": "import plain; print(plain.VALUE)", "environment": "a"}"#;
    let answer: Value =
        serde_json::from_str(&world.good(&["tool", "call", "code_execute", arguments])).unwrap();
    assert_eq!(answer["stdout"], "42\n");
    // The same content under another name is the same tree, whatever the umask is.
    let words = format!(
        "umask 077; exec '{}' env create b --python '{}'",
        binary().display(),
        world.asking("plain")
    );
    let mut careful = Command::new("sh");
    let same = world.command(&[]);
    careful
        .args(["-c", &words])
        .envs(same.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, _, stderr) = said(careful.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let sha = |name: &str| {
        let shown: Value =
            serde_json::from_str(&world.good(&["env", "show", name, "--json"])).unwrap();
        shown["sha256"].as_str().unwrap().to_owned()
    };
    assert_eq!(sha("a"), sha("b"));
    assert_eq!(world.kept(), [sha("a")]);
    // Nobody can write to it, and nothing in it runs as somebody else.
    for path in files_below(&world.home().join("envs").join(sha("a"))) {
        let mode = fs::symlink_metadata(&path).unwrap().mode() & 0o7777;
        assert!([0o444, 0o555].contains(&mode), "{}: {mode:o}", path.display());
    }
    // A name that is there stands for the same content, or it is replaced.
    assert_eq!(world.create("a", "plain").0, 0);
    let (code, _, stderr) = world.create("a", "other");
    assert_eq!(code, 121);
    assert!(stderr.contains("is there already") && stderr.contains("--replace"), "{stderr}");
    assert_eq!(world.kept(), [sha("a")]);
    let words = ["env", "create", "a", "--replace", "--python", &world.asking("other")];
    world.good(&words);
    assert_ne!(sha("a"), sha("b"));
    assert_eq!(world.kept().len(), 2);
    assert_eq!(world.good(&["env", "rm", "b"]), "b: removed\n");
    assert_eq!(world.kept(), [sha("a")]);
    world.good(&["env", "rm", "a"]);
    assert!(world.kept().is_empty());
    let log = world.good(&["audit", "log", "--limit", "1000"]);
    for words in ["intent    allow    env.create", "outcome   -        env.create", "env.remove"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(world.good(&["audit", "verify"]).starts_with("sound"));
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_the_reason_and_leaves_nothing() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    for (lines, code, why) in [
        ("-e .", 121, "option"),
        ("--index-url https://packages.example/simple", 121, "option"),
        ("plain\n--extra-index-url https://packages.example/", 121, "option"),
        ("-r /etc/passwd", 121, "option"),
        ("plain @ file:///etc/passwd", 121, "address"),
        ("https://packages.example/plain-1.0-py3-none-any.whl", 121, "address"),
        ("./plain", 121, "path"),
        ("/etc/passwd", 121, "path"),
        ("plain-1.0-py3-none-any.whl", 121, "file"),
        ("# nothing\n", 121, "no package"),
        ("plain==2", 1, "No matching distribution"),
        ("nothing-of-that-name", 1, "No matching distribution"),
    ] {
        let (found, stdout, stderr) = world.create("x", lines);
        assert_eq!((found, stdout.as_str()), (code, ""), "{lines}: {stderr}");
        assert!(stderr.contains(why), "{lines}: {stderr}");
    }
    for name in ["../x", "X", "a/b", ".x", "a=b", ""] {
        let (code, _, stderr) = world.create(name, "plain");
        assert_eq!(code, 121, "{name}: {stderr}");
    }
    let (code, _, stderr) = world.hotcell(&["env", "create", "x", "--python", "/nonexistent"]);
    assert!(code == 121 && stderr.contains("no such file"), "{stderr}");
    for words in
        [&["env", "show", "x"][..], &["env", "rm", "x"], &["run", "--env", "x", "--", "true"]]
    {
        let (code, _, stderr) = world.hotcell(words);
        assert!(code == 127 && stderr.contains("no environment `x`"), "{words:?}: {code} {stderr}");
    }
    let (code, _, stderr) = world.hotcell(&["run", "--env", "a", "--env", "b", "--", "true"]);
    assert!(code == 121 && stderr.contains("one environment"), "{stderr}");
    assert!(world.kept().is_empty());
}

#[test]
fn a_package_without_a_wheel_is_refused_and_its_setup_is_not_executed() {
    let world = World::new();
    let mark = world.dir.path().join("executed");
    let source = world.dir.path().join("source-1.0");
    fs::create_dir(&source).unwrap();
    let setup = format!(
        "open({:?}, 'w')\nfrom setuptools import setup\nsetup(name='source', version='1.0')\n",
        mark.to_str().unwrap()
    );
    fs::write(source.join("setup.py"), setup).unwrap();
    fs::write(source.join("PKG-INFO"), "Metadata-Version: 1.0\nName: source\nVersion: 1.0\n")
        .unwrap();
    let packed = Command::new("tar")
        .args(["-czf", "wheels/source-1.0.tar.gz", "source-1.0"])
        .current_dir(world.dir.path())
        .status();
    assert!(packed.unwrap().success());
    let (code, _, stderr) = world.create("x", "source");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("No matching distribution") && stderr.contains("wheel"), "{stderr}");
    assert!(!mark.exists() && world.kept().is_empty());
    // The same pip does execute it when nobody keeps it from that.
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "source"])
        .env("PIP_NO_INDEX", "1")
        .env("PIP_FIND_LINKS", world.dir.path().join("wheels"))
        .current_dir(&source)
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok() && mark.exists(), "the control shows nothing");
}

/// What unpacks to more than there is room for ends inside, by a limit. Nothing else is decompressed on the host.
#[test]
fn res_16_a_wheel_that_is_a_bomb_ends_by_a_limit() {
    let world = World::new();
    world.wheel("bomb", "add('bomb', bytes(200 << 20))");
    let wheel = world.dir.path().join("wheels/bomb-1.0-py3-none-any.whl");
    assert!(fs::metadata(wheel).unwrap().len() < 1 << 20);
    let words = ["env", "create", "x", "--disk", "64MiB", "--python", &world.asking("bomb")];
    let (code, _, stderr) = world.hotcell(&words);
    assert_ne!(code, 0);
    assert!(stderr.contains("64MiB of disk"), "{stderr}");
    world.wheel("many", "for n in range(3000): add(f'many/{n}', '')");
    let words = ["env", "create", "x", "--files", "1000", "--python", &world.asking("many")];
    let (code, _, stderr) = world.hotcell(&words);
    assert!(code != 0 && stderr.contains("1000 files"), "{stderr}");
    assert!(world.kept().is_empty());
}

#[test]
fn a_hostile_wheel_is_refused_or_harmless() {
    let world = World::new();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "as it was").unwrap();
    let victim = outside.join("victim");
    // Refused: what leads out, what is too deep, and names that steer a terminal.
    world.wheel("traversal", "add('../../../../../../../../../../tmp/hotcell-evil', 'x')");
    world.wheel("absolute", &format!("add({:?}, 'evil')", victim.to_str().unwrap()));
    world.wheel("deep", "add('d/' * 20000 + 'x', 'x')");
    world.wheel("control", "add('a\\x1b[31mred.py', 'x')");
    for name in ["traversal", "absolute", "deep", "control"] {
        let (code, stdout, stderr) = world.create("x", name);
        assert_ne!(code, 0, "{name}: {stdout}");
        assert!(stderr.starts_with("error: ") && !stderr.contains('\u{1b}'), "{name}: {stderr}");
        assert!(world.kept().is_empty(), "{name}");
    }
    // Harmless: links come out as files, set-id bits and `.pth` lines count for nothing.
    world.wheel(
        "sly",
        &format!(
            "add('sly.py', 'VALUE = 42')
add('link.py', {:?}, 0o120777)
add('suid', '#!/bin/sh', 0o106755)
add('sly.pth', 'import os; open({:?}, \"w\").write(\"evil\"); os.environ[\"PTH\"] = \"1\"\\n')
add('sitecustomize.py', 'open({:?}, \"a\").write(\"evil\")')
add(f'sly-1.0.data/scripts/tool', '#!python\\nprint(42)', 0o104755)",
            victim.to_str().unwrap(),
            victim.to_str().unwrap(),
            victim.to_str().unwrap()
        ),
    );
    assert_eq!(world.create("sly", "sly").0, 0);
    let tree = world.home().join("envs").join(&world.kept()[0]);
    for path in files_below(&tree) {
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(
            !found.is_symlink() && [0o444, 0o555].contains(&(found.mode() & 0o7777)),
            "{path:?}"
        );
    }
    let code = "import os, sly; print(sly.VALUE, os.environ.get('PTH'))";
    assert_eq!(world.good(&["run", "--env", "sly", "--lang", "python", "-c", code]), "42 None\n");
    assert_eq!(world.good(&["run", "--env", "sly", "--", "tool"]), "42\n");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    assert!(!Path::new("/tmp/hotcell-evil").exists());
}

/// Whatever a package does when it is imported, it does in a run, which ends with a clear result; the next run of
/// the same environment has none of it.
#[test]
fn a_package_that_misbehaves_when_it_is_imported_costs_its_own_run_only() {
    let world = World::new();
    let modules = [
        ("hangs", "import time; time.sleep(600)", Some(124), ""),
        ("crashes", "import os; os.abort()", Some(134), ""),
        ("leaves", "import os; os._exit(7)", Some(7), ""),
        ("raises", "raise SystemExit(9)", Some(9), ""),
        ("closes", "import os; os.closerange(0, 64)", None, ""),
        ("replaces", "import builtins; builtins.print = builtins.len = None", Some(1), ""),
        (
            "threads",
            "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
            Some(124),
            "imported\n",
        ),
        ("forks", "import os, time\nif os.fork() == 0: time.sleep(600)", Some(0), "imported\n"),
        ("greedy", "import os\nwhile True: os.fork()", None, ""),
    ];
    let all: Vec<String> =
        modules.iter().map(|(name, code, ..)| format!("add('{name}.py', {code:?})")).collect();
    world.wheel("bad", &format!("{}\nadd('good.py', 'VALUE = 42')", all.join("\n")));
    assert_eq!(world.create("bad", "bad").0, 0);
    let run = |code: &str| {
        let words = ["run", "--env", "bad", "--timeout", "2s", "--pids", "20"];
        world.hotcell(&[&words[..], &["--lang", "python", "-c", code]].concat())
    };
    for (name, _, expected, printed) in modules {
        let code = format!("import {name}\nprint('imported', flush=True)");
        let (code, stdout, stderr) = run(&code);
        match expected {
            Some(expected) => assert_eq!(code, expected, "{name}: {stdout}{stderr}"),
            None => assert_ne!(code, 0, "{name}: {stdout}{stderr}"),
        }
        assert!(!stderr.starts_with("error: "), "{name} is no error of hotcell's: {stderr}");
        assert_eq!(stdout, printed, "{name}: {stderr}");
        assert_eq!(run("import good; print(good.VALUE)").1, "42\n", "after {name}");
        assert!(world.busy().is_empty(), "{name} left a process");
    }
}

#[test]
fn two_creations_at_once_make_one_tree() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    let asking = world.asking("plain");
    let start = |name: &str| {
        world
            .command(&["env", "create", name, "--python", &asking])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let all: Vec<Child> = ["a", "a", "b", "a"].into_iter().map(start).collect();
    for child in all {
        let (code, _, stderr) = said(child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{stderr}");
    }
    assert_eq!(world.kept().len(), 1, "{:?}", world.kept());
    let words = ["run", "--env", "b", "--lang", "python", "-c", "import plain; print(plain.VALUE)"];
    assert_eq!(world.good(&words), "42\n");
}

/// Starts a creation that takes long enough to be met at every stage.
fn under_way(world: &World) -> Child {
    let asking = world.asking("large");
    let mut command = world.command(&["env", "create", "x", "--python", &asking]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// How far a creation is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Begun,
    Downloaded,
    Taking,
    Settled,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Begun, Stage::Downloaded, Stage::Taking, Stage::Settled];

    fn is_reached(self, world: &World) -> bool {
        let in_staging = |path: &str| {
            let kept = world.kept();
            let mut staging = kept.iter().filter(|name| name.starts_with(".new-"));
            staging.any(|name| world.home().join("envs").join(name).join(path).exists())
        };
        match self {
            Stage::Begun => in_staging("."),
            Stage::Downloaded => in_staging("wheels/large-1.0-py3-none-any.whl"),
            Stage::Taking => in_staging("env"),
            Stage::Settled => world.kept().iter().any(|name| !name.starts_with('.')),
        }
    }
}

const LARGE: &str = "for n in range(4000): add(f'large/{n}.txt', str(n) * 200)";

#[test]
fn a_creation_that_is_killed_leaves_nothing_that_the_next_start_does_not_sweep() {
    let world = World::new();
    world.wheel("large", LARGE);
    for stage in Stage::ALL {
        let mut child = under_way(&world);
        wait_for(&format!("{stage:?}"), || stage.is_reached(&world));
        child.kill().unwrap();
        child.wait().unwrap();
        // Nothing of it goes on without it.
        wait_for("the end of pip", || world.busy().is_empty());
        let listed: Value = serde_json::from_str(&world.good(&["env", "ls", "--json"])).unwrap();
        let named = listed["environments"].as_array().unwrap().len();
        // Once it is in its place, it may have got its name before it was killed.
        let most = usize::from(matches!(stage, Stage::Settled));
        assert!(named <= most, "{stage:?}: {listed}");
        assert_eq!(world.kept().len(), named, "{stage:?}: {:?}", world.kept());
        if named == 1 {
            world.good(&["env", "rm", "x"]);
        }
    }
    world.good(&["audit", "verify"]);
    assert_eq!(world.create("x", "large").0, 0, "and it can be made");
}

#[test]
fn a_creation_that_is_interrupted_is_cancelled_and_leaves_nothing() {
    let world = World::new();
    world.wheel("large", LARGE);
    for stage in [Stage::Begun, Stage::Downloaded, Stage::Taking] {
        let child = under_way(&world);
        wait_for(&format!("{stage:?}"), || stage.is_reached(&world));
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let (code, _, stderr) = said(child.wait_with_output().unwrap());
        // Whoever is nearly done comes to the end.
        if code == 0 {
            world.good(&["env", "rm", "x"]);
            continue;
        }
        assert_eq!(code, 130, "{stage:?}: {stderr}");
        assert!(
            world.kept().is_empty() && world.busy().is_empty(),
            "{stage:?}: {:?}",
            world.kept()
        );
        let log = world.good(&["audit", "log", "--limit", "1"]);
        assert!(log.contains("outcome") && log.contains("cancelled"), "{stage:?}: {log}");
    }
}

#[test]
fn an_environment_that_a_run_uses_is_removed_when_that_is_over() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    assert_eq!(world.create("a", "plain").0, 0);
    let code = "import sys; print('up', flush=True); sys.stdin.readline(); import plain; print(plain.VALUE)";
    let words = ["run", "--env", "a", "--stdin", "-", "--lang", "python", "-c", code];
    let mut child =
        world.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    assert!(world.good(&["env", "rm", "a"]).contains("still used"));
    assert_eq!(world.hotcell(&["run", "--env", "a", "--", "true"]).0, 127);
    assert!(world.good(&["gc", "--json"]).contains(r#""environments":{"bytes":0,"count":0}"#));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    line.clear();
    lines.read_to_string(&mut line).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(line, "42\n", "it had everything until the end");
    let told = world.good(&["gc", "--json"]);
    assert!(told.contains(r#""environments":{"#) && world.kept().is_empty(), "{told}");
}

/// Ends the resident hotcell of a home, whatever becomes of the test.
struct Resident<'a>(&'a World);

impl Drop for Resident<'_> {
    fn drop(&mut self) {
        self.0.hotcell(&["resident", "stop"]);
    }
}

#[test]
fn a_hotcell_that_stays_makes_and_shows_the_same() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    world.good(&["resident", "start"]);
    let resident = Resident(&world);
    let words = ["run", "--env", "a", "--lang", "python", "-c", "import plain; print(plain.VALUE)"];
    // The second tree is another one at the same path: what was kept for the first is of no use.
    for _ in 0..2 {
        assert_eq!(world.create("a", "plain").0, 0);
        assert_eq!(world.good(&words), "42\n");
        assert_eq!(world.good(&words), "42\n");
        assert_eq!(world.good(&["env", "rm", "a"]), "a: removed\n");
        assert!(world.kept().is_empty());
        assert_eq!(world.hotcell(&words).0, 127);
    }
    world.wheel("large", LARGE);
    let child = under_way(&world);
    wait_for("the download", || Stage::Downloaded.is_reached(&world));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let (code, _, stderr) = said(child.wait_with_output().unwrap());
    assert_eq!(code, 130, "{stderr}");
    assert!(world.kept().is_empty() && world.busy().is_empty(), "{:?}", world.kept());
    drop(resident);
}

#[test]
fn an_interpreter_that_is_gone_or_another_is_told() {
    let world = World::new();
    world.wheel("plain", PLAIN);
    // Runs have a /tmp and a /var/tmp of their own.
    let Ok(dir) = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) else {
        return skip("an interpreter that is gone", "no place of this user's that runs see");
    };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let venv = dir.path().join("venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip", "--system-site-packages"])
        .arg(&venv)
        .status();
    assert!(made.unwrap().success());
    let path = std::env::var_os("PATH").unwrap();
    let dirs = [venv.join("bin")].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(dirs).unwrap();
    let words = ["env", "create", "a", "--python", &world.asking("plain")];
    let (code, _, stderr) = said(world.command(&words).env("PATH", path).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let words =
        ["run", "--env", "a", "--lang", "python", "-c", "import plain, sys; print(sys.prefix)"];
    assert_eq!(world.good(&words), format!("{}\n", venv.display()), "wherever PATH leads by now");
    fs::remove_dir_all(&venv).unwrap();
    let (code, _, stderr) = world.hotcell(&words);
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains("its interpreter is gone") && stderr.contains("--replace"), "{stderr}");
}

#[test]
fn a_full_disk_or_quota_is_told_and_leaves_nothing() {
    let world = World::new();
    world.wheel("large", "import random; add('large', random.Random(0).randbytes(24 << 20))");
    world.configure("quota = \"8MiB\"\n");
    let (code, _, stderr) = world.create("x", "large");
    assert!(code != 0 && stderr.contains("no room for the environment"), "{code} {stderr}");
    assert!(world.kept().is_empty());
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=40m,mode=700", "none"])
        .arg(world.home())
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a full disk", "only root can mount one");
    }
    let (code, _, stderr) = world.create("x", "large");
    let kept = world.kept();
    let unmounted = Command::new("umount").arg(world.home()).status();
    assert!(code != 0 && stderr.to_lowercase().contains("no space left"), "{code} {stderr}");
    assert!(kept.is_empty(), "{kept:?}");
    assert!(unmounted.unwrap().success());
}
