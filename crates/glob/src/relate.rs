//! How two patterns relate, for parts of a path and for characters of a part alike: both are sequences of
//! single things and of one item that stands for any number of them. Time grows with the product of both.

/// What a pattern is a sequence of.
pub(crate) trait Item {
    /// Whether it stands for any number of things.
    fn is_any(&self) -> bool;
    /// Whether two that each stand for one thing can stand for the same.
    fn meets(&self, other: &Self) -> bool;
    /// Whether this one can stand for whatever the other can.
    fn includes(&self, other: &Self) -> bool;
}

/// Whether something matches both. Never wrong when it says no.
pub(crate) fn meet<T: Item>(a: &[T], b: &[T]) -> bool {
    walk(a, b, T::is_any, T::meets)
}

/// Whether all that matches `b` matches `a`. Never wrong when it says yes: what `b` leaves open, only what
/// is open in `a` can take.
pub(crate) fn cover<T: Item>(a: &[T], b: &[T]) -> bool {
    walk(a, b, |_| false, T::includes)
}

/// From the ends of both to their beginnings: whether what is left of one goes with what is left of the
/// other. `yields` tells which items of `b` take whatever stands in `a`.
fn walk<T: Item>(
    a: &[T],
    b: &[T],
    yields: impl Fn(&T) -> bool,
    fits: impl Fn(&T, &T) -> bool,
) -> bool {
    let mut below = vec![false; b.len() + 1];
    for one in a.iter().map(Some).chain([None]).rev() {
        let (mut right, mut diagonal) = (false, false);
        for (other, below) in b.iter().map(Some).chain([None]).rev().zip(&mut below) {
            let goes = match (one, other) {
                (None, None) => true,
                (Some(one), _) if one.is_any() => *below || right,
                (_, Some(other)) if yields(other) => *below || right,
                (Some(one), Some(other)) => !other.is_any() && fits(one, other) && diagonal,
                _ => false,
            };
            diagonal = std::mem::replace(below, goes);
            right = goes;
        }
    }
    below.last().copied().unwrap_or(false)
}
