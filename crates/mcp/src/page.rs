//! A part of a list at a time. A cursor is the name of the last one that was told, so that what is added or
//! goes away meanwhile moves nothing else.

use hotcell_api::{Problem, ProblemKind};
use rmcp::ErrorData;
use rmcp::model::PaginatedRequestParams;

/// How many of a list are told at once. Some clients ask for the first part only.
pub(crate) const PAGE: usize = 100;
/// Longest cursor that is looked at.
const CURSOR_MOST: usize = 256;

pub(crate) fn cursor(request: Option<PaginatedRequestParams>) -> Result<Option<String>, ErrorData> {
    match request.and_then(|request| request.cursor) {
        Some(cursor) if cursor.is_empty() || cursor.len() > CURSOR_MOST => Err(unknown()),
        cursor => Ok(cursor),
    }
}

pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params("there is no such cursor: use one that a list ended with", None)
}

/// What comes after the cursor, and the next one if that is not all. The list is sorted by its names.
pub(crate) fn page<T>(
    list: Vec<T>,
    cursor: Option<&str>,
    name: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let later = |item: &T| cursor.is_none_or(|cursor| name(item).as_str() > cursor);
    let mut rest: Vec<T> = list.into_iter().filter(later).collect();
    let is_all = rest.len() <= PAGE;
    rest.truncate(PAGE);
    let next = rest.last().filter(|_| !is_all).map(&name);
    (rest, next)
}

/// What a list or a look could not be told for, as an error of the protocol.
pub(crate) fn error(problem: &Problem) -> ErrorData {
    let text = format!("{}: {}", problem.what, problem.why);
    let data = serde_json::to_value(problem).ok();
    match problem.kind {
        ProblemKind::NotFound => ErrorData::resource_not_found(text, data),
        ProblemKind::Invalid => ErrorData::invalid_params(text, data),
        _ => ErrorData::internal_error(text, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_list() {
        for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7] {
            let list: Vec<String> = (0..length).map(|n| format!("{n:05}")).collect();
            let (mut told, mut cursor) = (Vec::new(), None);
            loop {
                let (part, next) = page(list.clone(), cursor.as_deref(), String::clone);
                assert!(part.len() <= PAGE);
                told.extend(part);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(told, list);
        }
    }
}
