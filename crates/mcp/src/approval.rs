//! Calls that a person has to agree to. Nothing that comes in here agrees to anything: an answer counts if an
//! approver's key has signed it, and that is made with `hotcell approve` in a terminal. A client that can ask
//! its user shows where; one that cannot is told how to come back.

use std::collections::BTreeMap;
use std::time::Duration;

use hotcell_api::{Ask, Called, Problem};
use hotcell_types::Status;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult, InputResponses,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::PeerRequestOptions;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::call::{Progress, called, told};
use crate::gate::Room;
use crate::own::AWAIT_APPROVAL;
use crate::result::{refused, result};
use crate::server::{Asked, Server};

/// How long a call waits for a person while the client shows that it does.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long it waits for an answer that somebody says is there.
const SHORT_PATIENCE: Duration = Duration::from_secs(10);
/// How long `await_approval` waits if nothing is said: less than clients wait for an answer.
const USUAL_PATIENCE: Duration = Duration::from_secs(45);
/// What the question is called when it comes back answered.
const QUESTION: &str = "approval";

/// Has the client say that a call waits.
pub(crate) async fn put_before_somebody(
    server: &Server,
    asked: &Asked,
    waiting: Called,
    item: String,
) -> Result<CallToolResponse, ErrorData> {
    let context = &asked.context;
    // A client that names no way has the only one that there was in the beginning.
    let elicitation = context.client_capabilities().and_then(|can| can.elicitation);
    let can_ask = elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none());
    let is_modern =
        context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    match (can_ask, is_modern) {
        (false, _) => Ok(pointer(server, waiting, &item).await),
        (true, true) => {
            let question = InputRequest::Elicitation(question(&waiting, &item));
            let questions = BTreeMap::from([(QUESTION.to_owned(), question)]);
            Ok(InputRequiredResult::new(Some(questions), Some(item)).into())
        }
        (true, false) => ask_and_wait(server, asked, waiting, item).await,
    }
}

/// Somebody who was asked comes back. What they say is no approval; that they decline takes the call back.
pub(crate) async fn answered(
    server: &Server,
    asked: &Asked,
    item: String,
    responses: Option<&InputResponses>,
) -> Result<CallToolResponse, ErrorData> {
    let action = responses.and_then(|all| all.get(QUESTION)?.get("action")?.as_str());
    if action == Some("decline") {
        return Ok(taken_back(server, item).await);
    }
    come_back(server, asked, item, Some(SHORT_PATIENCE.as_secs())).await
}

/// Waits for the answer to a call that was made before, and gives what came of it.
pub(crate) async fn come_back(
    server: &Server,
    asked: &Asked,
    item: String,
    seconds: Option<u64>,
) -> Result<CallToolResponse, ErrorData> {
    let patience = seconds.map_or(USUAL_PATIENCE, Duration::from_secs).min(PATIENCE);
    match wait(server, asked, &item, Instant::now() + patience, &Notify::new()).await {
        Ok(called) if called.status == Status::Review => Ok(pointer(server, called, &item).await),
        Ok(called) => Ok(told(server, asked, called).await),
        Err(problem) => Ok(refused(&problem).into()),
    }
}

/// The client's user is asked, while the queue is looked at: whoever approves need not answer twice.
async fn ask_and_wait(
    server: &Server,
    asked: &Asked,
    waiting: Called,
    item: String,
) -> Result<CallToolResponse, ErrorData> {
    let request = ServerRequest::ElicitRequest(question(&waiting, &item));
    let options = PeerRequestOptions::with_timeout(PATIENCE);
    let action = async {
        let sent = asked.context.peer.send_request_with_option(request, options).await.ok()?;
        match sent.await_response().await {
            Ok(ClientResult::ElicitResult(result)) => Some(result.action),
            _ => None,
        }
    };
    let hurry = Notify::new();
    let waited = wait(server, asked, &item, Instant::now() + PATIENCE, &hurry);
    tokio::pin!(waited, action);
    let done = tokio::select! {
        biased;
        done = &mut waited => done,
        said = &mut action => match said {
            Some(ElicitationAction::Decline) => {
                return Ok(taken_back(server, item.clone()).await);
            }
            Some(_) => {
                // It says that somebody has agreed: then that is soon there.
                hurry.notify_one();
                waited.await
            }
            None => waited.await,
        },
    };
    match done {
        Ok(called) if called.status == Status::Review => Ok(pointer(server, called, &item).await),
        Ok(called) => Ok(told(server, asked, called).await),
        Err(problem) => Ok(refused(&problem).into()),
    }
}

async fn wait(
    server: &Server,
    asked: &Asked,
    item: &str,
    mut until: Instant,
    hurry: &Notify,
) -> Result<Called, Problem> {
    let (gate, given_up) = (server.gate(), &asked.context.ct);
    let ask = Ask::Await { item: item.to_owned() };
    let mut call = gate.begin(ask, Room::Wait, &asked.context).await?;
    let mut progress = Progress::of(asked);
    let mut is_late = false;
    let done = loop {
        tokio::select! {
            biased;
            done = call.done() => break done,
            () = given_up.cancelled() => break gate.end(call).await,
            () = sleep_until(until), if !is_late => {
                is_late = true;
                call.stop_waiting();
            }
            () = hurry.notified() => until = until.min(Instant::now() + SHORT_PATIENCE),
            () = progress.is_due() => progress.say("waiting for a person to approve it").await,
        }
    };
    called(done)
}

async fn taken_back(server: &Server, item: String) -> CallToolResponse {
    let text = match server.gate().look(Ask::Withdraw { item }).await {
        Ok(_) => "the user declined: nothing was done, and nothing waits".into(),
        Err(problem) => format!("the user declined, and it could not be taken back: {problem}"),
    };
    rmcp::model::CallToolResult::error(vec![ContentBlock::text(text)]).into()
}

/// What to do about a call that waits.
async fn pointer(server: &Server, waiting: Called, item: &str) -> CallToolResponse {
    let mut told = result(server.gate(), waiting).await;
    told.content.push(ContentBlock::text(format!(
        "Nothing was done yet. Tell the user that a person has to approve it in a terminal, with \
         `hotcell approve {item}` (`hotcell approvals show {item}` shows it). Then call `{AWAIT_APPROVAL}` with \
         {{\"item\": \"{item}\"}} to have it carried out and get its result; do not make the call again."
    )));
    told.is_error = Some(true);
    told.into()
}

/// What the client's user is shown.
fn question(waiting: &Called, item: &str) -> ElicitRequest {
    let why = waiting.problems.first().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "{why}. To approve it, run `hotcell approve {item}` in a terminal (`hotcell approvals show {item}` shows \
         exactly what it would do). Answering here approves nothing: accept when you have approved it there, \
         decline to take the call back."
    );
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    })
}
