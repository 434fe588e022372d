//! Contents go in whole and come out as they were, or not at all.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use hotcell_ledger::{
    Blob, Damage, Digest, Error, Fault, MAX_SMALL, Media, Store, StoreError, Stored, Swept, add,
    add_unkept, is_referenced, verify_contents,
};
use proptest::prelude::*;
use rustix::fs::{FileType, FlockOperation};

use crate::home::{Home, file_of, files_below, large, new};

/// More than is checked at once.
const HUGE: usize = 9 * 1024 * 1024 + 7;

fn huge() -> Vec<u8> {
    (0..HUGE).map(|at| (at / 1000) as u8).collect()
}

fn read(home: &Home, blob: &Blob) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    home.store.content(&home.conn, blob)?.read_to_end(&mut content).unwrap();
    Ok(content)
}

/// Writes to a file that is read-only, as somebody who owns it can.
fn overwrite(file: &std::path::Path, content: &[u8]) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(file, content).unwrap();
}

#[test]
fn a_content_comes_out_as_it_went_in() {
    let home = Home::new();
    for content in [&large(b""), &large(b"abc"), &vec![7; 4 * 1024 * 1024], &huge()] {
        let stored = home.put(content);
        assert_eq!(stored.blob(), Blob { digest: Digest::of(content), size: content.len() as u64 });
        assert!(read(&home, &stored.blob()).unwrap() == *content);
        let mode = fs::metadata(home.file_of(&stored.blob().digest)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o400);
    }
    assert_eq!(home.put_large(b"\x89PNG\r\n\x1a\n").media(), Media::Png);
    assert_eq!(files_below(&home.artifacts()).len(), 5);
}

#[test]
fn the_same_content_is_stored_once_and_a_damaged_one_is_replaced() {
    let home = Home::new();
    let first = home.put_large(b"abc").blob();
    let file = home.file_of(&first.digest);
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(home.put_large(b"abc").blob(), first);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified);
    overwrite(&file, b"longer than it was");
    assert_eq!(home.put_large(b"abc").blob(), first);
    assert!(read(&home, &first).unwrap() == large(b"abc"));
    // Nor is a link that stands there followed.
    fs::remove_file(&file).unwrap();
    let elsewhere = home.dir.path().join("elsewhere");
    fs::write(&elsewhere, large(b"abc")).unwrap();
    symlink(&elsewhere, &file).unwrap();
    home.put_large(b"abc");
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert_eq!(files_below(&home.artifacts()).len(), 1);
}

#[test]
fn too_much_and_a_source_that_fails_leave_nothing() {
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("gone"))?;
            Ok(buffer.len())
        }
    }
    let home = Home::new();
    let hold = home.store.hold().unwrap();
    assert!(matches!(hold.put(&b"abcd"[..], 3), Err(StoreError::TooLarge { most: 3 })));
    assert!(hold.put(&b"abc"[..], 3).is_ok());
    assert!(hold.put(&large(b"abc")[..], 1 << 20).is_ok());
    let most = MAX_SMALL + 3;
    assert!(matches!(hold.put(&large(b"abc")[..], most), Err(StoreError::TooLarge { .. })));
    assert!(matches!(hold.put(io::repeat(0), 1 << 20), Err(StoreError::TooLarge { .. })));
    assert!(matches!(hold.put(Fails(3), 1 << 30), Err(StoreError::Source(_))));
    assert_eq!(files_below(&home.artifacts()).len(), 1);
}

