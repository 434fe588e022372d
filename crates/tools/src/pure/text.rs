//! Texts. A character is a Unicode scalar value: what is drawn as one sign can be several of them.

use std::iter::Peekable;
use std::str::Chars;

use hotcell_request::{ToolError, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, json};

use super::{TEXT_MOST, shown};
use crate::BuiltIn;
use crate::number::Num;

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        shown(UppercaseTool, || [(json!({"text": "straße"}), json!("STRASSE"))]),
        shown(LowercaseTool, || [(json!({"text": "ÄB"}), json!("äb"))]),
        shown(ReverseTextTool, || [(json!({"text": "abc"}), json!("cba"))]),
        shown(CountWordsTool, || [(json!({"text": "one two\nthree"}), json!(3))]),
        shown(CountCharactersTool, || [(json!({"text": "äb c"}), json!(4))]),
        shown(ExtractNumbersTool, || {
            [(
                json!({"text": "3 apples at -1.5, 2e3 in all"}),
                json!({"numbers": [3, -1.5, 2000], "left_out": 0}),
            )]
        }),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    #[schemars(length(max = TEXT_MOST))]
    text: String,
}

/// Writes a text in capital letters, as Unicode has them.
#[tool(name = "uppercase", version = "1.0.0", category = "text", effects(pure))]
fn uppercase(input: Text) -> Result<String, ToolError> {
    Ok(input.text.to_uppercase())
}

/// Writes a text in small letters, as Unicode has them.
#[tool(name = "lowercase", version = "1.0.0", category = "text", effects(pure))]
fn lowercase(input: Text) -> Result<String, ToolError> {
    Ok(input.text.to_lowercase())
}

/// Turns a text around, character by character (Unicode scalar values).
#[tool(name = "reverse_text", version = "1.0.0", category = "text", effects(pure))]
fn reverse_text(input: Text) -> Result<String, ToolError> {
    Ok(input.text.chars().rev().collect())
}

/// Counts words: what is between white space.
#[tool(name = "count_words", version = "1.0.0", category = "text", effects(pure))]
fn count_words(input: Text) -> Result<usize, ToolError> {
    Ok(input.text.split_whitespace().count())
}

/// Counts characters (Unicode scalar values), white space included.
#[tool(name = "count_characters", version = "1.0.0", category = "text", effects(pure))]
fn count_characters(input: Text) -> Result<usize, ToolError> {
    Ok(input.text.chars().count())
}

#[derive(Serialize, JsonSchema)]
struct Extracted {
    /// In the order of the text.
    numbers: Vec<Number>,
    /// How many more were there that are too large.
    left_out: usize,
}

/// Finds the numbers in a text: decimal digits with a sign, a fraction and an exponent where they have
/// one. A `-` right after a letter or a digit is a hyphen. Numbers that are too large are counted.
#[tool(name = "extract_numbers", version = "1.0.0", category = "text", effects(pure))]
fn extract_numbers(input: Text) -> Result<Extracted, ToolError> {
    let mut found = Extracted { numbers: Vec::new(), left_out: 0 };
    let mut rest = input.text.chars().peekable();
    let (mut before, mut minus) = (' ', false);
    while let Some(&next) = rest.peek() {
        if next.is_ascii_digit() {
            match number(&mut rest, minus) {
                Some(number) => found.numbers.push(number),
                None => found.left_out += 1,
            }
            (before, minus) = ('0', false);
        } else {
            rest.next();
            (before, minus) = (next, next == '-' && !before.is_alphanumeric());
        }
    }
    Ok(found)
}

/// Reads the number that begins here. `None` is one that is too large.
fn number(rest: &mut Peekable<Chars<'_>>, minus: bool) -> Option<Number> {
    let mut text = String::from(if minus { "-" } else { "" });
    digits(rest, &mut text);
    if fraction_follows(rest) {
        rest.next();
        text.push('.');
        digits(rest, &mut text);
    }
    let mut ahead = rest.clone();
    if ahead.next_if(|c| matches!(c, 'e' | 'E')).is_some() {
        let sign = ahead.next_if(|c| matches!(c, '+' | '-'));
        if ahead.peek().is_some_and(char::is_ascii_digit) {
            text.push('e');
            text.extend(sign);
            *rest = ahead;
            digits(rest, &mut text);
        }
    }
    let number = match text.parse() {
        Ok(whole) => Num::Whole(whole),
        Err(_) => Num::real(text.parse().ok()?),
    };
    number.result("").ok()
}

fn digits(rest: &mut Peekable<Chars<'_>>, text: &mut String) {
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        text.push(digit);
    }
}

fn fraction_follows(rest: &Peekable<Chars<'_>>) -> bool {
    let mut ahead = rest.clone();
    ahead.next() == Some('.') && ahead.next().is_some_and(|c| c.is_ascii_digit())
}
