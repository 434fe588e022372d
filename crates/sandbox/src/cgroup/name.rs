//! The names that hotcell gives to cgroups, and how they are told from everybody else's.

use rustix::io::Errno;

use crate::random;

const PREFIX: &str = "hotcell-";

/// `hotcell-<random>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn random() -> Result<Name, Errno> {
        Ok(Name(format!("{PREFIX}{}", random::digits()?)))
    }

    /// The directory in which all runs of this process are.
    pub(super) fn parent(&self) -> &str {
        &self.0
    }

    /// The leaf into which hotcell itself moves when its cgroup must become an inner one.
    pub(super) fn leaf(&self) -> String {
        format!("{}.self", self.0)
    }

    /// The unit that systemd is asked for.
    pub(super) fn scope(&self) -> String {
        format!("{}.scope", self.0)
    }
}

/// What a name of ours stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ours {
    Parent,
    Leaf,
    Scope,
}

/// Exact, because what it accepts is killed and removed.
pub(super) fn ours(name: &[u8]) -> Option<Ours> {
    let (digits, rest) = name.strip_prefix(PREFIX.as_bytes())?.split_at_checked(16)?;
    if !digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    match rest {
        b"" => Some(Ours::Parent),
        b".self" => Some(Ours::Leaf),
        b".scope" => Some(Ours::Scope),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_recognised_and_no_others() {
        let name = Name::random().unwrap();
        assert_eq!(ours(name.parent().as_bytes()), Some(Ours::Parent));
        assert_eq!(ours(name.leaf().as_bytes()), Some(Ours::Leaf));
        assert_eq!(ours(name.scope().as_bytes()), Some(Ours::Scope));
        for other in [
            "hotcell-",
            "hotcell-worker.service",
            "hotcell-0123456789ABCDEF",
            "hotcell-0123456789abcde",
            "hotcell-0123456789abcdef0",
            "hotcell-0123456789abcdef.service",
            "xhotcell-0123456789abcdef",
        ] {
            assert_eq!(ours(other.as_bytes()), None, "{other}");
        }
    }
}
