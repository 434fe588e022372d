//! A docker daemon for as long as it is measured, with a directory, a socket and an image of its own: nothing of
//! it is left, and none that runs already is touched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::{DOCKER, Failure, contestant, finish};
use crate::rounds::Contestant;

/// How long it may take to come up, and to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The image: one static program that does nothing.
const IMAGE: &str = "hotcell-bench";
const PROGRAM: &str = "int main(void) { return 0; }";

/// Where docker is, and what to run there.
#[derive(Debug)]
pub(crate) struct Docker {
    host: Option<String>,
    image: String,
    /// `None` where it is somebody else's.
    daemon: Option<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    process: Child,
    directory: tempfile::TempDir,
}

impl Docker {
    /// The daemon that is there, with an image that is there.
    pub(crate) fn found() -> Result<Docker, String> {
        let image = std::env::var("HOTCELL_BENCH_IMAGE").unwrap_or_else(|_| "busybox".into());
        let docker = Docker { host: None, image, daemon: None };
        match docker.command(&["version", "--format", "{{.Server.Version}}"]).output() {
            Ok(answer) if answer.status.success() => {}
            Ok(_) => return Err("no docker daemon answers (`--docker` starts one)".into()),
            Err(_) => return Err("docker is not installed".into()),
        }
        let has = docker.command(&["image", "inspect", &docker.image]).output();
        if has.is_ok_and(|answer| answer.status.success()) {
            return Ok(docker);
        }
        let image = &docker.image;
        Err(format!(
            "there is no image `{image}` (name one that has `true` in HOTCELL_BENCH_IMAGE)"
        ))
    }

    /// One of its own. Needs root, dockerd and a C compiler.
    pub(crate) fn started() -> Result<Docker, Failure> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        let host = format!("unix://{}", at("socket").display());
        let log = std::fs::File::create(at("log"))?;
        let process = Command::new("dockerd")
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(["--host", &host, "--iptables=false", "--ip6tables=false", "--bridge=none"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("dockerd: {error} (Debian has it as docker.io)"))?;
        let image = make_image(directory.path());
        let daemon = Some(Daemon { process, directory });
        let docker = Docker { host: Some(host), image: IMAGE.into(), daemon };
        docker.comes_up()?;
        let imported = docker.command(&["import"]).arg(image?).arg(IMAGE).output()?;
        if imported.status.success() {
            return Ok(docker);
        }
        Err(String::from_utf8_lossy(&imported.stderr).into_owned().into())
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(words).stdin(Stdio::null());
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    /// A program that does nothing, in a container.
    pub(crate) fn contestant(&self) -> Contestant<'_> {
        contestant(DOCKER, || {
            let words = ["run", "--rm", "--network", "none", &self.image, "/bin/true"];
            finish(self.command(&words), None)
        })
    }

    fn comes_up(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.command(&["version"]).output()?.status.success() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let log = self.daemon.as_ref().map(|daemon| daemon.directory.path().join("log"));
        let said = log.and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
        Err(format!("dockerd does not come up: {}", said.lines().last().unwrap_or_default()).into())
    }
}

fn make_image(directory: &Path) -> Result<PathBuf, Failure> {
    let (root, source) = (directory.join("image"), directory.join("true.c"));
    std::fs::create_dir_all(root.join("bin"))?;
    std::fs::write(&source, PROGRAM)?;
    let image = directory.join("image.tar");
    let program = root.join("bin/true");
    for command in [
        Command::new("cc").args(["-static", "-O1", "-o"]).arg(program).arg(source),
        Command::new("tar").arg("-cf").arg(&image).arg("-C").arg(root).arg("bin"),
    ] {
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    Ok(image)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // By its own pid. It ends its containerd, and unmounts what it mounted.
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        let deadline = Instant::now() + PATIENCE;
        while asked.is_ok() && Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // What it leaves then is in its directory, and named.
        self.process.kill().ok();
        self.process.wait().ok();
        eprintln!("dockerd was killed; see {}", self.directory.path().display());
    }
}
