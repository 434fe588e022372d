//! What a run with a network may reach. Each connection, and each request that can be seen, is judged as a
//! call of `net.connect` within the run, by the version of the policy that let the run begin; what is decided
//! is on the disk before it is answered.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use hotcell_egress::{
    BUDGET, Budget, Closed, End, Event, Fill, Gate, How, Jailed, Judge, Pass, Passage, Protocol,
    Refused as NotReached, Ruling, Settings, Starter, System, Wanted,
};
use hotcell_glob::HostPattern;
use hotcell_policy::{Account, Facts, Verdict};
use hotcell_record::{AppendError, Draft, Durability, Kind, Payload, Record, now};
use hotcell_request::{Arguments, Call, Registry, Request, canonical};
use hotcell_sandbox::{Network, Refusal as NotRun, Sandbox};
use hotcell_tools::Plan;
use hotcell_tools::connect::{self, Connect};
use hotcell_types::{
    self as types, Bytes, CallId, Caller, Decision, Profile, Refusal, Status, Template, Traffic,
};
use hotcell_vault::Purse;

use crate::engine::{Engine, new_id};
use crate::path::Done;
use crate::reply::{Problem, ProblemKind};
use crate::rulebook::Book;
use crate::secrets::Filler;
use crate::story::{self, Story};
use crate::tally::{MOST_ALLOWED, Rest, Sort, Tally, Told};
use crate::weigh::judge_asking;

/// Ports that every policy means that names a host.
const USUAL_PORTS: [u16; 2] = [80, 443];
/// Most hosts of a run that its result says were refused.
const MOST_TOLD: usize = 16;
/// What could go through a tunnel that nobody looks into: requests of all kinds.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// How runs and tools reach a network, as far as it is for the operator to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Hosts whose TLS hotcell ends itself, so that requests can be judged and secrets be put in. Programs are
    /// given a certificate authority of their own run to believe.
    pub intercept: Vec<HostPattern>,
    /// A file with certificates that are believed besides those of the system.
    pub authorities: Option<PathBuf>,
    /// The server that `web.search` asks.
    pub search: Option<String>,
    /// Most events about what was allowed to one run; what repeats beyond half of them is counted.
    pub recorded: Option<u64>,
    /// Most requests and tunnels of one run, and bytes towards the network and back.
    pub requests: Option<u64>,
    pub up: Option<Bytes>,
    pub down: Option<Bytes>,
}

impl NetworkOptions {
    /// What a run may have.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            requests: self.requests.unwrap_or(BUDGET.requests),
            up: self.up.map_or(BUDGET.up, Bytes::get),
            down: self.down.map_or(BUDGET.down, Bytes::get),
            ..BUDGET
        }
    }
}

/// The way out of one run.
#[derive(Debug)]
pub(crate) struct Crossing {
    pass: Pass,
    /// Who decides; there is no way out without.
    pub(crate) border: Option<Arc<Border>>,
    /// The secrets that go along.
    pub(crate) purse: Option<Arc<Purse>>,
}

impl Crossing {
    pub(crate) fn new(purse: Option<Arc<Purse>>) -> Result<Crossing, Problem> {
        let pass = Pass::new().map_err(|closed| no_network(&closed))?;
        Ok(Crossing { pass, border: None, purse })
    }

    /// What a program is told of it. Each can be set otherwise, and then leads nowhere.
    pub(crate) fn variables(&self, profile: Profile) -> BTreeMap<OsString, OsString> {
        let credential = self.pass.credential();
        let mut told = BTreeMap::from([
            ("HOTCELL_PROXY".to_owned(), format!("unix:{SOCKET}")),
            ("HOTCELL_PROXY_USER".to_owned(), format!("run:{credential}")),
        ]);
        if profile == Profile::StandardNet {
            // Plain HTTP to the proxy for everything: SOCKS is spoken there as well, but who finds it in these
            // variables and cannot speak it does not start.
            let proxy = format!("http://run:{credential}@{ADDRESS}");
            for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
                told.insert(name.to_owned(), proxy.clone());
                told.insert(name.to_lowercase(), proxy.clone());
            }
            for name in ["NO_PROXY", "no_proxy"] {
                told.insert(name.to_owned(), "localhost,127.0.0.1,::1".to_owned());
            }
            told.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
        }
        told.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// Certificates that a program has to believe where its tunnels are looked into: those of the host, and the
    /// authority of this very run. Nobody else believes that one, and it is gone with the run.
    pub(crate) fn certificates(&self) -> Result<Vec<u8>, Problem> {
        let mut all = BUNDLES.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default();
        let own = self.pass.authority().map_err(|closed| no_network(&closed))?;
        all.extend_from_slice(own.as_bytes());
        Ok(all)
    }

