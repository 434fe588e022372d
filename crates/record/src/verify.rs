//! Is the record what was recorded? Reads it as a stream, in short transactions, so that it needs little
//! memory and holds up nobody who writes. What is not there is never taken as proof.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use hotcell_types::CallId;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};

use crate::checkpoint::{Checkpoint, Key};
use crate::db::{self, Look, pragma};
use crate::encode;
use crate::event::{Event, Kind, Side, Summary, genesis};
use crate::export::Watch;
use crate::hex::{Digest, Hex, HomeId};
use crate::row::{self, BadColumn, COLUMNS};
use crate::schema;
use crate::sink::Anchor;
use crate::store;

/// Events that are read in one transaction.
const CHUNK: usize = 1000;
/// Most intents that are open at one place of the chain.
const MOST_OPEN: usize = 1 << 20;
/// Threads that check signatures, and how many each has to do at least.
const MOST_THREADS: usize = 16;
const LEAST_EACH: usize = 32;
/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Everything: each event, each payload that is kept, each checkpoint, the database's own structure.
    Start,
    /// What came after the last checkpoint, which is taken at its word. Never proves more than that
    /// nothing is wrong there.
    LastCheckpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Everything that was checked holds, and evidence outside the database agrees with it.
    Sound,
    /// Nothing is wrong, and something is missing that would prove it.
    Unproven,
    Broken,
}

/// The first thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The event that it was found at.
    pub seq: Option<u64>,
    /// The field or the law.
    pub what: String,
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub standing: Standing,
    pub fault: Option<Fault>,
    /// Events that were read and hashed.
    pub events: u64,
    /// The last of them.
    pub head: Option<(u64, Digest)>,
    /// The last event that a checkpoint outside the database speaks for.
    pub covered: u64,
    /// Checkpoints of the database that the anchor does not have yet.
    pub pending: u64,
    /// Signatures that were checked.
    pub signatures: u64,
    pub checked: Vec<String>,
    /// What would have to be there for `Sound`.
    pub missing: Vec<String>,
    /// What cannot be found with this evidence.
    pub cannot: Vec<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "event {seq}, {}: {}", self.what, self.why),
            None => write!(f, "{}: {}", self.what, self.why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = match self.standing {
            Standing::Sound => "sound",
            Standing::Unproven => "unproven",
            Standing::Broken => "broken",
        };
        writeln!(f, "{standing}: {} events checked", self.events)?;
        if let Some(fault) = &self.fault {
            writeln!(f, "fault: {fault}")?;
        }
        let lists = [("checked", &self.checked), ("missing", &self.missing)];
        for (name, list) in lists.into_iter().chain([("cannot be found", &self.cannot)]) {
            list.iter().try_for_each(|item| writeln!(f, "{name}: {item}"))?;
        }
        Ok(())
    }
}

/// Verifies a database file, against the checkpoints in another file if there is one.
pub fn verify(database: &Path, anchor: Option<&Path>, from: From) -> Verdict {
    verify_watched(database, anchor, from, &mut |_, _| {})
}

/// The same; `watch` is told now and then how many events were looked at, and of how many.
pub fn verify_watched(
    database: &Path,
    anchor: Option<&Path>,
    from: From,
    watch: Watch<'_>,
) -> Verdict {
    let unread = |what: String| Verifier::new().end(Some(Stop::Missing(what)));
    let mut goes_on = |so_far, all| {
        watch(so_far, all);
        true
    };
    match db::connect_to_look(database, BUSY) {
        Err(error) => unread(format!("the database: {error}")),
        Ok((connection, Look::Locked)) => {
            verify_connection(&connection, database, anchor, from, &mut goes_on)
        }
        Ok((connection, Look::Unlocked(before))) => {
            let verdict = verify_connection(&connection, database, anchor, from, &mut goes_on);
            if Look::unlocked(database) == Some(before) {
                return verdict;
            }
            unread("the database: it was written meanwhile, and cannot be locked".to_owned())
        }
    }
}

