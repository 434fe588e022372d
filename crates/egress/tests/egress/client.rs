//! hotcell's own client: what it follows, what it keeps, and what it refuses.

use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hotcell_egress::client::{Content, Fetch, Fetched};
use hotcell_egress::search::{Found, Provider, Query, Searxng};
use hotcell_egress::{Client, Event, Fill, Host, How, Refusal, Refused, Resolver, Tls, Unresolved};

use crate::support::{
    Ca, LOOPBACK, Names, PLACEHOLDER, Rules, SECRET, Secret, Server, answer_all, ok, request,
    secure,
};

fn fetch_with(
    fetch: &Fetch,
    names: &Arc<Names>,
    rules: &Rules,
    ca: Option<&Ca>,
    fill: Option<&dyn Fill>,
) -> Result<Fetched, Refusal> {
    let client = Client::new(Arc::clone(names) as _, Arc::new(Tls::new(ca.and_then(Ca::path))));
    client.fetch(fetch, rules, fill, 1)
}

/// From a server that is called `a.test`.
fn fetched(server: &Server, path: &str) -> Result<Fetched, Refusal> {
    let names = Names::of(&[("a.test", &["127.0.0.1"])]);
    let rules = Rules::of(&[("a.test", server.port())]);
    fetch_with(&Fetch::get(&url(server, path)), &names, &rules, None, None)
}

fn url(server: &Server, path: &str) -> String {
    format!("http://a.test:{}{path}", server.port())
}

fn redirect(status: u16, to: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
        .into_bytes()
}

#[test]
fn text_comes_as_text_and_the_rest_as_base64() {
    let server = Server::answering(|request| {
        let (kind, body): (&str, &[u8]) = match request.split(' ').nth(1).unwrap() {
            "/text" => ("text/plain; charset=utf-8", "grün".as_bytes()),
            "/json" => ("application/json", b"{}"),
            "/bytes" => ("image/png", b"\x89PNG"),
            "/liar" => ("text/html", b"\xff\xfe"),
            _ => ("application/octet-stream", b"plain"),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    });
    let coded = |bytes: &[u8]| Content::Base64(BASE64.encode(bytes));
    for (path, expected) in [
        ("/text", Content::Text("grün".into())),
        ("/json", Content::Text("{}".into())),
        ("/bytes", coded(b"\x89PNG")),
        ("/liar", coded(b"\xff\xfe")),
        ("/other", coded(b"plain")),
    ] {
        let got = fetched(&server, path).unwrap();
        assert_eq!((got.status, got.content, got.truncated), (200, expected, false), "{path}");
    }
}

#[test]
fn net_18_a_redirect_to_an_internal_address_is_refused() {
    let inner = Server::answering(|_| ok("inner"));
    let to = format!("http://127.0.0.2:{}/", inner.port());
    let server = Server::answering(move |_| redirect(302, &to));
    let names = Names::of(&[("a.test", &["127.0.0.1"])]);
    let rules = Rules { everything: true, ..Rules::of(&[]) };
    let refusal =
        fetch_with(&Fetch::get(&url(&server, "/")), &names, &rules, None, None).unwrap_err();
    assert!(matches!(refusal.kind, Refused::Internal(_)), "{refusal}");
    assert_eq!(inner.count(), 0);
    for to in ["http://169.254.169.254/latest/", "http://[::1]/", "http://2130706433/"] {
        let server = Server::answering(move |_| redirect(307, to));
        let refusal = fetch_with(&Fetch::get(&url(&server, "/")), &names, &rules, None, None);
        let kind = refusal.unwrap_err().kind;
        assert!(matches!(kind, Refused::Internal(_) | Refused::Malformed), "{to}: {kind:?}");
    }
}

#[test]
fn redirects_are_followed_so_often_and_each_is_decided() {
    let server = Server::answering(|request| {
        let left: u32 = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if left == 0 { ok("there") } else { redirect(302, &format!("/{}", left - 1)) }
    });
    let got = fetched(&server, "/5").unwrap();
    assert_eq!((got.redirects, got.content), (5, Content::Text("there".into())));
    assert!(got.url.ends_with("/0"), "{}", got.url);
    assert!(fetched(&server, "/6").unwrap_err().why.contains("more than 5 times"));
    let away = Server::answering(|_| redirect(302, "http://denied.test/"));
    assert_eq!(fetched(&away, "/").unwrap_err().kind, Refused::Policy);
}

#[test]
fn net_16_a_name_that_changes_between_two_redirects_is_refused() {
    let server = Server::answering(|_| redirect(302, "/again"));
    let names = Names::of(&[("a.test", &["127.0.0.1"])]);
    names.then("a.test", &["127.0.0.2"]);
    let rules = Rules::of(&[("a.test", server.port())]);
    let refusal = fetch_with(&Fetch::get(&url(&server, "/")), &names, &rules, None, None);
    assert!(matches!(refusal.unwrap_err().kind, Refused::Internal(_)));
    assert_eq!(server.count(), 1);
}

#[test]
fn net_19_other_schemes_and_odd_urls_are_refused_before_anything_else() {
    let names = Names::of(&[]);
    let rules = Rules { everything: true, ..Rules::default() };
    for text in ["file:///etc/passwd", "gopher://a.test/", "unix:/run/x", "http://u:p@a.test/", "x"]
    {
        let refusal = fetch_with(&Fetch::get(text), &names, &rules, None, None).unwrap_err();
        assert_eq!(refusal.kind, Refused::Malformed, "{text}");
    }
    assert_eq!(names.asked(), 0);
    for (name, value) in [("Host", "b.test"), ("proxy-x", "y"), ("A", "b\r\nC: d"), ("A b", "c")] {
        let mut fetch = Fetch::get("http://a.test/");
        fetch.headers.push((name.into(), value.into()));
        let refusal = fetch_with(&fetch, &names, &rules, None, None).unwrap_err();
        assert_eq!(refusal.kind, Refused::Malformed, "{name}");
    }
}

#[test]
fn servers_that_lie_are_cut_off() {
    let raw = |bytes: &'static [u8]| {
        let server = Server::start(move |mut stream| {
            request(&mut stream);
            drop(stream.write_all(bytes));
        });
        fetched(&server, "/")
    };
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"hello",
        b"",
    ] {
        let refusal = raw(bytes).unwrap_err();
        assert_eq!(refusal.kind, Refused::Unreachable, "{}", String::from_utf8_lossy(bytes));
    }
    let old = raw(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").unwrap();
    assert_eq!(old.content, Content::Text("until the end".into()));
    let interim = raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n").unwrap();
    assert_eq!(interim.status, 204);
}

