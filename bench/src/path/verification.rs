//! Verification of a long record, beside plain SHA-256 over the bytes that it hashes.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_record::{
    Draft, Durability, Filter, From, Kind, Options, Payload, Record, Standing, encode, now,
};
use hotcell_types::{CallId, Caller, Decision, Door, Name, Status};
use sha2::{Digest, Sha256};

use crate::peers::Failure;

/// Events of one transaction.
const TOGETHER: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Verified {
    pub(super) events: usize,
    /// How long it took to record them.
    pub(super) made: Duration,
    /// Of what is hashed, in all.
    pub(super) bytes: u64,
    /// Events per second, of each round.
    pub(super) verified: Vec<f64>,
    pub(super) hashed: Vec<f64>,
}

pub(super) fn measure(home: &Path, events: usize, rounds: usize) -> Result<Verified, Failure> {
    let record = Record::open(home, Options::default())?;
    let begun = Instant::now();
    for first in (0..events).step_by(TOGETHER) {
        let drafts = (first..events.min(first + TOGETHER)).map(draft).collect();
        record.write(Durability::Committed, move |_| Ok::<_, Infallible>(((), drafts)))?;
    }
    record.checkpoint()?;
    let mut all = Verified { events, made: begun.elapsed(), ..Verified::default() };
    for _ in 0..rounds {
        let begun = Instant::now();
        let verdict = record.verify(From::Start)?;
        let took = begun.elapsed().as_secs_f64();
        if verdict.standing != Standing::Sound || verdict.events < events as u64 {
            return Err(format!("the record is not what was recorded: {verdict}").into());
        }
        all.verified.push(verdict.events as f64 / took);
        let (bytes, took) = hash(&record)?;
        all.bytes = bytes;
        all.hashed.push(verdict.events as f64 / took.as_secs_f64());
    }
    record.close()?;
    Ok(all)
}

/// As a call of `add` leaves it.
fn draft(number: usize) -> Draft {
    let mut draft = Draft::new(Kind::Called, Caller::local(Name::LOCAL, Door::Library), now());
    let mut chance = [0; 10];
    for (place, byte) in chance.iter_mut().zip(number.to_le_bytes()) {
        *place = byte;
    }
    let payload = |text: String| {
        Some(Payload { media: "application/json".into(), content: text.into_bytes() })
    };
    draft.call = Some(CallId::new(1, chance));
    draft.operation = Some("add".into());
    draft.tool = Some("add@1.0.0".into());
    draft.decision = Some(Decision::Allow);
    draft.rules = vec!["pure-tools".into()];
    draft.status = Some(Status::Success);
    draft.input = payload(format!(r#"{{"a":{number},"b":2}}"#));
    draft.output = payload((number + 2).to_string());
    draft.duration_ns = Some(10_000);
    draft
}

/// How many bytes verification hashes, and how long it takes to hash them and nothing else.
fn hash(record: &Record) -> Result<(u64, Duration), Failure> {
    let mut filter = Filter::of(Name::LOCAL);
    let (mut bytes, mut took) = (0, Duration::ZERO);
    loop {
        let page = record.events(&filter)?;
        let Some(last) = page.last() else { return Ok((bytes, took)) };
        filter.after = last.seq;
        let mut texts = Vec::with_capacity(3 * page.len());
        for event in &page {
            let mut text = Vec::new();
            encode(event, &mut text)?;
            texts.push(text);
            texts.extend(record.input(event)?);
            texts.extend(record.output(event)?);
        }
        let begun = Instant::now();
        for text in &texts {
            std::hint::black_box(Sha256::digest(text));
        }
        took += begun.elapsed();
        bytes += texts.iter().map(|text| text.len() as u64).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_verified_as_were_made() {
        let directory = tempfile::tempdir().unwrap();
        let verified = measure(&directory.path().join("home"), 2500, 1).unwrap();
        assert_eq!((verified.events, verified.verified.len()), (2500, 1));
        assert!(verified.bytes > 2500 * 200 && verified.hashed[0] > 0.0, "{verified:?}");
    }
}
