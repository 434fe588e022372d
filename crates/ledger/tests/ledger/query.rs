//! What is found in the ledger.

use std::time::{Duration, Instant};

use hotcell_ledger::{
    Artifact, ArtifactId, Aspect, By, Edge, Error, Filter, Lineage, NewArtifact, Page, Relation,
    Role, Ruling, Target, Type, add, judge, lineage, list, search, tag, untag, usage,
};
use hotcell_ledger::{MAX_LINKS, Named, Usage};
use hotcell_types::Name;
use proptest::prelude::*;

use crate::home::{Home, by, call, from, new};

fn names(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts.iter().map(|artifact| artifact.name.as_str()).collect()
}

/// Five artifacts of ours and one of somebody else.
fn home() -> Home {
    let mut home = Home::new();
    let rows = [
        ("src/main.rs", Type::Code, Role::Script, "alice", 10, 1),
        ("src/lib.rs", Type::Code, Role::File, "bob", 20, 2),
        ("100%_done.txt", Type::Document, Role::File, "bob", 30, 2),
        ("plot.png", Type::Image, Role::File, "alice", 40, 3),
        ("stdout", Type::Data, Role::Stdout, "alice", 50, 3),
    ];
    for (name, kind, role, who, time, number) in rows {
        let by = by(who, time);
        home.add_with(b"x", NewArtifact { by, kind, role, call: call(number), ..new(name) });
    }
    let by = By { tenant: "other".parse().unwrap(), ..by("alice", 60) };
    home.add_with(b"secret", NewArtifact { by, ..new("src/secret.rs") });
    home
}

fn id_of(home: &Home, name: &str) -> ArtifactId {
    let filter =
        Filter { name: Some(Named::Exactly(name.parse().unwrap())), ..Filter::of(Name::LOCAL) };
    list(&home.conn, &filter, Page::first(1)).unwrap()[0].id
}

#[test]
fn a_list_has_what_the_filter_lets_through_and_nothing_of_others() {
    let mut home = home();
    let (main, plot) = (id_of(&home, "src/main.rs"), id_of(&home, "plot.png"));
    home.write(|tx| {
        let bob = by("bob", 1);
        tag(tx, &bob, main, "final".parse().unwrap()).unwrap();
        tag(tx, &bob, plot, "final".parse().unwrap()).unwrap();
        untag(tx, &bob, plot, "final".parse().unwrap()).unwrap();
        judge(tx, &bob, main, Aspect::Test, Ruling::Accept, None).unwrap();
        judge(tx, &bob, plot, Aspect::Test, Ruling::Accept, None).unwrap();
        judge(tx, &bob, plot, Aspect::Test, Ruling::Reject, None).unwrap();
        judge(tx, &bob, plot, Aspect::Review, Ruling::Accept, None).unwrap();
    });
    let all = Filter::of(Name::LOCAL);
    let beginning = |text: &str| Some(Named::Beginning(text.into()));
    let exactly = |text: &str| Some(Named::Exactly(text.parse().unwrap()));
    let table: Vec<(Filter, &[&str])> = vec![
        (all.clone(), &["stdout", "plot.png", "100%_done.txt", "src/lib.rs", "src/main.rs"]),
        (Filter { name: beginning("src/"), ..all.clone() }, &["src/lib.rs", "src/main.rs"]),
        (Filter { name: beginning("100%"), ..all.clone() }, &["100%_done.txt"]),
        (Filter { name: beginning("%"), ..all.clone() }, &[]),
        (Filter { name: beginning("src/_"), ..all.clone() }, &[]),
        (Filter { name: exactly("plot.png"), ..all.clone() }, &["plot.png"]),
        (Filter { kind: Some(Type::Code), ..all.clone() }, &["src/lib.rs", "src/main.rs"]),
        (Filter { role: Some(Role::Stdout), ..all.clone() }, &["stdout"]),
        (
            Filter { subject: Some("bob".parse().unwrap()), ..all.clone() },
            &["100%_done.txt", "src/lib.rs"],
        ),
        (Filter { call: Some(call(3)), ..all.clone() }, &["stdout", "plot.png"]),
        (
            Filter { from: Some(20), until: Some(40), ..all.clone() },
            &["100%_done.txt", "src/lib.rs"],
        ),
        (Filter { tag: Some("final".parse().unwrap()), ..all.clone() }, &["src/main.rs"]),
        (Filter { verdict: Some((Aspect::Test, Ruling::Accept)), ..all.clone() }, &["src/main.rs"]),
        (Filter { verdict: Some((Aspect::Test, Ruling::Reject)), ..all.clone() }, &["plot.png"]),
        (Filter { kind: Some(Type::Image), call: Some(call(1)), ..all }, &[]),
        (Filter::of("other".parse().unwrap()), &["src/secret.rs"]),
        (Filter::of("nobody".parse().unwrap()), &[]),
    ];
    for (filter, expected) in table {
        let found = list(&home.conn, &filter, Page::first(100)).unwrap();
        assert_eq!(names(&found), expected, "{filter:?}");
    }
}

