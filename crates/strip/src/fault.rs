//! What is wrong with a source, where, and what to write instead.

/// Why a source cannot be made JavaScript.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}: {why}; {fix}")]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub what: String,
    pub why: String,
    pub fix: String,
}

/// Something that is more than a type, and what to write instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) what: &'static str,
    pub(crate) fix: &'static str,
}

impl Fault {
    pub(crate) fn kept(source: &str, offset: u32, kept: Kept) -> Fault {
        let why = "types are erased and nothing is rewritten, and this is more than a type";
        Fault::at(source, offset as usize, kept.what, why, kept.fix)
    }

    pub(crate) fn syntax(source: &str, offset: usize, why: &str) -> Fault {
        let mut why = why.trim_end_matches('.').to_owned();
        if let Some(first) = why.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        Fault::at(source, offset, "this is not TypeScript", &why, "correct it there")
    }

    pub(crate) fn too_long(source: &str) -> Fault {
        let why = format!("it has {} bytes, and {} are the most", source.len(), crate::MOST_SOURCE);
        Fault::at(source, 0, "the source is too long", &why, "make several files of it")
    }

    pub(crate) fn no_room(source: &str) -> Fault {
        let why = "there is no memory or no thread for it";
        Fault::at(source, 0, "the source cannot be read", why, "try again, or make it shorter")
    }

    fn at(source: &str, offset: usize, what: &str, why: &str, fix: &str) -> Fault {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Fault {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            what: what.into(),
            why: why.into(),
            fix: fix.into(),
        }
    }
}
