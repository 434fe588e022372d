//! Bodies of HTTP/1.1 without their frames.

use crate::head::{BadHead, Framing};

/// Longest line with the size of a chunk, and all trailers together.
const MOST_LINE: usize = 1024;
const MOST_TRAILERS: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Body {
    state: State,
}

#[derive(Debug)]
enum State {
    /// So much of a body or a chunk is to come. After a chunk there is the end of its line, and more.
    Bytes {
        left: u64,
        is_chunk: bool,
    },
    /// The end of a chunk's line.
    ChunkEnd {
        line: Vec<u8>,
    },
    Size {
        line: Vec<u8>,
    },
    Trailers {
        line: Vec<u8>,
        passed: usize,
    },
    UntilClose,
    Done,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Body {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(left) => State::Bytes { left, is_chunk: false },
            Framing::Chunked => State::Size { line: Vec::new() },
            Framing::Close => State::UntilClose,
        };
        Body { state }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The connection has ended; an error if the body has not.
    pub(crate) fn close(&mut self) -> Result<(), BadHead> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(BadHead("its body ends too early")),
        }
    }

    /// Appends what is in the frames to `out`. How much was used; the rest belongs to what comes after.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, BadHead> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done() {
            let used = self.step(rest, out)?;
            rest = rest.get(used..).unwrap_or_default();
        }
        Ok(bytes.len() - rest.len())
    }

    fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, BadHead> {
        match &mut self.state {
            State::Bytes { left, is_chunk } => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                out.extend(bytes.get(..count).unwrap_or_default());
                *left -= count as u64;
                if *left == 0 {
                    self.state = match is_chunk {
                        true => State::ChunkEnd { line: Vec::new() },
                        false => State::Done,
                    };
                }
                Ok(count)
            }
            State::UntilClose => {
                out.extend(bytes);
                Ok(bytes.len())
            }
            State::ChunkEnd { line } => {
                let used = fill(line, bytes, 2)?;
                match line.as_slice() {
                    b"\r\n" => self.state = State::Size { line: Vec::new() },
                    b"" | b"\r" => {}
                    _ => return Err(BadHead("a chunk goes on")),
                }
                Ok(used)
            }
            State::Size { line } => {
                let used = fill(line, bytes, MOST_LINE)?;
                if let Some(whole) = whole(line)? {
                    self.state = match size(whole)? {
                        0 => State::Trailers { line: Vec::new(), passed: 0 },
                        left => State::Bytes { left, is_chunk: true },
                    };
                }
                Ok(used)
            }
            State::Trailers { line, passed } => {
                let used = fill(line, bytes, MOST_LINE)?;
                if let Some(whole) = whole(line)? {
                    *passed += whole.len() + 2;
                    let (is_last, is_much) = (whole.is_empty(), *passed > MOST_TRAILERS);
                    line.clear();
                    if is_much {
                        return Err(BadHead("its trailers are too long"));
                    }
                    if is_last {
                        self.state = State::Done;
                    }
                }
                Ok(used)
            }
            State::Done => Ok(0),
        }
    }
}

/// Takes up to the end of a line.
fn fill(line: &mut Vec<u8>, bytes: &[u8], most: usize) -> Result<usize, BadHead> {
    let count = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1);
    if line.len() + count > most {
        return Err(BadHead("a line of its chunks is too long"));
    }
    line.extend(bytes.get(..count).unwrap_or_default());
    Ok(count)
}

fn whole(line: &[u8]) -> Result<Option<&[u8]>, BadHead> {
    match line.last() {
        Some(b'\n') => line.strip_suffix(b"\r\n").map(Some).ok_or(BadHead("a line of its chunks")),
        _ => Ok(None),
    }
}

/// The size of a chunk. What else is on the line means nothing to anybody.
fn size(line: &[u8]) -> Result<u64, BadHead> {
    let bad = BadHead("the size of a chunk");
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    let text = str::from_utf8(digits.trim_ascii_end()).map_err(|_| bad)?;
    if text.is_empty() || text.len() > 15 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad);
    }
    u64::from_str_radix(text, 16).map_err(|_| bad)
}

/// A piece of a body as a chunk.
pub(crate) fn chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend(bytes);
        out.extend(b"\r\n");
    }
}

pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(framing: Framing, bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), BadHead> {
        let (mut body, mut out) = (Body::new(framing), Vec::new());
        let used = body.push(bytes, &mut out)?;
        Ok((out, used, body.is_done()))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let ok = |out: &str, used, done| Ok((out.as_bytes().to_vec(), used, done));
        assert_eq!(all(Framing::Length(3), b"abcdef"), ok("abc", 3, true));
        assert_eq!(all(Framing::Length(9), b"abcdef"), ok("abcdef", 6, false));
        assert_eq!(all(Framing::Close, b"abcdef"), ok("abcdef", 6, false));
        assert_eq!(all(Framing::Chunked, b"3;x=y\r\nabc\r\n0\r\n\r\nX"), ok("abc", 17, true));
        assert_eq!(all(Framing::Chunked, b"0\r\nA: b\r\n\r\n"), ok("", 11, true));
        for bad in ["3\nabc", "3\r\nabcd\r\n", "g\r\n", "\r\n", "-1\r\n", "0x3\r\n", "+3\r\n"] {
            assert!(all(Framing::Chunked, bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(all(Framing::Chunked, b"ffffffffffffffff\r\n").is_err());
        assert!(all(Framing::Chunked, &vec![b'0'; MOST_LINE + 1]).is_err());
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(MOST_TRAILERS));
        assert!(all(Framing::Chunked, trailers.as_bytes()).is_err());
        assert!(Body::new(Framing::Length(1)).close().is_err());
        assert!(Body::new(Framing::Chunked).close().is_err());
        assert!(Body::new(Framing::Close).close().is_ok());
    }

    proptest! {
        #[test]
        fn what_is_cut_into_chunks_comes_out_wherever_it_is_cut_again(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            cuts in prop::collection::vec(1_usize..7, 1..80),
        ) {
            let mut wire = Vec::new();
            pieces.iter().for_each(|piece| chunk(piece, &mut wire));
            wire.extend(LAST_CHUNK);
            let (mut body, mut out, mut rest) = (Body::new(Framing::Chunked), Vec::new(), wire.as_slice());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                prop_assert_eq!(body.push(now, &mut out).unwrap(), now.len());
                rest = later;
            }
            prop_assert!(body.is_done());
            prop_assert_eq!(out, pieces.concat());
        }
    }
}
