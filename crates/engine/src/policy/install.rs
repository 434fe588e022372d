//! Another policy takes the place of the one that holds: written beside, recorded with its signature, put
//! in its place. Whoever comes next finishes that if this process does not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use hotcell_approver::{ItemId, Public, SignedPolicy};
use hotcell_policy::{Loaded, Snapshot};
use hotcell_record::{Draft, Durability, Kind, Payload, Record, WriteError, now};
use hotcell_request::{Call, canonical};
use hotcell_review::versions::{self, Rules, Version};
use hotcell_review::{self as review, Given, Terms};
use hotcell_tools::policy::Update;
use hotcell_types::{Caller, Name, Status, hex};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde_json::json;

use super::Statement;
use crate::engine::Engine;
use crate::path::not_recorded;
use crate::reply::{Problem, ProblemKind, Reply};
use crate::rulebook::{
    Finished, LOOK_AGAIN, Look, PATIENCE, POLICY_FILE, approvers, named_by, newest, not_looked_up,
    read,
};
use crate::spend::Unspent;
use crate::story;

/// An answer that goes along with the policy that it is about.
struct Answered {
    item: ItemId,
    given: Given,
    terms: Terms,
    call: Box<Call>,
}

impl Engine {
    /// What has to be signed for these rules to be the next version.
    pub(super) fn statement(&self, rules: &Rules) -> Result<Statement, Problem> {
        let record = self.recording()?;
        let last = record.look(|conn| versions::newest_number(conn).map_err(Look::from));
        let last = last.map_err(|error| not_looked_up(&error))?;
        Ok(versions::statement(rules, record.home_id().0, last, now()))
    }

    /// Who tried to change the policy, and may not, is for the approvers to know: on the disk before it is told.
    pub(super) fn told_if_refused(
        &self,
        caller: &Caller,
        installed: Result<u64, Problem>,
    ) -> Result<u64, Problem> {
        installed.inspect_err(|problem| {
            if matches!(problem.kind, ProblemKind::Blocked | ProblemKind::Error) {
                let operation = hotcell_tools::policy::NAME;
                self.record_now(story::refusal(caller, operation, problem)).ok();
            }
        })
    }

    pub(super) fn install(
        &self,
        caller: &Caller,
        version: Version,
        loaded: &Loaded,
        accepted: Option<&str>,
    ) -> Result<u64, Problem> {
        self.not_set_by_others()?;
        self.is_accepted(caller, &version.rules, &loaded.snapshot, accepted)?;
        let _alone = self.rulebook.changing();
        self.put_in_place(caller, version, loaded, None)
    }

    /// Makes proposed rules the policy: the answer to the item, its use, and the version are one step.
    pub(super) fn install_approved(
        &self,
        caller: &Caller,
        item: ItemId,
        given: Given,
        signed: SignedPolicy,
        accepted: Option<&str>,
    ) -> Result<u64, Problem> {
        self.not_set_by_others()?;
        let (call, rules) = self.proposed_by(caller, item)?;
        let loaded = self.usable(&rules)?;
        self.is_accepted(caller, &rules, &loaded.snapshot, accepted)?;
        let _alone = self.rulebook.changing();
        let terms = self.terms(&*self.book()?)?;
        let answered = Answered { item, given, terms, call: Box::new(call) };
        self.put_in_place(caller, Version { rules, signed }, &loaded, Some(answered))
    }

    /// The call of an item, and the rules that it proposes.
    pub(super) fn proposed_by(
        &self,
        caller: &Caller,
        item: ItemId,
    ) -> Result<(Call, Rules), Problem> {
        let found = self.recording()?.look(|conn| -> Result<_, Look> {
            let found = review::get(conn, &caller.tenant, item)?;
            Ok((found, review::stored_call(conn, &caller.tenant, item)?))
        });
        let (Some(found), Some(bytes)) = found.map_err(|error| not_looked_up(&error))? else {
            let why = format!("item {item} is over");
            return Err(refused(why, "`hotcell approvals` lists what waits"));
        };
        // What is signed has to be what was shown.
        let call = self.stored(&found, &bytes)?;
        let rules = proposed(&call)?;
        Ok((call, rules))
    }

    /// Whether a proposal is one that could be installed, before it is put before anybody.
    pub(crate) fn could_be_installed(&self, call: &Call) -> Result<(), Problem> {
        let rules = proposed(call)?;
        let loaded = self.usable(&rules)?;
        names_somebody(&loaded)?;
        has_its_sources(&rules, &loaded.snapshot)
    }

    /// A proposed policy is agreed to by signing it.
    pub(crate) fn needs_no_policy(
        &self,
        tenant: &Name,
        id: ItemId,
        given: &Given,
    ) -> Result<(), Problem> {
        if given.verdict == review::Verdict::Reject {
            return Ok(());
        }
        let item = self.recording()?.look(|conn| {
            if !review::is_current(conn)? {
                return Ok(None);
            }
            review::get(conn, tenant, id).map_err(Look::from)
        });
        let item = item.map_err(|error| not_looked_up(&error))?;
        if item.is_some_and(|item| item.kind == review::Kind::Policy) {
            let why = "it is a policy, and the approver has to sign that as well";
            return Err(refused(why.into(), "`hotcell approve` signs both"));
        }
        Ok(())
    }

