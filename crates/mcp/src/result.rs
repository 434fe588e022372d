//! What came of a call, as a model reads it: the value, what went wrong with how to do better, images as
//! images, and everything large as a link with its beginning and its end.

use base64ct::{Base64, Encoding};
use hotcell_api::{Ask, Called, Problem, ProblemKind, Registered};
use hotcell_types::Status;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents};
use serde_json::Value;

use crate::found::Found;
use crate::gate::Gate;
use crate::resources;

/// Longest text of a stream that is told whole: the rest of it is an artifact.
const PRINTED_MOST: usize = 16 << 10;
/// The same of any other text, of which there is no artifact.
const TEXT_MOST: usize = 256 << 10;
/// Largest image, most images, and most bytes of all together.
const IMAGE_MOST: u64 = 2 << 20;
const IMAGES_MOST: usize = 8;
const IMAGES_BYTES_MOST: u64 = 4 << 20;
/// Largest drawing that is told as text.
const DRAWING_MOST: u64 = 256 << 10;
/// Most files that have a link.
const LINKS_MOST: usize = 32;
/// Most problems that are told.
const PROBLEMS_MOST: usize = 8;

/// The result of a call.
pub(crate) async fn result(gate: &Gate, called: Called) -> CallToolResult {
    let Called { id, status, value, problems, artifacts, review, .. } = called;
    let mut content = Vec::new();
    let told: Vec<String> = problems.iter().take(PROBLEMS_MOST).map(text).collect();
    if !told.is_empty() {
        content.push(ContentBlock::text(told.join("\n")));
    }
    let structured = value.map(|value| cut_streams(value, &artifacts));
    if let Some(value) = &structured {
        // A text is told as it is, and everything else as JSON.
        let told = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        content.push(ContentBlock::text(cut(&told, TEXT_MOST, None)));
    } else if told.is_empty() {
        content.push(ContentBlock::text(format!("the call ended with `{}`", status.name())));
    }
    content.extend(made(gate, &artifacts).await);
    let mut result = match status {
        Status::Success => CallToolResult::success(content),
        _ => CallToolResult::error(content),
    };
    result.structured_content = structured.filter(Value::is_object);
    let mut meta = MetaObject::new();
    meta.0.insert("hotcell/call".into(), id.to_string().into());
    meta.0.insert("hotcell/status".into(), status.name().into());
    if let Some(item) = review {
        meta.0.insert("hotcell/approval".into(), item.into());
    }
    result.with_meta(Some(meta))
}

/// Nothing came of it.
pub(crate) fn refused(problem: &Problem) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text(problem))])
}

pub(crate) fn error_of(
    kind: ProblemKind,
    what: &str,
    why: &dyn std::fmt::Display,
    fix: &str,
) -> Problem {
    Problem::new(kind, what, why.to_string(), fix)
}

/// What, why, fix, so that a model can do better.
fn text(problem: &Problem) -> String {
    let Problem { at, what, why, fix, .. } = problem;
    let mut text = format!("error: {what}");
    for (name, said) in [("at", at), ("why", why), ("fix", fix)] {
        if !said.is_empty() {
            text.push_str(&format!("\n  {name}: {said}"));
        }
    }
    text
}

/// What a run printed is told up to a most; the whole of it is an artifact. It stays a text, as the tool's
/// schema wants it.
fn cut_streams(mut value: Value, artifacts: &[Registered]) -> Value {
    let Some(members) = value.as_object_mut() else { return value };
    for stream in ["stdout", "stderr"] {
        let whole = artifacts.iter().find(|artifact| artifact.role == stream);
        if let (Some(whole), Some(Value::String(printed))) = (whole, members.get_mut(stream)) {
            *printed = cut(printed, PRINTED_MOST, Some(&whole.id));
        }
    }
    value
}

