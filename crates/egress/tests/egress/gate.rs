//! The gate with a real airlock, here a plain process: what goes through, what does not, and what happens when
//! that process dies.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hotcell_egress::{
    BUDGET, Budget, End, Event, Fill, Gate, Host, How, Pass, Passage, Refused, Resolver, Settings,
    Unresolved, Way,
};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{
    Ca, Names, PLACEHOLDER, Plain, Rules, SECRET, Secret, Server, answer_all, drain, ok, until,
};

/// A gate with one run.
pub(crate) struct World {
    gate: Gate,
    pids: Arc<Mutex<Vec<u32>>>,
}

pub(crate) struct Inside {
    pub(crate) passage: Passage,
    pub(crate) credential: String,
    /// Of its authority.
    pem: String,
    proxy: SocketAddr,
    pub(crate) rules: Arc<Rules>,
}

impl World {
    pub(crate) fn new(names: &Arc<Names>, ca: Option<&Ca>) -> World {
        let (start, pids) = Plain::new();
        let settings = Settings { authorities: ca.and_then(Ca::path) };
        World { gate: Gate::new(start, Arc::clone(names) as _, settings), pids }
    }

    pub(crate) fn open(&self, rules: Rules) -> Inside {
        self.open_with(rules, None, BUDGET)
    }

    pub(crate) fn open_with(
        &self,
        rules: Rules,
        fill: Option<Arc<dyn Fill>>,
        budget: Budget,
    ) -> Inside {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let rules = Arc::new(rules);
        let listeners = vec![OwnedFd::from(listener)];
        let pass = Pass::new().unwrap();
        let (credential, pem) = (pass.credential().to_owned(), pass.authority().unwrap());
        let judge = Arc::clone(&rules) as _;
        let passage = self.gate.open(pass, listeners, judge, fill, budget).unwrap();
        Inside { passage, credential, pem, proxy, rules }
    }

    fn pid(&self) -> Pid {
        let last = *self.pids.lock().unwrap().last().unwrap();
        Pid::from_raw(i32::try_from(last).unwrap()).unwrap()
    }
}

impl Inside {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn basic(&self) -> String {
        BASE64.encode(format!("run:{}", self.credential).as_bytes())
    }

    /// A whole request through the proxy, and all that comes back.
    pub(crate) fn ask(&self, target: &str, host: &str, further: &str) -> String {
        let mut stream = self.connect();
        self.send(&mut stream, target, host, &format!("Connection: close\r\n{further}"));
        drain(&mut stream)
    }

    fn send(&self, stream: &mut TcpStream, target: &str, host: &str, further: &str) {
        let basic = self.basic();
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {basic}\r\n{further}\r\n"
        )
        .unwrap();
    }

    /// A tunnel, if there is one; the answer's head otherwise.
    fn tunnel(&self, to: &str) -> Result<TcpStream, String> {
        let mut stream = self.connect();
        let basic = self.basic();
        write!(
            stream,
            "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nProxy-Authorization: Basic {basic}\r\n\r\n"
        )
        .unwrap();
        let head = head(&mut stream);
        if head.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(head + &drain(&mut stream)) }
    }
}

