//! Room in a home: what is used, and what can be removed. Everything that goes was recorded before one
//! moment, the oldest first; the chain, and what has a tag or a verdict, stays.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, SystemTime};

use hotcell_ledger::{self as ledger, By, Error};
use hotcell_record::{Compacted, Durability, Record, RetentionPolicy, now};
use hotcell_sandbox::cause;
use hotcell_types::Caller;

use crate::artifacts::{LookError, Origin, not_read, of_row};
use crate::backup;
use crate::engine::{Engine, new_id};
use crate::live;
use crate::reply::Problem;

/// How fine moments are told apart when it is decided what is the oldest.
const GRAIN: i64 = 60_000_000_000;
/// Parts of a hundred of the quota from which on it is warned.
const WARNING: u64 = 80;
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// Below a home: when it was looked at last.
const STAMP: &str = "run/room";
/// Most rounds of removals, of a thousand contents each.
const MOST_ROUNDS: usize = 1_000_000;

/// What is to be kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// What is younger; nothing means everything, as far as there is room.
    pub age: Option<Duration>,
    /// As many bytes on the disk.
    pub quota: u64,
}

/// Whether to do it, or only to say what would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gc {
    Remove,
    OnlyTell,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Of artifacts.
    pub contents: Amount,
    /// Trees of environments that no name stands for.
    pub environments: Amount,
    /// Arguments and results of calls.
    pub payloads: Amount,
    /// Bytes of the home, before.
    pub used: u64,
    /// What became of the record's file, whose free parts are given back where that pays.
    pub compacted: Option<Compacted>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub count: u64,
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Engine {
    /// Removes what is neither young enough nor fits, beside others who use the home.
    pub fn gc(&self, caller: &Caller, keep: Keep, gc: Gc) -> Result<Collected, Problem> {
        let record = self.recording()?;
        let used = self.used()?;
        let environments = self.collect_environments(gc == Gc::Remove)?;
        let ages = Ages::of(record).map_err(|error| not_read(&error))?;
        let surplus = used.saturating_sub(environments.bytes).saturating_sub(keep.quota);
        let Some(before) = ages.before(keep.age, surplus) else {
            // What went another time may not have been given back then.
            let compacted = if gc == Gc::Remove { self.compact(record)? } else { None };
            return Ok(Collected { environments, used, compacted, ..Collected::default() });
        };
        if gc == Gc::OnlyTell {
            return Ok(Collected { environments, used, ..ages.older(before) });
        }
        let contents = self.give_up(record, caller, before)?;
        let age = u64::try_from(now().saturating_sub(before)).unwrap_or(0);
        let policy = RetentionPolicy { keep: Duration::from_nanos(age), most_bytes: u64::MAX };
        let pruned = record.prune(&policy).map_err(|error| not_removed(&error))?;
        self.forget_items(before)?;
        self.forget_keys(before)?;
        self.sweep(record)?;
        let payloads = Amount { count: pruned.contents, bytes: pruned.bytes };
        let compacted = self.compact(record)?;
        Ok(Collected { contents, environments, payloads, used, compacted })
    }

    fn compact(&self, record: &Record) -> Result<Option<Compacted>, Problem> {
        record.compact().map(Some).map_err(|error| not_removed(&error))
    }

    /// Rows first; a file goes only when nothing speaks of it any more.
    fn give_up(&self, record: &Record, caller: &Caller, before: i64) -> Result<Amount, Problem> {
        let origin = Origin { call: new_id(), caller: caller.clone(), tool: None, time: now() };
        let mut amount = Amount::default();
        for _ in 0..MOST_ROUNDS {
            let origin = origin.clone();
            let write = move |tx: &ledger::Transaction<'_>| {
                ledger::migrate(tx)?;
                let by = By {
                    tenant: origin.caller.tenant.clone(),
                    subject: origin.caller.subject.clone(),
                    time: origin.time,
                };
                let Some((pruning, statement)) = ledger::prune(tx, &by, before)? else {
                    return Ok((None, Vec::new()));
                };
                let mut draft = of_row(&origin, &statement);
                draft.operation = Some("gc".into());
                Ok::<_, Error>((Some(pruning), vec![draft]))
            };
            let written = record.write(Durability::Synced, write);
            let (pruning, _) = written.map_err(|error| not_removed(&error))?;
            let Some(pruning) = pruning else { break };
            pruning.contents.iter().for_each(|pruned| amount.add(pruned.blob.size));
        }
        Ok(amount)
    }

    fn sweep(&self, record: &Record) -> Result<(), Problem> {
        let is_referenced = |digest: &ledger::Digest| {
            record.look(|conn| ledger::is_referenced(conn, digest).map_err(LookError::from))
        };
        let store = self.artifacts.store().map_err(|error| not_removed(&error))?;
        store.sweep(is_referenced).map_err(|error| not_removed(&error))?;
        let swept = live::sweep(&live::directory(self.home())).and(backup::sweep(self.home()));
        match swept {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(not_removed(&error)),
            _ => Ok(()),
        }
    }

    /// Bytes on the disk, without what is free inside the record.
    pub fn used(&self) -> Result<u64, Problem> {
        let record = self.recording()?;
        let free = record.free().map_err(|error| not_read(&error.into()))?;
        // Without its log, which is written over again and again.
        let database = fs::metadata(record.database()).map_or(0, |found| found.len());
        let contents = self.artifacts.used().map_err(|error| {
            let fix = "see that the directory is yours";
            Problem::new("the home cannot be measured", cause(&error), fix)
        })?;
        let environments = self.environments_used()?;
        Ok(database.saturating_sub(free).saturating_add(contents).saturating_add(environments))
    }

    /// Whether nobody has looked for a day.
    pub fn is_to_be_measured(&self) -> bool {
        let seen = fs::metadata(self.home().join(STAMP)).and_then(|found| found.modified());
        let age = seen.ok().and_then(|seen| SystemTime::now().duration_since(seen).ok());
        age.is_none_or(|age| age >= LOOK_EVERY)
    }

    /// The bytes that are used, if they come near the quota. It is looked at once a day at most: otherwise
    /// this costs next to nothing.
    pub fn is_nearly_full(&self, quota: u64) -> Option<u64> {
        if !self.is_to_be_measured() {
            return None;
        }
        // Without a stamp there would be a warning with every run.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.home().join(STAMP))
            .ok()?
            .set_modified(SystemTime::now())
            .ok()?;
        self.used().ok().filter(|used| *used >= quota / 100 * WARNING)
    }
}

