//! The ring of keys, on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use hotcell_bearer::{MAX_KEYS, Ring, RingError, Why};

use crate::common::*;

fn files(house: &House) -> Vec<String> {
    let entries = fs::read_dir(house.dir.path().join("keys")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn tok_13_an_older_key_is_good_for_its_grace_and_never_again() {
    let mut house = House::new();
    let other = Ring::open(house.dir.path()).unwrap();
    let old = house.token(9);
    house.ring.rotate(house.now(), seconds(10)).unwrap();
    let new = house.token(9);
    // A ring that was opened before knows it at once.
    house.ring = other;
    for minted in [&old, &new] {
        assert_eq!(house.status(minted.bearer.reveal(), &alice()), Ok(()));
    }
    house.pass(10 * SECOND);
    assert_eq!(house.status(old.bearer.reveal(), &alice()), Err(Why::Expired));
    assert_eq!(house.use_it(old.bearer.reveal(), &alice()).unwrap_err(), Why::Expired);
    assert_eq!(house.status(new.bearer.reveal(), &alice()), Ok(()));
    // With another rotation its file goes; put back, it is good for nothing.
    let kept = fs::read(house.dir.path().join("keys/bearer-1.key")).unwrap();
    let stale = Ring::open(house.dir.path()).unwrap();
    house.ring.rotate(house.now(), seconds(10)).unwrap();
    assert_eq!(files(&house), ["bearer-2.key", "bearer-3.key"]);
    let path = house.dir.path().join("keys/bearer-1.key");
    fs::write(&path, kept).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    house.restart();
    assert_eq!(house.read(old.bearer.reveal()), Err(Why::Signature));
    house.ring = stale;
    assert_eq!(house.read(old.bearer.reveal()), Err(Why::Signature));
}

#[test]
fn a_stolen_key_is_worth_nothing_at_once() {
    let mut house = House::new();
    let old = house.token(1);
    let asleep = Ring::open(house.dir.path()).unwrap();
    for _ in 0..5 {
        house.ring.rotate(house.now(), None).unwrap();
    }
    assert_eq!(files(&house), ["bearer-5.key", "bearer-6.key"]);
    assert_eq!(house.read(old.bearer.reveal()), Err(Why::Signature));
    // Also to a process that missed all of it.
    house.ring = asleep;
    assert_eq!(house.read(old.bearer.reveal()), Err(Why::Signature));
    let new = house.token(1);
    assert_eq!(house.status(new.bearer.reveal(), &alice()), Ok(()));
}

#[test]
fn a_rotation_that_was_killed_leaves_all_as_it_was() {
    let mut house = House::new();
    let old = house.token(1);
    let unfinished = house.dir.path().join("keys/bearer-new");
    fs::write(&unfinished, "hotcell-bearer-key 1 number=2 old").unwrap();
    house.restart();
    assert_eq!(house.status(old.bearer.reveal(), &alice()), Ok(()));
    house.ring.rotate(house.now(), seconds(60)).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(house.status(old.bearer.reveal(), &alice()), Ok(()));
    assert_eq!(files(&house), ["bearer-1.key", "bearer-2.key"]);
}

#[test]
fn there_are_not_more_keys_than_that() {
    let house = House::new();
    for _ in 1..MAX_KEYS {
        house.ring.rotate(house.now(), seconds(60)).unwrap();
    }
    let error = house.ring.rotate(house.now(), seconds(60)).unwrap_err();
    assert!(error.why.contains("still good") && error.fix.contains("wait"), "{error}");
    assert!(house.ring.rotate(house.now() + 60 * SECOND, None).is_ok());
}

/// Two processes that begin at the same time have one key.
#[test]
fn the_first_key_is_made_once() {
    let home = home();
    let dir = home.path();
    std::thread::scope(|scope| {
        let rings: Vec<_> = (0..8).map(|_| scope.spawn(move || Ring::open(dir).unwrap())).collect();
        rings.into_iter().for_each(|ring| drop(ring.join().unwrap()));
    });
    assert_eq!(fs::read_dir(dir.join("keys")).unwrap().count(), 1);
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys"), mode("keys/bearer-1.key")), (0o700, 0o600));
}

#[test]
fn keys_that_others_can_read_or_place_are_refused() {
    let change = |what: &str, change: fn(&Path)| -> RingError {
        let home = home();
        drop(Ring::open(home.path()).unwrap());
        change(&home.path().join("keys"));
        let error = Ring::open(home.path()).map(drop);
        error.err().unwrap_or_else(|| panic!("{what} was taken"))
    };
    let errors = [
        change("a key that the group reads", |keys| chmod(&keys.join("bearer-1.key"), 0o640)),
        change("a key that all read", |keys| chmod(&keys.join("bearer-1.key"), 0o604)),
        change("a directory that all write", |keys| chmod(keys, 0o777)),
        change("a link to a key", |keys| {
            fs::rename(keys.join("bearer-1.key"), keys.join("x")).unwrap();
            symlink("x", keys.join("bearer-1.key")).unwrap();
        }),
        change("a link to the directory", |keys| {
            fs::rename(keys, keys.with_file_name("x")).unwrap();
            symlink("x", keys).unwrap();
        }),
        change("a directory as a key", |keys| {
            fs::remove_file(keys.join("bearer-1.key")).unwrap();
            fs::create_dir(keys.join("bearer-1.key")).unwrap();
        }),
        change("a copy of a key under another number", |keys| {
            fs::copy(keys.join("bearer-1.key"), keys.join("bearer-2.key")).unwrap();
        }),
        change("an empty key", |keys| fs::write(keys.join("bearer-1.key"), "").unwrap()),
        change("a short key", |keys| {
            let text = fs::read_to_string(keys.join("bearer-1.key")).unwrap();
            fs::write(keys.join("bearer-1.key"), text.replace("key=", "key=\n")).unwrap();
        }),
        change("a long file", |keys| {
            let text = fs::read_to_string(keys.join("bearer-1.key")).unwrap();
            fs::write(keys.join("bearer-1.key"), text.repeat(1000)).unwrap();
        }),
        change("a key in capitals", |keys| {
            let text = fs::read_to_string(keys.join("bearer-1.key")).unwrap();
            let (start, key) = text.split_once(" key=").unwrap();
            let text = format!("{start} key={}", key.to_uppercase());
            fs::write(keys.join("bearer-1.key"), text).unwrap();
        }),
    ];
    for error in errors {
        assert!(!error.why.is_empty() && !error.fix.is_empty(), "{error}");
    }
    // What is no key of ours is not looked at.
    let home = home();
    drop(Ring::open(home.path()).unwrap());
    for name in ["record.key", "bearer-01.key", "bearer-x.key", "bearer-1.key.bak", "bearer-.key"] {
        fs::write(home.path().join("keys").join(name), "x").unwrap();
    }
    assert!(Ring::open(home.path()).is_ok());
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
