//! Are the artifacts what was recorded? Every row has exactly one statement in the chain, every
//! statement its row, and every content its digest. The row of a token, of
//! an API key or of a secret is what the last statement says of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use hotcell_access as access;
use hotcell_bearer::Said;
use hotcell_ledger::{self as ledger, Counts, Digest, Error, Fault, RowId, Store, StoreError};
use hotcell_record::{ReadError, statements};
use hotcell_vault as vault;
use serde::Serialize;

use crate::artifacts::DIRECTORY;
use crate::reply::Problem;

/// Most faults that are told one by one.
pub const MOST_TOLD: usize = 100;

/// What was found. Fine only if there is no fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    pub artifacts: u64,
    pub taggings: u64,
    pub verdicts: u64,
    /// Times that contents were removed to make room.
    pub prunings: u64,
    /// Tokens that were not swept yet.
    pub tokens: u64,
    /// API keys that are kept.
    pub keys: u64,
    pub secrets: u64,
    pub contents: u64,
    pub bytes: u64,
    /// Contents that no row has: what a crash left, or a run that is just being registered.
    pub unreferenced: u64,
    pub faults: u64,
    /// The first of them, in words.
    pub told: Vec<String>,
}

/// Compares rows with the chain and contents with their digests, of all tenants, from the files of a
/// home alone. The chain itself is for [`hotcell_record::verify`] to judge: ask that first.
///
/// Needs memory in proportion to the number of rows, a hundred bytes for each.
pub fn verify_artifacts(home: &Path) -> Result<Checked, Problem> {
    let database = home.join("hotcell.db");
    let mut checked = Checked::default();
    let rows = hotcell_record::look(&database, |conn| checked.rows(conn));
    let is_current = rows.map_err(|error| not_read(&error))?;
    if !is_current {
        return Ok(checked);
    }
    let contents = hotcell_record::look(&database, |conn| {
        let store = Store::open(&home.join(DIRECTORY)).map_err(Error::from)?;
        checked.contents(conn, &store)
    });
    contents.map_err(|error| not_read(&error))?;
    Ok(checked)
}

/// Of the record or of the ledger.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error(transparent)]
    Bearer(#[from] hotcell_bearer::Error),
    #[error(transparent)]
    Access(#[from] access::Error),
    #[error(transparent)]
    Vault(#[from] vault::Error),
}

impl From<StoreError> for LookError {
    fn from(error: StoreError) -> LookError {
        LookError::Ledger(error.into())
    }
}

/// What helps where a newer hotcell has been.
pub(super) const NEWER: &str = "use the hotcell that wrote it, or a newer one";

pub(crate) fn not_read(error: &LookError) -> Problem {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let why = format!("{error}{}", cause.unwrap_or_default());
    let fix = match error {
        LookError::Ledger(Error::Newer { .. }) => NEWER,
        _ => "`hotcell audit verify` says more",
    };
    Problem::new("the artifacts cannot be read", why, fix)
}

impl Checked {
    pub fn is_fine(&self) -> bool {
        self.faults == 0
    }

    /// Whether there are tables to look at.
    fn rows(&mut self, conn: &ledger::Connection) -> Result<bool, LookError> {
        let mut chain: HashMap<RowId, Digest> = HashMap::new();
        let mut stated = Counts::default();
        let (mut tokens, mut keys) = (Said::default(), access::Said::default());
        let mut secrets = vault::Said::default();
        statements(conn, |said| match said.row.parse() {
            Ok(row) => {
                match row {
                    RowId::Artifact(_) => stated.artifacts += 1,
                    RowId::Tagging(_) => stated.taggings += 1,
                    RowId::Verdict(_) => stated.verdicts += 1,
                    RowId::Pruning(_) => stated.prunings += 1,
                }
                if chain.insert(row, Digest::from_bytes(said.digest.0)).is_some() {
                    self.tell(&Fault::Twice(row));
                }
            }
            Err(_) if tokens.hear(&said.row, said.digest.0) => {}
            Err(_) if keys.hear(&said.row, said.digest.0) => {}
            Err(_) if secrets.hear(&said.row, said.digest.0) => {}
            Err(_) => self.say(format!("the record speaks of `{}`, which is no row", said.row)),
        })?;
        self.tokens = tokens.compare(conn, |fault| self.say(fault.to_string()))?;
        self.keys = keys.compare(conn, |fault| self.say(fault.to_string()))?;
        self.secrets = secrets.compare(conn, |fault| self.say(fault.to_string()))?;
        let is_current = ledger::is_current(conn)?;
        // Each row takes what is said of it away; what remains is said of nothing.
        let chain = RefCell::new(chain);
        if is_current {
            let of = |row| chain.borrow_mut().remove(&row);
            let verified = ledger::verify_rows(conn, stated, of, |fault| self.tell(&fault))?;
            let Counts { artifacts, taggings, verdicts, prunings } = verified.rows;
            (self.artifacts, self.taggings, self.verdicts) = (artifacts, taggings, verdicts);
            self.prunings = prunings;
        }
        let mut absent: Vec<String> =
            chain.into_inner().into_keys().map(|row| Fault::Absent(row).to_string()).collect();
        absent.sort();
        absent.into_iter().for_each(|fault| self.say(fault));
        Ok(is_current)
    }

    fn contents(&mut self, conn: &ledger::Connection, store: &Store) -> Result<(), LookError> {
        let verified = ledger::verify_contents(conn, store, |fault| self.tell(&fault))?;
        self.contents = verified.contents;
        self.bytes = verified.bytes;
        self.unreferenced = verified.unreferenced;
        Ok(())
    }

    fn tell(&mut self, fault: &Fault) {
        self.say(fault.to_string());
    }

    fn say(&mut self, fault: String) {
        self.faults += 1;
        if self.told.len() < MOST_TOLD {
            self.told.push(fault);
        }
    }
}
