//! Everything that can be asked for.

use hotcell_request::{Key, Priority};
use hotcell_types::CallId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::code::Code;
use crate::policy::{Rules, Suppose};
use crate::queue::Given;
use crate::token::Bounds;
use crate::words;

/// How many of a list there are at once if nothing is said, and at most.
pub const PAGE: usize = 100;
pub const PAGE_MOST: usize = 1000;

/// One question. Which one is its `ask`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// A call of a tool: a request, as docs/tools.md describes it.
    Call {
        #[schemars(schema_with = "words::anything")]
        request: Value,
    },
    /// Code or a command in a sandbox: a call of the tool `run`.
    Run {
        run: Box<Code>,
        #[serde(default)]
        manner: Manner,
    },
    /// Calls that go side by side, except where one waits for others or they write to the same place.
    Batch {
        calls: Vec<Step>,
    },
    /// A recorded call again, and how the two compare.
    Replay {
        #[schemars(schema_with = "words::id")]
        call: CallId,
        /// What may differ: paths of files, patterns, or `exit`, `stdout`, `stderr`, `value`.
        #[serde(default)]
        ignore: Vec<String>,
    },
    /// Ends a call that goes on.
    Cancel {
        #[schemars(schema_with = "words::id")]
        call: CallId,
    },
    /// Tools, by words, or all.
    Tools {
        #[serde(default)]
        words: Option<String>,
    },
    Tool {
        name: String,
    },
    /// Calls so far.
    Runs {
        #[serde(flatten)]
        filter: Filter,
    },
    /// Everything that is known of one call.
    Show {
        #[schemars(schema_with = "words::id")]
        call: CallId,
    },
    /// What a call printed, as events; then what `show` answers.
    Logs {
        #[schemars(schema_with = "words::id")]
        call: CallId,
        /// Go on until it has ended.
        #[serde(default)]
        follow: bool,
        /// Bytes of each stream that are known already.
        #[serde(default)]
        stdout: u64,
        #[serde(default)]
        stderr: u64,
    },
    /// The record, event by event.
    Events {
        #[serde(flatten)]
        filter: Filter,
    },
    /// Whether the record is what was recorded.
    Verify {},
    Artifacts {
        #[serde(flatten)]
        filter: Box<ArtifactFilter>,
    },
    /// One artifact, by its id, its name, or `NAME@VERSION`.
    Artifact {
        artifact: String,
    },
    /// Some of its content.
    Content {
        artifact: String,
        #[serde(default)]
        from: u64,
        /// At most 8 MiB.
        #[serde(default)]
        length: Option<u64>,
    },
    Lineage {
        artifact: String,
        #[serde(default)]
        depth: Option<u32>,
    },
    Tag {
        artifact: String,
        tag: String,
    },
    Untag {
        artifact: String,
        tag: String,
    },
    /// What somebody thinks of an artifact.
    Judge {
        artifact: String,
        aspect: String,
        ruling: String,
        #[serde(default)]
        note: Option<String>,
    },
    /// Makes an old version the newest.
    Rollback {
        name: String,
        version: u64,
    },
    /// What waits for somebody to agree, the oldest first.
    Approvals {
        #[serde(default)]
        after: Option<String>,
        #[serde(default)]
        limit: Option<usize>,
    },
    Approval {
        item: String,
    },
    /// Waits for the answer, and has the call carried out if somebody agreed.
    Await {
        item: String,
    },
    /// Takes back what waits.
    Withdraw {
        item: String,
    },
    /// An answer that an approver has signed; for a policy, with the signature of its version.
    Answer {
        item: String,
        given: Given,
        #[serde(default)]
        policy: Option<String>,
        /// For a policy that would break much: the phrase that the refusal without it names.
        #[serde(default)]
        accepted: Option<String>,
    },
    /// The policy that holds.
    Policy {},
    PolicyCheck {
        rules: Rules,
    },
    PolicyExplain {
        #[schemars(schema_with = "words::anything")]
        request: Value,
        #[serde(default)]
        suppose: Suppose,
    },
    /// Tests, as `hotcell policy test` has them.
    PolicyTest {
        rules: Rules,
        tests: String,
    },
    /// Which of the last decisions these rules would change.
    PolicyCompare {
        rules: Rules,
    },
    PolicyLearn {
        #[serde(default)]
        since_ns: Option<i64>,
    },
    /// Makes rules the policy that holds, with what `hotcell policy sign` printed for them.
    PolicyInstall {
        rules: Rules,
        signature: String,
        /// Where it would break much: the phrase that the refusal without it names.
        #[serde(default)]
        accepted: Option<String>,
    },
    Tokens {
        #[serde(default)]
        after: u64,
        #[serde(default)]
        limit: Option<usize>,
    },
    /// A token for calls of one tool, which the policy has to allow all.
    Mint {
        tool: String,
        #[serde(default)]
        bounds: Bounds,
    },
    /// A token for some of what another one is for.
    Narrow {
        token: String,
        #[serde(default)]
        bounds: Bounds,
    },
    Revoke {
        token: String,
    },
}

/// How a call is to be made, beside what it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Manner {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The same key is the same call, however often it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub key: Option<Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "words::maybe_id")]
    pub parent: Option<CallId>,
    /// Calls that have to be over before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "words::ids")]
    pub after: Vec<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// If no rule speaks of it, put it before a person instead of refusing it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ask: bool,
}

/// One call of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[schemars(schema_with = "words::anything")]
    pub request: Value,
    /// Steps of the same batch, counted from 0, that have to succeed before.
    #[serde(default)]
    pub after: Vec<usize>,
}

/// Which events, or calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Filter {
    #[schemars(schema_with = "words::maybe_id")]
    pub call: Option<CallId>,
    /// `name@version`.
    pub tool: Option<String>,
    pub kind: Option<String>,
    #[schemars(schema_with = "words::maybe_status")]
    pub status: Option<hotcell_types::Status>,
    /// Nanoseconds since 1970: not before, and before.
    pub since_ns: Option<i64>,
    pub until_ns: Option<i64>,
    /// Only later ones than this `seq`; without it, the newest.
    pub after: Option<u64>,
    /// At most 1000.
    pub limit: Option<usize>,
}

/// Which artifacts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArtifactFilter {
    pub words: Option<String>,
    /// A name, or its beginning with `*`.
    pub name: Option<String>,
    pub role: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub tag: Option<String>,
    #[schemars(schema_with = "words::maybe_id")]
    pub call: Option<CallId>,
    #[schemars(schema_with = "words::maybe_id")]
    pub after: Option<String>,
    /// At most 1000.
    pub limit: Option<usize>,
}
