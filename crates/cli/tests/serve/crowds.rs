//! Many at once, slow ones, and ones that guess: each is bounded, and somebody else is served meanwhile.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Answer, LONG, Server, skip, until};

/// Somebody who only wants to know; the longest that an answer took.
fn healthy(server: &Server, key: &str, times: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..times {
        let begun = Instant::now();
        let answer = server.get("/v1/tools/add", Some(key));
        assert_eq!(answer.status, 200, "{answer:?}");
        longest = longest.max(begun.elapsed());
    }
    longest
}

fn is_closed(mut stream: &TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut bytes = Vec::new();
    // What was said before does not matter; what matters is that there is an end.
    !matches!(stream.read_to_end(&mut bytes), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The time within which 99 of 100 answers are there.
fn p99(server: &Server, key: &str) -> Duration {
    let mut all: Vec<Duration> = (0..200).map(|_| healthy(server, key, 1)).collect();
    all.sort_unstable();
    all[all.len() * 99 / 100]
}

/// Has this process, and what it starts, open as many descriptors as it may; how many that are.
fn descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.map_or(usize::MAX, |most| most as usize)
}

/// One crowd at a time: together they would need more descriptors than a process has.
static CROWD: Mutex<()> = Mutex::new(());

/// There is a place for each of them, until it has said nothing for too long.
#[test]
fn ten_thousand_idle_connections_hold_up_nobody_api_05() {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let most = descriptors().saturating_sub(1000).min(10_000);
    if most < 10_000 {
        skip(&format!("{most} idle connections and not 10000: no more descriptors are allowed"));
    }
    // Longer than this takes: none of them goes meanwhile.
    let server = Server::with(&["--connections", "12000", "--idle", "10m"]);
    let key = server.key("tools,metrics");
    let alone = p99(&server, &key);
    let idle: Vec<_> = (0..most).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let open = || number(&server, &key, "hotcell_connections");
    // The last ones may still be on their way in.
    until(|| open() >= most);
    let crowded = p99(&server, &key);
    assert!(open() >= most, "{} of {most} are open", open());
    let metrics = server.get("/metrics", Some(&key)).text();
    for why in ["full", "made room", "late", "slow head"] {
        assert!(!metrics.contains(&format!("why=\"{why}\"")), "{metrics}");
    }
    assert!(server.memory() < 512 * 1024, "{} KiB", server.memory());
    drop(idle);
    until(|| open() < 100);
    // On a machine that has other things to do, nobody is that fast without a crowd either, before or after.
    let alone = alone.max(p99(&server, &key));
    assert!(crowded < Duration::from_millis(100).max(alone * 5), "{crowded:?}, alone {alone:?}");
}

const REFUSED: &str = "hotcell_connections_refused_total";

/// `--idle` is how long nothing may come, however much longer that is than a head may take.
#[test]
fn silence_is_let_be_for_as_long_as_is_said_and_a_slow_head_is_not_api_05() {
    let server = Server::with(&["--idle", "10m"]);
    let key = server.key("metrics");
    let asks = |mut stream: &TcpStream| {
        let text = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        stream.write_all(text.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        assert!(bytes[..length].starts_with(b"HTTP/1.1 200"), "{length} bytes");
    };
    let (fresh, again, slow) = (server.connect(), server.connect(), server.connect());
    asks(&again);
    asks(&slow);
    let begun = Instant::now();
    // A byte now and then is no reason to wait for longer.
    let drips = thread::scope(|scope| {
        let drip = scope.spawn(|| {
            (&slow).write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
            while (&slow).write_all(b"y").is_ok() && begun.elapsed() < LONG {
                thread::sleep(Duration::from_millis(200));
            }
        });
        assert!(is_closed(&slow, LONG));
        let closed_after = begun.elapsed();
        drip.join().unwrap();
        closed_after
    });
    assert!(drips >= Duration::from_secs(10), "{drips:?}");
    let slow_heads = || number(&server, &key, &format!("{REFUSED}{{why=\"slow head\"}}"));
    assert_eq!(slow_heads(), 1);
    // That took longer than any head may.
    asks(&fresh);
    asks(&again);
    assert_eq!(number(&server, &key, &format!("{REFUSED}{{why=\"late\"}}")), 0);
}

/// They have no request id and no route: they are counted as connections.
#[test]
fn heads_that_cannot_be_read_are_counted() {
    let server = Server::start();
    let key = server.key("metrics");
    let long = server.head("GET", "/healthz", None, &format!("X: {}\r\n\r\n", "y".repeat(300_000)));
    let heads = [("GET\r\n\r\n", 400), ("GET / HTTP/9.9\r\n\r\n", 400), (long.as_str(), 431)];
    for (head, status) in heads {
        // Who sends on what nobody reads may not hear the answer.
        if let Some(answer) = server.raw(head.as_bytes()) {
            assert_eq!((answer.status, answer.body.len()), (status, 0), "{answer:?}");
        }
    }
    let malformed = || number(&server, &key, &format!("{REFUSED}{{why=\"malformed\"}}"));
    until(|| malformed() == heads.len());
}

/// Whoever has no key makes room first, however long somebody with a good one has waited for a place.
#[test]
fn a_request_that_waits_for_its_place_is_answered_in_a_crowd_of_idle_connections() {
    // Four places for calls, of which a key has three.
    let server = Server::with(&["--connections", "32", "--idle", "10m"]);
    if !server.has_sandbox() {
        return;
    }
    let (key, watch) = (server.key("run"), server.key("metrics"));
    let going: Vec<_> = (0..3).map(|_| server.left(&key, "sleep 60")).collect();
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.shell(&key, "", "true"));
        until(|| number(&server, &watch, "hotcell_lane_waiting{lane=\"calls\"}") == 1);
        let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(server.address)).collect();
        let room = format!("{REFUSED}{{why=\"made room\"}}");
        until(|| number(&server, &watch, &room) >= 150);
        for call in &going {
            server.ask("POST", &format!("/v1/runs/{call}/cancel"), Some(&key), "", None);
        }
        // On a machine that is busy, it has waited for too long by then.
        let answer = waits.join().unwrap();
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        drop(crowd);
    });
}