#[test]
fn what_has_no_end_is_cut_where_it_has_to_be() {
    let endless = Server::start(|mut stream| {
        request(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
        drop(stream.write_all(head));
        while stream.write_all(&[b'x'; 16 * 1024]).is_ok() {}
    });
    let got = fetched(&endless, "/").unwrap();
    assert_eq!((got.content, got.truncated), (Content::Text("x".repeat(1 << 20)), true));
    let heads = Server::start(|mut stream| {
        request(&mut stream);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n"));
        while stream.write_all(b"A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n").is_ok() {}
    });
    assert!(fetched(&heads, "/").unwrap_err().why.contains("head is too long"));
    let silent = Server::start(|mut stream| {
        request(&mut stream);
        request(&mut stream);
    });
    let names = Names::of(&[("a.test", &["127.0.0.1"])]);
    let rules = Rules::of(&[("a.test", silent.port())]);
    let fetch = Fetch { within: Duration::from_millis(200), ..Fetch::get(&url(&silent, "/")) };
    let refusal = fetch_with(&fetch, &names, &rules, None, None).unwrap_err();
    assert!(refusal.why.contains("in time"), "{refusal}");
    let is_failed = |event: &Event| matches!(event, Event::Ended { how: How::Failed, .. });
    assert!(rules.events().iter().any(is_failed));
}

#[test]
fn a_certificate_has_to_be_for_the_host_of_now_and_from_whom_is_trusted() {
    let ca = Ca::new();
    let names = Names::of(&[("a.test", &["127.0.0.1"]), ("b.test", &["127.0.0.1"])]);
    let get = |server: &Server, host: &str, trusted: &Ca| {
        let rules = Rules::of(&[(host, server.port())]);
        let fetch = Fetch::get(&format!("https://{host}:{}/", server.port()));
        fetch_with(&fetch, &names, &rules, Some(trusted), None)
    };
    let good = ca.answering("a.test", |_| ok("hello"));
    assert_eq!(get(&good, "a.test", &ca).unwrap().content, Content::Text("hello".into()));
    assert_eq!(get(&good, "b.test", &ca).unwrap_err().kind, Refused::Untrusted);
    assert_eq!(get(&good, "a.test", &Ca::new()).unwrap_err().kind, Refused::Untrusted);
    let config = ca.config("a.test", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    });
    let expired = secure(config, |mut stream| answer_all(&mut stream, &|_| ok("hello")));
    let refusal = get(&expired, "a.test", &ca).unwrap_err();
    assert_eq!(refusal.kind, Refused::Untrusted, "{refusal}");
    // One that knows no TLS, and waits for nobody.
    let plain = Server::start(|mut stream| drop(stream.write_all(&ok("hello"))));
    assert_eq!(get(&plain, "a.test", &ca).unwrap_err().kind, Refused::Untrusted);
}

