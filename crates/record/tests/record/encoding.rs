//! The bytes that are hashed.

use std::fs;
use std::path::Path;
use std::process::Command;

use hotcell_record::{Digest, Event, Hex, Kind, Summary, VERSION, encode};
use hotcell_types::{CallId, Caller, Decision, Door, Status};
use proptest::prelude::*;

use crate::common::call;

fn bytes(event: &Event) -> Vec<u8> {
    let mut out = Vec::new();
    encode(event, &mut out).unwrap();
    out
}

fn some_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(prop_oneof!["[ab]{0,3}", ".{0,8}"])
}

fn some_call() -> impl Strategy<Value = Option<CallId>> {
    proptest::option::of((0..3_u64).prop_map(call))
}

fn some_summary() -> impl Strategy<Value = Option<Summary>> {
    let head = proptest::option::of((0..3_u8).prop_map(|byte| Hex([byte; 32])));
    let summary =
        (0..3_u8, 0..3_u64, head, "[ab]{0,2}").prop_map(|(digest, length, head, media)| Summary {
            digest: Hex([digest; 32]),
            length,
            head,
            media,
        });
    proptest::option::of(summary)
}

prop_compose! {
    fn some_event()(
        numbers in (0..3_u64, prop_oneof![Just(0), Just(-1), any::<i64>()], proptest::option::of(0..3_u64)),
        bytes in (0..2_u8, 0..2_u8, 0..2_u8),
        kind in proptest::sample::select(Kind::ALL.to_vec()),
        calls in (some_call(), some_call()),
        who in ("[ab]{1,2}", "[ab]{1,2}", proptest::sample::select(Door::ALL.to_vec())),
        names in (some_text(), some_text(), some_text(), some_text(), some_text(), some_text()),
        last in (some_text(), some_text()),
        decision in proptest::option::of(proptest::sample::select(vec![Decision::Allow, Decision::Review, Decision::Deny])),
        status in proptest::option::of(proptest::sample::select(Status::ALL.to_vec())),
        rules in proptest::collection::vec("[ab]{0,2}", 0..3),
        payloads in (some_summary(), some_summary()),
    ) -> Event {
        Event {
            seq: numbers.0,
            version: VERSION,
            id: Hex([bytes.0; 16]),
            time: numbers.1,
            kind,
            call: calls.0,
            parent: calls.1,
            operation: names.0,
            tool: names.1,
            caller: Caller { tenant: who.0.parse().unwrap(), subject: who.1.parse().unwrap(), door: who.2 },
            mode: names.2,
            state: names.3,
            decision,
            rules,
            bearer: names.4,
            reason: names.5,
            status,
            input: payloads.0,
            output: payloads.1,
            duration_ns: numbers.2,
            sandbox: last.0,
            request: last.1,
            owner: Hex([bytes.1; 16]),
            prev: Hex([bytes.2; 32]),
            hash: Digest::ZERO,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_events_look_alike_only_if_they_are(one in some_event(), two in some_event()) {
        prop_assert_eq!(one == two, bytes(&one) == bytes(&two));
    }

    /// Taking one field from another event: the hard case, since everything else is the same.
    #[test]
    fn every_field_counts(one in some_event(), two in some_event(), field in 0..23_usize) {
        let mut mixed = one.clone();
        let other = two.clone();
        match field {
            0 => mixed.seq = other.seq,
            1 => mixed.id = other.id,
            2 => mixed.time = other.time,
            3 => mixed.kind = other.kind,
            4 => mixed.call = other.call,
            5 => mixed.parent = other.parent,
            6 => mixed.operation = other.operation,
            7 => mixed.tool = other.tool,
            8 => mixed.caller = other.caller,
            9 => mixed.mode = other.mode,
            10 => mixed.state = other.state,
            11 => mixed.decision = other.decision,
            12 => mixed.rules = other.rules,
            13 => mixed.bearer = other.bearer,
            14 => mixed.reason = other.reason,
            15 => mixed.status = other.status,
            16 => mixed.input = other.input,
            17 => mixed.output = other.output,
            18 => mixed.duration_ns = other.duration_ns,
            19 => mixed.sandbox = other.sandbox,
            20 => mixed.request = other.request,
            21 => mixed.owner = other.owner,
            _ => mixed.prev = other.prev,
        }
        prop_assert_eq!(one == mixed, bytes(&one) == bytes(&mixed));
    }

    #[test]
    fn text_that_moves_to_its_neighbour_is_seen(event in some_event(), text in ".{1,9}", at in 0..9_usize) {
        type Neighbours = fn(&mut Event) -> (&mut Option<String>, &mut Option<String>);
        let moves: [Neighbours; 4] = [
            |e| (&mut e.operation, &mut e.tool),
            |e| (&mut e.mode, &mut e.state),
            |e| (&mut e.bearer, &mut e.reason),
            |e| (&mut e.sandbox, &mut e.request),
        ];
        for fields in moves {
            let (mut whole, mut cut) = (event.clone(), event.clone());
            let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
            let (left, right) = text.split_at(at);
            (*fields(&mut whole).0, *fields(&mut whole).1) = (Some(text.clone()), Some(String::new()));
            (*fields(&mut cut).0, *fields(&mut cut).1) = (Some(left.into()), Some(right.into()));
            prop_assert_eq!(right.is_empty(), bytes(&whole) == bytes(&cut));
        }
    }
}

/// Events that show every field, for verifiers in other languages to begin with.
fn golden() -> Vec<Event> {
    let least = Event {
        seq: 1,
        version: 1,
        id: Hex([0; 16]),
        time: 0,
        kind: Kind::Opened,
        call: None,
        parent: None,
        operation: None,
        tool: None,
        caller: Caller {
            tenant: "t".parse().unwrap(),
            subject: "s".parse().unwrap(),
            door: Door::Cli,
        },
        mode: None,
        state: None,
        decision: None,
        rules: Vec::new(),
        bearer: None,
        reason: None,
        status: None,
        input: None,
        output: None,
        duration_ns: None,
        sandbox: None,
        request: None,
        owner: Hex([0; 16]),
        prev: Hex([0; 32]),
        hash: Digest::ZERO,
    };
    let whole =
        Summary { digest: Digest::of(b"x"), length: 1, head: None, media: "text/plain".into() };
    let cut = Summary { head: Some(Hex([9; 32])), length: 1 << 40, ..whole.clone() };
    let most = Event {
        seq: u64::MAX,
        id: Hex([0xff; 16]),
        time: i64::MIN,
        kind: Kind::Outcome,
        call: Some(call(1)),
        parent: Some(call(2)),
        operation: Some("fs.write".into()),
        tool: Some("files@1".into()),
        mode: Some(String::new()),
        state: Some("\u{0}\n\u{1b}[31m\"'\\".into()),
        decision: Some(Decision::Review),
        rules: vec![String::new(), "naïve".into(), "日本".into()],
        bearer: Some("e\u{301} é".into()),
        reason: Some("=cmd|' /C calc'!A0".into()),
        status: Some(Status::CircuitOpen),
        input: Some(whole),
        output: Some(cut),
        duration_ns: Some(u64::MAX),
        sandbox: Some("native".into()),
        request: Some("r".into()),
        owner: Hex([0xee; 16]),
        prev: Hex([0xdd; 32]),
        ..least.clone()
    };
    [least, most]
        .into_iter()
        .map(|mut event| {
            event.hash = Digest::of(&bytes(&event));
            event
        })
        .collect()
}

/// One line per event: its bytes, and their hash.
#[test]
fn hashes_stay_what_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/golden.txt");
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: String =
        golden().iter().map(|event| format!("{} {}\n", hex(bytes(event)), event.hash)).collect();
    if std::env::var_os("HOTCELL_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), lines);
}

/// The same events, as the other implementation encodes them.
#[test]
fn python_makes_the_same_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = "
import sys; sys.dont_write_bytecode = True; sys.path.insert(0, 'tools')
import verify as v, hashlib
e = dict.fromkeys(v.COLUMNS)
e.update(seq=1, version=1, id=bytes(16), time=0, kind='opened', tenant='t', subject='s', door='cli', rules=[], owner=bytes(16), prev=bytes(32))
print(v.encode_event(e).hex(), hashlib.sha256(v.encode_event(e)).hexdigest())
call = lambda n: (1700000000000 << 80 | n).to_bytes(16, 'big')
x = hashlib.sha256(b'x').digest()
e.update(seq=2**64-1, id=b'\\xff'*16, time=-2**63, kind='outcome', call=call(1), parent=call(2), operation='fs.write', tool='files@1', mode='', state='\\0\\n\\x1b[31m\"\\'\\\\', decision='review', rules=['', 'na\\u00efve', '\\u65e5\\u672c'], bearer='e\\u0301 \\u00e9', reason='=cmd|\\' /C calc\\'!A0', status='circuit_open', input_digest=x, input_length=1, input_media='text/plain', output_digest=x, output_length=2**40, output_head=b'\\x09'*32, output_media='text/plain', duration_ns=2**64-1, sandbox='native', request='r', owner=b'\\xee'*16, prev=b'\\xdd'*32)
print(v.encode_event(e).hex(), hashlib.sha256(v.encode_event(e)).hexdigest())
";
    let output = Command::new("python3").arg("-c").arg(script).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/golden.txt");
    assert_eq!(String::from_utf8_lossy(&output.stdout), fs::read_to_string(golden).unwrap());
}
