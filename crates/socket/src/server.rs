//! The server: what it allows, how it begins and how it ends.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::bounds;
use crate::crew::Job;
use crate::frame::Reason;
use crate::hub::Hub;
use crate::incoming::Answerer;
use crate::listen::Listener;
use crate::problem::Problem;
use crate::transport::Transport;
use crate::version::Versions;

/// How much a server allows. The defaults are those of [`bounds`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it calls itself.
    pub who: String,
    pub versions: Versions,
    pub connections: usize,
    pub per_user: usize,
    pub requests: usize,
    pub requests_per_connection: usize,
    /// Longest until the hello.
    pub handshake: Duration,
    /// Longest that a frame takes that has begun.
    pub frame: Duration,
    /// Longest that a client does not read what is sent to it. Then its connection ends, and what it asked
    /// for is cancelled.
    pub stall: Duration,
    /// Most bytes of large frames that are being read.
    pub reading: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            who: concat!("hotcell ", env!("CARGO_PKG_VERSION")).into(),
            versions: Versions::default(),
            connections: bounds::CONNECTIONS_MOST,
            per_user: bounds::CONNECTIONS_PER_USER,
            requests: bounds::REQUESTS_MOST,
            requests_per_connection: bounds::REQUESTS_PER_CONNECTION,
            handshake: bounds::HANDSHAKE,
            frame: bounds::FRAME_TIME,
            stall: bounds::STALL,
            reading: bounds::READING_MOST,
        }
    }
}

/// How long a server that stops waits.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// For what goes on to end by itself.
    pub finish: Duration,
    /// For what was cancelled then.
    pub cancel: Duration,
}

impl Default for Grace {
    fn default() -> Grace {
        Grace { finish: Duration::from_secs(5), cancel: Duration::from_secs(15) }
    }
}

/// What became of the requests that were under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Had to be cancelled.
    pub cancelled: usize,
    /// Did not end even then: their threads go on, and their clients were told that they are cut off.
    pub abandoned: usize,
}

/// Serves until it is stopped or dropped.
pub struct Server {
    hub: Arc<Hub>,
    listener: Option<Arc<Listener>>,
}

impl Server {
    pub fn start(
        listener: Listener,
        answerer: Arc<dyn Answerer>,
        settings: Settings,
    ) -> io::Result<Server> {
        let (hub, listener) = (Hub::new(answerer, settings), Arc::new(listener));
        let job = Job::Accept(Arc::clone(&hub), Arc::clone(&listener));
        hub.crew.give(job).map_err(|_| no_thread())?;
        Ok(Server { hub, listener: Some(listener) })
    }

    /// One without a socket: its connections are brought to it.
    pub fn without_listener(answerer: Arc<dyn Answerer>, settings: Settings) -> Server {
        Server { hub: Hub::new(answerer, settings), listener: None }
    }

    /// Serves a connection that came in another way. Who is not let in is told so.
    pub fn serve(&self, transport: Arc<dyn Transport>) -> io::Result<()> {
        let Some(reading) = self.hub.admit(transport) else { return Ok(()) };
        match self.hub.crew.give(Job::Read(reading)) {
            Err(Job::Read(reading)) => {
                let most = self.hub.settings.connections;
                let problem = Problem::too_many("there is no thread for a connection", most);
                reading.turn_away(Reason::Busy, problem);
                Err(no_thread())
            }
            _ => Ok(()),
        }
    }

    /// Where it listens.
    pub fn path(&self) -> Option<PathBuf> {
        self.listener.as_ref().map(|listener| listener.path().to_owned())
    }

    /// Connections that there are, handshakes included.
    pub fn connections(&self) -> usize {
        self.hub.counts().0
    }

    /// Requests that are being answered.
    pub fn requests(&self) -> usize {
        self.hub.counts().1
    }

    /// Waits until no request was under way and nobody connected for so long, or until it is stopped.
    /// Whoever asks a server that is then stopped hears that nothing was begun.
    pub fn wait_idle(&self, quiet: Duration) {
        self.hub.wait_idle(quiet);
    }

    /// Accepts nothing more, lets what goes on end, cancels it, and closes, each within its time. A second
    /// call, from another thread, has the same effect with its own patience.
    pub fn stop(&self, grace: Grace) -> Stopped {
        self.close_door();
        let connections = self.hub.stop();
        connections.iter().for_each(|connection| connection.wind_down());
        let cancelled = self.hub.wait_empty(grace.finish);
        connections.iter().for_each(|connection| connection.cancel_all());
        let abandoned = match cancelled {
            0 => 0,
            _ => self.hub.wait_empty(grace.cancel),
        };
        for connection in &connections {
            connection.cut(Reason::Stopping, Problem::stopping());
        }
        self.hub.crew.dismiss();
        Stopped { cancelled, abandoned }
    }

    fn close_door(&self) {
        if let Some(listener) = &self.listener {
            listener.close();
        }
    }
}

/// How long threads that have nothing to do any more may take to end.
const GONE_WITHIN: Duration = Duration::from_secs(1);

impl Drop for Server {
    fn drop(&mut self) {
        let now = Duration::ZERO;
        self.stop(Grace { finish: now, cancel: now });
        self.hub.crew.wait_gone(GONE_WITHIN);
        if let Some(listener) = &self.listener {
            listener.release();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("path", &self.path()).finish_non_exhaustive()
    }
}

fn no_thread() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "there is no thread for it")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{Along, Client, ClientSettings, Events, Incoming, Raw};

    #[derive(Debug)]
    struct Echo;

    impl Answerer for Echo {
        fn answer(&self, mut request: Incoming, _: &Events) -> Result<Raw, Problem> {
            Raw::of(&request.take_ask()).map_err(Problem::from)
        }
    }

    #[test]
    fn a_panic_while_a_connection_is_accepted_costs_that_connection_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("door/socket");
        let listener = Listener::bind(&path).unwrap();
        listener.panics.store(2, Ordering::SeqCst);
        let server = Server::start(listener, Arc::new(Echo), Settings::default()).unwrap();
        let ask = || {
            let mut client = Client::connect(&path, ClientSettings::default()).unwrap();
            client.ask(&Raw::of(&7).unwrap(), Along::default())
        };
        assert!(ask().is_err() && ask().is_err());
        assert_eq!(ask().unwrap(), 7);
        // Comes back only if no connection counts that has gone.
        server.wait_idle(Duration::ZERO);
        assert_eq!(server.requests(), 0);
    }
}
