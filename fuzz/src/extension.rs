//! Extension rules: their TypeScript, and what is said to and by their process.

use hotcell_evaluator::wire::{Answer, Failure, HEADER, Place, Request, Said, Verb};

/// The parser takes time and memory that grow with the square of some inputs.
const LONGEST: usize = 256;

/// Every byte stays or becomes a blank or one of three marks, lines stay, and what has no types any more
/// stays as it is.
pub fn strip(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data.get(..LONGEST).unwrap_or(data));
    match hotcell_strip::strip(&text) {
        Ok(plain) => {
            assert_eq!(plain.len(), text.len(), "{text:?}");
            assert_eq!(plain.lines().count(), text.lines().count(), "{text:?}");
            for (new, old) in plain.bytes().zip(text.bytes()) {
                assert!(new == old || b" ;()".contains(&new), "{text:?} became {plain:?}");
            }
            assert_eq!(hotcell_strip::strip(&plain).as_ref(), Ok(&plain), "{text:?}");
            plain.bytes().filter(|byte| *byte == b' ').count() as u64
        }
        Err(fault) => {
            assert!(
                fault.line >= 1 && fault.line <= text.lines().count() + 1,
                "{text:?}: {fault:?}"
            );
            assert!(!fault.what.is_empty() && !fault.why.is_empty() && !fault.fix.is_empty());
            1000 + fault.what.len() as u64
        }
    }
}

pub(crate) fn strip_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "let x: number = 1;",
        "const f = async <T,>(a: T, b?: A<B>): Promise<\nT> => a!;",
        "abstract class A<T> extends B<T> implements C { private x?: D = 1\n['y']!: E }",
        "import { type A, b } from 'c'; export type { A };",
        "a as B\n(c); d satisfies E;",
        "enum A { B }",
        "function f(this: A, ...b: C[]): asserts d is E;",
        "declare module 'a' { const b: C }",
        "x = `${a as B}` /* ä */ ?? <T>c;",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).to_vec()
}

/// What is read, is written as the same bytes.
pub fn evaluator_request(data: &[u8]) -> u64 {
    let Ok(request) = Request::read(data) else { return 0 };
    assert_eq!(request.frame().as_deref().and_then(|frame| frame.get(HEADER..)), Some(data));
    match request {
        Request::Load(files) => 1 + files.len() as u64,
        Request::Evaluate { .. } => 100,
    }
}

pub fn evaluator_answer(data: &[u8]) -> u64 {
    let Ok(answer) = Answer::read(data) else { return 0 };
    assert_eq!(answer.frame().as_deref().and_then(|frame| frame.get(HEADER..)), Some(data));
    match answer {
        Answer::Loaded(rules) => 100 + rules.len() as u64,
        Answer::Fault(_) => 200,
        Answer::Spoken { rules, .. } => 300 + rules.len() as u64,
        Answer::Failed { .. } => 400,
    }
}

fn body(frame: Option<Vec<u8>>) -> Option<Vec<u8>> {
    Some(frame?.get(HEADER..)?.to_vec())
}

pub(crate) fn request_seeds() -> Vec<Vec<u8>> {
    let requests = [
        Request::Load(vec![("a.ts".into(), "export default 1".into())]),
        Request::Evaluate { number: 1, call: "{}".into(), facts: "{}".into() },
    ];
    requests.iter().filter_map(|request| body(request.frame())).collect()
}

pub(crate) fn answer_seeds() -> Vec<Vec<u8>> {
    let text = || "text".to_owned();
    let place = Place { file: text(), line: 1, column: 2, what: text(), why: text(), fix: text() };
    let said = Said { rule: text(), verb: Verb::Deny, reason: text() };
    let answers = [
        Answer::Loaded(vec![text()]),
        Answer::Fault(place),
        Answer::Spoken { number: 1, rules: vec![said] },
        Answer::Failed { number: 2, kind: Failure::Late, rule: text(), why: text() },
    ];
    answers.iter().filter_map(|answer| body(answer.frame())).collect()
}
