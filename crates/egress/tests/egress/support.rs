//! Servers, names and judges of the tests' own. Everything is on loopback, which a judge here has to name as a
//! policy would have to.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_egress::{
    Event, Fill, Host, Judge, Mask, Resolver, Ruling, Seek, Site, Start, Started, Unfilled,
    Unresolved, Wanted,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Names with their answers, one after the other; the last one stays.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(names: &[(&str, &[&str])]) -> Arc<Names> {
        let all = Names::default();
        for (name, answers) in names {
            all.then(name, answers);
        }
        Arc::new(all)
    }

    pub(crate) fn then(&self, name: &str, answer: &[&str]) {
        let answer = answer.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().unwrap().entry(name.into()).or_default().push(answer);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Resolver for Names {
    fn resolve(&self, name: &Host, _: u64, _: Instant) -> Result<Vec<IpAddr>, Unresolved> {
        self.asked.lock().unwrap().push(name.to_string());
        let mut answers = self.answers.lock().unwrap();
        let Some(left) = answers.get_mut(name.as_str()) else { return Err(Unresolved::Nothing) };
        Ok(if left.len() > 1 { left.remove(0) } else { left[0].clone() })
    }
}

/// Allows hosts with ports, and names addresses.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) everything: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses that it is against.
    pub(crate) refused: Vec<IpAddr>,
    pub(crate) intercept: bool,
    pub(crate) raw: bool,
    /// Allowed methods; all if there is none.
    pub(crate) methods: Vec<String>,
    pub(crate) events: Mutex<Vec<Event>>,
}

impl Rules {
    pub(crate) fn of(hosts: &[(&str, u16)]) -> Rules {
        let hosts = hosts.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        Rules { hosts, addresses: vec![LOOPBACK], ..Rules::default() }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Until an event is there that it looks for.
    pub(crate) fn wait(&self, found: impl Fn(&Event) -> bool) {
        until("an event", || self.events().iter().any(&found));
    }
}

impl Judge for Rules {
    fn judge(&self, wanted: &Wanted) -> Ruling {
        let is_host = self
            .hosts
            .iter()
            .any(|(host, port)| wanted.host.as_str() == host && wanted.port == *port);
        let is_method = self.methods.is_empty()
            || wanted.method.as_ref().is_none_or(|method| self.methods.contains(method));
        if (is_host || self.everything) && is_method {
            return Ruling::Allow { intercept: self.intercept, raw: self.raw };
        }
        let fix = format!("net.connect: {}:{}", wanted.host, wanted.port);
        Ruling::Refuse { why: "no rule allows it".into(), fix }
    }

    fn names(&self, address: IpAddr, _: &Wanted) -> bool {
        self.addresses.contains(&address)
    }

    fn refuses(&self, address: IpAddr, _: &Wanted) -> Option<(String, String)> {
        let is_refused = self.refused.contains(&address);
        is_refused.then(|| ("a rule is against it".into(), "change the rule".into()))
    }

    fn happened(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
    }
}

/// One secret for one host, by its placeholder.
pub(crate) struct Secret {
    pub(crate) host: &'static str,
}

pub(crate) const PLACEHOLDER: &str = "hotcell-secret-0123456789abcdef";
pub(crate) const SECRET: &str = "s3cr3t-value-that-nobody-sees";

impl Fill for Secret {
    fn fill(&self, to: Site<'_>, value: &[u8]) -> Result<Vec<u8>, Unfilled> {
        let text = String::from_utf8_lossy(value);
        if !text.contains(PLACEHOLDER) {
            return Ok(value.to_vec());
        }
        match to.host.as_str() == self.host && to.tls && to.port != 0 {
            true => Ok(text.replace(PLACEHOLDER, SECRET).into_bytes()),
            false => Err(Unfilled("the secret `token` is not for this host".into())),
        }
    }

    fn refuse_in(&self, place: &'static str, text: &[u8]) -> Result<(), Unfilled> {
        match String::from_utf8_lossy(text).contains(PLACEHOLDER) {
            true => Err(Unfilled(format!("a placeholder is in {place}"))),
            false => Ok(()),
        }
    }