pub(crate) fn head(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// TLS through a tunnel, with whom the client trusts.
fn tls(stream: TcpStream, name: &str, pem: &[u8]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn upstream() -> Server {
    Server::answering(ok)
}

#[test]
fn net_05_plain_http_is_decided_on_as_everything_else() {
    let server = upstream();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"]), ("denied.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let port = server.port();
    let inside = world.open(Rules::of(&[("allowed.test", port)]));
    let host = format!("allowed.test:{port}");
    let answer = inside.ask(&format!("http://{host}/x?y"), &host, "X-Mine: yes\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("GET /x?y HTTP/1.1") && answer.contains("X-Mine: yes"), "{answer}");
    assert!(!answer.to_lowercase().contains("proxy-"), "net_32: {answer}");
    assert_eq!((server.count(), names.asked()), (1, 1));
    let denied = format!("denied.test:{port}");
    let answer = inside.ask(&format!("http://{denied}/"), &denied, "");
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("net.connect: denied.test"),
        "{answer}"
    );
    assert_eq!((server.count(), names.asked()), (1, 1));
    inside.rules.wait(|event| matches!(event, Event::Ended { how: How::Proxy(_), down: 1.., .. }));
    let counts = inside.passage.counts();
    assert_eq!((counts.requests, counts.refused), (2, 1));
    assert!(counts.up > 0 && counts.down > 0, "{counts:?}");
}

#[test]
fn a_second_request_on_the_same_connection_is_decided_anew() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"]), ("denied.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules::of(&[("allowed.test", port)]));
    let mut stream = inside.connect();
    let read = |stream: &mut TcpStream| {
        let head = head(stream);
        let length = head.to_lowercase().split("content-length: ").nth(1).unwrap().to_owned();
        let mut body = vec![0; length.lines().next().unwrap().trim().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        head
    };
    let allowed = format!("allowed.test:{port}");
    for _ in 0..2 {
        inside.send(&mut stream, &format!("http://{allowed}/"), &allowed, "");
        assert!(read(&mut stream).starts_with("HTTP/1.1 200"));
    }
    // On the same connection, without another lookup, and judged.
    assert_eq!((server.count(), names.asked()), (1, 1));
    let ways = |way: Way| {
        let is =
            |event: &Event| matches!(event, Event::Allowed { way: found, .. } if *found == way);
        inside.rules.events().iter().filter(|event| is(event)).count()
    };
    assert_eq!((ways(Way::Plain), ways(Way::Again)), (1, 1));
    let denied = format!("denied.test:{port}");
    inside.send(&mut stream, &format!("http://{denied}/"), &denied, "");
    assert!(head(&mut stream).starts_with("HTTP/1.1 403"));
    assert_eq!(server.count(), 1);
}

#[test]
fn net_13_connect_to_an_internal_address_is_refused() {
    let server = upstream();
    let world = World::new(&Names::of(&[]), None);
    let mut rules = Rules { everything: true, ..Rules::default() };
    rules.addresses.clear();
    let inside = world.open(rules);
    let port = server.port();
    for to in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let answer = inside.tunnel(&format!("{to}:{port}")).unwrap_err();
        assert!(answer.starts_with("HTTP/1.1 403"), "{to}: {answer}");
    }
    for to in ["127.1", "2130706433", "0x7f000001", "0177.0.0.1"] {
        let answer = inside.tunnel(&format!("{to}:{port}")).unwrap_err();
        assert!(answer.starts_with("HTTP/1.1 400"), "{to}: {answer}");
    }
    assert_eq!(server.count(), 0);
}

#[test]
fn a_tunnel_carries_tls_from_end_to_end() {
    let ca = Ca::new();
    let server = ca.answering("allowed.test", |_| ok("hello"));
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let tunnel = inside.tunnel(&format!("allowed.test:{}", server.port())).unwrap();
    let pem = std::fs::read(ca.pem.path()).unwrap();
    let mut stream = tls(tunnel, "allowed.test", &pem);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 200"));
}

#[test]
fn net_08_a_tunnel_is_for_the_name_that_was_allowed() {
    let ca = Ca::new();
    let heard = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&heard);
    let server = Server::start(move |mut stream| {
        let mut piece = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            *counted.lock().unwrap() += length;
        }
    });
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let pem = std::fs::read(ca.pem.path()).unwrap();
    // Another name, and none, which is what an address is greeted with.
    for name in ["other.test", "allowed.test.evil.test", "192.0.2.1"] {
        let tunnel = inside.tunnel(&format!("allowed.test:{}", server.port())).unwrap();
        let mut stream = tls(tunnel, name, &pem);
        assert!(stream.write_all(b"x").and_then(|()| stream.flush()).is_err(), "{name}");
    }
    assert_eq!(*heard.lock().unwrap(), 0, "nothing was passed on");
    // The control: the same greeting with the right name is.
    let tunnel = inside.tunnel(&format!("allowed.test:{}", server.port())).unwrap();
    let mut stream = tls(tunnel, "allowed.test", &pem);
    stream.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(stream.write_all(b"x").and_then(|()| stream.flush()).is_err());
    until("the greeting", || *heard.lock().unwrap() > 0);
}

