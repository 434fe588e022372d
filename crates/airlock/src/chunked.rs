//! Bodies in chunks: what comes in is taken apart and put together anew, so that nothing of its framing but
//! the sizes of its chunks is passed on.

/// Longest line with a size and its extensions, and all trailers together, in bytes.
const MOST_LINE: usize = 1024;
const MOST_TRAILERS: usize = 16 * 1024;

/// What is not a body in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// What becomes of extensions of a chunk. Clients that mean well have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extensions {
    Refused,
    Dropped,
}

/// How the body is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed {
    InChunks,
    /// For who does not know of chunks.
    Plain,
}

#[derive(Debug)]
pub struct Chunked {
    state: State,
    extensions: Extensions,
    framed: Framed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    /// So much of a chunk is to come.
    Data(u64),
    DataEnd,
    /// So much of the trailers was read.
    Trailers(usize),
    Done,
}

impl Chunked {
    pub fn new(extensions: Extensions, framed: Framed) -> Chunked {
        Chunked { state: State::Size, extensions, framed }
    }

    /// Takes as much of the input as it can and appends what is passed on. Says how much it took; what is left
    /// is the beginning of something, or lies behind the end.
    pub fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let mut rest = input;
        loop {
            match self.state {
                State::Size => {
                    let Some((text, after)) = line(rest, MOST_LINE)? else { break };
                    let size = self.size(text)?;
                    rest = after;
                    self.state = if size == 0 { State::Trailers(0) } else { State::Data(size) };
                    if size > 0 {
                        self.frame(out, format!("{size:x}\r\n").as_bytes());
                    }
                }
                State::Data(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let (data, after) = rest.split_at_checked(count).ok_or(Broken)?;
                    out.extend(data);
                    rest = after;
                    self.passed(count as u64);
                    if rest.is_empty() {
                        break;
                    }
                }
                State::DataEnd => {
                    let known = rest.len().min(2);
                    if rest.get(..known) != b"\r\n".get(..known) {
                        return Err(Broken);
                    }
                    let Some(after) = rest.get(2..) else { break };
                    rest = after;
                    self.frame(out, b"\r\n");
                    self.state = State::Size;
                }
                State::Trailers(read) => {
                    let Some((text, after)) = line(rest, MOST_TRAILERS.saturating_sub(read))?
                    else {
                        break;
                    };
                    rest = after;
                    self.state = State::Trailers(read + text.len() + 2);
                    if text.is_empty() {
                        self.frame(out, b"0\r\n\r\n");
                        self.state = State::Done;
                    }
                }
                State::Done => break,
            }
        }
        Ok(input.len() - rest.len())
    }

    /// How much comes next that is passed on as it is.
    pub fn plain(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// So much of that was passed on.
    pub fn passed(&mut self, count: u64) {
        if let State::Data(left) = self.state {
            let left = left.saturating_sub(count);
            self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn frame(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        if self.framed == Framed::InChunks {
            out.extend(bytes);
        }
    }

    fn size(&self, line: &[u8]) -> Result<u64, Broken> {
        let end = line.iter().position(|&byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
        let (digits, rest) = line.split_at_checked(end).ok_or(Broken)?;
        let extended = rest.trim_ascii_start().starts_with(b";");
        if !rest.is_empty() && (self.extensions == Extensions::Refused || !extended) {
            return Err(Broken);
        }
        // 15 digits: what follows can be added to it.
        let digits =
            str::from_utf8(digits).ok().filter(|digits| digits.len() <= 15).ok_or(Broken)?;
        u64::from_str_radix(digits, 16).map_err(|_| Broken)
    }
}

/// A line, and what comes after it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The next line without its end, and what comes after it, if it has come to its end.
fn line(bytes: &[u8], most: usize) -> Result<Option<Split<'_>>, Broken> {
    let odd = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let Some(at) = bytes.iter().position(odd) else {
        return if bytes.len() > most { Err(Broken) } else { Ok(None) };
    };
    let (line, end) = bytes.split_at_checked(at).ok_or(Broken)?;
    match end {
        [b'\r', b'\n', rest @ ..] if line.len() <= most => Ok(Some((line, rest))),
        [b'\r'] if line.len() <= most => Ok(None),
        _ => Err(Broken),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is passed on, how much was taken, and whether it came to its end.
    fn all(
        input: &[u8],
        extensions: Extensions,
        framed: Framed,
    ) -> Result<(Vec<u8>, usize, bool), Broken> {
        let (mut chunked, mut out) = (Chunked::new(extensions, framed), Vec::new());
        let taken = chunked.take(input, &mut out)?;
        Ok((out, taken, chunked.is_done()))
    }

    #[test]
    fn net_11_what_is_not_a_chunk_is_broken() {
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "+5\r\n",
            "-1\r\n",
            "0x5\r\n",
            " 5\r\n",
            "5 \r\n",
            "5;a=b\r\n",
            "5\u{b}\r\n",
            "g\r\n",
            "\r\n",
            "1000000000000000\r\n",
            "ffffffffffffffffff\r\n",
            "0\r\nX: 1\n\r\n",
            "5\rhello",
        ] {
            assert!(
                all(body.as_bytes(), Extensions::Refused, Framed::InChunks).is_err(),
                "{body:?}"
            );
        }
        assert!(all(&b"1".repeat(2000), Extensions::Dropped, Framed::InChunks).is_err());
        let trailers = [&b"0\r\n"[..], &b"X: 1\r\n".repeat(5000)].concat();
        assert!(all(&trailers, Extensions::Dropped, Framed::InChunks).is_err());
    }

    #[test]
    fn what_is_behind_the_end_is_left_and_trailers_are_dropped() {
        let body = b"05\r\nhello\r\nA\r\n0123456789\r\n000\r\nX: 1\r\n\r\nGET /";
        let (out, taken, done) = all(body, Extensions::Refused, Framed::InChunks).unwrap();
        assert_eq!(out, b"5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(&body[taken..], b"GET /");
        assert!(done);
        let body = b"5 ;a=\"b\"\r\nhello\r\n0;x\r\n\r\n";
        let (out, ..) = all(body, Extensions::Dropped, Framed::Plain).unwrap();
        assert_eq!(out, b"hello");
    }

    proptest! {
        #[test]
        fn it_is_the_same_in_whatever_pieces_it_comes(
            sizes in prop::collection::vec(1_usize..40, 0..8),
            pieces in prop::collection::vec(1_usize..20, 1..20),
        ) {
            let mut body = Vec::new();
            for size in &sizes {
                body.extend(format!("{size:x}\r\n").as_bytes());
                body.extend(vec![b'\r'; *size]);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n\r\n");
            let mut chunked = Chunked::new(Extensions::Refused, Framed::InChunks);
            let (mut out, mut waiting, mut at) = (Vec::new(), Vec::new(), 0);
            for piece in pieces.iter().cycle() {
                let next = (at + piece).min(body.len());
                waiting.extend(&body[at..next]);
                at = next;
                let taken = chunked.take(&waiting, &mut out).unwrap();
                waiting.drain(..taken);
                if at == body.len() {
                    break;
                }
            }
            prop_assert!(chunked.is_done());
            prop_assert!(waiting.is_empty());
            prop_assert_eq!(out, body);
        }

        #[test]
        fn any_bytes_are_taken_or_broken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, taken, _)) = all(&bytes, Extensions::Dropped, Framed::InChunks) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