/// Is told how far it is, and says whether anybody still waits for it.
type Wanted<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

pub(crate) fn verify_connection(
    connection: &Connection,
    database: &Path,
    anchor: Option<&Path>,
    from: From,
    watch: Wanted<'_>,
) -> Verdict {
    let mut verifier = Verifier::new();
    let stopped = match from {
        From::Start => verifier.all(connection, database, anchor, watch),
        From::LastCheckpoint => verifier.rest(connection, database, anchor, None),
    };
    verifier.end(stopped.err())
}

/// What a process that begins to use a record learns by verifying its end.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) verdict: Verdict,
    /// Why there is no more to say.
    pub(crate) unread: Option<String>,
    pub(crate) home: HomeId,
    pub(crate) last: Option<Last>,
    /// The last checkpoint that the anchor has, if it could be read: 0 if it has none.
    pub(crate) anchored: Option<i64>,
}

/// The last checkpoint of the database.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) number: i64,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) is_sunk: bool,
}

/// With the key that should have signed it.
pub(crate) fn verify_start(
    connection: &Connection,
    database: &Path,
    anchor: Option<&Path>,
    key: &Key,
) -> Start {
    let mut verifier = Verifier::new();
    let stopped = verifier.rest(connection, database, anchor, Some(key)).err();
    let unread = match &stopped {
        Some(Stop::Missing(what)) => Some(what.clone()),
        _ => None,
    };
    let (home, last, anchored) = (verifier.home, verifier.signed.take(), verifier.anchored);
    Start { verdict: verifier.end(stopped), unread, home, last, anchored }
}

/// Why verification does not go on.
enum Stop {
    Fault(Fault),
    /// Not to be judged.
    Missing(String),
}

/// What cannot be read is no proof that it was changed.
impl std::convert::From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Stop {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::AuthorizationForStatementDenied
                | ErrorCode::OperationInterrupted,
            ) => Stop::Missing(format!("the database: {error}")),
            _ => fault(None, "database", &error.to_string()),
        }
    }
}

/// Nobody hears of what was not looked at.
fn is_wanted(goes_on: bool) -> Result<(), Stop> {
    let missing = || Stop::Missing("the rest: nobody waited for it".to_owned());
    goes_on.then_some(()).ok_or_else(missing)
}

fn fault(seq: Option<u64>, what: &str, why: &str) -> Stop {
    Stop::Fault(Fault { seq, what: what.to_owned(), why: why.to_owned() })
}

struct Verifier {
    verdict: Verdict,
    home: HomeId,
    /// Of the tables.
    version: i64,
    signed: Option<Last>,
    anchored: Option<i64>,
    /// Intents that have not ended so far.
    open: HashMap<CallId, u64>,
    /// The number and hash that the next event follows.
    last: (u64, Digest),
    /// Where events were begun to be read: 0, or at a checkpoint.
    start: u64,
    pruned: Gone,
    /// Contents that are missing, and the last event of them.
    lost: u64,
    lost_up_to: u64,
    buffer: Vec<u8>,
}

impl Verifier {
    fn new() -> Verifier {
        let verdict = Verdict {
            standing: Standing::Broken,
            fault: None,
            events: 0,
            head: None,
            covered: 0,
            pending: 0,
            signatures: 0,
            checked: Vec::new(),
            missing: Vec::new(),
            cannot: Vec::new(),
        };
        Verifier {
            verdict,
            home: HomeId::ZERO,
            version: 0,
            signed: None,
            anchored: None,
            open: HashMap::new(),
            last: (0, Digest::ZERO),
            start: 0,
            pruned: Gone::default(),
            lost: 0,
            lost_up_to: 0,
            buffer: Vec::new(),
        }
    }

    fn end(mut self, stopped: Option<Stop>) -> Verdict {
        match stopped {
            Some(Stop::Fault(fault)) => self.verdict.fault = Some(fault),
            Some(Stop::Missing(what)) => self.verdict.missing.push(what),
            None => {}
        }
        self.verdict.standing = match (&self.verdict.fault, self.verdict.missing.is_empty()) {
            (Some(_), _) => Standing::Broken,
            (None, false) => Standing::Unproven,
            (None, true) => Standing::Sound,
        };
        self.verdict
    }

