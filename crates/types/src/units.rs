//! Quantities as people write them. Strict on purpose: a wrong unit is an error and never a guess,
//! zero is an error and never "unlimited".

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Why a quantity was refused. The message names the input and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{input}` is not {what}: write {form}")]
    Malformed { input: String, what: &'static str, form: &'static str },
    #[error("`{input}` has the unknown unit `{unit}`: write {form}")]
    Unit { input: String, unit: String, form: &'static str },
    #[error("`{input}` is zero: give at least {least} (nothing means unlimited)")]
    Zero { input: String, least: &'static str },
    #[error("`{input}` is too large: the most is {most}")]
    TooLarge { input: String, most: &'static str },
}

/// A number of bytes: `65536`, `64KiB`, `512MiB`, `1GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(NonZeroU64);

/// A length of time: `250ms`, `30s`, `5m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(NonZeroU64);

/// A share of processors, in thousandths: `0.5`, `1`, `2.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(NonZeroU32);

/// A number of things: `100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(NonZeroU64);

const BYTES_FORM: &str = "a whole number with KiB, MiB, GiB, KB, MB, GB or nothing for bytes";
const SPAN_FORM: &str = "a whole number with ms, s, m or h";
const CPUS_FORM: &str = "a number of processors with at most three decimals, such as 0.5 or 2";
const COUNT_FORM: &str = "a whole number";

/// Largest amount of bytes: every kernel interface takes it as a signed 64-bit number.
const BYTES_MOST: u64 = i64::MAX as u64;
/// Longest span, in milliseconds: a year. Longer is a typing error, and deadlines stay far from overflow.
const SPAN_MOST_MS: u64 = 366 * 24 * 3600 * 1000;
/// Most processors, in thousandths: more than any machine has.
const CPUS_MOST: u64 = 4096 * 1000;
/// Largest count: the kernel's largest number of open files or inodes that makes sense.
const COUNT_MOST: u64 = 1 << 31;

impl Bytes {
    pub const fn kib(n: u32) -> Bytes {
        Bytes::literal(n as u64 * 1024)
    }

    /// With so many more, up to the largest amount.
    pub const fn plus(self, more: u64) -> Bytes {
        let sum = self.get().saturating_add(more);
        Bytes::literal(if sum > BYTES_MOST { BYTES_MOST } else { sum })
    }

    pub const fn mib(n: u32) -> Bytes {
        Bytes::literal(n as u64 * 1024 * 1024)
    }

    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// For constants of this crate: zero becomes one, as no constant is zero.
    const fn literal(n: u64) -> Bytes {
        match NonZeroU64::new(n) {
            Some(n) => Bytes(n),
            None => Bytes(NonZeroU64::MIN),
        }
    }
}

impl Span {
    pub const fn millis(n: u32) -> Span {
        match NonZeroU64::new(n as u64) {
            Some(n) => Span(n),
            None => Span(NonZeroU64::MIN),
        }
    }

    pub const fn seconds(n: u32) -> Span {
        match NonZeroU64::new(n as u64 * 1000) {
            Some(n) => Span(n),
            None => Span(NonZeroU64::MIN),
        }
    }

    pub const fn as_millis(self) -> u64 {
        self.0.get()
    }

    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0.get())
    }
}

impl Cpus {
    pub const fn thousandths(n: u32) -> Cpus {
        match NonZeroU32::new(n) {
            Some(n) => Cpus(n),
            None => Cpus(NonZeroU32::MIN),
        }
    }

    pub const fn as_thousandths(self) -> u32 {
        self.0.get()
    }

    /// How many processors a run-time should believe in: the share, rounded up.
    pub const fn whole(self) -> u32 {
        self.0.get().div_ceil(1000)
    }
}

impl Count {
    /// With so many more.
    pub const fn plus(self, more: u64) -> Count {
        Count(self.0.saturating_add(more))
    }

