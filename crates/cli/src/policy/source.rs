//! Rule files as people have them, and what is wrong with one, shown where it stands.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hotcell_engine::Engine;
use hotcell_engine::policy::{At, FILE_MOST, Fault, PolicyAnswer, PolicyAsk, Rules, Warning};
use hotcell_sandbox::cause;

use crate::exit;
use crate::print::{self, harmless};
use crate::problem::Problem;

/// The text of a rule file, a test file or an extension.
pub(crate) fn text(path: &Path) -> Result<String, Problem> {
    let failed = |error: std::io::Error| {
        Problem::not_found(format!("`{}` cannot be read", path.display()))
            .why(cause(&error))
            .fix("name a file that you can read, by its path from here or from `/`")
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_MOST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > FILE_MOST {
        let what = format!("`{}` has more than {FILE_MOST} bytes", path.display());
        return Err(Problem::invalid(what).fix("write fewer rules"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        Problem::invalid(format!("`{}` is not UTF-8", path.display()))
            .why(format!("byte {} cannot be read as text", good + 1))
            .fix("save the file as UTF-8")
    })
}

/// A rule file with the extensions that it names, which lie beside it. Faults are told here, and what its author
/// might not have meant.
pub(super) fn rules(
    engine: &Engine,
    path: &Path,
    json: bool,
) -> Result<Result<Rules, u8>, Problem> {
    let mut rules = Rules { text: text(path)?, ..Rules::default() };
    let named = match super::ask(engine, PolicyAsk::Check(rules.clone()))? {
        PolicyAnswer::Checked(checked) => {
            print::to_people(&warned(path, &rules.text, &checked.warnings));
            checked.extensions
        }
        PolicyAnswer::Faulty(faults) => return Ok(Err(tell(path, &rules.text, faults, json))),
        _ => return Err(super::unexpected()),
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    for name in named {
        let source = text(&directory.join(&name))?;
        rules.extensions.insert(name, source);
    }
    Ok(Ok(rules))
}

/// Warnings, each with its place in the text.
pub(crate) fn warned(path: &Path, text: &str, warnings: &[Warning]) -> String {
    let told = |one: &Warning| told_at(path, text, one.at, "warning: ", &one.what);
    warnings.iter().map(told).collect()
}

/// Says what is wrong, and gives the number to exit with.
pub(super) fn tell(path: &Path, text: &str, faults: Vec<Fault>, json: bool) -> u8 {
    if json {
        let document = print::document(&hotcell_api::Checked::faulty(faults));
        return print::data_and(&document, exit::INVALID);
    }
    for Fault { at, what, fix } in faults {
        print::to_people(&told_at(path, text, at, "", &format!("{what}: {fix}")));
    }
    exit::INVALID
}

/// Longest line of a file that is shown, in characters.
const LINE_MOST: usize = 120;

/// `FILE:LINE:COL: what`, and the line itself with the place marked.
pub(super) fn told_at(path: &Path, text: &str, at: At, kind: &str, what: &str) -> String {
    let At { line, column } = at;
    let place = format!("{}:{line}:{column}: ", harmless(&path.display().to_string()));
    let mut told = format!("{place}{kind}{}\n", harmless(what));
    let Some(source) = text.lines().nth(line.saturating_sub(1)) else { return told };
    // A long line is shown from where the place is still in sight.
    let skipped = column.saturating_sub(LINE_MOST / 2).min(source.chars().count());
    let shown: String = source.chars().skip(skipped).take(LINE_MOST).collect();
    let before: String = shown.chars().take(column.saturating_sub(1 + skipped)).collect();
    let room = " ".repeat(harmless(&before).chars().count());
    told.push_str(&format!("  | {}\n  | {room}^\n", harmless(&shown)));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_its_line() {
        let path = Path::new("my.yaml");
        let at = At { line: 2, column: 3 };
        assert_eq!(
            told_at(path, "rules:\n  - nome: a\n", at, "", "`nome` is not known"),
            "my.yaml:2:3: `nome` is not known\n  |   - nome: a\n  |   ^\n"
        );
        let beyond = At { line: 9, column: 1 };
        assert_eq!(told_at(path, "", beyond, "", "gone"), "my.yaml:9:1: gone\n");
        let long = format!("{}x", "a".repeat(10_000));
        let told = told_at(path, &long, At { line: 1, column: 10_001 }, "", "long");
        assert!(told.contains("aax\n") && told.len() < 400, "{told}");
    }
}
