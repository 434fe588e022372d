//! A line as words: quotes and backslashes as a shell has them, and nothing else of a shell.

use std::str::Chars;

use crate::problem::Problem;

/// The words of a whole line.
pub(super) fn split(line: &str) -> Result<Vec<String>, Problem> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.trim_end_matches(['\n', '\r']).chars();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\r' => return Err(several_lines()),
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => single(&mut rest, word.get_or_insert_default())?,
            '"' => double(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or_else(nothing_follows)?),
            '\0' => return Err(no_text()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Everything up to the next one.
fn single(rest: &mut Chars<'_>, word: &mut String) -> Result<(), Problem> {
    loop {
        match rest.next().ok_or_else(|| unbalanced('\''))? {
            '\'' => return Ok(()),
            '\0' => return Err(no_text()),
            c => word.push(c),
        }
    }
}

/// The same, except that a backslash takes away the meaning of a quote, and of itself.
fn double(rest: &mut Chars<'_>, word: &mut String) -> Result<(), Problem> {
    loop {
        match rest.next().ok_or_else(|| unbalanced('"'))? {
            '"' => return Ok(()),
            '\\' => match rest.next().ok_or_else(|| unbalanced('"'))? {
                c @ ('"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            '\0' => return Err(no_text()),
            c => word.push(c),
        }
    }
}

fn unbalanced(quote: char) -> Problem {
    Problem::invalid(format!("a {quote} has no end"))
        .fix(format!("close it, or write \\{quote} for the character itself"))
}

fn nothing_follows() -> Problem {
    Problem::invalid("nothing follows the last \\").fix("write \\\\ for the character itself")
}

fn several_lines() -> Problem {
    Problem::invalid("there are several lines, and each is a command")
        .fix("give one at a time; a text of several lines stands in quotes")
}

fn no_text() -> Problem {
    Problem::invalid("there is a zero byte in the line").fix("leave it out")
}

/// Where the last word of an unfinished line begins, and the words before it. `None` within quotes.
pub(super) fn unfinished(line: &str) -> Option<(usize, Vec<String>)> {
    let begin = line
        .char_indices()
        .rev()
        .take_while(|(_, c)| !c.is_whitespace())
        .last()
        .map_or(line.len(), |(at, _)| at);
    let words = split(line.get(..begin)?).ok()?;
    Some((begin, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_a_shell_would_make_of_them() {
        for (line, expected) in [
            ("", &[][..]),
            ("a  b\tc ", &["a", "b", "c"]),
            ("'a b' \"c d\"e", &["a b", "c de"]),
            ("''", &[""]),
            (r#"tool call add '{"a": 1}'"#, &["tool", "call", "add", r#"{"a": 1}"#]),
            (r#""a\"b\\c\d""#, &[r#"a"b\c\d"#]),
            (r"a\ b \' \\", &["a b", "'", r"\"]),
            (r"'a\b'", &[r"a\b"]),
            ("-c 'a\nb'\n", &["-c", "a\nb"]),
            ("$HOME * | > ; #", &["$HOME", "*", "|", ">", ";", "#"]),
            ("é\u{a0}ü", &["é", "ü"]),
        ] {
            assert_eq!(split(line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn what_is_not_finished_is_told() {
        for (line, expected) in [
            ("a 'b", "a ' has no end"),
            ("\"b", "a \" has no end"),
            ("\"b\\", "a \" has no end"),
            ("a\\", "nothing follows the last \\"),
            ("runs\nruns", "several lines"),
            ("a\0b", "zero byte"),
        ] {
            let error = split(line).unwrap_err().text(false);
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
