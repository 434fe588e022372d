//! What the airlock reads: heads and bodies of HTTP, greetings of TLS, SOCKS, and hotcell's packets.

use hotcell_airlock::chunked::{Chunked, Extensions, Framed};
use hotcell_airlock::head::{self, Connection, Extent, Form, Limits};
use hotcell_airlock::hello::hello;
use hotcell_airlock::socks;
use hotcell_airlock::target::{Authority, Target};
use hotcell_airlock::wire::{
    Answer, Budget, CREDENTIAL, End, Fault, FromAirlock, Message, Protocol, ToAirlock, Wanted,
};

use crate::outcome;

const BUDGET: Budget = Budget {
    connections: 64,
    requests: 10_000,
    up: 1 << 30,
    down: 1 << 32,
    head: 64 * 1024,
    fields: 100,
    head_time: 10_000,
    connect_time: 10_000,
    idle_time: 300_000,
};
const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 100 };

/// A head ends in the same place however it arrives, and what is passed on instead of it is read as the same
/// request again, by whoever reads as strictly.
pub fn airlock_request(data: &[u8]) -> u64 {
    let Some(end) = end(data) else { return 0 };
    let proxied = head::request(&data[..end], &Form::Proxy, LIMITS);
    if let Ok(request) = &proxied {
        let (authority, path) = match &request.target {
            Target::Absolute { authority, path, .. } => (authority.clone(), path.clone()),
            Target::Tunnel(_) => return outcome(&[true, true]),
            Target::Origin { .. } => panic!("a proxy takes no path alone"),
        };
        let sent = request.forwarded(&authority.shown(443), &path, Connection::Close);
        assert_eq!(self::end(&sent), Some(sent.len()), "{request:?}");
        let again = head::request(&sent, &Form::Within(authority), LIMITS).unwrap();
        assert_eq!(again.target, Target::Origin { path });
        assert_eq!((&again.method, again.body), (&request.method, request.body));
        assert_eq!((again.keep, &again.credential), (false, &None));
        assert_eq!(again.fields, request.fields);
    }
    let authority = Authority { host: "a.test".into(), port: 443 };
    let within = head::request(&data[..end], &Form::Within(authority), LIMITS);
    let body = |extent: Extent| match &proxied {
        Ok(request) => request.body == extent,
        Err(_) => false,
    };
    outcome(&[
        true,
        false,
        proxied.is_ok(),
        within.is_ok(),
        body(Extent::None),
        body(Extent::Chunked),
        matches!(proxied, Err(Fault::Head)),
        matches!(proxied, Err(Fault::Target)),
        matches!(proxied, Err(Fault::Host)),
        matches!(proxied, Err(Fault::Framing)),
        matches!(proxied, Err(Fault::Upgrade)),
    ])
}

/// The same for what comes back.
pub fn airlock_response(data: &[u8]) -> u64 {
    let Some(end) = end(data) else { return 0 };
    let answers = ["GET", "HEAD"].map(|method| head::response(&data[..end], method, LIMITS));
    for (answer, method) in answers.iter().zip(["GET", "HEAD"]) {
        let Ok(response) = answer else { continue };
        let sent = response.forwarded(response.body, Connection::Close);
        assert_eq!(self::end(&sent), Some(sent.len()), "{response:?}");
        let again = head::response(&sent, method, LIMITS).unwrap();
        assert_eq!((again.status, again.body), (response.status, response.body));
        assert_eq!(again.fields, response.fields);
    }
    let [plain, bare] = answers;
    let body = |extent: Extent| plain.as_ref().is_ok_and(|response| response.body == extent);
    let status = plain.as_ref().map_or(0, |response| u64::from(response.status / 100));
    let kind = outcome(&[plain.is_ok(), bare.is_ok(), body(Extent::End), body(Extent::Chunked)]);
    kind << 4 | status
}

