//! Where the work of a caller is: a mode and a state, kept for each session, on which rules can depend. Who
//! drives it is a program that embeds the engine; what a model or a sandbox asks for never changes it.

use hotcell_policy::{MODES, STATES};
use hotcell_record::{Draft, Durability, Kind, now};
use hotcell_review::{self as review, Workflow};
use hotcell_types::{Caller, Decision, Door, Name, Status};

use crate::engine::Engine;
use crate::path::not_recorded;
use crate::reply::{Problem, ProblemKind};
use crate::rulebook::{Look, not_looked_up};
use crate::spend::Unspent;

/// What can be asked about the work of a subject.
#[derive(Debug)]
pub enum WorkflowAsk {
    /// Where it is; nowhere if nobody drives it.
    Show(Name),
    /// Where it is from now on. Calls that were judged and not begun before are refused.
    Set { subject: Name, mode: String, state: String },
}

impl Engine {
    pub(crate) fn ask_workflow(
        &self,
        caller: &Caller,
        ask: WorkflowAsk,
    ) -> Result<Option<Workflow>, Problem> {
        let of = |subject: Name| Caller { subject, ..caller.clone() };
        match ask {
            WorkflowAsk::Show(subject) => self.workflow(&of(subject)),
            WorkflowAsk::Set { subject, mode, state } => {
                self.set_workflow(caller, of(subject), mode, state)
            }
        }
    }

    pub(crate) fn workflow(&self, of: &Caller) -> Result<Option<Workflow>, Problem> {
        let found = self.recording()?.look(|conn| review::workflow(conn, of).map_err(Look::from));
        found.map_err(|error| not_looked_up(&error))
    }

    /// On the disk, with what the chain says of it, before it holds.
    fn set_workflow(
        &self,
        caller: &Caller,
        of: Caller,
        mode: String,
        state: String,
    ) -> Result<Option<Workflow>, Problem> {
        let mut draft = Draft::new(Kind::Note, caller.clone(), now());
        draft.operation = Some("workflow.set".to_owned());
        draft.reason = Some(format!("the work of `{}` is in `{state}`, mode `{mode}`", of.subject));
        (draft.mode, draft.state) = (Some(mode.clone()), Some(state.clone()));
        if caller.door != Door::Library {
            let why = format!(
                "who comes through `{}` is in a state, and does not choose it",
                caller.door
            );
            let problem =
                refused(why, "the program that embeds hotcell does").of(ProblemKind::Blocked);
            draft.kind = Kind::Denied;
            (draft.decision, draft.status) = (Some(Decision::Deny), Some(Status::Blocked));
            draft.reason = Some(problem.to_string());
            return Err(self.record_now(draft).err().unwrap_or(problem));
        }
        if !MODES.contains(&mode.as_str()) || !STATES.contains(&state.as_str()) {
            let why = format!("there is no state `{state}`, or no mode `{mode}`");
            let fix = format!("one of {}; one of {}", STATES.join(", "), MODES.join(", "));
            return Err(refused(why, &fix).of(ProblemKind::Invalid));
        }
        let session = of.clone();
        let written = self.recording()?.write(Durability::Synced, move |tx| {
            review::set_workflow(tx, &session, &mode, &state)?;
            Ok::<_, Unspent>(((), vec![draft]))
        });
        written.map_err(|error| not_recorded(&error))?;
        self.workflow(&of)
    }
}

fn refused(why: String, fix: &str) -> Problem {
    Problem::new("the work stays where it is", why, fix)
}
