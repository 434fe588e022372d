//! What tests with a real sandbox begin with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_extension::{CallView, Extension, FactsView, Failed, Fault, Source, Spoken};
use hotcell_sandbox::{Sandbox, Settings};
use hotcell_types::Level;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything is waited for that has to come.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Rules {
    pub(crate) extension: Extension,
    pub(crate) starts: Arc<AtomicUsize>,
    _home: TempDir,
}

pub(crate) fn sandbox() -> (Arc<Sandbox>, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let settings = Settings { minimum: Level::LandlockOnly, home: home.path().to_owned() };
    (Arc::new(Sandbox::open(&settings).expect("this host can run a sandbox")), home)
}

pub(crate) fn sources(text: &str) -> Vec<Source> {
    vec![Source { name: "rules.ts".into(), text: text.into() }]
}

pub(crate) fn try_load(text: &str) -> Result<Rules, Fault> {
    let (sandbox, home) = sandbox();
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&starts);
    let extension = Extension::start(&sources(text), move |job| {
        counted.fetch_add(1, Ordering::SeqCst);
        sandbox.start(job)
    })?;
    Ok(Rules { extension, starts, _home: home })
}

pub(crate) fn load(text: &str) -> Rules {
    try_load(text).unwrap()
}

impl Rules {
    pub(crate) fn ask(&self, args: &Value) -> Result<Vec<Spoken>, Failed> {
        ask(&self.extension, args)
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// The answer once there is a process again.
    pub(crate) fn ask_until_there(&self, args: &Value) -> Result<Vec<Spoken>, Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.ask(args) {
                Err(Failed::Missing { .. }) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                answer => return answer,
            }
        }
    }
}

pub(crate) fn ask(extension: &Extension, args: &Value) -> Result<Vec<Spoken>, Failed> {
    let call = CallView {
        operation: "fs.write",
        tool: "fs.write",
        args,
        path: Some("src/a.rs"),
        host: None,
        method: None,
        tenant: "local",
        subject: "me",
        door: "cli",
        tags: &["agent".into()],
    };
    extension.evaluate(&call, &FactsView { now: 1_700_000_000_000, state: None, mode: None })
}

pub(crate) fn nothing() -> Value {
    json!({})
}
