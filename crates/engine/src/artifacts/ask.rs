//! What can be asked about artifacts. What is read is compared with the chain before it is given out;
//! what is written is an event of whoever wrote it.

use std::path::PathBuf;
use std::str::FromStr;

use hotcell_ledger::{
    self as ledger, Artifact, ArtifactId, ArtifactName, Aspect, Content, Details, Edge, Error,
    Exported, Filter, Lineage, Note, Page, Ruling, Search, Statement, StoreError, Tag, Target,
    Transaction,
};
use hotcell_record::{
    Durability, Event, Filter as Events, Kind, ReadError, Record, WriteError, now,
};
use hotcell_types::{Caller, Name, Status};

use crate::artifacts::verify::{Checked, LookError, NEWER, not_read, verify_artifacts};
use crate::artifacts::{Artifacts, Origin, of_row};
use crate::engine::new_id;
use crate::reply::Problem;

/// An artifact: by its id, or by its name and perhaps a version, without which it is the newest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    Id(ArtifactId),
    Named { name: ArtifactName, version: Option<u64> },
}

impl FromStr for Which {
    type Err = String;

    /// What looks like an id is one, and a number after the last `@` is a version.
    fn from_str(text: &str) -> Result<Which, String> {
        if let Ok(id) = text.parse() {
            return Ok(Which::Id(id));
        }
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (name, version) = match text.rsplit_once('@') {
            Some((name, version)) if is_number(version) => {
                let number = version.parse().map_err(|_| "its version is too large: write less")?;
                (name, Some(number))
            }
            _ => (text, None),
        };
        let name = name.parse::<ArtifactName>().map_err(|error| error.to_string())?;
        Ok(Which::Named { name, version })
    }
}

/// Everything that can be asked about artifacts.
#[derive(Debug)]
pub enum ArtifactAsk {
    /// Those that were registered last, or that fit the words best, come first. Words have one page.
    List {
        filter: Box<Filter>,
        words: Option<Search>,
        page: Page,
    },
    Details(Which),
    /// All of its content, as a stream.
    Content(Which),
    /// Some of its content.
    Range {
        which: Which,
        from: u64,
        length: u64,
    },
    Lineage {
        which: Which,
        depth: u32,
    },
    /// Contents as files in a directory that is empty or not there yet, with a list of what is known of them.
    Export {
        filter: Box<Filter>,
        to: PathBuf,
    },
    Verify,
    Tag {
        which: Which,
        tag: Tag,
    },
    Untag {
        which: Which,
        tag: Tag,
    },
    Judge {
        which: Which,
        aspect: Aspect,
        ruling: Ruling,
        note: Option<Note>,
    },
    /// Makes an old version the newest.
    Rollback {
        name: ArtifactName,
        version: u64,
    },
}

/// The one answer to each.
#[derive(Debug)]
pub enum ArtifactAnswer {
    Listed(Vec<Artifact>),
    Details(Box<Details>),
    Content {
        artifact: Box<Artifact>,
        content: Content,
    },
    Range {
        artifact: Box<Artifact>,
        bytes: Vec<u8>,
    },
    /// The artifact, what is round it, and every artifact that occurs there.
    Lineage {
        artifact: Box<Artifact>,
        lineage: Lineage,
        others: Vec<Artifact>,
    },
    Exported(Exported),
    Verified(Checked),
    /// What it is now, and whether it was something else before.
    Written {
        artifact: Box<Artifact>,
        is_changed: bool,
    },
    /// There is no such artifact.
    Absent(Problem),
}

/// Why there is no answer.
enum Refused {
    Absent(Problem),
    Failed(Problem),
}

type Asked<T> = Result<T, Refused>;

impl Artifacts {
    /// Answers what is asked for, or says why not.
    pub fn ask(
        &self,
        record: &Record,
        caller: &Caller,
        ask: ArtifactAsk,
    ) -> Result<ArtifactAnswer, Problem> {
        match self.answer(record, caller, ask) {
            Ok(answer) => Ok(answer),
            Err(Refused::Absent(problem)) => Ok(ArtifactAnswer::Absent(problem)),
            Err(Refused::Failed(problem)) => Err(problem),
        }
    }

