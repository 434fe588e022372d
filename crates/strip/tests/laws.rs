//! What holds for whatever is stripped.

use hotcell_strip::strip;
use proptest::prelude::*;

/// A type, a few levels deep.
fn a_type() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("string".to_owned()),
        Just("'ä'".to_owned()),
        Just("A".to_owned()),
        Just("unknown[]".to_owned()),
        Just("typeof x".to_owned()),
        Just("/* } */ B".to_owned()),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} | {b}")),
            inner.clone().prop_map(|a| format!("Map<{a}>")),
            inner.clone().prop_map(|a| format!("{{ a?: {a};\n  readonly b: {a} }}")),
            inner.clone().prop_map(|a| format!("[{a}, ...{a}]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("((x: {a}) => {b})")),
        ]
    })
}

/// A program as it is with its types, and as it would be written without.
fn a_program() -> impl Strategy<Value = (String, String)> {
    let statement = a_type().prop_flat_map(|t| {
        let pairs = vec![
            (format!("let x: {t} = 1;"), "let x = 1;".to_owned()),
            (format!("type T = {t};"), String::new()),
            (format!("f<{t}>(y as {t});"), "f(y);".to_owned()),
            (
                format!("const g = (a: {t}, b?: {t}): {t} => a!;"),
                "const g = (a, b) => a;".to_owned(),
            ),
            (
                format!("function h(this: {t}, ...r: {t}) {{ return r satisfies {t}; }}"),
                "function h(...r) { return r; }".to_owned(),
            ),
            (
                format!("class C<T extends {t}> {{ private x?: {t} = 1; m(a: {t}): void {{}} }}"),
                "class C { x = 1; m(a) {} }".to_owned(),
            ),
            (format!("a as {t}\n(b)"), "a;(b)".to_owned()),
            (format!("interface I {{ m(a: {t}): void }}"), String::new()),
        ];
        prop::sample::select(pairs)
    });
    prop::collection::vec(statement, 0..8).prop_map(|statements| {
        let (with, without): (Vec<_>, Vec<_>) = statements
            .into_iter()
            .map(|(a, b)| (format!("{{ {a} }}"), format!("{{ {b} }}")))
            .unzip();
        (with.join("\n"), without.join("\n"))
    })
}

/// The tokens of a program, for programs without strings and comments.
fn tokens(program: &str) -> String {
    program.chars().filter(|c| !c.is_whitespace() && *c != ';').collect()
}

proptest! {
    #[test]
    fn what_is_left_is_the_program_without_its_types((with, without) in a_program()) {
        let stripped = strip(&with).map_err(|fault| TestCaseError::fail(format!("{with}\n{fault}")))?;
        prop_assert_eq!(tokens(&stripped), tokens(&without), "{}", with);
    }

    #[test]
    fn every_byte_stays_or_becomes_a_blank((with, _) in a_program()) {
        let stripped = strip(&with).unwrap();
        prop_assert_eq!(stripped.len(), with.len());
        prop_assert_eq!(stripped.lines().count(), with.lines().count());
        for (new, old) in stripped.bytes().zip(with.bytes()) {
            prop_assert!(new == old || b" ;()".contains(&new), "{:?} became {:?}", old, new);
        }
        // Without types there is nothing to strip.
        prop_assert_eq!(strip(&stripped).unwrap(), stripped);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[ -~äあ\n]{0,60}") {
        if let Ok(stripped) = strip(&text) {
            prop_assert_eq!(stripped.len(), text.len());
        }
    }
}
