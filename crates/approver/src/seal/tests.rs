use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::private::MOST_FILE;
use crate::statement::Policy;

/// As little as may be.
const CHEAP: Cost = Cost { memory_kib: LEAST_MEMORY_KIB, passes: 1 };

fn alice() -> Approver {
    Approver::from_seed(&[7; 32], "alice".parse().unwrap())
}

fn phrase(text: &str) -> Passphrase {
    Passphrase::typed(Zeroizing::new(text.into()))
}

fn example() -> Sealed {
    Sealed::with_cost(&alice(), &phrase("correct horse"), CHEAP).unwrap()
}

#[test]
fn a_key_opens_with_its_passphrase_and_no_other() {
    let usual = Sealed::new(&alice(), &phrase("correct horse")).unwrap();
    for sealed in [usual, example()] {
        let read: Sealed = sealed.to_string().parse().unwrap();
        assert_eq!(read, sealed);
        let opened = read.open(&phrase("correct horse")).unwrap();
        let statement = Policy { home: [1; 16], policy: [2; 32], sequence: 3, time: 4 };
        let signature = opened.sign(&statement);
        assert!(sealed.public().verify(&statement, &signature).is_ok());
        assert_eq!(opened.public(), alice().public());
    }
    for wrong in ["", "correct hors", "correct horse ", "Correct horse", "correct horse\0"] {
        let opened = example().open(&phrase(wrong));
        assert!(matches!(opened, Err(SealError::Passphrase)), "{wrong:?}");
    }
}

#[test]
fn a_key_is_sealed_in_another_way_each_time_and_shows_nothing() {
    let (one, two) = (example(), example());
    assert!(one.salt != two.salt && one.nonce != two.nonce && one.sealed != two.sealed);
    let text = one.to_string();
    assert!(!text.contains(&base64::text(alice().seed())));
    assert!(!format!("{one:?} {:?}", phrase("secret")).contains("secret"));
}

#[test]
fn a_key_has_one_spelling() {
    let text = example().to_string();
    for (from, to) in [
        ("key 1", "key 2"),
        ("key 1", "key 1 "),
        ("key 1\n", "key 1\r\n"),
        ("name alice", "name  alice"),
        ("name alice", "name al ice"),
        ("name alice\n", ""),
        ("public 6", "public "),
        ("memory=8192", "memory=08192"),
        ("memory=8192", "memory=+8192"),
        ("memory=8192", "memory=4294967296"),
        ("memory=8192", "memory=-1"),
        ("passes=1", "passes=1 lanes=4"),
        ("argon2id", "argon2i"),
        ("salt ", "salt"),
        ("salt ", "salt AA"),
        ("nonce ", "nonce AAAA"),
        ("sealed ", "sealed \n"),
        ("sealed ", "sealed AAAA"),
    ] {
        let other = text.replacen(from, to, 1);
        assert_ne!(other, text, "{from}");
        assert_eq!(other.parse::<Sealed>(), Err(BadSealed::Text), "{other}");
    }
    let without_end = text.trim_end();
    for other in [without_end, "", "\n", &format!("{text}\n"), &format!("\n{text}"), FIRST] {
        assert_eq!(other.parse::<Sealed>(), Err(BadSealed::Text), "{other}");
    }
}

#[test]
fn a_key_cannot_ask_for_more_than_a_little_of_the_machine_nor_for_less() {
    let text = example().to_string();
    for (memory, passes, expected) in [
        (8192, 1, true),
        (8191, 1, false),
        (8192, 0, false),
        (0, 1, false),
        (MOST_MEMORY_KIB, MOST_PASSES, true),
        (MOST_MEMORY_KIB + 1, 1, false),
        (8192, MOST_PASSES + 1, false),
        (u32::MAX, u32::MAX, false),
    ] {
        let cost = format!("memory={memory} passes={passes}");
        let read = text.replacen("memory=8192 passes=1", &cost, 1).parse::<Sealed>();
        assert_eq!(read.err(), (!expected).then_some(BadSealed::Cost), "{cost}");
    }
}

