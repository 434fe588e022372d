//! What hotcell itself reads of what hosts answer and of what the airlock hands on: heads, bodies, URLs of redirects,
//! names, results of a search, and the file of the host's names. Names are looked up by the C library.

use hotcell_egress::{Host, parse};

use crate::outcome;

/// A head that is understood is written in the one way in which it is understood again.
pub fn egress_head(data: &[u8]) -> u64 {
    let Some(end) = parse::end_of_head(data) else { return 0 };
    let head = &data[..end];
    let request = parse::request(head);
    if let Some((written, extent)) = &request {
        assert_eq!(
            parse::end_of_head(written),
            Some(written.len()),
            "{:?}",
            written.escape_ascii()
        );
        assert_eq!(parse::request(written), Some((written.clone(), *extent)));
    }
    let responses = ["GET", "HEAD"].map(|method| (method, parse::response(head, method)));
    for (method, response) in &responses {
        let Some((written, extent)) = response else { continue };
        assert_eq!(
            parse::end_of_head(written),
            Some(written.len()),
            "{:?}",
            written.escape_ascii()
        );
        assert_eq!(parse::response(written, method), Some((written.clone(), *extent)));
    }
    let [(_, get), (_, bare)] = responses;
    let is = |extent| get.as_ref().is_some_and(|(_, found)| *found == extent);
    outcome(&[
        true,
        request.is_some(),
        get.is_some(),
        bare.is_some(),
        is(parse::Extent::Chunked),
        is(parse::Extent::Close),
    ])
}

/// A body is the same wherever it is cut, and what is cut into chunks again is the same as well.
pub fn egress_body(data: &[u8]) -> u64 {
    let Some((first, rest)) = data.split_first() else { return 0 };
    let extent = match first % 3 {
        0 => parse::Extent::Chunked,
        1 => parse::Extent::Length(u64::from(first / 3)),
        _ => parse::Extent::Close,
    };
    let whole = parse::body(rest, extent, rest.len());
    for piece in [1, 2, 7] {
        assert_eq!(parse::body(rest, extent, piece), whole, "{piece}");
    }
    if let Some((body, used)) = &whole {
        assert!(*used <= rest.len() && body.len() <= *used);
        let again = parse::chunked(body);
        let length = again.len();
        assert_eq!(parse::body(&again, parse::Extent::Chunked, 5), Some((body.clone(), length)));
    }
    outcome(&[
        true,
        first % 3 == 0,
        first % 3 == 1,
        whole.is_some(),
        whole.is_some_and(|(body, _)| body.is_empty()),
    ])
}

/// A URL and a host have one spelling, which is read as the same again; a redirect leads to such a one.
pub fn egress_url(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let (url, location) = text.split_once('\n').unwrap_or((&text, "/"));
    let host = Host::parse(url);
    if let Ok(host) = &host {
        assert!(host.as_str().is_ascii());
        assert_eq!(Host::parse(host.as_str()).as_ref(), Ok(host));
    }
    let read = parse::url(url, location);
    if let Some((spelled, next)) = &read {
        for one in next.iter().chain([spelled]) {
            let (again, _) = parse::url(one, "/").expect("it was one");
            assert_eq!(&again, one);
        }
    }
    let next = read.as_ref().is_some_and(|(_, next)| next.is_some());
    outcome(&[
        true,
        host.is_ok(),
        host.is_ok_and(|host| host.address().is_some()),
        read.is_some(),
        next,
    ])
}

/// Whatever a server or a file says: no more than was asked for, and nothing that is no address.
pub fn egress_found(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let found = parse::found(&text, 3);
    if let Some(found) = &found {
        assert!(found.len() <= 3);
        assert!(
            found
                .iter()
                .all(|one| one.url.starts_with("http://") || one.url.starts_with("https://"))
        );
    }
    let addresses = parse::hosts(data, "a.test");
    assert!(addresses.is_empty() || text.to_ascii_lowercase().contains("a.test"));
    outcome(&[
        true,
        found.is_some(),
        found.is_some_and(|found| !found.is_empty()),
        !addresses.is_empty(),
    ])
}

fn seeds<const N: usize>(texts: [&[u8]; N]) -> Vec<Vec<u8>> {
    texts.map(<[u8]>::to_vec).into()
}

pub(crate) fn head_seeds() -> Vec<Vec<u8>> {
    seeds([
        b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nok",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: close, x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: \ty \r\n\r\nhello",
        b"HTTP/1.0 404 Not Found\r\n\r\n",
        b"HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
    ])
}

pub(crate) fn body_seeds() -> Vec<Vec<u8>> {
    seeds([
        b"\x005\r\nhello\r\n0\r\n\r\nrest",
        b"\x00a;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
        b"\x10hello and more",
        b"\x02until the end",
    ])
}

pub(crate) fn url_seeds() -> Vec<Vec<u8>> {
    seeds([
        b"https://A.Test:8443/a/b?c#d\n../e?f",
        b"http://[::ffff:1.2.3.4]\n//b.test/x",
        "b\u{fc}cher.test\nhttp://a.test".as_bytes(),
        b"http://a.test:80/%7e\n?x",
    ])
}

pub(crate) fn found_seeds() -> Vec<Vec<u8>> {
    seeds([
        br#"{"results": [{"title": "One", "url": "https://one.test/", "content": "x"}, {"url": "javascript:x"}]}"#,
        b"127.0.0.1 localhost a.test # b\n::1\tA.TEST\n",
    ])
}