    /// Lets a run out, as far as its border says.
    pub(crate) fn open(
        self,
        gate: &Gate,
        listeners: Vec<OwnedFd>,
        budget: Budget,
    ) -> Result<Opened, Closed> {
        let border = self.border.ok_or_else(|| Closed("nobody decides on it".into()))?;
        let judge = Arc::clone(&border) as Arc<dyn Judge>;
        let fill = self.purse.map(|purse| Arc::new(Filler(purse)) as Arc<dyn Fill>);
        let passage = gate.open(self.pass, listeners, judge, fill, budget)?;
        Ok(Opened { passage: Some(passage), border })
    }
}

/// Where a run has the certificates that it has to believe, and what programs look for them by.
pub(crate) const CERTIFICATES: &str = "hotcell-certificates.pem";
pub(crate) const BELIEVED: [&str; 6] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
];

/// Where distributions have theirs.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Where a run finds its way out, as its jail makes it.
const SOCKET: &str = "/run/hotcell/proxy.sock";
const ADDRESS: &str = "127.0.0.1:3128";

/// A way out that is open. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Until it is closed.
    passage: Option<Passage>,
    border: Arc<Border>,
}

/// However a run ends, it is told what went through.
impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(passage) = self.passage.take() {
            passage.close();
        }
        self.border.tell_rest();
    }
}

impl Opened {
    /// Closes it, and tells what went through.
    pub(crate) fn close(mut self) -> Traffic {
        let counts = self.passage.take().map(Passage::close).unwrap_or_default();
        let refused = counts.refused + counts.malformed;
        Traffic { up: counts.up, down: counts.down, refused, ..self.border.traffic() }
    }
}

pub(crate) fn no_network(closed: &Closed) -> Problem {
    let fix = "see that the host has memory and descriptors left, and run it again";
    Problem::new("the run has no network", closed.to_string(), fix)
}

impl Engine {
    /// The way out for runs, made when the first one needs it. It has a sandbox of its own.
    pub(crate) fn way_out(&self) -> Result<&Gate, NotRun> {
        if let Some(gate) = self.way_out.get() {
            return Ok(gate);
        }
        let sandbox = Sandbox::open(self.settings())?;
        let starter: Starter = Box::new(move |job| sandbox.start(job));
        let settings = Settings { authorities: self.network.authorities.clone() };
        let made = Gate::new(Box::new(Jailed(starter)), Arc::new(System::new()), settings);
        Ok(self.way_out.get_or_init(|| made))
    }

    /// Who decides for a call that reaches a network.
    pub(crate) fn border(
        &self,
        book: &Arc<Book>,
        facts: &Facts,
        call: &Call,
    ) -> Result<Border, Problem> {
        let record = self.recording()?.clone();
        let intercepts = self.network.intercept.clone().into();
        let most = self.network.recorded.unwrap_or(MOST_ALLOWED);
        Ok(Border::new(book, facts, call, record, intercepts, most))
    }
}

/// Decides for one run, or for one call of hotcell's own client.
#[derive(Debug)]
pub(crate) struct Border {
    book: Arc<Book>,
    /// Of the caller. What was shown for the call itself, a token or an approval, is for nothing else.
    facts: Facts,
    call: CallId,
    caller: Caller,
    record: Record,
    /// Hosts whose tunnels are looked into.
    intercepts: Arc<[HostPattern]>,
    /// The secrets of the run: whoever bound one to a host has said that hotcell ends that host's TLS.
    purse: Option<Arc<Purse>>,
    traffic: Mutex<Traffic>,
    tally: Mutex<Tally>,
    /// Whether the record says that not everything has an event any more.
    is_counting: Mutex<bool>,
}

