//! What calls were given and what they made, as rows of the ledger that the chain vouches for. Large
//! contents are on the disk before a row speaks of them; rows, small contents and the events about them
//! are one transaction with the intent or the outcome.

mod ask;
#[cfg(test)]
mod tests;
mod verify;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotcell_ledger::{
    self as ledger, Artifact, ArtifactName, Blob, By, Edge, Error, Hold, MAX_EDGES, NewArtifact,
    Relation, Role, RowId, Statement, Store, StoreError, Stored, Target, ToolName, Transaction,
    Type,
};
use hotcell_record::{
    AppendError, Draft, Durability, Intent, Kind, Receipt, Record, Stated, WriteError,
};
use hotcell_types::{CallId, Caller};

use crate::spend::{Spend, Unspent};

use crate::backup::for_each_content;
use crate::changes::Part;
use crate::once::Ending;

pub use ask::{ArtifactAnswer, ArtifactAsk, Which};
pub use verify::{Checked, MOST_TOLD, verify_artifacts};
pub(crate) use verify::{LookError, not_read};

/// Most artifacts that a call is given, and that it makes.
pub const MOST_ARTIFACTS: usize = 1000;
/// Most bytes whose contents are kept of what a call is given, and of what it makes.
pub const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// Longest name; what is longer is cut, and says so.
const MOST_NAME: usize = 1024;
/// The directory in a home.
pub(crate) const DIRECTORY: &str = "artifacts";

/// The artifacts of a home. Nothing is made on the disk before there is something to keep there.
#[derive(Debug)]
pub struct Artifacts {
    directory: PathBuf,
    /// Most bytes of contents with which large inputs are still kept.
    quota: u64,
    store: OnceLock<Store>,
}

/// The call that artifacts come from.
#[derive(Debug, Clone)]
pub struct Origin {
    pub call: CallId,
    pub caller: Caller,
    /// `name@version`.
    pub tool: Option<String>,
    /// Nanoseconds since 1970.
    pub time: i64,
}

/// Something that a call was given or made.
#[derive(Debug)]
pub struct Product {
    pub role: Role,
    pub name: String,
    pub content: Content,
    /// What it came from besides what every product of the call came from.
    pub edges: Vec<Edge>,
    /// What whoever reads the record should know: that its end is missing, for instance.
    pub note: Option<String>,
}

/// What is known of a content.
#[derive(Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    /// Nobody writes to the file, and it is kept as long as there is room in the home.
    File {
        blob: Blob,
        file: File,
    },
    Stored(Stored),
    /// It is not kept.
    Known(Blob),
}

/// What a call was given, as it was registered.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub artifacts: Vec<Artifact>,
}

/// Whether a run could read what nobody has recorded: a network, a working copy, a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Nothing but what it was given, and the system's own files.
    Given,
    More,
}

impl Origin {
    fn by(&self) -> By {
        let Caller { tenant, subject, .. } = &self.caller;
        By { tenant: tenant.clone(), subject: subject.clone(), time: self.time }
    }
}

impl Product {
    pub fn new(role: Role, name: impl Into<String>, content: Content) -> Product {
        Product { role, name: name.into(), content, edges: Vec::new(), note: None }
    }

    /// Whether it is what was registered.
    pub(crate) fn is(&self, artifact: &Artifact) -> bool {
        artifact.role == self.role && artifact.blob == self.content.blob()
    }

    /// Keeps nothing of it but what it is known by.
    pub(crate) fn hide(&mut self, blob: Blob) {
        self.content = Content::Known(blob);
        let hidden = "a secret is in it, or what looks like one, and it was not kept";
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {hidden}"),
            None => hidden.into(),
        });
    }

    /// What a program printed: `hello.py:stdout` is the output of `hello.py`, and its versions are those
    /// of one run after the other. Nothing if it printed nothing.
    pub fn printed(role: Role, program: &str, bytes: Vec<u8>, dropped: u64) -> Option<Product> {
        if bytes.is_empty() && dropped == 0 {
            return None;
        }
        let mut printed = Product::new(role, format!("{program}:{role}"), Content::Bytes(bytes));
        printed.note =
            (dropped > 0).then(|| format!("its end is missing: {dropped} bytes were dropped"));
        Some(printed)
    }
}

