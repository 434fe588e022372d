//! Makes JavaScript of TypeScript by blanking out the types: every byte that stays is where it was, so
//! that lines and columns in messages are those of the source.
//!
//! Only what can be erased is accepted. What would have to be rewritten, such as an `enum`, is a
//! [`Fault`] that says what to write instead.
//!
//! The parser reads some things several times, and calls itself for each level of nesting: a source can
//! be made that takes all memory or the whole stack. So this belongs into a process that may be lost.

mod blank;
mod erase;
mod fault;
mod scan;

use std::thread;

use oxc_allocator::Allocator;
use oxc_parser::{Parser, ParserReturn};
use oxc_span::SourceType;

pub use fault::Fault;

/// Longest source.
pub const MOST_SOURCE: usize = 256 * 1024;

/// Enough for a thousand levels of anything. What nests deeper than any person writes ends the process.
const STACK: usize = 64 * 1024 * 1024;

/// The JavaScript of a TypeScript module.
pub fn strip(source: &str) -> Result<String, Fault> {
    if source.len() > MOST_SOURCE {
        return Err(Fault::too_long(source));
    }
    thread::scope(|scope| {
        // Only what is used of it becomes memory.
        let thread = thread::Builder::new().name("strip".into()).stack_size(STACK);
        let stripped = thread.spawn_scoped(scope, || erased(source)).map(|thread| thread.join());
        match stripped {
            Ok(Ok(result)) => result,
            _ => Err(Fault::no_room(source)),
        }
    })
}

fn erased(source: &str) -> Result<String, Fault> {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source, SourceType::ts())?;
    let plain = erase::erase(&parsed.program, source)?;
    // What is wrong here was wrong before, in a way that only TypeScript's own checker sees.
    let allocator = Allocator::default();
    parse(&allocator, &plain, SourceType::mjs())?;
    Ok(plain)
}

fn parse<'a>(
    allocator: &'a Allocator,
    source: &'a str,
    kind: SourceType,
) -> Result<ParserReturn<'a>, Fault> {
    let parsed = Parser::new(allocator, source, kind).parse();
    match parsed.errors.first() {
        Some(error) => {
            let label = error.labels.as_ref().and_then(|labels| labels.first());
            let offset = label.map_or(0, |label| label.offset());
            Err(Fault::syntax(source, offset, &error.message))
        }
        None if parsed.panicked => Err(Fault::syntax(source, 0, "it cannot be read")),
        None => Ok(parsed),
    }
}
