//! The routes, as data: one table makes the router and the OpenAPI document. A route is a question of
//! [`hotcell_api::Ask`] in the manner of HTTP: each field of the question comes from the path, from the
//! query or from the body, under the name that it has there.

use std::sync::LazyLock;

use axum::http::Method;
use hotcell_access::Scope;
use hotcell_api as api;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// One way to ask for one thing.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// What is in braces is a field of the question.
    pub(crate) path: &'static str,
    /// The name of the operation in the OpenAPI document, in the log and in metrics.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// What a key has to be for: one of these. Some questions need more (`rights`).
    pub(crate) scopes: Vec<Scope>,
    /// Which question, by its `ask`.
    pub(crate) ask: &'static str,
    /// Fields that come from the query.
    pub(crate) query: &'static [&'static str],
    pub(crate) body: Body,
    pub(crate) answer: Reply,
    pub(crate) lane: Lane,
}

/// What the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// The question without what the path and the query have.
    Rest,
    /// One field of the question, which is an object; so is what the path has.
    Under(&'static str),
    /// A question on each line, with an id of its own.
    Lines,
}

/// What the header `Idempotency-Key` is the key of. Elsewhere it is refused: whoever sends it relies on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    /// The call.
    Call,
    /// Each call of several, with its number behind it.
    EachCall,
    /// Each line.
    EachLine,
    Nothing,
}

/// What comes back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// A document.
    Document(fn(&mut SchemaGenerator) -> Schema),
    /// What became of a call. With `wait=false` only its name, once it is in the record.
    Call,
    /// The bytes of an artifact.
    Content,
    /// What a call prints, as it appears.
    Events,
    /// What became of each line, as it is known.
    Lines,
}

/// Where it waits for its turn. Each has room of its own, so that none of them holds up another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Answered from the record, at once.
    Reads,
    /// Carried out, which takes as long as it takes.
    Calls,
    /// Many that are carried out, several at one time.
    Batches,
    /// Waits for somebody, or follows something.
    Waits,
    /// Sends contents.
    Contents,
    /// An answer at `/mcp`; what is asked for in it has a place of its own besides.
    Talks,
    /// Only listens there, for as long as it likes.
    Listens,
}

impl Lane {
    pub(crate) const ALL: [Lane; 7] = [
        Lane::Reads,
        Lane::Calls,
        Lane::Batches,
        Lane::Waits,
        Lane::Contents,
        Lane::Talks,
        Lane::Listens,
    ];

    /// Whether a request in it has a thread. Nothing is done in the others.
    pub(crate) fn has_thread(self) -> bool {
        !matches!(self, Lane::Talks | Lane::Listens)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Lane::Reads => "reads",
            Lane::Calls => "calls",
            Lane::Batches => "batches",
            Lane::Waits => "waits",
            Lane::Contents => "contents",
            Lane::Talks => "talks",
            Lane::Listens => "listens",
        }
    }
}

/// Paths that need no key, answered by `probe`.
pub(crate) const OPEN: [(&str, &str, &str); 3] = [
    ("/healthz", "health", "Whether the process answers"),
    ("/readyz", "readiness", "Whether calls can be recorded and run"),
    ("/openapi.json", "openapi", "This document"),
];

/// Needs a key for it, and asks the engine nothing.
pub(crate) const METRICS: (&str, &str, &str) =
    ("/metrics", "metrics", "Numbers, as Prometheus reads them");

/// Needs a key for tools; what is asked there needs what it needs elsewhere. Answered by `mcp`.
pub(crate) const MCP: (&str, &str, Scope) = ("/mcp", "mcp", Scope::Tools);

fn document<T: JsonSchema>() -> Reply {
    Reply::Document(SchemaGenerator::subschema_for::<T>)
}

/// A policy that somebody agreed to holds from then on.
fn answered(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<api::Item>();
    let installed = generator.subschema_for::<api::Installed>();
    schemars::json_schema!({ "anyOf": [item, installed] })
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        name: &'static str,
        ask: &'static str,
        scope: Scope,
        answer: Reply,
        summary: &'static str,
    ) -> Route {
        let (scopes, query, body, lane) = (vec![scope], &[], Body::None, Lane::Reads);
        Route { method, path, name, summary, scopes, ask, query, body, answer, lane }
    }

    /// A key for this is good as well.
    fn or(mut self, scope: Scope) -> Route {
        self.scopes.push(scope);
        self
    }

    fn query(self, query: &'static [&'static str]) -> Route {
        Route { query, ..self }
    }

    fn body(self, body: Body) -> Route {
        Route { body, ..self }
    }

    fn lane(self, lane: Lane) -> Route {
        Route { lane, ..self }
    }

    pub(crate) fn keyed(&self) -> Keyed {
        match self.answer {
            Reply::Call if self.body != Body::None => Keyed::Call,
            Reply::Lines => Keyed::EachLine,
            _ if self.ask == "batch" => Keyed::EachCall,
            _ => Keyed::Nothing,
        }
    }

    /// Whether it counts among those that a key may have at one time. Who has as many as that can still end
    /// one of them.
    pub(crate) fn counts(&self) -> bool {
        self.ask != "cancel"
    }

    /// The names in braces, and the fields of the question that they are.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let names = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
        let field = |name| match (self.ask, name) {
            // A router wants one name for one place.
            ("rollback", "artifact") => "name",
            ("call", "name") => "tool",
            (_, name) => name,
        };
        names.map(move |name| (name, field(name)))
    }
}

