//! How runs and tools reach a network, where the policy lets them: for the operator or the user to say. A project
//! cannot say anything of it: what is believed, and what is looked into, is not its own.

use std::path::PathBuf;

use hotcell_engine::{HostPattern, NetworkOptions};
use serde::Deserialize;

use super::{Named, Setting};
use crate::problem::Problem;

const INTERCEPT: &str = "network.intercept";
const AUTHORITIES: &str = "network.authorities";
const SEARCH: &str = "network.search";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NetworkWords {
    intercept: Vec<String>,
    authorities: Option<String>,
    search: Option<String>,
}

/// What one file says.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkSaid {
    intercept: Vec<HostPattern>,
    authorities: Option<PathBuf>,
    search: Option<String>,
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
        let value = NetworkSaid { intercept, authorities, search: self.search };
        Ok(Setting { value, source: source.into() })
    }
}

/// What holds, of what is said in this order: the first word counts, and hosts are put together.
pub(super) fn options(said: &[Setting<NetworkSaid>]) -> NetworkOptions {
    let each = || said.iter().map(|said| &said.value);
    NetworkOptions {
        intercept: each().flat_map(|said| said.intercept.iter().cloned()).collect(),
        authorities: each().find_map(|said| said.authorities.clone()),
        search: each().find_map(|said| said.search.clone()),
    }
}

/// The same, as it is shown.
pub(super) fn holding(said: &[Setting<NetworkSaid>]) -> Vec<Named> {
    let mut all = Vec::new();
    for name in [AUTHORITIES, SEARCH] {
        all.extend(said.iter().flat_map(told).find(|named| named.name == name));
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
    if !value.intercept.is_empty() {
        let hosts: Vec<&str> = value.intercept.iter().map(HostPattern::as_str).collect();
        all.push(Named::new(INTERCEPT, hosts.join(" "), source));
    }
    all
}
