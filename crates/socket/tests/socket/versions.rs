//! Ends that do not have the same age. There is one version so far; the others are made up.

use hotcell_socket::frame::{Frame, Reason};
use hotcell_socket::{
    Along, AskError, Client, ClientSettings, ConnectError, Raw, Settings, Source, Versions,
};
use serde_json::json;

use crate::desk::{Served, Wire, ask, serve};

fn server(best: u32, others: &[u32]) -> Served {
    serve(Settings { versions: Versions::new(best, others), ..Settings::default() })
}

fn client(served: &Served, best: u32, others: &[u32]) -> Client {
    let versions = Versions::new(best, others);
    let settings = ClientSettings { versions, who: "old".into(), ..ClientSettings::default() };
    Client::connect(&served.path, settings).unwrap()
}

#[test]
fn the_best_version_that_both_speak_is_spoken() {
    for (of_server, of_client, chosen) in [
        ((2, &[1][..]), (2, &[1][..]), 2),
        ((2, &[1]), (1, &[]), 1),
        ((1, &[]), (2, &[1]), 1),
        ((3, &[2]), (2, &[1]), 2),
        ((2, &[1]), (3, &[2]), 2),
    ] {
        let served = server(of_server.0, of_server.1);
        // At once, after a hello, and with something that takes several writes.
        let mut at_once = client(&served, of_client.0, of_client.1);
        assert_eq!(ask(&mut at_once, json!({"version": 0})).unwrap(), json!([chosen, "old"]));
        let mut greeting = client(&served, of_client.0, of_client.1);
        greeting.greet().unwrap();
        assert_eq!(greeting.version(), Some(chosen));
        assert_eq!(ask(&mut greeting, json!({"version": 0})).unwrap(), json!([chosen, "old"]));
        let mut in_parts = client(&served, of_client.0, of_client.1);
        let files = vec![Source::reader(std::io::empty())];
        let along = Along { files, ..Along::default() };
        let answer = in_parts.ask(&Raw::of(&json!({"version": 0})).unwrap(), along).unwrap();
        assert_eq!(answer, json!([chosen, "old"]));
    }
}

#[test]
fn ends_that_have_no_version_in_common_say_so() {
    let served = server(5, &[4]);
    let error = ask(&mut client(&served, 3, &[2]), json!({"echo": 1})).unwrap_err();
    let AskError::Connect(ConnectError::WrongVersion { speaks }) = &error else {
        panic!("{error}")
    };
    assert!(speaks == &[5, 4] && error.is_unbegun());
    let error = client(&served, 3, &[2]).greet().unwrap_err();
    assert!(matches!(error, ConnectError::WrongVersion { .. }), "{error}");
    for versions in [vec![], vec![u32::MAX]] {
        let mut wire = Wire::new(&served.path);
        wire.send(&Frame::Hello { versions, who: String::new() });
        let Frame::End(end) = wire.next() else { panic!() };
        assert!(end.reason == Reason::Version && end.speaks == [5, 4] && end.cut.is_empty());
    }
}