static TABLE: LazyLock<Vec<Route>> = LazyLock::new(table);

/// All of them, as the document lists them.
pub(crate) fn routes() -> &'static [Route] {
    &TABLE
}

fn table() -> Vec<Route> {
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let get = |path, name, ask, scope, answer, summary| {
        Route::new(get.clone(), path, name, ask, scope, answer, summary)
    };
    let post = |path, name, ask, scope, answer, summary| {
        Route::new(post.clone(), path, name, ask, scope, answer, summary)
    };
    let put = |path, name, ask, scope, answer, summary| {
        Route::new(put.clone(), path, name, ask, scope, answer, summary)
    };
    vec![
        post(
            "/v1/runs",
            "run",
            "run",
            Scope::Run,
            Reply::Call,
            "Run code or a command in a sandbox",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        post(
            "/v1/batches",
            "runs_batch",
            "run",
            Scope::Run,
            Reply::Lines,
            "Run many jobs, one on each line, with results as they finish",
        )
        .body(Body::Lines)
        .lane(Lane::Batches),
        get("/v1/runs", "runs", "runs", Scope::RunsRead, document::<api::Runs>(), "Calls so far")
            .query(&["tool", "status", "since_ns", "until_ns", "after", "limit"]),
        get(
            "/v1/runs/{call}",
            "run_show",
            "show",
            Scope::RunsRead,
            document::<api::Call>(),
            "Everything that is known of one call",
        ),
        post(
            "/v1/runs/{call}/cancel",
            "run_cancel",
            "cancel",
            Scope::Run,
            document::<api::Cancelled>(),
            "End a call that goes on",
        ),
        post(
            "/v1/runs/{call}/replay",
            "run_replay",
            "replay",
            Scope::Run,
            document::<api::Replayed>(),
            "Make a recorded call again, and compare",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        get(
            "/v1/runs/{call}/events",
            "run_events",
            "logs",
            Scope::RunsRead,
            Reply::Events,
            "What a call prints, as it appears",
        )
        .query(&["follow", "stdout", "stderr"])
        .lane(Lane::Waits),
        get(
            "/v1/tools",
            "tools",
            "tools",
            Scope::Tools,
            document::<api::Tools>(),
            "Tools, all or by words",
        )
        .query(&["words"]),
        get("/v1/tools/{name}", "tool", "tool", Scope::Tools, document::<api::Tool>(), "One tool"),
        post(
            "/v1/tools/{name}/call",
            "tool_call",
            "call",
            Scope::Tools,
            Reply::Call,
            "Call a tool",
        )
        .body(Body::Under("request"))
        .lane(Lane::Calls),
        post(
            "/v1/batch",
            "batch",
            "batch",
            Scope::Tools,
            document::<api::Calls>(),
            "Make several calls, side by side where that is possible",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        get(
            "/v1/artifacts",
            "artifacts",
            "artifacts",
            Scope::ArtifactsRead,
            document::<api::Artifacts>(),
            "What calls were given and made",
        )
        .query(&["words", "name", "role", "type", "tag", "call", "after", "limit"]),
        get(
            "/v1/artifacts/{artifact}",
            "artifact",
            "artifact",
            Scope::ArtifactsRead,
            document::<api::Details>(),
            "One artifact: by its id, its name, or NAME@VERSION",
        ),
        get(
            "/v1/artifacts/{artifact}/content",
            "artifact_content",
            "content",
            Scope::ArtifactsRead,
            Reply::Content,
            "The bytes of an artifact, or some of them",
        )
        .lane(Lane::Contents),
        get(
            "/v1/artifacts/{artifact}/lineage",
            "artifact_lineage",
            "lineage",
            Scope::ArtifactsRead,
            document::<api::Lineage>(),
            "What it came from, and what came from it",
        )
        .query(&["depth"]),
        put(
            "/v1/artifacts/{artifact}/tags/{tag}",
            "artifact_tag",
            "tag",
            Scope::ArtifactsWrite,
            document::<api::Written>(),
            "Tag an artifact",
        ),
        Route::new(
            Method::DELETE,
            "/v1/artifacts/{artifact}/tags/{tag}",
            "artifact_untag",
            "untag",
            Scope::ArtifactsWrite,
            document::<api::Written>(),
            "Take a tag away",
        ),
        post(
            "/v1/artifacts/{artifact}/verdict",
            "artifact_verdict",
            "judge",
            Scope::ArtifactsWrite,
            document::<api::Written>(),
            "Say what one thinks of an artifact",
        )
        .body(Body::Rest),
        post(
            "/v1/artifacts/{artifact}/rollback",
            "artifact_rollback",
            "rollback",
            Scope::ArtifactsWrite,
            document::<api::Written>(),
            "Make an old version the newest; the artifact is given by its name",
        )
        .body(Body::Rest),
        get(
            "/v1/approvals",
            "approvals",
            "approvals",
            Scope::ApprovalsRead,
            document::<api::Items>(),
            "What waits for somebody to agree",
        )
        .query(&["after", "limit"]),
        get(
            "/v1/approvals/{item}",
            "approval",
            "approval",
            Scope::ApprovalsRead,
            document::<api::Item>(),
            "One of them",
        ),
        post(
            "/v1/approvals/{item}/await",
            "approval_await",
            "await",
            Scope::Tools,
            Reply::Call,
            "Wait for the answer, and have the call carried out if somebody agreed",
        )
        .or(Scope::Run)
        .lane(Lane::Waits),
        post(
            "/v1/approvals/{item}/withdraw",
            "approval_withdraw",
            "withdraw",
            Scope::ApprovalsWrite,
            document::<api::Item>(),
            "Take back what waits",
        ),
        post(
            "/v1/approvals/{item}/answer",
            "approval_answer",
            "answer",
            Scope::ApprovalsWrite,
            Reply::Document(answered),
            "Hand in an answer that an approver has signed",
        )
        .body(Body::Rest),
        get(
            "/v1/policy",
            "policy",
            "policy",
            Scope::PolicyRead,
            document::<api::Policy>(),
            "The policy that holds",
        ),
        put(
            "/v1/policy",
            "policy_install",
            "policy_install",
            Scope::PolicyWrite,
            document::<api::Installed>(),
            "Make rules the policy that holds, with an approver's signature",
        )
        .body(Body::Rest),
        post(
            "/v1/policy/check",
            "policy_check",
            "policy_check",
            Scope::PolicyRead,
            document::<api::Checked>(),
            "Whether rules can be read, and what is odd about them",
        )
        .body(Body::Rest),
        post(
            "/v1/policy/explain",
            "policy_explain",
            "policy_explain",
            Scope::PolicyRead,
            document::<api::Explained>(),
            "What the policy says to a call, and why",
        )
        .body(Body::Rest),
        post(
            "/v1/policy/test",
            "policy_test",
            "policy_test",
            Scope::PolicyRead,
            document::<api::Tested>(),
            "Test rules, as `hotcell policy test` does",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        post(
            "/v1/policy/compare",
            "policy_compare",
            "policy_compare",
            Scope::PolicyRead,
            document::<api::Compared>(),
            "Which of the last decisions rules would change",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        post(
            "/v1/policy/learn",
            "policy_learn",
            "policy_learn",
            Scope::PolicyRead,
            document::<api::Learned>(),
            "Rules that would allow what was refused",
        )
        .body(Body::Rest)
        .lane(Lane::Calls),
        get(
            "/v1/audit/events",
            "audit_events",
            "events",
            Scope::Audit,
            document::<api::Events>(),
            "The record, event by event",
        )
        .query(&["call", "tool", "kind", "status", "since_ns", "until_ns", "after", "limit"]),
        post(
            "/v1/audit/verify",
            "audit_verify",
            "verify",
            Scope::Audit,
            document::<api::Verified>(),
            "Whether the record is what was recorded",
        )
        .lane(Lane::Calls),
        get(
            "/v1/tokens",
            "tokens",
            "tokens",
            Scope::Tokens,
            document::<api::Tokens>(),
            "One's own tokens",
        )
        .query(&["after", "limit"]),
        post(
            "/v1/tokens",
            "token_mint",
            "mint",
            Scope::Tokens,
            document::<api::Minted>(),
            "Always refused: tokens are made at the command line",
        )
        .body(Body::Rest),
        post(
            "/v1/tokens/narrow",
            "token_narrow",
            "narrow",
            Scope::Tokens,
            document::<api::Minted>(),
            "Make a token for some of what another one is for",
        )
        .body(Body::Rest),
        post(
            "/v1/tokens/{token}/revoke",
            "token_revoke",
            "revoke",
            Scope::Tokens,
            document::<api::Revoked>(),
            "Make a token worth nothing",
        ),
    ]
}
