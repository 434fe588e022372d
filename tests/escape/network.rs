//! NET-* and CLK-* that apply to a run without network: off means off.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use hotcell_tests::{Answers, Attack, Quiet, hole, token};
use hotcell_types::Profile;

/// Listeners of the host that count who comes.
struct Listeners {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Listeners {
    fn new() -> Listeners {
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Listeners { tcp, udp }
    }

    fn connections(&self) -> usize {
        std::iter::from_fn(|| self.tcp.accept().ok()).count()
    }

    fn packets(&self) -> usize {
        std::iter::from_fn(|| self.udp.recv(&mut [0; 2048]).ok()).count()
    }

    /// Tries every way out that the standard library has.
    fn attack(&self) -> Attack {
        let tcp = self.tcp.local_addr().unwrap().port();
        let udp = self.udp.local_addr().unwrap().port();
        Attack::python(&format!(
            r"
import socket
def tcp(host, port):
    with socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(1); s.connect((host, port))
def udp(host, port):
    with socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b'hello', (host, port))
def icmp(kind):
    with socket.socket(socket.AF_INET, kind, 1) as s: s.sendto(b'\x08' + bytes(7), ('127.0.0.1', 0))
for host in ['127.0.0.1', '127.0.0.53', '1.1.1.1', '169.254.169.254', '10.0.0.1', '192.168.0.1', '::1', 'fe80::1', '224.0.0.251']:
    say('tcp ' + host, attempt(tcp, host, {tcp}))
    say('udp ' + host, attempt(udp, host, {udp}))
say('ping', attempt(icmp, socket.SOCK_DGRAM))
say('raw', attempt(icmp, socket.SOCK_RAW))
"
        ))
    }
}

/// No permission, no route, no interface.
const NOWHERE: &str = "EACCES|EPERM|ENETUNREACH|EHOSTUNREACH|EADDRNOTAVAIL|ECONNREFUSED|EAFNOSUPPORT|EPROTONOSUPPORT|EINVAL";

#[test]
fn net_01_net_04_off_means_off() {
    let listeners = Listeners::new();
    for profile in [Profile::Standard, Profile::StandardNet] {
        // The proxy's variables are advice, and their absence or opposite changes nothing.
        let attack = listeners.attack().profile(profile).env("NO_PROXY", "*");
        let answers = attack.answers();
        for (name, answer) in answers.iter() {
            // Into the void of its own loopback.
            let void = profile == Profile::StandardNet && name == "udp 127.0.0.1";
            let void = void
                || (profile == Profile::StandardNet && answer == "ok" && name.starts_with("udp"));
            assert!(void || NOWHERE.contains(answer), "{profile} {name}: {answer}");
        }
    }
    assert_eq!((listeners.connections(), listeners.packets()), (0, 0));
}

#[test]
fn net_01_control_what_each_layer_stops() {
    let listeners = Listeners::new();
    // The namespace alone.
    let alone = listeners.attack().without_seccomp().without(hole::LANDLOCK).answers();
    alone.is("tcp 127.0.0.1", "ENETUNREACH|EADDRNOTAVAIL|ECONNREFUSED");
    // The filter alone.
    let alone = listeners.attack().without(hole::NET | hole::LANDLOCK).answers();
    alone.are(&[("tcp 127.0.0.1", "EACCES"), ("udp 127.0.0.1", "EACCES")]);
    assert_eq!((listeners.connections(), listeners.packets()), (0, 0));
    // Without all three the listeners are reached.
    let attack = listeners.attack().without_seccomp().without(hole::NET | hole::LANDLOCK);
    attack.answers().are(&[("tcp 127.0.0.1", "ok"), ("udp 127.0.0.1", "ok")]);
    assert!(listeners.connections() > 0 && listeners.packets() > 0);
}

#[test]
fn net_33_landlock_does_not_cover_udp() {
    // Landlock alone stops TCP and lets datagrams out: that is what the namespace and the filter are for.
    let listeners = Listeners::new();
    let only_landlock = listeners.attack().without_seccomp().without(hole::NET).answers();
    only_landlock.are(&[("tcp 127.0.0.1", "EACCES"), ("udp 127.0.0.1", "ok")]);
    assert_eq!(listeners.connections(), 0);
    assert!(listeners.packets() > 0);
}

