//! Are the rows what the chain says? Each has to be as the last statement about it has it, and those
//! that are gone have to be among those that were swept.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::claims::Digest;
use crate::error::Error;
use crate::statement::Statement;
use crate::store;

/// What the chain says of bearers, heard in its order. Needs memory for each bearer that was not swept.
#[derive(Debug, Clone, Default)]
pub struct Said {
    rows: BTreeMap<u64, (u64, Digest)>,
    swept: u64,
}

/// A bearer that is not what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("token {0} is not as it was recorded last")]
    Changed(u64),
    #[error("token {0} is recorded, and is not there")]
    Absent(u64),
    #[error("token {0} is there, and was never recorded")]
    Unknown(u64),
}

impl Said {
    /// Takes what a statement says of a row; `false` if that is no row of ours.
    pub fn hear(&mut self, row: &str, digest: Digest) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        if let Some(upto) = row.strip_prefix("bearers up to ").and_then(number) {
            let is_right = Statement::of_sweep(upto).digest() == digest;
            if is_right {
                self.swept = self.swept.max(upto);
                self.rows = self.rows.split_off(&upto.saturating_add(1));
            }
            return is_right;
        }
        let words = row.strip_prefix("bearer ").and_then(|rest| rest.split_once(' '));
        let Some((Some(nonce), Some(change))) = words.map(|(n, c)| (number(n), number(c))) else {
            return false;
        };
        self.rows.insert(nonce, (change, digest));
        true
    }

    /// Compares it with the rows, and answers how many there are.
    pub fn compare(mut self, conn: &Connection, mut each: impl FnMut(Fault)) -> Result<u64, Error> {
        let mut count = 0;
        store::each(conn, |nonce, stored| {
            count += 1;
            let is = stored.map(|stored| (stored.changes, Statement::of_row(&stored).digest()));
            match self.rows.remove(&nonce) {
                None => each(Fault::Unknown(nonce)),
                said if said == is => {}
                Some(_) => each(Fault::Changed(nonce)),
            }
        })?;
        self.rows.into_keys().for_each(|nonce| each(Fault::Absent(nonce)));
        Ok(count)
    }
}
