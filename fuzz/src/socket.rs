//! Frames of the local door, as one piece and as a stream that comes in pieces.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use hotcell_socket::frame::{
    Asked, End, Frame, FrameReader, Of, Patience, ReadError, Reason, decode,
};
use hotcell_socket::{Peer, Problem, Transport};
use serde_json::json;

use crate::outcome;

/// What is read is what is written again, and a stream has the same frames however it is cut up.
pub fn socket_frame(data: &[u8]) -> u64 {
    let body = decode(data);
    if let Ok(frame) = &body {
        let again = frame.encode().unwrap();
        assert_eq!(decode(&again[4..]).as_ref(), Ok(frame));
    }
    let whole = stream(data, data.len().max(1));
    assert_eq!(stream(data, 1), whole);
    assert_eq!(stream(data, 7), whole);
    let (frames, end) = whole;
    outcome(&[
        body.is_ok(),
        !frames.is_empty(),
        frames.len() > 1,
        end.contains("closed in"),
        end.contains("was closed"),
        end.contains("twice"),
        end.contains("not as it has to be"),
        end.contains("bytes was announced"),
        matches!(body, Ok(Frame::Request(_))),
        matches!(body, Ok(Frame::Part { .. })),
        matches!(body, Ok(Frame::End(_))),
    ])
}

fn stream(data: &[u8], piece: usize) -> (Vec<Frame>, String) {
    let (mut reader, mut frames) = (FrameReader::new(), Vec::new());
    let transport = Pieces { rest: Mutex::new(data.to_vec()), piece };
    let patience = Patience { begin: None, frame: Duration::from_secs(60) };
    loop {
        match reader.next(&transport, patience) {
            Ok(frame) => frames.push(frame),
            Err(ReadError::Frame(error)) => return (frames, error.to_string()),
            Err(error) => return (frames, error.to_string()),
        }
    }
}

/// Bytes that come so many at a time.
#[derive(Debug)]
struct Pieces {
    rest: Mutex<Vec<u8>>,
    piece: usize,
}

impl Transport for Pieces {
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut rest = self.rest.lock().unwrap();
        let count = self.piece.min(rest.len()).min(into.len());
        for (to, from) in into.iter_mut().zip(rest.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn set_receive_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn set_send_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self) -> io::Result<()> {
        Ok(())
    }

    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer { uid: 0, gid: 0, pid: 1 })
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let problem = Problem::new("busy", "what", "why", "fix");
    let asked = |files| Asked { id: 1, ask: json!({"a": [1]}), context: None, files, stdin: true };
    let frames = [
        Frame::Hello { versions: vec![1], who: "me".into() },
        Frame::Welcome { version: 1, who: "it".into() },
        Frame::Request(asked(0)),
        Frame::Request(Asked { context: Some(json!(1.5)), ..asked(2) }),
        Frame::Part { id: 1, of: Of::File(0), data: vec![1, 2, 3], end: false },
        Frame::Part { id: 1, of: Of::Stdin, data: vec![], end: true },
        Frame::More { id: 1, bytes: 2 },
        Frame::Cancel { id: 1 },
        Frame::Event { id: 1, seq: 1, event: json!("e") },
        Frame::Answer { id: 1, answer: Ok(json!(null)) },
        Frame::Answer { id: 1, answer: Err(problem.clone()) },
        Frame::End(End { reason: Reason::Busy, problem, cut: vec![1], speaks: vec![1] }),
    ];
    let whole: Vec<Vec<u8>> = frames.iter().map(|frame| frame.encode().unwrap()).collect();
    let bodies = whole.iter().map(|bytes| bytes[4..].to_vec());
    bodies.chain([whole.concat()]).chain(whole.iter().cloned()).collect()
}
