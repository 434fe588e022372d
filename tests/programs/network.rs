//! Programs that people use, with a network: each finds the proxy by itself, reaches what the policy names, and
//! nothing else. Servers are the tests' own, on loopback; only packages come from where the machine's own pip
//! and npm have them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::binary::binary;
use crate::pty::Pty;
use crate::support::{skip, tool};

const PASSPHRASE: &str = "correct horse";

/// Loopback, and not what runs take for their own.
const ALLOWED: &str = "127.0.0.2";
const DENIED: &str = "127.0.0.3";

/// The host's certificates, which runs see as well.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A home with somebody who signs its policy.
struct World {
    dir: TempDir,
    approver: String,
    versions: usize,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::DirBuilder::new().mode(0o700).create(dir.path().join("home")).unwrap();
        fs::create_dir(dir.path().join("here")).unwrap();
        let config = dir.path().join("home/config.toml");
        fs::write(config, "min_level = \"no-proc\"\n").unwrap();
        let mut world = World { dir, approver: String::new(), versions: 0 };
        world.typed(&["init", "--profile", "strict"], 2);
        let shown = world.command(&["policy", "show"]).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("hotcell-approver ")).unwrap();
        world.approver = line.to_owned();
        world
    }

    fn here(&self) -> PathBuf {
        self.dir.path().join("here")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(words)
            .current_dir(self.here())
            .env("HOTCELL_HOME", self.dir.path().join("home"));
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.stdin(Stdio::null());
        command
    }

    /// A command at a terminal, where the passphrase is typed as often as it is asked for.
    fn typed(&self, words: &[&str], times: usize) {
        let (mut pty, mut child) = Pty::start(&self.command(words));
        for time in 1..=times {
            pty.wait_until(|screen| screen.matches(": ").count() >= time);
            pty.write(format!("{PASSPHRASE}\n").as_bytes());
        }
        pty.until_end(&mut child);
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{words:?} {output:?} {}",
            String::from_utf8_lossy(&pty.seen)
        );
    }

    /// Lets code run, and reach these.
    fn allow(&mut self, hosts: &BTreeSet<String>) {
        self.versions += 1;
        let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
        let net = format!(
            "  - {{ name: net-{}, match: {{ operation: net.connect, host: [{}] }}, action: allow }}\n",
            self.versions,
            hosts.join(", ")
        );
        let net = if hosts.is_empty() { String::new() } else { net };
        let text = format!(
            "version: 1\nrules:\n  - {{ name: code, match: {{ operation: code.execute }}, action: allow }}\n\
             {net}approvers:\n{}\n",
            self.approver
        );
        let file = self.dir.path().join("policy.yaml");
        fs::write(&file, text).unwrap();
        self.typed(&["policy", "update", file.to_str().unwrap()], 1);
    }

    /// The document of a run with a network.
    fn run(&self, words: &[&str]) -> Value {
        let words = [&["run", "--network", "--json"], words].concat();
        let Output { stdout, stderr, .. } = self.command(&words).output().unwrap();
        serde_json::from_slice(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr)))
    }
}

/// Ends with the test.
struct Server {
    child: Child,
    at: String,
    dir: TempDir,
}

impl Server {
    /// Gives out the files of a directory.
    fn at(address: &str) -> Server {
        const CODE: &str = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), handler)
