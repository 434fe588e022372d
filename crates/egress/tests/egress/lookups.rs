//! Names as the host looks them up, with a server of the tests' own. It is the host's only one in namespaces that
//! the tests make: there, this program is executed again, as root of nothing but these.

use std::env;
use std::fs;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_egress::{Host, Resolver, System, Unresolved};

/// Says that this is the program in the namespaces.
const INSIDE: &str = "HOTCELL_TEST_INSIDE";
const MADE: &str = "
set -e
ip link set lo up
for name in resolv.conf hosts nsswitch.conf; do mount --bind \"$PLACE/$name\" /etc/$name; done
exec \"$@\"
";

/// Whether this is inside. Outside, the test is executed there, and has to be good.
fn is_inside(test: &str, resolv: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("resolv.conf", resolv);
    write("hosts", "127.0.0.1 localhost\n10.0.0.7 known.test Known\n10.0.0.8 known.test\n");
    write("nsswitch.conf", "hosts: files dns\n");
    let made = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c", MADE, "sh"]);
        command.args(words).env("PLACE", dir.path()).env(INSIDE, "1");
        command.env("LOCALDOMAIN", "evil.test").output()
    };
    if !made(&["true"]).is_ok_and(|output| output.status.success()) {
        println!("SKIPPED {test}: no namespaces with names of their own can be made here");
        return false;
    }
    let own = env::current_exe().unwrap();
    let name = format!("lookups::{test}");
    let output = made(&[path(&own), "--exact", &name, "--nocapture"]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Answers `*.there.test` and whatever is called so in the domain of this host, never answers `*.hangs.test`, and
/// knows nothing else.
fn serve() -> io::Result<Arc<Mutex<Vec<String>>>> {
    let socket = UdpSocket::bind("127.0.0.1:53")?;
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let Some((name, end)) = name(&packet[..length]) else { continue };
            let is_v4 = packet[end + 1] == 1;
            noted.lock().unwrap().push(name.clone());
            if name.ends_with("hangs.test") {
                continue;
            }
            let is_known = name.ends_with("there.test") || name.ends_with("evil.test");
            let answers = u8::from(is_known && is_v4);
            let code = if is_known { 0x80 } else { 0x83 };
            let mut answer = packet[..2].to_vec();
            answer.extend([0x81, code, 0, 1, 0, answers, 0, 0, 0, 0]);
            answer.extend(&packet[12..end + 4]);
            if answers == 1 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 93, 184, 216, 34]);
            }
            drop(socket.send_to(&answer, from));
        }
    });
    Ok(asked)
}

/// The name that a question asks for, and where its type begins.
fn name(packet: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_lowercase());
        at += length;
    }
}

fn resolved(
    resolver: &System,
    name: &str,
    party: u64,
    within: Duration,
) -> Result<Vec<IpAddr>, Unresolved> {
    resolver.resolve(&Host::parse(name).unwrap(), party, Instant::now() + within)
}

#[test]
fn net_20_a_name_is_a_whole_one_whatever_domain_the_host_searches() {
    let resolv = "search evil.test\noptions ndots:5 timeout:5 attempts:1\nnameserver 127.0.0.1\n";
    let test = "net_20_a_name_is_a_whole_one_whatever_domain_the_host_searches";
    if !is_inside(test, resolv) {
        return;
    }
    let asked = serve().unwrap();
    let resolver = System::new();
    let look = |name: &str| resolved(&resolver, name, 1, Duration::from_secs(20));
    let there: Vec<IpAddr> = vec!["93.184.216.34".parse().unwrap()];
    for name in ["a.there.test", "A.There.Test.", "there.test"] {
        assert_eq!(look(name).as_ref(), Ok(&there), "{name}");
    }
    // All of them are there in the domain that is searched.
    for name in ["internal", "internal.lan", "a.b.c.d.e.f", "known.test.a"] {
        assert!(matches!(look(name), Err(Unresolved::Failed(_))), "{name}: {:?}", look(name));
    }
    let known: Vec<IpAddr> = ["10.0.0.7", "10.0.0.8"].map(|a| a.parse().unwrap()).to_vec();
    assert_eq!((look("known.test"), look("KNOWN.").map(|found| found.len())), (Ok(known), Ok(1)));
    let asked = asked.lock().unwrap();
    assert!(asked.contains(&"internal".to_owned()), "{asked:?}");
    let is_odd =
        |name: &String| name.contains("evil") || name.starts_with("known.test") && name.len() == 10;
    assert!(!asked.iter().any(is_odd), "{asked:?}");
}

#[test]
fn out_10_names_that_never_come_leave_others_theirs() {
    let resolv = "options timeout:30 attempts:5\nnameserver 127.0.0.1\n";
    if !is_inside("out_10_names_that_never_come_leave_others_theirs", resolv) {
        return;
    }
    let asked = serve().unwrap();
    let resolver = Arc::new(System::new());
    let waiting: Vec<_> = (0..40_u64)
        .flat_map(|party| (0..8).map(move |number| (party, number)))
        .map(|(party, number)| {
            let resolver = Arc::clone(&resolver);
            thread::spawn(move || {
                let name = format!("{party}-{number}.hangs.test");
                resolved(&resolver, &name, party, Duration::from_secs(15))
            })
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let parties = || {
        let asked = asked.lock().unwrap();
        let of = |name: &String| name.split('-').next().map(str::to_owned);
        asked.iter().filter_map(of).collect::<std::collections::BTreeSet<_>>().len()
    };
    while parties() < 40 {
        assert!(Instant::now() < deadline, "{} of 40 came to ask", parties());
        thread::sleep(Duration::from_millis(10));
    }
    // No party is kept from its first, nor is one more.
    let there = resolved(&resolver, "a.there.test", 1000, Duration::from_secs(10));
    assert_eq!(there.map(|found| found.len()), Ok(1));
    // And who waits is told in time, though the lookups go on.
    for waited in waiting {
        assert_eq!(waited.join().unwrap(), Err(Unresolved::Late));
    }
}