impl Given {
    /// What everything comes from that the call makes.
    fn edges(&self) -> impl Iterator<Item = Edge> {
        self.artifacts.iter().map(|given| {
            let relation = match given.role {
                Role::Script => Relation::Code,
                _ => Relation::Input,
            };
            Edge::new(relation, Target::Artifact(given.id))
        })
    }
}

impl Artifacts {
    pub fn at(home: &Path) -> Artifacts {
        Artifacts { directory: home.join(DIRECTORY), quota: u64::MAX, store: OnceLock::new() }
    }

    /// The same, with no more large inputs than fit into so many bytes of contents.
    pub(crate) fn within(self, quota: u64) -> Artifacts {
        Artifacts { quota, ..self }
    }

    /// Bytes of all contents that are files.
    /// The most that the home may have on the disk.
    pub(crate) fn quota(&self) -> u64 {
        self.quota
    }

    pub(crate) fn used(&self) -> io::Result<u64> {
        let mut used = 0_u64;
        let counted = for_each_content(&self.directory, |_, path| {
            // What is swept meanwhile does not count.
            used = used.saturating_add(fs::metadata(path).map_or(0, |found| found.len()));
            Ok(())
        });
        match counted {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(used),
        }
    }

    /// Where large contents are.
    pub fn store(&self) -> Result<&Store, StoreError> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let store = Store::open(&self.directory)?;
        Ok(self.store.get_or_init(|| store))
    }

    /// Begins a call, together with what it is given: all of it is recorded, or nothing is.
    pub fn begin(
        &self,
        record: &Record,
        intent: Draft,
        origin: &Origin,
        given: Vec<Product>,
    ) -> Result<(Given, Intent), RegisterError> {
        let begun = self.begin_spending(record, intent, origin, given, Spend::default());
        begun.map_err(|error| match error {
            BeginError::Register(error) => error,
            BeginError::Unspent(error) => {
                WriteError::from(AppendError::Failed(error.to_string())).into()
            }
        })
    }

    /// The same, with what that uses up.
    pub(crate) fn begin_spending(
        &self,
        record: &Record,
        intent: Draft,
        origin: &Origin,
        given: Vec<Product>,
        spend: Spend,
    ) -> Result<(Given, Intent), BeginError> {
        let batch = self.batch(origin, given, Vec::new()).map_err(RegisterError::from)?;
        if batch.is_empty() && spend.is_nothing() {
            let begun = record.begin(intent).map_err(WriteError::from);
            return Ok((Given::default(), begun.map_err(RegisterError::from)?));
        }
        let held = batch.held();
        let (caller, call) = (origin.caller.clone(), origin.call);
        let begun = record.begin_with(intent, move |tx| {
            let mut drafts = spend.settle(tx, &caller, call)?;
            let (artifacts, more) = batch.add(tx).map_err(WriteError::Own)?;
            drafts.extend(more);
            Ok::<_, BeginError>((artifacts, drafts))
        });
        drop(held);
        let (artifacts, intent) = begun.map_err(|error| match error {
            WriteError::Own(error) => error,
            WriteError::Append(error) => RegisterError::from(WriteError::from(error)).into(),
        })?;
        Ok((Given { artifacts }, intent))
    }

    /// Keeps what a call is given that cannot be begun yet, if `write` says that it was put aside.
    pub(crate) fn put_aside<T: Send + 'static>(
        &self,
        record: &Record,
        origin: &Origin,
        given: Vec<Product>,
        write: impl FnOnce(&Transaction<'_>) -> Result<(T, Vec<Draft>, bool), Unspent> + Send + 'static,
    ) -> Result<T, BeginError> {
        let batch = self.batch(origin, given, Vec::new()).map_err(RegisterError::from)?;
        let held = batch.held();
        let written = record.write(Durability::Synced, move |tx| {
            let (value, mut drafts, is_put_aside) = write(tx)?;
            if is_put_aside && !batch.is_empty() {
                drafts.extend(batch.add(tx).map_err(WriteError::Own)?.1);
            }
            Ok::<_, BeginError>((value, drafts))
        });
        drop(held);
        written.map(|(value, _)| value).map_err(|error| match error {
            WriteError::Own(error) => error,
            WriteError::Append(error) => RegisterError::from(WriteError::from(error)).into(),
        })
    }

    /// Ends a call, together with what it made. If that cannot be stored, the outcome is recorded alone
    /// and says so; if that cannot be recorded, the call ends as `unknown`. An outcome without artifacts
    /// that cannot be recorded is tried again.
    pub fn finish(
        &self,
        intent: Intent,
        outcome: Draft,
        origin: &Origin,
        given: &Given,
        sight: Sight,
        made: Vec<Product>,
    ) -> Result<(Vec<Artifact>, Receipt), RegisterError> {
        self.finish_keeping(intent, outcome, origin, given, sight, made, None)
    }

    /// The same, with what becomes of the key that the call was made under.
    #[expect(clippy::too_many_arguments, reason = "all of it goes into one transaction")]
    pub(crate) fn finish_keeping(
        &self,
        intent: Intent,
        mut outcome: Draft,
        origin: &Origin,
        given: &Given,
        sight: Sight,
        made: Vec<Product>,
        ending: Option<Ending>,
    ) -> Result<(Vec<Artifact>, Receipt), RegisterError> {
        let batch = match self.batch(origin, made, edges(origin, given, sight)) {
            Ok(batch) => batch,
            Err(error) => {
                let lost = format!("what it made could not be kept: {error}");
                outcome.reason = Some(match outcome.reason {
                    Some(reason) => format!("{reason}; {lost}"),
                    None => lost,
                });
                self.batch(origin, Vec::new(), Vec::new())?
            }
        };
        if batch.is_empty() && ending.is_none() {
            return Ok((Vec::new(), intent.finish(outcome).map_err(WriteError::from)?));
        }
        let (held, call) = (batch.held(), origin.call);
        let finished = intent.finish_with(outcome, move |tx| {
            if let Some(ending) = ending {
                ending.write(tx, call);
            }
            if batch.is_empty() { Ok((Vec::new(), Vec::new())) } else { batch.add(tx) }
        })?;
        drop(held);
        Ok(finished)
    }

    /// Puts what is large where it stays.
    fn batch(
        &self,
        origin: &Origin,
        mut products: Vec<Product>,
        edges: Vec<Edge>,
    ) -> Result<Batch, StoreError> {
        let beyond = products.split_off(products.len().min(MOST_ARTIFACTS));
        let mut room = Room { call: MOST_BYTES, home: None };
        let mut hold = None;
        let mut pieces = Vec::with_capacity(products.len());
        for mut product in products {
            let content = std::mem::replace(&mut product.content, Content::Bytes(Vec::new()));
            let content = self.keep(content, &mut room, &mut hold)?;
            pieces.push(Piece { product, content });
        }
        let sizes = beyond.iter().map(|product| product.content.size());
        let beyond = (beyond.len(), sizes.fold(0, u64::saturating_add));
        Ok(Batch { origin: origin.clone(), edges, pieces, beyond })
    }

    fn keep(
        &self,
        content: Content,
        room: &mut Room,
        hold: &mut Option<Hold>,
    ) -> Result<Kept, StoreError> {
        let no = |blob, why| Ok(Kept::No { blob, why });
        let room = match &content {
            Content::Known(blob) => return no(*blob, ""),
            Content::File { .. } => room.home.get_or_insert_with(|| self.left()),
            Content::Bytes(_) | Content::Stored(_) => &mut room.call,
        };
        let Some(rest) = room.checked_sub(content.size()) else {
            let is_file = matches!(content, Content::File { .. });
            let why = if is_file { ": there is no room in the home" } else { TOO_MUCH };
            return no(content.blob(), why);
        };
        *room = rest;
        match content {
            Content::Known(blob) => no(blob, ""),
            Content::Stored(stored) => Ok(Kept::Yes(stored)),
            Content::File { blob, file } => {
                let stored = self.hold(hold)?.put(Part::of(&file, blob.size), blob.size)?;
                if stored.blob() == blob { Ok(Kept::Yes(stored)) } else { no(blob, "") }
            }
            Content::Bytes(bytes) => match Stored::small(bytes) {
                Ok(small) => Ok(Kept::Yes(small)),
                Err(large) => self.hold(hold)?.put(&large[..], MOST_BYTES).map(Kept::Yes),
            },
        }
    }

    fn hold<'a>(&self, hold: &'a mut Option<Hold>) -> Result<&'a Hold, StoreError> {
        match hold {
            Some(hold) => Ok(hold),
            None => Ok(hold.insert(self.store()?.hold()?)),
        }
    }

    /// What of the quota is left for large inputs. Only a call that has some asks.
    fn left(&self) -> u64 {
        self.used().map_or(0, |used| self.quota.saturating_sub(used))
    }
}