#[test]
fn net_09_a_raw_tunnel_needs_a_rule_of_its_own() {
    let server = Server::start(|mut stream| {
        drop(stream.write_all(b"220 hello\r\n"));
        answer_all(stream, &|_| b"pong".to_vec());
    });
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let to = format!("allowed.test:{}", server.port());
    let closed = world.open(Rules::of(&[("allowed.test", server.port())]));
    let mut tunnel = closed.tunnel(&to).unwrap();
    tunnel.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let answer = drain(&mut tunnel);
    assert!(!answer.contains("pong"), "{answer}");
    let open = world.open(Rules { raw: true, ..Rules::of(&[("allowed.test", server.port())]) });
    let mut tunnel = open.tunnel(&to).unwrap();
    tunnel.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    tunnel.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"220 hello\r\npong");
}

#[test]
fn another_runs_credential_opens_nothing() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let one = world.open(Rules::of(&[("allowed.test", port)]));
    let other = world.open(Rules::of(&[("allowed.test", port)]));
    assert_ne!(one.credential, other.credential);
    assert_eq!(one.credential.len(), 32);
    let crossed = Inside { proxy: other.proxy, ..one };
    let host = format!("allowed.test:{port}");
    let answer = crossed.ask(&format!("http://{host}/"), &host, "");
    assert!(answer.starts_with("HTTP/1.1 407"), "{answer}");
    assert_eq!(server.count(), 0);
    other.rules.wait(|event| matches!(event, Event::Malformed { .. }));
    assert!(!format!("{:?} {:?}", other.passage, other.rules.events()).contains(&other.credential));
}

#[test]
fn an_address_that_does_not_answer_is_followed_by_the_next() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.9", "127.0.0.1"])]);
    let world = World::new(&names, None);
    let mut rules = Rules::of(&[("allowed.test", port)]);
    rules.addresses.push("127.0.0.9".parse().unwrap());
    let inside = world.open(rules);
    let host = format!("allowed.test:{port}");
    let answer = inside.ask(&format!("http://{host}/"), &host, "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    names.then("dead.test", &["127.0.0.9"]);
    let dead = world.open(Rules {
        addresses: vec!["127.0.0.9".parse().unwrap()],
        ..Rules::of(&[("dead.test", port)])
    });
    let host = format!("dead.test:{port}");
    let answer = dead.ask(&format!("http://{host}/"), &host, "");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("nobody listens"), "{answer}");
}

