//! Are the rows what the chain says? Each has to be as the last statement about it has it, and those that
//! are gone have to have been removed.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::error::Error;
use crate::statement::{Digest, Statement};
use crate::store;

/// What the chain says of keys, heard in its order.
#[derive(Debug, Clone, Default)]
pub struct Said {
    rows: BTreeMap<u64, (u64, Digest)>,
}

/// A key that is not what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("key {0} is not as it was recorded last")]
    Changed(u64),
    #[error("key {0} is recorded, and is not there")]
    Absent(u64),
    #[error("key {0} is there, and was never recorded")]
    Unknown(u64),
}

impl Said {
    /// Takes what a statement says of a row; `false` if that is no row of ours.
    pub fn hear(&mut self, row: &str, digest: Digest) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let words = row.strip_prefix("key ").and_then(|rest| rest.split_once(' '));
        let Some((Some(key), change)) = words.map(|(key, change)| (number(key), change)) else {
            return false;
        };
        if change == "removed" {
            let is_right = Statement::of_removal(key).digest() == digest;
            return is_right && self.rows.remove(&key).is_some();
        }
        let Some(change) = number(change) else { return false };
        self.rows.insert(key, (change, digest));
        true
    }

    /// Compares it with the rows, and answers how many there are.
    pub fn compare(mut self, conn: &Connection, mut each: impl FnMut(Fault)) -> Result<u64, Error> {
        let mut count = 0;
        store::each(conn, |number, key| {
            count += 1;
            let is = key.map(|key| (key.changes, Statement::of_row(&key).digest()));
            match self.rows.remove(&number) {
                None => each(Fault::Unknown(number)),
                said if said == is => {}
                Some(_) => each(Fault::Changed(number)),
            }
        })?;
        self.rows.into_keys().for_each(|number| each(Fault::Absent(number)));
        Ok(count)
    }
}