#[test]
fn a_secret_goes_where_it_belongs_and_never_comes_back() {
    let ca = Ca::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let server = ca.answering("secret.test", move |request| {
        noted.lock().unwrap().push(request.to_owned());
        let body = format!("it is {SECRET}!");
        format!(
            "HTTP/1.1 200 OK\r\nX-Echo: {SECRET}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let names = Names::of(&[("secret.test", &["127.0.0.1"]), ("other.test", &["127.0.0.1"])]);
    let hosts = [("secret.test", server.port()), ("other.test", server.port())];
    let fill = Secret { host: "secret.test" };
    let get = |scheme: &str, host: &str, rules: &Rules| {
        let mut fetch = Fetch::get(&format!("{scheme}://{host}:{}/", server.port()));
        fetch.headers.push(("Authorization".into(), format!("Bearer {PLACEHOLDER}")));
        fetch_with(&fetch, &names, rules, Some(&ca), Some(&fill))
    };
    let rules = Rules::of(&hosts);
    let got = get("https", "secret.test", &rules).unwrap();
    assert_eq!(got.content, Content::Text("it is [masked]!".into()));
    assert!(!format!("{got:?} {:?}", rules.events()).contains(SECRET));
    assert!(seen.lock().unwrap()[0].contains(&format!("Authorization: Bearer {SECRET}")));
    for (scheme, host) in [("http", "secret.test"), ("https", "other.test")] {
        assert_eq!(get(scheme, host, &rules).unwrap_err().kind, Refused::Secret, "{scheme} {host}");
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn headers_do_not_follow_to_another_server() {
    let seen = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&seen);
    let second = Server::answering(move |request| {
        *noted.lock().unwrap() = request.to_lowercase();
        ok("second")
    });
    let to = format!("http://b.test:{}/", second.port());
    let first = Server::answering(move |_| redirect(302, &to));
    let names = Names::of(&[("a.test", &["127.0.0.1"]), ("b.test", &["127.0.0.1"])]);
    let rules = Rules::of(&[("a.test", first.port()), ("b.test", second.port())]);
    let mut fetch = Fetch::get(&url(&first, "/"));
    for name in ["Authorization", "Cookie", "X-Api-Key", "Accept"] {
        fetch.headers.push((name.into(), "mine".into()));
    }
    (fetch.method, fetch.body) = ("POST".into(), b"body".to_vec());
    fetch_with(&fetch, &names, &rules, None, None).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.starts_with("get / http/1.1") && seen.contains("accept: mine"), "{seen}");
    assert!(!seen.contains("authorization") && !seen.contains("cookie"), "{seen}");
    assert!(!seen.contains("x-api-key") && !seen.contains("body"), "{seen}");
}

#[test]
fn a_search_asks_the_operators_server_and_nobody_else() {
    let server = Server::answering(|request| {
        assert!(request.starts_with("GET /s/search?q=a%20b%26c&format=json HTTP/1.1"), "{request}");
        ok(r#"{"results": [
            {"title": "One", "url": "https://one.test/", "content": "first\u0000"},
            {"title": "Bad", "url": "javascript:1"},
            {"url": "http://two.test/"},
            {"title": "Three", "url": "https://three.test/"}]}"#)
    });
    let searcher = |base: &str| {
        let client = Client::new(Names::of(&[]), Arc::new(Tls::new(None)));
        Searxng::new(base, client)
    };
    let rules = Rules::default();
    let provider = searcher(&format!("http://127.0.0.1:{}/s/", server.port())).unwrap();
    let found = provider.search(&Query { most: 2, ..query("a b&c") }, &rules, None).unwrap();
    let result = |title: &str, url: &str, text: &str| Found {
        title: title.into(),
        url: url.into(),
        text: text.into(),
    };
    assert_eq!(
        found,
        [result("One", "https://one.test/", "first"), result("", "http://two.test/", "")]
    );
    assert!(searcher("file:///x").is_err());
    let away = Server::answering(|_| redirect(302, "http://127.0.0.2:1/"));
    let provider = searcher(&format!("http://127.0.0.1:{}", away.port())).unwrap();
    assert_eq!(provider.search(&query("x"), &rules, None).unwrap_err().kind, Refused::Policy);
    let html = Server::answering(|_| ok("<html>"));
    let provider = searcher(&format!("http://127.0.0.1:{}", html.port())).unwrap();
    assert!(provider.search(&query("x"), &rules, None).unwrap_err().why.contains("as JSON"));
}

fn query(words: &str) -> Query<'_> {
    Query { words, most: 5, within: Duration::from_secs(60), party: 7 }
}

/// Answers with loopback, and keeps for whom.
struct Asked(Mutex<Vec<u64>>);

impl Resolver for Asked {
    fn resolve(&self, _: &Host, party: u64, _: Instant) -> Result<Vec<IpAddr>, Unresolved> {
        self.0.lock().unwrap().push(party);
        Ok(vec![LOOPBACK])
    }
}

#[test]
fn a_search_has_the_time_and_the_share_of_whoever_asks() {
    let server = Server::start(|mut stream| {
        request(&mut stream);
        // Ends when the client goes.
        request(&mut stream);
    });
    let asked = Arc::new(Asked(Mutex::default()));
    let client = Client::new(Arc::clone(&asked) as _, Arc::new(Tls::new(None)));
    let provider = Searxng::new(&format!("http://a.test:{}", server.port()), client).unwrap();
    let short = Query { within: Duration::from_millis(200), ..query("x") };
    let since = Instant::now();
    let refusal = provider.search(&short, &Rules::default(), None).unwrap_err();
    assert!(refusal.why.contains("in time"), "{refusal}");
    // Without a time of its own it would take 20 seconds.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert_eq!(*asked.0.lock().unwrap(), [7]);
}
