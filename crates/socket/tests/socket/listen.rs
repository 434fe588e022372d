//! Whose socket it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hotcell_socket::{
    Client, ClientSettings, ConnectError, ListenError, Listener, Server, Settings,
};
use serde_json::json;

use crate::desk::{SOON, ask, desk};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A directory that only we can enter.
fn private() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn connect(path: &Path) -> Result<Client, ConnectError> {
    Client::connect(path, ClientSettings::default())
}

#[test]
fn directory_and_socket_are_private_whatever_the_umask_is() {
    let home = private();
    let path = home.path().join("run/socket");
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    let listener = Listener::bind(&path);
    rustix::process::umask(before);
    let listener = listener.unwrap();
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    assert_eq!(mode(&home.path().join("run/socket.lock")), 0o600);
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    drop(listener);
    assert!(!path.exists());
    assert!(Listener::bind(&path).is_ok(), "what is left does not matter");
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    let home = private();
    for mode in [0o755, 0o710, 0o701, 0o777, 0o1777] {
        let dir = home.path().join(format!("{mode:o}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        let error = Listener::bind(&dir.join("socket")).unwrap_err();
        assert!(matches!(error, ListenError::Directory { .. }), "{error}");
        assert!(error.fix().contains("chmod 700"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
    let link = home.path().join("link");
    fs::create_dir(home.path().join("own")).unwrap();
    fs::set_permissions(home.path().join("own"), Permissions::from_mode(0o700)).unwrap();
    symlink("own", &link).unwrap();
    let error = Listener::bind(&link.join("socket")).unwrap_err();
    assert!(matches!(error, ListenError::Directory { .. }), "{error}");
    fs::write(home.path().join("file"), "").unwrap();
    let error = Listener::bind(&home.path().join("file/socket")).unwrap_err();
    assert!(matches!(error, ListenError::Directory { .. }), "{error}");
}

#[test]
fn what_is_not_a_dead_socket_of_ours_is_left_alone() {
    let home = private();
    let path = home.path().join("socket");
    type Plant = fn(&Path);
    let plants: [(&str, Plant); 4] = [
        ("file", |path| fs::write(path, "mine").unwrap()),
        ("directory", |path| fs::create_dir(path).unwrap()),
        ("link to nothing", |path| symlink("nowhere", path).unwrap()),
        ("link to a file", |path| symlink("/etc/passwd", path).unwrap()),
    ];
    for ending in ["", ".lock", ".new"] {
        let planted = home.path().join(format!("socket{ending}"));
        for (what, plant) in plants {
            if (ending, what) == (".lock", "file") {
                continue;
            }
            fs::remove_file(home.path().join("socket.lock")).ok();
            plant(&planted);
            let before = fs::symlink_metadata(&planted).unwrap().ino();
            let error = Listener::bind(&path).unwrap_err();
            assert!(matches!(error, ListenError::InTheWay { .. }), "{what}{ending}: {error}");
            assert_eq!(fs::symlink_metadata(&planted).unwrap().ino(), before);
            match what {
                "directory" => fs::remove_dir(&planted).unwrap(),
                _ => fs::remove_file(&planted).unwrap(),
            }
        }
    }
    assert!(Listener::bind(&path).is_ok());
}

#[test]
fn a_live_socket_is_served_even_without_a_lock_and_a_dead_one_is_replaced() {
    let home = private();
    let path = home.path().join("socket");
    let foreign = UnixListener::bind(&path).unwrap();
    let error = Listener::bind(&path).unwrap_err();
    assert!(matches!(error, ListenError::Served { pid: None, .. }), "{error}");
    drop(foreign);
    assert!(path.exists(), "a dead socket stays");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let error = Listener::bind(&path).unwrap_err();
    let own = std::process::id();
    assert!(matches!(error, ListenError::Served { pid: Some(pid), .. } if pid == own), "{error}");
    drop(listener);
}

#[test]
fn only_what_is_its_own_is_removed_at_the_end() {
    let home = private();
    let path = home.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "somebody else's").unwrap();
    drop(listener);
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
}

#[test]
fn of_twenty_servers_that_start_at_once_exactly_one_serves() {
    for stale in [false, true] {
        let home = private();
        let path = home.path().join("socket");
        if stale {
            drop(UnixListener::bind(&path).unwrap());
        }
        let barrier = Barrier::new(20);
        let results: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                Listener::bind(&path)
            };
            let threads: Vec<_> = (0..20).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for error in lost.into_iter().map(Result::unwrap_err) {
            assert!(matches!(error, ListenError::Served { .. }), "{error}");
        }
        let winner = won.into_iter().next().unwrap().unwrap();
        let server = Server::start(winner, desk().0, Settings::default()).unwrap();
        assert_eq!(ask(&mut connect(&path).unwrap(), json!({"echo": 1})).unwrap(), json!(1));
        drop(server);
    }
}

/// This test program again, as a server that has to be killed.
fn other_process(path: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "listen::serves_until_it_is_killed", "--ignored"]);
    let child = command.env("SOCKET_TO_SERVE", path).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while connect(path).is_err() {
        assert!(start.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
#[ignore = "it is started by other tests, as a process of its own"]
fn serves_until_it_is_killed() {
    let Some(path) = std::env::var_os("SOCKET_TO_SERVE") else { return };
    let listener = Listener::bind(Path::new(&path)).unwrap();
    let _server = Server::start(listener, desk().0, Settings::default()).unwrap();
    std::thread::sleep(SOON);
}

#[test]
fn a_server_in_another_process_is_the_only_one_until_it_is_killed() {
    let home = private();
    let path = home.path().join("socket");
    let mut child = other_process(&path);
    let error = Listener::bind(&path).unwrap_err();
    let pid = child.id();
    assert!(matches!(error, ListenError::Served { pid: Some(of), .. } if of == pid), "{error}");
    let mut client = connect(&path).unwrap();
    assert_eq!(client.server().pid, pid as i32);
    assert_eq!(ask(&mut client, json!({"echo": 1})).unwrap(), json!(1));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(path.exists());
    assert!(matches!(connect(&path), Err(ConnectError::NotThere { .. })));
    assert!(!ask(&mut client, json!({"echo": 1})).unwrap_err().is_unbegun());
    let server = Server::start(Listener::bind(&path).unwrap(), desk().0, Settings::default());
    let server = server.unwrap();
    assert_eq!(ask(&mut connect(&path).unwrap(), json!({"echo": 2})).unwrap(), json!(2));
    drop(server);
}

#[test]
fn a_path_may_be_longer_than_the_address_of_a_socket() {
    let home = private();
    let mut dir = home.path().to_owned();
    for _ in 0..5 {
        dir.push("d".repeat(60));
        fs::create_dir(&dir).unwrap();
    }
    let path = dir.join("run/socket");
    assert!(matches!(connect(&path), Err(ConnectError::NotThere { .. })));
    let server = Server::start(Listener::bind(&path).unwrap(), desk().0, Settings::default());
    let server = server.unwrap();
    assert_eq!(ask(&mut connect(&path).unwrap(), json!({"echo": 1})).unwrap(), json!(1));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn whoever_is_not_there_is_told_apart() {
    let home = private();
    for name in ["missing", "missing/socket"] {
        let error = connect(&home.path().join(name)).unwrap_err();
        assert!(matches!(error, ConnectError::NotThere { .. }) && error.is_nobody(), "{error}");
    }
    fs::write(home.path().join("file"), "").unwrap();
    let error = connect(&home.path().join("file")).unwrap_err();
    assert!(matches!(error, ConnectError::NotThere { .. }), "{error}");
}