#[test]
fn net_02_names_are_not_asked_for_outside() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let port = server.local_addr().unwrap().port();
    let code = format!(
        r"
import socket, subprocess
name = 'canary.example.com'
for f in (lambda: socket.getaddrinfo(name, 80), lambda: socket.gethostbyname(name), lambda: socket.gethostbyaddr('1.1.1.1')):
    try: say('resolved', f())
    except OSError: pass
def ask(port, host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'\0\x01\x01\0\0\x01\0\0\0\0\0\0\x06canary\0\0\x01\0\x01', (host, port))
for host in ('127.0.0.1', '127.0.0.53', '8.8.8.8', '224.0.0.251'):
    say('ask ' + host, attempt(ask, {port} if host == '127.0.0.1' else 53, host))
for path in ('/run/systemd/resolve/io.systemd.Resolve', '/var/run/nscd/socket', '/run/avahi-daemon/socket'):
    s = socket.socket(socket.AF_UNIX)
    say(path, attempt(s.connect, path))
say('resolv', read('/etc/resolv.conf'))
"
    );
    let answers = Attack::python(&code).answers();
    assert!(answers.iter().all(|(name, _)| name != "resolved"), "{answers:?}");
    for (name, answer) in answers.iter() {
        assert!(["EACCES", "ENOENT"].contains(&answer), "{name}: {answer}");
    }
    let asked = server.recv(&mut [0; 512]);
    assert!(asked.is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)));
    // The same datagram arrives where nothing holds it back.
    Attack::python(&code).without_seccomp().without(hole::NET).run();
    assert!(server.recv(&mut [0; 512]).is_ok());
}

#[test]
fn net_26_our_own_doors() {
    // There is no API to reach yet, but the launcher's sockets: pairs without a name, in a namespace
    // that no run has.
    let code = r"
say('named', [line for line in read('/proc/self/net/unix').split('|')[1:] if line])
say('tcp', read('/proc/self/net/tcp').count('|'))
";
    Attack::python(code).answers().are(&[("named", "[]"), ("tcp", "1")]);
    let control = Attack::python(code).without(hole::NET).answers();
    assert_ne!(control.get("named"), "[]");
}

#[test]
fn net_30_listening() {
    let name = token();
    let code = format!(
        r"
import socket, time
def listen(family, address):
    s = socket.socket(family); s.bind(address); s.listen(); held.append(s)
held = []
say('tcp', attempt(listen, socket.AF_INET, ('0.0.0.0', 48123)))
say('abstract', attempt(listen, socket.AF_UNIX, '\0{name}'))
time.sleep(2)
"
    );
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let reaches = |attack: Attack| {
        let running = attack.start().unwrap();
        let handle = running.handle();
        let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
        let by_name = || UnixStream::connect_addr(&address).is_ok();
        let reached = hotcell_tests::holds_within(Duration::from_secs(1), by_name);
        let tcp = std::net::TcpStream::connect("127.0.0.1:48123").is_ok();
        handle.cancel();
        (reached, tcp, Answers::of(&waiting.join().unwrap()))
    };
    let (by_name, by_port, answers) = reaches(Attack::python(&code));
    assert!(!by_name && !by_port);
    answers.are(&[("tcp", "EACCES"), ("abstract", "ok")]);
    let (by_name, by_port, _) = reaches(Attack::python(&code).profile(Profile::StandardNet));
    assert!(!by_name && !by_port);
    // The namespace alone keeps the name inside; the port, the filter and Landlock too.
    let (by_name, _, _) = reaches(Attack::python(&code).without(hole::NET));
    assert!(by_name);
    let attack = Attack::python(&code).without(hole::NET | hole::LANDLOCK).without_seccomp();
    let (_, by_port, answers) = reaches(attack);
    assert!(by_port, "{answers:?}");
}