const TOO_MUCH: &str = ": it is too much for one call";

/// What may still be kept: of the call, and of the home, once that was asked for.
struct Room {
    call: u64,
    home: Option<u64>,
}

/// What all of it came from that a call made.
fn edges(origin: &Origin, given: &Given, sight: Sight) -> Vec<Edge> {
    let mut edges = vec![Edge::new(Relation::Run, Target::Call(origin.call))];
    let tool = origin.tool.as_deref().and_then(|tool| line(tool).0.parse().ok());
    edges.extend(tool.map(|tool| Edge::new(Relation::Tool, Target::Text(tool))));
    edges.extend((sight == Sight::More).then(Edge::unknown_input));
    edges.extend(given.edges());
    edges
}

/// Why a call was not begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error(transparent)]
    Unspent(#[from] Unspent),
}

impl From<WriteError<Error>> for BeginError {
    fn from(error: WriteError<Error>) -> BeginError {
        BeginError::Register(error.into())
    }
}

/// Why a call was not begun or ended with its artifacts.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] WriteError<Error>),
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File { blob, .. } => blob.size,
            Content::Stored(stored) => stored.blob().size,
            Content::Known(blob) => blob.size,
        }
    }

    pub(crate) fn blob(&self) -> Blob {
        match self {
            Content::Bytes(bytes) => Blob::of(bytes),
            Content::Stored(stored) => stored.blob(),
            Content::File { blob, .. } | Content::Known(blob) => *blob,
        }
    }
}

