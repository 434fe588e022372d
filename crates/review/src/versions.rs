//! The versions of a home's policy. Each is signed by an approver whom the one before it names, the first
//! by one whom it names itself; none is ever changed or removed.

use std::collections::BTreeMap;

use hotcell_approver::{Approvers, Policy, Public, SignedPolicy};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// One version, as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub rules: Rules,
    pub signed: SignedPolicy,
}

/// What a policy consists of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    pub text: String,
    /// Sources of extensions, by the names that the text has for them.
    pub extensions: BTreeMap<String, String>,
}

impl Rules {
    /// What is signed: every byte of it.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(b"hotcell policy 1\n");
        let parts = self.extensions.iter().flat_map(|(name, source)| [name, source]);
        for part in std::iter::once(&self.text).chain(parts) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl Version {
    pub fn number(&self) -> u64 {
        self.signed.statement.sequence
    }
}

/// The number of the version that holds; 0 where there is none.
pub fn newest_number(conn: &Connection) -> Result<u64, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'policy_version'";
    if !conn.prepare_cached(is_there)?.exists([])? {
        return Ok(0);
    }
    let newest = "SELECT coalesce(max(number), 0) FROM policy_version";
    let number: i64 = conn.prepare_cached(newest)?.query_row([], |row| row.get(0))?;
    Ok(number.unsigned_abs())
}

/// The version that holds.
pub fn newest(conn: &Connection) -> Result<Option<Version>, Error> {
    let number = newest_number(conn)?;
    if number == 0 { Ok(None) } else { version(conn, number) }
}

pub fn version(conn: &Connection, number: u64) -> Result<Option<Version>, Error> {
    let found = "SELECT text, extensions, signature FROM policy_version WHERE number = ?1";
    let found = conn.prepare_cached(found)?.query_row([number as i64], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    });
    let Some((text, extensions, signature)) = found.optional()? else { return Ok(None) };
    let damaged = |what| Error::BadVersion { number, what };
    let extensions = serde_json::from_str(&extensions).map_err(|_| damaged("its extensions"))?;
    let signed = signature.parse().map_err(|_| damaged("its signature"))?;
    Ok(Some(Version { rules: Rules { text, extensions }, signed }))
}

/// Whether a version of a home was signed by one of these, who are named by the version before it.
pub fn check<'a>(
    version: &Version,
    home: &[u8; 16],
    approvers: &'a Approvers,
) -> Result<&'a Public, Error> {
    Ok(version.signed.check(approvers, home, &version.rules.digest(), None)?)
}

/// Makes a version the one that holds. It was checked; that another came first is found here.
pub fn add(tx: &Transaction<'_>, version: &Version) -> Result<(), Error> {
    let (number, last) = (version.number(), newest_number(tx)?);
    if number != last + 1 {
        return Err(Error::NotNext { number, last });
    }
    let extensions = serde_json::to_string(&version.rules.extensions).unwrap_or_default();
    let add = "INSERT INTO policy_version (number, digest, text, extensions, signature)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let signature = version.signed.to_string();
    let row =
        params![number as i64, version.rules.digest(), version.rules.text, extensions, signature];
    tx.execute(add, row)?;
    Ok(())
}

/// What the next version's approver signs.
pub fn statement(rules: &Rules, home: [u8; 16], last: u64, time: i64) -> Policy {
    Policy { home, policy: rules.digest(), sequence: last + 1, time }
}

#[cfg(test)]
mod tests {
    use hotcell_approver::Approver;

    use super::*;

    fn rules(text: &str) -> Rules {
        Rules { text: text.into(), extensions: BTreeMap::new() }
    }

    fn signed(by: &Approver, rules: Rules, last: u64) -> Version {
        let signed = SignedPolicy::sign(by, statement(&rules, [1; 16], last, 5));
        Version { rules, signed }
    }

    #[test]
    fn versions_follow_each_other_and_stay() {
        let mut conn = Connection::open_in_memory().unwrap();
        assert_eq!(newest_number(&conn).unwrap(), 0);
        let tx = conn.transaction().unwrap();
        crate::migrate(&tx).unwrap();
        assert_eq!(newest(&tx).unwrap(), None);
        let alice = Approver::make("alice".parse().unwrap()).unwrap();
        let first = signed(&alice, rules("rules: []"), 0);
        add(&tx, &first).unwrap();
        assert!(matches!(add(&tx, &first), Err(Error::NotNext { number: 1, last: 1 })));
        let mut second = rules("# more");
        second.extensions.insert("a.ts".into(), "export default () => null".into());
        let second = signed(&alice, second, 1);
        add(&tx, &second).unwrap();
        assert_eq!(newest(&tx).unwrap(), Some(second));
        assert_eq!(version(&tx, 1).unwrap(), Some(first));
        for change in ["UPDATE policy_version SET text = ''", "DELETE FROM policy_version"] {
            assert!(tx.execute_batch(change).is_err(), "{change}");
        }
    }

    #[test]
    fn a_version_counts_only_with_the_signature_of_an_approver_over_every_byte() {
        let alice = Approver::make("alice".parse().unwrap()).unwrap();
        let mallory = Approver::make("mallory".parse().unwrap()).unwrap();
        let approvers = Approvers::new([alice.public()]).unwrap();
        let version = signed(&alice, rules("rules: []"), 0);
        assert!(check(&version, &[1; 16], &approvers).is_ok());
        assert!(check(&version, &[2; 16], &approvers).is_err());
        assert!(check(&signed(&mallory, rules("rules: []"), 0), &[1; 16], &approvers).is_err());
        for other in [rules("rules: [] "), {
            let mut more = rules("rules: []");
            more.extensions.insert("a.ts".into(), String::new());
            more
        }] {
            let changed = Version { rules: other, ..version.clone() };
            assert!(check(&changed, &[1; 16], &approvers).is_err());
        }
    }

    #[test]
    fn no_text_can_be_shifted_between_the_parts_of_a_policy() {
        let of = |text: &str, name: &str, source: &str| {
            let extensions = BTreeMap::from([(name.to_owned(), source.to_owned())]);
            Rules { text: text.into(), extensions }.digest()
        };
        let all = [of("ab", "c", "d"), of("a", "bc", "d"), of("a", "b", "cd"), of("abcd", "", "")];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(one));
        }
    }
}
