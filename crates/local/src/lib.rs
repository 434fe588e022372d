//! The local door. [`Desk`] answers whoever asks through the socket of a home, with one engine for all;
//! [`Remote`] is the side of a program that would otherwise have opened an engine of its own. What comes of
//! a call is the same either way.

mod along;
mod desk;
mod remote;
mod unwanted;

use std::path::{Path, PathBuf};

pub use along::{Along, Output, Told};
pub use desk::Desk;
pub use remote::{Remote, Unreached, With, serves};

/// Where the door of a home is.
pub fn socket(home: &Path) -> PathBuf {
    home.join("door").join("socket")
}
