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
//!     Permit { call, account: Account::default(), here: std::marker::PhantomData }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! # use hotcell_policy::{Account, Permit};
//! # use hotcell_request::Call;
//! fn forge(call: &Call) -> Permit<'_> {
//!     Permit::new(call, Account::default())
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

mod rules;
#[cfg(test)]
mod tests;
mod verdict;

pub use rules::Snapshot;
pub use verdict::{Account, Permit, Spoken, Verdict};

use hotcell_request::Call;
use hotcell_types::Decision;

/// What is so at the moment of the decision, fetched by the engine.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The one clock reading of an evaluation, in nanoseconds since 1970.
    pub now: i64,
    /// The mode and the state of the caller's workflow.
    pub mode: Option<String>,
    pub state: Option<String>,
}

/// The decision on a call. Every rule is asked; the strictest answer counts; silence is a refusal.
pub fn judge<'call>(snapshot: &Snapshot, call: &'call Call, facts: &Facts) -> Verdict<'call> {
    let account = Account { spoken: snapshot.speak(call, facts) };
    match account.decision() {
        Some(Decision::Allow) => Verdict::Allow(Permit::new(call, account)),
        Some(Decision::Review) => Verdict::Review(account),
        Some(Decision::Deny) | None => Verdict::Deny(account),
    }
}