/// How much there is of each moment that could go.
#[derive(Debug, Default)]
struct Ages {
    contents: BTreeMap<i64, Amount>,
    payloads: BTreeMap<i64, Amount>,
}

impl Ages {
    fn of(record: &Record) -> Result<Ages, LookError> {
        let mut ages = Ages::default();
        record.prunable(|time, bytes| {
            ages.payloads.entry(time.div_euclid(GRAIN)).or_default().add(bytes);
        })?;
        record.look(|conn| {
            if !ledger::is_current(conn)? {
                return Ok(());
            }
            ledger::prunable(conn, |one| {
                ages.contents.entry(one.time.div_euclid(GRAIN)).or_default().add(one.bytes);
            })
            .map_err(LookError::from)
        })?;
        Ok(ages)
    }

    /// The moment before which everything has to go. Nothing, if nothing has to.
    fn before(&self, age: Option<Duration>, surplus: u64) -> Option<i64> {
        let nanos = |age: Duration| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let old = age.map(|age| now().saturating_sub(nanos(age)));
        let mut all: BTreeMap<i64, u64> = BTreeMap::new();
        for (moment, amount) in self.contents.iter().chain(&self.payloads) {
            let bytes = all.entry(*moment).or_default();
            *bytes = bytes.saturating_add(amount.bytes);
        }
        let mut gained = 0_u64;
        let mut full = None;
        for (moment, bytes) in all {
            if gained >= surplus {
                break;
            }
            gained = gained.saturating_add(bytes);
            full = Some(moment.saturating_add(1).saturating_mul(GRAIN));
        }
        // What is being written just now is left alone.
        let full = full.map(|moment| moment.min(now()));
        old.max(full)
    }

    fn older(&self, before: i64) -> Collected {
        let sum = |amounts: &BTreeMap<i64, Amount>| {
            // A moment that is cut in two counts as a whole.
            let old = amounts.range(..=before.saturating_sub(1).div_euclid(GRAIN));
            old.fold(Amount::default(), |sum, (_, amount)| Amount {
                count: sum.count + amount.count,
                bytes: sum.bytes.saturating_add(amount.bytes),
            })
        };
        let (contents, payloads) = (sum(&self.contents), sum(&self.payloads));
        Collected { contents, payloads, ..Collected::default() }
    }
}

fn not_removed(error: &dyn std::error::Error) -> Problem {
    let fix = "try again; what was removed until now is recorded";
    Problem::new("not everything could be removed", error.to_string(), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_until_there_is_room_and_no_more() {
        let amount = |bytes| Amount { count: 1, bytes };
        let ages = Ages {
            contents: BTreeMap::from([(1, amount(10)), (3, amount(10))]),
            payloads: BTreeMap::from([(2, amount(5)), (4, amount(5))]),
        };
        for (surplus, expected) in
            [(0, None), (1, Some(2)), (10, Some(2)), (11, Some(3)), (16, Some(4)), (999, Some(5))]
        {
            let before = ages.before(None, surplus);
            assert_eq!(before, expected.map(|moment: i64| moment * GRAIN), "{surplus}");
        }
        let told = ages.older(3 * GRAIN);
        assert_eq!((told.contents, told.payloads), (amount(10), amount(5)));
        assert!(ages.before(Some(Duration::ZERO), 0).is_some());
    }
}