/// Everything that is to be registered at once.
#[derive(Debug)]
struct Batch {
    origin: Origin,
    /// What all of it came from.
    edges: Vec<Edge>,
    pieces: Vec<Piece>,
    /// How many are not registered, and how many bytes they have.
    beyond: (usize, u64),
}

#[derive(Debug)]
struct Piece {
    product: Product,
    content: Kept,
}

#[derive(Debug)]
enum Kept {
    Yes(Stored),
    No { blob: Blob, why: &'static str },
}

impl Batch {
    /// Whether it has nothing to say. Who writes no rows needs no place in a transaction to go back to.
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps contents from being swept. For as long as the rows about them are not committed.
    fn held(&self) -> Vec<Stored> {
        let kept = |piece: &Piece| match &piece.content {
            Kept::Yes(stored) => Some(stored.clone()),
            Kept::No { .. } => None,
        };
        self.pieces.iter().filter_map(kept).collect()
    }

    /// The rows, and what the chain has to say of them.
    fn add(self, tx: &Transaction<'_>) -> Result<(Vec<Artifact>, Vec<Draft>), Error> {
        let Batch { origin, edges, pieces, beyond } = self;
        ledger::migrate(tx)?;
        let mut artifacts = Vec::with_capacity(pieces.len());
        let mut drafts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (artifact, draft) = piece.add(tx, &origin, &edges)?;
            artifacts.push(artifact);
            drafts.push(draft);
        }
        if beyond.0 > 0 {
            let (count, bytes) = beyond;
            let reason = format!(
                "{count} more artifacts, of {bytes} bytes, were not registered: \
                 a call has at most {MOST_ARTIFACTS}"
            );
            drafts.push(Draft { reason: Some(reason), ..draft(&origin, Kind::Note) });
        }
        Ok((artifacts, drafts))
    }
}

