//! Tells clients when the tools that they could use are others: because a tool came or went, or because the
//! policy was changed, also by another process.

use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, RoleServer, SubscriptionContext};
use tokio::time::sleep;

use crate::catalog::Catalog;
use crate::server::Server;

/// How often it is looked.
const STEP: Duration = Duration::from_secs(2);

/// Until the client is gone.
pub(crate) async fn tell(server: Server, peer: Peer<RoleServer>) {
    let mut known = fingerprint(&server).await;
    while !peer.is_transport_closed() {
        sleep(STEP).await;
        if is_news(&server, &mut known).await && peer.notify_tool_list_changed().await.is_err() {
            break;
        }
    }
}

/// The same for a client that has asked for it, as it does from 2026-07-28 on.
pub(crate) async fn listen(server: &Server, context: SubscriptionContext) {
    let mut known = fingerprint(server).await;
    loop {
        tokio::select! {
            () = context.cancelled() => return,
            () = sleep(STEP) => {}
        }
        if is_news(server, &mut known).await
            && context.sink().notify_tool_list_changed().await.is_err()
        {
            return;
        }
    }
}

pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    requested.intersection(&SubscriptionFilter::builder().tools_list_changed().build())
}

async fn is_news(server: &Server, known: &mut Option<String>) -> bool {
    // What cannot be told now is no news.
    let Some(now) = fingerprint(server).await else { return false };
    known.replace(now.clone()) != Some(now)
}

async fn fingerprint(server: &Server) -> Option<String> {
    let catalog = Catalog::watched(server.gate(), server.options()).await;
    catalog.ok().map(|catalog| catalog.fingerprint())
}
