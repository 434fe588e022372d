//! The text that a bearer is carried as: `hct_` and base64url of a version, the number of a key, the
//! claims and an HMAC-SHA256 of all that. There is no field for an algorithm, and nothing in it leads
//! anywhere but to a key of the ring.

use std::fmt;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;

use crate::check::Why;
use crate::claims::Claims;
use crate::error::Error;
use crate::id::BearerId;
use crate::ring::{MAC, Ring};

pub const PREFIX: &str = "hct_";
/// Longest text, in bytes: what a request takes.
pub const MAX_TEXT: usize = 4096;
/// Longest claims, in bytes: what fits into that.
pub const MAX_CLAIMS: usize = (MAX_TEXT - PREFIX.len()) / 4 * 3 - HEAD - MAC;

const VERSION: u8 = 1;
/// The version and the number of the key.
const HEAD: usize = 5;

/// A bearer, to be given to whoever may have it. It does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    text: String,
    id: BearerId,
}

impl Bearer {
    /// Signed with the newest key of the ring.
    pub(crate) fn sign(ring: &Ring, claims: &Claims, body: &[u8]) -> Result<Bearer, Error> {
        let keys = ring.keys()?;
        let key = keys.newest();
        let mut bytes = head(key.number()).to_vec();
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&key.mac(&bytes));
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes));
        Ok(Bearer { text, id: claims.id })
    }

    pub fn id(&self) -> BearerId {
        self.id
    }

    /// The text, for whoever hands it over.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({})", self.id)
    }
}

fn head(number: u32) -> [u8; HEAD] {
    let [a, b, c, d] = number.to_le_bytes();
    [VERSION, a, b, c, d]
}

/// A bearer that somebody presented, and that we signed. Whether it is good for anything is another
/// question.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    claims: Claims,
    body: Vec<u8>,
    until: i64,
}

impl Presented {
    /// Nothing of the text is looked at before the signature was found to be ours.
    pub fn read(ring: &Ring, text: &str) -> Result<Presented, Error> {
        let bytes = bytes_of(text).ok_or(Why::Malformed)?;
        let (signed, mac) = bytes.split_last_chunk::<MAC>().ok_or(Why::Malformed)?;
        let (head, body) = signed.split_first_chunk::<HEAD>().ok_or(Why::Malformed)?;
        let [VERSION, number @ ..] = *head else { return Err(Why::Malformed.into()) };
        let keys = ring.keys()?;
        let key = keys.get(u32::from_le_bytes(number)).ok_or(Why::Signature)?;
        if !key.is_mac_of(signed, mac) {
            return Err(Why::Signature.into());
        }
        let claims = Claims::decode(body).ok_or(Why::Malformed)?;
        // A key that was replaced takes its bearers with it.
        let until = key.until().map_or(claims.expires, |until| until.min(claims.expires));
        Ok(Presented(Arc::new(Inner { claims, body: body.to_vec(), until })))
    }

    pub fn claims(&self) -> &Claims {
        &self.0.claims
    }

    pub fn id(&self) -> BearerId {
        self.0.claims.id
    }

    /// When it expires: itself, or the key that signed it.
    pub fn until(&self) -> i64 {
        self.0.until
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.0.body
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({})", self.id())
    }
}

/// Strict: no padding, no other alphabet, no bits left over.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let encoded = Some(text).filter(|text| text.len() <= MAX_TEXT)?.strip_prefix(PREFIX)?;
    BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()
}
