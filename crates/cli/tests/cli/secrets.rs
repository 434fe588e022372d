//! `hotcell secret`, and runs that use what they never see.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use hotcell_types::Name;
use hotcell_vault::{Key, PREFIX, Value as Hidden};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::person;
use crate::support::World;

const VALUE: &str = "v9/that+nobody \"sees\" 4711";

/// Says each request again, in its header and its body, as it is and in base 64.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(tls: Option<Arc<ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, seen) = (listener.local_addr().unwrap().port(), Arc::default());
        let kept = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                match &tls {
                    None => drop(answer(stream, &kept)),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                        drop(answer(StreamOwned::new(connection, stream), &kept));
                    }
                }
            }
        });
        Server { port, seen }
    }

    /// Requests that had the value, and how many there were.
    fn had(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        let basic = BASE64.encode(format!("me:{VALUE}").as_bytes());
        let has = |request: &&String| request.contains(VALUE) || request.contains(&basic);
        (seen.iter().filter(has).count(), seen.len())
    }
}

fn answer(mut stream: impl Read + Write, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        request.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let header = text.lines().find(|line| line.to_lowercase().starts_with("authorization"));
    let header = header.unwrap_or_default().to_owned();
    let (coded, hex) = (BASE64.encode(header.as_bytes()), HEXLOWER.encode(header.as_bytes()));
    let body = format!("{text}{coded} {hex}");
    seen.lock().unwrap().push(text);
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let length = body.len();
    write!(stream, "{head}X-Echo: {header}\r\nContent-Length: {length}\r\n\r\n{body}")?;
    stream.flush()
}

/// A certificate for 127.0.0.1, and the authority that signed it as a file.
fn tls(authority: &Path) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let text = BASE64.encode(params.self_signed(&key).unwrap().der());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    std::fs::write(authority, pem).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

/// A home whose policy lets runs reach three servers: one that the secret is for, one that it is not for although
/// hotcell looks into its requests, and one without TLS.
struct Scene {
    world: World,
    own: Server,
    other: Server,
    plain: Server,
}

const PROGRAM: &str = r#"
import base64, http.client, os, ssl, sys, urllib.parse
scheme, port, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
token = os.environ['TOKEN']
proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
user = base64.b64encode(f'{proxy.username}:{proxy.password}'.encode()).decode()
headers, path, body = {}, '/x', None
if scheme == 'https':
    connection = http.client.HTTPSConnection(proxy.hostname, proxy.port, context=ssl.create_default_context(), timeout=60)
    connection.set_tunnel('127.0.0.1', port, headers={'Proxy-Authorization': 'Basic ' + user})
else:
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=60)
    headers['Proxy-Authorization'] = 'Basic ' + user
    path = f'http://127.0.0.1:{port}/x'
if where == 'header': headers['Authorization'] = 'Bearer ' + token
if where == 'basic': headers['Authorization'] = 'Basic ' + base64.b64encode(('me:' + token).encode()).decode()
if where == 'address': path += '?token=' + token
if where == 'body': body = 'token=' + token
connection.request('POST' if body else 'GET', path, body=body, headers=headers)
response = connection.getresponse()
print(response.status, response.getheader('X-Echo'))
print(response.read().decode())
"#;

impl Scene {
    fn new() -> Scene {
        let world = World::new();
        let authority = world.home().join("ca.pem");
        let config = tls(&authority);
        let own = Server::new(Some(Arc::clone(&config)));
        let (other, plain) = (Server::new(Some(config)), Server::new(None));
        let hosts = [&own, &other, &plain].map(|server| format!("\"127.0.0.1:{}\"", server.port));
        world.user_config(&format!(
            "min_level = \"no-proc\"\n[network]\nauthorities = {authority:?}\nintercept = [{}]\n",
            hosts[1]
        ));
        let rules = format!(
            "rules:
  - name: run
    match: {{ operation: code.execute }}
    action: allow
  - name: out
    match: {{ operation: net.connect, host: [{}] }}
    action: allow
  - name: fetch
    match: {{ operation: http_fetch }}
    action: allow
",
            hosts.join(", ")
        );
        person::follow(&world.home(), &[], &rules);
        world.file("program.py", PROGRAM.as_bytes());
        Scene { world: world.served(), own, other, plain }
    }

