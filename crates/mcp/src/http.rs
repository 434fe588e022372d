//! The same server as a tower service, to be mounted at a path of an HTTP server.

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
pub use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
};

use crate::server::Server;

/// Streamable HTTP. Each session is one of its own and shares the server's bounds.
///
/// Whoever mounts it says who asks by putting a [`Caller`](hotcell_types::Caller) into the extensions of each
/// request, after having found out; without one, the server's own caller is meant. A session that one caller
/// began is closed to every other. Only loopback hosts are let in unless `config` says otherwise.
pub fn service(
    server: &Server,
    config: StreamableHttpServerConfig,
) -> StreamableHttpService<Server, LocalSessionManager> {
    let server = server.session();
    StreamableHttpService::new(move || Ok(server.session()), Default::default(), config)
}
