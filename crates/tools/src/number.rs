//! Numbers as JSON has them here: whole ones are exact and have 64 bits, the others are doubles. A result
//! that is neither is an error, and never a number that was rounded on the way.

use std::cmp::Ordering;

use hotcell_request::ToolError;
use serde_json::Number;

/// A number to calculate with. A whole one has room for what comes in between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Num {
    Whole(i128),
    /// With a fraction, or from [`DOUBLES_FROM`] on.
    Real(f64),
}

use Num::{Real, Whole};

/// Below, a whole number is written as an integer, and has to be one that fits (`hotcell_request::json`).
const DOUBLES_FROM: f64 = 1e21;

impl Num {
    pub(crate) fn of(number: &Number) -> Num {
        match number.as_i128() {
            Some(whole) => Whole(whole),
            None => Num::real(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// What a double is, in the one form that it has here.
    pub(crate) fn real(double: f64) -> Num {
        let is_whole = double.fract() == 0.0 && double.abs() < DOUBLES_FROM;
        if is_whole { Whole(double as i128) } else { Real(double) }
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Whole(whole) => whole as f64,
            Real(double) => double,
        }
    }

    /// The result of what was being done.
    pub(crate) fn result(self, doing: &str) -> Result<Number, ToolError> {
        match self {
            Whole(whole) => Number::from_i128(whole).ok_or_else(|| too_large(doing)),
            Real(double) if double.is_nan() => Err(ToolError::new(
                format!("{doing} has no result"),
                "there is no real number that it could be",
                "send other numbers",
            )),
            Real(double) => Number::from_f64(double).ok_or_else(|| too_large(doing)),
        }
    }

    /// By value. Exact: a double with a fraction is below 2^53, where whole numbers are doubles too.
    pub(crate) fn order(&self, other: &Num) -> Ordering {
        match (self, other) {
            (Whole(one), Whole(two)) => one.cmp(two),
            (one, two) => one.as_f64().total_cmp(&two.as_f64()),
        }
    }

    pub(crate) fn plus(self, other: Num) -> Option<Num> {
        self.with(other, i128::checked_add, |a, b| a + b)
    }

    pub(crate) fn minus(self, other: Num) -> Option<Num> {
        self.with(other, i128::checked_sub, |a, b| a - b)
    }

    pub(crate) fn times(self, other: Num) -> Option<Num> {
        self.with(other, i128::checked_mul, |a, b| a * b)
    }

    /// `None` is a division by zero.
    pub(crate) fn over(self, other: Num) -> Option<Num> {
        match (self, other) {
            (_, Whole(0)) => None,
            (Whole(a), Whole(b)) if a % b == 0 => Some(Whole(a / b)),
            (a, b) => Some(Num::real(a.as_f64() / b.as_f64())),
        }
    }

    fn with(
        self,
        other: Num,
        whole: fn(i128, i128) -> Option<i128>,
        real: fn(f64, f64) -> f64,
    ) -> Option<Num> {
        match (self, other) {
            (Whole(one), Whole(two)) => whole(one, two).map(Whole),
            (one, two) => Some(Num::real(real(one.as_f64(), two.as_f64()))),
        }
    }
}

pub(crate) fn too_large(doing: &str) -> ToolError {
    ToolError::new(
        format!("{doing} overflows"),
        "the result is larger than a number of 64 bits",
        "send smaller numbers",
    )
}
