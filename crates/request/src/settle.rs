//! Arguments in the one form that is judged and executed.

use serde_json::Value;

use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::place;
use crate::schema::{FAULTS_MOST, Mark, SECRET, Schema};
use crate::text::shown;

/// Places in the arguments, in order.
pub(crate) type Marks = Vec<(String, Mark)>;

/// Puts in defaults, spells places in their one way, and checks the result, which is what is executed.
pub(crate) fn settle(schema: &Schema, mut args: Value) -> Result<(Value, Marks), Vec<Fault>> {
    let one = |fault| vec![fault];
    schema.fill(&mut args).map_err(one)?;
    // Defaults can make it larger than what was read.
    let mut args = json::adopt(args, &Bounds::CALL).map_err(one)?;
    let marks = schema.marks(&args).map_err(one)?;
    let misspelled = spell(&mut args, &marks);
    let mut faults = schema.validate(&args).err().unwrap_or_default();
    let known: Vec<String> = faults.iter().map(|fault| fault.at().to_owned()).collect();
    faults.extend(misspelled.into_iter().filter(|fault| !known.iter().any(|at| at == fault.at())));
    faults.truncate(FAULTS_MOST);
    if faults.is_empty() { Ok((args, marks)) } else { Err(faults) }
}

/// Spells each place in its one way, and stops at as many faults as are told.
fn spell(args: &mut Value, marks: &Marks) -> Vec<Fault> {
    let mut faults = Vec::new();
    // The marks of one place stand together.
    for of_place in marks.chunk_by(|one, next| one.0 == next.0) {
        let Some((at, _)) = of_place.first() else { continue };
        let Some(value) = args.pointer_mut(at) else { continue };
        let kinds: Vec<Mark> = of_place.iter().map(|(_, mark)| *mark).collect();
        faults.extend(spell_one(at, value, &kinds));
        if faults.len() >= FAULTS_MOST {
            break;
        }
    }
    faults
}

fn spell_one(at: &str, value: &mut Value, marks: &[Mark]) -> Option<Fault> {
    let mut kinds = marks.iter().filter(|mark| **mark != Mark::Secret);
    let kind = kinds.next()?;
    if let Some(other) = kinds.next() {
        return Some(Fault::new(
            at,
            format!("this is marked as a {} and as a {}", kind.name(), other.name()),
            "it could not be judged as both",
            "have the tool take two arguments",
        ));
    }
    let what = |value: &Value| match marks.contains(&Mark::Secret) {
        true => format!("{SECRET} is not a {}", kind.name()),
        false => format!("{} is not a {}", shown(&value.to_string(), 80), kind.name()),
    };
    match value {
        Value::Null => None,
        Value::String(text) => match place::spell(*kind, text) {
            Ok(spelled) => {
                *text = spelled;
                None
            }
            Err(bad) => Some(Fault::new(at, what(value), bad.to_string(), bad.fix())),
        },
        other => Some(Fault::new(at, what(other), "it is not text", "send text")),
    }
}
