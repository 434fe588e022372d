//! What a run is given and what it makes, on its way to the ledger.

use std::os::fd::BorrowedFd;

use hotcell_ledger::{Blob, MAX_SMALL, Role, Stored};
use hotcell_types::{Artifact, Outcome, Output};
use hotcell_workspace::{Relative, Root};

use crate::artifacts::{Artifacts, Content, MOST_ARTIFACTS, MOST_BYTES, Product, Sight};

/// What is known of a run before it begins.
#[derive(Debug)]
pub(crate) struct Provenance {
    /// What its output is named after.
    pub(crate) program: String,
    pub(crate) given: Vec<Product>,
    pub(crate) sight: Sight,
}

impl Provenance {
    /// What it printed, after the files that it made.
    pub(crate) fn made(&self, mut files: Vec<Product>, run: &Outcome) -> Vec<Product> {
        let printed = |role, output: &Output| {
            let dropped = output.total.saturating_sub(output.bytes.len() as u64);
            Product::printed(role, &self.program, output.bytes.clone(), dropped)
        };
        files.extend(printed(Role::Stdout, &run.stdout));
        files.extend(printed(Role::Stderr, &run.stderr));
        files
    }
}

/// The files that a run made, while they are still where it left them. What cannot be kept is known by its
/// digest at least.
pub(crate) fn files(kept: &Artifacts, left: BorrowedFd<'_>, made: &[Artifact]) -> Vec<Product> {
    let root = left.try_clone_to_owned().ok().and_then(|left| Root::held(left).ok());
    let mut room = MOST_BYTES;
    let product = |(number, file): (usize, &Artifact)| {
        let blob = Blob { digest: file.sha256.parse().ok()?, size: file.bytes };
        // What is beyond the most is counted, without its content.
        let rest = room.checked_sub(file.bytes).filter(|_| number < MOST_ARTIFACTS);
        let content = rest.and_then(|rest| {
            let stored = keep(kept, root.as_ref()?, file).filter(|stored| stored.blob() == blob)?;
            room = rest;
            Some(Content::Stored(stored))
        });
        let content = content.unwrap_or(Content::Known(blob));
        Some(Product::new(Role::File, file.path.clone(), content))
    };
    made.iter().enumerate().filter_map(product).collect()
}

fn keep(kept: &Artifacts, root: &Root, file: &Artifact) -> Option<Stored> {
    let path = Relative::parse(&file.path).ok()?;
    if file.bytes <= MAX_SMALL {
        return Stored::small(root.read(&path, .., MAX_SMALL as usize).ok()?.bytes).ok();
    }
    let (content, bytes) = root.file(&path).ok()?;
    kept.store().ok()?.hold().ok()?.put(content, bytes).ok()
}
