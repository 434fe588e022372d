//! How a server ends.

use std::time::{Duration, Instant};

use hotcell_socket::frame::{End, Frame, Reason};
use hotcell_socket::{
    Client, ClientSettings, ConnectError, Grace, Listener, Problem, Settings, Stopped,
};
use serde_json::json;

use crate::desk::{SOON, Wire, ask, serve};

const NO_TIME: Duration = Duration::ZERO;

fn is_stopping(frame: Frame, expected_cut: &[u64]) {
    let Frame::End(End { reason: Reason::Stopping, cut, .. }) = frame else { panic!("{frame:?}") };
    assert_eq!(cut, expected_cut);
}

#[test]
fn what_goes_on_is_finished_and_nothing_new_begins() {
    let served = serve(Settings::default());
    let mut idle = served.wire();
    let mut working = served.wire();
    working.request(1, json!({"deaf": 0}));
    served.expect("is deaf");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| served.server.stop(Grace { finish: SOON, cancel: SOON }));
        is_stopping(idle.next(), &[]);
        let connect = || Client::connect(&served.path, ClientSettings::default());
        assert!(connect().is_err_and(|error| error.is_nobody()));
        assert!(
            matches!(Listener::bind(&served.path), Err(error) if error.to_string().contains("already"))
        );
        working.request(2, json!({"echo": 0}));
        let Frame::Answer { id: 2, answer: Err(problem) } = working.next() else { panic!() };
        assert_eq!(problem.kind, Problem::STOPPING);
        served.gate.send(()).unwrap();
        assert_eq!(working.next(), Frame::Answer { id: 1, answer: Ok(json!("heard")) });
        is_stopping(working.next(), &[]);
        assert_eq!(stopping.join().unwrap(), Stopped { cancelled: 0, abandoned: 0 });
    });
    let path = served.path.clone();
    drop(served.server);
    assert!(Listener::bind(&path).is_ok(), "another server may begin");
}

#[test]
fn what_does_not_finish_is_cancelled_and_still_answered() {
    let served = serve(Settings::default());
    let mut wires: Vec<Wire> = (0..10).map(|_| served.wire()).collect();
    for wire in &mut wires {
        for id in 1..=5 {
            wire.request(id, json!({"wait": 0}));
        }
    }
    served.settles_at(10, 50);
    for _ in 0..50 {
        served.expect("waits");
    }
    let stopped = served.server.stop(Grace { finish: NO_TIME, cancel: SOON });
    assert_eq!(stopped, Stopped { cancelled: 50, abandoned: 0 });
    for wire in &mut wires {
        for _ in 1..=5 {
            assert!(matches!(wire.next(), Frame::Answer { answer: Ok(_), .. }));
        }
        is_stopping(wire.next(), &[]);
    }
}

#[test]
fn what_hears_nothing_is_cut_off_within_the_bound() {
    let served = serve(Settings::default());
    let mut wire = served.wire();
    wire.request(7, json!({"deaf": 0}));
    served.expect("is deaf");
    let start = Instant::now();
    let grace = Duration::from_millis(50);
    let stopped = served.server.stop(Grace { finish: grace, cancel: grace });
    assert_eq!(stopped, Stopped { cancelled: 1, abandoned: 1 });
    assert!(start.elapsed() < Duration::from_secs(5));
    is_stopping(wire.next(), &[7]);
    served.gate.send(()).unwrap();
    served.settles_at(0, 0);
    assert_eq!(served.server.stop(Grace::default()), Stopped { cancelled: 0, abandoned: 0 });
}

#[test]
fn whoever_waits_for_a_server_that_stops_hears_that_nothing_was_begun() {
    for _ in 0..20 {
        let served = serve(Settings::default());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let client = Client::connect(&served.path, ClientSettings::default());
                            let mut client = match client {
                                Ok(client) => client,
                                Err(ConnectError::NotThere { .. }) => return,
                                Err(error) => panic!("{error:?}"),
                            };
                            match ask(&mut client, json!({"echo": 1})) {
                                Ok(answer) => assert_eq!(answer, json!(1)),
                                Err(error) => assert!(error.is_unbegun(), "{error:?}"),
                            }
                        }
                    })
                })
                .collect();
            served.serves_others();
            served.server.stop(Grace::default());
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
    }
}

#[test]
fn an_idle_server_is_told_from_one_that_works() {
    let served = serve(Settings::default());
    let quiet = Duration::from_millis(30);
    served.server.wait_idle(quiet);
    let mut wire = served.wire();
    wire.request(1, json!({"deaf": 0}));
    served.expect("is deaf");
    std::thread::scope(|scope| {
        let idle = scope.spawn(|| {
            served.server.wait_idle(quiet);
            assert_eq!(served.server.requests(), 0);
            Instant::now()
        });
        let before = Instant::now();
        served.gate.send(()).unwrap();
        assert!(matches!(wire.next(), Frame::Answer { .. }));
        assert!(idle.join().unwrap() >= before + quiet);
    });
}