/// Where a head ends, in one piece and byte by byte.
fn end(data: &[u8]) -> Option<usize> {
    let whole = head::end(data, &mut 0);
    let mut seen = 0;
    let parts = (0..=data.len()).map(|count| head::end(&data[..count], &mut seen));
    let first = parts.into_iter().find(|found| *found != Ok(None)).unwrap_or(Ok(None));
    assert_eq!(first, whole);
    whole.ok().flatten()
}

/// A body is taken apart in the same way however it arrives, and put together as one that is read the same.
pub fn airlock_chunked(data: &[u8]) -> u64 {
    let strict = unchunked(data, Extensions::Refused, data.len().max(1));
    let loose = unchunked(data, Extensions::Dropped, data.len().max(1));
    for piece in [1, 7] {
        assert_eq!(unchunked(data, Extensions::Refused, piece), strict);
        assert_eq!(unchunked(data, Extensions::Dropped, piece), loose);
    }
    if let Some((plain, true)) = &strict {
        assert_eq!(loose, strict);
        let mut chunked = Chunked::new(Extensions::Refused, Framed::InChunks);
        let mut sent = Vec::new();
        chunked.take(data, &mut sent).unwrap();
        assert_eq!(unchunked(&sent, Extensions::Refused, 5), Some((plain.clone(), true)));
    }
    let is_done = |read: &Option<(Vec<u8>, bool)>| read.as_ref().is_some_and(|(_, done)| *done);
    outcome(&[strict.is_some(), loose.is_some(), is_done(&strict), is_done(&loose)])
}

/// What is in the chunks, and whether it came to its end; nothing if it is no such body.
fn unchunked(data: &[u8], extensions: Extensions, piece: usize) -> Option<(Vec<u8>, bool)> {
    let (mut chunked, mut out) = (Chunked::new(extensions, Framed::Plain), Vec::new());
    let mut waiting: Vec<u8> = Vec::new();
    for part in data.chunks(piece) {
        waiting.extend(part);
        let taken = chunked.take(&waiting, &mut out).ok()?;
        waiting.drain(..taken);
        if chunked.is_done() {
            break;
        }
    }
    Some((out, chunked.is_done()))
}

/// A greeting is understood once it is whole and never before, however it arrives.
pub fn airlock_hello(data: &[u8]) -> u64 {
    let whole = hello(data);
    let first = (0..=data.len()).map(|count| hello(&data[..count])).find(|read| *read != Ok(None));
    assert_eq!(first.is_some(), whole != Ok(None));
    let Ok(Some(read)) = whole else { return u64::from(whole.is_ok()) };
    let named = read.name.as_deref().is_some_and(|name| read.is_for(name));
    outcome(&[named, read.name.is_some(), read.encrypted, read.is_for("127.0.0.1")])
}

/// Each step takes no more than is there, and the same when more is.
pub fn airlock_socks(data: &[u8]) -> u64 {
    fn step<T: PartialEq + std::fmt::Debug>(
        data: &[u8],
        read: impl Fn(&[u8]) -> Result<Option<(T, usize)>, socks::Refused>,
    ) -> u64 {
        match read(data) {
            Ok(Some((value, taken))) => {
                assert!(taken <= data.len());
                assert_eq!(read(&data[..taken]), Ok(Some((value, taken))));
                1
            }
            Ok(None) => 2,
            Err(_) => 3,
        }
    }
    let owned = |data: &[u8]| {
        let read = socks::credential(data)?;
        Ok(read.map(|((user, password), taken)| ((user.to_vec(), password.to_vec()), taken)))
    };
    step(data, socks::greeting) << 4 | step(data, owned) << 2 | step(data, socks::request)
}

