//! Secrets that stay outside the sandbox. [`set`] seals a value into a row of the home's database, with the hosts
//! and tools that it is bound to; [`open`] gives it back to whoever has the [`Key`] of the home. A run gets a
//! [`Purse`]: for each of its secrets a placeholder of chance, which is all that its program sees, and the way
//! from there to the value, for one host at a time. A [`Masker`] hides the values again in what comes back.
//!
//! Everything that changes a row gives back a [`Change`], which belongs into the chain in the same transaction.
//! Nothing here prints a value, or puts one into an error.

/// What rows are read from, and written in.
pub use rusqlite::{Connection, Transaction};

mod binding;
mod chance;
mod error;
mod key;
mod mask;
mod name;
mod placeholder;
mod schema;
mod seal;
mod spelling;
mod statement;
mod store;
mod value;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use binding::{BadBinding, Binding, MOST_HOSTS, MOST_TOOLS};
pub use error::Error;
pub use key::{Key, KeyError, path as key_path};
pub use mask::{MASKED, Masker, Masks};
pub use name::{BadSecretName, SecretName};
pub use placeholder::{LENGTH as PLACEHOLDER, Misplaced, PREFIX, Place, Purse, Seeker};
pub use schema::{is_current, migrate};
pub use statement::{Change, Digest, Statement, What};
pub use store::{Secret, get, list, open};
pub use value::{BadValue, LEAST_VALUE, MOST_VALUE, Value};
pub use verify::{Fault, Said};
pub use write::{MOST_NOTE, MOST_SECRETS, New, remove, remove_all, set};
