//! Runs with a network: what the policy lets them reach, what it does not, and what they are told. The servers
//! are the tests' own, at addresses of loopback that no run would take for its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::person;
use crate::support::{LONG, Started, World, line, skip, until};

/// Where runs find no `NO_PROXY` for.
const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Answers every request with what it was asked for, and counts who comes.
struct Server {
    at: SocketAddr,
    came: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn at(address: Ipv4Addr) -> Server {
        Server::answering(address, |head| {
            let first = head.lines().next().unwrap_or_default();
            ok("text/plain", first.as_bytes())
        })
    }

    fn answering(
        address: Ipv4Addr,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let (came, heard) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (counted, noted, answer) = (Arc::clone(&came), Arc::clone(&heard), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                let Ok(mut stream) = stream else { return };
                stream.set_read_timeout(Some(LONG)).unwrap();
                thread::spawn(move || {
                    while let Some(head) = head(&mut stream) {
                        noted.lock().unwrap().push(head.clone());
                        if stream.write_all(&answer(&head)).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Server { at, came, heard }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    fn heard(&self) -> String {
        self.heard.lock().unwrap().join("\n")
    }
}

/// One request and its body, if there is another.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() > 64 * 1024 || stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length:").and_then(|length| length.trim().parse().ok())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(head)
}

fn ok(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// Where code may run, and these rules hold besides.
fn world(rules: &[String]) -> Option<World> {
    let world = World::new()?;
    follow(&world, rules);
    Some(world)
}

fn follow(world: &World, rules: &[String]) {
    let code = "{ name: code, match: { operation: code.execute }, action: allow }".to_owned();
    let rules: String =
        [&[code], rules].concat().iter().map(|rule| format!("  - {rule}\n")).collect();
    person::follow(&world.home(), &[], &format!("rules:\n{rules}"));
}

/// A rule that allows hosts, and what else has to hold.
fn allow(operation: &str, hosts: &[SocketAddr], further: &str) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
    let (name, hosts) = (operation.replace('_', "-"), hosts.join(", "));
    format!(
        "{{ name: allow-{name}, match: {{ operation: {operation}, host: [{hosts}]{further} }}, \
         action: allow }}"
    )
}

/// Helpers of what runs inside. `ask` speaks to the proxy as it is, `fetch` as programs do.
const PRELUDE: &str = r"
import base64, os, socket, sys, urllib.error, urllib.request
def connect():
    s = socket.create_connection(('127.0.0.1', 3128)); s.settimeout(20); return s
def basic(user=None):
    user = user or os.environ['HOTCELL_PROXY_USER']
    return 'Proxy-Authorization: Basic ' + base64.b64encode(user.encode()).decode()
def read(s):
    got = b''
    while b'\r\n\r\n' not in got:
        more = s.recv(65536)
        if not more: return got.decode()
        got += more
    head, body = got.split(b'\r\n\r\n', 1)
    lengths = [l for l in head.lower().split(b'\r\n') if l.startswith(b'content-length:')]
    length = int(lengths[0].split(b':')[1]) if lengths else 0
    while len(body) < length:
        more = s.recv(65536)
        if not more: break
        body += more
    return (head + b'\r\n\r\n' + body).decode()
def say(s, *lines): s.sendall(('\r\n'.join(lines) + '\r\n\r\n').encode())
def ask(first, host, *further, user=None):
    s = connect(); say(s, first, 'Host: ' + host, basic(user), *further); return read(s)
def status(answer): return answer.split(' ')[1] if ' ' in answer else repr(answer)
def fetch(url, data=None):
    try:
        with urllib.request.urlopen(url, data, 20) as r: return r.status, r.read().decode()
    except urllib.error.HTTPError as e: return e.code, e.read().decode()
";

fn code(world: &World, words: &[&str], code: &str) -> crate::support::Ran {
    world.code(&[&["--network"], words].concat(), "python", &format!("{PRELUDE}{code}"))
}

fn document(world: &World, inside: &str) -> Value {
    code(world, &["--json"], inside).json()
}

#[track_caller]
fn printed(document: &Value) -> &str {
    assert_eq!(document["status"], "success", "{document:#}");
    document["stdout"]["text"].as_str().unwrap()
}

#[test]
fn net_05_an_allowed_host_is_reached_and_of_another_the_run_and_the_person_are_told_the_rule() {
    let (allowed, denied) = (Server::at(ALLOWED), Server::at(DENIED));
    let Some(world) = world(&[allow("net.connect", &[allowed.at], "")]) else { return };
    let inside = format!(
        "print(fetch('http://{}/a?b')); got = fetch('http://{}/'); print(got[0]); print(got[1])",
        allowed.at, denied.at
    );
    let ran = code(&world, &[], &inside);
    let rule = format!("host: [\"{}\"]", denied.at);
    let text = ran.text();
    assert!(text.starts_with("(200, 'GET /a?b HTTP/1.1')\n403\n"), "{ran:?}");
    assert!(text.contains("no rule allows it") && text.contains(&rule), "{text}");
    let told = ran.errors();
    assert!(told.contains(&format!("hotcell: `{}` was not reached", denied.at)), "{told}");
    assert!(told.contains("why: no rule allows it") && told.contains(&rule), "{told}");
    assert_eq!((ran.code, allowed.came(), denied.came()), (0, 1, 0));
    // The same in the document.
    let network = &document(&world, &inside)["network"];
    assert_eq!((&network["allowed"], &network["refused"]), (&json!(1), &json!(1)), "{network}");
    assert!(network["up"].as_u64() > Some(0) && network["down"].as_u64() > Some(0), "{network}");
    let refusals = network["refusals"].as_array().unwrap();
    assert_eq!((refusals.len(), &refusals[0]["host"]), (1, &json!(denied.at.to_string())));
}

#[test]
fn what_is_learned_from_a_refusal_allows_it() {
    let denied = Server::at(DENIED);
    let Some(first) = world(&[]) else { return };
    let inside =
        format!("print(fetch('http://{0}/')[0]); print(fetch('http://{0}/', b'x')[0])", denied.at);
    assert_eq!(printed(&document(&first, &inside)), "403\n403\n");
    let learned = first.run(&["policy", "learn"]).text();
    let rules = learned.split_once("rules:\n").expect("there are rules").1;
    assert!(rules.contains("operation: net.connect"), "{learned}");
    assert!(rules.contains(&format!("host: [\"{}\"]", denied.at)), "{learned}");
    assert!(rules.contains("method: [\"GET\", \"POST\"]"), "{learned}");
    let Some(second) = World::new() else { return };
    let code = "rules:\n  - { name: code, match: { operation: code.execute }, action: allow }\n";
    person::follow(&second.home(), &[], &format!("{code}{rules}"));
    assert_eq!(printed(&document(&second, &inside)), "200\n200\n");
    assert_eq!(denied.came(), 2);
}

#[test]
fn net_16_a_name_that_leads_inside_needs_its_address_named_and_that_is_learned_too() {
    let server = Server::at(Ipv4Addr::LOCALHOST);
    let host = format!("localhost:{}", server.at.port());
    let inside = format!("print(status(ask('GET http://{host}/ HTTP/1.1', '{host}')))");
    let mut rules = vec![format!(
        "{{ name: host, match: {{ operation: net.connect, host: [\"{host}\"] }}, action: allow }}"
    )];
    // The host's `localhost` may have two addresses, which are asked about one after the other.
    for round in 0..3 {
        let Some(world) = world(&rules) else { return };
        let document = document(&world, &inside);
        if printed(&document) == "200\n" {
            assert!(round > 0 && server.came() == 1, "the host alone is not enough");
            return;
        }
        assert_eq!((printed(&document), server.came()), ("403\n", 0));
        let refusal = &document["network"]["refusals"][0];
        assert!(
            refusal["why"].as_str().unwrap().starts_with("one of its addresses is "),
            "{refusal}"
        );
        let learned = world.run(&["policy", "learn"]).text();
        let named = learned.split("host: [\"").nth(1).and_then(|rest| rest.split('"').next());
        let named = named.unwrap_or_else(|| panic!("{learned}"));
        assert!(refusal["fix"].as_str().unwrap().contains(named), "{refusal} {learned}");
        rules.push(format!(
            "{{ name: address-{round}, match: {{ operation: net.connect, host: [\"{named}\"] }}, action: allow }}"
        ));
    }
    panic!("it is never reached");
}

#[test]
fn without_the_option_there_is_no_way_out() {
    let server = Server::at(ALLOWED);
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let inside = format!(
        "
import os, socket
print([name for name in os.environ if 'PROXY' in name.upper()], os.path.exists('/run/hotcell/proxy.sock'))
for template in [0]:
    try: socket.create_connection(('{}', {}), 5)
    except OSError as e: print('no')
",
        server.at.ip(),
        server.at.port()
    );
    for template in ["code-executor", "tool"] {
        let words = ["--json", "--template", template];
        let document = world.json(&words[1..], "python", &inside);
        assert_eq!(printed(&document), "[] False\nno\n");
        assert_eq!(document["network"], Value::Null);
    }
    assert_eq!(server.came(), 0);
}

#[test]
fn a_template_with_a_restricted_network_has_one_and_a_strict_run_the_socket_alone() {
    let server = Server::at(ALLOWED);
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let inside = format!(
        "{PRELUDE}
s = socket.socket(socket.AF_UNIX); s.connect(os.environ['HOTCELL_PROXY'].removeprefix('unix:')); s.settimeout(20)
say(s, 'GET http://{0}/ HTTP/1.1', 'Host: {0}', basic(), 'Connection: close'); print(status(read(s)))
try: connect(); print('tcp')
except OSError: print('no tcp')
",
        server.at
    );
    for (template, tcp) in [("ai-provider", "no tcp"), ("integration-test", "tcp")] {
        let document = world.json(&["--template", template], "python", &inside);
        assert_eq!(printed(&document), format!("200\n{tcp}\n"), "{template}");
        assert_eq!(document["network"]["allowed"], 1, "{template}");
    }
}

#[test]
fn net_04_net_24_whoever_ignores_the_proxy_leads_nowhere() {
    let server = Server::at(ALLOWED);
    let udp = UdpSocket::bind((ALLOWED, 0)).unwrap();
    udp.set_nonblocking(true).unwrap();
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let inside = format!(
        r"
for name in list(os.environ):
    if 'PROXY' in name.upper() and not name.startswith('HOTCELL'): del os.environ[name]
os.environ['NO_PROXY'] = '*'
def tried(what):
    try: what(); return 'reached'
    except OSError: return 'no'
print(tried(lambda: urllib.request.urlopen('http://{server}/', timeout=5)))
print(tried(lambda: socket.create_connection(('{ip}', {port}), 5)))
print(tried(lambda: socket.getaddrinfo('hotcell.example', 80)))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(tried(lambda: u.sendto(b'x', ('192.0.2.1', 53))))
try: u.sendto(b'x', ('{ip}', {udp}))
except OSError: pass
for kind in (socket.SOCK_RAW,):
    print(tried(lambda: socket.socket(socket.AF_INET, kind, 1)))
# SOCKS: UDP ASSOCIATE and BIND, with the right credential.
def socks(command):
    s = connect(); user, word = os.environ['HOTCELL_PROXY_USER'].split(':')
    s.sendall(b'\x05\x01\x02'); assert s.recv(2) == b'\x05\x02'
    s.sendall(bytes([1, len(user)]) + user.encode() + bytes([len(word)]) + word.encode())
    assert s.recv(2) == b'\x01\x00'
    s.sendall(bytes([5, command, 0, 1]) + socket.inet_aton('{ip}') + ({port}).to_bytes(2, 'big'))
    got = s.recv(10)
    return got[1] if len(got) > 1 else 'closed'
print(socks(1), socks(2), socks(3))
",
        server = server.at,
        ip = ALLOWED,
        port = server.at.port(),
        udp = udp.local_addr().unwrap().port(),
    );
    let document = document(&world, &inside);
    let text = printed(&document);
    // 0 is success, which the control shows; 7 is a command that is not supported.
    assert_eq!(text, "no\nno\nno\nno\nno\n0 7 7\n", "{document:#}");
    assert_eq!(server.came(), 1, "the control, and nothing else");
    assert!(udp.recv(&mut [0; 1]).is_err(), "nothing came by UDP");
}

#[test]
fn net_06_net_10_net_11_net_31_net_32_each_request_is_judged_and_read_in_one_way() {
    let (server, denied) = (Server::at(ALLOWED), Server::at(DENIED));
    let rules = [allow("net.connect", &[server.at], ", method: [GET]")];
    let Some(world) = world(&rules) else { return };
    let inside = format!(
        r"
a, d = '{}', '{}'
get = 'GET http://' + a + '/ HTTP/1.1'
# On one connection.
s = connect()
say(s, get, 'Host: ' + a, basic()); print(status(read(s)))
say(s, get, 'Host: ' + a, basic()); print(status(read(s)))
say(s, 'POST http://' + a + '/ HTTP/1.1', 'Host: ' + a, basic(), 'Content-Length: 0'); print(status(read(s)))
s = connect()
say(s, get, 'Host: ' + a, basic()); print(status(read(s)))
say(s, 'GET http://' + d + '/ HTTP/1.1', 'Host: ' + d, basic()); print(status(read(s)))
print('-')
print(status(ask(get, d)))
print(status(ask(get, a, 'Host: ' + d)))
print(status(ask(get, a, 'Content-Length: 1', 'Transfer-Encoding: chunked')))
print(status(ask(get, a, 'Content-Length: 1', 'Content-Length: 2')))
print(status(ask(get, a, 'Transfer-Encoding: xchunked')))
print(status(ask(get, a, 'X: a\n Y: b')))
print('-')
print(status(ask(get, a, 'Upgrade: websocket', 'Connection: Upgrade')))
print(status(ask(get, a, 'X-Mine: yes', 'Proxy-Connection: keep-alive')))
",
        server.at, denied.at
    );
    let document = document(&world, &inside);
    let text = printed(&document);
    let (judged, rest) = text.split_once("-\n").unwrap();
    assert_eq!(judged, "200\n200\n403\n200\n403\n", "{document:#}");
    let (bad, last) = rest.split_once("-\n").unwrap();
    assert!(bad.lines().all(|status| status == "400"), "{bad}");
    assert_eq!((bad.lines().count(), last), (6, "403\n200\n"));
    let heard = server.heard();
    assert_eq!(heard.matches("GET / HTTP/1.1").count(), 4, "{heard}");
    assert!(heard.contains("X-Mine: yes") && !heard.contains("POST"), "{heard}");
    assert!(!heard.to_lowercase().contains("proxy") && !heard.contains("Via"), "{heard}");
    assert_eq!(denied.came(), 0);
}

#[test]
fn net_07_net_13_net_14_net_26_ports_and_internal_addresses_have_to_be_named() {
    let (server, other) = (Server::at(ALLOWED), Server::at(ALLOWED));
    let everything = "{ name: all, match: { operation: net.connect }, action: allow }".to_owned();
    let Some(named) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let tunnels = |hosts: &[String]| {
        let hosts = hosts.join("', '");
        format!("for to in ['{hosts}']: print(status(ask('CONNECT ' + to + ' HTTP/1.1', to)), to)")
    };
    let ports = [server.at.to_string(), other.at.to_string(), format!("{ALLOWED}:22")];
    let document = document(&named, &tunnels(&ports));
    let statuses: Vec<&str> = printed(&document).lines().filter_map(|line| line.get(..3)).collect();
    assert_eq!(statuses, ["200", "403", "403"]);
    assert_eq!((server.came(), other.came()), (1, 0));
    let Some(open) = world(&[everything]) else { return };
    let port = server.at.port();
    let inside: Vec<String> = [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.2]",
        "[::ffff:a9fe:a9fe]",
        "10.0.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "localhost",
    ]
    .map(|host| format!("{host}:{port}"))
    .to_vec();
    let answers = self::document(&open, &tunnels(&inside));
    for line in printed(&answers).lines() {
        assert!(line.starts_with("403 "), "{line}");
    }
    let odd = ["127.1", "0", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.2%20"];
    let answers = self::document(&open, &tunnels(&odd.map(|host| format!("{host}:{port}"))));
    for line in printed(&answers).lines() {
        assert!(line.starts_with("400 "), "{line}");
    }
    assert_eq!(server.came(), 1);
    let network = &answers["network"];
    assert!(network["refused"].as_u64() >= Some(6), "{network}");
}

#[test]
fn net_18_a_redirect_is_another_request_and_judged_as_one() {
    let inner = Server::at(DENIED);
    let to = format!("http://{}/", inner.at);
    let server = Server::answering(ALLOWED, move |_| redirect(&to));
    let rules = [allow("net.connect", &[server.at], ""), allow("http_fetch", &[server.at], "")];
    let Some(world) = world(&rules) else { return };
    let document = document(&world, &format!("print(fetch('http://{}/')[0])", server.at));
    assert_eq!(printed(&document), "403\n");
    // And by hotcell's own client.
    let args = json!({ "url": format!("http://{}/", server.at) }).to_string();
    let ran = world.run(&["tool", "call", "http_fetch", &args]);
    assert!(ran.errors().contains(&format!("`{DENIED}` at port")), "{ran:?}");
    assert!(ran.errors().contains(&format!("host: [\"{}\"]", inner.at)), "{ran:?}");
    assert_eq!((ran.code == 0, server.came(), inner.came()), (false, 2, 0));
}

#[test]
fn another_runs_credential_opens_nothing() {
    let server = Server::at(ALLOWED);
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let first =
        "import os, sys; print(os.environ['HOTCELL_PROXY_USER'], flush=True); sys.stdin.read()";
    let words = ["run", "--network", "--stdin", "-", "--lang", "python", "-c", first];
    let mut command = world.command(&words);
    command.stdin(std::process::Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    let user = line(&mut stdout);
    assert_eq!(user.len(), "run:".len() + 32, "{user}");
    let inside = format!(
        "for user in (None, '{user}', 'run:', 'x'): print(status(ask('GET http://{0}/ HTTP/1.1', '{0}', user=user)))
s = connect(); say(s, 'GET http://{0}/ HTTP/1.1', 'Host: {0}'); print(status(read(s)))",
        server.at
    );
    let document = document(&world, &inside);
    assert_eq!(printed(&document), "200\n407\n407\n407\n407\n");
    assert_eq!(server.came(), 1);
    drop(started.child.stdin.take());
    assert_eq!(started.finish(LONG).code, 0);
}

/// The process that parses what runs send: a child's child of whoever carries the run out.
fn airlock_of(hotcell: u32) -> Option<Pid> {
    let stat = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let parent = |pid: u32| -> Option<u32> {
        let stat = stat(pid)?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_airlock = |pid: &u32| stat(*pid).is_some_and(|stat| stat.contains("(airlock)"));
    let belongs = |pid: &u32| {
        let mut above = *pid;
        while let Some(next) = parent(above).filter(|next| *next > 1) {
            if next == hotcell {
                return true;
            }
            above = next;
        }
        false
    };
    let found = pids.filter(is_airlock).find(belongs)?;
    Pid::from_raw(i32::try_from(found).ok()?)
}

#[test]
fn net_28_a_proxy_that_is_killed_lets_nothing_through_and_another_takes_over() {
    let server = Server::at(ALLOWED);
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let world = world.on_its_own();
    let inside = format!(
        "{PRELUDE}
import time
s = connect(); get = ('GET http://{0}/ HTTP/1.1', 'Host: {0}', basic())
say(s, *get); print(status(read(s)), flush=True)
sys.stdin.readline()
try: say(s, *get); print(repr(read(s)), flush=True)
except OSError: print(repr(''), flush=True)
for _ in range(2000):
    try:
        got = status(ask(*get[:1], '{0}'))
        if got == '200': break
    except OSError: pass
    time.sleep(0.01)
print(got)
",
        server.at
    );
    let words = ["run", "--network", "--stdin", "-", "--lang", "python", "-c", &inside];
    let mut command = world.command(&words);
    command.stdin(std::process::Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    assert_eq!(line(&mut stdout), "200");
    let Some(first) = until(LONG, || airlock_of(started.child.id())) else {
        panic!("there is no process of that name below hotcell");
    };
    kill_process(first, Signal::KILL).unwrap();
    let gone = || (!Path::new(&format!("/proc/{}", first.as_raw_nonzero())).exists()).then_some(());
    until(LONG, gone).expect("it ends");
    started.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(line(&mut stdout), "''", "the connection broke with it");
    assert_eq!(line(&mut stdout), "200", "another one takes over");
    let ran = started.finish(LONG);
    assert_eq!((ran.code, server.came()), (0, 2), "{ran:?}");
    assert!(ran.errors().contains("hotcell: the proxy of the run was lost, 1 times\n"), "{ran:?}");
}

/// A server with TLS in a program that every host with Python has, and an authority that nobody else knows.
const TLS: &str = r"
import http.server, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        body = self.command.encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body); self.wfile.flush()
    do_GET = do_POST = answer
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

/// Ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The port of a server with TLS at an address, whose certificate is `cert.pem` in the directory.
fn tls_server(dir: &Path, address: Ipv4Addr) -> Result<(Child, u16), String> {
    let config = format!(
        "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = more\n\
         [name]\nCN = hotcell test\n\
         [more]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = IP:{address}\n"
    );
    fs::write(dir.join("openssl.cnf"), config).unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-config", "openssl.cnf"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .output()
        .map_err(|_| "there is no `openssl` on PATH")?;
    if !made.status.success() {
        return Err(format!("openssl: {}", String::from_utf8_lossy(&made.stderr)));
    }
    let child = Command::new("python3")
        .args(["-c", TLS, &address.to_string()])
        .current_dir(dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|_| "there is no `python3` on PATH")?;
    let mut child = Child(child);
    let port = line(child.0.stdout.as_mut().unwrap());
    Ok((child, port.parse().map_err(|_| "the server did not start")?))
}

#[test]
fn net_06_net_09_what_goes_through_tls_is_judged_where_it_is_looked_into() {
    let Some(world) = World::new() else { return };
    let (_server, port) = match tls_server(&world.at(""), ALLOWED) {
        Ok(made) => made,
        Err(why) => return skip(&why),
    };
    let at: SocketAddr = (ALLOWED, port).into();
    follow(&world, &[allow("net.connect", &[at], ", method: [GET]")]);
    let config = world.home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let cert = world.at("cert.pem");
    let network =
        format!("[network]\nintercept = [\"{at}\"]\nauthorities = \"{}\"\n", cert.display());
    fs::write(&config, format!("{before}{network}")).unwrap();
    // A process that stays has read its settings before.
    let world = world.on_its_own();
    let inside = format!(
        "print(fetch('https://{at}/')); print(fetch('https://{at}/', b'x')[0])
s = connect(); say(s, 'CONNECT {at} HTTP/1.1', 'Host: {at}', basic()); print(status(read(s)))
s.sendall(b'SSH-2.0-x\\r\\n'); print(s.recv(100))"
    );
    let document = document(&world, &inside);
    let text = printed(&document);
    assert!(text.starts_with("(200, 'GET')\n403\n200\nb''"), "{text} {:#}", document["stderr"]);
    // Without a look into it nobody knows what goes through, and the rule that names a method allows no tunnel.
    fs::write(&config, before).unwrap();
    let blind = format!("print(status(ask('CONNECT {at} HTTP/1.1', '{at}')))");
    assert_eq!(printed(&self::document(&world, &blind)), "403\n");
}

#[test]
fn net_06_net_09_a_rule_against_a_method_or_for_tls_holds_where_nobody_looks_into_a_tunnel() {
    let server = Server::answering(ALLOWED, |_| b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let (at, everything) = (server.at, allow("net.connect", &[server.at], ""));
    let inside = format!(
        "s = connect(); say(s, 'CONNECT {at} HTTP/1.1', 'Host: {at}', basic()); print(status(read(s)))
s.sendall(b'POST / HTTP/1.1\\r\\n\\r\\n'); print(s.recv(12))"
    );
    let never =
        format!("{{ name: never, match: {{ host: \"{at}\", method: [POST] }}, action: deny }}");
    let looked_at = format!(
        "{{ name: ask, match: {{ host: \"{at}\", method: [POST] }}, action: require_review }}"
    );
    let path = format!(
        "{{ name: path, match: {{ operation: net.connect, host: \"{at}\" }}, \
         when: 'args.path == \"/admin\"', action: deny }}"
    );
    let but = everything.replace(", action", ", except: [{ method: [POST] }], action");
    // Whoever allows TLS has not allowed everything.
    let tls = everything.replace(", action", ", when: 'args.protocol == \"https\"', action");
    for (rules, expected) in [
        (vec![everything.clone()], "200\nb'HTTP/1.1 200'\n"),
        (vec![everything.clone(), never], "403\nb''\n"),
        // What a person has to look at, a path, and what is allowed but for a method: nobody sees it in there.
        (vec![everything.clone(), looked_at], "403\nb''\n"),
        (vec![everything, path], "403\nb''\n"),
        (vec![but], "403\nb''\n"),
        (vec![tls], "200\nb''\n"),
    ] {
        let Some(world) = world(&rules) else { return };
        assert_eq!(printed(&document(&world, &inside)), expected, "{rules:?}");
    }
    assert_eq!(server.came(), 2);
}

fn call(world: &World, tool: &str, args: &Value) -> Value {
    let ran = world.run(&["tool", "call", "--json", tool, &args.to_string()]);
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn net_19_something_is_fetched_for_a_call_and_what_is_not_text_is_not() {
    let server = Server::answering(ALLOWED, |head| match head.split(' ').nth(1).unwrap() {
        "/image" => ok("image/png", b"\x89PNG"),
        "/long" => ok("text/plain", &[b'x'; 4096]),
        "/here" => redirect("/there"),
        path => ok("text/plain; charset=utf-8", format!("{path} grün").as_bytes()),
    });
    let hosts = [server.at];
    let rules = [allow("net.connect", &hosts, ""), allow("http_fetch", &hosts, ", method: [GET]")];
    let Some(world) = world(&rules) else { return };
    let url = |path: &str| json!(format!("http://{}{path}", server.at));
    let got = call(&world, "http_fetch", &json!({"url": url("/here")}));
    let value = &got["value"];
    assert_eq!((&value["status"], &value["body"]), (&json!(200), &json!("/there grün")), "{got:#}");
    assert_eq!((&value["url"], &value["redirects"]), (&url("/there"), &json!(1)));
    let got = call(&world, "http_fetch", &json!({"url": url("/long"), "most": 100}));
    assert_eq!(got["value"]["body"].as_str().unwrap().len(), 100, "{got:#}");
    assert_eq!(got["value"]["truncated"], true);
    let got = call(&world, "http_fetch", &json!({"url": url("/image")}));
    assert_eq!((&got["status"], &got["value"]), (&json!("failure"), &Value::Null), "{got:#}");
    let came = server.came();
    let post = json!({"url": url("/"), "method": "POST", "body": "x"});
    let got = call(&world, "http_fetch", &post);
    assert_eq!(got["status"], "blocked", "{got:#}");
    for bad in ["file:///etc/passwd", "gopher://a.test/", "http://a.test@127.0.0.2/"] {
        let got = call(&world, "http_fetch", &json!({ "url": bad }));
        assert_eq!(got["status"], "invalid", "{bad}: {got:#}");
    }
    assert_eq!(server.came(), came, "what is refused is not connected to");
}

#[test]
fn the_web_is_searched_where_somebody_named_a_provider() {
    let server = Server::answering(ALLOWED, |head| {
        assert!(head.starts_with("GET /search?q=a%20b&format=json "), "{head}");
        let body = json!({"results": [
            {"title": "One", "url": "https://one.test/", "content": "first"},
            {"title": "Two", "url": "javascript:x", "content": "second"},
        ]});
        ok("application/json", body.to_string().as_bytes())
    });
    let rule = "{ name: search, match: { operation: web.search }, action: allow }".to_owned();
    let Some(world) = world(&[rule]) else { return };
    let world = world.on_its_own();
    let got = call(&world, "web.search", &json!({"query": "a b"}));
    let text = got.to_string();
    assert!(text.contains("there is no provider") && text.contains("config.toml"), "{got:#}");
    let config = world.home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let network = format!("[network]\nsearch = \"http://{}\"\n", server.at);
    fs::write(&config, format!("{before}{network}")).unwrap();
    let got = call(&world, "web.search", &json!({"query": "a b"}));
    let one = json!([{"title": "One", "url": "https://one.test/", "text": "first"}]);
    assert_eq!((&got["value"], server.came()), (&one, 1), "{got:#}");
}

#[test]
fn a_search_has_no_more_time_than_a_rule_gives_it() {
    let silent = Server::answering(ALLOWED, |_| Vec::new());
    let rule = "{ name: search, match: { operation: web.search }, action: allow, \
                constraints: { timeout: 1s } }";
    let Some(world) = world(&[rule.to_owned()]) else { return };
    let world = world.on_its_own();
    let config = world.home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{before}[network]\nsearch = \"http://{}\"\n", silent.at)).unwrap();
    let since = Instant::now();
    let got = call(&world, "web.search", &json!({"query": "a b"}));
    assert!(got.to_string().contains("in time") && silent.came() == 1, "{got:#}");
    // Without the rule it would wait for 20 seconds.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
}

#[test]
fn a_job_of_a_batch_has_a_network_if_it_asks_for_one() {
    let (allowed, denied) = (Server::at(ALLOWED), Server::at(DENIED));
    let Some(world) = world(&[allow("net.connect", &[allowed.at], "")]) else { return };
    let inside = |at: SocketAddr| format!("{PRELUDE}print(fetch('http://{at}/')[0])");
    let job = |at: SocketAddr| json!({"run": {"language": "python", "code": inside(at), "network": true}});
    let jobs = format!("{}\n{}\n", job(allowed.at), job(denied.at));
    let jobs = world.file("jobs.jsonl", jobs.as_bytes());
    let ran = world.run(&["batch", jobs.to_str().unwrap()]);
    let results: Vec<Value> =
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 2, "{ran:?}");
    let all = results.iter().map(Value::to_string).collect::<String>();
    assert!(all.contains("200\\n") && all.contains("403\\n"), "{all}");
    assert!(all.contains(&format!("host: [\\\"{}\\\"]", denied.at)), "{all}");
    assert_eq!((allowed.came(), denied.came()), (1, 0));
}

#[test]
fn net_27_a_run_with_many_connections_ends_as_any_other() {
    let server = Server::at(ALLOWED);
    let Some(world) = world(&[allow("net.connect", &[server.at], "")]) else { return };
    let inside = "
open_ = []
for _ in range(500):
    s = socket.socket(); s.settimeout(0.05)
    try: s.connect(('127.0.0.1', 3128)); s.sendall(b'GET http://')
    except OSError: pass
    open_.append(s)
print(len(open_))";
    let ran = code(&world, &["--timeout", "60s"], inside);
    assert_eq!((ran.code, ran.text().as_str(), server.came()), (0, "500\n", 0), "{ran:?}");
    assert!(ran.took < LONG, "{ran:?}");
}
