//! A value in its row: XChaCha20-Poly1305 with a nonce of its own, and with everything that the row says besides
//! as associated data. What is taken from one row and put into another, or has other hosts than it was set with,
//! does not open.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hotcell_types::Name;
use zeroize::Zeroizing;

use crate::binding::Binding;
use crate::chance;
use crate::error::Error;
use crate::key::Key;
use crate::name::SecretName;
use crate::value::Value;

const NONCE: usize = 24;
const TAG: usize = 16;
/// Bytes that are sealed besides the value: its length is not told.
const STEP: usize = 64;

/// What a row says besides the value.
#[derive(Debug)]
pub(crate) struct Label<'a> {
    pub(crate) number: u64,
    pub(crate) tenant: &'a Name,
    pub(crate) name: &'a SecretName,
    pub(crate) binding: &'a Binding,
    pub(crate) note: &'a str,
    pub(crate) created: i64,
}

impl Label<'_> {
    /// Each thing with its length: no two labels have the same bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (hosts, tools) = self.binding.texts();
        let mut bytes = b"hotcell secret 1\n".to_vec();
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        for text in [self.tenant.as_str(), self.name.as_str(), &hosts, &tools, self.note] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}

/// Nonce, value and tag. The value is filled up with zeros, which no value has.
pub(crate) fn seal(key: &Key, label: &Label<'_>, value: &Value) -> Result<Vec<u8>, Error> {
    let nonce: [u8; NONCE] = chance::bytes().map_err(Error::Chance)?;
    let length = value.as_bytes().len().next_multiple_of(STEP);
    let mut plain = Zeroizing::new(Vec::with_capacity(length));
    plain.extend_from_slice(value.as_bytes());
    plain.resize(length, 0);
    let payload = Payload { msg: &plain, aad: &label.bytes() };
    let sealed = XChaCha20Poly1305::new(key.bytes().into()).encrypt(&XNonce::from(nonce), payload);
    let sealed = sealed.map_err(|_| Error::Sealed(label.name.clone()))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

pub(crate) fn open(key: &Key, label: &Label<'_>, sealed: &[u8]) -> Result<Value, Error> {
    let closed = || Error::Sealed(label.name.clone());
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(closed)?;
    if sealed.len() < TAG {
        return Err(closed());
    }
    let payload = Payload { msg: sealed, aad: &label.bytes() };
    let plain = XChaCha20Poly1305::new(key.bytes().into()).decrypt(&XNonce::from(*nonce), payload);
    let mut plain = Zeroizing::new(plain.map_err(|_| closed())?);
    let length = plain.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    plain.truncate(length);
    Value::new(std::mem::take(&mut *plain)).map_err(|_| closed())
}