impl Piece {
    fn add(
        self,
        tx: &Transaction<'_>,
        origin: &Origin,
        edges: &[Edge],
    ) -> Result<(Artifact, Draft), Error> {
        let Piece { product, content } = self;
        let (name, is_changed) = line(&product.name);
        let mut notes: Vec<String> = product.note.into_iter().collect();
        if is_changed {
            notes.push("its name was longer, or had characters that no name has here".into());
        }
        // `line` makes nothing that is not one.
        let name: ArtifactName = name.parse().map_err(|_| Error::TooLarge)?;
        let media = match &content {
            Kept::Yes(stored) => stored.media(),
            Kept::No { .. } => ledger::Media::Unknown,
        };
        let new = NewArtifact {
            by: origin.by(),
            call: origin.call,
            tool: origin.tool.as_deref().and_then(|tool| tool.parse::<ToolName>().ok()),
            kind: Type::guess(product.role, &name, media),
            name,
            role: product.role,
            edges: bounded(edges.iter().cloned().chain(product.edges)),
        };
        let (artifact, statement) = match content {
            Kept::Yes(stored) => ledger::add(tx, &stored, new)?,
            Kept::No { blob, why } => {
                notes.push(format!("its content was not kept{why}"));
                ledger::add_unkept(tx, blob, new)?
            }
        };
        let mut draft = of_row(origin, &statement);
        draft.reason = (!notes.is_empty()).then(|| notes.join("; "));
        Ok((artifact, draft))
    }
}

/// An event about the call.
fn draft(origin: &Origin, kind: Kind) -> Draft {
    Draft {
        call: Some(origin.call),
        tool: origin.tool.clone(),
        ..Draft::new(kind, origin.caller.clone(), origin.time)
    }
}

/// The event by which the chain vouches for a row.
pub(crate) fn of_row(origin: &Origin, statement: &Statement) -> Draft {
    let kind = match statement.row() {
        RowId::Artifact(_) => Kind::ArtifactAdded,
        RowId::Tagging(_) | RowId::Verdict(_) | RowId::Pruning(_) => Kind::ArtifactChanged,
    };
    let stated = Stated {
        row: statement.row().to_string(),
        digest: hotcell_record::Hex(statement.digest().to_bytes()),
        length: statement.bytes().len() as u64,
    };
    Draft { stated: Some(stated), ..draft(origin, kind) }
}

/// What does not fit is told as something that nobody knows.
fn bounded(edges: impl Iterator<Item = Edge>) -> Vec<Edge> {
    let mut edges: Vec<Edge> = edges.take(MAX_EDGES + 1).collect();
    if edges.len() > MAX_EDGES {
        edges.truncate(MAX_EDGES - 1);
        edges.push(Edge::unknown_input());
    }
    edges
}

/// A name that the ledger takes, and whether it is another than was given.
pub(crate) fn line(name: &str) -> (String, bool) {
    let mut plain: String =
        name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if plain.is_empty() {
        plain.push('-');
    }
    if plain.len() > MOST_NAME {
        let end = (0..=MOST_NAME - '…'.len_utf8()).rev().find(|end| plain.is_char_boundary(*end));
        plain.truncate(end.unwrap_or(0));
        plain.push('…');
    }
    let is_changed = plain != name;
    (plain, is_changed)
}