/// What a run in this template reaches, and what it may ask the kernel for.
pub(crate) fn of(template: &Template, asks: bool) -> (Profile, Network) {
    match (asks || template.network == types::Network::Restricted, template.profile) {
        (false, profile) => (profile, Network::None),
        (true, Profile::Standard) => (Profile::StandardNet, Network::Proxied),
        (true, profile) => (profile, Network::Proxied),
    }
}

/// Whether the template that the policy wants has the network that a call asks for.
pub(crate) fn suits(call: &Call, plan: &Plan, template: &Template) -> Result<(), Problem> {
    if !plan.network || template.network == types::Network::Restricted {
        return Ok(());
    }
    let what = format!("`{}` cannot be carried out as the policy wants it", call.name());
    let why = format!("it asks for a network, and would have to run in `{}`", template.name);
    let fix = "do without, or have the rule name a template with a network";
    Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
}

impl Border {
    pub(crate) fn new(
        book: &Arc<Book>,
        facts: &Facts,
        call: &Call,
        record: Record,
        intercepts: Arc<[HostPattern]>,
        most: u64,
    ) -> Border {
        let Facts { tags, state, mode, .. } = facts.clone();
        Border {
            book: Arc::clone(book),
            facts: Facts { tags, state, mode, ..Facts::default() },
            call: call.id(),
            caller: call.caller().clone(),
            record,
            intercepts,
            purse: None,
            traffic: Mutex::default(),
            tally: Mutex::new(Tally::new(most)),
            is_counting: Mutex::default(),
        }
    }

    pub(crate) fn with(self, purse: Option<Arc<Purse>>) -> Border {
        Border { purse, ..self }
    }

    /// Hosts that get a secret are spoken to in nothing but TLS.
    fn in_the_open(&self, wanted: &Wanted) -> Option<Refused> {
        let purse = self.purse.as_ref().filter(|_| wanted.protocol == Protocol::Http)?;
        let name = purse.of_name(&host_text(wanted))?;
        let why = format!("the secret `{name}` is bound to it, and goes over TLS only");
        self.note(wanted, &why);
        Some(Refused { why, fix: "use `https`".to_owned() })
    }

