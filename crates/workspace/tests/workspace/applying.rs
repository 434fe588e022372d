//! Changes in the tree of the host.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::io::{self, Cursor};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hotcell_workspace::{
    Applied, ApplyError, Cause, Change, ChangeKind, Changeset, Digest, Refused, Root,
    SnapshotBounds, apply,
};
use tempfile::TempDir;

use crate::support::*;

fn everything(_: &Change) -> Result<(), Refused> {
    Ok(())
}

/// A tree, what a run made of it, and the contents of that.
fn prepared(files: &[(&str, &str)], run: impl FnOnce(&Path)) -> (TempDir, Root, Changeset, Store) {
    let dir = tree(files);
    let root = root(&dir);
    let (snapshot, copy) = hand_over(&root, SnapshotBounds::default());
    run(copy.path());
    let (changeset, store) = diff(&snapshot, &copy);
    (dir, root, changeset, store)
}

fn names(paths: &[hotcell_workspace::Relative]) -> Vec<&str> {
    paths.iter().map(|path| path.as_str()).collect()
}

/// The paths of a conflict; nothing was applied.
fn conflicts(result: Result<Applied, ApplyError>) -> Vec<String> {
    match result {
        Err(ApplyError::Untouched(Cause::Conflicts(conflicts))) => {
            conflicts.into_iter().map(|conflict| conflict.path.into()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_added_modified_and_deleted_and_directories_follow() {
    let (dir, root, changeset, store) = prepared(
        &[("a", "1"), ("b", "1"), ("old/deep/x", "1"), ("old/y", "1"), ("keep/z", "1")],
        |copy| {
            put(copy, "a", "2");
            put(copy, "new/deep/x", "3");
            fs::remove_file(copy.join("b")).unwrap();
            fs::remove_dir_all(copy.join("old/deep")).unwrap();
        },
    );
    let applied = apply(&root, &changeset, from(&store), everything).unwrap();
    assert_eq!(names(&applied.changed), ["a", "new/deep/x", "b", "old/deep/x"]);
    assert_eq!((applied.already, applied.left_behind), (vec![], None));
    let expected = [
        ("a", "2"),
        ("keep/", ""),
        ("keep/z", "1"),
        ("new/", ""),
        ("new/deep/", ""),
        ("new/deep/x", "3"),
        ("old/", ""),
        ("old/y", "1"),
    ];
    let expected = expected.map(|(name, content)| (name.to_owned(), content.into()));
    assert_eq!(contents(dir.path()), expected.into());
}

#[test]
fn applying_twice_changes_nothing() {
    let (dir, root, changeset, store) = prepared(&[("a", "1"), ("b", "1"), ("c", "1")], |copy| {
        put(copy, "a", "2");
        put(copy, "n", "2");
        fs::remove_file(copy.join("b")).unwrap();
        fs::set_permissions(copy.join("c"), Permissions::from_mode(0o755)).unwrap();
    });
    apply(&root, &changeset, from(&store), everything).unwrap();
    let inode = || fs::metadata(dir.path().join("a")).unwrap().ino();
    let (was, first) = (contents(dir.path()), inode());
    let again = apply(&root, &changeset, from(&store), everything).unwrap();
    assert_eq!((names(&again.already), again.changed.len()), (vec!["a", "b", "c", "n"], 0));
    assert_eq!((contents(dir.path()), inode()), (was, first));
}

#[test]
fn one_conflict_keeps_everything_as_it_is_and_all_are_named() {
    let (dir, root, changeset, store) =
        prepared(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e/x", "1")], |copy| {
            for name in ["a", "b", "c", "e/x"] {
                put(copy, name, "of the run");
            }
            put(copy, "n", "of the run");
            put(copy, "m/x", "of the run");
            fs::remove_file(copy.join("d")).unwrap();
        });
    put(dir.path(), "b", "theirs");
    fs::remove_file(dir.path().join("c")).unwrap();
    put(dir.path(), "d", "theirs");
    put(dir.path(), "n", "theirs");
    put(dir.path(), "m", "a file where a directory is to be");
    fs::rename(dir.path().join("e"), dir.path().join("f")).unwrap();
    symlink("f", dir.path().join("e")).unwrap();
    let was = contents(dir.path());
    let result = apply(&root, &changeset, from(&store), everything);
    assert_eq!(conflicts(result), ["b", "c", "d", "e/x", "m/x", "n"]);
    assert_eq!(contents(dir.path()), was);
    let error = apply(&root, &changeset, from(&store), everything).unwrap_err().to_string();
    assert!(error.contains("`b`: it was changed since the run began"), "{error}");
    assert!(error.ends_with("nothing was applied"), "{error}");
}

#[test]
fn what_has_no_before_is_a_conflict() {
    let dir = tree(&[("a", "1")]);
    let root = root(&dir);
    let (snapshot, copy) = hand_over(&root, SnapshotBounds::default());
    put(dir.path(), "a", "theirs");
    put(copy.path(), "a", "of the run");
    let (changeset, store) = diff(&snapshot, &copy);
    assert_eq!(conflicts(apply(&root, &changeset, from(&store), everything)), ["a"]);
    assert_eq!(contents(dir.path())["a"], b"theirs");
}

#[test]
fn the_judge_is_asked_for_every_path_before_anything_happens() {
    let (dir, root, changeset, store) = prepared(&[("a", "1")], |copy| {
        put(copy, "a", "2");
        put(copy, ".git/hooks/pre-commit", "evil");
        put(copy, "z", "2");
    });
    let was = contents(dir.path());
    let mut asked = Vec::new();
    let result = apply(&root, &changeset, from(&store), |change| {
        asked.push(change.to_string());
        match change.path.as_str() {
            "z" => Err(Refused("rule `no-z`".into())),
            _ => Ok(()),
        }
    });
    assert_eq!(asked, ["A .git/hooks/pre-commit", "M a", "A z"]);
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "`z` may not be changed: rule `no-z`; nothing was applied");
    assert_eq!(contents(dir.path()), was);
}

#[test]
fn a_content_that_is_not_what_the_changeset_says_is_never_seen() {
    let (dir, root, changeset, store) = prepared(&[("a", "1"), ("b", "1")], |copy| {
        put(copy, "a", "22");
        put(copy, "b", "33");
    });
    let was = contents(dir.path());
    for wrong in [&b"2"[..], b"222", b"2x", b""] {
        let result = apply(&root, &changeset, |_| Ok(Cursor::new(wrong.to_vec())), everything);
        assert!(matches!(result, Err(ApplyError::Untouched(Cause::Io { .. }))), "{result:?}");
        assert_eq!(contents(dir.path()), was);
    }
    // It may never end.
    let result = apply(&root, &changeset, |_| Ok(io::repeat(b'2')), everything);
    assert!(result.unwrap_err().to_string().contains("not what the changeset says"));
    let result = apply(
        &root,
        &changeset,
        |_| Err::<io::Empty, _>(io::ErrorKind::NotFound.into()),
        everything,
    );
    assert!(result.is_err());
    assert_eq!(contents(dir.path()), was);
    apply(&root, &changeset, from(&store), everything).unwrap();
}

#[test]
fn what_somebody_writes_while_changes_are_applied_is_not_lost() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 6] = [
        ("written", |dir| put(dir, "m", "theirs")),
        ("replaced", |dir| {
            put(dir, "other", "theirs");
            fs::rename(dir.join("other"), dir.join("m")).unwrap();
        }),
        ("made a link", |dir| {
            fs::remove_file(dir.join("m")).unwrap();
            symlink("/etc/passwd", dir.join("m")).unwrap();
        }),
        ("added", |dir| put(dir, "sub/n", "theirs")),
        ("written before it is deleted", |dir| put(dir, "x/d", "theirs")),
        ("removed", |dir| fs::remove_file(dir.join("m")).unwrap()),
    ];
    for (what, edit) in edits {
        let (dir, root, changeset, store) =
            prepared(&[("a", "1"), ("m", "1"), ("x/d", "1"), ("w", "1")], |copy| {
                for name in ["a", "m", "w"] {
                    put(copy, name, "of the run");
                }
                put(copy, "sub/n", "of the run");
                put(copy, "aa/n", "of the run");
                fs::remove_file(copy.join("x/d")).unwrap();
            });
        // Contents are asked for after everything was compared, and before anything is put in place.
        let asked = Cell::new(0);
        let mut was = None;
        let result = apply(
            &root,
            &changeset,
            |digest: &Digest| {
                asked.set(asked.get() + 1);
                if asked.get() == 3 {
                    edit(dir.path());
                    let mut now = contents(dir.path());
                    now.retain(|name, _| !name.starts_with(".hotcell"));
                    was = Some(now);
                }
                from(&store)(digest)
            },
            everything,
        );
        assert_eq!(conflicts(result).len(), 1, "{what}");
        assert_eq!(Some(contents(dir.path())), was, "{what}");
    }
}

