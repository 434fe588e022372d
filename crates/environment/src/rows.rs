//! Names and what they stand for. Each function that changes something is part of the caller's transaction;
//! names are a tenant's own, trees are everybody's.

use std::collections::BTreeMap;

use hotcell_types::Name as Tenant;
pub use rusqlite::Transaction;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::{Digest, Name};

/// Most names of one tenant.
pub const MOST_NAMES: u64 = 1000;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no environment `{0}`")]
    Unknown(Name),
    #[error("the environment `{0}` is there already, with another content")]
    Taken(Name),
    #[error("there are {MOST_NAMES} environments, which is the most")]
    Full,
    #[error("the row of an environment is not one that we wrote")]
    Damaged,
    #[error("environments cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error(
        "the environments have version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
}

/// What a tree was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    pub language: String,
    /// How it is called: the path that says which installation it belongs to.
    pub path: String,
    /// The executable behind that.
    pub program: String,
    /// Of the executable: bytes, and when it was last changed, in nanoseconds since 1970.
    pub size: u64,
    pub modified: i64,
    pub version: String,
    pub platform: String,
}

/// Something that was installed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// A tree, known by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub digest: Digest,
    pub interpreter: Interpreter,
    pub packages: Vec<Package>,
    pub files: u64,
    pub bytes: u64,
}

/// A tree under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub name: Name,
    /// What was asked for.
    pub requirements: Vec<String>,
    /// Since when the name stands for it, in nanoseconds since 1970.
    pub created: i64,
    pub made: Made,
}

const SELECT: &str =
    "SELECT name, requirements, environment_name.created, environment.digest, language,
    interpreter, program, size, modified, version, platform, packages, files, bytes
    FROM environment_name JOIN environment USING (digest)";

/// Names a tree. A name that is there stands for another one only if it is to be replaced; gives back the
/// digest that it stood for then.
pub fn name(
    tx: &Transaction<'_>,
    tenant: &Tenant,
    environment: &Environment,
    replace: bool,
) -> Result<Option<Digest>, Error> {
    schema::migrate(tx)?;
    let Environment { name, requirements, created, made } = environment;
    let old = get(tx, tenant, name)?.map(|old| old.made.digest);
    if old.is_some_and(|old| old != made.digest) && !replace {
        return Err(Error::Taken(name.clone()));
    }
    let count = "SELECT count(*) FROM environment_name WHERE tenant = ?1";
    let count: i64 = tx.query_row(count, [tenant.as_str()], |row| row.get(0))?;
    if old.is_none() && u64::try_from(count).unwrap_or(u64::MAX) >= MOST_NAMES {
        return Err(Error::Full);
    }
    let Interpreter { language, path, program, size, modified, version, platform } =
        &made.interpreter;
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    tx.prepare_cached(
        "INSERT INTO environment VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        made.digest.to_string(),
        language,
        path,
        program,
        whole(*size),
        modified,
        version,
        platform,
        json(&made.packages)?,
        whole(made.files),
        whole(made.bytes),
        created,
    ])?;
    tx.prepare_cached(
        "INSERT INTO environment_name (tenant, name, digest, requirements, created)
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant, name) DO UPDATE
         SET digest = excluded.digest, requirements = excluded.requirements, created = excluded.created",
    )?
    .execute(params![
        tenant.as_str(),
        name.as_str(),
        made.digest.to_string(),
        json(requirements)?,
        created
    ])?;
    Ok(old.filter(|old| *old != made.digest))
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|_| Error::Damaged)
}

pub fn get(conn: &Connection, tenant: &Tenant, name: &Name) -> Result<Option<Environment>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let mut select = conn.prepare_cached(&format!("{SELECT} WHERE tenant = ?1 AND name = ?2"))?;
    let found =
        select.query_row([tenant.as_str(), name.as_str()], |row| Ok(read(row))).optional()?;
    found.transpose()
}

/// All of a tenant, by name.
pub fn list(conn: &Connection, tenant: &Tenant) -> Result<Vec<Environment>, Error> {
    if !schema::is_current(conn)? {
        return Ok(Vec::new());
    }
    let mut select = conn.prepare_cached(&format!("{SELECT} WHERE tenant = ?1 ORDER BY name"))?;
    let mut rows = select.query([tenant.as_str()])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

/// Takes a name away, and gives back what it stood for.
pub fn unname(tx: &Transaction<'_>, tenant: &Tenant, name: &Name) -> Result<Environment, Error> {
    let found = get(tx, tenant, name)?.ok_or_else(|| Error::Unknown(name.clone()))?;
    let mut delete =
        tx.prepare_cached("DELETE FROM environment_name WHERE tenant = ?1 AND name = ?2")?;
    delete.execute([tenant.as_str(), name.as_str()])?;
    Ok(found)
}

/// Whether a name stands for a tree.
pub fn is_named(conn: &Connection, digest: &Digest) -> Result<bool, Error> {
    if !schema::is_current(conn)? {
        return Ok(false);
    }
    let mut select = conn.prepare_cached("SELECT 1 FROM environment_name WHERE digest = ?1")?;
    Ok(select.exists([digest.to_string()])?)
}

/// Trees that no name stands for, with their bytes.
pub fn unnamed(conn: &Connection) -> Result<BTreeMap<Digest, u64>, Error> {
    if !schema::is_current(conn)? {
        return Ok(BTreeMap::new());
    }
    let mut select = conn.prepare_cached(
        "SELECT digest, bytes FROM environment
         WHERE digest NOT IN (SELECT digest FROM environment_name)",
    )?;
    let mut rows = select.query([])?;
    let mut all = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let digest = row.get::<_, String>(0)?.parse().map_err(|_| Error::Damaged)?;
        all.insert(digest, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0));
    }
    Ok(all)
}

