//! Asks systemd for a scope of our own: a cgroup that this user may divide further.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::dbus::{self, Body, Call, DbusError};
use super::parse::{self, Version};

/// Longest wait for systemd altogether. It takes a few milliseconds; a machine under load, more.
const WAIT_MOST: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum ScopeError {
    #[error("`{}`: {source}", socket.display())]
    Bus { socket: PathBuf, source: DbusError },
    #[error("systemd accepted the scope, but did not move this process there in time")]
    NotMoved,
}

impl ScopeError {
    /// The command that would change it, or show more.
    pub(super) fn fix(&self) -> &'static str {
        match self {
            ScopeError::Bus { source: DbusError::Connect(_), .. } => {
                "sudo loginctl enable-linger $(id -un) && export \
                 XDG_RUNTIME_DIR=/run/user/$(id -u) (needs the packages dbus and, on Debian, \
                 dbus-user-session)"
            }
            ScopeError::Bus { .. } | ScopeError::NotMoved => {
                "systemd-run --user --scope -p Delegate=yes true, which says what systemd objects \
                 to"
            }
        }
    }
}

/// Makes the transient scope `unit` with this process in it, and returns when it is in.
pub(super) fn enter_scope(unit: &str) -> Result<(), ScopeError> {
    let deadline = Instant::now() + WAIT_MOST;
    let socket = bus_socket();
    dbus::call(&socket, &start_scope(unit, std::process::id()), deadline)
        .map_err(|source| ScopeError::Bus { socket, source })?;
    wait_until(deadline, || is_in(unit))
}

/// The user's own bus, where the user's systemd listens; for root, the system's.
fn bus_socket() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/dbus/system_bus_socket".into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| format!("/run/user/{}", uid.as_raw()).into())
        .join("bus")
}

/// `StartTransientUnit(name, mode, properties, auxiliary units)`.
fn start_scope(unit: &str, pid: u32) -> Call<'static> {
    let mut body = Body::default();
    body.string(unit);
    body.string("fail");
    body.array(8, |properties| {
        properties.property("Description", "s", |v| v.string("hotcell runs"));
        properties.property("Delegate", "b", |v| v.bool(true));
        properties.property("PIDs", "au", |v| v.array(4, |pids| pids.u32(pid)));
        // A scope that ends badly goes away like one that ends well.
        properties.property("CollectMode", "s", |v| v.string("inactive-or-failed"));
    });
    body.array(8, |_| {});
    Call {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StartTransientUnit",
        signature: "ssa(sv)a(sa(sv))",
        body,
    }
}

/// The reply comes when the job is queued. That it is done shows in the own membership, which needs
/// no subscription to signals.
fn wait_until(deadline: Instant, done: impl Fn() -> bool) -> Result<(), ScopeError> {
    while !done() {
        if Instant::now() >= deadline {
            return Err(ScopeError::NotMoved);
        }
        thread::sleep(POLL_EVERY);
    }
    Ok(())
}

fn is_in(unit: &str) -> bool {
    let text = std::fs::read("/proc/self/cgroup").unwrap_or_default();
    let own = parse::memberships(&text);
    own.iter().any(|m| m.version() == Version::V2 && m.path.ends_with(unit))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn waiting_for_the_move_is_bounded() {
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(matches!(wait_until(soon, || false), Err(ScopeError::NotMoved)));
        wait_until(soon, || true).unwrap();
        assert!(!is_in("hotcell-0123456789abcdef.scope"));
    }

    /// The daemon drops whoever sends a malformed message, so its polite answer that nobody has the
    /// name proves the marshalling of the whole call.
    #[test]
    fn a_real_bus_understands_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let config = dir.path().join("bus.conf");
        std::fs::write(
            &config,
            format!(
                "<busconfig><type>session</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
                 <policy context=\"default\"><allow eavesdrop=\"true\"/>\
                 <allow send_destination=\"*\" eavesdrop=\"true\"/>\
                 </policy></busconfig>",
                socket.display()
            ),
        )
        .unwrap();
        let daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg("--print-address=1")
            .arg(format!("--config-file={}", config.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut daemon) = daemon else {
            eprintln!("SKIPPED a_real_bus_understands_the_call: there is no dbus-daemon here");
            return;
        };
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let call = start_scope("hotcell-0123456789abcdef.scope", 1);
        let result = dbus::call(&socket, &call, Instant::now() + Duration::from_secs(5));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        match result {
            Err(DbusError::Reply { name, .. }) => {
                assert_eq!(name, "org.freedesktop.DBus.Error.ServiceUnknown");
            }
            other => panic!("{other:?}"),
        }
    }
}
