//! Alone in its process, since it counts what the process holds.

use std::fs;
use std::time::Duration;

use hotcell_workspace::{Bounds, Root};

#[test]
fn a_walk_holds_one_descriptor_for_each_directory_that_it_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_owned();
    for depth in 0..60 {
        for number in 0..3 {
            fs::write(path.join(format!("file{number}")), "").unwrap();
        }
        path.push(format!("d{depth}"));
        fs::create_dir(&path).unwrap();
    }
    let held = || fs::read_dir("/proc/self/fd").unwrap().count();
    let root = Root::open(dir.path()).unwrap();
    let before = held();
    let mut walk = root.walk(None, Bounds::within(Duration::from_secs(60))).unwrap();
    let mut told = 0;
    for entry in walk.by_ref() {
        told += 1;
        let depth = entry.unwrap().path.depth();
        assert!(held() <= before + depth, "{} at depth {depth}", held());
    }
    assert_eq!(told, 4 * 60);
    drop(walk);
    assert_eq!(held(), before);
}
