//! What hotcell itself fetches for a call. Every connection and every redirect is judged as a call of
//! `net.connect` within it, by the version of the policy that let the call begin, as those of a run are. It is
//! done once: whoever wants it again, asks again.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use hotcell_egress::client::{Content, Fetch, Fetched};
use hotcell_egress::search::{Provider, Query, Searxng};
use hotcell_egress::{Client, Fill, Refusal, Refused, Resolver, System, Tls};
use hotcell_policy::Constraints;
use hotcell_request::Call;
use hotcell_tools::web::{self, Found, Wanted};
use hotcell_types::Span;
use hotcell_vault::{Purse, SecretName};
use serde_json::Value;

use crate::engine::Engine;
use crate::network::Border;
use crate::path::Done;
use crate::prepare::{Ready, Work, can_be_kept_here, ceilings};
use crate::reply::{Problem, ProblemKind};
use crate::secrets::Filler;

/// What is to be done, and who decides where it may go.
#[derive(Debug)]
pub(crate) struct Errand {
    wanted: Wanted,
    /// The secrets that go along.
    pub(crate) purse: Option<Arc<Purse>>,
    /// Without one nothing is reached.
    pub(crate) border: Option<Border>,
}

/// Names and trust, for all errands together: lookups are bounded as a whole.
pub(crate) struct Outside {
    resolver: Arc<dyn Resolver>,
    tls: Arc<Tls>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn for_the_web<'e>(
        &'e self,
        call: &Call,
        constraints: &Constraints,
        mut wanted: Wanted,
    ) -> Result<Ready<'e>, Problem> {
        can_be_kept_here(call, constraints, false)?;
        if matches!(wanted, Wanted::Search(_)) && self.network.search.is_none() {
            return Err(no_provider());
        }
        let purse = match &mut wanted {
            Wanted::Fetch(fetch) => self.purse_of_fetch(call, fetch)?,
            Wanted::Search(_) => None,
        };
        let limits = ceilings(constraints).cap(call.limits());
        Ok(Ready::new(limits, Work::Web(Box::new(Errand { wanted, purse, border: None }))))
    }

    /// The secrets of a fetch, which has their placeholders in its headers from then on.
    fn purse_of_fetch(
        &self,
        call: &Call,
        fetch: &mut web::Fetch,
    ) -> Result<Option<Arc<Purse>>, Problem> {
        let asked = std::mem::take(&mut fetch.placeholders);
        let purse = self.purse_of(call, asked.iter().map(|one| &one.name))?;
        let Some(purse) = purse else { return Ok(None) };
        for one in asked {
            let name = one.name.parse::<SecretName>().ok();
            let Some(placeholder) = name.as_ref().and_then(|name| purse.placeholder(name)) else {
                continue;
            };
            if fetch.headers.keys().any(|known| known.eq_ignore_ascii_case(&one.header)) {
                let what = format!("the secret `{}` cannot go along", one.name);
                let why = format!("the header `{}` says something else", one.header.escape_debug());
                let fix = "send it in a header of its own";
                return Err(Problem::new(what, why, fix).of(ProblemKind::Invalid));
            }
            fetch.headers.insert(one.header, format!("{}{placeholder}", one.before));
        }
        Ok(Some(Arc::new(purse)))
    }

    /// Carries it out, within its time.
    pub(crate) fn go_out(&self, call: &Call, errand: Errand, within: Span) -> Done {
        let Errand { wanted, purse, border } = errand;
        let Some(border) = border else { return Done::failed(nobody_decides()) };
        let within = within.min(call.timeout()).duration();
        let answer = match wanted {
            Wanted::Fetch(fetch) => {
                let fill = purse.map(Filler);
                self.fetched(call, &fetch, (&border, fill.as_ref()), within)
            }
            Wanted::Search(search) => self.found(call, &search, &border, within),
        };
        border.tell_rest();
        answer.map_or_else(Done::failed, Done::value)
    }

    fn fetched(
        &self,
        call: &Call,
        asked: &web::Fetch,
        (border, fill): (&Border, Option<&Filler>),
        within: Duration,
    ) -> Result<Value, Problem> {
        let fill = fill.map(|fill| fill as &dyn Fill);
        let fetch = Fetch {
            url: asked.url.clone(),
            method: asked.method.clone(),
            headers: asked.headers.clone().into_iter().collect(),
            body: asked.body.clone().unwrap_or_default().into_bytes(),
            most: usize::try_from(asked.most).unwrap_or(usize::MAX),
            within,
        };
        let fetched = self.client().fetch(&fetch, border, fill, party(call)).map_err(told)?;
        let Fetched { status, url, redirects, headers, content, truncated } = fetched;
        let is_kind = |name: &str| name.eq_ignore_ascii_case("content-type");
        let content_type = headers.into_iter().find(|(name, _)| is_kind(name));
        let content_type = content_type.map(|(_, value)| value);
        let Content::Text(body) = content else {
            return Err(not_text(&url, content_type.as_deref()));
        };
        let redirects = u64::try_from(redirects).unwrap_or(u64::MAX);
        let answer = web::Fetched { status, url, redirects, content_type, body, truncated };
        Ok(web::answer(&answer)?)
    }

    fn found(
        &self,
        call: &Call,
        asked: &web::Search,
        border: &Border,
        within: Duration,
    ) -> Result<Value, Problem> {
        let base = self.network.search.as_ref().ok_or_else(no_provider)?;
        let provider = Searxng::new(base, self.client()).map_err(told)?;
        let most = usize::try_from(asked.most).unwrap_or(usize::MAX);
        let query = Query { words: &asked.query, most, within, party: party(call) };
        let found = provider.search(&query, border, None).map_err(told)?;
        let found =
            found.into_iter().map(|one| Found { title: one.title, url: one.url, text: one.text });
        Ok(web::answer(&found.collect::<Vec<_>>())?)
    }

    fn client(&self) -> Client {
        let outside = self.outside.get_or_init(|| Outside {
            resolver: Arc::new(System::new()),
            tls: Arc::new(Tls::new(self.network.authorities.clone())),
        });
        Client::new(Arc::clone(&outside.resolver), Arc::clone(&outside.tls))
    }
}

/// Each tenant has a share of the lookups.
fn party(call: &Call) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.caller().tenant.as_str().hash(&mut hasher);
    hasher.finish()
}

/// What was not reached, in the words of whoever did not reach it. That a server fails is no fault of hotcell's.
fn told(refusal: Refusal) -> Problem {
    let Refusal { kind, what, why, fix } = refusal;
    let kind = match kind {
        Refused::Malformed => ProblemKind::Invalid,
        Refused::Policy | Refused::Internal(_) | Refused::Secret => ProblemKind::Blocked,
        Refused::Unresolved | Refused::Unreachable | Refused::Untrusted => ProblemKind::Failed,
        Refused::Budget | Refused::Busy => ProblemKind::Busy,
    };
    Problem::new(what, why, fix).of(kind)
}

fn not_text(url: &str, kind: Option<&str>) -> Problem {
    let why = format!("what came is {}", kind.unwrap_or("not UTF-8"));
    let fix = "run a program that has a network and keeps it as a file: `hotcell run --network`";
    Problem::new(format!("`{url}` is not text"), why, fix).of(ProblemKind::Failed)
}

fn no_provider() -> Problem {
    let fix = "name a server that speaks SearXNG's JSON as `search` of `[network]` in config.toml";
    Problem::new("the web was not searched", "there is no provider", fix)
}

fn nobody_decides() -> Problem {
    Problem::new("nothing was fetched", "nobody decides where it may go", "report it")
}
