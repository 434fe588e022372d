//! Lists.

use std::collections::BTreeSet;

use hotcell_request::{ToolError, canonical, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};

use super::shown;
use crate::BuiltIn;
use crate::number::{Num, too_large};

/// Most items of a list.
const ITEMS_MOST: usize = 100_000;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        shown(SumTool, || [(json!({"items": [1, 2, 3.5]}), json!(6.5))]),
        shown(AverageTool, || [(json!({"items": [1, 2, 3]}), json!(2))]),
        shown(MinTool, || [(json!({"items": [3, -1, 2]}), json!(-1))]),
        shown(MaxTool, || [(json!({"items": [3, -1, 2]}), json!(3))]),
        shown(UniqueTool, || [(json!({"items": ["b", "a", "b"]}), json!(["b", "a"]))]),
        shown(SortTool, || {
            [
                (json!({"items": [3, 1.5, 2]}), json!([1.5, 2, 3])),
                (json!({"items": ["a", "b"], "order": "descending"}), json!(["b", "a"])),
            ]
        }),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    #[schemars(length(max = ITEMS_MOST))]
    items: Vec<Number>,
}

impl Numbers {
    fn sum(&self) -> Result<Num, ToolError> {
        let mut items = self.items.iter().map(Num::of);
        items.try_fold(Num::Whole(0), Num::plus).ok_or_else(|| too_large("the sum"))
    }
}

/// Adds up numbers. The sum of none is 0. Whole numbers are exact; a result beyond 64 bits is an error.
#[tool(name = "sum", version = "1.0.0", category = "list", effects(pure))]
fn sum(input: Numbers) -> Result<Number, ToolError> {
    input.sum()?.result("the sum")
}

/// The arithmetic mean of numbers.
#[tool(name = "average", version = "1.0.0", category = "list", effects(pure))]
fn average(input: Numbers) -> Result<Number, ToolError> {
    let count = Num::Whole(input.items.len() as i128);
    let average = input.sum()?.over(count).ok_or_else(|| nothing("average"))?;
    average.result("the average")
}

/// The smallest of numbers.
#[tool(name = "min", version = "1.0.0", category = "list", effects(pure))]
fn min(input: Numbers) -> Result<Number, ToolError> {
    let items = input.items.iter().map(Num::of);
    items.min_by(Num::order).ok_or_else(|| nothing("minimum"))?.result("the minimum")
}

/// The largest of numbers.
#[tool(name = "max", version = "1.0.0", category = "list", effects(pure))]
fn max(input: Numbers) -> Result<Number, ToolError> {
    let items = input.items.iter().map(Num::of);
    items.max_by(Num::order).ok_or_else(|| nothing("maximum"))?.result("the maximum")
}

#[derive(Deserialize, JsonSchema)]
struct Anything {
    #[schemars(length(max = ITEMS_MOST))]
    items: Vec<Value>,
}

/// Leaves out what was there before, and keeps the order. Items of any kind; equal are those with one
/// canonical form.
#[tool(name = "unique", version = "1.0.0", category = "list", effects(pure))]
fn unique(mut input: Anything) -> Result<Vec<Value>, ToolError> {
    let mut seen = BTreeSet::new();
    input.items.retain(|item| seen.insert(canonical::bytes(item)));
    Ok(input.items)
}

#[derive(Deserialize, JsonSchema)]
struct Sort {
    items: Items,
    #[serde(default = "ascending")]
    order: Order,
}

/// All numbers, or all texts.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Items {
    Numbers(#[schemars(length(max = ITEMS_MOST))] Vec<Number>),
    Texts(#[schemars(length(max = ITEMS_MOST))] Vec<String>),
}

#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Order {
    Ascending,
    Descending,
}

fn ascending() -> Order {
    Order::Ascending
}

/// Sorts numbers by value, or texts by their characters' numbers in Unicode.
#[tool(name = "sort", version = "1.0.0", category = "list", effects(pure))]
fn sort(mut input: Sort) -> Result<Items, ToolError> {
    let descending = input.order == Order::Descending;
    match &mut input.items {
        Items::Numbers(numbers) => {
            numbers.sort_by(|one, two| Num::of(one).order(&Num::of(two)));
            if descending {
                numbers.reverse();
            }
        }
        Items::Texts(texts) => {
            texts.sort();
            if descending {
                texts.reverse();
            }
        }
    }
    Ok(input.items)
}

fn nothing(what: &str) -> ToolError {
    ToolError::new(
        format!("there is no {what}"),
        "the list is empty",
        "send a list with at least one number",
    )
}
