//! Signed statements of how far the chain goes, to be kept where whoever can change the database cannot
//! reach. One line of text each, with one valid spelling.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use rusqlite::{OptionalExtension, Transaction, params};

use crate::db::{OpenError, OpenFault, sync_directory};
use crate::event::genesis;
use crate::hex::{Digest, Hex, HomeId, random_name};
use crate::store;

/// What every line has in it, whatever a log puts in front.
pub(crate) const MARK: &str = "hotcell-checkpoint 1 ";
const SIGNED: &str = "hotcell checkpoint 1\n";
const SIGNATURE: &str = " sig=";

pub(crate) const LAST: &str =
    "SELECT number, seq, line FROM checkpoint ORDER BY number DESC LIMIT 1";
pub(crate) const INSERT: &str = "INSERT INTO checkpoint VALUES (?1, ?2, ?3,
    ?4 AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE is_sunk = 0)) RETURNING is_sunk";

/// A signing key: made once in a home, and never shown.
#[derive(Clone)]
pub(crate) struct Key(SigningKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Makes the key of a new home, unless another process just did.
    pub(crate) fn make(home: &Path) -> io::Result<()> {
        let directory = home.join("keys");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let beside = directory.join(random_name("new")?);
        write_new(&beside, &Hex::random()?)?;
        let linked = fs::hard_link(&beside, directory.join("record.key"));
        fs::remove_file(&beside)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => sync_directory(&beside),
        }
    }

    pub(crate) fn open(home: &Path) -> Result<Key, OpenError> {
        let path = home.join("keys/record.key");
        let refuse = |why: &str, fix: &str| OpenError::new(OpenFault::Key, &path, why, fix);
        let restore = "restore it from a backup, or move the record away to begin a new one";
        let metadata = fs::symlink_metadata(&path).map_err(|e| refuse(&e.to_string(), restore))?;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || !is_ours || metadata.mode() & 0o077 != 0 {
            return Err(refuse("it is not a private file of this user", "chmod 600, and own it"));
        }
        let text = fs::read_to_string(&path).map_err(|e| refuse(&e.to_string(), restore))?;
        let seed = text.strip_suffix('\n').and_then(|text| text.parse::<Hex<32>>().ok());
        let seed = seed.ok_or_else(|| refuse("it is not a key", restore))?;
        let key = Key(SigningKey::from_bytes(&seed.0));
        match write_new(&home.join("keys/record.pub"), &key.public()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(refuse(&error.to_string(), "make its directory writable"))
            }
            _ => Ok(key),
        }
    }

    pub(crate) fn public(&self) -> Hex<32> {
        public(&self.0)
    }
}

fn public(key: &SigningKey) -> Hex<32> {
    Hex(key.verifying_key().to_bytes())
}

fn write_new(path: &Path, value: &Hex<32>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())?;
    file.sync_all()
}

/// At this time, the chain of this home had so many events and ended in this hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub home: HomeId,
    pub seq: u64,
    pub hash: Digest,
    pub count: u64,
    pub time: i64,
    /// The digest of the checkpoint before; of the first, the genesis of its home.
    pub prev: Digest,
    pub key: Hex<32>,
    pub signature: Hex<64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint")]
pub struct BadCheckpoint;

impl Checkpoint {
    fn sign(mut self, key: &Key) -> Checkpoint {
        self.key = key.public();
        let message = format!("{SIGNED}{}", self.statement());
        self.signature = Hex(key.0.sign(message.as_bytes()).to_bytes());
        self
    }

    /// Whether the key that it names signed it.
    pub fn is_signed(&self) -> bool {
        let Ok(key) = VerifyingKey::from_bytes(&self.key.0) else { return false };
        let message = format!("{SIGNED}{}", self.statement());
        key.verify_strict(message.as_bytes(), &Signature::from_bytes(&self.signature.0)).is_ok()
    }

    /// Whether this key signed it. There is one signature of a key for each statement, so that it can be
    /// made again, which takes less than half the time of a look at it.
    pub(crate) fn is_signed_by(&self, key: &Key) -> bool {
        self.key == key.public() && self.clone().sign(key).signature == self.signature
    }

    /// Of its line.
    pub fn digest(&self) -> Digest {
        Digest::of(self.to_string().as_bytes())
    }

    /// The line without its signature.
    fn statement(&self) -> String {
        let Checkpoint { home, seq, hash, count, time, prev, key, .. } = self;
        format!(
            "{MARK}home={home} seq={seq} hash={hash} count={count} time={time} prev={prev} key={key}"
        )
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SIGNATURE}{}", self.statement(), self.signature)
    }
}

