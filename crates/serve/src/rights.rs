//! What a key opens. A route names the scopes of which it needs one; what a question needs beyond that is
//! found out here, from the question itself, for each way that leads to it: a key for tools calls them, and
//! those that execute something with `run` alone.

use std::sync::atomic::AtomicBool;

use axum::http::StatusCode;
use hotcell_access::{Scope, Scopes};
use hotcell_api::{self as api, Answer, Ask, With};
use hotcell_engine::{Attached, Engine};
use hotcell_request::{ToolName, VersionReq};
use hotcell_types::{Caller, Effect};
use serde::Deserialize;
use serde_json::Value;

use crate::problem::Trouble;

/// Whether a key is for one of these.
pub(crate) fn opens(scopes: Scopes, any: &[Scope]) -> Result<(), Trouble> {
    if any.iter().any(|scope| scopes.has(*scope)) {
        return Ok(());
    }
    let names: Vec<String> = any.iter().map(|scope| format!("`{scope}`")).collect();
    let why = format!("it is not for {}", names.join(" or "));
    let (what, fix) = ("the key does not open this", "use a key that is, or have one made");
    Err(Trouble::new(StatusCode::FORBIDDEN, "wrong-scope", what, why, fix))
}

/// Whether a key is for all that a question leads to. Nothing was begun until then.
pub(crate) fn covers(
    scopes: Scopes,
    engine: &Engine,
    caller: &Caller,
    ask: &Ask,
) -> Result<(), Trouble> {
    match ask {
        Ask::Call { request } => of_request(scopes, engine, request, "/request"),
        Ask::Batch { calls } => calls.iter().enumerate().try_for_each(|(place, step)| {
            of_request(scopes, engine, &step.request, &format!("/calls/{place}/request"))
        }),
        Ask::Await { item } => of_item(scopes, engine, caller, item),
        _ => Ok(()),
    }
}

/// A request is read as the path reads it. What cannot be read becomes no call.
fn of_request(scopes: Scopes, engine: &Engine, request: &Value, at: &str) -> Result<(), Trouble> {
    let Ok(wish) = Wish::deserialize(request) else { return Ok(()) };
    let Ok(tool) = engine.registry().get(&wish.tool, wish.version.as_ref()) else { return Ok(()) };
    needs_run_if(scopes, tool.tool().effects.has(Effect::Execute), at)
}

#[derive(Deserialize)]
struct Wish {
    tool: ToolName,
    version: Option<VersionReq>,
}

/// Who waits for an approval has the call carried out. What is not there, or somebody else's, is for the
/// answer to say.
fn of_item(scopes: Scopes, engine: &Engine, caller: &Caller, item: &str) -> Result<(), Trouble> {
    let interrupt = AtomicBool::new(false);
    let with = With { attached: Attached::default(), interrupt: &interrupt, log: &mut |_, _| true };
    let ask = Ask::Approval { item: item.to_owned() };
    let Ok(Answer::Item(item)) = api::answer(engine, caller, ask, with) else { return Ok(()) };
    if item.caller.subject != caller.subject {
        return Ok(());
    }
    // Of a tool that is not known any more, nobody can say what it would do.
    let executes = item.tool.split_once('@').is_none_or(|(name, version)| {
        let (Ok(name), Ok(version)) = (name.parse(), version.parse()) else { return true };
        let found = engine.registry().get(&name, Some(&version));
        found.map_or(true, |tool| tool.tool().effects.has(Effect::Execute))
    });
    needs_run_if(scopes, executes, "")
}

fn needs_run_if(scopes: Scopes, executes: bool, at: &str) -> Result<(), Trouble> {
    let scope = if executes { Scope::Run } else { Scope::Tools };
    opens(scopes, &[scope]).map_err(|trouble| trouble.at(at))
}