/// A packet is read in one way: what it says is written as the same bytes.
pub fn airlock_packet(data: &[u8]) -> u64 {
    let to = ToAirlock::read(data);
    if let Ok(message) = &to {
        assert_eq!(message.packet().as_deref(), Some(data));
    }
    let from = FromAirlock::read(data);
    if let Ok(message) = &from {
        assert_eq!(message.packet().as_deref(), Some(data));
    }
    outcome(&[
        to.is_ok(),
        from.is_ok(),
        matches!(to, Ok(ToAirlock::Open { .. })),
        matches!(to, Ok(ToAirlock::Answer { .. })),
        matches!(from, Ok(FromAirlock::Ask { .. })),
        matches!(from, Ok(FromAirlock::Ended { .. })),
    ])
}

pub(crate) fn request_seeds() -> Vec<Vec<u8>> {
    [
        "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n",
        "POST http://a.test:81/ HTTP/1.1\r\nHost: a.test:81\r\nContent-Length: 3\r\n\r\nabc",
        "PUT https://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic eA==\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close, x-y\r\nX-Y: 1\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\n\r\n",
        "GET http://[::1]/ HTTP/1.1\r\nHost: [::1]\r\nUpgrade: h2c\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub(crate) fn response_seeds() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub(crate) fn chunked_seeds() -> Vec<Vec<u8>> {
    [
        "3\r\nabc\r\n0\r\n\r\n",
        "a;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\nmore",
        "0\r\n\r\n",
        "ffffff\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub(crate) fn hello_seeds() -> Vec<Vec<u8>> {
    let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let greeting = |extensions: &[u8]| {
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &sized(extensions)];
        let message = [&[1, 0][..], &sized(&body.concat())].concat();
        [&[22, 3, 1][..], &sized(&message)].concat()
    };
    let name = [&[0][..], &sized(b"a.test")].concat();
    let name = [&[0, 0][..], &sized(&sized(&name))].concat();
    let encrypted = [&name[..], &[0xfe, 0x0d, 0, 1, 0]].concat();
    vec![greeting(&[]), greeting(&name), greeting(&encrypted)]
}

pub(crate) fn socks_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![5, 2, 0, 2],
        b"\x01\x03run\x02pw".to_vec(),
        vec![5, 1, 0, 1, 127, 0, 0, 1, 0, 80],
        b"\x05\x01\x00\x03\x06a.test\x01\xbb".to_vec(),
        [&[5, 1, 0, 4][..], &[0; 16], &[0, 80]].concat(),
    ]
}

pub(crate) fn packet_seeds() -> Vec<Vec<u8>> {
    let wanted = Wanted {
        protocol: Protocol::Http,
        host: "a.test".into(),
        port: 80,
        method: Some("GET".into()),
        path: Some("/x".into()),
        intercepted: false,
        kept: true,
    };
    let to = [
        ToAirlock::Open { run: 1, credential: [b'a'; CREDENTIAL], budget: BUDGET },
        ToAirlock::Close { run: 1 },
        ToAirlock::Answer { ticket: 2, answer: Answer::Again },
        ToAirlock::Answer { ticket: 2, answer: Answer::Connected { raw: true } },
        ToAirlock::Answer { ticket: 2, answer: Answer::Refused { status: 403, body: "no".into() } },
        ToAirlock::Answer {
            ticket: 2,
            answer: Answer::Intercept { chain: vec![vec![1], vec![2]], key: vec![3] },
        },
    ];
    let from = [
        FromAirlock::Ready,
        FromAirlock::Ask { run: 1, ticket: 2, connection: 3, wanted },
        FromAirlock::Unreached { ticket: 2, error: 111 },
        FromAirlock::Ended { run: 1, ticket: 2, connection: 3, up: 4, down: 5, how: End::Done },
        FromAirlock::Malformed { run: 1, connection: 3, why: Fault::Head },
        FromAirlock::Moved { ticket: 2, up: 4, down: 5 },
    ];
    let to = to.iter().map(|message| message.packet().unwrap());
    to.chain(from.iter().map(|message| message.packet().unwrap())).collect()
}
