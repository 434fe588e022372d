//! Sandboxes that stay: made once, and programs run in them one after the other. What is done is the engine's
//! affair; a program in one is a tool of [`sandboxed`](crate::SandboxedTool).

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::BuiltIn;
use crate::sandboxed::Changes;
use crate::sandboxed::run::{File, LimitWords};
use crate::spec::{read, spec, tool_of};

pub const CREATE: &str = "sandbox.create";
pub const LIST: &str = "sandbox.list";
pub const SHOW: &str = "sandbox.show";
pub const PAUSE: &str = "sandbox.pause";
pub const RESUME: &str = "sandbox.resume";
pub const RESTART: &str = "sandbox.restart";
pub const STOP: &str = "sandbox.stop";
pub const REMOVE: &str = "sandbox.remove";
pub const PUT: &str = "sandbox.put";
pub const GET: &str = "sandbox.get";
pub const DIFF: &str = "sandbox.diff";
pub const APPLY: &str = "sandbox.apply";

/// Most languages that a sandbox is made for, and most files that are put into it at one time.
const LANGUAGES_MOST: usize = 8;
const FILES_MOST: usize = 256;
/// Most characters of an id, a length of time and a path.
pub(crate) const ID_MOST: usize = 64;
const SPAN_MOST: usize = 32;
const PATH_MOST: usize = 4096;

/// A tool about sandboxes that stay.
#[derive(Debug)]
pub struct StayTool {
    spec: &'static Spec,
    tool: fn() -> Result<Tool, Fault>,
    read: fn(Value) -> Result<Wanted, ToolError>,
}

/// What a call wants of it.
#[derive(Debug, Clone)]
pub enum Wanted {
    Create(Box<Create>),
    List,
    Show(String),
    Pause(String),
    Resume(String),
    Restart(String),
    Stop(String),
    Remove(String),
    Put(Put),
    Get(Get),
    Diff(String),
    Apply(String),
}

impl StayTool {
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.tool)()
    }

    /// What a call with these arguments wants, which have been checked by the tool's schema.
    pub fn wanted(&self, arguments: &Value) -> Result<Wanted, ToolError> {
        (self.read)(arguments.clone())
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    let tool = |spec, tool, read| BuiltIn::Stay(StayTool { spec, tool, read });
    vec![
        tool(&CREATE_SPEC, create, |args| Ok(Wanted::Create(Box::new(read(args)?)))),
        tool(&LIST_SPEC, list, |_| Ok(Wanted::List)),
        tool(&SHOW_SPEC, || told(&SHOW_SPEC), |args| Ok(Wanted::Show(named(args)?))),
        tool(&PAUSE_SPEC, || told(&PAUSE_SPEC), |args| Ok(Wanted::Pause(named(args)?))),
        tool(&RESUME_SPEC, || told(&RESUME_SPEC), |args| Ok(Wanted::Resume(named(args)?))),
        tool(&RESTART_SPEC, || told(&RESTART_SPEC), |args| Ok(Wanted::Restart(named(args)?))),
        tool(&STOP_SPEC, || told(&STOP_SPEC), |args| Ok(Wanted::Stop(named(args)?))),
        tool(&REMOVE_SPEC, || told(&REMOVE_SPEC), |args| Ok(Wanted::Remove(named(args)?))),
        tool(&PUT_SPEC, put, |args| Ok(Wanted::Put(read(args)?))),
        tool(&GET_SPEC, get, |args| Ok(Wanted::Get(read(args)?))),
        tool(&DIFF_SPEC, || changed(&DIFF_SPEC), |args| Ok(Wanted::Diff(named(args)?))),
        tool(&APPLY_SPEC, || changed(&APPLY_SPEC), |args| Ok(Wanted::Apply(named(args)?))),
    ]
}

