//! The bytes that are hashed: one encoding of every field, in which no two events look alike.
//! docs/record-format.md has it for people who write their own verifier.

use sha2::{Digest as _, Sha256};

use crate::event::{Event, Summary};
use crate::hex::{Digest, Hex};

/// The encoding of new events. Older ones stay as they are, so that a chain may be mixed.
pub const VERSION: u64 = 1;

const PREFIX: &[u8] = b"hotcell event 1\n";
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// An event of an encoding that this version of hotcell does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("encoding {0} is not known here: a newer hotcell wrote it")]
pub struct UnknownVersion(pub u64);

/// The hash of an event, from all fields but `hash`. The buffer is only there to be used again.
pub(crate) fn hash(event: &Event, buffer: &mut Vec<u8>) -> Result<Digest, UnknownVersion> {
    buffer.clear();
    encode(event, buffer)?;
    Ok(Hex(Sha256::digest(buffer).into()))
}

/// The bytes of all fields but `hash`.
pub fn encode(event: &Event, out: &mut Vec<u8>) -> Result<(), UnknownVersion> {
    match event.version {
        1 => encode_1(event, out),
        other => return Err(UnknownVersion(other)),
    }
    Ok(())
}

fn encode_1(event: &Event, out: &mut Vec<u8>) {
    out.extend(PREFIX);
    out.extend(event.prev.0);
    number(out, Some(event.seq));
    number(out, Some(event.version));
    field(out, Some(&event.id.0));
    field(out, Some(&event.time.to_le_bytes()));
    text(out, Some(event.kind.name()));
    field(out, event.call.map(|call| call.to_bytes()).as_ref());
    field(out, event.parent.map(|call| call.to_bytes()).as_ref());
    text(out, event.operation.as_deref());
    text(out, event.tool.as_deref());
    text(out, Some(event.caller.tenant.as_str()));
    text(out, Some(event.caller.subject.as_str()));
    text(out, Some(event.caller.door.name()));
    text(out, event.mode.as_deref());
    text(out, event.state.as_deref());
    text(out, event.decision.map(|decision| decision.name()));
    bytes(out, Some(&list(&event.rules)));
    text(out, event.bearer.as_deref());
    text(out, event.reason.as_deref());
    text(out, event.status.map(|status| status.name()));
    summary(out, event.input.as_ref());
    summary(out, event.output.as_ref());
    number(out, event.duration_ns);
    text(out, event.sandbox.as_deref());
    text(out, event.request.as_deref());
    field(out, Some(&event.owner.0));
}

fn field<const N: usize>(out: &mut Vec<u8>, value: Option<&[u8; N]>) {
    bytes(out, value.map(|value| value.as_slice()));
}

fn text(out: &mut Vec<u8>, value: Option<&str>) {
    bytes(out, value.map(str::as_bytes));
}

fn number(out: &mut Vec<u8>, value: Option<u64>) {
    field(out, value.map(u64::to_le_bytes).as_ref());
}

fn bytes(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else { return out.push(ABSENT) };
    out.push(PRESENT);
    counted(out, value);
}

fn counted(out: &mut Vec<u8>, value: &[u8]) {
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value);
}

fn summary(out: &mut Vec<u8>, value: Option<&Summary>) {
    field(out, value.map(|summary| &summary.digest.0));
    number(out, value.map(|summary| summary.length));
    field(out, value.and_then(|summary| summary.head.as_ref()).map(|head| &head.0));
    text(out, value.map(|summary| summary.media.as_str()));
}

/// A list as it is hashed, and as it is stored: how many, then each with its length.
pub(crate) fn list(items: &[String]) -> Vec<u8> {
    let mut out = (items.len() as u64).to_le_bytes().to_vec();
    items.iter().for_each(|item| counted(&mut out, item.as_bytes()));
    out
}

/// The inverse of `list`; `None` for anything that `list` does not make.
pub(crate) fn unlist(bytes: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = split_number(bytes)?;
    let mut items = Vec::new();
    for _ in 0..count {
        let (length, tail) = split_number(rest)?;
        let (item, tail) = tail.split_at_checked(usize::try_from(length).ok()?)?;
        items.push(String::from_utf8(item.to_vec()).ok()?);
        rest = tail;
    }
    rest.is_empty().then_some(items)
}

fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_has_one_spelling(items in proptest::collection::vec(".{0,9}", 0..5)) {
            prop_assert_eq!(unlist(&list(&items)), Some(items));
        }

        #[test]
        fn bytes_are_a_list_or_nothing(
            count in 0..3_u64,
            length in 0..9_u64,
            rest in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            let bytes = [count.to_le_bytes().as_slice(), &length.to_le_bytes(), &rest].concat();
            if let Some(items) = unlist(&bytes) {
                prop_assert_eq!(list(&items), bytes);
            }
        }
    }
}
