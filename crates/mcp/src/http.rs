//! The same server as a tower service, to be mounted at a path of an HTTP server.

use std::sync::Arc;

pub use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
pub use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
};
pub use tokio_util::sync::CancellationToken;

use crate::server::Server;

pub type Service = StreamableHttpService<Server, LocalSessionManager>;

/// Streamable HTTP. Each session is one of its own and shares the server's bounds.
///
/// A server answers for one caller, and whoever has `sessions` reaches all of them: who serves several has a
/// server and sessions for each, and finds out before whose a request is. Only loopback hosts are let in
/// unless `config` says otherwise.
pub fn service(
    server: &Server,
    sessions: Arc<LocalSessionManager>,
    config: StreamableHttpServerConfig,
) -> Service {
    let server = server.session();
    Service::new(move || Ok(server.session()), sessions, config)
}