/// The arguments of `sandbox.create`. Nothing of it can be changed later.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// Languages whose interpreters its programs find, besides the shell: `python`, `javascript`. What the
    /// system has in its own directories is always there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LANGUAGES_MOST), inner(length(max = SPAN_MOST)))]
    pub languages: Vec<String>,
    /// Whether its working directory begins as a copy of the workspace, with which it can be compared and
    /// whose changes can be taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workspace: bool,
    /// Limits and seccomp profile to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = ID_MOST))]
    pub template: Option<String>,
    /// Limits in place of those of the template, for everything in it together; `timeout` and `output` are
    /// those of a program that asks for none.
    #[serde(default, skip_serializing_if = "LimitWords::is_empty")]
    pub limits: LimitWords,
    /// After how long without a program it is stopped, such as `30m`, which is usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SPAN_MOST))]
    pub idle: Option<String>,
    /// After how long it is stopped, whatever runs in it, such as `8h`, which is usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SPAN_MOST))]
    pub lifetime: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Named {
    /// The sandbox, by its id.
    #[schemars(length(max = ID_MOST))]
    sandbox: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// The arguments of `sandbox.put`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Put {
    #[schemars(length(max = ID_MOST))]
    pub sandbox: String,
    /// Paths in the working directory. Their contents come along with the call. A file that is there is
    /// replaced; directories above are made.
    #[schemars(length(min = 1, max = FILES_MOST))]
    pub files: Vec<File>,
}

/// The arguments of `sandbox.get`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    #[schemars(length(max = ID_MOST))]
    pub sandbox: String,
    /// A file in the working directory.
    #[schemars(length(min = 1, max = PATH_MOST))]
    pub path: String,
}

/// A sandbox that stays.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    pub id: String,
    pub state: State,
    /// Why it is not running, where nobody asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Nanoseconds since 1970.
    pub created_ns: i64,
    pub template: String,
    /// With their paths.
    pub languages: Vec<String>,
    pub workspace: bool,
    pub limits: LimitWords,
    pub idle: String,
    pub lifetime: String,
    /// Programs that run in it now, and that ran in it so far.
    pub running: u64,
    pub programs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Creating,
    Running,
    Paused,
    /// Its programs are being ended.
    Stopping,
    /// What it was made of is being removed.
    Cleanup,
    /// Nothing of it is left but what it was made with.
    Destroyed,
    /// It could not be made, ended by itself, or could not be removed as a whole.
    Failed,
}

/// What it uses with everything in it. What this host cannot count is not there.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Its files included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    pub disk_bytes: u64,
    pub files: u64,
}

/// The answer of `sandbox.list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The oldest first.
    pub sandboxes: Vec<Sandbox>,
}

/// The answer of `sandbox.put`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    pub files: u64,
    pub bytes: u64,
}

/// The answer of `sandbox.get`: what it is known by. Its content is in the ledger, by this call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Given {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

static CREATE_SPEC: Spec = Spec {
    timeout: Some("5m"),
    template: Some("code-executor"),
    ..spec(
        CREATE,
        "sandbox",
        &[Effect::Execute],
        "Makes a sandbox that stays: its files are there for each program that runs in it with \
         `sandbox.exec`, until it is stopped, nobody has used it for a while, or its lifetime is over. It has \
         no network.",
    )
};

static LIST_SPEC: Spec = spec(LIST, "sandbox", &[Effect::Read], "Lists sandboxes that stay.");

static SHOW_SPEC: Spec =
    spec(SHOW, "sandbox", &[Effect::Read], "Tells how a sandbox was made, and what it uses.");

static PAUSE_SPEC: Spec = spec(
    PAUSE,
    "sandbox",
    &[Effect::Execute],
    "Stops every program of a sandbox where it stands. Their time stands still as well; that of the sandbox \
     goes on, as if nobody used it.",
);

static RESUME_SPEC: Spec =
    spec(RESUME, "sandbox", &[Effect::Execute], "Lets the programs of a paused sandbox go on.");