#[test]
fn more_idle_connections_than_there_is_room_for_keep_nobody_out_api_05() {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let most = descriptors().saturating_sub(1000).min(10_000);
    let server = Server::with(&["--connections", "64", "--idle", "5s"]);
    let key = server.key("tools,metrics");
    let mut idle = Vec::new();
    for n in 0..most {
        // Those that make room are closed by the server, one by one.
        if let Ok(stream) = TcpStream::connect(server.address) {
            idle.push(stream);
        }
        if n % 2000 == 1999 {
            let took = healthy(&server, &key, 3);
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
    let metrics = server.get("/metrics", Some(&key)).text();
    let open = metrics.lines().find_map(|line| line.strip_prefix("hotcell_connections "));
    assert!(open.unwrap().parse::<u32>().unwrap() <= 64, "{open:?}");
    assert!(metrics.contains("hotcell_connections_refused_total{why=\"made room\"}"), "{metrics}");
    assert!(is_closed(&idle[0], LONG));
    assert!(is_closed(idle.last().unwrap(), LONG), "the last ones have waited too long");
}

#[test]
fn slow_senders_are_closed_and_hold_up_nobody_api_05() {
    let server = Server::with(&["--idle", "2s", "--connections", "32"]);
    let key = server.key("admin");
    let mut slow = Vec::new();
    for n in 0..40 {
        let mut stream = server.connect();
        let half = match n % 3 {
            0 => "GET /healthz HTT".to_owned(),
            1 => server.head("GET", "/healthz", None, "X-Half: "),
            _ => server.head(
                "POST",
                "/v1/runs",
                Some(&key),
                "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"run\"",
            ),
        };
        stream.write_all(half.as_bytes()).unwrap();
        slow.push(stream);
    }
    assert!(healthy(&server, &key, 10) < Duration::from_secs(5));
    let begun = Instant::now();
    for stream in &slow {
        assert!(is_closed(stream, LONG), "one is still open after {:?}", begun.elapsed());
    }
    assert!(healthy(&server, &key, 3) < Duration::from_secs(5));
}

#[test]
fn guessing_is_slowed_and_counted_and_good_keys_are_not_concerned_api_16() {
    let server = Server::start();
    let key = server.key("tools,metrics");
    let wrong = |n: usize| format!("hck_{n:056}");
    let answers: Vec<Answer> = thread::scope(|scope| {
        let guess = |from: usize| {
            let server = &server;
            move || -> Vec<Answer> {
                (0..15).map(|n| server.get("/v1/tools", Some(&wrong(from * 100 + n)))).collect()
            }
        };
        let all: Vec<_> = (0..4).map(|from| scope.spawn(guess(from))).collect();
        let took = healthy(&server, &key, 20);
        assert!(took < Duration::from_secs(5), "{took:?}");
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    let (slowed, others): (Vec<_>, Vec<_>) = answers.iter().partition(|one| one.status == 429);
    others.iter().for_each(|one| one.is_problem(401, "no-key"));
    // A busy machine lets them guess more slowly by itself.
    assert!(slowed.len() > 5, "{}", slowed.len());
    for one in slowed {
        one.is_problem(429, "too-many-keys");
        assert!(one.header("retry-after").is_some() && one.header("connection") == Some("close"));
    }
    let metrics = server.get("/metrics", Some(&key)).text();
    assert!(metrics.contains("hotcell_key_guesses_total 60"), "{metrics}");
}

/// A connection from another address of this machine.
fn from(address: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(address, 0)).unwrap();
    connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// 10,000 in a minute and more, from one address and from many: none of them is let in, who guesses from one
/// address waits, and a good key is served meanwhile, also from the addresses that guess.
#[test]
fn guessing_from_many_addresses_keeps_no_good_key_out_api_16() {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let key = server.key("tools,metrics");
    let alone = p99(&server, &key);
    let is_over = AtomicBool::new(false);
    let guesses = AtomicUsize::new(0);
    let guess = |address: Ipv4Addr, key: &str| {
        let mut stream = from(address, server.address);
        let text = server.head("GET", "/v1/tools/add", Some(key), "\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        Answer::read(&all).unwrap().status
    };
    let crowded = thread::scope(|scope| {
        for thread in 0..4_usize {
            let (is_over, guesses, guess) = (&is_over, &guesses, &guess);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let n = guesses.fetch_add(1, Ordering::Relaxed);
                    // Half of them from one address, and half from hundreds.
                    let last = if thread < 2 { 2 } else { (n % 250 + 2) as u8 };
                    let answer = guess(Ipv4Addr::new(127, 0, 0, last), &format!("hck_{n:056}"));
                    assert!([401, 429].contains(&answer), "{answer}");
                    if thread >= 2 {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let crowded = p99(&server, &key);
        assert_eq!(guess(Ipv4Addr::new(127, 0, 0, 2), &key), 200, "whoever else guesses there");
        is_over.store(true, Ordering::Relaxed);
        crowded
    });
    assert!(crowded < Duration::from_millis(250).max(alone * 5), "{crowded:?}, alone {alone:?}");
    let guesses = guesses.into_inner();
    assert_eq!(number(&server, &key, "hotcell_key_guesses_total"), guesses);
    let slowed = number(&server, &key, "hotcell_denials_total{why=\"too-many-keys\"}");
    assert!(slowed > 0, "{guesses} were made");
}

#[test]
fn a_key_has_its_rate_and_its_share_api_21() {
    let server = Server::start();
    let slow = server.key_with("tools", &["--rate", "2", "--burst", "3"]);
    let statuses: Vec<_> = (0..8).map(|_| server.get("/v1/tools/add", Some(&slow))).collect();
    let refused = statuses.iter().find(|answer| answer.status != 200).expect("it is too fast");
    refused.is_problem(429, "too-many-requests");
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    // What the key is not for counts as well.
    let slow = server.key_with("tools", &["--rate", "1", "--burst", "1"]);
    let ask = || server.get("/v1/runs", Some(&slow));
    ask().is_problem(403, "wrong-scope");
    let last = (0..100).map(|_| ask()).find(|answer| answer.status != 403);
    last.expect("it is too fast").is_problem(429, "too-many-requests");
    if !server.has_sandbox() {
        return;
    }
    let one = server.key_with("run", &["--concurrent", "1"]);
    thread::scope(|scope| {
        let first = scope.spawn(|| server.shell(&one, "", "sleep 2"));
        thread::sleep(Duration::from_millis(700));
        server.shell(&one, "", "true").is_problem(429, "too-many-at-once");
        assert_eq!(first.join().unwrap().status, 200);
    });
    // One key asks for more than there is; the other one's single request does not wait behind it.
    let (greedy, modest) = (server.key_with("run,tools", &["--subject", "a"]), server.key("tools"));
    thread::scope(|scope| {
        let all: Vec<_> = (0..60)
            .map(|_| scope.spawn(|| server.shell(&greedy, "", "sleep 0.3").status))
            .collect();
        thread::sleep(Duration::from_millis(300));
        let took = healthy(&server, &modest, 3);
        assert!(took < Duration::from_secs(10), "{took:?}");
        for one in all {
            assert!([200, 429, 503].contains(&one.join().unwrap()));
        }
    });
}

/// What a family of the metrics says.
fn number(server: &Server, key: &str, family: &str) -> usize {
    let text = server.get("/metrics", Some(key)).text();
    let line = text.lines().find_map(|line| line.strip_prefix(family)?.strip_prefix(' '));
    line.map_or(0, |number| number.parse().unwrap())
}

/// Both keys are of the one tenant that there is without anybody's saying, as most keys are.
#[test]
fn one_run_of_a_key_does_not_wait_for_all_that_another_has_queued_api_21() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let greedy = server.key_with("run", &["--subject", "greedy"]);
    let modest = server.key_with("run,metrics", &["--subject", "modest"]);
    let ended = || number(&server, &modest, "hotcell_calls_total{status=\"success\"}");
    let going = || number(&server, &modest, "hotcell_lane_taken{lane=\"calls\"}");
    thread::scope(|scope| {
        let many = 90;
        for _ in 0..many {
            scope.spawn(|| assert_eq!(server.shell(&greedy, "", "sleep 0.7").status, 200));
        }
        // All of them wait for their turn in the engine, but those that have one.
        until(|| going() + ended() >= many);
        let before = ended();
        assert_eq!(server.shell(&modest, "", "true").status, 200);
        let passed = ended() - before;
        // Those that had a turn by then end before, and perhaps those that got one until it was asked.
        let turns = 4 * thread::available_parallelism().map_or(1, usize::from);
        assert!(passed <= turns, "{passed} of {many} ended before it");
    });
}

/// In whatever lanes they are.
#[test]
fn a_key_has_so_many_requests_at_one_time_altogether() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key_with("run,runs:read,tools", &["--concurrent", "3"]);
    let watch = server.key("metrics,run,runs:read");
    // A batch counts with each job that it may have at one time, and has no more than there may be.
    let more = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
    let batch = |jobs: usize| {
        let mut stream = server.connect();
        let path = format!("/v1/batches?jobs={jobs}");
        stream.write_all(server.head("POST", &path, Some(&key), more).as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (stream, String::from_utf8_lossy(&first).into_owned())
    };
    let (two, status) = batch(2);
    assert_eq!(status, "HTTP/1.1 200");
    assert_eq!(server.get("/v1/tools/add", Some(&key)).status, 200, "one is left");
    let call = server.left(&watch, "sleep 60");
    let (mut one, status) = batch(16);
    assert_eq!(status, "HTTP/1.1 200");
    // It has one at one time, however many were asked for.
    let job = "{\"run\": {\"language\": \"shell\", \"code\": \"sleep 60\"}}\n".repeat(5);
    write!(one, "{:x}\r\n{job}\r\n", job.len()).unwrap();
    let runs = || server.get("/v1/runs", Some(&watch)).json()["runs"].as_array().unwrap().len();
    until(|| runs() >= 2);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(runs(), 2);
    for path in ["/v1/tools/add", "/v1/runs"] {
        server.get(path, Some(&key)).is_problem(429, "too-many-at-once");
    }
    server.shell(&key, "", "true").is_problem(429, "too-many-at-once");
    assert!(batch(1).1.ends_with("429"));
    // What goes on can be ended all the same.
    let cancel = format!("/v1/runs/{call}/cancel");
    assert_eq!(server.ask("POST", &cancel, Some(&key), "", None).status, 200);
    drop((one, two));
    until(|| server.get("/v1/tools/add", Some(&key)).status == 200);
}

/// Also while they wait for a place: a long body is in memory until a question was made of it.
#[test]
fn long_bodies_have_so_much_room_together_api_04() {
    const EACH: usize = 15 << 20;
    // Eight places for calls, of which a key has six; four times as many wait.
    let server = Server::with(&["--connections", "64"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,metrics");
    let other = server.key("tools");
    let body =
        format!("{{\"run\": {{\"command\": [\"true\"], \"nonsense\": \"{}\"}}}}", "x".repeat(EACH));
    let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let text = server.head("POST", "/v1/runs", Some(&key), &head) + &body;
    thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| server.left(&key, "sleep 60")).collect();
        let going = || number(&server, &key, "hotcell_lane_taken{lane=\"calls\"}");
        assert_eq!(going(), 6);
        let before = server.memory();
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| server.raw(text.as_bytes()))).collect();
        // Others are served meanwhile.
        assert!(healthy(&server, &other, 3) < Duration::from_secs(10));
        let refused = |one: Option<Answer>| one.is_none_or(|one| [503, 429].contains(&one.status));
        assert!(all.into_iter().all(|one| refused(one.join().unwrap())));
        let grown = server.most_memory().saturating_sub(before) / 1024;
        // 96 MiB for one key, each of which grew until it was there.
        assert!(grown < 220, "{grown} MiB");
        for call in calls {
            let cancel = format!("/v1/runs/{call}/cancel");
            server.ask("POST", &cancel, Some(&key), "", None);
        }
    });
}
