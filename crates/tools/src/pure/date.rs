//! Dates, in UTC and the Gregorian calendar, before and after it was introduced. Own code: the way from
//! seconds to a date is a dozen lines, and holds for every 64-bit number of seconds.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use hotcell_request::{ToolError, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shown;
use crate::BuiltIn;

/// Most characters of a format.
const FORMAT_MOST: usize = 256;
const ISO: &str = "%Y-%m-%dT%H:%M:%SZ";
const DAY: i64 = 86_400;

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
#[tool(name = "current_datetime", version = "1.0.0", category = "date", effects(read))]
fn current_datetime(_: Nothing) -> Result<String, ToolError> {
    format(now_ms().div_euclid(1000), ISO)
}

/// The current time as seconds since 1970 in UTC.
#[tool(name = "current_timestamp", version = "1.0.0", category = "date", effects(read))]
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
#[tool(name = "timestamp", version = "1.0.0", category = "date", effects(read))]
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

struct Civil {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From Sunday, which is 0.
    weekday: i64,
}

/// The date of a day that is so many days after 1970-01-01.
///
/// Years are counted from March, so that the day which only leap years have is the last one, and in
/// eras of 400 years, after which everything repeats.
fn civil(days: i64) -> Civil {
    const ERA: i64 = 146_097;
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    let from_march = days + 719_468;
    let (era, day_of_era) = (from_march.div_euclid(ERA), from_march.rem_euclid(ERA));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let day_of_year = match month {
        1 | 2 => day_of_year - 305,
        _ => day_of_year + 60 + i64::from(is_leap),
    };
    Civil { year, month, day, day_of_year, weekday: (days + 4).rem_euclid(7) }
}

fn format(timestamp: i64, format: &str) -> Result<String, ToolError> {
    let date = civil(timestamp.div_euclid(DAY));
    let second = timestamp.rem_euclid(DAY);
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
            Some('H') => write!(text, "{:02}", second / 3600),
            Some('M') => write!(text, "{:02}", second / 60 % 60),
            Some('S') => write!(text, "{:02}", second % 60),
            Some('A') => text.write_str(weekday),
            Some('a') => text.write_str(weekday.get(..3).unwrap_or_default()),
            Some('B') => text.write_str(month),
            Some('b') => text.write_str(month.get(..3).unwrap_or_default()),
            Some('F') => write!(text, "{}-{:02}-{:02}", year(date.year), date.month, date.day),
            Some('T') => {
                write!(text, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
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

    fn is_leap(year: i64) -> bool {
        year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
    }

    fn length(year: i64, month: i64) -> i64 {
        match month {
            2 => 28 + i64::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    #[test]
    fn each_day_of_eight_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day, mut of_year, mut weekday) = (1600, 1, 1, 1, 6);
        for days in -135_140..157_054 {
            let date = civil(days);
            assert_eq!(
                (date.year, date.month, date.day, date.day_of_year, date.weekday),
                (year, month, day, of_year, weekday),
                "{days}"
            );
            weekday = (weekday + 1) % 7;
            (day, of_year) = (day + 1, of_year + 1);
            if day > length(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month, of_year) = (year + 1, 1, 1);
            }
        }
        assert_eq!((year, month, day), (2400, 1, 1));
    }

    proptest! {
        #[test]
        fn every_number_of_seconds_has_a_date(timestamp: i64) {
            let date = civil(timestamp.div_euclid(DAY));
            prop_assert!((1..=12).contains(&date.month));
            prop_assert!((1..=length(date.year, date.month)).contains(&date.day));
            prop_assert!((1..=365 + i64::from(is_leap(date.year))).contains(&date.day_of_year));
            prop_assert!(format(timestamp, ISO).unwrap().ends_with('Z'));
        }
    }
}
