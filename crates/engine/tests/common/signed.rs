//! A home with a policy that an approver signed.

use hotcell_approver::{Approver, SignedPolicy};
use hotcell_record::{Durability, Record};
use hotcell_review::versions::{self, Rules, Version};

/// Makes a policy the one of a home: a version that an approver signed, and its copy for people.
pub(crate) fn follow(record: &Record, by: &Approver, rules: &str) {
    let text = format!("approvers:\n  - {}\n{rules}", by.public());
    let rules = Rules { text: text.clone(), ..Rules::default() };
    let home = record.home_id().0;
    let by_whom = |last| {
        let statement = versions::statement(&rules, home, last, 0);
        Version { rules: rules.clone(), signed: SignedPolicy::sign(by, statement) }
    };
    let last = record.look(|conn| Ok::<_, Failed>(versions::newest_number(conn)?)).unwrap();
    let version = by_whom(last);
    let added = record.write(Durability::Synced, move |tx| {
        hotcell_review::migrate(tx)?;
        versions::add(tx, &version)?;
        Ok::<_, Failed>(((), Vec::new()))
    });
    added.unwrap();
    let file = record.home().join(hotcell_engine::POLICY_FILE);
    std::fs::write(record.home().join("policy.new"), text).unwrap();
    std::fs::rename(record.home().join("policy.new"), file).unwrap();
}

#[derive(Debug)]
struct Failed(#[expect(dead_code, reason = "it is shown")] String);

impl From<hotcell_review::Error> for Failed {
    fn from(error: hotcell_review::Error) -> Failed {
        Failed(error.to_string())
    }
}

impl From<hotcell_record::ReadError> for Failed {
    fn from(error: hotcell_record::ReadError) -> Failed {
        Failed(error.to_string())
    }
}
