//! What the program does: loads the rules once, and then answers one question after the other, each in
//! rooms that were made before it came.

use std::io::{self, Read, Write};

use hotcell_strip::strip;

use crate::room::Room;
use crate::wire::{Answer, MOST_REQUEST, MOST_RULES, Malformed, Place, Request, receive, send};

/// Evaluated once at the start, so that the first evaluation finds everything in memory.
const FIRST: &str = "export default (call) => ({ decision: 'allow', reason: `${call.a}` });";

/// Until `from` ends.
pub fn run(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let Some(Request::Load(files)) = ask(from)? else { return Err(Malformed.into()) };
    let (files, mut rooms) = match load(files) {
        Ok(loaded) => loaded,
        Err(place) => return answer(to, &Answer::Fault(place)),
    };
    if let Ok(first) = Room::open("first", FIRST) {
        evaluate(&[first], 0, r#"{"a": 1}"#, "{}");
    }
    answer(to, &Answer::Loaded(rooms.iter().flat_map(Room::names).collect()))?;
    while let Some(request) = ask(from)? {
        let Request::Evaluate { number, call, facts } = request else {
            return Err(Malformed.into());
        };
        answer(to, &evaluate(&rooms, number, &call, &facts))?;
        drop(rooms);
        rooms = open(&files).map_err(|place| io::Error::other(place.why))?;
    }
    Ok(())
}

fn ask(from: &mut impl Read) -> io::Result<Option<Request>> {
    let body = receive(from, MOST_REQUEST)?;
    Ok(body.map(|body| Request::read(&body)).transpose()?)
}

fn answer(to: &mut impl Write, answer: &Answer) -> io::Result<()> {
    send(to, &answer.frame().ok_or(Malformed)?)
}

type Files = Vec<(String, String)>;

fn load(files: Files) -> Result<(Files, Vec<Room>), Place> {
    let stripped = files.into_iter().map(|(name, source)| match strip(&source) {
        Ok(plain) => Ok((name, plain)),
        Err(fault) => Err(Place {
            file: name,
            line: u32::try_from(fault.line).unwrap_or_default(),
            column: u32::try_from(fault.column).unwrap_or_default(),
            what: fault.what,
            why: fault.why,
            fix: fault.fix,
        }),
    });
    let files: Files = stripped.collect::<Result<_, _>>()?;
    let rooms = open(&files)?;
    let count = rooms.iter().flat_map(Room::names).count();
    if count > MOST_RULES {
        return Err(Place {
            file: String::new(),
            line: 0,
            column: 0,
            what: "there are too many rules".into(),
            why: format!("there are {count}, and {MOST_RULES} are the most"),
            fix: "put several into one function".into(),
        });
    }
    Ok((files, rooms))
}

fn open(files: &Files) -> Result<Vec<Room>, Place> {
    files.iter().map(|(name, source)| Room::open(name, source)).collect()
}

fn evaluate(rooms: &[Room], number: u64, call: &str, facts: &str) -> Answer {
    let mut rules = Vec::new();
    for room in rooms {
        match room.evaluate(call, facts) {
            Ok(said) => rules.extend(said),
            Err(failed) => {
                let (kind, rule, why) = (failed.kind, failed.rule, failed.why);
                return Answer::Failed { number, kind, rule, why };
            }
        }
    }
    Answer::Spoken { number, rules }
}
