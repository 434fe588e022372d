//! What an approver signs. Each kind of statement begins with words of its own, and every field has a
//! fixed width or its length in front, so that no two statements have the same bytes.

use std::fmt;
use std::str::FromStr;

use crate::id::ItemId;

/// Longest reason, in bytes.
pub const MOST_REASON: usize = 1000;

const ANSWER: &[u8] = b"hotcell answer 1\n";
const POLICY: &[u8] = b"hotcell policy 1\n";

/// Something that can be signed.
pub trait Statement: sealed::Sealed {
    /// The bytes that are signed: others for every other statement.
    fn message(&self) -> Vec<u8>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Answer {}
    impl Sealed for super::Policy {}
}

/// An answer to one item of the queue of one home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub item: ItemId,
    pub home: [u8; 16],
    /// What is to be carried out, as `Call::digest` gives it.
    pub call: [u8; 32],
    /// The policy that asked.
    pub policy: [u8; 32],
    pub verdict: Verdict,
    pub reason: Reason,
    /// Nanoseconds since 1970.
    pub time: i64,
    /// From then on it permits nothing.
    pub expires: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Approve,
    Reject,
}

impl Verdict {
    pub const ALL: [Verdict; 2] = [Verdict::Approve, Verdict::Reject];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Approve => "approve",
            Verdict::Reject => "reject",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy that one home is to follow.
///
/// It always names its home. One that is good for any home could be carried from where it does no harm
/// to where it does; an approver who has opened the key once signs for as many homes as there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub home: [u8; 16],
    pub policy: [u8; 32],
    /// Higher than that of every policy before, so that an older one cannot be put back.
    pub sequence: u64,
    /// Nanoseconds since 1970.
    pub time: i64,
}

impl Statement for Answer {
    fn message(&self) -> Vec<u8> {
        let Answer { item, home, call, policy, verdict, reason, time, expires } = self;
        let verdict = match verdict {
            Verdict::Approve => 1_u8,
            Verdict::Reject => 2,
        };
        let mut message = ANSWER.to_vec();
        message.extend(item.to_bytes());
        message.extend(home);
        message.extend(call);
        message.extend(policy);
        message.push(verdict);
        message.extend(time.to_be_bytes());
        message.extend(expires.to_be_bytes());
        message.extend((reason.0.len() as u64).to_be_bytes());
        message.extend(reason.0.as_bytes());
        message
    }
}

impl Statement for Policy {
    fn message(&self) -> Vec<u8> {
        let Policy { home, policy, sequence, time } = self;
        let mut message = POLICY.to_vec();
        message.extend(home);
        message.extend(policy);
        message.extend(sequence.to_be_bytes());
        message.extend(time.to_be_bytes());
        message
    }
}

/// Why somebody answered as they did; may be empty. One line without control characters, since it is
/// shown at terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reason is one line of at most {MOST_REASON} bytes, without control characters")]
pub struct BadReason;

impl Reason {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reason {
    type Err = BadReason;

    fn from_str(text: &str) -> Result<Reason, BadReason> {
        if text.len() > MOST_REASON || text.chars().any(char::is_control) {
            return Err(BadReason);
        }
        Ok(Reason(text.to_owned()))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{Approver, Signature};

    /// Few values for each field, so that statements are often alike in all but one.
    fn answers() -> impl Strategy<Value = Answer> {
        let bytes = || prop_oneof![Just(0_u8), Just(1), Just(255)];
        let number = || prop_oneof![Just(0_i64), Just(1), Just(-1), Just(i64::MAX), any::<i64>()];
        let verdict = prop_oneof![Just(Verdict::Approve), Just(Verdict::Reject)];
        let ids = (bytes(), bytes(), bytes(), bytes());
        (ids, verdict, "[a\0-\u{2}é]{0,3}", number(), number()).prop_map(
            |((item, home, call, policy), verdict, reason, time, expires)| Answer {
                item: ItemId::from_bytes([item; 5]),
                home: [home; 16],
                call: [call; 32],
                policy: [policy; 32],
                verdict,
                // Also what cannot be read, since it must not matter.
                reason: Reason(reason),
                time,
                expires,
            },
        )
    }

    fn policies() -> impl Strategy<Value = Policy> {
        (0..3_u8, 0..3_u8, 0..3_u64, -1..2_i64).prop_map(|(home, policy, sequence, time)| Policy {
            home: [home; 16],
            policy: [policy; 32],
            sequence,
            time,
        })
    }

    proptest! {
        #[test]
        fn no_two_statements_have_the_same_bytes(
            (one, two) in (answers(), answers()),
            (three, four) in (policies(), policies()),
        ) {
            prop_assert_eq!(one == two, one.message() == two.message());
            prop_assert_eq!(three == four, three.message() == four.message());
            prop_assert_ne!(one.message(), three.message());
            // Nor does one begin as another does, whatever follows.
            prop_assert_eq!(one == two, one.message().starts_with(&two.message()));
        }

    }

    proptest! {
        // Signatures are slow without optimisation.
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_signature_is_of_one_statement_and_one_key(one in answers(), two in answers()) {
            let [alice, bob] = [[7; 32], [8; 32]]
                .map(|seed| Approver::from_seed(&seed, "alice".parse().unwrap()));
            let signature = alice.sign(&one);
            prop_assert!(alice.public().verify(&one, &signature).is_ok());
            prop_assert_eq!(alice.public().verify(&two, &signature).is_ok(), one == two);
            prop_assert!(bob.public().verify(&one, &signature).is_err());
        }
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let alice = Approver::from_seed(&[7; 32], "alice".parse().unwrap());
        let policy = Policy { home: [1; 16], policy: [2; 32], sequence: 3, time: 4 };
        let good = alice.sign(&policy).to_bytes();
        for place in 0..good.len() {
            let mut bad = good;
            bad[place] ^= 1 << (place % 8);
            let verified = alice.public().verify(&policy, &Signature::from_bytes(bad));
            assert!(verified.is_err(), "byte {place}");
        }
        // The same point, with the order of the group added to the number: another spelling.
        let order = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9,
            0xde, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
        ];
        let (mut bad, mut carry) = (good, 0);
        for (place, add) in order.into_iter().enumerate() {
            let sum = u16::from(bad[32 + place]) + add + carry;
            (bad[32 + place], carry) = (sum as u8, sum >> 8);
        }
        assert!(alice.public().verify(&policy, &Signature::from_bytes(bad)).is_err());
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        for good in ["", "looks right", "schön", &"x".repeat(MOST_REASON)] {
            assert_eq!(good.parse::<Reason>().unwrap().as_str(), good);
        }
        for bad in ["a\nb", "\u{1b}[2J", "\0", "\u{9b}", &"x".repeat(MOST_REASON + 1)] {
            assert_eq!(bad.parse::<Reason>(), Err(BadReason), "{bad:?}");
        }
    }
}