/// What holds when the process dies: nothing passes, it is told, and another one takes over.
fn outlives(signal: Signal) {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules::of(&[("allowed.test", port)]));
    let host = format!("allowed.test:{port}");
    let mut open = inside.connect();
    inside.send(&mut open, &format!("http://{host}/"), &host, "");
    assert!(head(&mut open).starts_with("HTTP/1.1 200"));
    let before = world.pid();
    kill_process(before, signal).unwrap();
    inside.rules.wait(|event| matches!(event, Event::Lost { .. }));
    // The connection broke with it.
    inside.send_quietly(&mut open, &host);
    assert!(!drain(&mut open).contains("HTTP/1.1 200"));
    inside.rules.wait(|event| matches!(event, Event::Restored));
    assert_ne!(world.pid(), before);
    let answer = inside.ask(&format!("http://{host}/"), &host, "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

impl Inside {
    fn send_quietly(&self, stream: &mut TcpStream, host: &str) {
        drop(write!(stream, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
}

#[test]
fn net_28_a_proxy_that_is_killed_lets_nothing_through_and_is_replaced() {
    outlives(Signal::KILL);
}

#[test]
fn net_28_a_proxy_that_stands_still_lets_nothing_through_and_is_replaced() {
    outlives(Signal::STOP);
}

#[test]
fn without_a_proxy_there_is_no_passage() {
    let start = Box::new(Plain { fails: true, ..Plain::default() });
    let gate = Gate::new(start, Names::of(&[]), Settings::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pass = Pass::new().unwrap();
    let closed = gate.open(pass, vec![listener.into()], Arc::new(Rules::of(&[])), None, BUDGET);
    assert!(closed.unwrap_err().to_string().contains("there is none today"));
}

#[test]
fn a_passage_ends_as_a_whole() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules { raw: true, ..Rules::of(&[("allowed.test", port)]) });
    let stays = world.open(Rules::of(&[("allowed.test", port)]));
    let mut tunnel = inside.tunnel(&format!("allowed.test:{port}")).unwrap();
    let (proxy, passage) = (inside.proxy, inside.passage);
    drop(passage);
    assert_eq!(drain(&mut tunnel), "");
    until("the end of its listener", || TcpStream::connect(proxy).is_err());
    let host = format!("allowed.test:{port}");
    assert!(stays.ask(&format!("http://{host}/"), &host, "").starts_with("HTTP/1.1 200"));
}

#[test]
fn net_29_what_an_open_tunnel_carried_is_known_when_the_run_is_over() {
    let server = Server::start(|mut stream| {
        let mut bytes = vec![0; 300_000];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(b"all").unwrap();
        // Until it is closed from the other side.
        stream.read_to_end(&mut bytes).ok();
    });
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules { raw: true, ..Rules::of(&[("allowed.test", port)]) });
    let mut tunnel = inside.tunnel(&format!("allowed.test:{port}")).unwrap();
    tunnel.write_all(&vec![b'x'; 300_000]).unwrap();
    tunnel.read_exact(&mut [0; 3]).unwrap();
    let counts = inside.passage.close();
    assert_eq!((counts.requests, counts.up, counts.down), (1, 300_000, 3));
}

/// The greeting of a TLS client for a host, with these extensions besides its name.
fn greeting(host: &str, further: &[u8]) -> Vec<u8> {
    let sized = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[..], bytes].concat()
    };
    let name = [&[0][..], &sized(host.as_bytes())].concat();
    let name = [&[0, 0][..], &sized(&sized(&name))].concat();
    let extensions = sized(&[&name[..], further].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &extensions].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

#[test]
fn net_08_a_greeting_with_a_name_that_nobody_can_read_gets_no_further() {
    const ENCRYPTED: &[u8] = &[0xfe, 0x0d, 0, 1, 0];
    let server = Server::start(|mut stream| drop(stream.write_all(b"heard")));
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let inside = world.open(Rules::of(&[("allowed.test", port)]));
    for (further, heard) in [(&[][..], "heard"), (ENCRYPTED, "\u{15}\u{3}\u{3}\0\u{2}\u{2}p")] {
        let mut tunnel = inside.tunnel(&format!("allowed.test:{port}")).unwrap();
        tunnel.write_all(&greeting("allowed.test", further)).unwrap();
        assert_eq!(drain(&mut tunnel), heard);
    }
    inside
        .rules
        .wait(|event| matches!(event, Event::Ended { how: How::Proxy(End::OtherName), .. }));
}

#[test]
fn a_run_makes_as_many_requests_as_it_may() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let budget = Budget { requests: 2, ..BUDGET };
    let inside = world.open_with(Rules::of(&[("allowed.test", port)]), None, budget);
    let host = format!("allowed.test:{port}");
    let statuses: Vec<String> = (0..3)
        .map(|_| {
            inside.ask(&format!("http://{host}/"), &host, "").chars().skip(9).take(3).collect()
        })
        .collect();
    assert_eq!(statuses, ["200", "200", "429"]);
}