#[test]
fn no_byte_of_a_key_can_be_changed() {
    let text = example().to_string().into_bytes();
    let mut tried = 0;
    for (place, flip) in (0..text.len()).flat_map(|place| [(place, 1), (place, 2), (place, 32)]) {
        let mut other = text.clone();
        other[place] ^= flip;
        let Ok(read) = String::from_utf8(other).unwrap().parse::<Sealed>() else { continue };
        // A cost that is not ours takes its time.
        if read.cost != CHEAP && read.cost.memory_kib > 2 * LEAST_MEMORY_KIB {
            continue;
        }
        tried += 1;
        let opened = read.open(&phrase("correct horse"));
        assert!(matches!(opened, Err(SealError::Passphrase)), "byte {place}, {flip}");
    }
    assert!(tried > 100, "only {tried} were keys at all");
}

fn private_directory() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("keys");
    DirBuilder::new().mode(0o700).create(&directory).unwrap();
    (temporary, directory)
}

#[test]
fn a_key_is_written_once_for_nobody_else_and_read_back() {
    let (_temporary, directory) = private_directory();
    let path = directory.join("alice.key");
    example().write_new(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let read = Sealed::read(&path).unwrap();
    assert!(read.open(&phrase("correct horse")).is_ok());
    let again = example().write_new(&path).unwrap_err();
    assert_eq!(again.why, "it is there already");
    assert_eq!(Sealed::read(&path), Ok(read));
}

#[test]
fn a_key_is_neither_read_nor_written_where_others_may() {
    const SHARED: &str = "others than its owner may use it";
    let (_temporary, directory) = private_directory();
    let path = directory.join("alice.key");
    example().write_new(&path).unwrap();
    for mode in [0o640, 0o620, 0o604, 0o602, 0o610, 0o644, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(Sealed::read(&path).unwrap_err().why, SHARED, "{mode:o}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    for mode in [0o750, 0o720, 0o705, 0o702, 0o755, 0o1777] {
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        assert_eq!(Sealed::read(&path).unwrap_err().why, SHARED, "{mode:o}");
        let written = example().write_new(&directory.join("new.key"));
        assert_eq!(written.unwrap_err().why, SHARED, "{mode:o}");
    }
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    assert!(Sealed::read(&path).is_ok());
}

#[test]
fn a_key_is_reached_by_no_link_and_is_a_file_of_its_own() {
    let (temporary, directory) = private_directory();
    let at = |name: &str| directory.join(name);
    example().write_new(&at("alice.key")).unwrap();
    symlink("alice.key", at("link.key")).unwrap();
    symlink("nothing", at("dangling.key")).unwrap();
    symlink(&directory, temporary.path().join("keys-link")).unwrap();
    let by_directory = temporary.path().join("keys-link/alice.key");
    DirBuilder::new().mode(0o700).create(at("directory.key")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo.key"), fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    fs::write(at("long.key"), " ".repeat(MOST_FILE as usize + 1)).unwrap();
    fs::write(at("bytes.key"), [0xff, 0xfe]).unwrap();
    fs::write(at("empty.key"), "").unwrap();
    for name in ["long.key", "bytes.key", "empty.key"] {
        fs::set_permissions(at(name), Permissions::from_mode(0o600)).unwrap();
    }
    for (path, why) in [
        (at("link.key"), "it is a link"),
        (at("dangling.key"), "it is a link"),
        (by_directory.clone(), "it is a link"),
        (at("directory.key"), "not a regular file"),
        (at("fifo.key"), "not a regular file"),
        (at("long.key"), "more than 65536 bytes"),
        (at("bytes.key"), "UTF-8"),
        (at("empty.key"), "not an approver's key"),
        (at("nothing.key"), "No such file"),
        (at(".."), "names no file"),
    ] {
        let error = Sealed::read(&path).unwrap_err();
        assert!(error.why.contains(why), "{}: {error}", path.display());
    }
    for path in [at("link.key"), at("dangling.key"), by_directory] {
        assert!(example().write_new(&path).is_err(), "{}", path.display());
    }
    fs::hard_link(at("alice.key"), at("second.key")).unwrap();
    assert!(Sealed::read(&at("alice.key")).unwrap_err().why.contains("with one name"));
}
