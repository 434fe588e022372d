//! Arguments in the one form that is judged and executed.

use serde_json::Value;

use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::place;
use crate::schema::{Mark, SECRET, Schema};
use crate::text::shown;

/// Places in the arguments, in order.
pub(crate) type Marks = Vec<(String, Mark)>;

/// Puts in defaults, spells places in their one way, and checks the result, which is what is executed.
pub(crate) fn settle(schema: &Schema, mut args: Value) -> Result<(Value, Marks), Vec<Fault>> {
    schema.fill(&mut args).map_err(|fault| vec![fault])?;
    let marks = schema.marks(&args).map_err(|fault| vec![fault])?;
    let misplaced = spell(&mut args, &marks);
    let mut faults = schema.validate(&args).err().unwrap_or_default();
    let known: Vec<String> = faults.iter().map(|fault| fault.at().to_owned()).collect();
    faults.extend(misplaced.into_iter().filter(|fault| !known.iter().any(|at| at == fault.at())));
    // Defaults can make it larger than what was read.
    let args = json::adopt(args, &Bounds::CALL).map_err(|fault| vec![fault])?;
    if faults.is_empty() { Ok((args, marks)) } else { Err(faults) }
}

/// Spells each place in its one way.
fn spell(args: &mut Value, marks: &[(String, Mark)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let secret = |at: &str| marks.iter().any(|(place, mark)| place == at && *mark == Mark::Secret);
    let mut last: Option<(&str, Mark)> = None;
    for (at, mark) in marks.iter().filter(|(_, mark)| *mark != Mark::Secret) {
        let twice = last.filter(|(place, _)| place == at);
        last = Some((at, *mark));
        let Some(value) = args.pointer_mut(at) else { continue };
        let text = value.as_str().map(str::to_owned);
        let shown = if secret(at) { SECRET.into() } else { shown(&value.to_string(), 80) };
        let what = format!("{shown} is not a {}", mark.name());
        match (text, twice) {
            (_, Some((_, other))) => faults.push(Fault::new(
                at,
                format!("this is marked as a {} and as a {}", other.name(), mark.name()),
                "it could not be judged as both",
                "have the tool take two arguments",
            )),
            (None, _) if value.is_null() => {}
            (None, _) => faults.push(Fault::new(at, what, "it is not text", "send text")),
            (Some(text), None) => match place::spell(*mark, &text) {
                Ok(spelled) => *value = spelled.into(),
                Err(bad) => faults.push(Fault::new(at, what, bad.to_string(), bad.fix())),
            },
        }
    }
    faults
}