#[test]
fn a_file_becomes_a_directory_and_a_directory_a_file() {
    let (dir, root, changeset, store) =
        prepared(&[("f", "1"), ("d/x/y", "1"), ("d/z", "1")], |copy| {
            fs::remove_file(copy.join("f")).unwrap();
            put(copy, "f/inside", "2");
            fs::remove_dir_all(copy.join("d")).unwrap();
            put(copy, "d", "2");
        });
    let was = contents(dir.path());
    // First with a content that fails, so that everything is taken back.
    let last = Digest::of(b"2");
    put(dir.path(), "unrelated", "");
    let failing = |digest: &Digest| {
        if *digest == last {
            put(dir.path(), "d/theirs", "stands in the way");
        }
        from(&store)(digest)
    };
    assert_eq!(conflicts(apply(&root, &changeset, failing, everything)), ["d"]);
    fs::remove_file(dir.path().join("d/theirs")).unwrap();
    fs::remove_file(dir.path().join("unrelated")).unwrap();
    assert_eq!(contents(dir.path()), was);
    apply(&root, &changeset, from(&store), everything).unwrap();
    let expected = [("d", "2"), ("f/", ""), ("f/inside", "2")];
    let expected = expected.map(|(name, content)| (name.to_owned(), content.into()));
    assert_eq!(contents(dir.path()), expected.into());
}