    fn answer(&self, record: &Record, caller: &Caller, ask: ArtifactAsk) -> Asked<ArtifactAnswer> {
        let tenant = &caller.tenant;
        if !matches!(ask, ArtifactAsk::Verify) {
            prepare(record)?;
        }
        match ask {
            ArtifactAsk::List { filter, words, page } => {
                let filter = Filter { tenant: tenant.clone(), ..*filter };
                let listed = look(record, |conn| match &words {
                    Some(words) => ledger::search(conn, &filter, words, page.limit),
                    None => ledger::list(conn, &filter, page),
                })?;
                Ok(ArtifactAnswer::Listed(listed))
            }
            ArtifactAsk::Details(which) => {
                Ok(ArtifactAnswer::Details(Box::new(details(record, tenant, &which)?)))
            }
            ArtifactAsk::Content(which) => {
                let artifact = kept(record, tenant, &which)?;
                let store = self.store().map_err(of_store)?;
                let content = look(record, |conn| store.content(conn, &artifact.blob))?;
                Ok(ArtifactAnswer::Content { artifact, content })
            }
            ArtifactAsk::Range { which, from, length } => {
                let artifact = kept(record, tenant, &which)?;
                let store = self.store().map_err(of_store)?;
                let bytes = look(record, |conn| store.range(conn, &artifact.blob, from, length))?;
                Ok(ArtifactAnswer::Range { artifact, bytes })
            }
            ArtifactAsk::Lineage { which, depth } => lineage(record, tenant, &which, depth),
            ArtifactAsk::Export { filter, to } => {
                let filter = Filter { tenant: tenant.clone(), ..*filter };
                let store = self.store().map_err(of_store)?;
                // Nothing is swept meanwhile.
                let _held = store.hold().map_err(of_store)?;
                let exported = look(record, |conn| ledger::export(conn, store, &filter, &to))?;
                Ok(ArtifactAnswer::Exported(exported))
            }
            ArtifactAsk::Verify => {
                let checked = verify_artifacts(record.home()).map_err(Refused::Failed)?;
                Ok(ArtifactAnswer::Verified(checked))
            }
            ArtifactAsk::Tag { which, tag } => {
                change(record, caller, "artifact.tag", &which, move |tx, origin, id| {
                    let tagged = ledger::tag(tx, &origin.by(), id, tag)?;
                    Ok(tagged.map(|(_, said)| (id, said)))
                })
            }
            ArtifactAsk::Untag { which, tag } => {
                change(record, caller, "artifact.untag", &which, move |tx, origin, id| {
                    let untagged = ledger::untag(tx, &origin.by(), id, tag)?;
                    Ok(untagged.map(|(_, said)| (id, said)))
                })
            }
            ArtifactAsk::Judge { which, aspect, ruling, note } => {
                change(record, caller, "artifact.judge", &which, move |tx, origin, id| {
                    let judged = ledger::judge(tx, &origin.by(), id, aspect, ruling, note)?;
                    Ok(Some((id, judged.1)))
                })
            }
            ArtifactAsk::Rollback { name, version } => {
                let which = Which::Named { name: name.clone(), version: Some(version) };
                change(record, caller, "artifact.rollback", &which, move |tx, origin, _| {
                    let (by, call) = (origin.by(), origin.call);
                    let (artifact, said) = ledger::rollback(tx, by, call, &name, version)?;
                    Ok(Some((artifact.id, said)))
                })
            }
        }
    }
}

/// What a row is about, and what it says.
type Row = (ArtifactId, Statement);