    pub const fn of(n: u32) -> Count {
        match NonZeroU64::new(n as u64) {
            Some(n) => Count(n),
            None => Count(NonZeroU64::MIN),
        }
    }

    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(input: &str) -> Result<Bytes, UnitError> {
        let (digits, unit) = split_number(input);
        let scale: u64 = match unit {
            "" => 1,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(unknown_unit(input, digits, unit, "an amount of bytes", BYTES_FORM)),
        };
        let number = whole_number(input, digits, "an amount of bytes", BYTES_FORM)?;
        let bytes = bounded(input, number, scale, BYTES_MOST, "9223372036854775807 bytes")?;
        Ok(Bytes(bytes))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(input: &str) -> Result<Span, UnitError> {
        let (digits, unit) = split_number(input);
        let scale: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(unknown_unit(input, digits, unit, "a length of time", SPAN_FORM)),
        };
        let number = whole_number(input, digits, "a length of time", SPAN_FORM)?;
        Ok(Span(bounded(input, number, scale, SPAN_MOST_MS, "8784h")?))
    }
}

impl FromStr for Cpus {
    type Err = UnitError;

    fn from_str(input: &str) -> Result<Cpus, UnitError> {
        let malformed = || UnitError::Malformed {
            input: input.into(),
            what: "a number of processors",
            form: CPUS_FORM,
        };
        let (whole, fraction) = input.split_once('.').unwrap_or((input, "0"));
        if fraction.is_empty() || fraction.len() > 3 || !all_digits(fraction) {
            return Err(malformed());
        }
        let whole = whole_number(input, whole, "a number of processors", CPUS_FORM)?;
        let mut thousandths: u64 = fraction.parse().map_err(|_| malformed())?;
        for _ in fraction.len()..3 {
            thousandths *= 10;
        }
        let too_large = || UnitError::TooLarge { input: input.into(), most: "4096" };
        let total = whole
            .checked_mul(1000)
            .and_then(|w| w.checked_add(thousandths))
            .filter(|&n| n <= CPUS_MOST)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(too_large)?;
        NonZeroU32::new(total)
            .map(Cpus)
            .ok_or_else(|| UnitError::Zero { input: input.into(), least: "0.001" })
    }
}

impl FromStr for Count {
    type Err = UnitError;

    fn from_str(input: &str) -> Result<Count, UnitError> {
        let number = whole_number(input, input, "a count", COUNT_FORM)?;
        Ok(Count(bounded(input, number, 1, COUNT_MOST, "2147483648")?))
    }
}