    /// The first fault of rules that cannot be used.
    fn usable(&self, rules: &Rules) -> Result<Loaded, Problem> {
        self.compiled(rules).map_err(|faults| {
            let why = faults.first().map(ToString::to_string).unwrap_or_default();
            Problem::new("these rules cannot be used", why, "correct them").of(ProblemKind::Invalid)
        })
    }

    pub(super) fn not_set_by_others(&self) -> Result<(), Problem> {
        if !self.rulebook.is_set() {
            return Ok(());
        }
        let why = "the program that embeds hotcell has set the policy itself";
        Err(refused(why.into(), "ask that program"))
    }

    /// Nobody else in this process judges or changes anything meanwhile.
    fn put_in_place(
        &self,
        caller: &Caller,
        version: Version,
        loaded: &Loaded,
        answered: Option<Answered>,
    ) -> Result<u64, Problem> {
        let number = version.number();
        let path = self.rulebook.path().to_owned();
        let beside = beside(&path);
        let _lock = self.lock_policy()?;
        let old = newest(self.recording()?)?;
        let signer = self.may_follow(old.as_ref(), &version, loaded)?;
        // One that does not start would refuse everything from then on.
        drop(self.extension_of(&loaded.snapshot, &version.rules)?);
        let draft = changed(caller, old.as_ref(), &version, &signer, answered.as_ref());
        write_beside(&beside, &version.rules.text).map_err(|error| not_written(&beside, &error))?;
        let recorded = self.recording()?.write(Durability::Synced, move |tx| {
            review::migrate(tx)?;
            let mut drafts = match answered {
                Some(answered) => answered.settle(tx, number)?,
                None => Vec::new(),
            };
            versions::add(tx, &version)?;
            drafts.push(draft);
            Ok::<_, Unspent>(((), drafts))
        });
        if let Err(error) = recorded {
            // What is not recorded is not the next version, whether it lies there or not.
            fs::remove_file(&beside).ok();
            return Err(match error {
                WriteError::Own(error) => {
                    refused(error.to_string(), "`hotcell policy show` tells what holds")
                }
                WriteError::Append(error) => not_recorded(&error),
            });
        }
        rename(&beside, &path).map_err(|error| not_written(&path, &error))?;
        self.reload().map(|book| book.number)
    }

    /// Whether it is the next version, signed by one who may, and leaves somebody to sign the one after.
    fn may_follow(
        &self,
        old: Option<&Version>,
        new: &Version,
        loaded: &Loaded,
    ) -> Result<Public, Problem> {
        has_its_sources(&new.rules, &loaded.snapshot)?;
        let (number, last) = (new.number(), old.map_or(0, Version::number));
        if number != last + 1 {
            let why =
                format!("it was signed as version {number}, and the next one is {}", last + 1);
            return Err(refused(why, "have it signed again: `hotcell policy sign`"));
        }
        let named = approvers(loaded.snapshot.approvers())?;
        let before = match old {
            Some(old) => named_by(old)?,
            None => named.clone(),
        };
        names_somebody(loaded)?;
        let home = self.recording()?.home_id();
        let signer = versions::check(new, &home.0, &before)
            .map_err(|error| refused(error.to_string(), "have it signed by an approver"))?;
        if named.by_key(signer.key()).is_none() {
            let why = format!(
                "it does not name `{}`, who signed it: nobody else has shown to be able to sign",
                signer.name()
            );
            let fix =
                "keep that approver in it; another one can sign the version that leaves it out";
            return Err(refused(why, fix));
        }
        Ok(signer.clone())
    }

    /// Puts a version in its place that was recorded, and then its process ended. Nobody is waited for who is
    /// changing the policy now.
    pub(crate) fn finish_install(&self) -> Result<Finished, Problem> {
        let path = self.rulebook.path().to_owned();
        let beside = beside(&path);
        if fs::symlink_metadata(&beside).is_err() {
            return Ok(Finished::Nothing);
        }
        let Some(_lock) = self.try_to_lock_policy()? else { return Ok(Finished::Busy) };
        let Some(version) = newest(self.recording()?)? else { return Ok(Finished::Nothing) };
        let is_it = |path: &Path| read(path).is_ok_and(|is| is == version.rules.text.as_bytes());
        // Otherwise somebody else was faster, or it is not what was signed.
        if !is_it(&path) && is_it(&beside) {
            rename(&beside, &path).map_err(|error| not_written(&path, &error))?;
            return Ok(Finished::Done);
        }
        Ok(Finished::Nothing)
    }

    fn try_to_lock_policy(&self) -> Result<Option<File>, Problem> {
        let home = self.home();
        let unreadable = |error: io::Error| not_written(home, &error);
        let file = File::open(home).map_err(unreadable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(unreadable(error.into())),
        }
    }

