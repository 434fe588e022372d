//! What was handed over, changed, compared and applied is what the run left.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hotcell_workspace::{Changeset, Digest, Relative, SnapshotBounds, apply};
use proptest::prelude::*;

use crate::support::*;

/// Files by path: content and right of execution.
type Files = BTreeMap<Relative, (u8, bool)>;

fn files() -> impl Strategy<Value = Files> {
    let file = ("[abc](/[abc]){0,3}", (0_u8..3, any::<bool>()));
    proptest::collection::vec(file, 0..12).prop_map(|files| {
        let mut fitting = Files::new();
        for (name, content) in files {
            let path = path(&name);
            let is_below = path.ancestors().any(|above| fitting.contains_key(&above));
            let is_above = fitting.keys().any(|other| other.ancestors().any(|above| above == path));
            if !is_below && !is_above {
                fitting.insert(path, content);
            }
        }
        fitting
    })
}

fn write(dir: &Path, path: &Relative, (content, executable): (u8, bool)) {
    put(dir, path.as_str(), [content]);
    let mode = if executable { 0o755 } else { 0o644 };
    fs::set_permissions(dir.join(path.as_str()), Permissions::from_mode(mode)).unwrap();
}

/// Makes one tree of another and touches only what differs.
fn turn(dir: &Path, before: &Files, after: &Files) {
    for (path, _) in before.iter().filter(|(path, _)| !after.contains_key(path)) {
        fs::remove_file(dir.join(path.as_str())).unwrap();
        for above in path.ancestors() {
            fs::remove_dir(dir.join(above.as_str())).ok();
        }
    }
    for (path, &content) in after.iter().filter(|&(path, is)| before.get(path) != Some(is)) {
        write(dir, path, content);
    }
}

/// The same with the right of execution in front.
fn with_rights(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = contents(dir);
    for (name, content) in all.iter_mut().filter(|(name, _)| !name.ends_with('/')) {
        content.insert(0, is_executable(&dir.join(name)).into());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_changeset_makes_of_the_tree_what_the_run_made_of_its_copy(
        before in files(), after in files(), fails_at in 0_usize..20,
    ) {
        let dir = tree(&[]);
        for (path, &content) in &before {
            write(dir.path(), path, content);
        }
        let root = root(&dir);
        let (snapshot, copy) = hand_over(&root, SnapshotBounds::default());
        turn(copy.path(), &before, &after);
        let (changeset, store) = diff(&snapshot, &copy);

        let differing = before.keys().chain(after.keys().filter(|path| !before.contains_key(path)));
        let differing = differing.filter(|path| before.get(path) != after.get(path)).count();
        prop_assert_eq!(changeset.changes().len(), differing);
        let text = serde_json::to_string(&changeset).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Changeset>(&text).unwrap(), &changeset);

        // A failure on the way changes nothing.
        let was = with_rights(dir.path());
        let mut asked = 0;
        let failing = |digest: &Digest| {
            asked += 1;
            if asked > fails_at { Err(io::ErrorKind::StorageFull.into()) } else { from(&store)(digest) }
        };
        if apply(&root, &changeset, failing, |_| Ok(())).is_err() {
            prop_assert_eq!(with_rights(dir.path()), was);
        }

        apply(&root, &changeset, from(&store), |_| Ok(())).unwrap();
        let wanted = with_rights(copy.path());
        prop_assert_eq!(with_rights(dir.path()), wanted.clone());
        let again = apply(&root, &changeset, from(&store), |_| Ok(())).unwrap();
        prop_assert_eq!(again.changed.len(), 0);
        prop_assert_eq!(with_rights(dir.path()), wanted);
    }
}
