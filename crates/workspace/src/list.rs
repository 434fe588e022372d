//! What is in a directory.

use std::time::Duration;

use crate::{Bounds, Entry, Error, Relative, Root, Seen, Skipped, Unfit};

/// How long a listing may take.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub struct ListOptions {
    /// How many directories below each other are listed; 1 is the directory alone.
    pub depth: usize,
    /// Most entries, skipped ones included.
    pub most: usize,
    /// Also what begins with a dot, and what is in it.
    pub hidden: bool,
}

/// What is in a directory, sorted by path. The paths begin at the root and not at the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// What is there and never used, with the reason.
    pub skipped: Vec<Skipped>,
    /// How many were not listed because their names begin with a dot. What is in them is not counted.
    pub hidden: u64,
    /// How many did not fit.
    pub left_out: u64,
    /// Something did not fit. When the tree is too large to be counted, there is more than `left_out` says.
    pub truncated: bool,
}

impl Root {
    /// Lists the directory `at`; `None` is the root.
    pub fn list(&self, at: Option<&Relative>, options: ListOptions) -> Result<Listing, Error> {
        let bounds = Bounds { depth: options.depth, ..Bounds::within(WITHIN) };
        let mut walk = self.walk(at, bounds)?;
        let mut listing = Listing::default();
        while let Some(told) = walk.next() {
            let path = match &told {
                Ok(entry) => entry.path.as_str(),
                Err(skipped) => &skipped.path,
            };
            if !options.hidden && is_hidden(path) {
                listing.hidden += 1;
                walk.pass_over();
            } else if listing.entries.len() + listing.skipped.len() >= options.most {
                listing.left_out += 1;
            } else {
                match told {
                    Ok(entry) => match self.shows(&entry.path) {
                        Seen::Yes => listing.entries.push(entry),
                        seen => {
                            listing.truncated |= seen == Seen::Unknown;
                            listing.skipped.push(Skipped::new(&entry.path, Unfit::Unseen));
                        }
                    },
                    Err(skipped) => listing.skipped.push(skipped),
                }
            }
        }
        listing.truncated |= listing.left_out > 0 || walk.cut().is_some();
        Ok(listing)
    }
}

/// Whether the last part begins with a dot.
pub(crate) fn is_hidden(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
}