    /// From the first event on.
    fn all(
        &mut self,
        connection: &Connection,
        database: &Path,
        anchor: Option<&Path>,
        watch: Wanted<'_>,
    ) -> Result<(), Stop> {
        self.identify(connection)?;
        check_structure(connection)?;
        // What is outside is looked at before the chain: it may only grow after.
        let outside = anchor.map(Anchor::open);
        let signed = count_checkpoints(connection)?;
        let all = store::newest(connection);
        loop {
            is_wanted(watch(self.last.0, all))?;
            let tx = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
            if self.chunk(&tx, From::Start)? < CHUNK {
                self.end_of_chain()?;
                self.unfinished(&tx)?;
                self.contents()?;
                break;
            }
        }
        self.checkpoints(connection, signed, &mut || watch(all, all))?;
        self.outside(connection, outside, signed)?;
        self.explain(database, anchor);
        Ok(())
    }

    /// From the last checkpoint on. Reads no more than came after it, and the end of the anchor: what it
    /// costs does not depend on how old the record is.
    fn rest(
        &mut self,
        connection: &Connection,
        database: &Path,
        anchor: Option<&Path>,
        key: Option<&Key>,
    ) -> Result<(), Stop> {
        self.identify(connection)?;
        let outside = anchor.map(|path| Anchor::open_end(path, self.home));
        let tx = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let is_end = self.skip(&tx, key)?;
        while !is_end && self.chunk(&tx, From::LastCheckpoint)? == CHUNK {}
        self.end_of_chain()?;
        self.outside_end(&tx, outside)?;
        self.explain(database, anchor);
        Ok(())
    }

    fn identify(&mut self, connection: &Connection) -> Result<(), Stop> {
        (self.home, self.version) = identify(connection)?;
        self.last = (0, genesis(self.home));
        Ok(())
    }

    /// Begins at the last checkpoint. Whether that is also the end, as it is where the last process
    /// ended well.
    fn skip(&mut self, connection: &Connection, key: Option<&Key>) -> Result<bool, Stop> {
        let Some((number, seq, line, is_sunk)) = last_row(connection)? else {
            self.miss("checkpoints: the database has none")?;
            return Ok(false);
        };
        let checkpoint = read_checkpoint(&line, self.home)?;
        self.verdict.signatures += 1;
        let is_ours = key.is_some_and(|key| checkpoint.is_signed_by(key));
        is_signed(&checkpoint, is_ours || checkpoint.is_signed())?;
        is_listed(&checkpoint, seq)?;
        let head = store::head(connection)?;
        self.start = checkpoint.seq;
        self.last = (checkpoint.seq, checkpoint.hash);
        if head != self.last {
            agrees(connection, &checkpoint, head.0)?;
        }
        self.signed = Some(Last { number, checkpoint, is_sunk });
        self.verdict.checked.push("the last checkpoint in the database".to_owned());
        let seq = self.start;
        self.miss(&format!("a look at events 1 to {seq}: a checkpoint was taken at its word"))?;
        Ok(head == self.last)
    }

    fn end_of_chain(&mut self) -> Result<(), Stop> {
        if self.last.0 == 0 {
            let why = "there is no event, and the first is made with the home";
            return Err(fault(None, "count", why));
        }
        self.verdict.head = Some(self.last);
        self.verdict.checked.push(match self.start {
            0 => format!("events 1 to {}: every field, every link, intents and ends", self.last.0),
            start => format!("events {} to {}", start + 1, self.last.0),
        });
        Ok(())
    }

