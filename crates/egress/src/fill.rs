//! Secrets on their way out and back, as whoever has them does it. Nothing here keeps one, or knows its text.

use crate::Host;

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site<'a> {
    pub host: &'a Host,
    pub port: u16,
    pub tls: bool,
}

/// The secrets that a run may use, by the placeholders that it was given. May be used by several threads at once.
pub trait Fill: Send + Sync {
    /// A header's value with the secrets in it that are bound to this host. What has no placeholder comes back
    /// as it is.
    fn fill(&self, to: Site<'_>, value: &[u8]) -> Result<Vec<u8>, Unfilled>;
    /// Refuses a placeholder where no secret is ever put in: `place` is what `text` is of the request.
    fn refuse_in(&self, place: &'static str, text: &[u8]) -> Result<(), Unfilled>;
    /// The same for a body, which comes in pieces.
    fn seeker(&self) -> Box<dyn Seek>;
    /// Hides the secrets in what comes back from a host; nothing if none can be in it.
    fn masker(&self, from: Site<'_>) -> Option<Box<dyn Mask>>;
}

/// Looks for placeholders in a stream, wherever the stream is cut.
pub trait Seek: Send {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Unfilled>;
}

/// A placeholder of a secret that does not belong there. Says which one and why, and never its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfilled(pub String);

/// Hides what is not to be seen in a stream, wherever the stream is cut.
pub trait Mask: Send {
    /// Takes what came, and gives what may be passed on by now.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>);
    /// What was held back.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// A value that is whole, hidden in the same way.
pub(crate) fn masked(mask: Option<Box<dyn Mask>>, bytes: &[u8]) -> Vec<u8> {
    let Some(mut mask) = mask else { return bytes.to_vec() };
    let mut out = Vec::with_capacity(bytes.len());
    mask.push(bytes, &mut out);
    mask.finish(&mut out);
    out
}
