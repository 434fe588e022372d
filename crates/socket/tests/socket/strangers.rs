//! Real sockets between two users, which only root can have in one test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread;

use hotcell_socket::frame::{Frame, Reason};
use hotcell_socket::{Client, ClientSettings, ConnectError, Settings};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use crate::desk::{Wire, serve};

const NOBODY: u32 = 65534;

/// Does this on a thread that is another user's.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    if !geteuid().is_root() {
        eprintln!("SKIPPED sockets between two users: only root can be both");
        return None;
    }
    Some(thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = Uid::from_raw(NOBODY);
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
            act()
        });
        thread.join().unwrap()
    }))
}

fn open_to_all(path: &std::path::Path) {
    for (path, mode) in [(path, 0o666), (path.parent().unwrap(), 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let home = path.parent().unwrap().parent().unwrap();
    fs::set_permissions(home, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn another_user_does_not_get_to_the_socket() {
    let served = serve(Settings::default());
    let connect = || Client::connect(&served.path, ClientSettings::default());
    let Some(result) = as_nobody(connect) else { return };
    assert!(matches!(result, Err(ConnectError::NotAllowed { .. })));
    served.serves_others();
}

#[test]
fn another_user_is_sent_away_even_where_the_modes_were_opened() {
    let served = serve(Settings::default());
    if !geteuid().is_root() {
        return;
    }
    open_to_all(&served.path);
    let first = as_nobody(|| {
        let mut wire = Wire::new(&served.path);
        wire.next()
    });
    let Some(Frame::End(end)) = first else { panic!("{first:?}") };
    assert!(end.reason == Reason::Peer && end.cut.is_empty());
    served.serves_others();
    served.settles_at(0, 0);
}

#[test]
fn a_server_of_another_user_is_told_nothing() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
    let path = home.path().join("socket");
    let Some(listener) = as_nobody(|| UnixListener::bind(&path).unwrap()) else { return };
    let error = Client::connect(&path, ClientSettings::default()).unwrap_err();
    assert!(matches!(error, ConnectError::NotOurs { uid: NOBODY }), "{error}");
    let (mut stream, _) = listener.accept().unwrap();
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut said).unwrap();
    assert!(said.is_empty());
}