/// What a run may send is the end of what it can send, through a tunnel that nobody looks into as well.
#[test]
fn net_29_no_more_goes_out_than_a_run_may_send() {
    const MOST: u64 = 256 * 1024;
    let received = Arc::new(Mutex::new(0_u64));
    let counted = Arc::clone(&received);
    let server = Server::start(move |mut stream| {
        let mut piece = [0; 16 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            *counted.lock().unwrap() += length as u64;
        }
    });
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let budget = Budget { up: MOST, ..BUDGET };
    let rules = Rules { raw: true, ..Rules::of(&[("allowed.test", server.port())]) };
    let inside = world.open_with(rules, None, budget);
    let to = format!("allowed.test:{}", server.port());
    let mut tunnel = inside.tunnel(&to).unwrap();
    let mut sent = 0;
    while sent < 64 * MOST && tunnel.write_all(&[b'x'; 16 * 1024]).is_ok() {
        sent += 16 * 1024;
    }
    assert!(sent < 64 * MOST, "it is cut off");
    inside.rules.wait(|event| matches!(event, Event::Ended { up: 1.., .. }));
    until("the end of what was on its way", || *received.lock().unwrap() > 0);
    assert!(*received.lock().unwrap() <= MOST, "{} bytes came", received.lock().unwrap());
    // There is nothing left for another one.
    let mut next = inside.connect();
    inside.send(&mut next, &format!("http://{to}/"), &to, "Connection: close\r\n");
    assert!(!drain(&mut next).contains("HTTP/1.1 200"));
    assert!(inside.passage.counts().up <= MOST);
}

/// What went through a process that was lost is spent all the same, and known.
#[test]
fn net_28_net_29_what_a_run_may_send_is_no_more_after_its_proxy_was_lost() {
    const MOST: u64 = 12 << 20;
    let received = Arc::new(Mutex::new(0_u64));
    let counted = Arc::clone(&received);
    let server = Server::start(move |mut stream| {
        let mut piece = [0; 64 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            *counted.lock().unwrap() += length as u64;
        }
    });
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let rules = Rules { raw: true, ..Rules::of(&[("allowed.test", server.port())]) };
    let inside = world.open_with(rules, None, Budget { up: MOST, ..BUDGET });
    let to = format!("allowed.test:{}", server.port());
    let mut tunnel = inside.tunnel(&to).unwrap();
    let sent = 8 << 20;
    tunnel.write_all(&vec![b'x'; sent as usize]).unwrap();
    until("what was sent", || *received.lock().unwrap() == sent);
    // All but the last is known already.
    until("what is known", || inside.passage.counts().up > sent - (1 << 20));
    kill_process(world.pid(), Signal::KILL).unwrap();
    inside.rules.wait(|event| matches!(event, Event::Restored));
    let is_told = |event: &Event| matches!(event, Event::Ended { how: How::Lost, up, .. } if *up > sent - (1 << 20));
    inside.rules.wait(is_told);
    let counts = inside.passage.counts();
    assert!(counts.up + counts.unknown >= sent && counts.up <= sent, "{counts:?}");
    // Something is left, and no more than that.
    let mut tunnel = inside.tunnel(&to).unwrap();
    let mut more = 0;
    while more < 64 * MOST && tunnel.write_all(&[b'x'; 16 * 1024]).is_ok() {
        more += 16 * 1024;
    }
    assert!(more < 64 * MOST, "it is cut off");
    inside.rules.wait(|event| matches!(event, Event::Ended { how: How::Proxy(End::OverUp), .. }));
    until("more", || *received.lock().unwrap() > sent);
    assert!(*received.lock().unwrap() <= MOST, "{} bytes came", received.lock().unwrap());
}

