//! The TLS server of a tunnel that is intercepted.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};
use tokio::sync::Mutex;

use super::socket::Socket;

/// Bytes that are read at once, and the most that is written as one record.
const PIECE: usize = 16 * 1024;

pub(crate) struct Secure {
    socket: Socket,
    session: RefCell<ServerConnection>,
    /// What has come and was not looked at yet.
    incoming: RefCell<Vec<u8>>,
    /// Records leave in the order in which they were made.
    leaving: Mutex<()>,
}

/// A server with this chain and key, which are those of the host.
pub(crate) fn config(
    chain: Vec<Vec<u8>>,
    key: Vec<u8>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let chain = chain.into_iter().map(CertificateDer::from).collect();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // There is no other reader behind it.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

impl Secure {
    /// With what the client has said already.
    pub(crate) fn new(
        socket: Socket,
        config: Arc<ServerConfig>,
        said: Vec<u8>,
    ) -> Result<Secure, rustls::Error> {
        Ok(Secure {
            socket,
            session: RefCell::new(ServerConnection::new(config)?),
            incoming: RefCell::new(said),
            leaving: Mutex::new(()),
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Until both sides have a key.
    pub(crate) async fn handshake(&self) -> io::Result<()> {
        loop {
            self.digest().await?;
            if !self.session.borrow().is_handshaking() {
                return Ok(());
            }
            if self.incoming.borrow().is_empty() && self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.session.borrow_mut().reader().read(buffer);
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Without the goodbye that belongs to it. Whoever reads knows what is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if self.incoming.borrow().is_empty() && self.more().await? == 0 {
                return Ok(0);
            }
            self.digest().await?;
        }
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.session.borrow_mut().writer().write_all(piece)?;
            self.flush().await?;
        }
        Ok(())
    }

    pub(crate) async fn end(&self) {
        self.session.borrow_mut().send_close_notify();
        // Who does not hear it has gone.
        drop(self.flush().await);
    }

    /// Reads from the socket.
    async fn more(&self) -> io::Result<usize> {
        let mut piece = vec![0; PIECE];
        let count = self.socket.read(&mut piece).await?;
        piece.truncate(count);
        self.incoming.borrow_mut().extend(piece);
        Ok(count)
    }

    /// Takes what has come, as far as there is room for what it says.
    async fn digest(&self) -> io::Result<()> {
        let result = self.take();
        // An alert too: the client is to know what was wrong.
        self.flush().await?;
        result
    }

    fn take(&self) -> io::Result<()> {
        let mut session = self.session.borrow_mut();
        let mut incoming = self.incoming.borrow_mut();
        let mut rest = incoming.as_slice();
        while !rest.is_empty() && session.wants_read() {
            session.read_tls(&mut rest)?;
            session
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        let taken = incoming.len() - rest.len();
        incoming.drain(..taken);
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        let _order = self.leaving.lock().await;
        loop {
            let mut records = Vec::new();
            {
                let mut session = self.session.borrow_mut();
                if !session.wants_write() {
                    return Ok(());
                }
                session.write_tls(&mut records)?;
            }
            self.socket.write(&records).await?;
        }
    }
}
