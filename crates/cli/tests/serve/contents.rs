//! The bytes of artifacts, whole and in parts.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::{LONG, Server};

#[test]
fn contents_come_whole_in_ranges_or_not_at_all() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,artifacts:read");
    // More than one chunk, and more than what is kept in the database.
    let made = server.shell(
        &key,
        "",
        "seq 1 1500000 > big.txt; printf 0123456789 > small.txt; : > empty.txt",
    );
    assert_eq!(made.json()["status"], "success", "{}", made.text());
    let expected: String = (1..=1_500_000).map(|n| format!("{n}\n")).collect();
    let get = |name: &str, more: &str| {
        server.ask("GET", &format!("/v1/artifacts/{name}/content"), Some(&key), more, None)
    };
    let whole = get("big.txt", "");
    assert_eq!((whole.status, whole.body.len()), (200, expected.len()));
    assert!(whole.body == expected.as_bytes());
    let length = expected.len().to_string();
    assert_eq!(whole.header("content-length"), Some(length.as_str()));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    let disposition = "attachment; filename=\"big.txt\"; filename*=UTF-8''big.txt";
    assert_eq!(whole.header("content-disposition"), Some(disposition));
    assert!(whole.header("content-security-policy").unwrap().contains("sandbox"));
    let part = get("big.txt", "Range: bytes=8388600-8388620\r\n");
    assert_eq!(part.status, 206);
    assert_eq!(part.text(), expected[8388600..=8388620]);
    let small = |more: &str| get("small.txt", more);
    for (range, status, body, told) in [
        ("bytes=0-0", 206, "0", Some("bytes 0-0/10")),
        ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-2", 206, "89", Some("bytes 8-9/10")),
        ("bytes=5-99", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=0-1,4-5", 200, "0123456789", None),
        ("bytes=9-5", 200, "0123456789", None),
        ("pages=1", 200, "0123456789", None),
    ] {
        let answer = small(&format!("Range: {range}\r\n"));
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{range}");
        assert_eq!(answer.header("content-range"), told, "{range}");
    }
    let beyond = small("Range: bytes=10-\r\n");
    beyond.is_problem(416, "beyond");
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    let etag = small("").header("etag").unwrap().to_owned();
    let known = small(&format!("If-None-Match: {etag}\r\n"));
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(small(&format!("If-Range: {etag}\r\nRange: bytes=1-1\r\n")).text(), "1");
    assert_eq!(small("If-Range: \"other\"\r\nRange: bytes=1-1\r\n").status, 200);
    small("If-Match: \"other\"\r\n").is_problem(412, "changed");
    let empty = get("empty.txt", "");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    get("empty.txt", "Range: bytes=0-\r\n").is_problem(416, "beyond");
    get("nowhere.txt", "").is_problem(404, "not-found");
    let head = server.ask("HEAD", "/v1/artifacts/small.txt/content", Some(&key), "", None);
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, Some("10")));
}

#[test]
fn who_goes_away_during_a_download_leaves_nothing_api_11() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,artifacts:read,metrics");
    let length = 30_000_000;
    let made = server.shell(&key, "", &format!("head -c {length} /dev/zero > big.bin"));
    assert_eq!(made.json()["status"], "success", "{}", made.text());
    let head = server.head("GET", "/v1/artifacts/big.bin/content", Some(&key), "\r\n");
    let before = server.memory();
    for _ in 0..5 {
        let leaving: Vec<_> = (0..8)
            .map(|_| {
                let mut stream = server.connect();
                rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                let mut first = [0; 1000];
                stream.read_exact(&mut first).unwrap();
                assert!(first.starts_with(b"HTTP/1.1 200"));
                stream
            })
            .collect();
        drop(leaving);
    }
    let begun = Instant::now();
    while !server.get("/metrics", Some(&key)).text().contains("lane_taken{lane=\"contents\"} 0") {
        assert!(begun.elapsed() < LONG, "somebody is still sent something");
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = server.most_memory().saturating_sub(before) / 1024;
    // A chunk of 8 MiB for each of those that go on at one time.
    assert!(grown < 160, "{grown} MiB for 40 downloads of 28 MiB");
    let whole = server.get("/v1/artifacts/big.bin/content", Some(&key));
    assert_eq!((whole.status, whole.body.len()), (200, length));
}

#[test]
fn a_name_is_no_way_to_anywhere() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,artifacts:read");
    let made = server.shell(
        &key,
        "",
        "mkdir -p a/b; echo x > 'a/b/we\"ird; name.html'; echo y > 'line\nbreak'",
    );
    assert_eq!(made.json()["status"], "success", "{}", made.text());
    let all = server.get("/v1/artifacts?role=file", Some(&key)).json();
    for artifact in all["artifacts"].as_array().unwrap() {
        let id = artifact["id"].as_str().unwrap();
        let answer = server.get(&format!("/v1/artifacts/{id}/content"), Some(&key));
        assert_eq!(answer.status, 200, "{artifact}");
        let told = answer.header("content-disposition").unwrap();
        let name = told.split('"').nth(1).unwrap();
        assert!(!name.contains(['/', '\\', '"', ';', '\n']), "{told}");
        assert!(told.starts_with("attachment"));
    }
}
