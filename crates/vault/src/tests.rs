use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use hotcell_types::Name;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::*;

const VALUE: &str = "gh/p\"a+b?c d&e=f%25~Z9";

fn value(text: &str) -> Value {
    Value::new(text.as_bytes().to_vec()).unwrap()
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn bound(hosts: &[&str], tools: &[&str]) -> Binding {
    Binding::new(hosts.iter().copied(), tools.iter().copied()).unwrap()
}

fn new(name_: &str, value_: &str) -> New {
    New {
        tenant: Name::LOCAL,
        name: name(name_),
        value: value(value_),
        binding: bound(&["api.example.com"], &[]),
        note: "a note".into(),
    }
}

fn written<T>(conn: &mut Connection, write: impl FnOnce(&Transaction<'_>) -> T) -> T {
    let tx = conn.transaction().unwrap();
    let done = write(&tx);
    tx.commit().unwrap();
    done
}

#[test]
fn a_value_is_what_a_header_can_have_and_is_never_shown() {
    for (bytes, expected) in [
        (&b"12345678"[..], Ok(&b"12345678"[..])),
        (b"12345678\n", Ok(b"12345678")),
        (b"12345678\r\n", Ok(b"12345678")),
        (b"1234 5678", Ok(b"1234 5678")),
        (b"1234567", Err(BadValue::Short)),
        (b"1234567\n", Err(BadValue::Short)),
        (b"", Err(BadValue::Short)),
        (b"12345678\n\n", Err(BadValue::Form)),
        (b"1234\n5678", Err(BadValue::Form)),
        (b"1234\r5678", Err(BadValue::Form)),
        (b"1234\x005678", Err(BadValue::Form)),
        (b"12345678\t", Err(BadValue::Form)),
        (b" 12345678", Err(BadValue::Form)),
        (b"12345678 ", Err(BadValue::Form)),
        ("1234\u{e9}5678".as_bytes(), Err(BadValue::Form)),
    ] {
        let read = Value::new(bytes.to_vec());
        assert_eq!(read.as_ref().map(Value::as_bytes).map_err(|e| *e), expected, "{bytes:?}");
    }
    assert!(Value::new(vec![b'x'; MOST_VALUE]).is_ok());
    assert_eq!(Value::new(vec![b'x'; MOST_VALUE + 1]), Err(BadValue::Long));
    assert_eq!(format!("{:?}", value(VALUE)), "Value(…)");
    assert_eq!(format!("{:?}", new("A", VALUE).value), "Value(…)");
}

#[test]
fn a_name_is_one_of_a_variable() {
    for good in ["A", "_", "GITHUB_TOKEN", "a1", &"x".repeat(64)] {
        assert_eq!(name(good).as_str(), good);
    }
    for bad in ["", "1A", "A-B", "A B", "A=B", "\u{e9}", "A\0", "A.B", &"x".repeat(65)] {
        assert!(bad.parse::<SecretName>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_binding_names_hosts_and_is_never_everything() {
    type Row<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a str>);
    let rows: &[Row<'_>] = &[
        (&["a.example.com"], &[], None),
        (&["a.example.com:8443", "*.b.example.com", "127.0.0.1:9", "[::1]"], &["web.fetch"], None),
        (&[], &[], Some("no host")),
        (&[], &["run"], Some("no host")),
        (&["*"], &[], Some("is no host")),
        (&["*.com"], &[], Some("anybody can have one")),
        (&["*.*"], &[], Some("is no host")),
        (&["a.example.com:*"], &[], Some("every port")),
        (&["*:443"], &[], Some("is no host")),
        (&["A.example.com"], &[], Some("lower case")),
        (&["https://a.example.com"], &[], Some("is no host")),
        (&["a.example.com/path"], &[], Some("is no host")),
        (&["a b"], &[], Some("is no host")),
        (&["a.example.com"], &["a b"], Some("name of a tool")),
        (&["a.example.com"], &[""], Some("name of a tool")),
        (&["a.example.com"], &["*"], Some("name of a tool")),
    ];
    for (hosts, tools, fault) in rows {
        let made = Binding::new(hosts.iter().copied(), tools.iter().copied());
        match (made, fault) {
            (Ok(_), None) => {}
            (Err(error), Some(fault)) => assert!(error.to_string().contains(fault), "{error}"),
            (made, _) => panic!("{hosts:?} {tools:?}: {made:?}"),
        }
    }
    let many: Vec<String> = (0..=MOST_HOSTS).map(|n| format!("h{n}.example.com")).collect();
    assert!(Binding::new(many.iter().map(String::as_str), []).is_err());

    let binding = bound(&["a.example.com", "b.example.com:8443", "*.c.example.com"], &["run"]);
    for (host, has, has_name) in [
        ("a.example.com", true, true),
        ("a.example.com:8443", false, true),
        ("b.example.com:8443", true, true),
        ("b.example.com", false, true),
        ("x.c.example.com", true, true),
        ("c.example.com", false, false),
        ("xa.example.com", false, false),
        ("a.example.com.evil.com", false, false),
    ] {
        assert_eq!((binding.has_host(host), binding.has_name(host)), (has, has_name), "{host}");
    }
    assert!(binding.has_tool("run") && !binding.has_tool("ru") && !binding.has_tool("run2"));
}

#[test]
fn a_secret_is_set_listed_opened_replaced_and_removed() {
    let (mut conn, key) = (Connection::open_in_memory().unwrap(), Key::of([7; 32]));
    assert!(list(&conn, None).unwrap().is_empty());
    assert!(get(&conn, &Name::LOCAL, &name("A")).unwrap().is_none());
    let mut said = Said::default();
    let mut hear = |changes: &[Change]| {
        for change in changes {
            assert!(said.hear(change.statement.row(), change.statement.digest()), "{change:?}");
            assert!(!format!("{change:?}{}", change.reason()).contains(VALUE));
        }
        said.clone()
    };
    let (first, changes) = written(&mut conn, |tx| set(tx, &key, &new("A", VALUE), 5).unwrap());
    assert_eq!(open(&key, &first).unwrap().as_bytes(), VALUE.as_bytes());
    assert!(!format!("{first:?}").contains(VALUE));
    assert_eq!(hear(&changes).compare(&conn, |fault| panic!("{fault}")).unwrap(), 1);
    let other = New { tenant: "acme".parse().unwrap(), ..new("A", "another value") };
    let (_, changes) = written(&mut conn, |tx| set(tx, &key, &other, 6).unwrap());
    hear(&changes);
    let (again, changes) =
        written(&mut conn, |tx| set(tx, &key, &new("A", "a third value"), 7).unwrap());
    assert_eq!(changes.iter().map(|c| c.what).collect::<Vec<_>>(), [What::Replaced, What::Set]);
    hear(&changes);
    assert_eq!((first.number, again.number), (1, 3));
    let read = get(&conn, &Name::LOCAL, &name("A")).unwrap().unwrap();
    assert_eq!(open(&key, &read).unwrap().as_bytes(), b"a third value");
    assert_eq!(list(&conn, None).unwrap().len(), 2);
    assert_eq!(list(&conn, Some(&Name::LOCAL)).unwrap(), [read]);
    let change = written(&mut conn, |tx| remove(tx, &Name::LOCAL, &name("A")).unwrap());
    assert_eq!(hear(&[change]).compare(&conn, |fault| panic!("{fault}")).unwrap(), 1);
    let gone = written(&mut conn, |tx| remove(tx, &Name::LOCAL, &name("A")));
    assert!(matches!(gone, Err(Error::NoSecret(_))));
    let changes = written(&mut conn, |tx| remove_all(tx).unwrap());
    assert_eq!(hear(&changes).compare(&conn, |fault| panic!("{fault}")).unwrap(), 0);
}

/// What a shell could do with a database, one thing at a time, and what it comes to.
#[test]
fn rows_that_are_swapped_changed_or_taken_elsewhere_do_not_open_and_are_found() {
    let key = Key::of([7; 32]);
    let changes = [
        "UPDATE vault_secret SET hosts = 'evil.example.com' WHERE name = 'A'",
        "UPDATE vault_secret SET tools = 'web.fetch' WHERE name = 'A'",
        "UPDATE vault_secret SET name = 'C' WHERE name = 'A'",
        "UPDATE vault_secret SET tenant = 'acme' WHERE name = 'A'",
        "UPDATE vault_secret SET note = 'other' WHERE name = 'A'",
        "UPDATE vault_secret SET created = 1 WHERE name = 'A'",
        "UPDATE vault_secret SET number = 9 WHERE name = 'A'",
        "UPDATE vault_secret SET sealed = (SELECT sealed FROM vault_secret WHERE name = 'B') WHERE name = 'A'",
        "UPDATE vault_secret SET sealed = zeroblob(100) WHERE name = 'A'",
        "SELECT 1",
    ];
    for change in changes {
        let mut conn = Connection::open_in_memory().unwrap();
        let mut said = Said::default();
        let all = written(&mut conn, |tx| {
            let (_, mut all) = set(tx, &key, &new("A", VALUE), 5).unwrap();
            all.extend(set(tx, &key, &new("B", "the other value"), 5).unwrap().1);
            all
        });
        all.iter().for_each(|c| assert!(said.hear(c.statement.row(), c.statement.digest())));
        // What is never changed can be, by whoever takes the trigger away.
        conn.execute_batch("DROP TRIGGER vault_secret_is_fixed").unwrap();
        conn.execute_batch(change).unwrap();
        let secrets = list(&conn, None).unwrap();
        let opened = secrets.iter().filter(|one| open(&key, one).is_ok()).count();
        let mut faults = 0;
        said.compare(&conn, |_| faults += 1).unwrap();
        match change {
            // The control.
            "SELECT 1" => assert_eq!((opened, faults), (2, 0)),
            _ => assert!(opened == 1 && faults > 0, "{change}: {opened} {faults}"),
        }
        for secret in &secrets {
            assert!(matches!(open(&Key::of([8; 32]), secret), Err(Error::Sealed(_))));
        }
    }
}

#[test]
fn a_row_is_never_changed_and_no_number_given_twice() {
    let (mut conn, key) = (Connection::open_in_memory().unwrap(), Key::of([7; 32]));
    written(&mut conn, |tx| set(tx, &key, &new("A", VALUE), 5).unwrap());
    for refused in [
        "UPDATE vault_secret SET hosts = 'evil.example.com'",
        "UPDATE vault_mark SET number = 0",
        "DELETE FROM vault_mark",
        "INSERT INTO vault_secret SELECT 1, 'x', name, hosts, tools, note, sealed, created FROM vault_secret",
    ] {
        assert!(conn.execute_batch(refused).is_err(), "{refused}");
    }
}

#[test]
fn what_is_sealed_tells_neither_the_value_nor_its_length() {
    let (mut conn, key) = (Connection::open_in_memory().unwrap(), Key::of([7; 32]));
    let mut lengths = std::collections::BTreeSet::new();
    for length in [8, 20, 63, 64] {
        let text = "x".repeat(length);
        let (secret, _) = written(&mut conn, |tx| set(tx, &key, &new("A", &text), 5).unwrap());
        lengths.insert(secret.sealed.len());
        let (again, _) = written(&mut conn, |tx| set(tx, &key, &new("A", &text), 5).unwrap());
        assert_ne!(secret.sealed, again.sealed);
        assert!(!secret.sealed.windows(4).any(|window| window == b"xxxx"));
    }
    assert_eq!(lengths.len(), 1);
}

#[test]
fn there_are_so_many_secrets_and_no_more() {
    let (mut conn, key) = (Connection::open_in_memory().unwrap(), Key::of([7; 32]));
    let tx = conn.transaction().unwrap();
    for number in 0..MOST_SECRETS {
        set(&tx, &key, &new(&format!("S{number}"), VALUE), 5).unwrap();
    }
    assert!(matches!(set(&tx, &key, &new("X", VALUE), 5), Err(Error::Full { .. })));
    // In the place of another there is room.
    set(&tx, &key, &new("S0", VALUE), 5).unwrap();
    let long = New { note: "x".repeat(MOST_NOTE + 1), ..new("S1", VALUE) };
    assert!(matches!(set(&tx, &key, &long, 5), Err(Error::Note { .. })));
}

fn purse() -> Purse {
    Purse::new([
        (name("A"), bound(&["a.example.com", "a.example.com:8443"], &[]), value(VALUE)),
        (name("B"), bound(&["b.example.com"], &[]), value("the other value")),
    ])
    .unwrap()
}

#[test]
fn a_placeholder_is_filled_in_for_its_own_host_over_tls_and_nowhere_else() {
    let purse = purse();
    let a = purse.placeholder(&name("A")).unwrap().to_owned();
    assert!(a.starts_with(PREFIX) && a.len() == PLACEHOLDER);
    assert_ne!(Some(a.as_str()), purse.placeholder(&name("B")));
    assert_ne!(Some(a.as_str()), super::tests::purse().placeholder(&name("A")));
    let header = format!("Bearer {a}, {a}!");
    let fill = |host, tls| purse.fill(Place { host, tls }, header.as_bytes());
    let filled = format!("Bearer {VALUE}, {VALUE}!").into_bytes();
    assert_eq!(fill("a.example.com", true), Ok(filled.clone()));
    assert_eq!(fill("a.example.com:8443", true), Ok(filled));
    assert_eq!(fill("a.example.com", false), Err(Misplaced::Plain(name("A"))));
    for host in ["b.example.com", "a.example.com:444", "x.a.example.com", "evil.com", ""] {
        let error = fill(host, true).unwrap_err();
        assert_eq!(error, Misplaced::Host { name: name("A"), host: host.into() });
        assert!(!error.to_string().contains(VALUE));
    }
    let to = Place { host: "a.example.com", tls: true };
    let foreign = super::tests::purse().placeholder(&name("A")).unwrap().to_owned();
    assert_eq!(purse.fill(to, foreign.as_bytes()), Err(Misplaced::Unknown));
    // The first is fine, the second is not: nothing goes.
    let both = format!("{a}{}", purse.placeholder(&name("B")).unwrap());
    assert!(purse.fill(to, both.as_bytes()).is_err());
    for plain in ["", "Bearer x", PREFIX, a.get(..a.len() - 1).unwrap(), &a.to_uppercase()] {
        assert_eq!(purse.fill(to, plain.as_bytes()), Ok(plain.as_bytes().to_vec()), "{plain}");
    }
    let shown = format!("{purse:?}");
    assert!(shown.contains('A') && !shown.contains(VALUE) && !shown.contains(&a), "{shown}");
}

#[test]
fn a_placeholder_is_found_in_a_stream_wherever_it_is_cut() {
    let purse = purse();
    let a = purse.placeholder(&name("A")).unwrap();
    let text = format!("{{\"token\": \"{a}\"}}");
    for cut in 0..=text.len() {
        let mut seeker = Seeker::default();
        let (one, other) = text.as_bytes().split_at(cut);
        assert!(seeker.push(one) | seeker.push(other), "{cut}");
    }
    let mut seeker = Seeker::default();
    assert!(!text.bytes().take(text.len() - 3).any(|byte| seeker.push(&[byte])));
    assert!(seeker.push(&text.as_bytes()[text.len() - 3..]));
    assert!(purse.refuse_in("its address", text.as_bytes()).is_err());
    assert!(purse.refuse_in("its address", b"/path").is_ok());
}

fn masks() -> Masks {
    Masks::of([&value(VALUE)]).unwrap()
}

/// What others make of a value, and what must not be left of it.
fn spellings(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let percent = |kept: &str, plus: bool| -> String {
        let each = text.chars().map(|c| match c {
            ' ' if plus => "+".to_owned(),
            c if c.is_ascii_alphanumeric() || kept.contains(c) => c.to_string(),
            c => format!("%{:02X}", c as u32),
        });
        each.collect()
    };
    let json = text.replace('\\', "\\\\").replace('"', "\\\"");
    vec![
        text.to_owned(),
        json.clone(),
        json.replace('/', "\\/"),
        percent("-_.~", false),
        percent("-_.~", false)
            .replace("%2F", "%2f")
            .replace("%2B", "%2b")
            .replace("%3F", "%3f")
            .replace("%3D", "%3d"),
        percent("-_.!~*'()", false),
        percent("*-._", true),
        percent("-_.~/", false),
        text.bytes().map(|b| format!("%{b:02x}")).collect(),
        text.replace('&', "&amp;").replace('"', "&quot;"),
        HEXLOWER.encode(bytes),
        HEXUPPER.encode(bytes),
        BASE64.encode(bytes),
        BASE64_NOPAD.encode(bytes),
        BASE64URL_NOPAD.encode(bytes),
    ]
}

#[test]
fn every_spelling_is_hidden_wherever_the_stream_is_cut() {
    let masks = masks();
    for spelling in spellings(VALUE) {
        let text = format!("before {spelling} behind");
        let expected = masks.hide(text.as_bytes());
        let shown = String::from_utf8(expected.clone()).unwrap();
        assert!(!shown.contains(&spelling), "{spelling}: {shown}");
        // What is filled up in base 64 holds nothing.
        assert_eq!(shown.replace('=', ""), "before [secret] behind", "{spelling}");
        for cut in 0..=text.len() {
            for second in [cut, (cut + 1).min(text.len()), text.len()] {
                let (mut masker, mut out) = (masks.masker(), Vec::new());
                masker.push(&text.as_bytes()[..cut], &mut out);
                masker.push(&text.as_bytes()[cut..second], &mut out);
                masker.push(&text.as_bytes()[second..], &mut out);
                masker.finish(&mut out);
                assert_eq!(out, expected, "{spelling} at {cut} and {second}");
            }
        }
    }
}

/// Signs as numbers, each writer in its own way; and letters in another case, as hosts are written.
#[test]
fn what_writers_of_json_and_markup_make_of_signs_is_hidden_as_well() {
    let masks = Masks::of([&value("aB+c/d=e'f&g\"h<i>j`k")]).unwrap();
    for text in [
        // Go, Gson, .NET, and everything.
        r#"aB+c/d=e\u0027f\u0026g\"h\u003ci\u003ej`k"#,
        r#"aB+c/d\u003de\u0027f\u0026g\"h\u003ci\u003ej`k"#,
        r#"aB\u002Bc/d=e\u0027f\u0026g\u0022h\u003Ci\u003Ej\u0060k"#,
        r#"aB\u002bc\u002fd\u003de\u0027f\u0026g\u0022h\u003ci\u003ej\u0060k"#,
        // Go, PHP, XML, Handlebars, Mustache, Python without quotation marks, and everything.
        "aB&#43;c/d=e&#39;f&amp;g&#34;h&lt;i&gt;j`k",
        "aB+c/d=e&#039;f&amp;g&quot;h&lt;i&gt;j`k",
        "aB+c/d=e&apos;f&amp;g&quot;h&lt;i&gt;j`k",
        "aB+c/d&#x3D;e&#x27;f&amp;g&quot;h&lt;i&gt;j&#x60;k",
        "aB+c&#x2F;d&#x3D;e&#39;f&amp;g&quot;h&lt;i&gt;j&#x60;k",
        "aB+c/d=e'f&amp;g\"h&lt;i&gt;j`k",
        "aB&#43;c&#47;d&#61;e&#39;f&#38;g&#34;h&#60;i&#62;j&#96;k",
        "AB+C/D=E'F&G\"H<I>J`K",
    ] {
        let shown = String::from_utf8(masks.hide(format!("<{text}>").as_bytes())).unwrap();
        assert_eq!(shown, "<[secret]>", "{text}");
    }
}

/// As `Basic` is, said again in base 64. Of the letters at both ends a few bits are left, and nothing else.
#[test]
fn what_is_coded_twice_is_hidden_as_well() {
    for (before, behind) in [("", ""), ("a", ""), ("me:", "!"), ("user", "..")] {
        let inner = BASE64.encode(format!("{before}{VALUE}{behind}").as_bytes());
        for around in ["", "x", "xy", "Basic "] {
            let outer = BASE64.encode(format!("{around}{inner}").as_bytes());
            let shown = String::from_utf8(masks().hide(outer.as_bytes())).unwrap();
            assert!(shown.contains(MASKED), "{outer}");
            let kept = shown.len() - MASKED.len();
            let hidden = (VALUE.len() * 4 / 3) * 4 / 3 - 6;
            assert!(outer.len() - kept >= hidden, "{shown} of {outer}");
        }
    }
}

/// The control: without the value in it, a text comes through as it is.
#[test]
fn what_is_no_value_is_left_alone() {
    let long = "x".repeat(100_000);
    let (first, last) = (VALUE.get(1..).unwrap(), VALUE.get(..VALUE.len() - 1).unwrap());
    for text in ["", "x", first, last, "[secret]", "====", &long] {
        assert_eq!(masks().hide(text.as_bytes()), text.as_bytes());
    }
    assert_eq!(masks().hide(format!("{VALUE}{VALUE}x{VALUE}").as_bytes()), b"[secret]x[secret]");
    let overlap = Masks::of([&value("abcdefgh"), &value("efghijkl")]).unwrap();
    assert_eq!(overlap.hide(b"1abcdefghijkl2"), b"1[secret]2");
    let same = Masks::of([&value("aaaaaaaa")]).unwrap();
    assert_eq!(same.hide(b"baaaaaaaaaaaab"), b"b[secret]b");
    assert!(Masks::of([]).is_none());
}

proptest! {
    /// Whatever stands around it, whatever it is, and however it comes.
    #[test]
    fn no_value_comes_through(
        secret in "[ -~]{8,40}",
        around in prop::collection::vec(any::<u8>(), 0..40),
        pieces in prop::collection::vec(1..17_usize, 1..40),
        which in 0..5_usize,
        at in 0..40_usize,
    ) {
        let Ok(held) = Value::new(secret.clone().into_bytes()) else { return Ok(()) };
        let at = at.min(around.len());
        let plain = [&around[..at], secret.as_bytes(), &around[at..]].concat();
        let text = match which {
            0 => plain.clone(),
            1 => BASE64.encode(&plain).into_bytes(),
            2 => BASE64URL_NOPAD.encode(&plain).into_bytes(),
            3 => HEXLOWER.encode(&plain).into_bytes(),
            _ => BASE64_NOPAD.encode(&plain).into_bytes(),
        };
        let masks = Masks::of([&held]).unwrap();
        let whole = masks.hide(&text);
        let is_in = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
        prop_assert!(is_in(&whole, MASKED.as_bytes()), "{}", String::from_utf8_lossy(&text));
        prop_assert!(!is_in(&whole, secret.as_bytes()));
        // Of what was coded nothing of the value can be decoded: each letter with a bit of it is gone.
        if which != 0 {
            let bits = if which == 3 { 4 } else { 6 };
            let (first, last) = (at * 8 / bits, ((at + secret.len()) * 8).div_ceil(bits));
            let kept = text.len() - (last - first);
            prop_assert!(whole.len() <= kept + MASKED.len(), "{} of {}", whole.len(), text.len());
        }
        let (mut masker, mut out, mut rest) = (masks.masker(), Vec::new(), text.as_slice());
        for piece in pieces.iter().cycle() {
            if rest.is_empty() { break }
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            masker.push(now, &mut out);
            rest = later;
        }
        masker.finish(&mut out);
        prop_assert_eq!(out, whole);
    }

    /// What comes in without a value goes out as it came, and nothing is invented.
    #[test]
    fn what_has_no_value_in_it_is_not_touched(text in prop::collection::vec(any::<u8>(), 0..500)) {
        let masks = Masks::of([&value("a-value-of-chance-qzx81")]).unwrap();
        prop_assert_eq!(masks.hide(&text), text);
    }

    #[test]
    fn a_binding_is_read_as_it_was_written(
        hosts in prop::collection::btree_set("[a-z]{1,8}\\.[a-z]{2,5}(:[1-9][0-9]{3})?", 1..5),
        tools in prop::collection::btree_set("[a-z]{1,8}(\\.[a-z]{1,5})?", 0..4),
    ) {
        let made = Binding::new(hosts.iter().map(String::as_str), tools.iter().map(String::as_str));
        let made = made.unwrap();
        let (hosts, tools) = made.texts();
        prop_assert_eq!(Binding::read(&hosts, &tools), Some(made));
        let spaced = format!("{hosts} ");
        prop_assert_eq!(Binding::read(&spaced, &tools), None);
    }
}
