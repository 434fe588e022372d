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
/// Parts of a hundred of what there may be from which on it is warned, and from which on that is urgent.
const WARNING: u64 = 80;
const CRITICAL: u64 = 95;
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// Below a home: when it was looked at last.
const STAMP: &str = "run/room";
/// Most rounds of removals, of a thousand contents each.
const MOST_ROUNDS: usize = 1_000_000;

/// What is to be kept.
#[derive(Debug, Clone)]
pub struct Keep {
    /// What is younger; nothing means everything, as far as there is room.
    pub age: Option<Duration>,
    /// As many bytes on the disk.
    pub quota: u64,
    /// Of arguments and results of calls, which are in the record, no more than that either.
    pub payloads: RetentionPolicy,
}

/// What has little room left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    pub used: u64,
    pub most: u64,
    /// Soon there is none.
    pub is_critical: bool,
}

impl Full {
    fn of(used: u64, most: u64) -> Option<Full> {
        let is_above = |part: u64| u128::from(used) * 100 >= u128::from(most) * u128::from(part);
        is_above(WARNING).then(|| Full { used, most, is_critical: is_above(CRITICAL) })
    }
}

/// The home, and the record in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub home: Option<Full>,
    pub record: Option<Full>,
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
        let before = ages.before(keep.age, surplus);
        let payloads_before = before.max(ages.payloads_before(&keep.payloads));
        if gc == Gc::OnlyTell {
            return Ok(Collected { environments, used, ..ages.older(before, payloads_before) });
        }
        let Some(payloads_before) = payloads_before else {
            // What went another time may not have been given back then.
            let compacted = self.compact(record)?;
            return Ok(Collected { environments, used, compacted, ..Collected::default() });
        };
        let contents = before.map(|before| self.give_up(record, caller, before)).transpose()?;
        let contents = contents.unwrap_or_default();
        let age = u64::try_from(now().saturating_sub(payloads_before)).unwrap_or(0);
        let policy = RetentionPolicy { keep: Duration::from_nanos(age), most_bytes: u64::MAX };
        let pruned = record.prune(&policy).map_err(|error| not_removed(&error))?;
        if let Some(before) = before {
            self.forget_items(before)?;
            self.forget_keys(before)?;
        }
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
        let database = used_by(self.recording()?)?;
        let contents = self.artifacts.used().map_err(|error| {
            let fix = "see that the directory is yours";
            Problem::new("the home cannot be measured", cause(&error), fix)
        })?;
        let environments = self.environments_used()?;
        Ok(database.saturating_add(contents).saturating_add(environments))
    }

    /// Whether nobody has looked for a day.
    pub fn is_to_be_measured(&self) -> bool {
        let seen = fs::metadata(self.home().join(STAMP)).and_then(|found| found.modified());
        let age = seen.ok().and_then(|seen| SystemTime::now().duration_since(seen).ok());
        age.is_none_or(|age| age >= LOOK_EVERY)
    }

    /// What comes near the quota, or near what the record may have. It is looked at once a day at most:
    /// otherwise this costs next to nothing.
    pub fn is_nearly_full(&self, quota: u64, record: u64) -> Option<Room> {
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
        let of_record = self.recording().and_then(used_by).ok()?;
        let of_home = self.used().ok()?;
        let room = Room { home: Full::of(of_home, quota), record: Full::of(of_record, record) };
        (room != Room::default()).then_some(room)
    }
}