print(server.server_port, flush=True)
server.serve_forever()";
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("hello.txt"), "hello\n").unwrap();
        let mut child = Command::new("python3")
            .args(["-c", CODE, address, dir.path().to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Server { child, at: format!("{address}:{}", port.trim()), dir }
    }

    fn requests(&self) -> usize {
        fs::read_to_string(self.dir.path().join("log")).unwrap().lines().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Two servers, of which a policy names one.
fn servers() -> (World, Server, Server) {
    let (allowed, denied) = (Server::at(ALLOWED), Server::at(DENIED));
    let mut world = World::new();
    world.allow(&BTreeSet::from([allowed.at.clone()]));
    (world, allowed, denied)
}

/// Whether the program has reached one and not the other, as it and as hotcell say.
fn check(name: &str, document: &Value, denied: &Server) {
    let text = document["stdout"]["text"].as_str().unwrap();
    assert_eq!(
        (&document["status"], text),
        (&"success".into(), "hello\n403\n"),
        "{name}: {document:#}"
    );
    assert_eq!(document["network"]["refusals"][0]["host"], denied.at, "{name}: {document:#}");
    assert_eq!(denied.requests(), 0, "{name}: nothing is connected to");
}

#[test]
fn curl() {
    if let Err(why) = tool("curl") {
        return skip("curl", &why);
    }
    let (world, allowed, denied) = servers();
    let code = format!(
        "curl -sS http://{}/hello.txt; curl -sS -o body -w '%{{http_code}}\\n' http://{}/; rm body",
        allowed.at, denied.at
    );
    check("curl", &world.run(&["--lang", "shell", "-c", &code]), &denied);
    // And by SOCKS, where names would be looked up by the proxy.
    let code = format!(
        "curl -sS --noproxy '' --proxy socks5h://$HOTCELL_PROXY_USER@127.0.0.1:3128 http://{}/hello.txt
curl -s --noproxy '' --proxy socks5h://$HOTCELL_PROXY_USER@127.0.0.1:3128 http://{}/ || echo 403",
        allowed.at, denied.at
    );
    check("curl by SOCKS", &world.run(&["--lang", "shell", "-c", &code]), &denied);
}

#[test]
fn urllib_and_requests() {
    let (world, allowed, denied) = servers();
    let code = format!(
        "import urllib.request as u, urllib.error
print(u.urlopen('http://{}/hello.txt').read().decode(), end='')
try: u.urlopen('http://{}/')
except urllib.error.HTTPError as e: print(e.code)",
        allowed.at, denied.at
    );
    check("urllib", &world.run(&["--lang", "python", "-c", &code]), &denied);
    let code = format!(
        "try: import requests
except ImportError: print('no requests'); raise SystemExit
print(requests.get('http://{}/hello.txt').text, end=''); print(requests.get('http://{}/').status_code)",
        allowed.at, denied.at
    );
    let document = world.run(&["--lang", "python", "-c", &code]);
    match document["stdout"]["text"].as_str() {
        Some("no requests\n") => skip("requests", "the interpreter has no such package"),
        _ => check("requests", &document, &denied),
    }
}

#[test]
fn git() {
    if let Err(why) = tool("git") {
        return skip("git", &why);
    }
    let (world, allowed, denied) = servers();
    let made = Command::new("sh")
        .args([
            "-ec",
            "git init -q -b main made; cd made; echo hello > file; git add file
git -c user.name=A -c user.email=a@b commit -q -m first; cd ..
git clone -q --bare made repo.git; git -C repo.git update-server-info",
        ])
        .current_dir(allowed.dir.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .status()
        .unwrap();
    assert!(made.success());
    let code = format!(
        "git clone -q http://{}/repo.git repo && cat repo/file; rm -rf repo
git clone -q http://{}/repo.git other 2>&1 | grep -o 403 | head -1",
        allowed.at, denied.at
    );
    check("git", &world.run(&["--lang", "shell", "-c", &code]), &denied);
}

#[test]
fn node() {
    let version = match Command::new("node").args(["-p", "process.versions.node"]).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => return skip("node", "there is no `node` on PATH"),
    };
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let knows = match (numbers.next(), numbers.next()) {
        (Some(22), Some(minor)) => minor >= 21,
        (Some(major), _) => major >= 24,
        (None, _) => false,
    };
    if !knows {
        return skip("fetch of node", &format!("version {version} does not look for a proxy"));
    }
    let (world, allowed, denied) = servers();
    let code = format!(
        "const one = await fetch('http://{}/hello.txt'); process.stdout.write(await one.text());
console.log((await fetch('http://{}/')).status)",
        allowed.at, denied.at
    );
    let code = format!("(async () => {{ {code} }})()");
    check("node", &world.run(&["--lang", "js", "-c", &code]), &denied);
}

/// Go takes no proxy for loopback from the environment, so that it is told.
const GO: &str = r#"package main
import ("fmt"; "io"; "net/http"; "net/url"; "os")
func main() {
	proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
	if err != nil { panic(err) }
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	one, err := client.Get(os.Args[1])
	if err != nil { panic(err) }
	io.Copy(os.Stdout, one.Body)
	other, err := client.Get(os.Args[2])
	if err != nil { panic(err) }
	fmt.Println(other.StatusCode)
}
"#;

#[test]
fn go() {
    let (world, allowed, denied) = servers();
    fs::write(world.here().join("client.go"), GO).unwrap();
    let built = Command::new("go")
        .args(["build", "-o", "client", "client.go"])
        .current_dir(world.here())
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .output();
    match built {
        Err(_) => return skip("go", "there is no `go` on PATH"),
        Ok(built) if !built.status.success() => {
            return skip("go", &String::from_utf8_lossy(&built.stderr));
        }
        Ok(_) => {}
    }
    let code = format!(
        "cp client mine; chmod +x mine; ./mine http://{}/hello.txt http://{}/; rm mine",
        allowed.at, denied.at
    );
    check("go", &world.run(&["--input", "client", "--lang", "shell", "-c", &code]), &denied);
}

/// Runs it, and each time lets it reach what it was refused, until nothing is refused any more: the hosts that
/// packages come from are the machine's affair. What came of it, or why it cannot be tried here.
fn learned(world: &mut World, words: &[&str]) -> Result<(Value, BTreeSet<String>), String> {
    const ROUNDS: usize = 8;
    let mut hosts = BTreeSet::new();
    world.allow(&hosts);
    for _ in 0..ROUNDS {
        let document = world.run(words);
        let refusals = document["network"]["refusals"].as_array().unwrap().clone();
        if refusals.is_empty() {
            return Ok((document, hosts));
        }
        let before = hosts.len();
        for refusal in &refusals {
            let (host, why) = (refusal["host"].as_str().unwrap(), refusal["why"].as_str().unwrap());
            let is_inside = why.starts_with("one of its addresses is ");
            match (is_inside, why == "no rule allows it") {
                // An internal one, as of a mirror, has to be named besides.
                (true, _) => {
                    let fix = refusal["fix"].as_str().unwrap();
                    hosts.insert(fix.split('`').nth(1).unwrap().to_owned());
                }
                (false, true) => {
                    hosts.insert(host.to_owned());
                }
                (false, false) => return Err(format!("`{host}` cannot be reached: {why}")),
            }
        }
        if hosts.len() == before {
            return Err(format!("it is still refused: {refusals:?}"));
        }
        world.allow(&hosts);
    }
    Err("it wants ever more hosts".to_owned())
}

/// What the machine's own clients were told, as far as runs can see it.
fn told(names: &[&str]) -> Vec<String> {
    let value = |name: &&str| Some(format!("{name}={}", std::env::var(name).ok()?));
    let mut told: Vec<String> = names.iter().filter_map(value).collect();
    if Path::new(CERTIFICATES).is_file() {
        for name in ["PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile"] {
            told.push(format!("{name}={CERTIFICATES}"));
        }
    }
    told
}

/// What is printed, if the host's own client says it; nothing for what it does not know.
fn setting(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (text.starts_with("http://") || text.starts_with("https://")).then_some(text)
}

fn with_env<'a>(told: &'a [String], words: &[&'a str]) -> Vec<&'a str> {
    told.iter().flat_map(|one| ["--env", one.as_str()]).chain(words.iter().copied()).collect()
}

#[test]
fn pip_with_nothing_but_its_index() {
    let mut told = told(&["PIP_INDEX_URL"]);
    if let Some(index) = setting("pip", &["config", "get", "global.index-url"]) {
        told.push(format!("PIP_INDEX_URL={index}"));
    }
    let code = "set -e
python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --timeout 20 --target site six
PYTHONPATH=site python3 -c 'import six; print(six.__name__)'; rm -rf site";
    let mut world = World::new();
    let words = with_env(&told, &["--lang", "shell", "-c", code]);
    match learned(&mut world, &words) {
        Err(why) => skip("pip", &why),
        Ok((document, hosts)) => {
            assert_eq!(document["stdout"]["text"], "six\n", "{hosts:?} {document:#}");
            assert!(!hosts.is_empty() && document["network"]["down"].as_u64() > Some(1000));
        }
    }
}

#[test]
fn npm_with_nothing_but_its_registry() {
    if let Err(why) = tool("npm") {
        return skip("npm", &why);
    }
    let mut told = told(&[]);
    if let Some(registry) = setting("npm", &["config", "get", "registry"]) {
        told.push(format!("npm_config_registry={registry}"));
    }
    let code = "set -e
npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries 0 --cache /tmp/npm is-number
node -p 'require(\"is-number\")(42)'; rm -rf node_modules package.json package-lock.json";
    let mut world = World::new();
    let words = with_env(&told, &["--lang", "shell", "-c", code]);
    match learned(&mut world, &words) {
        Err(why) => skip("npm", &why),
        Ok((document, hosts)) => {
            assert_eq!(document["stdout"]["text"], "true\n", "{hosts:?} {document:#}");
            assert!(!hosts.is_empty() && document["network"]["down"].as_u64() > Some(1000));
        }
    }
}
