//! What comes back to this door, of everything that can be answered.

use hotcell_api::{Answer, Artifacts, Ask, Called, Content, Problem, ProblemKind, Tool, Tools};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer to one of the questions that are asked here.
#[derive(Debug)]
pub enum Found {
    Called(Box<Called>),
    Tools(Tools),
    Tool(Box<Tool>),
    Artifacts(Artifacts),
    Content(Box<Content>),
    /// It was done, and there is nothing to tell.
    Done,
}

impl From<Answer> for Found {
    fn from(answer: Answer) -> Found {
        match answer {
            Answer::Called(called) => Found::Called(called),
            Answer::Tools(tools) => Found::Tools(tools),
            Answer::Tool(tool) => Found::Tool(tool),
            Answer::Artifacts(artifacts) => Found::Artifacts(artifacts),
            Answer::Content(content) => Found::Content(Box::new(content)),
            _ => Found::Done,
        }
    }
}

/// Reads the answer to a question that somebody else has answered.
pub fn reader(ask: &Ask) -> fn(Value) -> Result<Found, Problem> {
    match ask {
        Ask::Call { .. } | Ask::Run { .. } | Ask::Await { .. } => {
            |value| read(value).map(Found::Called)
        }
        Ask::Tools { .. } => |value| read(value).map(Found::Tools),
        Ask::Tool { .. } => |value| read(value).map(Found::Tool),
        Ask::Artifacts { .. } => |value| read(value).map(Found::Artifacts),
        Ask::Content { .. } => |value| read(value).map(Found::Content),
        _ => |_| Ok(Found::Done),
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|error| {
        let what = "the answer cannot be read";
        let fix = "see that every hotcell of this home is of the same version";
        Problem::new(ProblemKind::Error, what, error.to_string(), fix)
    })
}