    fn chunk(&mut self, tx: &Transaction<'_>, from: From) -> Result<usize, Stop> {
        let next = format!("SELECT {COLUMNS} FROM event WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut next = tx.prepare_cached(&next)?;
        // What is numbered below the first must not be there either.
        let after = if self.last.0 == 0 { i64::MIN } else { self.last.0 as i64 };
        let mut rows = next.query((after, CHUNK as i64))?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            let seq = self.last.0 + 1;
            let event = row::read(row).map_err(|bad| bad_column(seq, &bad))?;
            self.event(tx, &event)?;
            if from == From::Start {
                for (side, summary) in event.payloads() {
                    self.content(tx, event.seq, side, summary)?;
                }
            }
            read += 1;
        }
        Ok(read)
    }

    fn event(&mut self, tx: &Transaction<'_>, event: &Event) -> Result<(), Stop> {
        let (seq, prev) = (self.last.0 + 1, self.last.1);
        if event.seq != seq {
            return Err(fault(Some(seq), "seq", "it is missing: the next one is another"));
        }
        if event.prev != prev {
            return Err(fault(Some(seq), "prev", "it does not follow the event before it"));
        }
        self.hashes(event)?;
        if (event.kind == Kind::Opened) != (seq == 1) {
            return Err(fault(
                Some(seq),
                "kind",
                "the first event, and only the first, opens a home",
            ));
        }
        self.laws(tx, event)?;
        if event.kind == Kind::Pruned {
            self.pruned.take(event)?;
        }
        self.last = (seq, event.hash);
        self.verdict.events += 1;
        Ok(())
    }

    fn hashes(&mut self, event: &Event) -> Result<(), Stop> {
        let hash = encode::hash(event, &mut self.buffer);
        let hash =
            hash.map_err(|unknown| fault(Some(event.seq), "version", &unknown.to_string()))?;
        if hash != event.hash {
            return Err(fault(Some(event.seq), "hash", "a field is not what was hashed"));
        }
        Ok(())
    }

    /// Every end closes one open intent.
    fn laws(&mut self, tx: &Transaction<'_>, event: &Event) -> Result<(), Stop> {
        let broken = |why| fault(Some(event.seq), "intents and ends", why);
        if event.kind != Kind::Intent && !event.kind.is_end() {
            return Ok(());
        }
        let call = event.call.ok_or_else(|| broken("it has no call"))?;
        if event.kind == Kind::Intent {
            if self.open.insert(call, event.seq).is_some() {
                return Err(broken("its call is open already"));
            }
            if self.open.len() > MOST_OPEN {
                return Err(Stop::Missing("memory: too many intents are open at once".to_owned()));
            }
        } else if self.open.remove(&call).is_none() && !self.began_before(tx, call)? {
            return Err(broken("it ends a call that is not open"));
        }
        Ok(())
    }

    /// Whether the call was begun in the part that was not read.
    fn began_before(&self, tx: &Transaction<'_>, call: CallId) -> rusqlite::Result<bool> {
        if self.start == 0 {
            return Ok(false);
        }
        let begun = "SELECT 1 FROM event WHERE call = ?1 AND kind = 'intent' AND seq <= ?2";
        let row = (call.to_bytes(), self.start as i64);
        tx.prepare_cached(begun)?.exists(row)
    }

    fn content(
        &mut self,
        tx: &Transaction<'_>,
        seq: u64,
        side: Side,
        summary: &Summary,
    ) -> Result<(), Stop> {
        let content = match self.version {
            1 | 2 => row::shared_content(tx, summary)?,
            _ => row::content(tx, seq, side, summary)?,
        };
        match content {
            Some(content) if summary.is_of(&content) => Ok(()),
            Some(_) => Err(fault(Some(seq), "payload", "its content is not what was hashed")),
            None => {
                self.lost += 1;
                self.lost_up_to = seq;
                Ok(())
            }
        }
    }

    /// Contents go only by being pruned, which is an event that says up to where.
    fn contents(&self) -> Result<(), Stop> {
        if self.lost_up_to <= self.pruned.up_to.max(self.pruned.untold) {
            return Ok(());
        }
        let why = "its content is missing, and was not pruned";
        Err(fault(Some(self.lost_up_to), "payload", why))
    }

