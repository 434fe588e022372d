//! How runs and tools reach a network, where the policy lets them: for the operator or the user to say. A project
//! cannot say anything of it: what is believed, and what is looked into, is not its own.

use std::path::PathBuf;

use hotcell_engine::{HostPattern, NetworkOptions};
use hotcell_types::Bytes;
use serde::Deserialize;

use super::{Named, Setting};
use crate::problem::Problem;

const INTERCEPT: &str = "network.intercept";
const AUTHORITIES: &str = "network.authorities";
const SEARCH: &str = "network.search";
const RECORDED: &str = "network.recorded";
const REQUESTS: &str = "network.requests";
const UP: &str = "network.up";
const DOWN: &str = "network.down";

/// Fewest and most events about what is allowed to one run.
const LEAST_RECORDED: u64 = 16;
const MOST_RECORDED: u64 = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NetworkWords {
    intercept: Vec<String>,
    authorities: Option<String>,
    search: Option<String>,
    recorded: Option<u64>,
    requests: Option<u64>,
    up: Option<String>,
    down: Option<String>,
}

/// What one file says.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkSaid {
    intercept: Vec<HostPattern>,
    authorities: Option<PathBuf>,
    search: Option<String>,
    recorded: Option<u64>,
    requests: Option<u64>,
    up: Option<Bytes>,
    down: Option<Bytes>,
}

impl NetworkWords {
    pub(super) fn read(self, source: &str) -> Result<Setting<NetworkSaid>, Problem> {
        let intercept = self.intercept.iter().map(|text| {
            text.parse::<HostPattern>().map_err(|error| {
                let what = format!("`{text}` of {INTERCEPT} in `{source}` is not a host");
                Problem::invalid(what).why(error.to_string())
            })
        });
        let authorities = self.authorities.map(PathBuf::from);
        if authorities.as_ref().is_some_and(|path| !path.is_absolute()) {
            let what = format!("{AUTHORITIES} in `{source}` is not an absolute path");
            return Err(Problem::invalid(what).fix("give the path from the root"));
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if self.search.as_ref().is_some_and(|url| !is_url(url)) {
            let what = format!("{SEARCH} in `{source}` is not the address of a server");
            return Err(Problem::invalid(what).fix("write it like `http://127.0.0.1:8888`"));
        }
        let intercept = intercept.collect::<Result<_, _>>()?;
        let is_odd = |most: &u64| !(LEAST_RECORDED..=MOST_RECORDED).contains(most);
        if self.recorded.as_ref().is_some_and(is_odd) {
            let what = format!("{RECORDED} in `{source}` is not a number of events of one run");
            let fix = format!("write one between {LEAST_RECORDED} and {MOST_RECORDED}");
            return Err(Problem::invalid(what).fix(fix));
        }
        let value = NetworkSaid {
            intercept,
            authorities,
            search: self.search,
            recorded: self.recorded,
            requests: self.requests,
            up: bytes(UP, self.up, source)?,
            down: bytes(DOWN, self.down, source)?,
        };
        Ok(Setting { value, source: source.into() })
    }
}

fn bytes(name: &str, text: Option<String>, source: &str) -> Result<Option<Bytes>, Problem> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|error| {
        Problem::invalid(format!("`{text}` of {name} in `{source}` is not a number of bytes"))
            .why(format!("{error}"))
    })
}

/// What holds, of what is said in this order: the first word counts, and hosts are put together.
pub(super) fn options(said: &[Setting<NetworkSaid>]) -> NetworkOptions {
    let each = || said.iter().map(|said| &said.value);
    NetworkOptions {
        intercept: each().flat_map(|said| said.intercept.iter().cloned()).collect(),
        authorities: each().find_map(|said| said.authorities.clone()),
        search: each().find_map(|said| said.search.clone()),
        recorded: each().find_map(|said| said.recorded),
        // Of what a run may have, the least that anybody says.
        requests: each().filter_map(|said| said.requests).min(),
        up: each().filter_map(|said| said.up).min(),
        down: each().filter_map(|said| said.down).min(),
    }
}

/// The same, as it is shown.
pub(super) fn holding(said: &[Setting<NetworkSaid>]) -> Vec<Named> {
    let mut all = Vec::new();
    for name in [AUTHORITIES, SEARCH, RECORDED] {
        all.extend(said.iter().flat_map(told).find(|named| named.name == name));
    }
    for (name, of) in [
        (REQUESTS, (|said| said.requests) as fn(&NetworkSaid) -> Option<u64>),
        (UP, |said| said.up.map(Bytes::get)),
        (DOWN, |said| said.down.map(Bytes::get)),
    ] {
        let least = said.iter().filter_map(|said| Some((of(&said.value)?, said)));
        let least = least.min_by_key(|(number, _)| *number);
        all.extend(least.and_then(|(_, said)| told(said).into_iter().find(|one| one.name == name)));
    }
    all.extend(said.iter().flat_map(told).filter(|named| named.name == INTERCEPT));
    all
}

/// Everything that one file says.
pub(super) fn told(said: &Setting<NetworkSaid>) -> Vec<Named> {
    let Setting { value, source } = said;
    let mut all = Vec::new();
    let shown = value.authorities.as_ref().map(|path| path.display().to_string());
    all.extend(shown.map(|path| Named::new(AUTHORITIES, path, source)));
    all.extend(value.search.as_ref().map(|url| Named::new(SEARCH, url, source)));
    let numbers = [(RECORDED, value.recorded), (REQUESTS, value.requests)];
    let numbers = numbers.map(|(name, number)| (name, number.map(|number| number.to_string())));
    let sizes = [(UP, value.up), (DOWN, value.down)];
    let sizes = sizes.map(|(name, size)| (name, size.map(|size| size.to_string())));
    for (name, text) in numbers.into_iter().chain(sizes) {
        all.extend(text.map(|text| Named::new(name, text, source)));
    }
    if !value.intercept.is_empty() {
        let hosts: Vec<&str> = value.intercept.iter().map(HostPattern::as_str).collect();
        all.push(Named::new(INTERCEPT, hosts.join(" "), source));
    }
    all
}
