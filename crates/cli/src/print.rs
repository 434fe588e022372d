//! Writing to stdout and stderr without panicking when nobody reads, and what a terminal gets beyond that.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use crate::exit;
use crate::problem::Problem;

/// Writes data to stdout; the exit number says whether it arrived.
pub(crate) fn data(text: &str) -> u8 {
    let mut out = io::stdout().lock();
    exit_of(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The same, with the number to exit with if it arrived.
pub(crate) fn data_and(text: &str, code: u8) -> u8 {
    match data(text) {
        0 => code,
        not_written => not_written,
    }
}

/// A document, on one line.
pub(crate) fn document(document: &impl serde::Serialize) -> String {
    harmless_json(serde_json::to_string(document).unwrap_or_default()) + "\n"
}

/// The exit number for having written, or not.
pub(crate) fn exit_of(written: io::Result<()>) -> u8 {
    match written {
        Ok(()) => 0,
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => exit::PIPE,
        Err(e) => {
            to_people(&Problem::not_written(&e).text(colour()));
            exit::ERROR
        }
    }
}

/// Writes to stderr. Whether that worked changes nothing: there is nowhere else to say so.
pub(crate) fn to_people(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// When there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// At a terminal, unless NO_COLOR is set or TERM is `dumb`
    Auto,
    Always,
    Never,
}

/// What was asked for with `--color`.
static CHOSEN: OnceLock<Colour> = OnceLock::new();

/// The first choice holds: words are looked at once.
pub(crate) fn choose(colour: Colour) {
    CHOSEN.get_or_init(|| colour);
}

/// Whether what goes to stderr has colour.
pub(crate) fn colour() -> bool {
    has_colour(io::stderr().is_terminal())
}

/// The same of stdout.
pub(crate) fn colour_of_data() -> bool {
    has_colour(io::stdout().is_terminal())
}

fn has_colour(is_terminal: bool) -> bool {
    match CHOSEN.get().unwrap_or(&Colour::Auto) {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            is_terminal
                && !is_dumb()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// A terminal that cannot go back in a line.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Rows of text in columns that are as wide as what is in them. The first row is the heading.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As text that cannot move the cursor, change the title or forge a line: names of files may come
/// from anybody.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || reorders(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON that says the same, and in which nothing moves the cursor or turns the text around: a terminal obeys
/// more characters than JSON has to escape, and all of them stand within strings.
pub(crate) fn harmless_json(json: String) -> String {
    // As nearly always: what JSON itself escapes is escaped already.
    if json.bytes().all(|byte| byte < 0x7f) {
        return json;
    }
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && (c.is_control() || reorders(c)) {
            // None of them takes more than four digits.
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Characters that change the direction of the text around them.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