#[test]
fn pages_follow_one_another_without_a_gap() {
    let home = home();
    let all = Filter::of(Name::LOCAL);
    let mut page = Page::first(2);
    let mut seen = Vec::new();
    loop {
        let found = list(&home.conn, &all, page).unwrap();
        let Some(last) = found.last() else { break };
        page.after = Some(last.id);
        seen.extend(found);
    }
    assert_eq!(seen, list(&home.conn, &all, Page::first(usize::MAX)).unwrap());
    // The id of somebody else's artifact is no place to begin.
    let theirs = list(&home.conn, &Filter::of("other".parse().unwrap()), Page::first(1)).unwrap();
    let page = Page { after: Some(theirs[0].id), limit: 10 };
    assert!(list(&home.conn, &all, page).unwrap().is_empty());
}

#[test]
fn a_search_finds_words_anywhere_and_puts_the_best_first() {
    let mut home = home();
    let plot = id_of(&home, "plot.png");
    home.write(|tx| tag(tx, &by("bob", 1), plot, "main".parse().unwrap())).unwrap();
    for (words, expected) in [
        ("stdout", &["stdout"][..]),
        ("SRC", &["src/lib.rs", "src/main.rs"]),
        // A tag that is equal comes before a name in which it only occurs.
        ("main", &["plot.png", "src/main.rs"]),
        ("rs main", &["src/main.rs"]),
        ("image/png", &[]),
        ("text/plain plot", &["plot.png"]),
        ("sort@1 lib", &["src/lib.rs"]),
        ("100%", &["100%_done.txt"]),
        ("%", &["100%_done.txt"]),
        ("_", &["100%_done.txt"]),
        ("' OR 1=1 --", &[]),
        ("secret", &[]),
        (" ", &[]),
    ] {
        let found =
            search(&home.conn, &Filter::of(Name::LOCAL), &words.parse().unwrap(), 10).unwrap();
        assert_eq!(names(&found), expected, "{words}");
    }
    // Together with everything else that can be asked for.
    let narrow = Filter { role: Some(Role::Stdout), ..Filter::of(Name::LOCAL) };
    assert!(search(&home.conn, &narrow, &"rs".parse().unwrap(), 10).unwrap().is_empty());
    let found = search(&home.conn, &Filter::of(Name::LOCAL), &"rs".parse().unwrap(), 1).unwrap();
    assert_eq!(names(&found), ["src/lib.rs"]);
    let many = "zzz ".repeat(250);
    assert!(
        search(&home.conn, &Filter::of(Name::LOCAL), &many.parse().unwrap(), 10)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn usage_counts_each_content_once_on_disk() {
    let mut home = home();
    home.add("more", b"four");
    let found = usage(&home.conn, &Name::LOCAL).unwrap();
    assert_eq!(found, Usage { artifacts: 6, bytes: 9, stored_bytes: 5 });
    let none = usage(&home.conn, &"nobody".parse().unwrap()).unwrap();
    assert_eq!(none, Usage::default());
}

type Reached = (ArtifactId, u32);

/// Which artifacts a lineage has, and how far they are.
fn reached(lineage: &Lineage) -> (Vec<Reached>, Vec<Reached>) {
    let up = lineage.ancestors.iter().filter_map(|link| match link.edge.to {
        Target::Artifact(id) => Some((id, link.depth)),
        _ => None,
    });
    let down = lineage.descendants.iter().map(|link| (link.from, link.depth));
    (up.collect(), down.collect())
}

#[test]
fn lineage_goes_up_and_down_as_far_as_it_is_asked_to() {
    let mut home = Home::new();
    let a = home.add_from("a", b"a", vec![Edge::unknown_input()]).id;
    let run = Edge::new(Relation::Run, Target::Call(call(1)));
    let b = home.add_from("b", b"b", vec![from(a), run.clone()]).id;
    let c = home.add_from("c", b"c", vec![from(a)]).id;
    let d = home.add_from("d", b"d", vec![from(b), from(c)]).id;
    let local = Name::LOCAL;
    let of_d = lineage(&home.conn, &local, d, 10).unwrap();
    assert_eq!(reached(&of_d), (vec![(b, 1), (c, 1), (a, 2), (a, 2)], vec![]));
    // What is not an artifact is there as well.
    assert!(of_d.ancestors.iter().any(|link| link.from == b && link.edge == run));
    assert!(of_d.ancestors.iter().any(|link| link.edge.to == Target::Unknown));
    let of_a = lineage(&home.conn, &local, a, 10).unwrap();
    assert_eq!(reached(&of_a), (vec![], vec![(b, 1), (c, 1), (d, 2), (d, 2)]));
    assert_eq!(reached(&lineage(&home.conn, &local, b, 1).unwrap()), (vec![(a, 1)], vec![(d, 1)]));
    let none = lineage(&home.conn, &local, b, 0).unwrap();
    assert!(none.ancestors.is_empty() && none.descendants.is_empty() && !none.is_cut);
    let other = lineage(&home.conn, &"other".parse().unwrap(), a, 10);
    assert!(matches!(other, Err(Error::NoArtifact(_))));
}

#[test]
fn a_circle_that_somebody_made_in_the_database_has_an_end() {
    let mut home = Home::new();
    let a = home.add_from("a", b"a", vec![]).id;
    let b = home.add_from("b", b"b", vec![from(a)]).id;
    home.conn
        .execute("INSERT INTO artifact_edge VALUES (?1, 0, 'derived_from', ?2, NULL, NULL)", [a, b])
        .unwrap();
    let seen = lineage(&home.conn, &Name::LOCAL, a, u32::MAX).unwrap();
    assert_eq!(reached(&seen), (vec![(b, 1), (a, 2)], vec![(b, 1), (a, 2)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is linked with what: the ancestors are those that a simple search finds, and each is an
    /// ancestor exactly if it has the other as a descendant.
    #[test]
    fn ancestors_and_descendants_mirror_each_other(
        links in prop::collection::vec((1..12_usize, 0..12_usize), 0..20),
    ) {
        let mut home = Home::new();
        let mut ids: Vec<ArtifactId> = Vec::new();
        let mut above: Vec<std::collections::BTreeSet<usize>> = Vec::new();
        for number in 0..12 {
            let of_this = links.iter().filter(|(to, from)| *to == number && *from < number);
            let parents: Vec<usize> = of_this.map(|(_, from)| *from).collect();
            let edges = parents.iter().map(|&parent| from(ids[parent])).collect();
            ids.push(home.add_from("x", b"x", edges).id);
            let mut all: std::collections::BTreeSet<usize> = parents.iter().copied().collect();
            parents.iter().for_each(|&parent| all.extend(above[parent].clone()));
            above.push(all);
        }
        for (number, &id) in ids.iter().enumerate() {
            let (up, down) = reached(&lineage(&home.conn, &Name::LOCAL, id, u32::MAX).unwrap());
            let place = |id: ArtifactId| ids.iter().position(|&other| other == id).unwrap();
            let up: std::collections::BTreeSet<usize> = up.iter().map(|(id, _)| place(*id)).collect();
            prop_assert_eq!(&up, &above[number]);
            for (below, _) in down {
                prop_assert!(above[place(below)].contains(&number));
            }
        }
    }
}

/// A sanity check of speed, with much room: the time goes with what is asked for, not with what is there.
#[test]
fn ten_thousand_artifacts_are_linked_listed_and_searched_in_a_blink() {
    let mut home = Home::new();
    let stored = home.put(b"x");
    let mut ids: Vec<ArtifactId> = Vec::new();
    home.write(|tx| {
        for number in 0..10_000_usize {
            // A tree of ten, and a long chain beside it.
            let parent = if number % 2 == 0 { number / 10 } else { number.saturating_sub(2) };
            let edges = ids.get(parent).map(|&id| from(id)).into_iter().collect();
            let name = format!("dir{}/file{number}.csv", number % 100);
            let (artifact, _) = add(tx, &stored, NewArtifact { edges, ..new(&name) }).unwrap();
            ids.push(artifact.id);
        }
    });
    let start = Instant::now();
    let last = lineage(&home.conn, &Name::LOCAL, ids[9_999], u32::MAX).unwrap();
    assert!(last.ancestors.len() >= 4_999 && !last.is_cut);
    let first = lineage(&home.conn, &Name::LOCAL, ids[0], u32::MAX).unwrap();
    assert!(first.descendants.len() >= 9_000 && first.descendants.len() <= MAX_LINKS);
    let found =
        search(&home.conn, &Filter::of(Name::LOCAL), &"dir7/ csv".parse().unwrap(), 100).unwrap();
    assert_eq!(found.len(), 100);
    let filter = Filter { name: Some(Named::Beginning("dir7/".into())), ..Filter::of(Name::LOCAL) };
    assert_eq!(list(&home.conn, &filter, Page::first(50)).unwrap().len(), 50);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_lineage_that_is_too_large_says_so() {
    let mut home = Home::new();
    let root = home.add_from("root", b"x", vec![]).id;
    let stored = home.put(b"x");
    home.write(|tx| {
        for _ in 0..=MAX_LINKS / 250 {
            let edges = vec![from(root); 250];
            add(tx, &stored, NewArtifact { edges, ..new("leaf") }).unwrap();
        }
    });
    let seen = lineage(&home.conn, &Name::LOCAL, root, 1).unwrap();
    assert!(seen.is_cut && seen.descendants.len() == MAX_LINKS);
}