    fn unfinished(&self, tx: &Transaction<'_>) -> Result<(), Stop> {
        let wrong =
            || fault(None, "unfinished", "it is not the list of the intents without an end");
        let mut listed = tx.prepare("SELECT call, seq FROM unfinished")?;
        let mut rows = listed.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let call: Option<Hex<16>> = row.get_ref(0)?.as_blob().ok().and_then(Hex::from_slice);
            let seq: i64 = row.get(1)?;
            let call = call.map(|Hex(bytes)| CallId::from_bytes(bytes)).ok_or_else(wrong)?;
            if self.open.get(&call).copied() != u64::try_from(seq).ok() {
                return Err(wrong());
            }
            count += 1;
        }
        if count == self.open.len() { Ok(()) } else { Err(wrong()) }
    }

    /// Those in the database: each signed, each after the one before, each true.
    fn checkpoints(
        &mut self,
        connection: &Connection,
        signed: i64,
        still: &mut dyn FnMut() -> bool,
    ) -> Result<(), Stop> {
        if signed == 0 {
            return self.miss("checkpoints: the database has none");
        }
        // Also what is numbered below the first.
        let (mut after, mut number, mut prev) = (i64::MIN, 0, genesis(self.home));
        let mut key = None;
        loop {
            is_wanted(still())?;
            let rows = checkpoint_rows(connection, after, signed)?;
            let read: Result<Vec<_>, Stop> =
                rows.iter().map(|(_, _, line)| read_checkpoint(line, self.home)).collect();
            let read = read?;
            let signatures = check_signatures(&read);
            for (((found, seq, _), checkpoint), is_right) in rows.iter().zip(&read).zip(signatures)
            {
                self.verdict.signatures += 1;
                is_signed(checkpoint, is_right)?;
                is_listed(checkpoint, *seq)?;
                number += 1;
                let wrong = |why| Err(fault(Some(checkpoint.seq), "checkpoint", why));
                if *found != number || checkpoint.prev != prev {
                    return wrong("it does not follow the one before it");
                }
                if key.is_some_and(|key| key != checkpoint.key) {
                    return wrong("another key signed it");
                }
                agrees(connection, checkpoint, self.last.0)?;
                (after, prev, key) = (*found, checkpoint.digest(), Some(checkpoint.key));
            }
            if rows.len() < CHUNK {
                break;
            }
        }
        if number != signed {
            return Err(fault(None, "checkpoint", "some of them are missing"));
        }
        self.verdict.checked.push(format!("{number} checkpoints in the database"));
        Ok(())
    }

    /// Those outside it.
    fn outside(
        &mut self,
        connection: &Connection,
        anchor: Option<io::Result<Anchor>>,
        signed: i64,
    ) -> Result<(), Stop> {
        let mut anchor = match anchor {
            None => return self.miss("an anchor: nothing outside the database was compared"),
            Some(Err(error)) => return self.miss(&format!("the anchor: {error}")),
            Some(Ok(anchor)) => anchor,
        };
        let key = last_checkpoint(connection)?.and_then(|line| line.parse::<Checkpoint>().ok());
        let key = key.map(|checkpoint| checkpoint.key);
        let (mut ours, mut others, mut unreadable) = (0, 0, 0);
        let unread = |error: io::Error| Stop::Missing(format!("the anchor: {error}"));
        while let Some(line) = anchor.next().map_err(unread)? {
            match line {
                None => unreadable += 1,
                Some(checkpoint) if checkpoint.home != self.home => others += 1,
                Some(checkpoint) => {
                    self.anchored(connection, &checkpoint, key, signed)?;
                    ours += 1;
                }
            }
        }
        let told = format!("{ours} checkpoints in the anchor");
        self.verdict.checked.push(match (others, unreadable) {
            (0, 0) => told,
            _ => format!("{told}; {others} are of other homes, {unreadable} cannot be read"),
        });
        self.pending(signed)
    }

    /// The last ones outside it.
    fn outside_end(
        &mut self,
        connection: &Connection,
        anchor: Option<io::Result<Vec<String>>>,
    ) -> Result<(), Stop> {
        let lines = match anchor {
            None => return self.miss("an anchor: nothing outside the database was compared"),
            Some(Err(error)) => {
                self.anchored = (error.kind() == io::ErrorKind::NotFound).then_some(0);
                return self.miss(&format!("the anchor: {error}"));
            }
            Some(Ok(lines)) => lines,
        };
        let signed = self.signed.as_ref();
        let (key, signed, last) = match signed {
            Some(last) => (Some(last.checkpoint.key), last.number, last.checkpoint.to_string()),
            None => (None, 0, String::new()),
        };
        if lines.contains(&last) {
            self.anchored = Some(signed);
            self.verdict.covered = self.start;
        }
        // What the last checkpoint covers is taken at its word, unless the anchor is behind it.
        let (is_behind, start) = (self.anchored.is_none(), self.start);
        let is_covered = |line: &&String| seq_of(line).is_some_and(|seq| seq < start);
        let rest = lines.iter().filter(|line| **line != last && (is_behind || !is_covered(line)));
        for checkpoint in rest.filter_map(|line| line.parse().ok()) {
            self.anchored(connection, &checkpoint, key, signed)?;
        }
        self.verdict.checked.push(format!("the last {} checkpoints in the anchor", lines.len()));
        self.pending(signed)
    }

    /// After all that the anchor has.
    fn pending(&mut self, signed: i64) -> Result<(), Stop> {
        let sunk = *self.anchored.get_or_insert(0);
        if sunk == 0 {
            return self.miss("the anchor: it has no checkpoint of this home");
        }
        self.verdict.pending = signed.saturating_sub(sunk).unsigned_abs();
        Ok(())
    }

    /// A checkpoint of the anchor. One that the database has as well is what was checked there, letter
    /// by letter, or taken at its word; only for another one the signature says who is wrong.
    fn anchored(
        &mut self,
        connection: &Connection,
        checkpoint: &Checkpoint,
        key: Option<Hex<32>>,
        signed: i64,
    ) -> Result<(), Stop> {
        let known = "SELECT number FROM checkpoint
            WHERE seq = ?1 AND line = ?2 AND number BETWEEN 1 AND ?3";
        let row = (checkpoint.seq as i64, checkpoint.to_string(), signed);
        let known: Option<i64> = match signed {
            0 => None,
            _ => connection.prepare_cached(known)?.query_row(row, |row| row.get(0)).optional()?,
        };
        if let Some(number) = known {
            self.anchored = self.anchored.max(Some(number));
            self.verdict.covered = self.verdict.covered.max(checkpoint.seq);
            return Ok(());
        }
        let wrong = |why| Err(fault(Some(checkpoint.seq), "anchor", why));
        self.verdict.signatures += 1;
        if !checkpoint.is_signed() {
            return wrong("a checkpoint has a wrong signature");
        }
        if key.is_some_and(|key| key != checkpoint.key) {
            return wrong("another key signed the checkpoints of the database");
        }
        agrees(connection, checkpoint, self.last.0)?;
        wrong("the database does not have this checkpoint")
    }

    fn miss(&mut self, what: &str) -> Result<(), Stop> {
        self.verdict.missing.push(what.to_owned());
        Ok(())
    }

    fn explain(&mut self, database: &Path, anchor: Option<&Path>) {
        let Verdict { covered, pending, cannot, missing, .. } = &mut self.verdict;
        let last = self.last.0;
        if *covered < last {
            cannot.push(format!(
                "a cut or a rewrite of events {} to {last}: no checkpoint outside covers them yet",
                *covered + 1
            ));
        }
        if *pending > 0 {
            cannot.push(format!(
                "{pending} checkpoints are pending: the anchor does not have them yet"
            ));
        }
        if self.lost > 0 {
            cannot.push(format!("changes to {} contents that are no longer kept", self.lost));
        }
        let Gone { up_to, untold } = self.pruned;
        if self.lost > 0 && untold > up_to {
            cannot.push(format!(
                "which contents of events {} to {untold} were taken away: an older hotcell pruned some \
                 and did not say which",
                up_to + 1
            ));
        }
        let is_beside = |path: &Path| path.parent() == database.parent();
        if anchor.is_some_and(is_beside) && missing.is_empty() {
            cannot.push(
                "a rewrite by somebody who can also write the anchor and read the key, \
                 which lie beside the database"
                    .to_owned(),
            );
        }
        cannot.push(
            "a rewrite by somebody who has the signing key and can change the anchor".to_owned(),
        );
    }
}