static RESTART_SPEC: Spec = Spec {
    timeout: Some("5m"),
    ..spec(
        RESTART,
        "sandbox",
        &[Effect::Execute],
        "Ends everything in a sandbox and makes it anew, as it was made at first. Its files are gone.",
    )
};

static STOP_SPEC: Spec = spec(
    STOP,
    "sandbox",
    &[Effect::Execute],
    "Ends every program of a sandbox and removes it with its files. It can be made anew with \
     `sandbox.restart`.",
);

static REMOVE_SPEC: Spec =
    spec(REMOVE, "sandbox", &[Effect::Execute], "Stops a sandbox, and forgets how it was made.");

static PUT_SPEC: Spec = Spec {
    timeout: Some("5m"),
    ..spec(
        PUT,
        "sandbox",
        &[Effect::Execute],
        "Puts files into the working directory of a sandbox.",
    )
};

static GET_SPEC: Spec = Spec {
    timeout: Some("5m"),
    ..spec(
        GET,
        "sandbox",
        &[Effect::Execute],
        "Takes a file out of the working directory of a sandbox, into the ledger.",
    )
};

static DIFF_SPEC: Spec = Spec {
    timeout: Some("5m"),
    ..spec(
        DIFF,
        "sandbox",
        &[Effect::Read],
        "Compares the working directory of a sandbox with the workspace as it was copied.",
    )
};

static APPLY_SPEC: Spec = Spec {
    timeout: Some("5m"),
    ..spec(
        APPLY,
        "sandbox",
        &[Effect::Read, Effect::Write, Effect::Execute],
        "Takes over into the workspace what was changed in the working directory of a sandbox, if the policy \
         allows every single change. No program may run meanwhile. The sandbox goes on from there.",
    )
};

const ID: &str = "01hq3k5j3v8m6n0p2r4t6w8y0a";

fn named(arguments: Value) -> Result<String, ToolError> {
    read::<Named>(arguments).map(|named| named.sandbox)
}

fn example() -> Value {
    json!({
        "id": ID,
        "state": "running",
        "created_ns": 1_700_000_000_000_000_000_i64,
        "template": "code-executor",
        "languages": ["python: /usr/bin/python3.11"],
        "workspace": false,
        "limits": {"memory": "512MiB"},
        "idle": "30m",
        "lifetime": "8h",
        "running": 0,
        "programs": 3,
    })
}

fn create() -> Result<Tool, Fault> {
    tool_of::<Create, Sandbox>(&CREATE_SPEC, [(json!({"languages": ["python"]}), example())])
}

fn list() -> Result<Tool, Fault> {
    tool_of::<Nothing, Listed>(&LIST_SPEC, [(json!({}), json!({"sandboxes": [example()]}))])
}

/// Those that are answered with the sandbox as it is then.
fn told(spec: &'static Spec) -> Result<Tool, Fault> {
    tool_of::<Named, Sandbox>(spec, [(json!({"sandbox": ID}), example())])
}

fn put() -> Result<Tool, Fault> {
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let asked = json!({"sandbox": ID, "files": [{"name": "a.txt", "bytes": 4, "sha256": sha256}]});
    tool_of::<Put, Taken>(&PUT_SPEC, [(asked, json!({"files": 1, "bytes": 4}))])
}

fn get() -> Result<Tool, Fault> {
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let given = json!({"path": "a.txt", "bytes": 4, "sha256": sha256});
    tool_of::<Get, Given>(&GET_SPEC, [(json!({"sandbox": ID, "path": "a.txt"}), given)])
}

fn changed(spec: &'static Spec) -> Result<Tool, Fault> {
    let found = json!({
        "files": [{"path": "notes.txt", "kind": "modified", "bytes": 12}],
        "skipped": [],
        "left_out": 0,
    });
    tool_of::<Named, Changes>(spec, [(json!({"sandbox": ID}), found)])
}