/// Whoever floods the proxy has its own share of it to fill.
#[test]
fn net_27_a_run_that_floods_the_proxy_takes_nothing_from_another() {
    let server = upstream();
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let flooding = world.open(Rules::of(&[("allowed.test", port)]));
    let other = world.open(Rules::of(&[("allowed.test", port)]));
    let before = world.pid();
    // A head without an end.
    let mut endless = flooding.connect();
    let piece = [b'x'; 64 * 1024];
    drop(endless.write_all(b"GET http://allowed.test/ HTTP/1.1\r\nX: "));
    for _ in 0..64 {
        if endless.write_all(&piece).is_err() {
            break;
        }
    }
    // And half of a head each, by far more of them than it may have; the rest waits before the door.
    let soon = Duration::from_millis(20);
    let connect = |_| TcpStream::connect_timeout(&flooding.proxy, soon).ok();
    let mut open: Vec<TcpStream> = (0..256).filter_map(connect).collect();
    for stream in &mut open {
        drop(stream.write_all(b"GET http://allowed.test/ HTTP/1.1\r\nX: "));
    }
    let host = format!("allowed.test:{port}");
    for _ in 0..20 {
        let answer = other.ask(&format!("http://{host}/"), &host, "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!((server.count(), world.pid()), (20, before), "nothing else came, and it lives");
    drop(open);
}

/// Nobody answers for `slow.test`, as long as anybody waits.
struct Slow {
    names: Arc<Names>,
    waiting: Arc<AtomicUsize>,
}

impl Resolver for Slow {
    fn resolve(
        &self,
        name: &Host,
        party: u64,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, Unresolved> {
        if name.as_str() == "slow.test" {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            return Err(Unresolved::Late);
        }
        self.names.resolve(name, party, deadline)
    }
}

#[test]
fn out_10_names_that_never_come_hold_up_no_other_run() {
    let server = upstream();
    let port = server.port();
    let (start, pids) = Plain::new();
    let waiting = Arc::<AtomicUsize>::default();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let slow = Slow { names, waiting: Arc::clone(&waiting) };
    let world = World { gate: Gate::new(start, Arc::new(slow), Settings::default()), pids };
    let hosts = [("slow.test", port), ("allowed.test", port)];
    let patient = Budget { connect_time: 20_000, ..BUDGET };
    let first = world.open_with(Rules::of(&hosts), None, patient);
    let other = world.open(Rules::of(&hosts));
    // As many as it may have, all of which wait.
    let to = format!("slow.test:{port}");
    let mut open: Vec<TcpStream> = (0..64).map(|_| first.connect()).collect();
    for stream in &mut open {
        first.send(stream, &format!("http://{to}/"), &to, "");
    }
    until("those that wait", || waiting.load(Ordering::SeqCst) > 8);
    let begun = Instant::now();
    let host = format!("allowed.test:{port}");
    for _ in 0..20 {
        let answer = other.ask(&format!("http://{host}/"), &host, "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // And who waits is told in the end.
    let impatient = Budget { connect_time: 50, ..BUDGET };
    let late = world.open_with(Rules::of(&hosts), None, impatient);
    let answer = late.ask(&format!("http://{to}/"), &to, "");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("in time"), "{answer}");
}

#[test]
fn a_thousand_connections_at_once() {
    if rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
        < 8192
    {
        return println!("SKIPPED a thousand connections: `ulimit -n` is below 8192");
    }
    let server = Server::start(|mut stream| {
        let mut byte = [0];
        while stream.read(&mut byte).unwrap_or(0) == 1 {
            drop(stream.write_all(&byte));
        }
    });
    let port = server.port();
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    let rules = || Rules { raw: true, ..Rules::of(&[("allowed.test", port)]) };
    let runs: Vec<Inside> = (0..16).map(|_| world.open(rules())).collect();
    let to = format!("allowed.test:{port}");
    let mut tunnels: Vec<TcpStream> =
        (0..1000).map(|at| runs[at % runs.len()].tunnel(&to).unwrap()).collect();
    for (at, tunnel) in tunnels.iter_mut().enumerate() {
        tunnel.write_all(&[at as u8]).unwrap();
    }
    for (at, tunnel) in tunnels.iter_mut().enumerate() {
        let mut byte = [0];
        tunnel.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [at as u8]);
    }
    assert_eq!(server.count(), 1000);
}

/// Echoes what it got, in a header, in the body and in pieces, so that all of it has to be hidden.
fn echo(ca: &Ca) -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let server = ca.answering("secret.test", move |request| {
        noted.lock().unwrap().push(request.to_owned());
        let (one, other) = SECRET.split_at(7);
        format!(
            "HTTP/1.1 200 OK\r\nX-Echo: {SECRET}\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\nyou said {one}\r\n{:x}\r\n{other}, all\r\n0\r\n\r\n",
            9 + one.len(),
            other.len() + 5
        )
        .into_bytes()
    });
    (server, seen)
}

fn secret_world(ca: &Ca, intercept: bool) -> (World, Inside, Server, Arc<Mutex<Vec<String>>>) {
    let (server, seen) = echo(ca);
    let names = Names::of(&[("secret.test", &["127.0.0.1"]), ("other.test", &["127.0.0.1"])]);
    let world = World::new(&names, Some(ca));
    let hosts = [("secret.test", server.port()), ("other.test", server.port())];
    let rules = Rules { intercept, ..Rules::of(&hosts) };
    let fill: Arc<dyn Fill> = Arc::new(Secret { host: "secret.test" });
    let inside = world.open_with(rules, Some(fill), BUDGET);
    (world, inside, server, seen)
}

#[test]
fn a_secret_goes_out_over_tls_and_is_hidden_in_what_comes_back() {
    let ca = Ca::new();
    let (_world, inside, server, seen) = secret_world(&ca, false);
    let host = format!("secret.test:{}", server.port());
    let basic = BASE64.encode(format!("me:{PLACEHOLDER}").as_bytes());
    for header in [format!("X-Token: {PLACEHOLDER}"), format!("Authorization: Basic {basic}")] {
        let further = format!("{header}\r\nRange: bytes=0-5\r\nAccept-Encoding: gzip\r\n");
        let answer = inside.ask(&format!("https://{host}/x"), &host, &further);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains(SECRET) && answer.contains("[masked]"), "{answer}");
        assert!(!answer.contains(&SECRET[..7]) && !answer.contains(&SECRET[7..]), "{answer}");
    }
    let seen = seen.lock().unwrap();
    assert!(seen[0].contains(&format!("X-Token: {SECRET}")), "{}", seen[0]);
    let filled = BASE64.encode(format!("me:{SECRET}").as_bytes());
    assert!(seen[1].contains(&format!("Authorization: Basic {filled}")), "{}", seen[1]);
    for request in seen.iter() {
        let lower = request.to_lowercase();
        assert!(!lower.contains("range:") && !lower.contains("gzip"), "{request}");
        assert!(!lower.contains("proxy-") && !lower.contains("via:"), "{request}");
    }
    assert!(!format!("{:?}", inside.rules.events()).contains(SECRET));
}

#[test]
fn what_comes_in_parts_or_in_letters_of_another_kind_is_not_passed_on_where_a_secret_could_be_in_it()
 {
    let answers = [
        ("/whole", "200 OK", "Content-Type: text/html; charset=UTF-8", "200"),
        ("/part", "206 Partial Content", "Content-Range: bytes 0-1/10", "502"),
        ("/said", "200 OK", "Content-Range: bytes 0-1/10", "502"),
        ("/parts", "200 OK", "Content-Type: multipart/byteranges; boundary=x", "502"),
        ("/wide", "200 OK", "Content-Type: text/plain;charset=\"UTF-16LE\"", "502"),
        ("/coded", "200 OK", "Content-Encoding: gzip", "502"),
    ];
    let ca = Ca::new();
    let server = crate::support::secure(ca.config("secret.test", |_| ()), move |mut stream| {
        answer_all(&mut stream, &move |request: &str| {
            let found = answers.iter().find(|(path, ..)| request.contains(path)).unwrap();
            assert!(!request.to_lowercase().contains("charset"), "{request}");
            let (_, status, field, _) = found;
            format!("HTTP/1.1 {status}\r\n{field}\r\nContent-Length: 2\r\n\r\nok").into_bytes()
        });
    });
    let names = Names::of(&[("secret.test", &["127.0.0.1"])]);
    let world = World::new(&names, Some(&ca));
    let fill: Arc<dyn Fill> = Arc::new(Secret { host: "secret.test" });
    let inside = world.open_with(Rules::of(&[("secret.test", server.port())]), Some(fill), BUDGET);
    let host = format!("secret.test:{}", server.port());
    for (path, .., expected) in answers {
        let further = "Accept-Charset: utf-16\r\n";
        let answer = inside.ask(&format!("https://{host}{path}"), &host, further);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{path}: {answer}");
    }
}

#[test]
fn a_secret_goes_to_no_other_host_and_not_in_the_open() {
    let ca = Ca::new();
    let config = ca.config("other.test", |_| ());
    let other = crate::support::secure(config, |mut stream| answer_all(&mut stream, &|r| ok(r)));
    let plain = upstream();
    let names = Names::of(&[("secret.test", &["127.0.0.1"]), ("other.test", &["127.0.0.1"])]);
    let world = World::new(&names, Some(&ca));
    let hosts = [("other.test", other.port()), ("secret.test", plain.port())];
    let fill: Arc<dyn Fill> = Arc::new(Secret { host: "secret.test" });
    let inside = world.open_with(Rules::of(&hosts), Some(fill), BUDGET);
    let header = format!("X-Token: {PLACEHOLDER}\r\n");
    let host = format!("other.test:{}", other.port());
    let answer = inside.ask(&format!("https://{host}/"), &host, &header);
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("`token` is not for"),
        "{answer}"
    );
    let is_secret = |event: &Event| matches!(event, Event::Refused { refusal, .. } if refusal.kind == Refused::Secret);
    inside.rules.wait(is_secret);
    // In the open, the placeholder is what goes out.
    let host = format!("secret.test:{}", plain.port());
    let answer = inside.ask(&format!("http://{host}/"), &host, &header);
    assert!(answer.contains(PLACEHOLDER) && !answer.contains(SECRET), "{answer}");
}

