//! The laws of the crate's documentation, over random schedules and by example.

mod threads;
mod world;

use std::time::Duration;

use hotcell_types::{Bytes, Count};
use proptest::prelude::*;

use crate::job::Phase;
use crate::{
    Full, Limits, MOST_AFTER, MOST_PASSED, MOST_PAUSES, MOST_WAIT, Refused, Share, Want, Why,
};
use world::{Spy, Temper, World, id, limits, name, priority, seconds, want};

/// Something that happens. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Event {
    Ask {
        tenant: u8,
        party: u8,
        own: u8,
        template: u8,
        memory: u32,
        expected: u64,
        patience: u64,
        after: Vec<usize>,
        temper: Temper,
    },
    Advance(u64),
    Finish(usize, bool),
    Cancel(usize),
    Drop(usize),
}

fn temper() -> impl Strategy<Value = Temper> {
    let rarely = || prop::bool::weighted(0.1);
    (rarely(), rarely(), rarely()).prop_map(|(no_pause, no_resume, no_destroy)| Temper {
        no_pause,
        no_resume,
        no_destroy,
    })
}

fn event() -> impl Strategy<Value = Event> {
    let patience = prop_oneof![1 => 0..60_u64, 3 => Just(100_000)];
    let after = prop_oneof![4 => Just(vec![]), 1 => prop::collection::vec(any::<usize>(), 1..3)];
    let who = (0..3_u8, 0..3_u8, 1..=5_u8);
    let ask = (who, 0..3_u8, 1..=10_u32, 1..100_u64, patience, after, temper());
    prop_oneof![
        6 => ask.prop_map(|(who, template, memory, expected, patience, after, temper)| {
            let (tenant, party, own) = who;
            Event::Ask { tenant, party, own, template, memory, expected, patience, after, temper }
        }),
        2 => (0..40_u64).prop_map(Event::Advance),
        4 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(at, ok)| Event::Finish(at, ok)),
        1 => any::<usize>().prop_map(Event::Cancel),
        1 => any::<usize>().prop_map(Event::Drop),
    ]
}

fn some_limits() -> impl Strategy<Value = Limits> {
    let share = (1..4_u32, 2..20_u32, 1..20_u32);
    (1..5_u32, 1..3_u32, 8..40_u32, 3..30_u32, share, 1..60_u64).prop_map(
        |(global, template, memory, queue, (running, waiting, party), ageing)| Limits {
            per_template: [(name("t0"), Count::of(template))].into(),
            memory: Bytes::mib(memory),
            queue: Count::of(queue),
            share: Share {
                running: Count::of(running),
                waiting: Count::of(waiting),
                party: Count::of(party),
            },
            ageing: seconds(ageing),
            ..limits(global)
        },
    )
}

impl World {
    fn happens(&mut self, number: usize, event: Event) {
        let pick = |n: usize, from: Vec<usize>| from.get(n % from.len().max(1)).copied();
        let all = 0..self.sims.len();
        match event {
            Event::Ask {
                tenant,
                party,
                own,
                template,
                memory,
                expected,
                patience,
                after,
                temper,
            } => {
                let known =
                    |n: usize| pick(n, all.clone().collect()).map(|at| self.sims[at].want.id);
                let want = Want {
                    party: name(party),
                    template: name(format!("t{template}")),
                    memory: Bytes::mib(memory),
                    expected: seconds(expected),
                    patience: seconds(patience),
                    after: after.into_iter().filter_map(known).collect(),
                    ..want(number, tenant, own)
                };
                self.ask_and_check(want, temper);
            }
            Event::Advance(by) => self.advance(seconds(by)),
            Event::Finish(n, success) => {
                // What is frozen does not end, unless it was destroyed.
                if let Some(at) = pick(n, all.filter(|at| self.sims[*at].can_end()).collect()) {
                    self.finish(at, success);
                }
            }
            Event::Cancel(n) => {
                if let Some(at) = pick(n, all.filter(|at| self.waits(*at)).collect()) {
                    assert!(self.cancel(at));
                    assert_eq!(self.sims[at].answer, Some(Err(Why::Cancelled)));
                }
            }
            Event::Drop(n) => {
                if let Some(at) = pick(n, all.filter(|at| self.waits(*at)).collect()) {
                    self.drop_waiting(at);
                }
            }
        }
    }

