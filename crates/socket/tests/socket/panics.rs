//! What fails in a connection fails in that connection.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotcell_socket::{Client, ClientSettings, Peer, Server, Settings, Transport};
use serde_json::json;

use crate::desk::{SOON, ask, desk};

/// Panics at what it receives, once it is to.
#[derive(Debug)]
struct Brittle {
    stream: UnixStream,
    breaks: Arc<AtomicBool>,
}

impl Transport for Brittle {
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let received = self.stream.receive(into);
        assert!(!self.breaks.load(Ordering::SeqCst), "on purpose");
        received
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.send(bytes)
    }

    fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_receive_timeout(timeout)
    }

    fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_send_timeout(timeout)
    }

    fn shutdown(&self) -> io::Result<()> {
        Transport::shutdown(&self.stream)
    }

    fn peer(&self) -> io::Result<Peer> {
        self.stream.peer()
    }
}

#[test]
fn a_panic_while_a_connection_is_read_ends_that_connection_and_is_told() {
    let (desk, _, _) = desk();
    let server = Server::without_listener(desk, Settings::default());
    let connect = |breaks: &Arc<AtomicBool>| {
        let (ours, stream) = UnixStream::pair().unwrap();
        server.serve(Arc::new(Brittle { stream, breaks: Arc::clone(breaks) })).unwrap();
        Client::over(Arc::new(ours), ClientSettings::default())
    };
    // With the hello, and with what comes after it.
    let breaks = Arc::new(AtomicBool::new(true));
    assert!(connect(&breaks).is_err());
    breaks.store(false, Ordering::SeqCst);
    let mut client = connect(&breaks).unwrap();
    breaks.store(true, Ordering::SeqCst);
    let told = ask(&mut client, json!({"echo": 7})).unwrap_err();
    assert!(told.to_string().contains("defect"), "{told}");
    breaks.store(false, Ordering::SeqCst);
    assert_eq!(ask(&mut connect(&breaks).unwrap(), json!({"echo": 7})).unwrap(), 7);
    let begun = Instant::now();
    // A request is counted by whoever answers it, and a connection by whoever reads it.
    while server.connections() + server.requests() > 0 {
        assert!(begun.elapsed() < SOON, "what has failed is still counted");
        std::thread::yield_now();
    }
}