/// Which contents need not be there.
#[derive(Debug, Clone, Copy, Default)]
struct Gone {
    /// Up to this event they were pruned.
    up_to: u64,
    /// Up to this event some were, before it was told which.
    untold: u64,
}

impl Gone {
    fn take(&mut self, event: &Event) -> Result<(), Stop> {
        let before = event.seq.saturating_sub(1);
        let Some(told) = event.state.as_deref() else {
            self.untold = self.untold.max(before);
            return Ok(());
        };
        let up_to = told.parse().ok().filter(|up_to: &u64| up_to.to_string() == told);
        let Some(up_to) = up_to.filter(|up_to| *up_to <= before) else {
            let why = "it does not say up to which event before it contents were pruned";
            return Err(fault(Some(event.seq), "state", why));
        };
        self.up_to = self.up_to.max(up_to);
        Ok(())
    }
}

impl Summary {
    /// Whether this is what was kept of it.
    pub(crate) fn is_of(&self, content: &[u8]) -> bool {
        match self.head {
            Some(head) => Digest::of(content) == head,
            None => content.len() as u64 == self.length && Digest::of(content) == self.digest,
        }
    }
}

/// The home's id and the version of its tables, if this is a record whose tables are known.
fn identify(connection: &Connection) -> Result<(HomeId, i64), Stop> {
    let application: i64 = pragma(connection, "application_id")?;
    if application != schema::APPLICATION_ID {
        return Err(fault(None, "application_id", "another program made this database"));
    }
    let version: i64 = pragma(connection, "user_version")?;
    if !(1..=schema::VERSION).contains(&version) {
        return Err(Stop::Missing(format!("knowledge of tables of version {version}")));
    }
    let mut meta = connection.prepare("SELECT value FROM meta WHERE name = ?1")?;
    let mut meta = |name: &str| meta.query_row([name], |row| row.get::<_, Vec<u8>>(0)).optional();
    let home: Option<HomeId> = meta("home")?.as_deref().and_then(Hex::from_slice);
    let home =
        home.ok_or_else(|| fault(None, "home", "the database does not say which home it is of"))?;
    if meta("genesis")?.as_deref() != Some(&genesis(home).0) {
        return Err(fault(None, "genesis", "it is not that of this home"));
    }
    Ok((home, version))
}

