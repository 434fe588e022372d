//! Whatever is done in whatever order: nobody gets more operations out of a token than went into it.

use hotcell_bearer::{Minted, Why, find, release, reserve};
use proptest::prelude::*;

use crate::common::*;

#[derive(Debug, Clone)]
enum Step {
    Share { of: prop::sample::Index, uses: u32 },
    Use(prop::sample::Index),
    Reserve(prop::sample::Index),
    Release(u8),
    Revoke(prop::sample::Index),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1_u32..5).prop_map(|(of, uses)| Step::Share { of, uses }),
        6 => any::<prop::sample::Index>().prop_map(Step::Use),
        2 => any::<prop::sample::Index>().prop_map(Step::Reserve),
        2 => (0_u8..8).prop_map(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Revoke),
        1 => (0..3 * SECOND).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn operations_never_become_more(uses in 1_u32..12, steps in prop::collection::vec(step(), 1..60)) {
        let mut house = House::new();
        let mut family: Vec<Minted> = vec![house.token(uses)];
        let (mut used, mut reviews) = (0_u32, 0_u8);
        for step in steps {
            let text = |of: prop::sample::Index, family: &[Minted]| {
                of.get(family).bearer.reveal().to_owned()
            };
            match step {
                Step::Share { of, uses } => {
                    let of = text(of, &family);
                    family.extend(house.child(&of, narrower(&["src/**"], uses)));
                }
                Step::Use(of) => {
                    let done = house.use_it(&text(of, &family), &alice());
                    used += u32::from(done.is_ok());
                }
                Step::Reserve(of) => {
                    let presented = house.read(&text(of, &family)).unwrap();
                    let known = find(&house.conn, &presented).unwrap();
                    let call = alice();
                    let covered = presented.status(known.as_ref(), &call.facts(house.now()));
                    let Ok(covered) = covered else { continue };
                    let call = call_id(reviews);
                    house.write(|tx, _, moment| reserve(tx, covered, call, moment)).unwrap();
                    reviews += 1;
                }
                Step::Release(number) => {
                    drop(house.write(|tx, _, _| release(tx, call_id(number))));
                }
                Step::Revoke(of) => drop(house.revoke(of.get(&family))),
                Step::Pass(nanos) => house.pass(nanos),
            }
            let rows = hotcell_bearer::list(&house.conn, &hotcell_types::Name::LOCAL, 0, 1000);
            let rest: u32 = rows.unwrap().iter().map(|row| row.stored.left + row.stored.held).sum();
            prop_assert_eq!(rest + used, uses);
        }
        // What is left can be used, and no more than that.
        for minted in &family {
            let mut why = Ok(());
            while why.is_ok() {
                why = house.use_it(minted.bearer.reveal(), &alice()).map(|_| used += 1);
            }
            prop_assert!(matches!(why, Err(Why::UsedUp | Why::Revoked | Why::Expired)));
        }
        prop_assert!(used <= uses);
    }
}
