//! The same protocol over something that is not a socket.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hotcell_socket::{
    Along, Client, ClientSettings, ConnectError, Peer, Raw, Server, Settings, Source, Transport,
};
use serde_json::json;

use crate::desk::{ask, desk};

/// Most bytes that lie in a pipe.
const ROOM: usize = 1000;

#[derive(Debug, Default)]
struct Pipe {
    state: Mutex<(VecDeque<u8>, bool)>,
    changed: Condvar,
}

impl Pipe {
    fn end(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct End {
    from: Arc<Pipe>,
    to: Arc<Pipe>,
    timeout: Mutex<Option<Duration>>,
    peer: u32,
}

fn pair(client_sees: u32, server_sees: u32) -> (Arc<End>, Arc<End>) {
    let (one, other) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
    let end = |from: &Arc<Pipe>, to: &Arc<Pipe>, peer| {
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        Arc::new(End { from, to, timeout: Mutex::default(), peer })
    };
    (end(&one, &other, client_sees), end(&other, &one, server_sees))
}

impl Transport for End {
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let timeout = self.timeout.lock().unwrap().unwrap_or(Duration::from_secs(60));
        let state = self.from.state.lock().unwrap();
        let is_waiting = |state: &mut (VecDeque<u8>, bool)| state.0.is_empty() && !state.1;
        let (mut state, waited) =
            self.from.changed.wait_timeout_while(state, timeout, is_waiting).unwrap();
        if waited.timed_out() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = into.len().min(state.0.len());
        for (to, from) in into.iter_mut().zip(state.0.drain(..count)) {
            *to = from;
        }
        self.from.changed.notify_all();
        Ok(count)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let state = self.to.state.lock().unwrap();
        let is_full = |state: &mut (VecDeque<u8>, bool)| state.0.len() >= ROOM && !state.1;
        let mut state = self.to.changed.wait_while(state, is_full).unwrap();
        if state.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(ROOM - state.0.len());
        state.0.extend(&bytes[..count]);
        self.to.changed.notify_all();
        Ok(count)
    }

    fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        *self.timeout.lock().unwrap() = timeout;
        Ok(())
    }

    fn set_send_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self) -> io::Result<()> {
        self.from.end();
        self.to.end();
        Ok(())
    }

    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer { uid: self.peer, gid: 0, pid: 1 })
    }
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn requests_files_and_events_go_over_any_transport() {
    let server = Server::without_listener(desk().0, Settings::default());
    let (ours, theirs) = pair(own(), 0);
    server.serve(theirs).unwrap();
    let mut client = Client::over(ours, ClientSettings::default()).unwrap();
    assert_eq!(ask(&mut client, json!({"peer": 0})).unwrap(), json!(0));
    let files = vec![Source::Bytes(vec![0; 1_000_000]), Source::Bytes(vec![0; 3])];
    let along = Along { files, ..Along::default() };
    let answer = client.ask(&Raw::of(&json!({"files": 0})).unwrap(), along).unwrap();
    assert_eq!(answer, json!([[1_000_000, 0], [3, 0]]));
    assert_eq!(ask(&mut client, json!({"events": 1000})).unwrap(), json!("told"));
}

#[test]
fn neither_end_speaks_with_a_stranger() {
    let stranger = own() + 4711;
    let server = Server::without_listener(desk().0, Settings::default());
    let (ours, theirs) = pair(own(), stranger);
    server.serve(theirs).unwrap();
    let error = Client::over(ours, ClientSettings::default()).unwrap_err();
    assert!(matches!(&error, ConnectError::Ended(_)), "{error}");
    assert!(error.to_string().contains("only the user"), "{error}");
    assert_eq!(server.connections(), 0);

    let (ours, theirs) = pair(stranger, own());
    let error = Client::over(Arc::clone(&ours) as Arc<dyn Transport>, ClientSettings::default());
    assert!(matches!(error, Err(ConnectError::NotOurs { uid }) if uid == stranger));
    assert!(theirs.from.state.lock().unwrap().0.is_empty(), "not a byte was said");
}
