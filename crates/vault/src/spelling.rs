//! How a value may be written in what comes back: as it is, and as servers and programs write texts in JSON, in
//! addresses, in HTML, in hexadecimal and in base 64, the last wherever the value begins in what was coded.

use std::collections::BTreeMap;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use zeroize::Zeroizing;

/// Whether the letters of base 64 before and behind hold bits of the value as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    pub(crate) before: bool,
    pub(crate) behind: bool,
}

/// All spellings of a value, each once.
pub(crate) type Spellings = BTreeMap<Vec<u8>, Edges>;

/// Which bytes an address keeps as they are, besides letters and digits: RFC 3986, `encodeURIComponent`,
/// `quote` of Python, forms, `encodeURI`, and none.
const KEPT: [&[u8]; 6] = [b"-_.~", b"-_.!~*'()", b"-_.~/", b"*-._", b"-_.!~*'();,/?:@&=+$#", b""];

/// Which signs writers of JSON write as numbers, each of them another set: Go, Gson and .NET.
const ESCAPED: [&[u8]; 3] = [b"<>&'", b"<>&'=", b"<>&'\"+`"];

/// How writers of HTML and XML write quotation marks and apostrophes, and what else they write as numbers: Python,
/// Go, PHP, XML, Handlebars, Mustache, and none.
const MARKUP: [(&str, &str, &[u8]); 9] = [
    ("\"", "'", b""),
    ("&quot;", "&#39;", b""),
    ("&#34;", "&#x27;", b""),
    ("&quot;", "&#x27;", b""),
    ("&#34;", "&#39;", b"+"),
    ("&quot;", "&#039;", b""),
    ("&quot;", "&apos;", b""),
    ("&quot;", "&#x27;", b"=`"),
    ("&quot;", "&#39;", b"=`/"),
];

pub(crate) fn of(value: &[u8]) -> Spellings {
    let mut all = Spellings::new();
    let mut add = |bytes: Vec<u8>, edges: Edges| {
        let known = all.entry(bytes).or_insert(edges);
        known.before |= edges.before;
        known.behind |= edges.behind;
    };
    for text in texts(value) {
        add(text, Edges::default());
    }
    for (core, edges) in coded(value) {
        // Who says the user and password of `Basic` again in base 64 codes them twice.
        for (again, edges) in coded(&core) {
            add(again, edges);
        }
        for text in texts(&core) {
            add(text, edges);
        }
    }
    all
}

/// A text in base 64, wherever it begins in what is coded: the letters that are made of it alone.
fn coded(text: &[u8]) -> Vec<(Vec<u8>, Edges)> {
    let mut all = Vec::new();
    for offset in 0..3 {
        let padded = Zeroizing::new([vec![0; offset], text.to_vec()].concat());
        let bits = padded.len() * 8;
        let edges = Edges { before: offset > 0, behind: !bits.is_multiple_of(6) };
        for alphabet in [&BASE64_NOPAD, &BASE64URL_NOPAD] {
            let letters = Zeroizing::new(alphabet.encode(&padded).into_bytes());
            let core = letters.get((offset * 8).div_ceil(6)..bits / 6).unwrap_or_default();
            all.push((core.to_vec(), edges));
        }
    }
    all
}

/// A text as it is, and as others write it.
fn texts(text: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![text.to_vec()];
    for slash in [&b"/"[..], b"\\/"] {
        all.push(each(text, |byte| match byte {
            b'"' => b"\\\"".to_vec(),
            b'\\' => b"\\\\".to_vec(),
            b'/' => slash.to_vec(),
            byte => vec![byte],
        }));
    }
    for (quote, apostrophe, numbered) in MARKUP {
        all.push(each(text, |byte| match byte {
            b'&' => b"&amp;".to_vec(),
            b'<' => b"&lt;".to_vec(),
            b'>' => b"&gt;".to_vec(),
            b'"' => quote.into(),
            b'\'' => apostrophe.into(),
            b'+' if numbered.contains(&byte) => format!("&#{byte};").into_bytes(),
            byte if numbered.contains(&byte) => format!("&#x{byte:x};").into_bytes(),
            byte => vec![byte],
        }));
    }
    let numbered = |byte: u8| !byte.is_ascii_alphanumeric();
    for write in [|byte: u8| format!("&#{byte};"), |byte: u8| format!("&#x{byte:x};")] {
        all.push(each(text, |byte| match numbered(byte) {
            true => write(byte).into_bytes(),
            false => vec![byte],
        }));
    }
    for kept in KEPT {
        for is_upper in [true, false] {
            for space in [&b"%20"[..], b"+"] {
                all.push(each(text, |byte| match byte {
                    b' ' => space.to_vec(),
                    byte if !kept.is_empty() && byte.is_ascii_alphanumeric() => vec![byte],
                    byte if kept.contains(&byte) => vec![byte],
                    byte if is_upper => format!("%{byte:02X}").into_bytes(),
                    byte => format!("%{byte:02x}").into_bytes(),
                }));
            }
        }
    }
    for escaped in ESCAPED {
        for slash in [&b"/"[..], b"\\/"] {
            all.push(each(text, |byte| match byte {
                byte if escaped.contains(&byte) => format!("\\u{byte:04x}").into_bytes(),
                b'"' => b"\\\"".to_vec(),
                b'\\' => b"\\\\".to_vec(),
                b'/' => slash.to_vec(),
                byte => vec![byte],
            }));
        }
    }
    all.push(each(text, |byte| match numbered(byte) {
        true => format!("\\u{byte:04x}").into_bytes(),
        false => vec![byte],
    }));
    all.push(HEXLOWER.encode(text).into_bytes());
    all.push(HEXUPPER.encode(text).into_bytes());
    all
}

fn each(text: &[u8], write: impl Fn(u8) -> Vec<u8>) -> Vec<u8> {
    text.iter().flat_map(|byte| write(*byte)).collect()
}
