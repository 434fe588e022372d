//! What is read of a home that somebody hands over: checkpoints, backups; and what packages are asked for.

use hotcell_engine::names_in_backup;
use hotcell_environment::requirement::{MOST_CHARACTERS, Requirement, lines};
use hotcell_record::{Checkpoint, Digest};

use crate::outcome;

const CHECKPOINT: &str = "hotcell-checkpoint 1 home=000102030405060708090a0b0c0d0e0f seq=7 \
    hash=1111111111111111111111111111111111111111111111111111111111111111 count=7 time=-1 \
    prev=2222222222222222222222222222222222222222222222222222222222222222 \
    key=3333333333333333333333333333333333333333333333333333333333333333 sig=";

/// A checkpoint has one spelling, and nothing that was made up is signed.
pub fn checkpoint(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let read = text.parse::<Checkpoint>();
    if let Ok(checkpoint) = &read {
        assert_eq!(checkpoint.to_string(), text);
        assert_eq!(checkpoint.digest(), Digest::of(text.as_bytes()));
        assert!(!checkpoint.is_signed(), "{text}");
    }
    outcome(&[read.is_ok(), read.is_ok_and(|checkpoint| checkpoint.time < 0)])
}

pub(crate) fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let whole = format!("{CHECKPOINT}{}", "4".repeat(128));
    [whole.replace("seq=7", "seq=+7"), whole.replace("time=-1", "time=1"), whole]
        .map(String::into_bytes)
        .to_vec()
}

/// Nothing of a backup has another name than a home's own files have.
pub fn backup(data: &[u8]) -> u64 {
    match names_in_backup(data) {
        Ok(names) => {
            for name in &names {
                assert!(!name.starts_with('/') && !name.split('/').any(|part| part == ".."));
                let is_known = ["hotcell.db", "anchor.log", "keys/record.key", "keys/record.pub"];
                let is_content =
                    name.strip_prefix("artifacts/").is_some_and(|rest| rest.len() == 65);
                assert!(is_known.contains(&name.as_str()) || is_content, "{name:?}");
            }
            0x1000 | names.len().min(0xff) as u64
        }
        Err(error) => error.to_string().len() as u64,
    }
}

pub(crate) fn backup_seeds() -> Vec<Vec<u8>> {
    let mark = ("hotcell-backup", &b"1\n"[..]);
    let content = format!("artifacts/ab/{}", "0".repeat(62));
    let lists: [&[(&str, &[u8])]; 4] = [
        &[mark, ("hotcell.db", b"x")],
        &[mark, ("anchor.log", b""), ("keys/record.key", b"k\n"), ("hotcell.db", b"x")],
        &[mark, (&content, b"c"), ("hotcell.db", b"x"), ("hotcell.db", b"y")],
        &[mark, ("../x", b"c"), ("/abs", b"x")],
    ];
    lists.map(archive).to_vec()
}

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000600");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(156, b"0");
        put(257, b"ustar\x0000");
        put(148, b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        header[154] = 0;
        bytes.extend(header);
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn the_seeds_are_backups() {
    let read: Vec<bool> = backup_seeds().iter().map(|seed| names_in_backup(seed).is_ok()).collect();
    assert_eq!(read, [true, true, true, false]);
}

/// What is taken has one form, in which pip reads no option, path or address.
pub fn requirement(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let (mut taken, mut refused) = (0_u64, 0_u64);
    for line in lines(&text) {
        match Requirement::parse(&line) {
            Ok(requirement) => {
                let shown = requirement.as_str();
                assert_eq!(Requirement::parse(shown).as_ref(), Ok(&requirement), "{shown:?}");
                assert!(shown.starts_with(|c: char| c.is_ascii_alphanumeric()), "{shown:?}");
                assert!(!shown.split_whitespace().any(|word| word.starts_with('-')), "{shown:?}");
                assert!(!shown.contains(['/', '\\', '@', '\n', '\0']), "{shown:?}");
                assert!(shown.len() <= MOST_CHARACTERS + 3);
                taken += 1;
            }
            Err(error) => {
                assert!(!error.why().is_empty());
                refused = refused.max(error.why().len() as u64);
            }
        }
    }
    taken.min(15) << 8 | refused
}

pub(crate) fn requirement_seeds() -> Vec<Vec<u8>> {
    let words = [
        "numpy==2.1 # why\n\n# all\npandas>=1,<2\n",
        "a[b, c] (>=1.0,!=1.5) ; python_version < \"3.12\" and os_name == 'posix'",
        "-r x\nfile.whl\n../a\nhttps://x/y\na @ b\n",
        "a ~=1.2.*\na===1",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}
