//! TLS to the outside: who is trusted, and streams with a time for everything.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::PollFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Host;
use crate::connect::{connect, wait};
use crate::judge::{Refusal, Refused, Wanted};

/// Whom this host trusts, and whom its operator trusts besides. Read when it is needed first.
pub struct Tls {
    further: Option<PathBuf>,
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Tls {
    /// `further` is a file with certificates (PEM) of authorities that are trusted besides those of the host.
    pub fn new(further: Option<PathBuf>) -> Tls {
        Tls { further, config: Mutex::new(None) }
    }

    pub(crate) fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut kept = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*kept {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make()?);
        *kept = Some(Arc::clone(&config));
        Ok(config)
    }

    fn make(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(of_the_host());
        if let Some(path) = &self.further {
            let said = |why: String| io::Error::other(format!("`{}`: {why}", path.display()));
            let text = fs::read(path).map_err(|error| said(error.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&text) {
                let certificate = certificate.map_err(|error| said(error.to_string()))?;
                roots.add(certificate).map_err(|error| said(error.to_string()))?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Where distributions keep the certificates that are trusted. No variable names another place: whoever has a
/// word in hotcell's environment would decide who gets the secrets. What cannot be read is not trusted.
fn of_the_host() -> Vec<CertificateDer<'static>> {
    const FILES: [&str; 5] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let mut each = FILES.iter().map(Path::new).filter(|file| file.is_file());
    let Some(file) = each.next() else { return Vec::new() };
    rustls_native_certs::load_certs_from_paths(Some(file), None).certs
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("further", &self.further).finish_non_exhaustive()
    }
}

/// A TCP stream that never blocks longer than until its deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) tcp: TcpStream,
    pub(crate) deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tcp.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.tcp, PollFlags::IN, self.deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    // A server that sends a byte now and then has no more time than one that sends none.
                    if Instant::now() >= self.deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    return read;
                }
            }
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.tcp.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.tcp, PollFlags::OUT, self.deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to one of the addresses that were decided on.
pub(crate) fn reach(
    wanted: &Wanted,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<Timed, Refusal> {
    let (tcp, _) = connect(addresses, deadline).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => "it does not answer in time".to_owned(),
            _ => format!("it cannot be connected to: {}", words(&error)),
        };
        Refusal::new(
            Refused::Unreachable,
            format!("{wanted} is not reached"),
            why,
            "see whether the service runs, and whether this host reaches it",
        )
    })?;
    Ok(Timed { tcp, deadline })
}

/// TLS with whom was asked for, proven by its certificate.
pub(crate) fn secure(
    tls: &Tls,
    wanted: &Wanted,
    mut stream: Timed,
) -> Result<StreamOwned<ClientConnection, Timed>, Refusal> {
    let untrusted = |why: String| {
        Refusal::new(
            Refused::Untrusted,
            format!("{wanted} is not reached"),
            why,
            "have it use a certificate for this name from an authority that the host or hotcell's settings trust",
        )
    };
    let config = tls.config().map_err(|error| untrusted(words(&error)))?;
    let name = server_name(&wanted.host).map_err(untrusted)?;
    let mut connection =
        ClientConnection::new(config, name).map_err(|error| untrusted(error.to_string()))?;
    while connection.is_handshaking() {
        connection
            .complete_io(&mut stream)
            .map_err(|error| untrusted(format!("TLS failed: {}", words(&error))))?;
    }
    Ok(StreamOwned::new(connection, stream))
}

fn server_name(host: &Host) -> Result<ServerName<'static>, String> {
    match host.address() {
        Some(address) => Ok(ServerName::IpAddress(IpAddr::into(address))),
        None => DnsName::try_from(host.as_str().to_owned())
            .map(ServerName::DnsName)
            .map_err(|_| "no certificate can be for this name".to_owned()),
    }
}

/// Without numbers and names of types.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "no answer came in time".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        io::ErrorKind::ConnectionReset => "the other side broke it off".into(),
        io::ErrorKind::UnexpectedEof => "the other side ended it too early".into(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_owned()
        }
    }
}
