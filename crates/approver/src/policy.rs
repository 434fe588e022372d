//! A signed policy, as it lies beside the policy: one line of text, with one valid spelling.

use std::fmt;
use std::str::FromStr;

use hotcell_types::hex;

use crate::approvers::Approvers;
use crate::key::{Approver, NotSigned, Public, Signature};
use crate::statement::Policy;

const MARK: &str = "hotcell-policy-signature 1 ";

/// Who says that a home is to follow a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedPolicy {
    pub statement: Policy,
    /// The public half of the key that signed.
    pub key: [u8; 32],
    pub signature: Signature,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the signature of a policy")]
pub struct BadSignedPolicy;

/// Why a home does not follow a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefused {
    #[error("it was signed for another home")]
    OtherHome,
    #[error("another policy was signed, and not this one")]
    OtherPolicy,
    #[error("whoever signed it is no approver of this home")]
    UnknownKey,
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    #[error("it has sequence number {found}, and the home has followed {last} since")]
    Older { found: u64, last: u64 },
}

impl SignedPolicy {
    pub fn sign(approver: &Approver, statement: Policy) -> SignedPolicy {
        let signature = approver.sign(&statement);
        SignedPolicy { statement, key: *approver.public().key(), signature }
    }

    /// Whether this home may follow this policy, and who said so. `last` is what it followed before:
    /// the sequence number and the policy that it was given to.
    pub fn check<'a>(
        &self,
        approvers: &'a Approvers,
        home: &[u8; 16],
        policy: &[u8; 32],
        last: Option<(u64, [u8; 32])>,
    ) -> Result<&'a Public, PolicyRefused> {
        let approver = approvers.by_key(&self.key).ok_or(PolicyRefused::UnknownKey)?;
        approver.verify(&self.statement, &self.signature)?;
        let Policy { home: for_home, policy: of_policy, sequence: found, .. } = self.statement;
        if for_home != *home {
            return Err(PolicyRefused::OtherHome);
        }
        if of_policy != *policy {
            return Err(PolicyRefused::OtherPolicy);
        }
        match last {
            Some((last, followed)) if found < last || (found == last && followed != *policy) => {
                Err(PolicyRefused::Older { found, last })
            }
            _ => Ok(approver),
        }
    }
}

impl fmt::Display for SignedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Policy { home, policy, sequence, time } = &self.statement;
        let (home, policy, key) = (hex::text(home), hex::text(policy), hex::text(&self.key));
        let signature = hex::text(&self.signature.to_bytes());
        write!(
            f,
            "{MARK}home={home} policy={policy} sequence={sequence} time={time} key={key} sig={signature}"
        )
    }
}

impl FromStr for SignedPolicy {
    type Err = BadSignedPolicy;

    fn from_str(line: &str) -> Result<SignedPolicy, BadSignedPolicy> {
        let read = read(line).ok_or(BadSignedPolicy)?;
        // `+7`, `007` and what follows the last word would be other spellings.
        if read.to_string() == line { Ok(read) } else { Err(BadSignedPolicy) }
    }
}

fn read(line: &str) -> Option<SignedPolicy> {
    let mut words = line.strip_prefix(MARK)?.split(' ');
    let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
    let statement = Policy {
        home: hex::parse(value("home")?)?,
        policy: hex::parse(value("policy")?)?,
        sequence: value("sequence")?.parse().ok()?,
        time: value("time")?.parse().ok()?,
    };
    let key = hex::parse(value("key")?)?;
    let signature = Signature::from_bytes(hex::parse(value("sig")?)?);
    Some(SignedPolicy { statement, key, signature })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Approver {
        Approver::from_seed(&[7; 32], "alice".parse().unwrap())
    }

    fn example() -> SignedPolicy {
        let statement = Policy { home: [1; 16], policy: [2; 32], sequence: 5, time: -1 };
        SignedPolicy::sign(&alice(), statement)
    }

    #[test]
    fn a_signed_policy_has_one_spelling() {
        let line = example().to_string();
        assert_eq!(line.parse(), Ok(example()));
        for (from, to) in [
            ("sequence=5", "sequence=+5"),
            ("sequence=5", "sequence=05"),
            ("sequence=5", "sequence=18446744073709551616"),
            ("time=-1", "time=-01"),
            (" time", "  time"),
            ("home=01", "home=0G"),
            ("key=e", "key=E"),
            ("sig=", "sig=0"),
            ("sequence=5 ", ""),
            ("signature 1", "signature 2"),
        ] {
            let other = line.replacen(from, to, 1);
            assert_ne!(other, line, "{from}");
            assert_eq!(other.parse::<SignedPolicy>(), Err(BadSignedPolicy), "{other}");
        }
        for other in [format!("{line} "), format!("{line}\n"), format!(" {line}"), String::new()] {
            assert_eq!(other.parse::<SignedPolicy>(), Err(BadSignedPolicy));
        }
    }

    #[test]
    fn a_home_follows_what_was_signed_for_it_and_nothing_older() {
        use PolicyRefused::*;
        let known = Approvers::new([alice().public()]).unwrap();
        let nobody = Approvers::new([]).unwrap();
        let (home, policy) = ([1; 16], [2; 32]);
        let older = |last| Some(Older { found: 5, last });
        for (known, home, policy, last, expected) in [
            (&known, home, policy, None, None),
            (&known, home, policy, Some((4, [9; 32])), None),
            (&known, home, policy, Some((5, policy)), None),
            (&known, home, policy, Some((5, [9; 32])), older(5)),
            (&known, home, policy, Some((6, policy)), older(6)),
            (&known, [9; 16], policy, None, Some(OtherHome)),
            (&known, home, [9; 32], None, Some(OtherPolicy)),
            (&nobody, home, policy, None, Some(UnknownKey)),
        ] {
            let found = example().check(known, &home, &policy, last);
            assert_eq!(found.err(), expected, "{last:?}");
        }
        let changes: [fn(&mut SignedPolicy); 5] = [
            |signed| signed.statement.home[0] ^= 1,
            |signed| signed.statement.policy[0] ^= 1,
            |signed| signed.statement.sequence += 1,
            |signed| signed.statement.time += 1,
            |signed| signed.signature = alice().sign(&Policy { time: 0, ..example().statement }),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut signed = example();
            change(&mut signed);
            let Policy { home, policy, .. } = signed.statement;
            let found = signed.check(&known, &home, &policy, None);
            assert_eq!(found, Err(crate::key::NotSigned.into()), "change {number}");
        }
    }
}