#[test]
fn fs_18_rights_stay_as_they_were_but_for_execution() {
    let (dir, root, changeset, store) =
        prepared(&[("private", "1"), ("set", "1"), ("plain", "1"), ("script", "1")], |copy| {
            for name in ["private", "set", "plain", "new", "tool"] {
                put(copy, name, "2");
            }
            for (name, mode) in [("script", 0o777), ("tool", 0o6777), ("new", 0o666)] {
                fs::set_permissions(copy.join(name), Permissions::from_mode(mode)).unwrap();
            }
        });
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode() & 0o7777;
    for (name, mode) in [("private", 0o600), ("set", 0o6644), ("script", 0o640)] {
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    }
    apply(&root, &changeset, from(&store), everything).unwrap();
    assert_eq!((mode("private"), mode("set"), mode("script")), (0o600, 0o644, 0o750));
    for name in ["new", "tool"] {
        assert_eq!(mode(name) & 0o7022, 0, "{name}");
        assert_eq!(mode(name) & 0o100 != 0, name == "tool");
    }
}

#[test]
fn files_of_somebody_else_stay_theirs() {
    let (dir, root, changeset, store) = prepared(&[("d/a", "1")], |copy| {
        put(copy, "d/a", "2");
        put(copy, "d/n", "2");
        put(copy, "d/sub/n", "2");
    });
    for name in ["d", "d/a"] {
        if std::os::unix::fs::chown(dir.path().join(name), Some(12345), Some(12346)).is_err() {
            return skip("files of somebody else", "only root gives files away");
        }
    }
    apply(&root, &changeset, from(&store), everything).unwrap();
    for name in ["d/a", "d/n", "d/sub", "d/sub/n"] {
        let is = fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!((is.uid(), is.gid()), (12345, 12346), "{name}");
    }
}