/// Writes a row with its event, which has the caller. If there is nothing to write, nothing is recorded.
fn change(
    record: &Record,
    caller: &Caller,
    operation: &'static str,
    which: &Which,
    rows: impl FnOnce(&Transaction<'_>, &Origin, ArtifactId) -> Result<Option<Row>, Error>
    + Send
    + 'static,
) -> Asked<ArtifactAnswer> {
    let id = details(record, &caller.tenant, which)?.artifact.id;
    let origin = Origin { call: new_id(), caller: caller.clone(), tool: None, time: now() };
    let write = move |tx: &Transaction<'_>| {
        let Some((id, statement)) = rows(tx, &origin, id)? else { return Ok((None, Vec::new())) };
        let mut draft = of_row(&origin, &statement);
        draft.operation = Some(operation.to_owned());
        draft.status = Some(Status::Success);
        Ok((Some(id), vec![draft]))
    };
    let written = record.write(Durability::Synced, write);
    let (new, _) = written.map_err(|error| not_written("nothing was changed", error))?;
    let which = Which::Id(new.unwrap_or(id));
    let artifact = Box::new(details(record, &caller.tenant, &which)?.artifact);
    Ok(ArtifactAnswer::Written { artifact, is_changed: new.is_some() })
}

/// Makes the tables, where nothing was ever registered.
fn prepare(record: &Record) -> Asked<()> {
    if look(record, ledger::is_current)? {
        return Ok(());
    }
    let made = record.write(Durability::Committed, |tx| {
        ledger::migrate(tx)?;
        Ok::<_, Error>(((), Vec::new()))
    });
    made.map(drop).map_err(|error| not_written("the artifacts have no tables yet", error))
}

fn not_written(what: &str, error: WriteError<Error>) -> Refused {
    match error {
        WriteError::Own(error) => of_ledger(error),
        WriteError::Append(error) => {
            let fix = "make room for the record, or repair it: `hotcell audit verify`";
            Refused::Failed(Problem::new(what, error.to_string(), fix))
        }
    }
}

fn look<T>(
    record: &Record,
    look: impl FnOnce(&ledger::Connection) -> Result<T, Error>,
) -> Asked<T> {
    record.look(|conn| look(conn).map_err(LookError::from)).map_err(|error| match error {
        LookError::Ledger(error) => of_ledger(error),
        error => Refused::Failed(not_read(&error)),
    })
}

/// The artifact, if it is what the chain says of it.
fn details(record: &Record, tenant: &Name, which: &Which) -> Asked<Details> {
    let found = look(record, |conn| {
        let id = match which {
            Which::Id(id) => Some(*id),
            Which::Named { name, version } => {
                ledger::find(conn, tenant, name, *version)?.map(|artifact| artifact.id)
            }
        };
        id.map_or(Ok(None), |id| ledger::get(conn, tenant, id))
    })?;
    let details = found.ok_or_else(|| Refused::Absent(absent(which)))?;
    let statement = details.statement();
    let stated = stated(record, &details.artifact, &statement.row().to_string())
        .map_err(|error| Refused::Failed(not_read(&error.into())))?;
    ledger::verify_row(&statement, stated).map_err(|fault| {
        let fix = "`hotcell artifact verify` lists everything that is not as it was";
        let what = format!("`{}` is not given out", details.artifact.name);
        Refused::Failed(Problem::new(what, fault.to_string(), fix))
    })?;
    Ok(details)
}

/// What the chain says of a row of an artifact's call.
fn stated(
    record: &Record,
    artifact: &Artifact,
    row: &str,
) -> Result<Option<ledger::Digest>, ReadError> {
    let mut events = Events {
        call: Some(artifact.call),
        kind: Some(Kind::ArtifactAdded),
        ..Events::of(artifact.tenant.clone())
    };
    loop {
        let page = record.events(&events)?;
        let Some(last) = page.last() else { return Ok(None) };
        events.after = last.seq;
        if let Some(said) = page.iter().filter_map(Event::stated).find(|said| said.row == row) {
            return Ok(Some(ledger::Digest::from_bytes(said.digest.0)));
        }
    }
}

