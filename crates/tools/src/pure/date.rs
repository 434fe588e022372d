//! Dates, in UTC and the Gregorian calendar, before and after it was introduced.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use hotcell_request::{ToolError, tool};
use hotcell_types::Utc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shown;
use crate::BuiltIn;

/// Most characters of a format.
const FORMAT_MOST: usize = 256;
const ISO: &str = "%Y-%m-%dT%H:%M:%SZ";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(super) fn tools() -> Vec<BuiltIn> {
    vec![
        shown(CurrentDatetimeTool, || [(json!({}), json!("2026-01-31T12:00:00Z"))]),
        shown(CurrentTimestampTool, || [(json!({}), json!(1_769_860_800))]),
        shown(TimestampTool, || {
            [(json!({}), json!({"unix_ms": 1_769_860_800_000_i64, "iso": "2026-01-31T12:00:00Z"}))]
        }),
        shown(FormatDateTool, || {
            [
                (json!({"timestamp": 0}), json!("1970-01-01T00:00:00Z")),
                (
                    json!({"timestamp": 951_782_400, "format": "%A, %d %B %Y"}),
                    json!("Tuesday, 29 February 2000"),
                ),
            ]
        }),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// The current date and time in UTC, as ISO 8601.
#[tool(name = "current_datetime", version = "1.0.0", category = "date", effects(read), varies(""))]
fn current_datetime(_: Nothing) -> Result<String, ToolError> {
    format(now_ms().div_euclid(1000), ISO)
}

/// The current time as seconds since 1970 in UTC.
#[tool(name = "current_timestamp", version = "1.0.0", category = "date", effects(read), varies(""))]
fn current_timestamp(_: Nothing) -> Result<i64, ToolError> {
    Ok(now_ms().div_euclid(1000))
}

#[derive(Serialize, JsonSchema)]
struct Timestamp {
    /// Milliseconds since 1970.
    unix_ms: i64,
    /// The same as ISO 8601, in whole seconds.
    iso: String,
}

/// The current time as milliseconds since 1970 and as ISO 8601, in UTC.
#[tool(
    name = "timestamp",
    version = "1.0.0",
    category = "date",
    effects(read),
    varies("/unix_ms", "/iso")
)]
fn timestamp(_: Nothing) -> Result<Timestamp, ToolError> {
    let unix_ms = now_ms();
    Ok(Timestamp { unix_ms, iso: format(unix_ms.div_euclid(1000), ISO)? })
}

#[derive(Deserialize, JsonSchema)]
struct FormatDate {
    /// Seconds since 1970.
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    timestamp: i64,
    /// Text in which %Y %m %d %H %M %S %y %e %j %a %A %b %B %F %T %s and %% are replaced as by strftime.
    #[serde(default = "iso")]
    #[schemars(length(max = FORMAT_MOST))]
    format: String,
}

fn iso() -> String {
    ISO.into()
}

/// Writes seconds since 1970 as a date in UTC, by default as ISO 8601. Years beyond four digits have a
/// sign.
#[tool(name = "format_date", version = "1.0.0", category = "date", effects(pure))]
fn format_date(input: FormatDate) -> Result<String, ToolError> {
    format(input.timestamp, &input.format)
}

/// A clock that is set before 1970 counts backwards from there.
fn now_ms() -> i64 {
    let ms =
        |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    SystemTime::now().duration_since(UNIX_EPOCH).map_or_else(|e| -ms(e.duration()), ms)
}

fn format(timestamp: i64, format: &str) -> Result<String, ToolError> {
    let date = Utc::at(timestamp);
    let name = |names: &[&'static str], number: i64| {
        usize::try_from(number).ok().and_then(|n| names.get(n).copied()).unwrap_or_default()
    };
    let (month, weekday) = (name(&MONTHS, date.month - 1), name(&WEEKDAYS, date.weekday));
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        // Writing to a text does not fail.
        let done = match rest.next() {
            Some('Y') => text.write_str(&year(date.year)),
            Some('y') => write!(text, "{:02}", date.year.rem_euclid(100)),
            Some('m') => write!(text, "{:02}", date.month),
            Some('d') => write!(text, "{:02}", date.day),
            Some('e') => write!(text, "{:2}", date.day),
            Some('j') => write!(text, "{:03}", date.day_of_year),
            Some('H') => write!(text, "{:02}", date.hour),
            Some('M') => write!(text, "{:02}", date.minute),
            Some('S') => write!(text, "{:02}", date.second),
            Some('A') => text.write_str(weekday),
            Some('a') => text.write_str(weekday.get(..3).unwrap_or_default()),
            Some('B') => text.write_str(month),
            Some('b') => text.write_str(month.get(..3).unwrap_or_default()),
            Some('F') => write!(text, "{}-{:02}-{:02}", year(date.year), date.month, date.day),
            Some('T') => {
                write!(text, "{:02}:{:02}:{:02}", date.hour, date.minute, date.second)
            }
            Some('s') => write!(text, "{timestamp}"),
            Some('%') => text.write_str("%"),
            other => return Err(unknown(other)),
        };
        if done.is_err() {
            return Err(unknown(None));
        }
    }
    Ok(text)
}

/// Four digits; beyond, ISO 8601 wants a sign.
fn year(year: i64) -> String {
    match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{year:+05}"),
    }
}

fn unknown(letter: Option<char>) -> ToolError {
    let letter = letter.filter(|c| !c.is_control()).map(String::from).unwrap_or_default();
    ToolError::new(
        format!("the format has `%{letter}`"),
        "that does not stand for anything",
        "use %Y %m %d %H %M %S %y %e %j %a %A %b %B %F %T %s, or %% for a percent sign",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_of_seconds_has_a_date(timestamp: i64) {
            prop_assert!(format(timestamp, ISO).unwrap().ends_with('Z'));
        }
    }
}
