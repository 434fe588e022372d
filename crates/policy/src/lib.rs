//! Decides whether a call may happen. Pure: no clock, no chance, no file; what a decision depends on
//! comes in as [`Facts`].
//!
//! Only [`judge`] makes a [`Permit`], and only for a verdict of allow. A permit borrows the very call that
//! was judged, so that the value judged is the value executed; it cannot be made elsewhere, copied, kept
//! beyond the call or given to another thread, and whoever acts on it takes it by value.
//!
//! What a permit is for compiles; each of the others differs from it in one thing only, and does not.
//!
//! ```
//! use hotcell_policy::{Facts, Permit, Snapshot, Verdict, judge};
//! use hotcell_request::Call;
//!
//! fn act(permit: Permit<'_>) {
//!     drop(permit);
//! }
//!
//! fn decide(snapshot: &Snapshot, call: &Call) {
//!     if let Verdict::Allow(permit) = judge(snapshot, call, &Facts::default()) {
//!         act(permit);
//!     }
//! }
//! ```
//!
//! Not used twice:
//!
//! ```compile_fail,E0382
//! # use hotcell_policy::{Facts, Permit, Snapshot, Verdict, judge};
//! # use hotcell_request::Call;
//! # fn act(permit: Permit<'_>) { drop(permit); }
//! fn decide(snapshot: &Snapshot, call: &Call) {
//!     if let Verdict::Allow(permit) = judge(snapshot, call, &Facts::default()) {
//!         act(permit);
//!         act(permit);
//!     }
//! }
//! ```
//!
//! Not copied:
//!
//! ```compile_fail,E0599
//! # use hotcell_policy::{Facts, Permit, Snapshot, Verdict, judge};
//! # use hotcell_request::Call;
//! # fn act(permit: Permit<'_>) { drop(permit); }
//! fn decide(snapshot: &Snapshot, call: &Call) {
//!     if let Verdict::Allow(permit) = judge(snapshot, call, &Facts::default()) {
//!         let copy: Permit<'_> = permit.clone();
//!         act(copy);
//!     }
//! }
//! ```
//!
//! Not forged, by its fields or by its maker:
//!
//! ```compile_fail,E0451
//! # use hotcell_policy::{Account, Permit};
//! # use hotcell_request::Call;
//! fn forge(call: &Call) -> Permit<'_> {
//!     Permit { call, account: Account::default(), constraints: Default::default(), here: std::marker::PhantomData }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! # use hotcell_policy::{Account, Permit};
//! # use hotcell_request::Call;
//! fn forge(call: &Call) -> Permit<'_> {
//!     Permit::new(call, Account::default(), Default::default())
//! }
//! ```
//!
//! Not kept:
//!
//! ```compile_fail,E0521
//! # use hotcell_policy::{Facts, Permit, Snapshot, Verdict, judge};
//! # use hotcell_request::Call;
//! thread_local! {
//!     static KEPT: std::cell::RefCell<Vec<Permit<'static>>> = const { std::cell::RefCell::new(Vec::new()) };
//! }
//! fn decide(snapshot: &Snapshot, call: &Call) {
//!     if let Verdict::Allow(permit) = judge(snapshot, call, &Facts::default()) {
//!         KEPT.with_borrow_mut(|kept| kept.push(permit));
//!     }
//! }
//! ```
//!
//! Not sent:
//!
//! ```compile_fail,E0277
//! # use hotcell_policy::{Facts, Permit, Snapshot, Verdict, judge};
//! # use hotcell_request::Call;
//! # fn act(permit: Permit<'_>) { drop(permit); }
//! fn decide(snapshot: &Snapshot, call: &Call) {
//!     if let Verdict::Allow(permit) = judge(snapshot, call, &Facts::default()) {
//!         std::thread::scope(|scope| {
//!             scope.spawn(move || act(permit));
//!         });
//!     }
//! }
//! ```

mod built_in;
mod condition;
mod constraints;
mod explain;
mod facts;
mod fault;
mod hint;
mod index;
mod judge;
mod learn;
mod mint;
mod outlook;
mod read;
mod rule;
mod settled;
mod snapshot;
mod subject;
mod verdict;
mod when;
mod yaml;

#[cfg(test)]
mod tests;

pub use built_in::Protected;
pub use condition::Field;
pub use constraints::{Constraints, TwoSandboxes};
pub use explain::{Explained, Explanation, Outcome};
pub use facts::{Extension, Facts, Grant, TokenStatus};
pub use fault::{At, FAULTS_MOST, Fault, Warning};
pub use judge::judge;
pub use learn::{Wanted, learn};
pub use mint::{NotCovered, Scope};
pub use outlook::Outlook;
pub use read::{
    Expectation, Expression, MODES, RULES_MOST, Redact, STATES, TESTS_MOST, expectations,
};
pub use rule::Rule;
pub use settled::Settled;
pub use snapshot::{DEFAULT, Loaded, Snapshot, approvers};
pub use verdict::{Account, Permit, Spoken, Verdict};
pub use yaml::FILE_MOST;
