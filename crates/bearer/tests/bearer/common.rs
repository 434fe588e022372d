//! Homes with bearers in them, and a clock that does as it is told.

use hotcell_bearer::{
    Allowed, Audience, Change, Digest, Error, Facts, Holder, Minted, Moment, Narrower, Paths,
    Presented, Ring, Scope, Who, Why, attenuate, consume, find, migrate, mint, now, revoke,
};
use hotcell_glob::Glob;
use hotcell_types::{CallId, Name, Span};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const START: i64 = 1_700_000_000 * SECOND;
pub(crate) const POLICY: Digest = [9; 32];
pub(crate) const ARGS: Digest = [2; 32];
pub(crate) const TOOL: Digest = [3; 32];

/// On a real file system, where this user can write to one.
pub(crate) fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap()
}

/// A home of one process.
pub(crate) struct House {
    pub(crate) dir: TempDir,
    pub(crate) ring: Ring,
    pub(crate) conn: Connection,
    pub(crate) moment: Moment,
}

impl House {
    pub(crate) fn new() -> House {
        let dir = home();
        let ring = Ring::open(dir.path()).unwrap();
        let mut conn = Connection::open(dir.path().join("bearers.db")).unwrap();
        conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").unwrap();
        let tx = conn.transaction().unwrap();
        migrate(&tx).unwrap();
        tx.commit().unwrap();
        let moment = Moment { clock: START, boot: [1; 16], uptime: 100 * SECOND };
        House { dir, ring, conn, moment }
    }

    /// Time passes, for the clock and for the system.
    pub(crate) fn pass(&mut self, nanos: i64) {
        self.moment.clock += nanos;
        self.moment.uptime += nanos;
    }

    /// As after the end of the process.
    pub(crate) fn restart(&mut self) {
        self.ring = Ring::open(self.dir.path()).unwrap();
        self.conn = Connection::open(self.dir.path().join("bearers.db")).unwrap();
        self.conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").unwrap();
    }

    /// All of it, or nothing.
    pub(crate) fn write<T>(
        &mut self,
        write: impl FnOnce(&Transaction<'_>, &Ring, &Moment) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tx = self.conn.transaction().unwrap();
        let value = write(&tx, &self.ring, &self.moment)?;
        tx.commit().unwrap();
        Ok(value)
    }

    pub(crate) fn mint(&mut self, allowed: Allowed, uses: u32) -> Minted {
        self.write(|tx, ring, moment| mint(tx, ring, allowed, uses, None, moment)).unwrap()
    }

    /// A token for writing below `src`.
    pub(crate) fn token(&mut self, uses: u32) -> Minted {
        self.mint(Allowed::by_policy(holder(), writing(&["src/**"]), POLICY), uses)
    }

    pub(crate) fn child(&mut self, parent: &str, narrower: Narrower) -> Result<Minted, Why> {
        let presented = self.read(parent)?;
        let who = alice();
        let (child, _) = refused(self.write(|tx, ring, moment| {
            attenuate(tx, ring, &presented, &who.who(), POLICY, narrower, moment)
        }))?;
        Ok(child)
    }

    pub(crate) fn revoke(&mut self, minted: &Minted) -> Option<Change> {
        let (tenant, id) = (Name::LOCAL, minted.claims.id);
        self.write(|tx, _, moment| revoke(tx, &tenant, id, moment)).unwrap()
    }

    pub(crate) fn read(&self, text: &str) -> Result<Presented, Why> {
        refused(Presented::read(&self.ring, text))
    }

    pub(crate) fn now(&self) -> i64 {
        now(&self.conn, &self.moment).unwrap()
    }

    /// Whether it would be good for a call.
    pub(crate) fn status(&self, text: &str, call: &Call) -> Result<(), Why> {
        let presented = self.read(text)?;
        let known = find(&self.conn, &presented).unwrap();
        presented.status(known.as_ref(), &call.facts(self.now())).map(drop)
    }

    /// Uses it, as the engine does.
    pub(crate) fn use_it(&mut self, text: &str, call: &Call) -> Result<Change, Why> {
        let presented = self.read(text)?;
        let known = find(&self.conn, &presented).unwrap();
        let covered = presented.status(known.as_ref(), &call.facts(self.now()))?;
        refused(self.write(|tx, _, moment| consume(tx, covered, moment)))
    }
}

/// Why it was refused; anything else that goes wrong ends the test.
#[track_caller]
pub(crate) fn refused<T>(result: Result<T, Error>) -> Result<T, Why> {
    result.map_err(|error| match error {
        Error::Refused(why) => why,
        other => panic!("{other:?}"),
    })
}

pub(crate) fn holder() -> Holder {
    Holder { tenant: Name::LOCAL, subject: "alice".parse().unwrap(), run: None }
}

pub(crate) fn paths(globs: &[&str]) -> Paths {
    Paths::new(globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect()).unwrap()
}

pub(crate) fn writing(globs: &[&str]) -> Scope {
    Scope::new("fs.write".parse().unwrap(), paths(globs))
}

pub(crate) fn narrower(globs: &[&str], uses: u32) -> Narrower {
    Narrower { run: None, scope: writing(globs), uses, life: None }
}

pub(crate) fn seconds(number: u32) -> Option<Span> {
    Some(Span::seconds(number))
}

pub(crate) fn call_id(number: u8) -> CallId {
    CallId::new(7, [number; 10])
}

/// A call that a token for writing below `src` is good for, until something about it is changed.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) audience: Audience,
    pub(crate) tenant: Name,
    pub(crate) subject: Name,
    pub(crate) run: Option<CallId>,
    pub(crate) operation: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) tool_digest: Digest,
    pub(crate) paths: Vec<&'static str>,
    pub(crate) args: Digest,
    pub(crate) policy: Digest,
}

pub(crate) fn alice() -> Call {
    Call {
        audience: Audience::Token,
        tenant: Name::LOCAL,
        subject: "alice".parse().unwrap(),
        run: None,
        operation: "fs.write",
        tool: "fs.write",
        tool_digest: TOOL,
        paths: vec!["src/main.rs"],
        args: ARGS,
        policy: POLICY,
    }
}

impl Call {
    pub(crate) fn who(&self) -> Who<'_> {
        Who { tenant: &self.tenant, subject: &self.subject, run: self.run }
    }

    pub(crate) fn facts(&self, now: i64) -> Facts<'_> {
        Facts {
            audience: self.audience,
            who: self.who(),
            operation: self.operation,
            tool: self.tool,
            tool_digest: self.tool_digest,
            paths: &self.paths,
            args: self.args,
            policy: self.policy,
            now,
        }
    }
}