#[test]
fn net_06_a_tunnel_that_is_looked_into_is_decided_request_by_request() {
    let ca = Ca::new();
    let (_world, inside, server, seen) = secret_world(&ca, true);
    let pem = inside.pem.clone();
    let to = format!("secret.test:{}", server.port());
    let tunnel = inside.tunnel(&to).unwrap();
    let mut stream = tls(tunnel, "secret.test", pem.as_bytes());
    for _ in 0..2 {
        let request = format!("GET /x HTTP/1.1\r\nHost: {to}\r\nX-Token: {PLACEHOLDER}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        while !all.ends_with("0\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "{all}");
            all.push(char::from(byte[0]));
        }
        assert!(all.starts_with("HTTP/1.1 200") && !all.contains(SECRET), "{all}");
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert_eq!(server.count(), 1, "one connection to the host for both");
    // The certificate is of this run's authority, and of nobody else's.
    let tunnel = inside.tunnel(&to).unwrap();
    let other = std::fs::read(ca.pem.path()).unwrap();
    let mut stream = tls(tunnel, "secret.test", &other);
    assert!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| stream.flush()).is_err());
    let asked = inside.rules.events().into_iter().filter(|event| {
        matches!(event, Event::Allowed { wanted, .. } if wanted.intercepted && wanted.path.as_deref() == Some("/x"))
    });
    assert_eq!(asked.count(), 2);
}

#[test]
fn a_server_that_is_not_who_it_has_to_be_gets_nothing() {
    let ca = Ca::new();
    let (wrong, seen) = echo(&ca);
    let stranger = Ca::new();
    let names = Names::of(&[("wrong.test", &["127.0.0.1"]), ("secret.test", &["127.0.0.1"])]);
    let ask = |authority: &Ca, name: &str| {
        let world = World::new(&names, Some(authority));
        let inside = world.open(Rules::of(&[(name, wrong.port())]));
        let host = format!("{name}:{}", wrong.port());
        inside.ask(&format!("https://{host}/"), &host, "")
    };
    assert!(ask(&ca, "secret.test").starts_with("HTTP/1.1 200"));
    for answer in [ask(&ca, "wrong.test"), ask(&stranger, "secret.test")] {
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("TLS failed"), "{answer}");
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
}