/// Splits after the leading digits. Both halves lie on character boundaries since digits are ASCII.
fn split_number(input: &str) -> (&str, &str) {
    let end = input.bytes().take_while(u8::is_ascii_digit).count();
    input.split_at_checked(end).unwrap_or((input, ""))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn whole_number(
    input: &str,
    digits: &str,
    what: &'static str,
    form: &'static str,
) -> Result<u64, UnitError> {
    if !all_digits(digits) {
        return Err(UnitError::Malformed { input: input.into(), what, form });
    }
    // More digits than a u64 holds saturate, and the bound then says what the most is.
    Ok(digits.parse().unwrap_or(u64::MAX))
}

fn unknown_unit(
    input: &str,
    digits: &str,
    unit: &str,
    what: &'static str,
    form: &'static str,
) -> UnitError {
    if digits.is_empty() || unit.is_empty() {
        return UnitError::Malformed { input: input.into(), what, form };
    }
    UnitError::Unit { input: input.into(), unit: unit.into(), form }
}

fn bounded(
    input: &str,
    number: u64,
    scale: u64,
    most: u64,
    most_text: &'static str,
) -> Result<NonZeroU64, UnitError> {
    let value = number
        .checked_mul(scale)
        .filter(|&v| v <= most)
        .ok_or_else(|| UnitError::TooLarge { input: input.into(), most: most_text })?;
    NonZeroU64::new(value).ok_or_else(|| UnitError::Zero { input: input.into(), least: "1" })
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.get();
        for (scale, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if n.is_multiple_of(scale) {
                return write!(f, "{}{unit}", n / scale);
            }
        }
        write!(f, "{n}")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.as_millis();
        for (scale, unit) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
            if n.is_multiple_of(scale) {
                return write!(f, "{}{unit}", n / scale);
            }
        }
        write!(f, "{n}ms")
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.get() / 1000, self.0.get() % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.get())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.as_millis())
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(f64::from(self.0.get()) / 1000.0)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(s: &str) -> Result<u64, UnitError> {
        s.parse::<Bytes>().map(Bytes::get)
    }

    #[test]
    fn bytes_take_exactly_the_documented_units() {
        for (text, value) in [
            ("1", 1),
            ("65536", 65536),
            ("1KB", 1000),
            ("1KiB", 1024),
            ("512MiB", 512 << 20),
            ("2GB", 2_000_000_000),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "MiB",
            "1M",
            "1mib",
            "1 MiB",
            " 1MiB",
            "1MiB ",
            "1.5GiB",
            "-1",
            "+1",
            "0x10",
            "1e3",
            "١KiB",
            "1TiB",
            "1_000",
            "1B",
            "unlimited",
            "max",
        ] {
            assert!(bytes(text).is_err(), "`{text}` was accepted");
        }
    }

    #[test]
    fn zero_and_overflow_are_refused_in_every_unit() {
        assert!(matches!(bytes("0"), Err(UnitError::Zero { .. })));
        assert!(matches!(bytes("0GiB"), Err(UnitError::Zero { .. })));
        assert!(matches!(bytes("9223372036854775808"), Err(UnitError::TooLarge { .. })));
        assert!(matches!(bytes("99999999999999999999999"), Err(UnitError::TooLarge { .. })));
        assert!(matches!(bytes("18446744073709551615GiB"), Err(UnitError::TooLarge { .. })));
        assert!("0ms".parse::<Span>().is_err());
        assert!("9000h".parse::<Span>().is_err());
        assert!("0".parse::<Cpus>().is_err());
        assert!("0.000".parse::<Cpus>().is_err());
        assert!("4096.001".parse::<Cpus>().is_err());
        assert!("0".parse::<Count>().is_err());
        assert!("2147483649".parse::<Count>().is_err());
    }

    #[test]
    fn spans_need_a_unit() {
        assert_eq!("250ms".parse::<Span>().map(Span::as_millis), Ok(250));
        assert_eq!("2m".parse::<Span>().map(Span::as_millis), Ok(120_000));
        for text in ["30", "30S", "1d", "s", "1.5s", "-1s", "30sec"] {
            assert!(text.parse::<Span>().is_err(), "`{text}` was accepted");
        }
    }

    #[test]
    fn cpus_take_up_to_three_decimals() {
        for (text, value) in [("1", 1000), ("0.5", 500), ("2.25", 2250), ("0.001", 1)] {
            assert_eq!(text.parse::<Cpus>().map(Cpus::as_thousandths), Ok(value), "{text}");
        }
        for text in ["", ".5", "1.", "0.0001", "1,5", "-1", "1.5x", "NaN", "inf", "1.-5"] {
            assert!(text.parse::<Cpus>().is_err(), "`{text}` was accepted");
        }
        assert_eq!(Cpus::thousandths(250).whole(), 1);
        assert_eq!(Cpus::thousandths(1001).whole(), 2);
    }

    #[test]
    fn errors_say_what_and_how_to_fix_it() {
        assert_eq!(
            bytes("1mb").map_err(|e| e.to_string()),
            Err("`1mb` has the unknown unit `mb`: write a whole number with KiB, MiB, GiB, KB, MB, \
                 GB or nothing for bytes"
                .into())
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            drop(text.parse::<Bytes>());
            drop(text.parse::<Span>());
            drop(text.parse::<Cpus>());
            drop(text.parse::<Count>());
        }

        #[test]
        fn what_is_shown_reads_back(n in 1..u64::MAX / 4, cpus in 1..4_096_000u32) {
            let bytes: Bytes = n.to_string().parse().unwrap();
            prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
            let cpus = Cpus::thousandths(cpus);
            prop_assert_eq!(cpus.to_string().parse::<Cpus>().unwrap(), cpus);
        }
    }
}