/// The same, if there is a content to give out.
fn kept(record: &Record, tenant: &Name, which: &Which) -> Asked<Box<Artifact>> {
    let artifact = Box::new(details(record, tenant, which)?.artifact);
    let is_there = look(record, |conn| ledger::is_referenced(conn, &artifact.blob.digest))?;
    if artifact.is_kept && is_there {
        return Ok(artifact);
    }
    if artifact.is_kept {
        let what = format!("the content of `{}` is not there any more", artifact.name);
        let fix = "tag what is to stay: `hotcell artifact tag`";
        return Err(Refused::Failed(Problem::new(what, "it was removed to make room", fix)));
    }
    let what = format!("the content of `{}` was not kept", artifact.name);
    let why = format!("{} bytes were too much, or it was only looked at", artifact.blob.size);
    let fix = "its digest and its size are known: `hotcell artifact ls --json`";
    Err(Refused::Failed(Problem::new(what, why, fix)))
}

fn lineage(record: &Record, tenant: &Name, which: &Which, depth: u32) -> Asked<ArtifactAnswer> {
    let artifact = Box::new(details(record, tenant, which)?.artifact);
    let (lineage, others) = look(record, |conn| {
        let lineage = ledger::lineage(conn, tenant, artifact.id, depth)?;
        let links = lineage.ancestors.iter().chain(&lineage.descendants);
        let ids = links.flat_map(|link| [Some(link.from), artifact_of(&link.edge)]).flatten();
        let mut ids: Vec<ArtifactId> = ids.collect();
        ids.sort();
        ids.dedup();
        let mut others = Vec::with_capacity(ids.len());
        for id in ids {
            others.extend(ledger::get(conn, tenant, id)?.map(|details| details.artifact));
        }
        Ok((lineage, others))
    })?;
    Ok(ArtifactAnswer::Lineage { artifact, lineage, others })
}

fn artifact_of(edge: &Edge) -> Option<ArtifactId> {
    match edge.to {
        Target::Artifact(id) => Some(id),
        _ => None,
    }
}

fn absent(which: &Which) -> Problem {
    let what = match which {
        Which::Id(id) => format!("there is no artifact {id}"),
        Which::Named { name, version: None } => format!("there is no artifact `{name}`"),
        Which::Named { name, version: Some(version) } => {
            format!("there is no version {version} of `{name}`")
        }
    };
    Problem::new(what, "", "`hotcell artifact ls` lists them")
}

fn of_store(error: StoreError) -> Refused {
    of_ledger(error.into())
}

fn of_ledger(error: Error) -> Refused {
    let fix = match &error {
        Error::NoArtifact(id) => return Refused::Absent(absent(&Which::Id(*id))),
        Error::Store(StoreError::Missing(_) | StoreError::Tampered { .. }) => {
            "`hotcell artifact verify` lists everything that is not as it was"
        }
        Error::Store(StoreError::Full { .. } | StoreError::Busy) => "make room, or try again later",
        Error::Export(_) => "give a directory of yours that is empty, or not there yet",
        Error::TooMany { .. } => "use another artifact",
        Error::Newer { .. } => NEWER,
        _ => "`hotcell audit verify` says more",
    };
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    let why = format!("{error}{}", cause.unwrap_or_default());
    Refused::Failed(Problem::new("it cannot be done", why, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_picked_by_id_by_name_or_by_version() {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert!(matches!(id.parse(), Ok(Which::Id(found)) if found.to_string() == id));
        for (text, name, version) in [
            ("a.py", "a.py", None),
            ("a.py@3", "a.py", Some(3)),
            ("a@3@4", "a@3", Some(4)),
            ("user@host", "user@host", None),
            ("a@", "a@", None),
            ("a@-1", "a@-1", None),
            ("dir/ü:stdout@1", "dir/ü:stdout", Some(1)),
        ] {
            let Ok(Which::Named { name: found, version: number }) = text.parse() else {
                panic!("{text}")
            };
            assert_eq!((found.as_str(), number), (name, version), "{text}");
        }
        for bad in ["", "@1", "a\nb", "a@99999999999999999999", &"x".repeat(2000)] {
            assert!(bad.parse::<Which>().is_err(), "{bad}");
        }
    }
}