    /// A refusal has to be a right one.
    fn ask_and_check(&mut self, want: Want, temper: Temper) {
        let waiting: Vec<_> = self.sims.iter().filter(|sim| sim.waiting.is_some()).collect();
        let of_tenant = waiting.iter().filter(|sim| sim.want.tenant == want.tenant).count() as u64;
        let is_own =
            |want: &Want, own: &Want| (&own.tenant, &own.party) == (&want.tenant, &want.party);
        let of_party = waiting.iter().filter(|sim| is_own(&want, &sim.want)).count() as u64;
        let waiting = waiting.len() as u64;
        let others = self.sims.iter().filter(|sim| sim.want.tenant != want.tenant);
        let foreign: Vec<_> = others.map(|sim| sim.want.id).collect();
        match self.ask_for(want.clone(), temper) {
            Ok(_) => assert!(!want.after.iter().any(|id| foreign.contains(id))),
            Err(Refused::Busy { full: Full::Queue, .. }) => {
                assert_eq!(waiting, self.limits.queue.get());
            }
            Err(Refused::Busy { full: Full::Share, .. }) => {
                assert_eq!(of_tenant, self.limits.share.waiting.get());
            }
            Err(Refused::Busy { full: Full::Party, .. }) => {
                assert_eq!(of_party, self.limits.share.party.get());
            }
            Err(Refused::TooLarge { .. }) => assert!(want.memory > self.limits.memory),
            Err(Refused::UnknownDependency { after, .. }) => assert!(foreign.contains(&after)),
            Err(other) => panic!("{other}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Limits, order, FIFO, dependencies, preemption, patience, one answer each, and nothing left: the
    /// world checks them after each event.
    #[test]
    fn every_law_holds_in_every_schedule(
        limits in some_limits(),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::new(limits);
        for (number, event) in events.into_iter().enumerate() {
            world.happens(number, event);
        }
        world.drain();
    }

    /// However much the others ask for, tenants with the same wishes get the same number of turns.
    #[test]
    fn tenants_that_always_have_work_differ_by_one_turn(
        tenants in 2..6_u8,
        backlog in prop::collection::vec(1..30_usize, 5),
        rounds in 1..60_usize,
    ) {
        let mut world = World::new(limits(1));
        let mut turns = vec![0_i64; usize::from(tenants)];
        let mut number = 0;
        let mut ask = |world: &mut World, tenant: u8| {
            number += 1;
            world.ask(want(number, tenant, 3)).unwrap();
        };
        for tenant in 0..tenants {
            (0..backlog[usize::from(tenant) % 5]).for_each(|_| ask(&mut world, tenant));
        }
        for _ in 0..rounds {
            let at = world.running()[0];
            let tenant = (0..tenants).find(|t| name(t) == world.sims[at].want.tenant).unwrap();
            turns[usize::from(tenant)] += 1;
            // Nobody runs out of work.
            ask(&mut world, tenant);
            world.finish(at, true);
        }
        let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", turns);
    }

    /// The same for the parties of a tenant, beside another tenant that has its own half of the turns.
    #[test]
    fn parties_that_always_have_work_differ_by_one_turn(
        parties in 2..6_u8,
        backlog in prop::collection::vec(1..30_usize, 5),
        rounds in 1..60_usize,
        has_other in any::<bool>(),
    ) {
        let mut world = World::new(limits(1));
        let mut turns = vec![0_i64; usize::from(parties)];
        let (mut number, mut others) = (0, 0_i64);
        // The last of them is the other tenant.
        let mut ask = |world: &mut World, party: u8| {
            number += 1;
            let tenant = u8::from(party == parties);
            world.ask(Want { party: name(party), ..want(number, tenant, 3) }).unwrap();
        };
        for party in 0..parties + u8::from(has_other) {
            (0..backlog[usize::from(party) % 5]).for_each(|_| ask(&mut world, party));
        }
        for _ in 0..rounds {
            let at = world.running()[0];
            let party = (0..=parties).find(|p| name(p) == world.sims[at].want.party).unwrap();
            match turns.get_mut(usize::from(party)) {
                Some(own) => *own += 1,
                None => others += 1,
            }
            ask(&mut world, party);
            world.finish(at, true);
        }
        let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", turns);
        let own: i64 = turns.iter().sum();
        prop_assert!(!has_other || (own - others).abs() <= 1, "{} of {:?}", others, turns);
    }

    /// A large job among an endless stream of small ones that are more urgent and belong to others.
    #[test]
    fn no_stream_starves_what_fits(
        global in 1..5_u32,
        large in 1..=8_u32,
        own in 2..=5_u8,
        streams in prop::collection::vec((0..4_u8, 2..=4_u8, 1..=4_u32, 1..20_u64), 1..8),
    ) {
        let mut world = World::new(Limits { memory: Bytes::mib(8), ..limits(global) });
        // Ageing takes 3 steps of 30 s. Then each of the 4 other tenants may have its turn first, some
        // pass, and those that run come to their ends; each takes 20 s at most.
        let bound = 90 + 20 * u64::from(4 + MOST_PASSED + global);
        let mut large_one = None;
        for second in 0..20 + bound {
            for (stream, &(tenant, own, memory, every)) in streams.iter().enumerate() {
                if second % every == 0 && world.waiting() < 20 {
                    let number = second as usize * streams.len() + stream;
                    let (memory, expected) = (Bytes::mib(memory), seconds(every));
                    let want = Want { memory, expected, ..want(number, tenant, own) };
                    world.ask(want).unwrap();
                }
            }
            if second == 20 {
                let want = Want { memory: Bytes::mib(large), ..want(usize::MAX, 9, own) };
                large_one = Some(world.ask(want).unwrap());
            }
            if large_one.is_some_and(|at| world.sims[at].answer == Some(Ok(()))) {
                return Ok(());
            }
            world.advance(seconds(1));
            for at in world.running() {
                if world.sims[at].used() >= world.sims[at].want.expected {
                    world.finish(at, true);
                }
            }
            // Their callers hear that they have to end.
            for at in world.destroyed() {
                world.finish(at, false);
            }
        }
        prop_assert!(false, "it did not start within {} s", bound);
    }
}

#[test]
fn a_place_goes_to_the_tenant_that_has_fewest() {
    let mut world = World::new(limits(2));
    let first: Vec<_> = (0..10).map(|n| world.ask(want(n, 0, 3)).unwrap()).collect();
    let other = world.ask(want(10, 1, 3)).unwrap();
    assert_eq!(world.running(), first[..2]);
    world.finish(first[0], true);
    assert!(world.runs(other), "it starts with the first place that becomes free");
    world.finish(first[1], true);
    assert!(world.runs(first[2]), "its tenant has nothing else");
    world.drain();
}

#[test]
fn a_place_is_not_owed_to_who_went_without_longest_but_to_who_has_least() {
    let mut world = World::new(limits(4));
    let [_, _, _, over] = [0, 0, 1, 2].map(|tenant| {
        let number = world.sims.len();
        world.ask(want(number, tenant, 3)).unwrap()
    });
    let more = world.ask(want(4, 0, 3)).unwrap();
    let less = world.ask(want(5, 1, 3)).unwrap();
    world.finish(over, true);
    assert!(world.runs(less) && world.waits(more));
    world.drain();
}

#[test]
fn one_run_of_a_party_does_not_wait_for_all_that_another_has_queued() {
    let mut world = World::new(limits(2));
    let many: Vec<_> = (0..100).map(|n| world.ask(want(n, 0, 3)).unwrap()).collect();
    let single = world.ask(Want { party: name("other"), ..want(100, 0, 3) }).unwrap();
    world.finish(many[0], true);
    assert!(world.runs(single), "it starts with the first place that becomes free");
    world.drain();
}

#[test]
fn one_party_cannot_fill_the_share_of_its_tenant() {
    let share = Share { running: Count::of(9), waiting: Count::of(5), party: Count::of(3) };
    let mut world = World::new(Limits { share, ..limits(1) });
    for n in 0..4 {
        world.ask(want(n, 0, 3)).unwrap();
    }
    let refused = world.ask(want(4, 0, 3)).unwrap_err();
    assert!(matches!(refused, Refused::Busy { full: Full::Party, .. }), "{refused}");
    world.ask(Want { party: name("other"), ..want(4, 0, 3) }).unwrap();
    // The same name in another tenant is somebody else.
    world.ask(want(5, 1, 3)).unwrap();
    world.drain();
}

#[test]
fn one_tenant_cannot_fill_the_queue() {
    let share = Share { running: Count::of(9), waiting: Count::of(5), party: Count::of(9) };
    let mut world = World::new(Limits { share, queue: Count::of(10), ..limits(1) });
    for n in 0..6 {
        world.ask(want(n, 0, 3)).unwrap();
    }
    let refused = world.ask(want(6, 0, 3)).unwrap_err();
    assert!(matches!(refused, Refused::Busy { full: Full::Share, .. }), "{refused}");
    for n in 6..11 {
        world.ask(want(n, 1, 3)).unwrap();
    }
    let refused = world.ask(want(11, 2, 3)).unwrap_err();
    assert!(matches!(refused, Refused::Busy { full: Full::Queue, .. }), "{refused}");
    world.drain();
}

#[test]
fn who_waits_longer_is_lifted_but_not_above_two() {
    let mut world = World::new(limits(1));
    let running = world.ask(want(0, 0, 2)).unwrap();
    let old = world.ask(want(1, 0, 5)).unwrap();
    world.advance(seconds(60));
    let three = world.ask(want(2, 0, 3)).unwrap();
    world.advance(seconds(1000));
    let two = world.ask(want(3, 0, 2)).unwrap();
    let one = world.ask(want(4, 0, 1)).unwrap();
    let mut order = Vec::new();
    let mut at = running;
    for _ in 0..4 {
        world.finish(at, true);
        at = world.running()[0];
        order.push(at);
    }
    assert_eq!(order, [one, old, three, two]);
    world.drain();
}

#[test]
fn a_large_job_is_passed_a_few_times_and_then_waited_for() {
    let mut world = World::new(Limits { memory: Bytes::mib(10), ..limits(4) });
    let long = world.ask(Want { memory: Bytes::mib(5), ..want(0, 0, 3) }).unwrap();
    let large = world.ask(Want { memory: Bytes::mib(6), ..want(1, 0, 3) }).unwrap();
    for n in 2.. {
        let small = world.ask(want(n, 0, 3)).unwrap();
        if !world.runs(small) {
            assert_eq!(n, 2 + MOST_PASSED as usize);
            // What it blocks is only what could take its memory.
            world.finish(long, true);
            assert!(world.runs(large) && world.runs(small));
            break;
        }
        world.finish(small, true);
    }
    world.drain();
}

#[test]
fn nobody_starts_past_one_that_would_stop_it_at_once() {
    let mut world = World::new(Limits { memory: Bytes::mib(10), ..limits(4) });
    let long = world.ask(Want { memory: Bytes::mib(5), ..want(0, 0, 2) }).unwrap();
    let large = world.ask(Want { memory: Bytes::mib(6), ..want(1, 0, 2) }).unwrap();
    let near = world.ask(want(2, 0, 3)).unwrap();
    let below = world.ask(want(3, 0, 4)).unwrap();
    assert!(world.runs(near) && world.waits(below) && world.waits(large));
    world.finish(long, true);
    assert!(world.runs(large) && world.runs(below));
    world.drain();
}

#[test]
fn a_full_template_holds_up_nobody_else() {
    let per_template = [(name("few"), Count::of(1))].into();
    let mut world = World::new(Limits { per_template, ..limits(4) });
    let few = |n| Want { template: name("few"), ..want(n, 0, 3) };
    let first = world.ask(few(0)).unwrap();
    let second = world.ask(few(1)).unwrap();
    for n in 2..50 {
        let other = world.ask(want(n, 0, 3)).unwrap();
        assert!(world.runs(other) && !world.runs(second));
        world.finish(other, true);
    }
    world.finish(first, true);
    assert!(world.runs(second));
    world.drain();
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let mut world = World::new(Limits { memory: Bytes::mib(10), ..limits(1) });
    let known = world.ask(want(0, 0, 3)).unwrap();
    let large = Want { memory: Bytes::mib(11), ..want(1, 0, 3) };
    let unknown = Want { after: vec![id(0), id(77)], ..want(1, 0, 3) };
    let itself = Want { after: vec![id(1)], ..want(1, 0, 3) };
    let foreign = Want { after: vec![id(0)], ..want(1, 1, 3) };
    let greedy = Want { after: vec![id(0); MOST_AFTER + 1], ..want(1, 0, 3) };
    let rows = [
        (large, Refused::TooLarge { wanted: Bytes::mib(11), most: Bytes::mib(10) }),
        (want(0, 0, 3), Refused::Duplicate(id(0))),
        (unknown, Refused::UnknownDependency { id: id(1), after: id(77) }),
        (itself, Refused::Cycle(vec![id(1)])),
        (foreign, Refused::UnknownDependency { id: id(1), after: id(0) }),
        (greedy, Refused::TooManyDependencies { id: id(1) }),
    ];
    for (want, refused) in rows {
        assert_eq!(world.ask(want).unwrap_err(), refused);
    }
    // An id may come again when its job has ended.
    world.finish(known, false);
    world.ask(want(0, 0, 3)).unwrap();
    world.drain();
}

#[test]
fn a_plan_is_taken_as_a_whole_or_not_at_all() {
    let world = World::new(Limits { queue: Count::of(3), ..limits(1) });
    let plan = |edges: &[(usize, &[usize])]| {
        let wants = edges.iter().map(|(n, after)| {
            let after = after.iter().copied().map(id).collect();
            (Want { after, ..want(*n, 0, 3) }, Spy::new(Temper::default()) as _)
        });
        world.scheduler.request_all(wants.collect())
    };
    assert_eq!(
        plan(&[(1, &[2]), (2, &[3]), (3, &[2])]).unwrap_err(),
        Refused::Cycle(vec![id(2), id(3)])
    );
    assert_eq!(plan(&[(1, &[]), (1, &[])]).unwrap_err(), Refused::Duplicate(id(1)));
    let many = plan(&[(1, &[]), (2, &[]), (3, &[]), (4, &[])]).unwrap_err();
    assert_eq!(many, Refused::TooMany { asked: 4, most: 3 });
    assert!(world.scheduler.inspect(crate::state::State::is_empty));

    let mut waiting = plan(&[(3, &[1, 2]), (2, &[1]), (1, &[])]).unwrap().into_iter();
    let [three, two, one] = [(); 3].map(|()| waiting.next().unwrap());
    assert_eq!(world.scheduler.snapshot().dependent, 2);
    one.wait().unwrap().finish(true).unwrap();
    two.wait().unwrap().finish(true).unwrap();
    three.wait().unwrap().finish(true).unwrap();
    assert!(world.scheduler.inspect(crate::state::State::is_empty));

    let waiting = plan(&[(6, &[5]), (5, &[4]), (4, &[])]).unwrap();
    world.scheduler.close();
    let answers: Vec<_> = waiting.into_iter().map(|waiting| waiting.wait().err()).collect();
    assert_eq!(answers, [Some(Why::Closing), Some(Why::Closing), None]);
}

#[test]
fn a_failure_reaches_everybody_who_waits_for_it() {
    let mut world = World::new(limits(1));
    let after = |n, after: usize| Want { after: vec![id(after)], ..want(n, 0, 3) };
    let root = world.ask(want(0, 0, 3)).unwrap();
    let child = world.ask(after(1, 0)).unwrap();
    let grandchild = world.ask(after(2, 1)).unwrap();
    world.finish(root, false);
    assert_eq!(world.sims[child].answer, Some(Err(Why::Dependency(id(0)))));
    assert_eq!(world.sims[grandchild].answer, Some(Err(Why::Dependency(id(1)))));
    // Who is gone is not waited for: nothing grows beside a job that runs for long.
    let long = world.ask(want(4, 0, 3)).unwrap();
    let impatient = world.ask(after(5, 4)).unwrap();
    world.cancel(impatient);
    world.scheduler.inspect(|state| assert_eq!(state.dependents_of_all(), 0));
    world.finish(long, true);
    let late = world.ask(after(3, 0)).unwrap();
    assert_eq!(world.sims[late].answer, Some(Err(Why::Dependency(id(0)))));
    world.drain();
}

#[test]
fn the_urgent_pause_the_least_urgent_and_youngest() {
    let mut world = World::new(limits(3));
    let [old, young, other] =
        [(0, 5), (1, 5), (2, 4)].map(|(n, own)| world.ask(want(n, 0, own)).unwrap());
    world.advance(seconds(10));
    let urgent = world.ask(want(3, 0, 3)).unwrap();
    assert!(world.runs(urgent) && world.runs(old) && world.runs(other));
    assert_eq!(world.sims[young].spy.calls(), ["pause"]);
    assert_eq!(world.phase(young), Some(Phase::Paused { since: seconds(10) }));

    // It goes on before anything of its priority, however early that came, and with the time it had.
    let rival = world.ask(want(4, 1, 5)).unwrap();
    world.advance(seconds(1000));
    world.finish(urgent, true);
    assert!(world.runs(young) && !world.runs(rival));
    assert_eq!(world.sims[young].spy.calls(), ["pause", "resume"]);
    let used =
        world.scheduler.snapshot().running.iter().map(|r| r.used.as_secs()).collect::<Vec<_>>();
    assert_eq!(used, [1010, 10, 1010]);
    world.drain();
}

#[test]
fn room_is_made_for_the_first_and_for_two_above() {
    for running in 1..=5 {
        for urgent in 1..=5 {
            let mut world = World::new(limits(1));
            world.ask(want(0, 0, running)).unwrap();
            let second = world.ask(want(1, 0, urgent)).unwrap();
            let expected = running >= urgent + 2 || (urgent == 1 && running > 1);
            assert_eq!(world.runs(second), expected, "{urgent} over {running}");
            world.drain();
        }
    }
}

#[test]
fn who_is_nearly_done_is_waited_for() {
    for (after, paused) in [(79, true), (80, false)] {
        let mut world = World::new(limits(1));
        let running = world.ask(want(0, 0, 5)).unwrap();
        world.advance(seconds(after));
        let urgent = world.ask(want(1, 0, 1)).unwrap();
        assert_eq!(world.sims[running].spy.is_paused(), paused);
        assert_eq!(world.runs(urgent), paused);
        world.drain();
    }
}

#[test]
fn where_memory_is_short_a_job_is_ended_and_its_caller_hears_for_whom() {
    // Of 100: what runs, what the urgent one wants, and whether it is ended.
    for (used, wanted, ended) in [(80, 20, false), (81, 1, true), (70, 31, true), (10, 10, false)] {
        let mut world = World::new(Limits { memory: Bytes::mib(100), ..limits(1) });
        let running = world.ask(Want { memory: Bytes::mib(used), ..want(0, 0, 5) }).unwrap();
        let urgent = world.ask(Want { memory: Bytes::mib(wanted), ..want(1, 0, 1) }).unwrap();
        let calls = world.sims[running].spy.calls();
        assert_eq!(calls, [if ended { "destroy" } else { "pause" }], "{used} {wanted}");
        if ended {
            assert!(!world.runs(urgent), "before the other has ended");
            assert_eq!(world.finish(running, false), Some(Err(Why::Preempted { by: id(1) })));
        }
        assert!(world.runs(urgent));
        world.drain();
    }
}

#[test]
fn a_job_that_ends_well_although_it_was_to_be_ended_is_a_success() {
    let mut world = World::new(Limits { memory: Bytes::mib(1), ..limits(1) });
    let running = world.ask(want(0, 0, 5)).unwrap();
    let dependent = world.ask(Want { after: vec![id(0)], ..want(1, 0, 5) }).unwrap();
    let urgent = world.ask(want(2, 0, 1)).unwrap();
    assert_eq!(world.finish(running, true), Some(Ok(())));
    assert!(world.runs(urgent) && world.waits(dependent));
    world.drain();
}

#[test]
fn nobody_is_stopped_in_vain() {
    // The template is full of what may not be stopped, and stopping others frees no place in it.
    let per_template = [(name("few"), Count::of(1))].into();
    let mut world = World::new(Limits { per_template, ..limits(2) });
    let few = |n, own| Want { template: name("few"), ..want(n, 0, own) };
    world.ask(few(0, 1)).unwrap();
    let other = world.ask(want(1, 0, 5)).unwrap();
    let urgent = world.ask(few(2, 1)).unwrap();
    assert!(world.waits(urgent) && world.runs(other));
    world.drain();

    // All that may be stopped have less memory than is lacking.
    let mut world = World::new(Limits { memory: Bytes::mib(10), ..limits(9) });
    world.ask(Want { memory: Bytes::mib(6), ..want(0, 0, 1) }).unwrap();
    let small = world.ask(Want { memory: Bytes::mib(2), ..want(1, 0, 5) }).unwrap();
    let urgent = world.ask(Want { memory: Bytes::mib(5), ..want(2, 0, 1) }).unwrap();
    assert!(world.waits(urgent) && world.runs(small));
    world.drain();

    // Another is ahead, and would take the place.
    let mut world = World::new(limits(1));
    let running = world.ask(Want { expected: seconds(10_000), ..want(0, 0, 5) }).unwrap();
    let old = world.ask(want(1, 0, 5)).unwrap();
    world.advance(seconds(90));
    let urgent = world.ask(want(2, 0, 3)).unwrap();
    assert!(world.waits(old) && world.waits(urgent));
    assert!(world.sims[running].spy.calls().is_empty());
    world.drain();

    // Each urgent one has one victim, and no more are taken while it ends.
    let mut world = World::new(Limits { memory: Bytes::mib(3), ..limits(3) });
    let running = [0, 1, 2].map(|n| world.ask(want(n, 0, 5)).unwrap());
    for n in 3..5 {
        world.ask(want(n, 0, 1)).unwrap();
        world.advance(seconds(1));
        let ended = running.iter().filter(|at| world.sims[**at].spy.is_destroyed()).count();
        assert_eq!(ended, n - 2);
    }
    world.drain();
}

#[test]
fn a_job_is_paused_a_few_times_and_then_let_be() {
    let mut world = World::new(limits(1));
    let running = world.ask(want(0, 0, 5)).unwrap();
    for n in 1..10 {
        let urgent = world.ask(want(n, 0, 1)).unwrap();
        let may_pause = n <= MOST_PAUSES as usize;
        assert_eq!(world.runs(urgent), may_pause);
        if may_pause {
            world.finish(urgent, true);
            assert!(world.runs(running));
        } else {
            world.cancel(urgent);
        }
    }
    world.drain();
}

#[test]
fn who_cannot_be_acted_on_costs_nobody_a_place() {
    let no = |no_pause, no_resume, no_destroy| Temper { no_pause, no_resume, no_destroy };
    // It cannot be paused: another is, and it is not asked again.
    let mut world = World::new(limits(2));
    let plain = world.ask(want(0, 0, 5)).unwrap();
    let stubborn = world.ask_for(want(1, 0, 5), no(true, true, true)).unwrap();
    let urgent = world.ask(want(2, 0, 1)).unwrap();
    assert!(world.runs(urgent) && world.runs(stubborn) && !world.runs(plain));
    world.ask(want(3, 0, 1)).unwrap();
    assert_eq!(world.sims[stubborn].spy.calls(), ["pause"]);
    world.drain();

    // It cannot be resumed: it is ended, and its caller hears why.
    let mut world = World::new(limits(1));
    let frozen = world.ask_for(want(0, 0, 5), no(false, true, false)).unwrap();
    let urgent = world.ask(want(1, 0, 1)).unwrap();
    world.finish(urgent, true);
    assert_eq!(world.sims[frozen].spy.calls(), ["pause", "resume", "destroy"]);
    assert_eq!(world.finish(frozen, false), Some(Err(Why::Preempted { by: id(1) })));
    world.drain();
}

#[test]
fn a_paused_job_may_end_or_be_ended() {
    let mut world = World::new(Limits { memory: Bytes::mib(10), ..limits(1) });
    let paused = world.ask(Want { memory: Bytes::mib(5), ..want(0, 0, 5) }).unwrap();
    let urgent = world.ask(want(1, 0, 1)).unwrap();
    // Its memory is what another lacks.
    let large = world.ask(Want { memory: Bytes::mib(9), ..want(2, 0, 1) }).unwrap();
    assert!(world.waits(large) && !world.sims[paused].spy.is_destroyed(), "there is no place yet");
    world.finish(urgent, true);
    assert_eq!(world.sims[paused].spy.calls().last(), Some(&"destroy"));
    world.finish(paused, false);
    assert!(world.runs(large));
    world.drain();
}

#[test]
fn patience_ends_the_waiting_and_nothing_else() {
    let mut world = World::new(limits(1));
    let hurried = |n| Want { patience: seconds(10), ..want(n, 0, 3) };
    let running = world.ask(hurried(0)).unwrap();
    let short = world.ask(hurried(1)).unwrap();
    let dependent = world.ask(Want { after: vec![id(0)], ..hurried(2) }).unwrap();
    let endless = world.ask(Want { patience: Duration::MAX, ..want(3, 0, 3) }).unwrap();
    world.advance(seconds(9));
    assert!(world.waits(short) && world.waits(dependent));
    world.advance(seconds(1));
    assert_eq!(world.sims[short].answer, Some(Err(Why::Deadline)));
    assert_eq!(world.sims[dependent].answer, Some(Err(Why::Deadline)));
    assert!(world.runs(running) && world.waits(endless));
    world.advance(MOST_WAIT);
    assert_eq!(world.sims[endless].answer, Some(Err(Why::Deadline)));
    // Now or never.
    let never = world.ask(Want { patience: Duration::ZERO, ..want(4, 0, 1) }).unwrap();
    assert_eq!(world.sims[never].answer, Some(Err(Why::Deadline)));
    world.finish(running, true);
    let now = world.ask(Want { patience: Duration::ZERO, ..want(5, 0, 5) }).unwrap();
    assert!(world.runs(now));
    world.drain();
}

#[test]
fn no_clock_confuses_it() {
    let mut world = World::new(limits(1));
    world.advance(seconds(1000));
    let running = world.ask(want(0, 0, 3)).unwrap();
    let waiting = world.ask(Want { patience: seconds(60), ..want(1, 0, 5) }).unwrap();
    world.advance(seconds(10));
    // Back to the beginning: time stands still until it is where it was.
    for back in [0, 500, 999] {
        world.clock.set(seconds(back));
        world.scheduler.look_at_clock();
        assert!(world.waits(waiting));
        assert_eq!(world.scheduler.snapshot().running[0].used, seconds(10));
    }
    world.finish(running, true);
    assert!(world.runs(waiting));
    // To the end of time: nothing overflows, and new requests are still answered.
    world.clock.set(Duration::MAX);
    world.scheduler.look_at_clock();
    assert!(world.scheduler.snapshot().running[0].used > seconds(1_000_000));
    drop(world.scheduler.request(want(2, 0, 1), Spy::new(Temper::default())).unwrap());
}

#[test]
fn who_is_sent_away_and_comes_when_told_finds_room() {
    let mut world = World::new(Limits { queue: Count::of(5), ..limits(2) });
    let mut number = 0;
    let mut ask = |world: &mut World| {
        number += 1;
        world.ask(Want { expected: seconds(60), ..want(number, 0, 3) })
    };
    while ask(&mut world).is_ok() {}
    let Refused::Busy { retry_after, .. } = ask(&mut world).unwrap_err() else { panic!() };
    assert!(retry_after <= seconds(60), "nothing has ended, but it will");

    // Two places, jobs of 10 s: one ends every 5 s.
    for _ in 0..50 {
        world.advance(seconds(5));
        let oldest = world.running()[0];
        world.finish(oldest, true);
        while ask(&mut world).is_ok() {}
    }
    world.advance(seconds(1));
    let oldest = world.running()[0];
    world.finish(oldest, true);
    ask(&mut world).unwrap();
    let Refused::Busy { retry_after, .. } = ask(&mut world).unwrap_err() else { panic!() };
    assert!((seconds(3)..seconds(11)).contains(&retry_after), "{retry_after:?}");
    world.advance(retry_after);
    let oldest = world.running()[0];
    world.finish(oldest, true);
    ask(&mut world).unwrap();
    world.drain();
}

#[test]
fn closing_ends_the_waiting_and_lets_the_others_go_on() {
    let mut world = World::new(limits(1));
    let paused = world.ask(want(0, 0, 5)).unwrap();
    let urgent = world.ask(want(1, 0, 1)).unwrap();
    let waiting = world.ask(want(2, 0, 3)).unwrap();
    let dependent = world.ask(Want { after: vec![id(2)], ..want(3, 0, 3) }).unwrap();
    world.scheduler.close();
    world.advance(seconds(1));
    assert_eq!(world.sims[waiting].answer, Some(Err(Why::Closing)));
    assert_eq!(world.sims[dependent].answer, Some(Err(Why::Closing)));
    assert_eq!(world.ask(want(4, 0, 1)).unwrap_err(), Refused::Closing);
    assert!(world.runs(urgent));
    world.finish(urgent, true);
    assert!(world.runs(paused));
    world.drain();
}

#[test]
fn a_turn_that_nobody_has_taken_yet_can_still_be_cancelled() {
    let world = World::new(limits(1));
    let ask = |n| world.scheduler.request(want(n, 0, 3), Spy::new(Temper::default())).unwrap();
    let granted = ask(0);
    assert!(granted.cancel_handle().cancel());
    assert!(!granted.cancel_handle().cancel(), "once is enough");
    assert_eq!(granted.wait().unwrap_err(), Why::Cancelled);
    let granted = ask(1);
    let handle = granted.cancel_handle();
    let turn = granted.wait().unwrap();
    assert!(!handle.cancel(), "its caller has it");
    drop(turn);
    assert!(world.scheduler.inspect(crate::state::State::is_empty));
}

#[test]
fn a_snapshot_is_for_people() {
    let per_template = [(name("plain"), Count::of(3))].into();
    let mut world = World::new(Limits { per_template, ..limits(1) });
    world.ask(want(0, 0, 5)).unwrap();
    world.ask(want(1, 0, 1)).unwrap();
    world.ask(want(2, 0, 4)).unwrap();
    world.ask(Want { after: vec![id(2)], ..want(3, 0, 4) }).unwrap();
    world.advance(seconds(7));
    let shown = world.scheduler.snapshot().to_string();
    assert_eq!(
        shown,
        format!(
            "1 of 1 places taken, 2 of 1000 waiting, 2097152 of 1048576000 bytes of memory admitted\n\
             template nplain: 1 of 3\n\
             priority 4: 1 waiting\n\
             1 waiting for other jobs\n\
             {} is paused: nplain of n0, priority 5, 1MiB memory, 0s of 100s\n\
             {} runs: nplain of n0, priority 1, 1MiB memory, 7s of 100s\n",
            id(0),
            id(1)
        )
    );
    assert_eq!(priority(4).to_string(), "4");
    world.drain();
}
