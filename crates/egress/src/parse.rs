//! What this crate reads of what others say, as plain functions over bytes: for whoever tries it with bytes that
//! nobody would send. What a run sends is read by the airlock first; what hosts answer is read here.

use std::net::IpAddr;

use crate::body::{Body, LAST_CHUNK, chunk};
use crate::head::{self, Framing, Request, Response};
use crate::url::Url;
use crate::{resolve, search};

/// Where a head ends, if it is there as a whole and not too long.
pub fn end_of_head(bytes: &[u8]) -> Option<usize> {
    head::end(bytes).ok().flatten()
}

/// A request as a relay understood it, written again, and its framing.
pub fn request(head: &[u8]) -> Option<(Vec<u8>, Extent)> {
    let request = Request::read(head).ok()?;
    Some((request.write(), extent(request.framing().ok()?)))
}

/// A response to a method, the same way.
pub fn response(head: &[u8], to: &str) -> Option<(Vec<u8>, Extent)> {
    let response = Response::read(head).ok()?;
    Some((response.write(), extent(response.framing(to).ok()?)))
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Length(u64),
    Chunked,
    Close,
}

fn extent(framing: Framing) -> Extent {
    match framing {
        Framing::Length(length) => Extent::Length(length),
        Framing::Chunked => Extent::Chunked,
        Framing::Close => Extent::Close,
    }
}

/// A body without its frames, if its end is among the bytes, which come in pieces of this size. With how many bytes
/// of all were used.
pub fn body(bytes: &[u8], extent: Extent, piece: usize) -> Option<(Vec<u8>, usize)> {
    let framing = match extent {
        Extent::Length(length) => Framing::Length(length),
        Extent::Chunked => Framing::Chunked,
        Extent::Close => Framing::Close,
    };
    let (mut body, mut out, mut used) = (Body::new(framing), Vec::new(), 0);
    for piece in bytes.chunks(piece.max(1)) {
        used += body.push(piece, &mut out).ok()?;
    }
    if !body.is_done() {
        body.close().ok()?;
    }
    Some((out, used))
}

/// A body in chunks, as it is sent on.
pub fn chunked(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    chunk(body, &mut out);
    out.extend(LAST_CHUNK);
    out
}

/// A URL in its one spelling, and the one that it leads to by a redirect.
pub fn url(text: &str, location: &str) -> Option<(String, Option<String>)> {
    let url = Url::parse(text).ok()?;
    let next = url.join(location).ok().map(|next| next.to_string());
    Some((url.to_string(), next))
}

/// The addresses of a name in a file such as `/etc/hosts`.
pub fn hosts(file: &[u8], name: &str) -> Vec<IpAddr> {
    resolve::listed(file, name)
}

/// The results in an answer of a server that searches.
pub fn found(text: &str, most: usize) -> Option<Vec<search::Found>> {
    search::read(text, most)
}
