//! Claims as bytes: what is signed and stored. Two claims never look alike, and one has one spelling.
//! FORMAT.md has it for people.

use hotcell_glob::Glob;
use hotcell_types::{CallId, Name};

use crate::claims::{Audience, Claims, Holder, Paths, Scope, Tool, Word};
use crate::id::BearerId;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

impl Claims {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(512));
        out.bytes(&self.id.0);
        out.0.push(audience_number(self.audience));
        out.text(self.holder.tenant.as_str());
        out.text(self.holder.subject.as_str());
        out.maybe(self.holder.run.as_ref(), |out, run| out.bytes(&run.to_bytes()));
        out.text(self.scope.operation.as_str());
        out.maybe(self.scope.tool.as_ref(), |out, tool| {
            out.text(tool.name.as_str());
            out.bytes(&tool.digest);
        });
        out.length(self.scope.paths.globs().len());
        self.scope.paths.globs().iter().for_each(|glob| out.text(glob.as_str()));
        out.maybe(self.scope.args.as_ref(), |out, args| out.bytes(args));
        out.bytes(&self.uses.to_le_bytes());
        out.bytes(&self.issued.to_le_bytes());
        out.bytes(&self.expires.to_le_bytes());
        out.bytes(&self.nonce.to_le_bytes());
        out.bytes(&self.policy);
        out.maybe(self.parent.as_ref(), |out, parent| out.bytes(&parent.0));
        out.0
    }

    /// `None` for anything that minting does not make.
    pub fn decode(bytes: &[u8]) -> Option<Claims> {
        let mut from = Reader(bytes);
        let claims = Claims {
            id: BearerId(from.array()?),
            audience: audience_of(from.byte()?)?,
            holder: Holder {
                tenant: from.text()?.parse::<Name>().ok()?,
                subject: from.text()?.parse::<Name>().ok()?,
                run: from.maybe(|from| from.array().map(CallId::from_bytes))?,
            },
            scope: Scope {
                operation: from.text()?.parse::<Word>().ok()?,
                tool: from.maybe(|from| {
                    Some(Tool { name: from.text()?.parse().ok()?, digest: from.array()? })
                })?,
                paths: from.paths()?,
                args: from.maybe(Reader::array)?,
            },
            uses: u32::from_le_bytes(from.array()?),
            issued: i64::from_le_bytes(from.array()?),
            expires: i64::from_le_bytes(from.array()?),
            nonce: u64::from_le_bytes(from.array()?),
            policy: from.array()?,
            parent: from.maybe(|from| from.array().map(BearerId))?,
        };
        // Patterns in another order or twice would be another spelling, and so would what is left over.
        (claims.is_possible() && claims.encode() == bytes).then_some(claims)
    }
}

fn audience_number(audience: Audience) -> u8 {
    match audience {
        Audience::Token => 1,
        Audience::Run => 2,
        Audience::Proxy => 3,
    }
}

fn audience_of(number: u8) -> Option<Audience> {
    Audience::ALL.into_iter().find(|audience| audience_number(*audience) == number)
}

struct Writer(Vec<u8>);

impl Writer {
    /// As many as there always are.
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Nothing in claims has a length beyond 16 bits; if it had, it would not read back.
    fn length(&mut self, length: usize) {
        self.bytes(&(length as u16).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes(text.as_bytes());
    }

    fn maybe<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Writer, &T)) {
        match value {
            Some(value) => {
                self.0.push(PRESENT);
                write(self, value);
            }
            None => self.0.push(ABSENT),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Option<usize> {
        self.array().map(u16::from_le_bytes).map(usize::from)
    }

    fn text(&mut self) -> Option<&str> {
        let length = self.length()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn paths(&mut self) -> Option<Paths> {
        let count = self.length().filter(|count| *count <= crate::MAX_PATHS)?;
        let globs = (0..count).map(|_| self.text().and_then(|text| Glob::parse(text).ok()));
        Paths::new(globs.collect::<Option<Vec<_>>>()?).ok()
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            ABSENT => Some(None),
            PRESENT => read(self).map(Some),
            _ => None,
        }
    }
}