/// Forgets a tree, unless a name stands for it by now.
pub fn forget(tx: &Transaction<'_>, digest: &Digest) -> Result<(), Error> {
    if schema::is_current(tx)? {
        let mut delete = tx.prepare_cached(
            "DELETE FROM environment WHERE digest = ?1
             AND digest NOT IN (SELECT digest FROM environment_name)",
        )?;
        delete.execute([digest.to_string()])?;
    }
    Ok(())
}

/// Bytes of all trees.
pub fn bytes(conn: &Connection) -> Result<u64, Error> {
    if !schema::is_current(conn)? {
        return Ok(0);
    }
    let sum = "SELECT coalesce(sum(bytes), 0) FROM environment";
    let sum: i64 = conn.prepare_cached(sum)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(sum).unwrap_or(0))
}

fn read(row: &Row<'_>) -> Result<Environment, Error> {
    let damaged = |_| Error::Damaged;
    let count = |at: usize| -> Result<u64, Error> {
        u64::try_from(row.get::<_, i64>(at)?).map_err(|_| Error::Damaged)
    };
    Ok(Environment {
        name: row.get::<_, String>(0)?.parse().map_err(|_| Error::Damaged)?,
        requirements: serde_json::from_str(&row.get::<_, String>(1)?).map_err(damaged)?,
        created: row.get(2)?,
        made: Made {
            digest: row.get::<_, String>(3)?.parse().map_err(|_| Error::Damaged)?,
            interpreter: Interpreter {
                language: row.get(4)?,
                path: row.get(5)?,
                program: row.get(6)?,
                size: count(7)?,
                modified: row.get(8)?,
                version: row.get(9)?,
                platform: row.get(10)?,
            },
            packages: serde_json::from_str(&row.get::<_, String>(11)?).map_err(damaged)?,
            files: count(12)?,
            bytes: count(13)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str, content: &[u8]) -> Environment {
        let interpreter = Interpreter {
            language: "python".into(),
            path: "/usr/bin/python3".into(),
            program: "/usr/bin/python3.11".into(),
            size: 1,
            modified: 2,
            version: "3.11.2".into(),
            platform: "linux-x86_64".into(),
        };
        let packages = vec![Package { name: "a".into(), version: "1".into() }];
        let digest = Digest::of(content);
        let made = Made { digest, interpreter, packages, files: 3, bytes: 4 };
        let requirements = vec!["a==1".into()];
        Environment { name: name.parse().unwrap(), requirements, created: 5, made }
    }

    #[test]
    fn names_are_a_tenants_own_and_trees_are_shared() {
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        let (one, two) = (Tenant::LOCAL, "two".parse::<Tenant>().unwrap());
        assert!(list(&tx, &one).unwrap().is_empty() && bytes(&tx).unwrap() == 0);
        let a = environment("a", b"a");
        assert_eq!(name(&tx, &one, &a, false).unwrap(), None);
        assert!(is_named(&tx, &a.made.digest).unwrap());
        assert_eq!(get(&tx, &one, &a.name).unwrap(), Some(a.clone()));
        assert_eq!(get(&tx, &two, &a.name).unwrap(), None);
        let b = environment("b", b"a");
        name(&tx, &two, &b, false).unwrap();
        assert_eq!(bytes(&tx).unwrap(), 4, "one tree");
        unname(&tx, &one, &a.name).unwrap();
        assert!(matches!(unname(&tx, &one, &a.name), Err(Error::Unknown(_))));
        assert!(unnamed(&tx).unwrap().is_empty(), "another name stands for it");
        forget(&tx, &a.made.digest).unwrap();
        assert_eq!(get(&tx, &two, &b.name).unwrap(), Some(b.clone()), "so it is not forgotten");
        unname(&tx, &two, &b.name).unwrap();
        assert_eq!(unnamed(&tx).unwrap(), [(a.made.digest, 4)].into());
        assert!(!is_named(&tx, &a.made.digest).unwrap());
        forget(&tx, &a.made.digest).unwrap();
        assert!(unnamed(&tx).unwrap().is_empty() && bytes(&tx).unwrap() == 0);
    }

    #[test]
    fn a_name_stands_for_another_tree_only_if_it_is_replaced() {
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        let (a, b) = (environment("a", b"a"), environment("a", b"b"));
        name(&tx, &Tenant::LOCAL, &a, false).unwrap();
        name(&tx, &Tenant::LOCAL, &a, false).unwrap();
        assert!(matches!(name(&tx, &Tenant::LOCAL, &b, false), Err(Error::Taken(_))));
        assert_eq!(name(&tx, &Tenant::LOCAL, &b, true).unwrap(), Some(a.made.digest));
        assert_eq!(list(&tx, &Tenant::LOCAL).unwrap(), [b]);
        assert_eq!(unnamed(&tx).unwrap(), [(a.made.digest, 4)].into());
    }
}