fn check_structure(connection: &Connection) -> Result<(), Stop> {
    let check = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    match connection.query_row("PRAGMA integrity_check(1)", [], check)?.as_str() {
        "ok" => Ok(()),
        found => Err(fault(None, "database", found)),
    }
}

/// 0 also where there is no table for them yet.
fn count_checkpoints(connection: &Connection) -> rusqlite::Result<i64> {
    Ok(last_row(connection)?.map_or(0, |(number, ..)| number.max(0)))
}

pub(crate) fn last_checkpoint(connection: &Connection) -> rusqlite::Result<Option<String>> {
    Ok(last_row(connection)?.map(|(_, _, line, _)| line))
}

/// Number, event, line, and whether the sink has it.
type Row = (i64, i64, String, bool);

fn last_row(connection: &Connection) -> rusqlite::Result<Option<Row>> {
    if pragma::<i64>(connection, "user_version")? < 2 {
        return Ok(None);
    }
    let last = "SELECT number, seq, line, is_sunk FROM checkpoint ORDER BY number DESC LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    connection.prepare_cached(last)?.query_row([], read).optional()
}

fn checkpoint_rows(
    connection: &Connection,
    after: i64,
    last: i64,
) -> rusqlite::Result<Vec<(i64, i64, String)>> {
    let next = "SELECT number, seq, line FROM checkpoint WHERE number > ?1 AND number <= ?2
        ORDER BY number LIMIT ?3";
    let mut next = connection.prepare_cached(next)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    next.query_map((after, last, CHUNK as i64), read)?.collect()
}

