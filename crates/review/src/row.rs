//! Items from rows. Whoever damaged a row gets an error, and nothing that was made up.

use std::str::FromStr;

use hotcell_approver::{ItemId, Signature, Verdict};
use hotcell_record::Hex;
use hotcell_types::{CallId, Caller, Door};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};

use crate::item::{Answered, Given, Item, Rule};
use crate::words::{Kind, State};

pub(crate) const COLUMNS: &str = "seq, id, kind, tenant, subject, door, call_id, tool, operation, shown, \
    call_digest, policy_digest, rules, bearer, asked, expires, state, verdict, approver, approver_name, \
    reason, answered, grant_expires, signature, used, used_by, ended, result";

/// From `COLUMNS`.
pub(crate) fn item(row: &Row<'_>) -> Result<Item> {
    let caller = Caller {
        tenant: parsed(row, "tenant")?,
        subject: parsed(row, "subject")?,
        door: named(row, "door", Door::ALL, Door::name)?,
    };
    let used = row.get::<_, Option<i64>>("used")?;
    Ok(Item {
        seq: u64::try_from(row.get::<_, i64>("seq")?).map_err(|_| bad("seq"))?,
        id: ItemId::from_bytes(row.get("id")?),
        kind: named(row, "kind", Kind::ALL, Kind::name)?,
        caller,
        call: CallId::from_bytes(row.get("call_id")?),
        tool: row.get("tool")?,
        operation: row.get("operation")?,
        shown: row.get("shown")?,
        call_digest: Hex(row.get("call_digest")?),
        policy_digest: Hex(row.get("policy_digest")?),
        rules: read_rules(&row.get::<_, String>("rules")?).ok_or_else(|| bad("rules"))?,
        bearer: row.get("bearer")?,
        asked: row.get("asked")?,
        expires: row.get("expires")?,
        state: named(row, "state", State::ALL, State::name)?,
        answer: answered(row)?,
        used: match used {
            Some(time) => Some((time, CallId::from_bytes(row.get("used_by")?))),
            None => None,
        },
        ended: row.get("ended")?,
        result: row.get("result")?,
    })
}

fn answered(row: &Row<'_>) -> Result<Option<Answered>> {
    let Some(signature) = row.get::<_, Option<[u8; 64]>>("signature")? else { return Ok(None) };
    let given = Given {
        verdict: named(row, "verdict", Verdict::ALL, Verdict::name)?,
        reason: parsed(row, "reason")?,
        time: row.get("answered")?,
        expires: row.get("grant_expires")?,
        approver: parsed(row, "approver")?,
        signature: Signature::from_bytes(signature),
    };
    Ok(Some(Answered { given, name: parsed(row, "approver_name")? }))
}

/// As they are in their column: a list of pairs.
pub(crate) fn rules_text(rules: &[Rule]) -> String {
    let pairs: Vec<[&str; 2]> =
        rules.iter().map(|rule| [rule.name.as_str(), rule.reason.as_str()]).collect();
    serde_json::json!(pairs).to_string()
}

fn read_rules(text: &str) -> Option<Vec<Rule>> {
    let pairs: Vec<[String; 2]> = serde_json::from_str(text).ok()?;
    Some(pairs.into_iter().map(|[name, reason]| Rule { name, reason }).collect())
}

fn parsed<T: FromStr>(row: &Row<'_>, column: &str) -> Result<T> {
    row.get::<_, String>(column)?.parse().map_err(|_| bad(column))
}

/// One of these words.
fn named<T: Copy, const N: usize>(
    row: &Row<'_>,
    column: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T> {
    let text = row.get::<_, String>(column)?;
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| bad(column))
}

fn bad(column: &str) -> Error {
    let why = format!("`{column}` of an item is not what was written");
    Error::FromSqlConversionFailure(0, Type::Text, why.into())
}
