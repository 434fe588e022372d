//! Extension rules of a policy, written in TypeScript.
//!
//! [`Extension::start`] loads the rules into a process in the policy sandbox, and
//! [`Extension::evaluate`] asks it. Whatever goes wrong there is a [`Failed`], and that is a deny: the
//! process is ended and started again, at once the first time and later and later after that.
//! docs/extension.d.ts is what a rule sees.

mod desk;
mod extension;
mod line;
mod process;
mod view;

pub use extension::{Extension, Failed, Fault, Source, Spoken};
pub use view::{CallView, FactsView};
