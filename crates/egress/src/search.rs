//! Searching the web, by whoever the operator names for it.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, Content, Fetch};
use crate::fill::Fill;
use crate::judge::{Event, Judge, Refusal, Refused, Ruling, Wanted};
use crate::url::Url;

/// Most results, and longest text of each of their parts.
const MOST_RESULTS: usize = 50;
const MOST_TEXT: usize = 2000;
const MOST_BYTES: usize = 4 << 20;
/// Longest time of a search, whatever is asked for.
const WITHIN: Duration = Duration::from_secs(20);

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub words: &'a str,
    /// Most results.
    pub most: usize,
    /// For all of it.
    pub within: Duration,
    /// Whose share of the lookups it takes.
    pub party: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub title: String,
    pub url: String,
    pub text: String,
}

/// Whoever searches.
pub trait Provider: Send + Sync {
    fn search(
        &self,
        query: &Query<'_>,
        judge: &dyn Judge,
        fill: Option<&dyn Fill>,
    ) -> Result<Vec<Found>, Refusal>;
}

/// A server of one's own with the JSON interface of SearXNG. Its address is the operator's to name, also an
/// internal one: it is the one address that the policy is not asked about. Where it redirects to is not.
#[derive(Debug)]
pub struct Searxng {
    base: Url,
    client: Client,
}

impl Searxng {
    /// `base` is where the server is, such as `http://127.0.0.1:8888`.
    pub fn new(base: &str, client: Client) -> Result<Searxng, Refusal> {
        let base = Url::parse(base).map_err(|bad| {
            let fix = "give an absolute URL, such as `http://127.0.0.1:8888`";
            Refusal::new(
                Refused::Malformed,
                "there is no provider to search with",
                bad.to_string(),
                fix,
            )
        })?;
        Ok(Searxng { base, client })
    }

    fn url(&self, words: &str) -> String {
        let path = self.base.path().trim_end_matches('/');
        let root = Url { target: format!("{path}/search"), ..self.base.clone() };
        format!("{root}?q={}&format=json", escaped(words))
    }
}

impl Provider for Searxng {
    fn search(
        &self,
        query: &Query<'_>,
        judge: &dyn Judge,
        fill: Option<&dyn Fill>,
    ) -> Result<Vec<Found>, Refusal> {
        let named = Named { base: &self.base, judge };
        let mut fetch = Fetch::get(&self.url(query.words));
        fetch.headers.push(("Accept".into(), "application/json".into()));
        (fetch.most, fetch.within) = (MOST_BYTES, query.within.min(WITHIN));
        let fetched = self.client.fetch(&fetch, &named, fill, query.party)?;
        let unusable = |why: String| {
            let fix = "see whether its settings list `json` among `search.formats`";
            Refusal::new(Refused::Unreachable, "the web is not searched", why, fix)
        };
        match fetched.content {
            _ if fetched.status != 200 => {
                Err(unusable(format!("the provider answers with status {}", fetched.status)))
            }
            Content::Text(text) if !fetched.truncated => read(&text, query.most).ok_or_else(|| {
                unusable("the provider does not answer with results as JSON".into())
            }),
            _ => Err(unusable("the provider does not answer with results as JSON".into())),
        }
    }
}

/// Lets through what the operator named, and leaves everything else to the policy.
struct Named<'a> {
    base: &'a Url,
    judge: &'a dyn Judge,
}

impl Named<'_> {
    fn is_meant(&self, wanted: &Wanted) -> bool {
        (&wanted.host, wanted.port) == (&self.base.host, self.base.port)
    }
}

impl Judge for Named<'_> {
    fn judge(&self, wanted: &Wanted) -> Ruling {
        match self.is_meant(wanted) {
            true => Ruling::Allow { intercept: false, raw: false },
            false => self.judge.judge(wanted),
        }
    }

    fn names(&self, address: IpAddr, wanted: &Wanted) -> bool {
        self.is_meant(wanted) || self.judge.names(address, wanted)
    }

    fn refuses(&self, address: IpAddr, wanted: &Wanted) -> Option<(String, String)> {
        match self.is_meant(wanted) {
            true => None,
            false => self.judge.refuses(address, wanted),
        }
    }

    fn happened(&self, event: &Event) {
        self.judge.happened(event);
    }
}

pub(crate) fn read(text: &str, most: usize) -> Option<Vec<Found>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let results = value.get("results")?.as_array()?;
    let found = results.iter().filter_map(one).take(most.min(MOST_RESULTS));
    Some(found.collect())
}

/// What is no address of a page is no result.
fn one(value: &Value) -> Option<Found> {
    let text = |key: &str| {
        let text = value.get(key).and_then(Value::as_str).unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).take(MOST_TEXT).collect::<String>()
    };
    let url = text("url");
    let is_page = url.starts_with("http://") || url.starts_with("https://");
    is_page.then(|| Found { title: text("title"), url, text: text("content") })
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