    fn seeker(&self) -> Box<dyn Seek> {
        Box::new(Seeker::default())
    }

    fn masker(&self, from: Site<'_>) -> Option<Box<dyn Mask>> {
        (from.host.as_str() == self.host).then(|| Box::new(Masker::default()) as Box<dyn Mask>)
    }
}

/// Keeps everything that it has seen.
#[derive(Default)]
struct Seeker(String);

impl Seek for Seeker {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Unfilled> {
        self.0.push_str(&String::from_utf8_lossy(bytes));
        match self.0.contains(PLACEHOLDER) {
            true => Err(Unfilled("a placeholder is in its body".into())),
            false => Ok(()),
        }
    }
}

/// Holds everything back that could become the secret.
#[derive(Default)]
struct Masker {
    held: Vec<u8>,
}

impl Mask for Masker {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.held.push(*byte);
            while !SECRET.as_bytes().starts_with(&self.held) {
                out.push(self.held.remove(0));
            }
            if self.held == SECRET.as_bytes() {
                self.held.clear();
                out.extend(b"[masked]");
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

/// The airlock as a plain process, without a jail.
#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) pids: Arc<Mutex<Vec<u32>>>,
    pub(crate) fails: bool,
}

impl Plain {
    pub(crate) fn new() -> (Box<Plain>, Arc<Mutex<Vec<u32>>>) {
        let plain = Plain::default();
        let pids = Arc::clone(&plain.pids);
        (Box::new(plain), pids)
    }
}

impl Start for Plain {
    fn start(&self, line: OwnedFd) -> Result<Started, String> {
        if self.fails {
            return Err("there is none today".into());
        }
        let child = Command::new(env!("HOTCELL_AIRLOCK"))
            .stdin(Stdio::from(line))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        self.pids.lock().unwrap().push(child.id());
        let child = Arc::new(Mutex::new(child));
        let waited = Arc::clone(&child);
        Ok(Started {
            end: Box::new(move || drop(child.lock().unwrap().kill())),
            wait: Box::new(move || {
                loop {
                    if let Ok(Some(status)) = waited.lock().unwrap().try_wait() {
                        return status.to_string();
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }),
        })
    }
}

/// A server that gives each connection to a function, and counts them.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, serve) = (Arc::clone(&connections), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                let named = thread::Builder::new().stack_size(128 * 1024);
                named.spawn(move || serve(stream)).unwrap();
            }
        });
        Server { address, connections }
    }

    /// One answer to each request, made of its head and body.
    pub(crate) fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
        Server::start(move |stream| answer_all(stream, &answer))
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn answer_all(mut stream: impl Read + Write, answer: &dyn Fn(&str) -> Vec<u8>) {
    while let Some(request) = request(&mut stream) {
        if stream.write_all(&answer(&request)).is_err() || stream.flush().is_err() {
            return;
        }
    }
}

/// A head, and as many bytes as it announces.
pub(crate) fn request(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    bytes.extend(body);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// An authority of the tests' own.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: tempfile::NamedTempFile,
}

impl Ca {
    pub(crate) fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let text = data_encoding::BASE64.encode(certificate.der());
        let mut pem = tempfile::NamedTempFile::new().unwrap();
        write!(pem, "-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").unwrap();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        Some(self.pem.path().to_owned())
    }

    pub(crate) fn config(
        &self,
        name: &str,
        change: impl Fn(&mut CertificateParams),
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }

    /// An HTTPS server for a name.
    pub(crate) fn answering(
        &self,
        name: &str,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Server {
        let config = self.config(name, |_| ());
        secure(config, move |mut stream| {
            answer_all(&mut stream, &answer);
            stream.conn.send_close_notify();
            drop(stream.flush());
        })
    }
}

pub(crate) fn secure(
    config: Arc<ServerConfig>,
    serve: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> Server {
    Server::start(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        serve(StreamOwned::new(connection, stream));
    })
}

/// Waits for something that has to come, for as long as a slow machine may take.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// All that comes until the end.
pub(crate) fn drain(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
