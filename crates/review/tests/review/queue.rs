//! What comes into the queue, in which order it is shown, and how much of it there is.

use hotcell_record::Hex;
use hotcell_request::Call;
use hotcell_review::{
    Error, Item, Kind, LASTS, MOST_CALL, MOST_LASTS, MOST_PAGE, MOST_PAGE_BYTES, MOST_RULES,
    MOST_TEXT, MOST_WAITING, MOST_WAITING_OF_CALLER, New, Rule, State, Verdict, cancel, enqueue,
    list, prune, stored_call,
};
use hotcell_types::{Caller, Decision, Name, Status};
use serde_json::{Value, json};

use crate::common::*;

fn by(subject: &str, number: u64) -> Call {
    let caller = Caller { subject: subject.parse().unwrap(), ..agent() };
    call_by(caller, number, json!({"to": number.to_string()}))
}

#[test]
fn an_item_has_the_exact_call_and_shows_it_without_its_secrets() {
    let mut desk = Desk::new();
    let asked = call(1);
    let (item, drafts) = desk.write(|tx| enqueue(tx, new(&asked), 5)).unwrap();
    assert_eq!((item.seq, item.kind, item.state), (1, Kind::Review, State::Waiting));
    assert_eq!((&item.caller, item.call), (asked.caller(), asked.id()));
    assert_eq!((item.asked, item.expires), (5, 5 + LASTS));
    assert_eq!(item.call_digest.0, *asked.digest().as_bytes());
    assert_eq!(item.bearer.as_deref(), Some("bearer 7"));
    let shown: Value = serde_json::from_str(&item.shown).unwrap();
    assert_eq!(shown, asked.redacted_args());
    assert!(!item.shown.contains("hunter22") && !format!("{item:?}").contains("hunter22"));
    let stored = stored_call(&desk.conn, &Name::LOCAL, item.id).unwrap().unwrap();
    let again = Call::from_bytes(&stored, &registry()).unwrap();
    assert_eq!((&again, again.digest()), (&asked, asked.digest()));

    let [draft] = &drafts[..] else { panic!("{drafts:?}") };
    assert_eq!(draft.decision, Some(Decision::Review));
    assert_eq!(draft.status, Some(Status::Review));
    assert_eq!((&draft.rules[..], draft.call), (&["look-first".to_owned()][..], Some(id(1))));
    assert!(draft.reason.as_ref().unwrap().contains("it reaches production"));
    assert_eq!(document(draft)["item"], item.id.to_string());
    assert!(!format!("{draft:?}").contains("hunter22"));
}

#[test]
fn who_asks_again_gets_the_place_that_they_have() {
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 5);
    let (again, drafts) = desk.write(|tx| enqueue(tx, new(&call(2)), 6)).unwrap();
    assert_eq!((&again, drafts.len()), (&item, 0));
    // Under another policy, of another kind, or when it is over, it is another question.
    let policy = New { policy: Hex([9; 32]), ..new(&call(2)) };
    let kind = New { kind: Kind::Policy, ..new(&call(2)) };
    for (other, clock) in [(policy, 6), (kind, 6), (new(&call(2)), item.expires)] {
        let (other, drafts) = desk.write(|tx| enqueue(tx, other, clock)).unwrap();
        assert_ne!(other.id, item.id);
        assert_eq!(drafts.len(), 1);
    }
}

#[test]
fn nobody_floods_the_queue() {
    let mut desk = Desk::new();
    let mut asked = 0;
    let mut ask = |desk: &mut Desk, subject: &str, clock| {
        asked += 1;
        desk.write(|tx| enqueue(tx, new(&by(subject, asked)), clock)).map(|(item, _)| item)
    };
    let first = ask(&mut desk, "agent", 0).unwrap();
    for _ in 1..MOST_WAITING_OF_CALLER {
        ask(&mut desk, "agent", 0).unwrap();
    }
    let full = ask(&mut desk, "agent", 0);
    assert!(matches!(&full, Err(Error::Full { of, .. }) if of.as_str() == "agent"), "{full:?}");
    // Who takes something back has room again, and so has who was answered.
    desk.write(|tx| cancel(tx, &agent(), first.id, 0)).unwrap();
    let next = ask(&mut desk, "agent", 0).unwrap();
    assert!(ask(&mut desk, "agent", 0).is_err());
    let given = given(&desk.alice, &next, Verdict::Reject, 0);
    desk.answer(next.id, given, 0).unwrap();
    ask(&mut desk, "agent", 0).unwrap();
    // Others are not touched, until all together are too many.
    for number in MOST_WAITING_OF_CALLER..MOST_WAITING {
        ask(&mut desk, &format!("agent{}", number / MOST_WAITING_OF_CALLER), 0).unwrap();
    }
    let full = ask(&mut desk, "newcomer", 0);
    assert!(matches!(&full, Err(Error::Full { of, .. }) if *of == Name::LOCAL), "{full:?}");
    // Another tenant has a queue of its own, and what is over takes no room.
    let mut elsewhere = agent();
    elsewhere.tenant = "elsewhere".parse().unwrap();
    let other = call_by(elsewhere, 1, json!({}));
    desk.write(|tx| enqueue(tx, new(&other), 0)).unwrap();
    ask(&mut desk, "newcomer", LASTS).unwrap();
}

