//! Arithmetic. Whole numbers are calculated with exactly, others as doubles.

use hotcell_request::{ToolError, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, json};

use super::shown;
use crate::BuiltIn;
use crate::number::{Num, too_large};

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        shown(AddTool, || [(json!({"a": 1, "b": 2.5}), json!(3.5))]),
        shown(SubtractTool, || [(json!({"a": 1, "b": 3}), json!(-2))]),
        shown(MultiplyTool, || [(json!({"a": 6, "b": 7}), json!(42))]),
        shown(DivideTool, || {
            [(json!({"a": 6, "b": 3}), json!(2)), (json!({"a": 1, "b": 4}), json!(0.25))]
        }),
        shown(PowerTool, || [(json!({"base": 2, "exponent": 10}), json!(1024))]),
        shown(SqrtTool, || [(json!({"x": 9}), json!(3))]),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Pair {
    a: Number,
    b: Number,
}

/// Adds two numbers. Whole numbers are exact; a result beyond 64 bits is an error.
#[tool(name = "add", version = "1.0.0", category = "math", effects(pure))]
fn add(Pair { a, b }: Pair) -> Result<Number, ToolError> {
    finish("the sum", Num::of(&a).plus(Num::of(&b)))
}

/// Subtracts `b` from `a`. Whole numbers are exact; a result beyond 64 bits is an error.
#[tool(name = "subtract", version = "1.0.0", category = "math", effects(pure))]
fn subtract(Pair { a, b }: Pair) -> Result<Number, ToolError> {
    finish("the difference", Num::of(&a).minus(Num::of(&b)))
}

/// Multiplies two numbers. Whole numbers are exact; a result beyond 64 bits is an error.
#[tool(name = "multiply", version = "1.0.0", category = "math", effects(pure))]
fn multiply(Pair { a, b }: Pair) -> Result<Number, ToolError> {
    finish("the product", Num::of(&a).times(Num::of(&b)))
}

/// Divides `a` by `b`. Exact where the quotient of whole numbers is whole.
#[tool(name = "divide", version = "1.0.0", category = "math", effects(pure))]
fn divide(Pair { a, b }: Pair) -> Result<Number, ToolError> {
    let quotient = Num::of(&a).over(Num::of(&b)).ok_or_else(|| by_zero("the quotient"))?;
    quotient.result("the quotient")
}

#[derive(Deserialize, JsonSchema)]
struct Power {
    base: Number,
    exponent: Number,
}

/// Raises `base` to the power of `exponent`. Whole numbers are exact; a result beyond 64 bits is an error.
#[tool(name = "power", version = "1.0.0", category = "math", effects(pure))]
fn power(Power { base, exponent }: Power) -> Result<Number, ToolError> {
    let (base, exponent) = (Num::of(&base), Num::of(&exponent));
    if base == Num::Whole(0) && exponent.as_f64() < 0.0 {
        return Err(by_zero("the power"));
    }
    finish("the power", raise(base, exponent))
}

/// `None` is an overflow.
fn raise(base: Num, exponent: Num) -> Option<Num> {
    match (base, exponent) {
        // These never overflow, whatever the exponent.
        (Num::Whole(base @ (0 | 1)), Num::Whole(1..)) => Some(Num::Whole(base)),
        (Num::Whole(-1), Num::Whole(exponent)) => {
            Some(Num::Whole(if exponent % 2 == 0 { 1 } else { -1 }))
        }
        (Num::Whole(base), Num::Whole(exponent @ 0..)) => {
            base.checked_pow(u32::try_from(exponent).ok()?).map(Num::Whole)
        }
        (base, exponent) => Some(Num::real(base.as_f64().powf(exponent.as_f64()))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Sqrt {
    x: Number,
}

/// The square root of a number that is not negative. Exact where it is whole.
#[tool(name = "sqrt", version = "1.0.0", category = "math", effects(pure))]
fn sqrt(Sqrt { x }: Sqrt) -> Result<Number, ToolError> {
    let x = Num::of(&x);
    if x.as_f64() < 0.0 {
        return Err(ToolError::new(
            "the square root has no result",
            "the number is negative",
            "send 0 or more",
        ));
    }
    let root = match x {
        Num::Whole(x) if x.isqrt() * x.isqrt() == x => Num::Whole(x.isqrt()),
        x => Num::real(x.as_f64().sqrt()),
    };
    root.result("the square root")
}

fn finish(doing: &str, result: Option<Num>) -> Result<Number, ToolError> {
    result.ok_or_else(|| too_large(doing))?.result(doing)
}

fn by_zero(doing: &str) -> ToolError {
    ToolError::new(format!("{doing} has no result"), "it divides by zero", "send another divisor")
}