#[test]
fn fs_04_a_link_where_something_is_to_be_written_is_a_conflict() {
    let outside = tree(&[("victim", "1")]);
    let (dir, root, changeset, store) = prepared(&[("a", "1"), ("d/x", "1")], |copy| {
        put(copy, "a", "evil");
        put(copy, "d/x", "evil");
        put(copy, "n", "evil");
        put(copy, "d/sub/n", "evil");
    });
    let link = |target: &Path, name: &str| {
        let place = dir.path().join(name);
        fs::remove_file(&place).or_else(|_| fs::remove_dir_all(&place)).ok();
        symlink(target, place).unwrap();
    };
    let victim = outside.path().join("victim");
    link(&victim, "a");
    link(&victim, "n");
    link(outside.path(), "d");
    let was = (contents(outside.path()), contents(dir.path()));
    let result = apply(&root, &changeset, from(&store), everything);
    assert_eq!(conflicts(result), ["a", "d/sub/n", "d/x", "n"]);
    assert_eq!((contents(outside.path()), contents(dir.path())), was);
}

#[test]
fn fs_05_a_second_name_of_a_file_elsewhere_is_never_written_through() {
    let outside = tree(&[("victim", "1")]);
    let (dir, root, changeset, store) = prepared(&[("a", "1")], |copy| put(copy, "a", "evil"));
    fs::remove_file(dir.path().join("a")).unwrap();
    fs::hard_link(outside.path().join("victim"), dir.path().join("a")).unwrap();
    assert_eq!(conflicts(apply(&root, &changeset, from(&store), everything)), ["a"]);
    assert_eq!(contents(outside.path())["victim"], b"1");
}

#[test]
fn one_process_applies_at_a_time_and_what_a_killed_one_left_goes() {
    let (dir, root, changeset, store) = prepared(&[("a", "1")], |copy| put(copy, "a", "2"));
    let lock = fs::File::open(dir.path()).unwrap();
    lock.lock().unwrap();
    let result = apply(&root, &changeset, from(&store), everything);
    assert!(matches!(result, Err(ApplyError::Untouched(Cause::Busy))), "{result:?}");
    drop(lock);
    put(dir.path(), ".hotcell-apply-0123456789abcdef/0", "left");
    put(dir.path(), ".hotcell-apply-foreign/name", "not ours");
    put(dir.path(), ".hotcell-apply-file", "not ours");
    symlink("/etc", dir.path().join(".hotcell-apply-link")).unwrap();
    apply(&root, &changeset, from(&store), everything).unwrap();
    let left: Vec<String> = contents(dir.path()).into_keys().collect();
    assert_eq!(
        left,
        [
            ".hotcell-apply-file",
            ".hotcell-apply-foreign/",
            ".hotcell-apply-foreign/name",
            ".hotcell-apply-link -> /etc",
            "a",
        ]
    );
}

#[test]
fn where_changes_are_kept_cannot_be_changed() {
    let dir = tree(&[]);
    let change = |path: &str| Change {
        path: self::path(path),
        kind: ChangeKind::Added,
        before: None,
        after: Some(Digest::of(b"x")),
        bytes: 1,
        executable: false,
    };
    let changes = vec![change(".hotcell-apply-1/0"), change(".hotcell-kept-1"), change("fine")];
    let changeset = Changeset::new(changes, Vec::new()).unwrap();
    let result = apply(&root(&dir), &changeset, |_| Ok(&b"x"[..]), everything);
    assert_eq!(conflicts(result), [".hotcell-apply-1/0", ".hotcell-kept-1"]);
}