#[test]
fn texts_and_times_are_bounded() {
    let mut desk = Desk::new();
    let large = call_by(agent(), 1, json!({"to": "x".repeat(MOST_CALL)}));
    let result = desk.write(|tx| enqueue(tx, new(&large), 0));
    assert!(matches!(result, Err(Error::TooLarge { .. })));
    let secret = call_by(agent(), 1, json!({"key": "x".repeat(MOST_CALL)}));
    let result = desk.write(|tx| enqueue(tx, new(&secret), 0));
    assert!(matches!(result, Err(Error::TooLarge { .. })));
    let bearer = New { bearer: Some("x".repeat(200)), ..new(&call(1)) };
    let result = desk.write(|tx| enqueue(tx, bearer, 0));
    assert!(matches!(result, Err(Error::LongBearer { .. })));
    let result = desk.write(|tx| enqueue(tx, new(&call(1)), i64::MAX));
    assert!(matches!(result, Err(Error::Time)));

    let rule = Rule { name: "é".repeat(MOST_TEXT), reason: "because".into() };
    let many = New { rules: vec![rule; MOST_RULES + 3], lasts: i64::MAX, ..new(&call(1)) };
    let (item, _) = desk.write(|tx| enqueue(tx, many, 0)).unwrap();
    assert_eq!((item.rules.len(), item.expires), (MOST_RULES + 1, MOST_LASTS));
    assert_eq!(item.rules[0].name.chars().count(), MOST_TEXT / 2 + 1);
    assert_eq!(item.rules[MOST_RULES].reason, "3 more rules asked");
    let none = New { lasts: -5, ..new(&by("agent", 2)) };
    assert_eq!(desk.write(|tx| enqueue(tx, none, 0)).unwrap().0.expires, 1);
}

#[test]
fn those_that_wait_come_first_and_pages_follow_each_other() {
    let mut desk = Desk::new();
    let items: Vec<Item> = (0..9).map(|number| desk.enqueue(&by("agent", number), 0)).collect();
    for ended in [1, 4, 6, 8] {
        desk.write(|tx| cancel(tx, &agent(), items[ended].id, 0)).unwrap();
    }
    let expected: Vec<u64> = [0, 2, 3, 5, 7, 8, 6, 4, 1].map(|place| items[place].seq).to_vec();
    for limit in 1..=10 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = list(&desk.conn, &Name::LOCAL, after, limit).unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items.iter().map(|item| item.seq));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "{limit}");
    }
    let all = list(&desk.conn, &Name::LOCAL, None, usize::MAX).unwrap();
    assert_eq!((all.items.len(), all.next), (9, None));
    let page = list(&desk.conn, &Name::LOCAL, None, 9).unwrap();
    assert_eq!((page.items.len(), page.next), (9, None));
    assert!(list(&desk.conn, &"other".parse().unwrap(), None, MOST_PAGE).unwrap().items.is_empty());
}

#[test]
fn a_page_has_no_more_than_somebody_can_hold() {
    let mut desk = Desk::new();
    for number in 0..8 {
        let args = json!({"to": format!("{number}{}", "x".repeat(MOST_CALL - 1000))});
        desk.enqueue(&call_by(agent(), number, args), 0);
    }
    let first = list(&desk.conn, &Name::LOCAL, None, MOST_PAGE).unwrap();
    let shown: usize = first.items.iter().map(|item| item.shown.len()).sum();
    assert!(shown <= MOST_PAGE_BYTES + MOST_CALL, "{shown}");
    let second = list(&desk.conn, &Name::LOCAL, first.next, MOST_PAGE).unwrap();
    assert_eq!((first.items.len() + second.items.len(), second.next), (8, None));
}

#[test]
fn what_ended_long_ago_is_removed_and_nothing_else() {
    let mut desk = Desk::new();
    let items: Vec<Item> = (0..3).map(|number| desk.enqueue(&by("agent", number), 0)).collect();
    desk.write(|tx| cancel(tx, &agent(), items[0].id, 100)).unwrap();
    desk.write(|tx| cancel(tx, &agent(), items[1].id, 200)).unwrap();
    assert_eq!(desk.write(|tx| prune(tx, 100)).unwrap(), 0);
    assert_eq!(desk.write(|tx| prune(tx, 101)).unwrap(), 1);
    let left = list(&desk.conn, &Name::LOCAL, None, 9).unwrap().items;
    let left: Vec<u64> = left.iter().map(|item| item.seq).collect();
    assert_eq!(left, [items[2].seq, items[1].seq]);
}