    /// What went over it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, host: &str, why: &str, fix: &str) {
        self.count(|traffic| {
            let is_known = traffic.refusals.iter().any(|known| known.host == host);
            if !is_known && traffic.refusals.len() < MOST_TOLD {
                let (host, why, fix) = (host.to_owned(), why.to_owned(), fix.to_owned());
                traffic.refusals.push(Refusal { host, why, fix });
            }
        });
    }

    fn count(&self, count: impl FnOnce(&mut Traffic)) {
        count(&mut self.traffic.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn looks_into(&self, wanted: &Wanted) -> bool {
        let host = host_text(wanted);
        self.intercepts.iter().any(|pattern| pattern.matches(&host))
            || self.purse.as_ref().is_some_and(|purse| purse.of_name(&host).is_some())
    }

    /// The call that stands for what is wanted.
    fn call_of(&self, host: String, wanted: &Wanted) -> Result<Call, Refused> {
        let (method, path) = (wanted.method.clone(), wanted.path.clone());
        self.call_with(Connect { host, protocol: spoken(wanted.protocol), method, path })
    }

    fn call_with(&self, args: Connect) -> Result<Call, Refused> {
        let args = serde_json::to_value(args).map_err(|error| Refused::not_understood(&error))?;
        let name = connect::NAME.parse().map_err(|error| Refused::not_understood(&error))?;
        let mut request = Request::new(name, Arguments::Value(args));
        request.parent = Some(self.call);
        let call = Call::new(request, self.caller.clone(), new_id(), &TOOLS);
        call.map_err(|error| Refused::not_understood(&error))
    }

    /// Facts for one decision.
    fn facts(&self) -> Facts {
        Facts { now: now(), ..self.facts.clone() }
    }

    /// What goes through a tunnel that nobody looks into could be any request: one that a rule denies is enough,
    /// or an extension.
    fn denied_in_it(&self, wanted: &Wanted, facts: &Facts) -> Option<Call> {
        let (policy, extension) = (&self.book.policy, self.book.extension.as_ref());
        METHODS.iter().find_map(|method| {
            let asked = Wanted { method: Some((*method).to_owned()), ..wanted.clone() };
            let call = self.call_of(host_text(wanted), &asked).ok()?;
            let verdict = judge_asking(policy, extension, &call, &mut facts.clone());
            let is_denied = match &verdict {
                Verdict::Deny(account) => account.decision().is_some(),
                // Nobody can agree to a request that nobody sees.
                Verdict::Review(_) => true,
                Verdict::Allow(_) | Verdict::Ask(_) => false,
            };
            drop(verdict);
            is_denied.then_some(call)
        })
    }

    /// Whether the policy names the host and its port for whatever is spoken there.
    fn names_any(&self, wanted: &Wanted) -> bool {
        let tcp = Wanted { protocol: Protocol::Tcp, ..wanted.clone() };
        let Ok(call) = self.call_of(host_text(wanted), &tcp) else { return false };
        self.allows_by_name(&call)
    }

    fn allows_by_name(&self, call: &Call) -> bool {
        let mut facts = self.facts();
        let (policy, extension) = (&self.book.policy, self.book.extension.as_ref());
        policy.names_host(call, &facts)
            && matches!(judge_asking(policy, extension, call, &mut facts), Verdict::Allow(_))
    }

    /// What the policy says, recorded. Whatever cannot be recorded is refused.
    fn decide(&self, wanted: &Wanted) -> Result<(), Refused> {
        let mut facts = self.facts();
        let denied = wanted.is_tunnel().then(|| self.denied_in_it(wanted, &facts)).flatten();
        let call = denied.map_or_else(|| self.call_of(host_text(wanted), wanted), Ok);
        let call = call.inspect_err(|refused| self.note(wanted, &refused.why))?;
        let (policy, extension) = (&self.book.policy, self.book.extension.as_ref());
        let verdict = judge_asking(policy, extension, &call, &mut facts);
        let story = |account: &Account<'_>| Story::new(&call, &facts, account, &self.book);
        let mut new = None;
        let (draft, decided) = match &verdict {
            Verdict::Allow(permit) => {
                let sort = sort(wanted);
                let told = self.tally().allow(&sort);
                match told {
                    Told::Itself => {}
                    Told::Counted => return self.counts_from_here_on(),
                    Told::NoRoom => return Err(self.no_room(wanted)),
                }
                new = Some(sort);
                let done = Done::value(serde_json::json!({}));
                (story(permit.account()).called(&done), Ok(()))
            }
            Verdict::Review(account) => {
                let why = format!("somebody has to agree first: {}", account.reason());
                let fix = "a connection cannot wait for that; have a rule allow it";
                let refused = Refused { why, fix: fix.to_owned() };
                (story(account).refusal(Decision::Deny), Err(refused))
            }
            Verdict::Deny(account) | Verdict::Ask(account) => {
                let help = verdict.would_allow(policy, &call);
                let fix = match help.starts_with("- ") {
                    true => format!("a policy with this:\n{help}"),
                    false => help,
                };
                let refused = Refused { why: account.reason(), fix };
                (story(account).refusal(Decision::Deny), Err(refused))
            }
        };
        if decided.is_err() && !self.is_recorded() {
            return decided;
        }
        self.record.append(draft, Durability::Synced).map_err(|error| not_recorded(&error))?;
        if let Some(sort) = new {
            self.tally().told(sort);
        }
        decided
    }

    /// The record says so before the first is let through that has no event of its own.
    fn counts_from_here_on(&self) -> Result<(), Refused> {
        let mut is_counting = self.is_counting.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_counting {
            let why = "from here on, what repeats has no event of its own: it is counted, and told \
                       when it is over";
            let draft = self.note_of(why.to_owned());
            self.record.append(draft, Durability::Synced).map_err(|error| not_recorded(&error))?;
            *is_counting = true;
        }
        Ok(())
    }

    fn no_room(&self, wanted: &Wanted) -> Refused {
        let why = "it has reached as many different hosts as the record tells of one run";
        self.note(wanted, why);
        let fix = "make several runs, or have the operator raise `recorded` of `[network]`";
        Refused { why: why.to_owned(), fix: fix.to_owned() }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more refusal has an event of its own; it is counted in either case.
    fn is_recorded(&self) -> bool {
        self.tally().refuse()
    }

    /// Something else than the policy was against it, or it went wrong.
    fn note(&self, wanted: &Wanted, why: &str) {
        if self.is_recorded() {
            match self.call_of(host_text(wanted), wanted) {
                Ok(call) => self.record_denied(&call, why),
                Err(_) => self.record_untold(&format!("{wanted} is not reached"), why),
            }
        }
    }

    /// What could not even be understood.
    fn note_unclear(&self, what: &str, why: &str) {
        if self.is_recorded() {
            self.record_untold(what, why);
        }
    }

    /// What has no event of its own, and what all of it led to and carried. It is told once.
    pub(crate) fn tell_rest(&self) {
        let Rest { refused_alike, reached } = self.tally().close();
        if refused_alike > 0 {
            let what = format!("{refused_alike} more");
            self.record_untold(&what, "no event is left for each of them");
        }
        if let Some((why, told)) = reached {
            let told = match &self.book.hidden {
                Some(hidden) => hidden.redact_json(&told),
                None => told,
            };
            let content = canonical::bytes(&told);
            let output = Some(Payload { media: "application/json".into(), content });
            let draft = Draft { output, ..self.note_of(why) };
            self.record.append(draft, Durability::Committed).ok();
        }
    }

    /// Something about the connections of the run that is no decision.
    fn note_of(&self, reason: String) -> Draft {
        Draft {
            parent: Some(self.call),
            operation: Some(connect::NAME.to_owned()),
            reason: Some(reason),
            hidden: self.book.hidden.clone(),
            ..Draft::new(Kind::Note, self.caller.clone(), now())
        }
    }

    fn record_denied(&self, call: &Call, why: &str) {
        let facts = self.facts();
        let story = Story::new(call, &facts, &Account::default(), &self.book);
        let (reason, status) = (Some(why.to_owned()), Some(Status::Blocked));
        let draft = Draft { reason, status, ..story.refusal(Decision::Deny) };
        // It is refused in any case. A record that takes nothing more refuses what comes next.
        self.record.append(draft, Durability::Synced).ok();
    }

    /// The same of what no call can be made of.
    fn record_untold(&self, what: &str, why: &str) {
        let problem = Problem::new(what, why, "").of(ProblemKind::Blocked);
        let refusal = story::refusal(&self.caller, connect::NAME, &problem);
        let draft = Draft { parent: Some(self.call), ..refusal };
        self.record.append(draft, Durability::Synced).ok();
    }
}

fn sort(wanted: &Wanted) -> Sort {
    let (protocol, method) = (wanted.protocol, wanted.method.clone());
    Sort { host: host_text(wanted), protocol, method }
}

fn not_recorded(error: &AppendError) -> Refused {
    let fix = "see that hotcell's home can be written and has room".to_owned();
    Refused { why: format!("it cannot be recorded: {error}"), fix }
}

fn spoken(protocol: Protocol) -> connect::Protocol {
    match protocol {
        Protocol::Http => connect::Protocol::Http,
        Protocol::Https => connect::Protocol::Https,
        Protocol::Tcp => connect::Protocol::Tcp,
    }
}

/// Why something is refused, and what would allow it.
struct Refused {
    why: String,
    fix: String,
}

impl Refused {
    fn not_understood(error: &dyn std::fmt::Display) -> Refused {
        let fix = "ask for it in the usual way: GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS";
        Refused { why: error.to_string(), fix: fix.to_owned() }
    }
}

impl Judge for Border {
    fn judge(&self, wanted: &Wanted) -> Ruling {
        if let Some(Refused { why, fix }) = self.in_the_open(wanted) {
            return Ruling::Refuse { why, fix };
        }
        if wanted.is_tunnel() && self.looks_into(wanted) {
            // Nothing is reached by that; each request in it is asked for.
            return Ruling::Allow { intercept: true, raw: false };
        }
        match self.decide(wanted) {
            Ok(()) => {
                let is_usual = USUAL_PORTS.contains(&wanted.port);
                let raw = wanted.is_tunnel() && !is_usual && self.names_any(wanted);
                Ruling::Allow { intercept: false, raw }
            }
            Err(Refused { why, fix }) => Ruling::Refuse { why, fix },
        }
    }

    fn names(&self, address: IpAddr, wanted: &Wanted) -> bool {
        let call = self.call_of(with_port(in_text(address), wanted.port), wanted);
        let Ok(call) = call else { return false };
        let is_named = self.allows_by_name(&call);
        if !is_named && self.is_recorded() {
            // By the address, since that is what a rule would have to name.
            self.record_denied(&call, "it is internal, and no rule names this very address");
        }
        is_named
    }

    fn refuses(&self, address: IpAddr, wanted: &Wanted) -> Option<(String, String)> {
        let call = self.call_of(with_port(in_text(address), wanted.port), wanted).ok()?;
        let facts = self.facts();
        let (rule, why) = self.book.policy.refuses_host(&call, &facts)?;
        let why = format!("it leads to {address}, and `{rule}` is against that: {why}");
        if self.is_recorded() {
            self.record_denied(&call, &why);
        }
        Some((why, format!("change the rule `{rule}`, if it is not meant")))
    }

    fn happened(&self, event: &Event) {
        match event {
            Event::Allowed { wanted, addresses, .. } => {
                self.count(|traffic| traffic.allowed += 1);
                if !addresses.is_empty() {
                    let addresses = addresses.iter().map(SocketAddr::ip);
                    self.tally().led_to(&host_text(wanted), addresses);
                }
            }
            Event::Refused { wanted: None, refusal, .. } => {
                self.count(|traffic| traffic.refused += 1);
                self.tell(&refusal.what, &refusal.why, &refusal.fix);
                self.note_unclear(&refusal.what, &refusal.why);
            }
            Event::Refused { wanted: Some(wanted), refusal, .. } => {
                self.count(|traffic| traffic.refused += 1);
                self.tell(&host_text(wanted), &refusal.why, &refusal.fix);
                // What the policy refused is recorded already.
                if !matches!(refusal.kind, NotReached::Policy | NotReached::Internal(_)) {
                    self.note(wanted, &refusal.why);
                }
            }
            Event::Ended { wanted, up, down, how, .. } => {
                self.count(|traffic| {
                    traffic.up = traffic.up.saturating_add(*up);
                    traffic.down = traffic.down.saturating_add(*down);
                });
                if let (Some(wanted), 1..) = (wanted, up.saturating_add(*down)) {
                    self.tally().carried(&host_text(wanted), *up, *down);
                }
                if let (Some(wanted), Some(why)) = (wanted, broken_off(*how)) {
                    self.tell(&host_text(wanted), why, "keep to what a connection to it is for");
                    self.note(wanted, why);
                }
            }
            Event::Malformed { why } => {
                self.count(|traffic| traffic.refused += 1);
                self.note_unclear("the proxy does not take it", &why.to_string());
            }
            Event::Lost { why } => {
                self.count(|traffic| traffic.lost += 1);
                self.tally().lose();
                if self.is_recorded() {
                    let why =
                        format!("the run's proxy was lost, and each connection with it: {why}");
                    self.record.append(self.note_of(why), Durability::Committed).ok();
                }
            }
            Event::Restored => {}
        }
    }
}

/// Why something that was allowed had to end.
fn broken_off(how: How) -> Option<&'static str> {
    match how {
        How::Proxy(End::NotTls) => Some("what came through the tunnel was not TLS"),
        How::Proxy(End::OtherName) => Some("what came through the tunnel was for another host"),
        How::Proxy(End::OverUp) => Some("the run has sent all that it may send"),
        How::Proxy(End::OverDown) => Some("the run has been sent all that it may be sent"),
        _ => None,
    }
}

/// The one tool that connections are judged as.
static TOOLS: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::new();
    if let Ok(tool) = connect::tool() {
        // Without it no call can be made, and nothing is reached.
        registry.register(tool).ok();
    }
    registry
});

/// As policies write hosts.
fn host_text(wanted: &Wanted) -> String {
    with_port(wanted.host.to_string(), wanted.port)
}

fn in_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

pub(crate) fn with_port(host: String, port: u16) -> String {
    if USUAL_PORTS.contains(&port) { host } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests;
