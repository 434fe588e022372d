//! What is read of approvers: the file of a key, and lines about keys and policies.

use std::str::FromStr;

use hotcell_approver::{Approvers, Fingerprint, ItemId, Public, Reason, Sealed, SignedPolicy};

use crate::outcome;
use crate::text::reads_back;

const KEY: &str = "hotcell-approver-key 1
name alice
public 6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=
argon2id memory=65536 passes=3
salt FVPUK2aswfl2tWPhqI6IGg==
nonce f6bNLC9rAC6NOyRO2YqrP0gK4gnYgDqt
sealed b0VuhZd4daC64Mi4UFNUp+3JW3SIXpu5p/MOCiMKGIJ8cDtkZObQq6qlXqWaY6DA
";
const PUBLIC: &str = "hotcell-approver ed25519 6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw= alice";

/// There is one spelling, and what is read has it.
fn is_exact<T: FromStr + ToString>(text: &str) -> bool {
    let read = text.parse::<T>();
    if let Ok(read) = &read {
        assert_eq!(read.to_string(), text);
    }
    read.is_ok()
}

pub fn approver_key(data: &[u8]) -> u64 {
    outcome(&[is_exact::<Sealed>(&String::from_utf8_lossy(data))])
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    vec![KEY.into(), KEY.replace("65536", "262145").into(), Vec::new()]
}

pub fn approver_lines(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    outcome(&[
        is_exact::<Public>(&text),
        is_exact::<Fingerprint>(&text),
        is_exact::<ItemId>(&text),
        is_exact::<Reason>(&text),
        is_exact::<SignedPolicy>(&text),
        reads_back::<Approvers>(&text),
    ])
}

pub(crate) fn line_seeds() -> Vec<Vec<u8>> {
    let policy = format!(
        "hotcell-policy-signature 1 home={} policy={} sequence=7 time=-1 key={} sig={}",
        "01".repeat(16),
        "02".repeat(32),
        "03".repeat(32),
        "04".repeat(64)
    );
    let other = PUBLIC.replace("6kps", "7kps").replace("alice", "bob");
    let both = format!("{PUBLIC}\n{other}\n");
    let words = [PUBLIC, "0123-4567-89AB-CDEF", "0123ABCD", "looks right", &policy, &both, ""];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}
