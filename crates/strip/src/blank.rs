//! The page on which types are blanked out.

use std::collections::HashMap;

use oxc_span::Span;

/// What is to be blanked, and the few characters that are written into blanks.
#[derive(Debug, Default)]
pub(crate) struct Blanks {
    spans: Vec<Span>,
    /// Where a span begins, by where it ends.
    starts: HashMap<u32, u32>,
    written: Vec<(u32, u8)>,
}

impl Blanks {
    pub(crate) fn blank(&mut self, span: Span) {
        if span.start < span.end {
            self.spans.push(span);
            self.starts.insert(span.end, span.start);
        }
    }

    /// Puts a character into a blank.
    pub(crate) fn write(&mut self, at: u32, byte: u8) {
        self.written.push((at, byte));
    }

    /// Blanks a whole statement or class element. Without the semicolon, what comes before and after
    /// could become one.
    pub(crate) fn remove(&mut self, span: Span) {
        self.blank(span);
        self.write(span.start, b';');
    }

    /// A statement that ended because a type could not go on there has to end without the type as well.
    pub(crate) fn end_statement(&mut self, end: u32) {
        if let Some(&start) = self.starts.get(&end) {
            self.write(start, b';');
        }
    }

    /// The source with everything done.
    pub(crate) fn apply(&self, source: &str) -> String {
        let mut bytes = source.as_bytes().to_vec();
        for span in &self.spans {
            let (start, end) = (span.start as usize, span.end as usize);
            let mut at = start;
            for character in source.get(start..end).unwrap_or_default().chars() {
                let next = at + character.len_utf8();
                if !ends_line(character)
                    && let Some(place) = bytes.get_mut(at..next)
                {
                    place.fill(b' ');
                }
                at = next;
            }
        }
        for &(at, byte) in &self.written {
            if let Some(place) = bytes.get_mut(at as usize) {
                *place = byte;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What JavaScript takes for the end of a line.
pub(crate) fn ends_line(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}
