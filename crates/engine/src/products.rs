//! What a run is given and what it makes, on its way to the ledger.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;

use hotcell_ledger::{Blob, MAX_SMALL, Role, Stored};
use hotcell_record::Redactor;
use hotcell_types::{Artifact, Outcome, Output};
use hotcell_workspace::{Relative, Root};

use crate::artifacts::{Artifacts, Content, MOST_ARTIFACTS, MOST_BYTES, Product, Sight};
use crate::changes::Part;

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

/// What has a secret in it, or what looks like one, is known by its digest and not kept. It is not kept
/// without the secret either: it would be another content, under the name of what the run made.
pub(crate) fn without_secrets(hidden: &Redactor, mut products: Vec<Product>) -> Vec<Product> {
    for product in &mut products {
        let blob = match &product.content {
            Content::Bytes(bytes) => hidden.is_in(bytes).then(|| Blob::of(bytes)),
            // What cannot be read is not kept either.
            Content::File { blob, file } => {
                let found = hidden.is_in_source(Part::of(file, blob.size));
                found.unwrap_or(true).then_some(*blob)
            }
            Content::Stored(_) | Content::Known(_) => None,
        };
        if let Some(blob) = blob {
            product.hide(blob);
        }
        if let Cow::Owned(name) = hidden.redact(product.name.as_bytes()) {
            product.name = String::from_utf8_lossy(&name).into_owned();
        }
    }
    products
}

/// The files that a run made, while they are still where it left them. What cannot be kept is known by its
/// digest at least.
pub(crate) fn files(
    kept: &Artifacts,
    hidden: &Redactor,
    left: BorrowedFd<'_>,
    made: &[Artifact],
) -> Vec<Product> {
    let root = left.try_clone_to_owned().ok().and_then(|left| Root::held(left).ok());
    let mut room = MOST_BYTES;
    let product = |(number, file): (usize, &Artifact)| {
        let blob = Blob { digest: file.sha256.parse().ok()?, size: file.bytes };
        // What is beyond the most is counted, without its content.
        let rest = room.checked_sub(file.bytes).filter(|_| number < MOST_ARTIFACTS);
        let content = rest.and_then(|rest| {
            let content = keep(kept, hidden, root.as_ref()?, file)?;
            room = rest;
            Some(content)
        });
        let mut product = Product::new(Role::File, file.path.clone(), Content::Known(blob));
        match content {
            Some(Found::Secret) => product.hide(blob),
            Some(Found::Kept(stored)) if stored.blob() == blob => {
                product.content = Content::Stored(stored);
            }
            Some(Found::Kept(_)) | None => {}
        }
        Some(product)
    };
    made.iter().enumerate().filter_map(product).collect()
}

enum Found {
    Secret,
    Kept(Stored),
}

fn keep(kept: &Artifacts, hidden: &Redactor, root: &Root, file: &Artifact) -> Option<Found> {
    let path = Relative::parse(&file.path).ok()?;
    if file.bytes <= MAX_SMALL {
        let bytes = root.read(&path, .., MAX_SMALL as usize).ok()?.bytes;
        if hidden.is_in(&bytes) {
            return Some(Found::Secret);
        }
        return Stored::small(bytes).ok().map(Found::Kept);
    }
    // Nobody writes to it any more; and what was put on the disk would stay there for a while.
    if hidden.is_in_source(root.file(&path).ok()?.0).ok()? {
        return Some(Found::Secret);
    }
    let (content, bytes) = root.file(&path).ok()?;
    kept.store().ok()?.hold().ok()?.put(content, bytes).ok().map(Found::Kept)
}
