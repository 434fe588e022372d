//! Are the rows what the chain says? Each has to be as it was when it was set, and those that are gone have to
//! have been removed. Needs no key.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::error::Error;
use crate::statement::{Digest, Statement};
use crate::store;

/// What the chain says of secrets, heard in its order.
#[derive(Debug, Clone, Default)]
pub struct Said {
    rows: BTreeMap<u64, Digest>,
}

/// A secret that is not what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("secret {0} is not as it was recorded")]
    Changed(u64),
    #[error("secret {0} is recorded, and is not there")]
    Absent(u64),
    #[error("secret {0} is there, and was never recorded")]
    Unknown(u64),
}

impl Said {
    /// Takes what a statement says of a row; `false` if that is no row of ours.
    pub fn hear(&mut self, row: &str, digest: Digest) -> bool {
        let Some(rest) = row.strip_prefix("secret ") else { return false };
        let (number, is_removal) = match rest.strip_suffix(" removed") {
            Some(number) => (number, true),
            None => (rest, false),
        };
        let Ok(number) = number.parse::<u64>() else { return false };
        if is_removal {
            let is_right = Statement::of_removal(number).digest() == digest;
            return is_right && self.rows.remove(&number).is_some();
        }
        self.rows.insert(number, digest).is_none()
    }

    /// Compares it with the rows, and answers how many there are.
    pub fn compare(mut self, conn: &Connection, mut each: impl FnMut(Fault)) -> Result<u64, Error> {
        let mut count = 0;
        store::each(conn, |number, secret| {
            count += 1;
            let is = secret.map(|secret| Statement::of_row(&secret).digest());
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
