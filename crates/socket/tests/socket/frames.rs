//! What is a frame and what is not.

use hotcell_request::json::DEPTH_MOST;
use hotcell_socket::bounds::{FILES_MOST, FRAME_MOST};
use hotcell_socket::frame::{Asked, End, Frame, Of, Reason, decode};
use hotcell_socket::{FrameError, Problem, Raw};
use serde_json::json;

fn every_kind() -> Vec<Frame> {
    let problem = Problem { at: "/a".into(), ..Problem::new("busy", "what", "why", "fix") };
    let plain = Problem::new("x", "ü\n\"", "", "");
    let asked =
        Asked { id: 1, ask: json!({"a": [1.5, null]}), context: None, files: 0, stdin: false };
    vec![
        Frame::Hello { versions: vec![2, 1], who: "me".into() },
        Frame::Welcome { version: 1, who: String::new() },
        Frame::Request(asked.clone()),
        Frame::Request(Asked { context: Some(json!("c")), files: 3, stdin: true, ..asked }),
        Frame::Part { id: 7, of: Of::File(2), data: vec![0, 255, 10], end: false },
        Frame::Part { id: 7, of: Of::Stdin, data: vec![], end: true },
        Frame::More { id: 7, bytes: u64::MAX },
        Frame::Cancel { id: u64::MAX },
        Frame::Event { id: 7, seq: 1, event: json!("e") },
        Frame::Answer { id: 7, answer: Ok(json!(null)) },
        Frame::Answer { id: 7, answer: Err(problem.clone()) },
        Frame::End(End { reason: Reason::Idle, problem, cut: vec![1, 2], speaks: vec![1] }),
        Frame::End(End { reason: Reason::Peer, problem: plain, cut: vec![], speaks: vec![] }),
    ]
}

#[test]
fn every_kind_is_read_as_it_was_written() {
    for frame in every_kind() {
        let bytes = frame.encode().unwrap();
        let (head, body) = bytes.split_at(4);
        assert_eq!(u32::from_be_bytes(head.try_into().unwrap()) as usize, body.len());
        assert_eq!(decode(body), Ok(frame));
    }
}

#[test]
fn what_is_not_exactly_a_frame_is_refused_with_the_reason() {
    let part = |rest: &str| format!(r#"{{"part":{{"id":1,"of":0{rest}}}}}"#);
    let many = format!(r#"{{"request":{{"id":1,"ask":1,"files":{}}}}}"#, FILES_MOST + 1);
    for (text, word) in [
        (r#""#, "not JSON"),
        (r#"[]"#, "not an object"),
        (r#"{}"#, "exactly one member"),
        (r#"{"cancel":{"id":1},"more":{"id":1,"bytes":1}}"#, "exactly one member"),
        (r#"{"cancel":1}"#, "`cancel` is not an object"),
        (r#"{"shout":{}}"#, "no kind `shout`"),
        (r#"{"cancel":{}}"#, "`id` is missing"),
        (r#"{"cancel":{"id":-1}}"#, "`id` is not"),
        (r#"{"cancel":{"id":1.5}}"#, "`id` is not"),
        (r#"{"cancel":{"id":"1"}}"#, "`id` is not"),
        (r#"{"cancel":{"id":1,"id":1}}"#, "twice"),
        (r#"{"cancel":{"id":1},"cancel":{"id":1}}"#, "twice"),
        (r#"{"request":{"id":1,"ask":{"a":1,"a":2}}}"#, "twice"),
        (r#"{"cancel":{"id":1,"uid":0}}"#, "no member `uid`"),
        (r#"{"cancel":{"id":1}} "x""#, "not JSON"),
        (r#"{"cancel":{"id":1}}}"#, "not JSON"),
        (r#"{"request":{"id":1}}"#, "`ask` is missing"),
        (r#"{"request":{"id":1,"ask":1,"stdin":1}}"#, "`stdin` is neither"),
        (&many, "files"),
        (&part(r#","data":"a""#), "Base64"),
        (&part(r#","data":"YQ""#), "Base64"),
        (&part(r#","data":"YR==""#), "Base64"),
        (&part(r#","data":1"#), "`data` is not text"),
        (&part(r#","end":"yes""#), "`end` is neither"),
        (r#"{"part":{"id":1,"of":"stderr"}}"#, "`of` is not"),
        (r#"{"part":{"id":1,"of":4294967296}}"#, "`of` is not"),
        (r#"{"hello":{"versions":[],"who":1}}"#, "`who` is not text"),
        (r#"{"hello":{"versions":[4294967296],"who":""}}"#, "too large"),
        (r#"{"hello":{"versions":{},"who":""}}"#, "not a list"),
        (r#"{"answer":{"id":1}}"#, "exactly one of"),
        (r#"{"answer":{"id":1,"answer":1,"problem":{}}}"#, "exactly one of"),
        (r#"{"answer":{"id":1,"problem":{"kind":""}}}"#, "missing"),
        (r#"{"cancel":{"id":1e999}}"#, "not JSON"),
        (r#"{"request":{"id":1,"ask":"\ud800"}}"#, "not JSON"),
        ("\u{feff}{}", "byte order mark"),
    ] {
        let error = decode(text.as_bytes()).expect_err(text);
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert!(!error.why().is_empty() && !error.fix().is_empty(), "{text}");
    }
    assert!(matches!(decode(b"{\"cancel\":{\"id\":\"\xff\"}}"), Err(FrameError::NotJson(_))));
    let who = format!(r#"{{"hello":{{"versions":[1],"who":"{}"}}}}"#, "x".repeat(201));
    assert!(decode(who.as_bytes()).is_err());
}

#[test]
fn a_document_within_a_frame_may_be_as_deep_as_any() {
    let deep = |depth| {
        let ask = (0..depth).fold(json!(0), |value, _| json!([value]));
        let asked = Asked { id: 1, ask, context: None, files: 0, stdin: false };
        decode(&Frame::Request(asked).encode().unwrap()[4..])
    };
    assert!(deep(DEPTH_MOST + 8).is_ok());
    assert!(matches!(deep(DEPTH_MOST + 16), Err(FrameError::NotJson(_))));
}

#[test]
fn what_is_too_large_is_not_written() {
    assert!(Raw::of(&"x".repeat(FRAME_MOST - 2)).is_ok());
    let error = Raw::of(&"x".repeat(FRAME_MOST)).unwrap_err();
    assert!(matches!(error, FrameError::TooLarge { .. }), "{error}");
    let event = json!("x".repeat(FRAME_MOST - 10));
    let error = Frame::Event { id: 1, seq: 1, event }.encode().unwrap_err();
    assert!(matches!(error, FrameError::TooLarge { .. }), "{error}");
    let keys = std::collections::HashMap::from([(vec![1], 1)]);
    assert!(matches!(Raw::of(&keys), Err(FrameError::Unwritable(_))));
}