fn read_checkpoint(line: &str, home: HomeId) -> Result<Checkpoint, Stop> {
    let wrong = |seq, why| fault(seq, "checkpoint", why);
    let checkpoint: Checkpoint =
        line.parse().map_err(|_| wrong(None, "a line of the database is not one"))?;
    if checkpoint.home != home {
        return Err(wrong(Some(checkpoint.seq), "it is of another home"));
    }
    Ok(checkpoint)
}

fn is_signed(checkpoint: &Checkpoint, is_right: bool) -> Result<(), Stop> {
    if is_right {
        return Ok(());
    }
    Err(fault(Some(checkpoint.seq), "checkpoint", "its signature is wrong"))
}

fn is_listed(checkpoint: &Checkpoint, seq: i64) -> Result<(), Stop> {
    let wrong = |why| Err(fault(Some(checkpoint.seq), "checkpoint", why));
    if u64::try_from(seq) != Ok(checkpoint.seq) {
        return wrong("it is listed for another event");
    }
    if checkpoint.count != checkpoint.seq {
        return wrong("it counts other events than there are");
    }
    Ok(())
}

/// Each by itself and strictly, as a batch is not; by as many threads as there are processors.
fn check_signatures(checkpoints: &[Checkpoint]) -> Vec<bool> {
    let check = |part: &[Checkpoint]| part.iter().map(Checkpoint::is_signed).collect::<Vec<_>>();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let each = checkpoints.len().div_ceil(threads).max(LEAST_EACH);
    thread::scope(|scope| {
        let begin = |part| thread::Builder::new().spawn_scoped(scope, move || check(part)).ok();
        let parts: Vec<_> = checkpoints.chunks(each).collect();
        // The first part is this thread's, and each for which there is no other.
        let others: Vec<_> = parts.iter().skip(1).map(|part| begin(part)).collect();
        let done = |other: Option<ScopedJoinHandle<'_, _>>| other.and_then(|it| it.join().ok());
        let all = parts.iter().zip([None].into_iter().chain(others));
        all.flat_map(|(part, other)| done(other).unwrap_or_else(|| check(part))).collect()
    })
}

/// Whether the chain has what a checkpoint says.
fn agrees(connection: &Connection, checkpoint: &Checkpoint, last: u64) -> Result<(), Stop> {
    let seq = checkpoint.seq;
    if checkpoint.count != seq {
        return Err(fault(Some(seq), "checkpoint", "it counts other events than there are"));
    }
    if seq > last {
        return Err(cut(seq));
    }
    let hash = "SELECT hash FROM event WHERE seq = ?1";
    let hash: Option<Vec<u8>> =
        connection.prepare_cached(hash)?.query_row([seq as i64], |row| row.get(0)).optional()?;
    if hash.as_deref() == Some(&checkpoint.hash.0) { Ok(()) } else { Err(rewritten(seq)) }
}

fn cut(seq: u64) -> Stop {
    let why = "a checkpoint speaks of it and it is not there: the end was cut off, \
        or an old copy put in place";
    fault(Some(seq), "count", why)
}

fn rewritten(seq: u64) -> Stop {
    fault(Some(seq), "hash", "a checkpoint has another: the history was rewritten")
}

fn bad_column(seq: u64, BadColumn(column): &BadColumn) -> Stop {
    fault(Some(seq), column, "it has nothing in it that hotcell writes")
}

/// Without a look at the rest of the line.
fn seq_of(line: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix("seq=")?.parse().ok())
}