    fn set(&self, value: &str, more: &[&str]) -> (i32, String, String) {
        let host = format!("127.0.0.1:{}", self.own.port);
        set(&self.world, value, &[&["TOKEN", "--host", &host], more].concat())
    }

    fn ask(&self, scheme: &str, server: &Server, place: &str) -> (i32, String, String) {
        let port = server.port.to_string();
        said(&self.world.run(&[
            "run",
            "--network",
            "--secret",
            "TOKEN",
            "program.py",
            scheme,
            &port,
            place,
        ]))
    }

    /// Whether a byte sequence is in any file of the home.
    fn keeps(&self, text: &str) -> bool {
        fn look(at: &Path, text: &[u8]) -> bool {
            std::fs::read_dir(at).unwrap().flatten().any(|entry| {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    return look(&path, text);
                }
                let is_file = entry.file_type().unwrap().is_file();
                let bytes = if is_file { std::fs::read(path).unwrap() } else { Vec::new() };
                bytes.windows(text.len()).any(|window| window == text)
            })
        }
        look(&self.world.home(), text.as_bytes())
    }
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn set(world: &World, value: &str, words: &[&str]) -> (i32, String, String) {
    let mut command = world.command(&[&["secret", "set"], words].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have refused the rest before it read anything.
    drop(child.stdin.take().unwrap().write_all(value.as_bytes()));
    said(&child.wait_with_output().unwrap())
}

/// A value in all the forms that a test looks for.
fn forms() -> Vec<String> {
    let json = serde_json::to_string(VALUE).unwrap();
    let basic = BASE64.encode(format!("me:{VALUE}").as_bytes());
    let inner = json.trim_matches('"').to_owned();
    // Without what else is in the last letters.
    let coded = BASE64.encode(VALUE.as_bytes()).get(..32).unwrap().to_owned();
    vec![
        VALUE.into(),
        inner,
        coded,
        basic.get(4..32).unwrap().into(),
        HEXLOWER.encode(VALUE.as_bytes()),
    ]
}

fn is_clean(text: &str) {
    for form in forms() {
        assert!(!text.contains(&form), "{form} in {text}");
    }
}

#[test]
fn a_run_uses_a_secret_that_neither_it_nor_the_record_ever_sees() {
    let scene = Scene::new();
    let (code, _, stderr) = scene.set(&format!("{VALUE}\n"), &["--note", "of the tests"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("secret TOKEN is set"), "{stderr}");
    for place in ["header", "basic"] {
        let (code, stdout, stderr) = scene.ask("https", &scene.own, place);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.starts_with("200 Authorization: B"), "{stdout}");
        assert!(stdout.matches("[secret]").count() >= 4, "{stdout}");
        is_clean(&stdout);
        is_clean(&stderr);
    }
    // The control: the server had it, both times.
    assert_eq!(scene.own.had(), (2, 2));
    // What a run can see of itself, and of anything else.
    let look = "
import os
seen = [os.environb, open('/proc/self/environ', 'rb').read(), open('/proc/self/cmdline', 'rb').read()]
for top, _, names in os.walk('/'):
    if top.startswith(('/usr', '/lib', '/sys', '/proc', '/dev')): continue
    for name in names:
        try: seen.append(open(os.path.join(top, name), 'rb').read(1 << 20))
        except OSError: pass
print(seen)";
    let run = ["run", "--network", "--secret", "TOKEN=GIVEN", "--lang", "python", "-c", look];
    let (code, stdout, stderr) = said(&scene.world.run(&run));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("GIVEN") && stdout.contains(PREFIX));
    is_clean(&stdout);
    for form in forms() {
        assert!(!scene.keeps(&form), "{form}");
    }
    // The control: the placeholder of a run is in what it printed, which is kept.
    assert!(scene.keeps("secret.set") && scene.keeps(PREFIX));
    for words in [&["audit", "export"][..], &["secret", "ls"], &["secret", "ls", "--json"]] {
        let (code, stdout, stderr) = said(&scene.world.run(words));
        assert_eq!(code, 0, "{stderr}");
        is_clean(&stdout);
        assert!(stdout.contains("TOKEN"), "{stdout}");
    }
    let (code, stdout, stderr) = said(&scene.world.run(&["audit", "verify"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(" secrets against what the chain says of them"), "{stdout}");
}

#[test]
fn each_run_has_a_placeholder_of_its_own_and_so_has_a_replay() {
    let scene = Scene::new();
    scene.set(VALUE, &[]);
    let of = |text: &str| {
        let at = text.find(PREFIX).unwrap_or_else(|| panic!("{text}"));
        text.get(at..at + hotcell_vault::PLACEHOLDER).unwrap().to_owned()
    };
    let mut all = BTreeSet::new();
    let run = ["run", "--json", "--network", "--secret", "TOKEN", "--", "sh", "-c", "echo $TOKEN"];
    let mut last = String::new();
    for _ in 0..2 {
        let (code, stdout, stderr) = said(&scene.world.run(&run));
        assert_eq!(code, 0, "{stderr}");
        all.insert(of(&stdout));
        let document: Value = serde_json::from_str(&stdout).unwrap();
        last = document["id"].as_str().unwrap_or_else(|| panic!("{document}")).to_owned();
    }
    let before = all.clone();
    let (_, stdout, stderr) = said(&scene.world.run(&["replay", &last, "--json"]));
    // Both are told, since they are not the same.
    let told: BTreeSet<String> =
        stdout.match_indices(PREFIX).map(|(at, _)| of(stdout.get(at..).unwrap())).collect();
    assert!(told.iter().any(|one| !before.contains(one)), "{stdout}{stderr}");
    assert_eq!(all.len(), 2);
}

#[test]
fn a_secret_goes_to_no_other_host_in_no_other_place_and_not_in_the_open() {
    let scene = Scene::new();
    scene.set(VALUE, &[]);
    for (scheme, server, place, why) in [
        ("https", &scene.other, "header", "the secret `TOKEN` is not bound to `127.0.0.1:"),
        ("https", &scene.other, "basic", "the secret `TOKEN` is not bound to `127.0.0.1:"),
        ("https", &scene.own, "address", "a placeholder is in its address"),
        ("https", &scene.own, "body", "a placeholder is in its body"),
        ("http", &scene.plain, "header", "goes over TLS only"),
        ("http", &scene.plain, "none", "goes over TLS only"),
    ] {
        let (code, stdout, stderr) = scene.ask(scheme, server, place);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.starts_with("403 ") && stdout.contains(why), "{scheme} {place}: {stdout}");
        is_clean(&stdout);
        let (_, exported, _) = said(&scene.world.run(&["audit", "export"]));
        assert!(exported.contains(why), "{why}");
        is_clean(&exported);
    }
    assert_eq!((scene.other.had(), scene.plain.had()), ((0, 0), (0, 0)));
    // The controls: without a placeholder both hosts are reached, and with it the right one.
    let (_, stdout, _) = scene.ask("https", &scene.other, "none");
    assert!(stdout.starts_with("200 "), "{stdout}");
    let (_, stdout, _) = scene.ask("https", &scene.own, "header");
    assert!(stdout.starts_with("200 "), "{stdout}");
    assert_eq!((scene.other.had(), scene.own.had().0), ((0, 1), 1));
}

#[test]
fn a_secret_is_for_whom_it_is_bound_to_and_as_long_as_it_is_there() {
    let scene = Scene::new();
    let run = ["run", "--network", "--secret", "TOKEN", "--", "true"];
    let runs = |expected: i32, why: &str| {
        let (code, _, stderr) = said(&scene.world.run(&run));
        assert!(code == expected && stderr.contains(why), "{code}: {stderr}");
    };
    runs(127, "there is no secret `TOKEN`");
    scene.set(VALUE, &[]);
    runs(0, "");
    scene.set(VALUE, &["--tool", "http_fetch"]);
    runs(119, "it is bound to other tools: http_fetch");
    let (_, exported, _) = said(&scene.world.run(&["audit", "export"]));
    assert!(exported.contains("`run` may not use the secret `TOKEN`"), "the refusal is recorded");
    scene.set(VALUE, &["--tool", "http_fetch,run"]);
    runs(0, "");
    let without = ["run", "--secret", "TOKEN", "--", "true"];
    let (code, _, stderr) = said(&scene.world.run(&without));
    assert!(code == 121 && stderr.contains("has no network"), "{code}: {stderr}");
    assert_eq!(said(&scene.world.run(&["secret", "rm", "TOKEN"])).0, 0);
    runs(127, "there is no secret `TOKEN`");
    assert_eq!(said(&scene.world.run(&["secret", "rm", "TOKEN"])).0, 127);
    // Another tenant's is nobody else's.
    scene.set(VALUE, &["--tenant", "acme"]);
    runs(127, "there is no secret `TOKEN`");
    assert_eq!(said(&scene.world.run(&["audit", "verify"])).0, 0);
}

#[test]
fn a_secret_without_its_key_or_with_another_row_is_not_used() {
    let scene = Scene::new();
    scene.set(VALUE, &[]);
    let key = hotcell_vault::key_path(&scene.world.home());
    let run = ["run", "--network", "--secret", "TOKEN", "--", "true"];
    assert_eq!(said(&scene.world.run(&run)).0, 0);
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let (code, _, stderr) = said(&scene.world.run(&run));
    assert!(code != 0 && stderr.contains("cannot be opened"), "{stderr}");
    // Another key is made for what is set from now on, and opens nothing of before.
    set(&scene.world, VALUE, &["OTHER", "--host", "a.example.com"]);
    let (code, _, stderr) = said(&scene.world.run(&run));
    assert!(code != 0 && stderr.contains("cannot be opened"), "{stderr}");
    std::fs::write(&key, kept).unwrap();
    assert_eq!(said(&scene.world.run(&run)).0, 0);
}

#[test]
fn what_is_no_secret_is_refused_and_said_again_nowhere() {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    for (value, words, why) in [
        ("short", &["A", "--host", "a.example.com"][..], "fewer than 8 bytes"),
        ("", &["A", "--host", "a.example.com"], "fewer than 8 bytes"),
        ("two-lines\nof-a-secret", &["A", "--host", "a.example.com"], "printable ASCII"),
        ("a-good-value", &["A", "--host", "*"], "is no host"),
        ("a-good-value", &["A", "--host", "*.com"], "every host of a domain"),
        ("a-good-value", &["A", "--host", "a.example.com:*"], "every port"),
        ("a-good-value", &["A"], "--host"),
        ("a-good-value", &["1A", "--host", "a.example.com"], "a secret is called as a variable is"),
        ("a-good-value", &["A", "--host", "a.example.com", "--tool", "nobody"], "there is none"),
        ("a-good-value", &["A", "--host", "a.example.com", "--note", "a\nb"], "not shown"),
    ] {
        let (code, stdout, stderr) = set(&world, value, words);
        assert!(code != 0 && stderr.contains(why), "{words:?}: {code} {stderr}");
        assert!(value.is_empty() || !format!("{stdout}{stderr}").contains(value), "{stderr}");
    }
    let (_, stdout, _) = said(&world.run(&["secret", "ls", "--json"]));
    assert_eq!(stdout, "{\"secrets\":[],\"version\":1}\n");
    // Where somebody takes it for `--env`, nothing is recorded either.
    for text in ["A=sk4Live9", "A=1234567890", "sk-live-4", "A="] {
        let (code, stdout, stderr) = said(&world.run(&["run", "--secret", text, "--", "true"]));
        assert!(
            code == 121 && stderr.contains("--secret NAME=VARIABLE"),
            "{text}: {code} {stderr}"
        );
        let value = text.trim_start_matches("A=");
        assert!(value.is_empty() || !format!("{stdout}{stderr}").contains(value), "{stderr}");
    }
    let (_, stdout, _) = said(&world.run(&["audit", "log", "--json"]));
    assert!(!stdout.contains("sk4Live9") && !stdout.contains("1234567890"), "{stdout}");
}

#[test]
fn a_value_that_is_typed_is_not_shown() {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    let command = world.command(&["secret", "set", "A", "--host", "a.example.com"]);
    let (output, seen) = person::at_terminal(&command, &[("Value of A (not shown): ", VALUE)]);
    let (_, _, stderr) = said(&output);
    assert!(!seen.contains(VALUE) && !stderr.contains(VALUE), "{seen}{stderr}");
    // At a terminal, that is where the value comes from; here standard input is empty.
    assert_eq!(output.status.code(), Some(0), "{seen}{stderr}");
    assert!(kept(&world).unwrap() == Hidden::new(VALUE.into()).unwrap());
}

/// What is sealed in a home under the name `A`.
fn kept(world: &World) -> Option<Hidden> {
    let key = Key::read(&world.home()).unwrap()?;
    let look = |conn: &hotcell_vault::Connection| -> Result<_, Box<dyn Error>> {
        let name = "A".parse().unwrap();
        Ok(hotcell_vault::get(conn, &Name::LOCAL, &name)?)
    };
    let secret = hotcell_record::look(&world.home().join("hotcell.db"), look).unwrap()?;
    Some(hotcell_vault::open(&key, &secret).unwrap())
}

#[test]
fn whoever_is_killed_while_setting_leaves_the_old_one_or_the_new_one() {
    let world = World::new();
    world.user_config("min_level = \"no-proc\"\n");
    let value = |number: u32| format!("value-number-{number}");
    let words = ["A", "--host", "a.example.com"];
    let (code, _, stderr) = set(&world, &value(0), &words);
    assert_eq!(code, 0, "{stderr}");
    let (mut last, mut news) = (0, 0);
    for number in 1..=24 {
        let mut command = world.command(&[&["secret", "set"], &words[..]].concat());
        let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        drop(child.stdin.take().unwrap().write_all(value(number).as_bytes()));
        // Sooner and later, until it is over by itself.
        thread::sleep(Duration::from_millis(u64::from(number) * 4));
        drop(child.kill());
        child.wait().unwrap();
        let now = kept(&world).unwrap();
        let is = |number: u32| now == Hidden::new(value(number).into_bytes()).unwrap();
        assert!(is(last) || is(number), "after {number}");
        if is(number) {
            (last, news) = (number, news + 1);
        }
    }
    eprintln!("{news} of 24 were set before they were killed");
    let (code, _, stderr) = said(&world.run(&["audit", "verify"]));
    assert_eq!(code, 0, "{stderr}");
    // The control: one that nobody kills is set.
    assert_eq!(set(&world, &value(99), &words).0, 0);
    assert!(kept(&world).unwrap() == Hidden::new(value(99).into_bytes()).unwrap());
}

#[test]
fn a_secret_goes_along_with_what_is_fetched_and_nobody_who_asks_sees_it() {
    let scene = Scene::new();
    let fetch = |scheme: &str, server: &Server, more: Value| {
        let mut asked = json!({
            "url": format!("{scheme}://127.0.0.1:{}/x", server.port),
            "placeholders": [{"name": "TOKEN", "header": "Authorization", "before": "Bearer "}],
        });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let words = ["tool", "call", "--json", "http_fetch", &asked.to_string()];
        said(&scene.world.run(&words))
    };
    // Bound to another tool, it is not for this one.
    assert_eq!(scene.set(VALUE, &["--tool", "run"]).0, 0);
    let (code, out, err) = fetch("https", &scene.own, json!({}));
    assert!(code == 119 && out.contains("may not use the secret `TOKEN`"), "{code} {out} {err}");
    assert_eq!(scene.set(VALUE, &["--tool", "http_fetch"]).0, 0);
    let (code, out, err) = fetch("https", &scene.own, json!({}));
    assert!(code == 0 && out.contains("Authorization: Bearer [secret]"), "{code} {out} {err}");
    assert!(!out.contains("v9/that") && !out.contains("4711"), "{out}");
    assert!(!out.contains(PREFIX), "nor the placeholder: {out}");
    assert_eq!(scene.own.had(), (1, 1));
    // To nobody else, and to nobody in the open.
    for (scheme, server) in [("https", &scene.other), ("http", &scene.plain)] {
        let (code, out, err) = fetch(scheme, server, json!({}));
        assert!(code == 119 && out.contains("TOKEN"), "{code} {out} {err}");
        assert_eq!(server.had(), (0, 0));
    }
    let (code, out, _) = fetch("http", &scene.own, json!({}));
    assert!(code == 119 && out.contains("over TLS only"), "{code} {out}");
    let (code, out, _) = fetch("https", &scene.own, json!({"headers": {"authorization": "x"}}));
    assert!(code != 0 && out.contains("says something else"), "{code} {out}");
    assert_eq!(scene.own.had(), (1, 1));
    assert!(!scene.keeps(VALUE) && !scene.keeps(&BASE64.encode(VALUE.as_bytes())));
}