/// Without what is free inside, and without its log, which is written over again and again.
fn used_by(record: &Record) -> Result<u64, Problem> {
    let free = record.free().map_err(|error| not_read(&error.into()))?;
    let length = fs::metadata(record.database()).map_or(0, |found| found.len());
    Ok(length.saturating_sub(free))
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
        record.prunable(|time, count, bytes| {
            let amount = ages.payloads.entry(time.div_euclid(GRAIN)).or_default();
            amount.count += count;
            amount.bytes = amount.bytes.saturating_add(bytes);
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
        let mut all: BTreeMap<i64, u64> = BTreeMap::new();
        for (moment, amount) in self.contents.iter().chain(&self.payloads) {
            let bytes = all.entry(*moment).or_default();
            *bytes = bytes.saturating_add(amount.bytes);
        }
        age.map(ago).max(until_gained(all, surplus))
    }

    /// The same of the payloads alone.
    fn payloads_before(&self, kept: &RetentionPolicy) -> Option<i64> {
        let old = ago(kept.keep);
        let oldest = self.payloads.first_key_value();
        let old = oldest.filter(|(moment, _)| moment.saturating_mul(GRAIN) < old).map(|_| old);
        let bytes = || self.payloads.iter().map(|(moment, amount)| (*moment, amount.bytes));
        let total = bytes().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(bytes));
        old.max(until_gained(bytes(), total.saturating_sub(kept.most_bytes)))
    }

    fn older(&self, before: Option<i64>, payloads_before: Option<i64>) -> Collected {
        Collected {
            contents: sum(&self.contents, before),
            payloads: sum(&self.payloads, payloads_before),
            ..Collected::default()
        }
    }
}

fn ago(age: Duration) -> i64 {
    now().saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
}

/// The end of the moments that have so much together, the oldest first.
fn until_gained(all: impl IntoIterator<Item = (i64, u64)>, surplus: u64) -> Option<i64> {
    let mut gained = 0_u64;
    let mut end: Option<i64> = None;
    for (moment, bytes) in all {
        if gained >= surplus {
            break;
        }
        gained = gained.saturating_add(bytes);
        end = Some(moment.saturating_add(1).saturating_mul(GRAIN));
    }
    // What is being written just now is left alone.
    end.map(|moment| moment.min(now()))
}

/// A moment that is cut in two counts as a whole.
fn sum(amounts: &BTreeMap<i64, Amount>, before: Option<i64>) -> Amount {
    let Some(before) = before else { return Amount::default() };
    let old = amounts.range(..=before.saturating_sub(1).div_euclid(GRAIN));
    old.fold(Amount::default(), |sum, (_, amount)| Amount {
        count: sum.count + amount.count,
        bytes: sum.bytes.saturating_add(amount.bytes),
    })
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
        let told = ages.older(Some(3 * GRAIN), Some(3 * GRAIN));
        assert_eq!((told.contents, told.payloads), (amount(10), amount(5)));
        let told = ages.older(None, Some(3 * GRAIN));
        assert_eq!((told.contents, told.payloads), (Amount::default(), amount(5)));
        assert!(ages.before(Some(Duration::ZERO), 0).is_some());
    }

    #[test]
    fn payloads_go_by_themselves_by_age_and_by_size() {
        let amount = |bytes| Amount { count: 1, bytes };
        let minute = |ago: i64| now().div_euclid(GRAIN) - ago;
        let ages = Ages {
            payloads: BTreeMap::from([(minute(100), amount(5)), (minute(10), amount(7))]),
            ..Ages::default()
        };
        let kept = |minutes: u64, most_bytes| RetentionPolicy {
            keep: Duration::from_secs(minutes * 60),
            most_bytes,
        };
        let gone =
            |kept: &RetentionPolicy| ages.older(None, ages.payloads_before(kept)).payloads.bytes;
        for (minutes, most, bytes) in
            [(1000, 12, 0), (1000, 11, 5), (1000, 6, 12), (50, 12, 5), (5, 12, 12), (50, 0, 12)]
        {
            assert_eq!(gone(&kept(minutes, most)), bytes, "{minutes} {most}");
        }
        assert_eq!(ages.payloads_before(&kept(1000, 12)), None);
    }

    #[test]
    fn it_is_warned_at_80_percent_and_urgent_at_95() {
        for (used, expected) in
            [(79, None), (80, Some(false)), (94, Some(false)), (95, Some(true)), (200, Some(true))]
        {
            assert_eq!(Full::of(used, 100).map(|full| full.is_critical), expected, "{used}");
        }
        assert_eq!(Full::of(u64::MAX - 1, u64::MAX).map(|full| full.is_critical), Some(true));
    }
}
