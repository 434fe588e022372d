//! What a round trip costs beside a bare echo over the same kind of socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use hotcell_socket::{Raw, Settings};
use serde_json::json;

use crate::desk::{ask, serve};

const ROUNDS: usize = 2000;

/// The middle of many.
fn median(mut act: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            act();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

#[test]
fn a_round_trip_costs_little_more_than_an_echo() {
    let home = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(home.path().join("echo")).unwrap();
    let echo = std::thread::spawn(move || {
        for stream in listener.incoming().take(1 + ROUNDS) {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 100];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..count]).unwrap();
            }
        }
    });
    let mut buffer = [0; 100];
    let mut trip = |stream: &mut std::os::unix::net::UnixStream| {
        stream.write_all(&[7; 60]).unwrap();
        assert!(stream.read(&mut buffer).unwrap() > 0);
    };
    let connect = || std::os::unix::net::UnixStream::connect(home.path().join("echo")).unwrap();
    let mut stream = connect();
    let bare = median(|| trip(&mut stream));
    drop(stream);
    let bare_fresh = median(|| trip(&mut connect()));
    echo.join().unwrap();

    let served = serve(Settings::default());
    let mut client = served.client();
    let question = Raw::of(&json!({"echo": 1})).unwrap();
    let kept = median(|| drop(client.ask(&question, Default::default()).unwrap()));
    let fresh = median(|| drop(ask(&mut served.client(), json!({"echo": 1})).unwrap()));
    println!("kept {kept:?} (echo {bare:?}), fresh {fresh:?} (echo {bare_fresh:?})");
    // Without optimisation and beside other tests; the benchmarks hold closer bounds.
    assert!(kept < bare + Duration::from_millis(2), "{kept:?}, {bare:?}");
    assert!(fresh < bare_fresh + Duration::from_millis(3), "{fresh:?}, {bare_fresh:?}");
}