/// AUD-19: what is read is what was stored, or it is refused before the first byte.
#[test]
fn aud_19_a_changed_content_is_never_served() {
    let home = Home::new();
    for content in [large(b"abc"), huge()] {
        let blob = home.put(&content).blob();
        let file = home.file_of(&blob.digest);
        let mut changed = content.clone();
        *changed.last_mut().unwrap() ^= 1;
        let cut = &content[..content.len() - 1];
        for (damaged, damage) in [
            (changed.as_slice(), Damage::Content(Digest::of(&changed))),
            (cut, Damage::Size(blob.size - 1)),
            (&[&content, &b"x"[..]].concat(), Damage::Size(blob.size + 1)),
            (b"", Damage::Size(0)),
        ] {
            overwrite(&file, damaged);
            for refused in [
                home.store.content(&home.conn, &blob).map(drop),
                home.store.range(&home.conn, &blob, 0, 1).map(drop),
            ] {
                match refused {
                    Err(Error::Store(StoreError::Tampered { digest, damage: found })) => {
                        assert_eq!((digest, found), (blob.digest, damage));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        fs::remove_file(&file).unwrap();
        assert!(matches!(
            home.store.content(&home.conn, &blob),
            Err(Error::Store(StoreError::Missing(_)))
        ));
    }
}

/// What changes after it was checked does not come out either.
#[test]
fn a_content_that_changes_while_it_is_read_ends_with_an_error() {
    let home = Home::new();
    let content = huge();
    let blob = home.put(&content).blob();
    let mut reader = home.store.content(&home.conn, &blob).unwrap();
    let mut changed = content.clone();
    changed[HUGE - 1] ^= 1;
    overwrite(&home.file_of(&blob.digest), &changed);
    let mut served = Vec::new();
    let error = reader.read_to_end(&mut served).unwrap_err();
    assert!(matches!(
        error.downcast::<StoreError>().unwrap(),
        StoreError::Tampered { damage: Damage::Content(_), .. }
    ));
    assert!(content.starts_with(&served) && served.len() < content.len());
    assert_eq!(reader.read_to_end(&mut served).unwrap(), 0);

    // A small one is served from where it was checked.
    let blob = home.put_large(b"abc").blob();
    let mut reader = home.store.content(&home.conn, &blob).unwrap();
    overwrite(&home.file_of(&blob.digest), &large(b"xyz"));
    assert!(io::read_to_string(&mut reader).unwrap().starts_with("abc"));
}

fn make(file: &std::path::Path, kind: FileType) {
    rustix::fs::mknodat(rustix::fs::CWD, file, kind, rustix::fs::Mode::RUSR, 0).unwrap();
}

/// Only regular files with one name, inside the store.
#[test]
fn links_pipes_and_directories_are_not_contents() {
    let home = Home::new();
    let blob = home.put_large(b"abc").blob();
    let file = home.file_of(&blob.digest);
    let elsewhere = home.dir.path().join("elsewhere");
    let plant: [(&str, &dyn Fn()); 5] = [
        ("a symbolic link", &|| symlink(&elsewhere, &file).unwrap()),
        ("a second name", &|| fs::hard_link(&elsewhere, &file).unwrap()),
        ("a directory", &|| fs::create_dir(&file).unwrap()),
        ("a pipe", &|| make(&file, FileType::Fifo)),
        ("a socket", &|| make(&file, FileType::Socket)),
    ];
    fs::write(&elsewhere, large(b"abc")).unwrap();
    for (what, plant) in plant {
        fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)).unwrap();
        plant();
        match home.store.content(&home.conn, &blob) {
            Err(Error::Store(StoreError::Tampered { damage: Damage::NotPlain, .. })) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    // Also when it is the directory that leads elsewhere.
    let shard = file.parent().unwrap();
    fs::remove_file(&file).unwrap();
    fs::remove_dir(shard).unwrap();
    fs::create_dir(home.dir.path().join("outside")).unwrap();
    fs::write(home.dir.path().join("outside").join(file.file_name().unwrap()), large(b"abc"))
        .unwrap();
    symlink(home.dir.path().join("outside"), shard).unwrap();
    assert!(matches!(
        home.store.content(&home.conn, &blob),
        Err(Error::Store(StoreError::Tampered { damage: Damage::NotPlain, .. }))
    ));
    assert!(home.store.hold().unwrap().put(&large(b"abc")[..], 1 << 20).is_err());
}

#[test]
fn a_store_that_others_may_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("artifacts");
    Store::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(Store::open(&path).is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&path, dir.path().join("link")).unwrap();
    assert!(Store::open(&dir.path().join("link")).is_err());
}

/// CR-05: what was stored and never registered goes, and nothing else does.
#[test]
fn cr_05_sweeping_removes_what_no_row_refers_to() {
    let mut home = Home::new();
    let (kept, small) = (home.add("kept", &large(b"kept")), home.add("small", b"kept"));
    let orphan = home.put_large(b"orphan").blob();
    fs::write(home.artifacts().join(".part-0123"), "half").unwrap();
    fs::write(home.artifacts().join("README"), "not ours").unwrap();
    let sweep = |home: &Home| home.store.sweep(|digest| is_referenced(&home.conn, digest));
    assert_eq!(sweep(&home).unwrap(), Swept { partials: 1, contents: 1, bytes: orphan.size });
    assert_eq!(sweep(&home).unwrap(), Swept::default());
    assert!(matches!(
        home.store.content(&home.conn, &orphan),
        Err(Error::Store(StoreError::Missing(_)))
    ));
    assert!(read(&home, &kept.blob).unwrap() == large(b"kept"));
    assert_eq!(read(&home, &small.blob).unwrap(), b"kept");
    assert!(home.artifacts().join("README").exists());
    // The directory is there already, and the content comes back.
    assert_eq!(home.put_large(b"orphan").blob(), orphan);
}

#[test]
fn nothing_is_swept_while_somebody_registers_what_was_put() {
    let home = Home::new();
    let stored = home.put_large(b"not yet referenced");
    // Through another descriptor, as another process would.
    let other = Store::open(&home.artifacts()).unwrap();
    let sweep = || other.sweep(|digest| is_referenced(&home.conn, digest));
    assert!(matches!(sweep(), Err(Error::Store(StoreError::Busy))));
    assert!(home.store.content(&home.conn, &stored.blob()).is_ok());
    drop(stored);
    // Nor does anybody begin to, between the question and the removal.
    let lock = fs::File::open(home.artifacts()).unwrap();
    let swept = other.sweep(|_| {
        let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
        assert_eq!(locked, Err(rustix::io::Errno::WOULDBLOCK));
        Ok::<_, Error>(false)
    });
    assert_eq!(swept.unwrap().contents, 1);
}

#[test]
fn a_sweep_that_cannot_ask_removes_nothing() {
    let home = Home::new();
    let blob = home.put_large(b"abc").blob();
    let swept = home.store.sweep(|_| Err(Error::TooLarge));
    assert!(matches!(swept, Err(Error::TooLarge)));
    assert!(home.store.content(&home.conn, &blob).is_ok());
}

/// What somebody may be reading stays the same file.
#[test]
fn many_threads_can_put_the_same_content_and_the_first_is_kept() {
    let home = Home::new();
    let (store, dir) = (&home.store, home.dir.path());
    let together = std::sync::Barrier::new(8);
    let put_all = || {
        let hold = store.hold().unwrap();
        let put = |number: u8| {
            together.wait();
            let blob = hold.put(&large(&[number])[..], 1 << 20).unwrap().blob();
            let file = file_of(dir, &blob.digest);
            assert!(fs::read(&file).unwrap() == large(&[number]));
            fs::metadata(file).unwrap().ino()
        };
        (0..20).map(put).collect::<Vec<u64>>()
    };
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(put_all)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|inodes| *inodes == seen[0]));
    assert_eq!(files_below(&home.artifacts()).len(), 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_range_is_that_part_of_the_content(
        content in prop::collection::vec(any::<u8>(), 0..300),
        is_large in any::<bool>(),
        from in prop_oneof![0..400_u64, Just(u64::MAX)],
        length in prop_oneof![0..400_u64, Just(u64::MAX)],
    ) {
        let mut home = Home::new();
        let content = if is_large { large(&content) } else { content };
        let blob = home.add("a", &content).blob;
        let range = home.store.range(&home.conn, &blob, from, length).unwrap();
        let expected: Vec<u8> = content
            .into_iter()
            .skip(from.min(1 << 20) as usize)
            .take(length.min(1 << 20) as usize)
            .collect();
        prop_assert_eq!(range, expected);
    }
}

#[test]
fn a_range_goes_across_what_is_checked_at_once() {
    let home = Home::new();
    let content = huge();
    let blob = home.put(&content).blob();
    let four = 4 * 1024 * 1024;
    for (from, length) in [(four - 3, 10), (0, 8), (HUGE - 3, 100), (1, HUGE)] {
        let range = home.store.range(&home.conn, &blob, from as u64, length as u64).unwrap();
        assert!(range == content[from..(from + length).min(HUGE)], "{from} {length}");
    }
}

/// What is small is there with its row and not before, and costs no file.
#[test]
fn a_small_content_comes_and_goes_with_its_row() {
    let mut home = Home::new();
    for size in [0, 1, MAX_SMALL - 1, MAX_SMALL, MAX_SMALL + 1] {
        let content = vec![7; size as usize];
        let stored = home.put(&content);
        assert_eq!(stored.blob(), Blob::of(&content));
        assert_eq!(home.file_of(&stored.blob().digest).exists(), size > MAX_SMALL, "{size}");
        let tx = home.conn.transaction().unwrap();
        add(&tx, &stored, new("a")).unwrap();
        drop(tx);
        let refused = read(&home, &stored.blob());
        assert_eq!(refused.is_err(), size <= MAX_SMALL, "{size}");
        let artifact = home.add("a", &content);
        assert!(read(&home, &artifact.blob).unwrap() == content);
    }
    assert_eq!(
        Stored::small(vec![7; 1 + MAX_SMALL as usize]).unwrap_err().len() as u64,
        1 + MAX_SMALL
    );
    // It is not removed under a row, also by mistake.
    assert!(home.conn.execute("DELETE FROM artifact_content", []).is_err());
}

#[test]
fn aud_19_a_changed_small_content_is_never_served_and_always_found() {
    for (change, damage) in [
        ("bytes = x'616264'", Damage::Content(Digest::of(b"abd"))),
        ("bytes = x''", Damage::Size(0)),
        ("bytes = zeroblob(10000000)", Damage::Size(10_000_000)),
        ("bytes = zeroblob(65537)", Damage::Size(65_537)),
    ] {
        let mut home = Home::new();
        let blob = home.add("a", b"abc").blob;
        home.conn.execute(&format!("UPDATE artifact_content SET {change}"), []).unwrap();
        for refused in [
            home.store.content(&home.conn, &blob).map(drop),
            home.store.range(&home.conn, &blob, 0, 1).map(drop),
        ] {
            match refused {
                Err(Error::Store(StoreError::Tampered { damage: found, .. })) => {
                    assert_eq!(found, damage, "{change}");
                }
                other => panic!("{change}: {other:?}"),
            }
        }
        let mut faults = Vec::new();
        verify_contents(&home.conn, &home.store, |fault| faults.push(fault)).unwrap();
        assert_eq!(faults.len(), 1, "{change}: {faults:?}");
        // Whoever brings the right one repairs it.
        home.add("again", b"abc");
        assert_eq!(read(&home, &blob).unwrap(), b"abc");
    }
    let mut home = Home::new();
    let blob = home.add("a", b"abc").blob;
    home.conn.execute("UPDATE artifact_content SET digest = zeroblob(32)", []).unwrap();
    let mut faults = Vec::new();
    let verified = verify_contents(&home.conn, &home.store, |fault| faults.push(fault)).unwrap();
    assert_eq!((faults, verified.unreferenced), (vec![Fault::Missing(blob.digest)], 1));
}

#[test]
fn what_was_not_kept_is_told_and_is_no_fault() {
    let mut home = Home::new();
    let blob = Blob { digest: Digest::of(b"gone"), size: 1 << 40 };
    let (artifact, statement) = home.write(|tx| add_unkept(tx, blob, new("a"))).unwrap();
    assert_eq!((artifact.blob, artifact.is_kept), (blob, false));
    assert!(statement.bytes().starts_with(b"hotcell artifact not kept 1\n"));
    let verified = verify_contents(&home.conn, &home.store, |fault| panic!("{fault}")).unwrap();
    assert_eq!((verified.contents, verified.unreferenced), (0, 0));
    assert!(!is_referenced(&home.conn, &blob.digest).unwrap());
    assert!(matches!(read(&home, &blob), Err(Error::Store(StoreError::Missing(_)))));
}

/// As homes have them that were made before.
#[test]
fn a_small_content_may_also_be_a_file() {
    let mut home = Home::new();
    let blob = home.add("a", b"abc").blob;
    let file = home.file_of(&blob.digest);
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "abc").unwrap();
    home.conn
        .execute_batch("DROP TRIGGER artifact_content_is_kept; DELETE FROM artifact_content")
        .unwrap();
    assert_eq!(read(&home, &blob).unwrap(), b"abc");
    let verified = verify_contents(&home.conn, &home.store, |fault| panic!("{fault}")).unwrap();
    assert_eq!((verified.contents, verified.unreferenced), (1, 0));
}