impl FromStr for Checkpoint {
    type Err = BadCheckpoint;

    fn from_str(line: &str) -> Result<Checkpoint, BadCheckpoint> {
        let mut words = line.strip_prefix(MARK).ok_or(BadCheckpoint)?.split(' ');
        let mut value = |name: &str| {
            let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.ok_or(BadCheckpoint)
        };
        let checkpoint = Checkpoint {
            home: value("home")?.parse().map_err(|_| BadCheckpoint)?,
            seq: value("seq")?.parse().map_err(|_| BadCheckpoint)?,
            hash: value("hash")?.parse().map_err(|_| BadCheckpoint)?,
            count: value("count")?.parse().map_err(|_| BadCheckpoint)?,
            time: value("time")?.parse().map_err(|_| BadCheckpoint)?,
            prev: value("prev")?.parse().map_err(|_| BadCheckpoint)?,
            key: value("key")?.parse().map_err(|_| BadCheckpoint)?,
            signature: value("sig")?.parse().map_err(|_| BadCheckpoint)?,
        };
        // `+7`, `007` and what follows the last word would be other spellings.
        if checkpoint.to_string() == line { Ok(checkpoint) } else { Err(BadCheckpoint) }
    }
}

/// A checkpoint as it was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) number: i64,
    pub(crate) line: String,
    pub(crate) is_sunk: bool,
}

/// When a checkpoint counts as one that the sink has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sunk {
    /// When somebody says so.
    Later,
    /// At once, unless others wait before it: whoever opens the record next sees what the sink lacks.
    Soon,
}

/// Signs the end of the chain as this transaction sees it, unless the last checkpoint did.
pub(crate) fn write(
    tx: &Transaction<'_>,
    home: HomeId,
    key: &Key,
    time: i64,
    sunk: Sunk,
) -> rusqlite::Result<Option<Written>> {
    let (seq, hash) = store::head(tx)?;
    let last = tx
        .prepare_cached(LAST)?
        .query_row([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?)))
        .optional()?;
    let (before, prev) = match last {
        Some((_, covered, _)) if covered >= seq as i64 => return Ok(None),
        Some((number, _, line)) => (number, Digest::of(String::as_bytes(&line))),
        None => (0, genesis(home)),
    };
    let (key_, signature) = (Hex::ZERO, Hex::ZERO);
    let unsigned = Checkpoint { home, seq, hash, count: seq, time, prev, key: key_, signature };
    let (number, line) = (before + 1_i64, unsigned.sign(key).to_string());
    let row = params![number, seq as i64, line, sunk == Sunk::Soon];
    let is_sunk = tx.prepare_cached(INSERT)?.query_row(row, |row| row.get(0))?;
    Ok(Some(Written { number, line, is_sunk }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Checkpoint {
        let key = Key(SigningKey::from_bytes(&[7; 32]));
        let (home, hash, prev) = (Hex([1; 16]), Hex([2; 32]), Hex([3; 32]));
        let (key_, signature) = (Hex::ZERO, Hex::ZERO);
        Checkpoint { home, seq: 5, hash, count: 5, time: -1, prev, key: key_, signature }.sign(&key)
    }

    #[test]
    fn a_checkpoint_has_one_spelling() {
        let line = example().to_string();
        assert_eq!(line.parse(), Ok(example()));
        for (from, to) in [
            ("seq=5", "seq=+5"),
            ("seq=5", "seq=05"),
            ("time=-1", "time=-01"),
            (" seq", "  seq"),
            ("home=01", "home=0G"),
            ("sig=", "sig=0"),
            ("key=e", "key=E"),
            ("count=5 ", ""),
        ] {
            let other = line.replacen(from, to, 1);
            assert_ne!(other, line, "{from}");
            assert_eq!(other.parse::<Checkpoint>(), Err(BadCheckpoint), "{other}");
        }
        for other in [format!("{line} "), format!("{line}\n"), format!(" {line}"), String::new()] {
            assert_eq!(other.parse::<Checkpoint>(), Err(BadCheckpoint));
        }
    }

    #[test]
    fn a_signature_covers_every_field() {
        let good = example();
        assert!(good.is_signed());
        let changes: [fn(&mut Checkpoint); 8] = [
            |c| c.home.0[0] ^= 1,
            |c| c.seq += 1,
            |c| c.hash.0[31] ^= 128,
            |c| c.count += 1,
            |c| c.time += 1,
            |c| c.prev.0[5] ^= 4,
            |c| c.key = public(&SigningKey::from_bytes(&[8; 32])),
            |c| c.signature.0[9] ^= 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(!bad.is_signed(), "change {number}");
        }
    }
}
