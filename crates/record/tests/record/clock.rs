//! Clocks lie. Order comes from `seq`, and any time is only told.

use hotcell_record::{Draft, Durability, Filter, Options, Record};

use crate::common::*;

const TIMES: [i64; 9] = [
    1_700_000_000_000_000_000,
    // An hour back, before 1970, the end of 32 bits, the end of what a date library likes.
    1_700_000_000_000_000_000 - 3_600_000_000_000,
    -1,
    -62_135_596_800_000_000,
    2_147_483_648_000_000_000,
    i64::MAX,
    i64::MIN,
    0,
    1,
];

#[test]
fn clk_01_a_clock_that_goes_back_changes_neither_order_nor_proof() {
    let home = home();
    let record = open(home.path());
    for time in TIMES {
        record.append(Draft { time, ..note("x") }, Durability::Committed).unwrap();
    }
    let events = record.events(&Filter { after: 1, ..all() }).unwrap();
    assert_eq!(events.iter().map(|event| event.time).collect::<Vec<_>>(), TIMES);
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn clk_03_impossible_dates_are_recorded_signed_and_pruned_without_a_panic() {
    let clocks: [fn() -> i64; 4] = [|| i64::MIN, || -1, || i64::MAX, || 253_402_300_800_000_000];
    let home = home();
    for (number, clock) in clocks.into_iter().enumerate() {
        let record = Record::open(home.path(), Options { clock, ..Options::default() }).unwrap();
        let number = number as u64;
        drop(
            record
                .begin(Draft { time: clock(), ..full(hotcell_record::Kind::Intent, number) })
                .unwrap(),
        );
        record.prune(&hotcell_record::RetentionPolicy::default()).unwrap();
        record.checkpoint().unwrap();
        record.close().unwrap();
        assert_sound(home.path());
    }
}