    /// One process at a time, of those that use this home.
    fn lock_policy(&self) -> Result<File, Problem> {
        let home = self.home();
        let locked = || -> io::Result<File> {
            let file = File::open(home)?;
            let deadline = Instant::now() + PATIENCE;
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(file),
                    Err(error) if Instant::now() >= deadline => return Err(error.into()),
                    Err(_) => thread::sleep(LOOK_AGAIN),
                }
            }
        };
        locked().map_err(|error| {
            let why = format!("another process holds it: {error}");
            Problem::new("the policy cannot be changed now", why, "try again").of(ProblemKind::Busy)
        })
    }
}

impl Answered {
    /// The answer, its use, and what whoever waits is told.
    fn settle(self, tx: &review::Transaction<'_>, number: u64) -> Result<Vec<Draft>, Unspent> {
        let Answered { item, given, terms, call } = self;
        let (clock, tenant) = (now(), call.caller().tenant.clone());
        let (_, mut drafts) = review::answer(tx, &terms, &tenant, item, given, clock)?;
        let (grant, events) = review::take_grant(tx, &terms, item, &call, clock)?;
        drafts.extend(events);
        let reply = Reply {
            value: Some(json!({ "version": number })),
            review: Some(item),
            ..Reply::new(grant.item().call, Status::Success)
        };
        review::finish(tx, &tenant, item, &serde_json::to_value(reply).unwrap_or_default())?;
        Ok(drafts)
    }
}

/// What a call proposes.
fn proposed(call: &Call) -> Result<Rules, Problem> {
    let update = Update::of(call.args());
    let update = update.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
    Ok(Rules { text: update.rules, extensions: update.extensions })
}

fn names_somebody(loaded: &Loaded) -> Result<(), Problem> {
    if !loaded.snapshot.approvers().is_empty() {
        return Ok(());
    }
    let why = "it names no approver, so that nobody could ever change it again";
    Err(refused(why.into(), "name one: `approvers:` with the approver's line"))
}

/// Sources for exactly the extensions that the text names.
pub(super) fn has_its_sources(rules: &Rules, policy: &Snapshot) -> Result<(), Problem> {
    let named = policy.extensions();
    let missing = named.iter().find(|name| !rules.extensions.contains_key(*name));
    let unknown = rules.extensions.keys().find(|name| !named.contains(name));
    let (name, why) = match (missing, unknown) {
        (Some(name), _) => (name, "its source is not there"),
        (None, Some(name)) => (name, "the rules do not name it"),
        (None, None) => return Ok(()),
    };
    let what = format!("the extension `{name}` cannot be used");
    Err(Problem::new(what, why, "name it under `extensions:`, and give its source")
        .of(ProblemKind::Invalid))
}

/// The event: what holds from now on, instead of what, and who said so.
fn changed(
    caller: &Caller,
    old: Option<&Version>,
    new: &Version,
    signer: &Public,
    answered: Option<&Answered>,
) -> Draft {
    let mut draft = Draft::new(Kind::PolicyChanged, caller.clone(), now());
    let digest = |version: &Version| hex::text(&version.rules.digest());
    let (number, is) = (new.number(), digest(new));
    let was = old.map(digest);
    draft.call = answered.map(|answered| answered.call.id());
    draft.operation = Some(hotcell_tools::policy::NAME.to_owned());
    draft.status = Some(Status::Success);
    draft.reason = Some(format!(
        "version {number} holds, signed by {} ({}): {is} after {}",
        signer.name(),
        signer.fingerprint(),
        was.as_deref().unwrap_or("none"),
    ));
    let document = json!({
        "version": number,
        "old": was,
        "new": is,
        "signer": signer.fingerprint().to_string(),
        "signature": new.signed.to_string(),
    });
    let content = canonical::bytes(&document);
    draft.output = Some(Payload { media: "application/json".into(), content });
    draft
}

/// Puts the copy for people where it belongs, of a record that came from elsewhere.
pub(crate) fn put_copy(record: &Record, home: &Path) -> Result<(), Problem> {
    let Some(version) = newest(record)? else { return Ok(()) };
    let path = home.join(POLICY_FILE);
    let beside = beside(&path);
    let put = write_beside(&beside, &version.rules.text).and_then(|()| rename(&beside, &path));
    put.map_err(|error| not_written(&path, &error))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("yaml.new")
}

fn write_beside(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut new = OpenOptions::new();
    let mut file = new.write(true).create_new(true).mode(0o600).custom_flags(flags).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let directory = to.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn refused(why: String, fix: &str) -> Problem {
    Problem::new("this does not become the policy", why, fix).of(ProblemKind::Blocked)
}

fn not_written(path: &Path, error: &io::Error) -> Problem {
    let what = format!("`{}` cannot be written", path.display());
    Problem::new(what, error.to_string(), "see that the home is yours and has room")
}