/// The beginning and the end of a text, and how much there is between.
fn cut(text: &str, most: usize, whole: Option<&str>) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let is_whole = |at: &usize| text.is_char_boundary(*at);
    let end_of_head = (0..=most / 2).rev().find(is_whole).unwrap_or(0);
    let begin_of_tail = (text.len().saturating_sub(most / 2)..=text.len()).find(is_whole);
    let begin_of_tail = begin_of_tail.unwrap_or(text.len());
    let head = text.get(..end_of_head).unwrap_or_default();
    let tail = text.get(begin_of_tail..).unwrap_or_default();
    let left_out = begin_of_tail.saturating_sub(end_of_head);
    let place = whole.map(|id| format!("; all of it: {}{id}", resources::SCHEME));
    format!("{head}\n… {left_out} bytes left out{} …\n{tail}", place.unwrap_or_default())
}

/// What a call made, except what its value has anyway.
async fn made(gate: &Gate, artifacts: &[Registered]) -> Vec<ContentBlock> {
    let is_large = |one: &Registered| one.bytes > PRINTED_MOST as u64;
    let is_told = |one: &&Registered| match one.role.as_str() {
        "file" => true,
        "stdout" | "stderr" => is_large(one),
        _ => false,
    };
    let told: Vec<&Registered> = artifacts.iter().filter(is_told).collect();
    let mut content = images(gate, &told).await;
    content.extend(told.iter().take(LINKS_MOST).map(|one| link(one)));
    let more = told.len().saturating_sub(LINKS_MOST);
    if more > 0 {
        content.push(ContentBlock::text(format!("and {more} more files: resources/list has all")));
    }
    content
}

fn link(one: &Registered) -> ContentBlock {
    let uri = format!("{}{}", resources::SCHEME, one.id);
    ContentBlock::resource_link(Resource::new(uri, one.name.clone()).with_size(one.bytes))
}

async fn images(gate: &Gate, files: &[&Registered]) -> Vec<ContentBlock> {
    let (mut shown, mut room) = (Vec::new(), IMAGES_BYTES_MOST);
    for file in files.iter().filter(|file| is_picture(&file.name)) {
        if shown.len() >= IMAGES_MOST {
            break;
        }
        if file.bytes > IMAGE_MOST.min(room) {
            continue;
        }
        if let Some(image) = image(gate, file).await {
            shown.push(image);
            room = room.saturating_sub(file.bytes);
        }
    }
    shown
}

/// By its name, so that not every file has to be looked at; what it is, its content says.
fn is_picture(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let endings = ["png", "jpg", "jpeg", "gif", "webp", "svg"];
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

async fn image(gate: &Gate, file: &Registered) -> Option<ContentBlock> {
    let ask = Ask::Content { artifact: file.id.clone(), from: 0, length: Some(file.bytes.max(1)) };
    let Ok(Found::Content(content)) = gate.look(ask).await else { return None };
    match &*content.artifact.media {
        media @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp") => {
            Some(ContentBlock::image(Base64::encode_string(&content.bytes), media))
        }
        _ if file.name.to_ascii_lowercase().ends_with(".svg") && file.bytes <= DRAWING_MOST => {
            let text = String::from_utf8(content.bytes).ok()?;
            let uri = format!("{}{}", resources::SCHEME, file.id);
            let drawing = ResourceContents::text(text, uri).with_mime_type("image/svg+xml");
            Some(ContentBlock::resource(drawing))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_has_its_beginning_its_end_and_the_count_of_the_rest() {
        assert_eq!(cut("short", 16, None), "short");
        let text = format!("{}{}", "a".repeat(50), "b".repeat(50));
        assert_eq!(
            cut(&text, 20, Some("X")),
            "aaaaaaaaaa\n… 80 bytes left out; all of it: artifact://X …\nbbbbbbbbbb"
        );
        // Never inside a character.
        let text = "ü".repeat(100);
        for most in 0..210 {
            let told = cut(&text, most, None);
            let kept = told.matches('ü').count();
            assert!(kept * 2 <= most.max(200) && kept <= 100, "{most}: {told}");
        }
    }

    #[test]
    fn a_problem_is_told_so_that_one_can_do_better() {
        let problem = Problem::new(ProblemKind::Blocked, "no", "because", "ask");
        assert_eq!(text(&problem), "error: no\n  why: because\n  fix: ask");
        let problem = Problem { at: "/a".into(), why: String::new(), ..problem };
        assert_eq!(text(&problem), "error: no\n  at: /a\n  fix: ask");
    }
}
