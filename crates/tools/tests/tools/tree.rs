//! Tools that read a tree.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_request::ToolError;
use hotcell_tools::Deadline;
use hotcell_workspace::Root;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{assert_helps, checked, settled, tree_tool};

struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("notes.txt", "hello\nWorld äöü\n");
        file("src/main.rs", "fn main() {\n    hello();\n}\n");
        file("src/lib/deep.rs", "// hello\n");
        file("src/[x]/a.rs", "hello [x]\n");
        file("src/x/a.rs", "hello x\n");
        file(".env", "hello=secret\n");
        fs::write(dir.path().join("binary"), b"\xff\xfe\0hello").unwrap();
        symlink("/etc", dir.path().join("etc")).unwrap();
        symlink("notes.txt", dir.path().join("link")).unwrap();
        Tree(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        let root = Root::open(self.path()).unwrap();
        let within = Deadline::after(Duration::from_secs(60));
        let result = tree_tool(name).call(&root, settled(name, args), within);
        result.map(|result| checked(name, result)).inspect_err(assert_helps)
    }

    fn why(&self, name: &str, args: Value) -> String {
        self.call(name, args).unwrap_err().why
    }

    /// The paths of what was found.
    fn paths(&self, name: &str, args: Value) -> Vec<String> {
        let found = self.call(name, args).unwrap();
        let list = found.get("entries").or(found.get("matches")).unwrap().as_array().unwrap();
        list.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_file_is_read_in_parts_that_fit_together() {
    let tree = Tree::new();
    for name in ["fs.read", "file_read"] {
        let whole = tree.call(name, json!({"path": "/work/notes.txt"})).unwrap();
        let text = "hello\nWorld äöü\n";
        let expected =
            json!({"path": "notes.txt", "text": text, "bytes": text.len(), "truncated": false});
        assert_eq!(whole, expected);
        // Whatever the size of the parts, no character is cut.
        for most in 4..8 {
            let (mut from, mut read) = (0, String::new());
            loop {
                let args = json!({"path": "notes.txt", "from": from, "most": most});
                let part = tree.call(name, args).unwrap();
                read.push_str(part["text"].as_str().unwrap());
                match part["next"].as_u64() {
                    Some(next) => from = next,
                    None => break,
                }
            }
            assert_eq!(read, text);
        }
        let beyond = tree.call(name, json!({"path": "notes.txt", "from": u64::MAX})).unwrap();
        assert_eq!((&beyond["text"], &beyond["truncated"]), (&json!(""), &json!(false)));
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let tree = Tree::new();
    for (name, args, why) in [
        ("fs.read", json!({"path": "no"}), "it is not there"),
        ("fs.read", json!({"path": "."}), "it is the workspace's root"),
        ("fs.read", json!({"path": "src"}), "it is a directory"),
        ("fs.read", json!({"path": "etc/passwd"}), "it is a symbolic link, or behind one"),
        ("fs.read", json!({"path": "link"}), "it is a symbolic link, or behind one"),
        ("fs.read", json!({"path": "binary"}), "this part of it is not text in UTF-8"),
        ("fs.list", json!({"path": "no"}), "it is not there"),
        ("fs.list", json!({"path": "etc"}), "it, or something above it, is not a directory"),
        ("fs.exists", json!({"path": "etc/passwd"}), "it is a symbolic link, or behind one"),
        ("search.grep", json!({"pattern": "x", "path": "no"}), "it is not there"),
        ("search.glob", json!({"patterns": ["*"], "path": "no"}), "it is not there"),
    ] {
        let shown = format!("{name} {args}");
        assert_eq!(tree.why(name, args), why, "{shown}");
    }
    for (name, args) in [
        ("search.grep", json!({"pattern": "("})),
        ("search.grep", json!({"pattern": "a{100}{100}{100}"})),
        ("search.grep", json!({"pattern": "x", "only": ["["]})),
        ("search.glob", json!({"patterns": ["a", "{b"]})),
        ("search.glob", json!({"patterns": [""]})),
    ] {
        assert_eq!(tree.call(name, args).unwrap_err().what, "nothing was searched");
    }
}

#[test]
fn a_directory_is_listed_with_what_was_left_out() {
    let tree = Tree::new();
    let listed = tree.call("fs.list", json!({})).unwrap();
    let file = |path: &str, bytes: u64| json!({"path": path, "kind": "file", "bytes": bytes, "executable": false});
    assert_eq!(
        listed,
        json!({
            "entries": [
                file("binary", 8),
                {"path": "etc", "kind": "link", "target": "/etc"},
                {"path": "link", "kind": "link", "target": "notes.txt"},
                file("notes.txt", 19),
                {"path": "src", "kind": "directory"},
            ],
            "skipped": [],
            "hidden": 1,
            "left_out": 0,
            "truncated": false,
        })
    );
    let few = tree.call("fs.list", json!({"path": "src", "depth": 9, "most": 2})).unwrap();
    assert_eq!((&few["truncated"], &few["left_out"]), (&json!(true), &json!(5)));
    assert_eq!(few["entries"].as_array().unwrap().len(), 2);
    assert!(tree.paths("fs.list", json!({"hidden": true})).contains(&".env".to_owned()));
}

#[test]
fn what_is_there_is_told() {
    let tree = Tree::new();
    for (path, expected) in [
        (".", json!({"kind": "directory"})),
        ("src", json!({"kind": "directory"})),
        ("notes.txt", json!({"kind": "file", "bytes": 19})),
        ("no/where", json!({"kind": "absent"})),
        ("link", json!({"kind": "other", "why": "it is a symbolic link, or behind one"})),
    ] {
        assert_eq!(tree.call("fs.exists", json!({"path": path})).unwrap(), expected, "{path}");
    }
}

#[test]
fn contents_are_searched_where_it_was_asked_for() {
    let tree = Tree::new();
    for (args, expected) in [
        (
            json!({"pattern": "hello"}),
            &["notes.txt", "src/[x]/a.rs", "src/lib/deep.rs", "src/main.rs", "src/x/a.rs"][..],
        ),
        (json!({"pattern": "hello", "hidden": true, "only": [".env"]}), &[".env"]),
        (json!({"pattern": "HELLO"}), &[]),
        (json!({"pattern": "HELLO", "ignore_case": true, "path": "notes.txt"}), &["notes.txt"]),
        (json!({"pattern": "hello()", "kind": "text"}), &["src/main.rs"]),
        (json!({"pattern": "^// h.l+o$"}), &["src/lib/deep.rs"]),
        (
            json!({"pattern": "hello", "path": "src", "only": ["*.rs"], "except": ["lib", "main.rs"]}),
            &["src/[x]/a.rs", "src/x/a.rs"],
        ),
        (json!({"pattern": "hello", "path": "src", "only": ["/lib/**"]}), &["src/lib/deep.rs"]),
        // The path stands for itself, whatever patterns are made of.
        (json!({"pattern": "hello", "path": "src/[x]"}), &["src/[x]/a.rs"]),
        (json!({"pattern": "hello", "path": "src/[x]", "only": ["a.*"]}), &["src/[x]/a.rs"]),
        // And no pattern leads out of it.
        (
            json!({"pattern": "hello", "path": "src/lib", "only": ["../../notes.txt", "/notes.txt", "**", "!x"]}),
            &["src/lib/deep.rs"],
        ),
        (
            json!({"pattern": "hello", "path": "src/lib", "except": ["!/notes.txt", "!*"]}),
            &["src/lib/deep.rs"],
        ),
    ] {
        let shown = args.to_string();
        assert_eq!(tree.paths("search.grep", args), expected, "{shown}");
    }
    let found = tree.call("search.grep", json!({"pattern": "ö", "context": 1})).unwrap();
    assert_eq!(
        found["matches"],
        json!([{"path": "notes.txt", "line": 2, "column": 9, "text": "World äöü", "before": ["hello"]}])
    );
    assert_eq!((&found["binary"], &found["skipped"]), (&json!(1), &json!(2)));
    let cut = tree.call("search.grep", json!({"pattern": "hello", "most": 1})).unwrap();
    assert_eq!(cut["truncated"], true);
}

#[test]
fn files_are_found_where_it_was_asked_for() {
    let tree = Tree::new();
    for (args, expected) in [
        (json!({"patterns": ["*.txt"]}), &["notes.txt"][..]),
        (
            json!({"patterns": ["*.rs", "!main.rs"], "path": "src"}),
            &["src/[x]/a.rs", "src/lib/deep.rs", "src/x/a.rs"],
        ),
        (json!({"patterns": ["/*.rs"], "path": "src"}), &["src/main.rs"]),
        (json!({"patterns": ["*"], "path": "src/[x]"}), &["src/[x]/a.rs"]),
        (json!({"patterns": ["lib/"], "path": "src"}), &["src/lib"]),
        (
            json!({"patterns": ["/../notes.txt", "/notes.txt", "{a,/notes.txt}"], "path": "src/lib"}),
            &[],
        ),
        (json!({"patterns": [".*"]}), &[]),
        (json!({"patterns": [".*"], "hidden": true}), &[".env"]),
    ] {
        let shown = args.to_string();
        assert_eq!(tree.paths("search.glob", args), expected, "{shown}");
    }
    let cut = tree.call("search.glob", json!({"patterns": ["*.rs"], "most": 1})).unwrap();
    assert_eq!((&cut["left_out"], &cut["truncated"]), (&json!(3), &json!(true)));
}

#[test]
fn a_call_whose_time_is_over_reads_nothing() {
    let tree = Tree::new();
    let root = Root::open(tree.path()).unwrap();
    for (name, args) in [
        ("fs.read", json!({"path": "notes.txt"})),
        ("fs.list", json!({})),
        ("fs.exists", json!({"path": "notes.txt"})),
        ("search.grep", json!({"pattern": "x"})),
        ("search.glob", json!({"patterns": ["*"]})),
    ] {
        let over = Deadline::at(Instant::now());
        let error = tree_tool(name).call(&root, settled(name, args), over).unwrap_err();
        assert_eq!(error.what, "nothing was read");
    }
    assert_eq!(Deadline::at(Instant::now()).left(), Duration::ZERO);
    assert!(Deadline::after(Duration::MAX).left() <= Deadline::MOST);
}
