//! Tokens in a store of their own, and one that is looked at: its signature, its row, and whether it is good for
//! a call. What using one up costs besides is the transaction of the intent.

use hotcell_bearer::{
    Allowed, Audience, Connection, Facts, Holder, Moment, Paths, Presented, Ring, Scope, Who, find,
    mint, now,
};
use hotcell_types::{Name, Span};

use crate::Failure;

const POLICY: [u8; 32] = [9; 32];

/// A home with so many tokens that are good.
pub(crate) struct Store {
    ring: Ring,
    conn: Connection,
    token: String,
    _home: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new(rows: usize) -> Result<Store, Failure> {
        let home = tempfile::tempdir()?;
        let ring = Ring::open(home.path())?;
        let mut conn = Connection::open(home.path().join("tokens.db"))?;
        conn.execute_batch("PRAGMA journal_mode = WAL")?;
        let tx = conn.transaction()?;
        let (life, mut token) = (Some(Span::seconds(3600)), String::new());
        // The one that is looked at is in the middle of them.
        for row in 0..rows {
            let minted = mint(&tx, &ring, allowed()?, 1, life, &moment()?)?;
            if row == rows / 2 {
                token = minted.bearer.reveal().to_owned();
            }
        }
        tx.commit()?;
        Ok(Store { ring, conn, token, _home: home })
    }

    pub(crate) fn is_good(&self) -> bool {
        self.look().unwrap_or(false)
    }

    fn look(&self) -> Result<bool, Failure> {
        let presented = Presented::read(&self.ring, &self.token)?;
        let known = find(&self.conn, &presented)?;
        let now = now(&self.conn, &moment()?)?;
        Ok(presented.status(known.as_ref(), &facts(now)).is_ok())
    }
}

fn moment() -> Result<Moment, Failure> {
    Ok(Moment::at(1_700_000_000_000_000_000)?)
}

fn allowed() -> Result<Allowed, Failure> {
    let holder = Holder { tenant: Name::LOCAL, subject: Name::LOCAL, run: None };
    let scope = Scope::new("fs.write".parse()?, Paths::new(vec!["src/**".parse()?])?);
    Ok(Allowed::by_policy(holder, scope, POLICY))
}

fn facts(now: i64) -> Facts<'static> {
    Facts {
        audience: Audience::Token,
        who: Who { tenant: &Name::LOCAL, subject: &Name::LOCAL, run: None },
        operation: "fs.write",
        tool: "fs.write",
        tool_digest: [0; 32],
        paths: &["src/main.rs"],
        args: [0; 32],
        policy: POLICY,
        now,
    }
}
