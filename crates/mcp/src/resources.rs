//! Artifacts as resources: what calls were given and made, by an address that does not change.

use base64ct::{Base64, Encoding};
use hotcell_api::{ArtifactFilter, Ask, Problem, ProblemKind};
use rmcp::ErrorData;
use rmcp::model::{
    CompletionInfo, MetaObject, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};

use crate::found::Found;
use crate::gate::Gate;
use crate::page::{self, PAGE};

pub(crate) const SCHEME: &str = "artifact://";
pub(crate) const TEMPLATE: &str = "artifact://{id}{?from,length}";
/// Most bytes that are read at once.
const READ_MOST: u64 = 1 << 20;

/// Some of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) artifact: String,
    pub(crate) from: u64,
    pub(crate) length: u64,
}

/// What is there.
pub(crate) struct Content {
    pub(crate) contents: ResourceContents,
    /// The byte after the last one that was read, and how many there are.
    pub(crate) end: u64,
    pub(crate) size: u64,
    /// Where it goes on.
    pub(crate) next: Option<String>,
}

impl Part {
    /// Of an address such as `artifact://ID?from=0&length=1024`.
    pub(crate) fn parse(uri: &str) -> Option<Part> {
        let rest = uri.strip_prefix(SCHEME)?;
        let (artifact, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric();
        if artifact.is_empty() || artifact.len() > 64 || !artifact.chars().all(is_plain) {
            return None;
        }
        let mut part = Part { artifact: artifact.into(), from: 0, length: READ_MOST };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "from" => part.from = value.parse().ok()?,
                "length" => part.length = value.parse().ok().filter(|length| *length > 0)?,
                _ => return None,
            }
        }
        part.length = part.length.min(READ_MOST);
        Some(part)
    }

    fn uri(&self, from: u64) -> String {
        format!("{SCHEME}{}?from={from}&length={}", self.artifact, self.length)
    }
}

pub(crate) async fn list(
    gate: &Gate,
    after: Option<String>,
) -> Result<(Vec<Resource>, Option<String>), Problem> {
    let filter = ArtifactFilter { after, limit: Some(PAGE), ..ArtifactFilter::default() };
    let ask = Ask::Artifacts { filter: Box::new(filter) };
    let Found::Artifacts(found) = gate.look(ask).await? else {
        return Ok(Default::default());
    };
    let resource = |one: &hotcell_api::Artifact| {
        let what = format!("{} of call {}, version {}", one.role, one.call, one.number);
        Resource::new(format!("{SCHEME}{}", one.id), one.name.clone())
            .with_description(what)
            .with_mime_type(one.media.clone())
            .with_size(one.size)
    };
    Ok((found.artifacts.iter().map(resource).collect(), found.next))
}

pub(crate) fn template() -> ResourceTemplate {
    let what =
        "What a call was given or made: script, input, output, file. Parts by `from` and `length`.";
    ResourceTemplate::new(TEMPLATE, "artifact").with_title("Artifact").with_description(what)
}

pub(crate) async fn read(gate: &Gate, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || {
        let shown: String = uri.chars().take(200).collect();
        ErrorData::resource_not_found(
            format!("there is no resource `{}`", shown.escape_debug()),
            None,
        )
    };
    let part = Part::parse(uri).ok_or_else(unknown)?;
    let content = content(gate, &part).await.map_err(|problem| page::error(&problem))?;
    Ok(ReadResourceResult::new(vec![content.contents]))
}

/// Text where it is text, and base64 where it is not. What is not the whole says so by its address, and
/// where it goes on.
pub(crate) async fn content(gate: &Gate, part: &Part) -> Result<Content, Problem> {
    let Part { artifact, from, length } = part.clone();
    let ask = Ask::Content { artifact, from, length: Some(length) };
    let Found::Content(found) = gate.look(ask).await? else {
        return Err(Problem::new(ProblemKind::Error, "there is no content", "", ""));
    };
    let (size, media) = (found.artifact.size, found.artifact.media);
    let mut bytes = found.bytes;
    let is_cut = from.saturating_add(bytes.len() as u64) < size;
    let text = text_of(&mut bytes, is_cut);
    let end = from.saturating_add(bytes.len() as u64);
    let next = (end < size).then(|| part.uri(end));
    let is_whole = from == 0 && next.is_none();
    let uri = if is_whole { format!("{SCHEME}{}", part.artifact) } else { part.uri(from) };
    let contents = match text {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(Base64::encode_string(&bytes), uri),
    };
    let mut contents = contents.with_mime_type(media);
    if !is_whole {
        let mut meta = MetaObject::new();
        meta.0.insert("hotcell/size".into(), size.into());
        meta.0.extend(next.clone().map(|next| ("hotcell/next".to_owned(), next.into())));
        contents = contents.with_meta(meta);
    }
    Ok(Content { contents, end, size, next })
}

/// The bytes as text. A character that the end of the part cuts is left for the next one.
fn text_of(bytes: &mut Vec<u8>, is_cut: bool) -> Option<String> {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
        && is_cut
    {
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8(bytes.clone()).ok().filter(|text| !text.contains('\0'))
}

/// Artifacts whose id or name begins so.
pub(crate) async fn complete(gate: &Gate, begun: &str) -> Result<CompletionInfo, Problem> {
    let filter = ArtifactFilter { limit: Some(1000), ..ArtifactFilter::default() };
    let ask = Ask::Artifacts { filter: Box::new(filter) };
    let Found::Artifacts(found) = gate.look(ask).await? else {
        return Ok(CompletionInfo::default());
    };
    let fits = |one: &&hotcell_api::Artifact| {
        one.id.starts_with(&begun.to_ascii_uppercase()) || one.name.starts_with(begun)
    };
    let mut ids: Vec<String> =
        found.artifacts.iter().filter(fits).map(|one| one.id.clone()).collect();
    let has_more = ids.len() > CompletionInfo::MAX_VALUES || found.next.is_some();
    ids.truncate(CompletionInfo::MAX_VALUES);
    Ok(CompletionInfo::with_pagination(ids, None, has_more).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_an_artifact_and_perhaps_a_part_of_it() {
        let part =
            |artifact: &str, from, length| Some(Part { artifact: artifact.into(), from, length });
        for (uri, expected) in [
            ("artifact://01AB", part("01AB", 0, READ_MOST)),
            ("artifact://01AB?from=7", part("01AB", 7, READ_MOST)),
            ("artifact://01AB?from=7&length=9", part("01AB", 7, 9)),
            ("artifact://01AB?length=99999999999", part("01AB", 0, READ_MOST)),
            ("artifact://01AB?length=0", None),
            ("artifact://01AB?from=-1", None),
            ("artifact://01AB?x=1", None),
            ("artifact://", None),
            ("artifact://../../etc/passwd", None),
            ("artifact://a%2f", None),
            ("artifact://a\0b", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(Part::parse(uri), expected, "{uri}");
        }
        assert_eq!(Part::parse(&format!("artifact://{}", "A".repeat(100))), None);
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let whole = "aü".as_bytes();
        let mut bytes = whole[..2].to_vec();
        assert_eq!(text_of(&mut bytes, true).as_deref(), Some("a"));
        assert_eq!(bytes, b"a");
        let mut bytes = whole[..2].to_vec();
        assert_eq!(text_of(&mut bytes, false), None);
        assert_eq!(text_of(&mut b"a\0".to_vec(), false), None);
        assert_eq!(text_of(&mut vec![0xff, 0xfe], true), None);
    }
}
