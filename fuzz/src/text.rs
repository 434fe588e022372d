//! Words that people type.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use hotcell_types::{Bytes, Count, Cpus, Level, Span, Template};

use crate::outcome;

/// What is read, is shown, and reads back as the same. An error names the input and is one line or more
/// of text, never empty.
pub(crate) fn reads_back<T>(text: &str) -> bool
where
    T: FromStr<Err: Display> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(value) => {
            let shown = value.to_string();
            assert_eq!(
                shown.parse::<T>().ok().as_ref(),
                Some(&value),
                "{text:?} is shown as {shown:?}"
            );
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{text:?}");
            false
        }
    }
}

pub fn units(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    if let Ok(span) = text.parse::<Span>() {
        // Deadlines are made from it.
        assert!(std::time::Instant::now().checked_add(span.duration()).is_some(), "{text:?}");
    }
    if let Ok(cpus) = text.parse::<Cpus>() {
        assert!(u64::from(cpus.whole()) * 1000 >= u64::from(cpus.as_thousandths()), "{text:?}");
    }
    outcome(&[
        reads_back::<Bytes>(&text),
        reads_back::<Span>(&text),
        reads_back::<Cpus>(&text),
        reads_back::<Count>(&text),
    ])
}

pub(crate) fn unit_seeds() -> Vec<Vec<u8>> {
    let words = [
        "1",
        "0",
        "-1",
        "+1",
        "65536",
        "64KiB",
        "512MiB",
        "1GB",
        "1.5GiB",
        "250ms",
        "30s",
        "5m",
        "1h",
        "8784h",
        "0.5",
        "2.25",
        "0.001",
        "4096",
        "00001",
        "9223372036854775807",
        "18446744073709551616",
        "1e9",
        "١",
        "1 GiB",
        "max",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

pub fn names(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let template = text.parse::<Template>();
    if let Ok(template) = &template {
        assert_eq!(template.name, text);
    }
    let language = text.parse::<hotcell_sandbox::lang::Language>();
    if let Err(error) = &language {
        assert!(!error.why().is_empty() && !error.fix().is_empty());
    }
    outcome(&[reads_back::<Level>(&text), template.is_ok(), language.is_ok()])
}

pub(crate) fn name_seeds() -> Vec<Vec<u8>> {
    let levels =
        ["full", "user", "no-cgroup", "no-proc", "landlock-only", "python", "py", "node", "sh", ""];
    let templates = Template::BUILT_IN.map(|template| template.name);
    levels.iter().chain(&templates).map(|word| word.as_bytes().to_vec()).collect()
}
