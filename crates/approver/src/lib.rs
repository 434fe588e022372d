//! People who approve: their keys, what they sign, and the terminal at which they prove to be there.
//!
//! An [`Approver`] signs an [`Answer`] or a [`Policy`]; whoever has the [`Public`] half of the key
//! verifies it. The private half is in a file, [`Sealed`] with a [`Passphrase`], and a passphrase comes
//! from a [`Terminal`] only: not from an argument, a variable or a pipe, where a program could put it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use hotcell_approver::{Answer, Approver, ItemId, Verdict};
//!
//! let alice = Approver::make("alice".parse()?)?;
//! let answer = Answer {
//!     item: ItemId::make()?,
//!     home: [1; 16],
//!     call: [2; 32],
//!     policy: [3; 32],
//!     verdict: Verdict::Approve,
//!     reason: "the path is right".parse()?,
//!     time: 0,
//!     expires: 1,
//! };
//! let signature = alice.sign(&answer);
//! let public: hotcell_approver::Public = alice.public().to_string().parse()?;
//! assert!(public.verify(&answer, &signature).is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # What this holds against, and what not
//!
//! A model, and everything that is started for it, cannot answer: what runs in a sandbox reaches neither
//! the key nor a terminal, and a process that descends from a hotcell which serves a model is refused,
//! also with a terminal of its own making in between.
//!
//! A shell of the same user that does *not* descend from hotcell is that user, as far as the kernel can
//! tell; the shell that a coding agent brings itself is one. It can read what is typed (as a debugger, or
//! by posing as the terminal), replace the binary or the list of approvers, leave its ancestors behind by
//! forking twice before it asks, and guess at the passphrase of the key file, which is dear and not
//! impossible. Where that matters, the approver is another user, or answers from another machine.

mod ancestors;
mod approvers;
mod base32;
mod base64;
mod chance;
mod id;
mod key;
mod passphrase;
mod policy;
mod private;
mod seal;
mod statement;
mod terminal;

pub use ancestors::SERVING;
pub use approvers::{Approvers, BadApprovers, MOST_APPROVERS};
pub use id::{BadItemId, ItemId};
pub use key::{Approver, BadFingerprint, BadPublic, Fingerprint, NotSigned, Public, Signature};
pub use passphrase::{LEAST_PASSPHRASE, MOST_PASSPHRASE, Passphrase};
pub use policy::{BadSignedPolicy, PolicyRefused, SignedPolicy};
pub use private::{FileError, MOST_FILE};
pub use seal::{BadSealed, MOST_MEMORY_KIB, MOST_PASSES, SealError, Sealed};
pub use statement::{Answer, BadReason, MOST_REASON, Policy, Reason, Statement, Verdict};
pub use terminal::{AskError, MOST_WAIT, Terminal};
