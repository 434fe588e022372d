//! Rules in a real sandbox: what they can say, and what becomes of those that do not behave.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod common;

use std::time::{Duration, Instant};

use common::{ask, load, nothing, sandbox, sources, try_load};
use hotcell_extension::{Extension, Failed, Source};
use hotcell_sandbox::{Command, Job};
use hotcell_types::{Decision, Profile};
use serde_json::json;

/// A rule whose body is this.
fn body(code: &str) -> String {
    format!("export default function rule(call: any, facts: any): any {{ {code} }}")
}

#[test]
fn rules_say_allow_deny_review_or_nothing() {
    let rules = load(
        "import type { Call, Decision, Facts } from './extension';
         export default (call: Call, facts: Facts): Decision =>
             ({ decision: call.args.say as any, reason: `${call.operation} ${call.path} ${facts.now}` });
         export function second(call: Call): Decision {
             return call.tags.includes('agent') ? { decision: 'allow', reason: 'an agent' } : { decision: 'pass' };
         }",
    );
    assert_eq!(rules.extension.rules(), ["rules.ts", "rules.ts:second"]);
    for (say, expected) in [
        ("allow", Some(Decision::Allow)),
        ("deny", Some(Decision::Deny)),
        ("require_review", Some(Decision::Review)),
        ("pass", None),
    ] {
        let said = rules.ask(&json!({ "say": say })).unwrap();
        let of_rule = said.iter().find(|said| said.rule == "rules.ts");
        assert_eq!(of_rule.map(|said| said.decision), expected, "{say}");
        if let Some(said) = of_rule {
            assert_eq!(said.reason, "fs.write src/a.rs 1700000000000");
        }
        assert_eq!(said.last().unwrap().reason, "an agent");
    }
}

/// None of them costs the process: the engine is another one for the next evaluation anyway.
#[test]
fn a_rule_that_does_not_decide_fails_and_the_next_evaluation_is_as_ever() {
    let code = "
        const bad = call.args.bad;
        if (bad === 'throws') throw new Error('no idea');
        if (bad === 'throws text') throw 'just text';
        if (bad === 'nothing') return;
        if (bad === 'text') return 'allow';
        if (bad === 'unknown') return { decision: 'maybe', reason: '' };
        if (bad === 'no reason') return { decision: 'allow' };
        if (bad === 'odd reason') return { decision: 'allow', reason: 3 };
        if (bad === 'promise') return (async () => ({ decision: 'allow', reason: '' }))();
        if (bad === 'loop') for (;;) {}
        if (bad === 'stubborn loop') for (;;) { try { for (;;) {} } catch {} finally { continue } }
        if (bad === 'pattern') /^(a+)+$/.test('a'.repeat(40) + 'b');
        if (bad === 'recursion') { const f = (n: number): number => f(n + 1) + 1; f(0); }
        if (bad === 'memory') 'x'.repeat(100_000_000);
        if (bad === 'flood') return { decision: 'deny', reason: 'x'.repeat(100_000) };
        if (bad === 'getter') return { get decision() { throw new Error('trap') } };
        return { decision: 'allow', reason: 'fine' };";
    let rules = load(&body(code));
    for (bad, expected) in [
        ("throws", "no idea"),
        ("throws text", "just text"),
        ("nothing", "undefined"),
        ("text", "string"),
        ("unknown", "maybe"),
        ("no reason", "without a reason"),
        ("odd reason", "reason"),
        ("promise", "without a decision"),
        ("recursion", "stack"),
        ("memory", "memory"),
        ("flood", "longer than"),
        ("getter", "trap"),
        ("loop", "steps"),
        ("stubborn loop", "steps"),
        ("pattern", "steps"),
    ] {
        let failed = rules.ask(&json!({ "bad": bad })).expect_err(bad);
        assert!(failed.to_string().contains(expected), "{bad}: {failed}");
        let is_late = matches!(failed, Failed::Late { .. });
        assert_eq!(is_late, expected == "steps", "{bad}: {failed}");
        assert_eq!(rules.ask(&nothing()).unwrap()[0].reason, "fine", "after {bad}");
    }
    assert_eq!(rules.starts(), 1);
}

#[test]
fn nothing_is_kept_from_one_evaluation_to_the_next() {
    let rules = load(
        "let count = 0;
         const g = globalThis as any;
         export default () => {
             count += 1;
             const seen = `${count} ${g.left} ${({} as any).polluted} ${[].map === g.left}`;
             g.left = 'something';
             (Object.prototype as any).polluted = true;
             Array.prototype.map = g.left;
             JSON.parse = () => ({ decision: 'allow' });
             String.prototype.startsWith = () => true;
             return { decision: 'deny', reason: seen };
         };",
    );
    for _ in 0..3 {
        assert_eq!(rules.ask(&nothing()).unwrap()[0].reason, "1 undefined undefined false");
    }
}

/// A file cannot change what another file sees, and no rule what the next one is asked.
#[test]
fn files_do_not_see_each_other() {
    let (sandbox, _home) = sandbox();
    let text = "export const a = (call: any) => {
        const seen = `${call.args.x} ${({} as any).polluted}`;
        call.args.x = 'changed';
        return { decision: 'allow', reason: seen };
    };
    export const b = (call: any) => { (Object.prototype as any).polluted = 1; return { decision: 'allow', reason: call.args.x } };";
    let files = ["one.ts", "two.ts"].map(|name| Source { name: name.into(), text: text.into() });
    let extension = Extension::start(&files, move |job| sandbox.start(job)).unwrap();
    let said = ask(&extension, &json!({ "x": "given" })).unwrap();
    let said: Vec<_> = said.iter().map(|s| format!("{} {}", s.rule, s.reason)).collect();
    assert_eq!(
        said,
        [
            "one.ts:a given undefined",
            "one.ts:b given",
            "two.ts:a given undefined",
            "two.ts:b given"
        ]
    );
}

#[test]
fn there_is_nothing_but_the_language() {
    let rules = load(&body(
        "const g = globalThis as any;
         const names = call.args.names.filter((name: string) => name.split('.').reduce((o: any, k: string) => o?.[k], g) !== undefined);
         const made = [() => {}, function* () {}, async () => {}, async function* () {}]
             .map((f: any) => f.constructor).filter((c: any) => c !== Object && c !== undefined);
         return { decision: 'deny', reason: `${names} ${made.length} ${new Error().stack !== undefined}` };",
    ));
    let names = vec![
        "eval",
        "Function",
        "Date",
        "Math.random",
        "performance",
        "Promise",
        "setTimeout",
        "queueMicrotask",
        "fetch",
        "XMLHttpRequest",
        "WebSocket",
        "require",
        "process",
        "Deno",
        "Bun",
        "std",
        "os",
        "bjson",
        "print",
        "console",
        "scriptArgs",
        "loadScript",
        "read",
        "open",
        "Worker",
        "SharedArrayBuffer",
        "Atomics",
        "WeakRef",
        "FinalizationRegistry",
        "Proxy",
        "gc",
        "navigator",
        "crypto",
        "Intl",
    ];
    let said = rules.ask(&json!({ "names": names })).unwrap();
    assert_eq!(said[0].reason, " 0 true");
    // What would be imported while it runs never comes.
    for module in ["fs", "std", "os", "/etc/passwd", "./rules.ts"] {
        let code = format!(
            "let got: any = 'nothing'; import('{module}').then((m: any) => {{ got = m }}, () => {{}}); return {{ decision: 'deny', reason: got }};"
        );
        match try_load(&body(&code)) {
            Ok(rules) => {
                assert_eq!(rules.ask(&nothing()).unwrap()[0].reason, "nothing", "{module}")
            }
            Err(fault) => assert!(fault.why.contains(module), "{fault:?}"),
        }
    }
}

#[test]
fn rules_that_cannot_be_loaded_are_told_with_file_and_line() {
    for (text, line, why) in [
        ("export default () => {\n  let x: = 1;\n}", 2, "unexpected token"),
        ("export default 1;", 0, "not a function"),
        ("\nenum A { B }", 2, "more than a type"),
        ("let a;\nlet a;", 2, ""),
        ("\n\nthrow new Error('at the top');", 3, "at the top"),
        ("\nfor (;;) {}", 0, ""),
        ("import x from 'fs';", 0, "fs"),
        ("await new (class { then() {} })();", 0, ""),
        ("undefined_function();", 1, "undefined_function"),
    ] {
        let fault = try_load(text).err().unwrap_or_else(|| panic!("{text:?} was loaded"));
        assert_eq!(fault.file, "rules.ts", "{text:?}: {fault:?}");
        assert!(line == 0 || fault.line == line, "{text:?}: {fault:?}");
        assert!(fault.why.contains(why) && !fault.fix.is_empty(), "{text:?}: {fault:?}");
    }
    let many = (0..65).map(|i| format!("export const r{i} = () => 1;")).collect::<String>();
    assert!(try_load(&many).err().unwrap().why.contains("64"));
    let long = format!("// {}", "x".repeat(300 * 1024));
    assert!(try_load(&long).err().unwrap().what.contains("too long"));
    // It would take all memory of the process that parses it.
    let bomb = "a<b,".repeat(20_000);
    assert!(try_load(&bomb).err().unwrap().what.contains("cannot be started"));
}

#[test]
fn callers_on_many_threads_get_their_own_answers() {
    let rules = load(&body("return { decision: 'allow', reason: String(call.args.n) };"));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let rules = &rules;
            scope.spawn(move || {
                for n in 0..50 {
                    let n = thread * 1000 + n;
                    assert_eq!(rules.ask(&json!({ "n": n })).unwrap()[0].reason, n.to_string());
                }
            });
        }
    });
    assert_eq!(rules.starts(), 1);
}

#[test]
fn a_call_that_is_too_large_fails_and_costs_nothing() {
    let rules = load(&body("return { decision: 'allow', reason: String(call.args.text.length) };"));
    let large = json!({ "text": "x".repeat(3 << 20) });
    assert!(rules.ask(&large).unwrap_err().to_string().contains("too large"));
    let fits = json!({ "text": "x".repeat(1 << 20) });
    assert_eq!(rules.ask(&fits).unwrap()[0].reason, (1 << 20).to_string());
    assert_eq!(rules.starts(), 1);
}

/// In place of the evaluator: a program that says these bytes, whatever it is asked.
fn says(bytes: &str) -> impl Fn(Job) -> Job + use<> {
    let script = format!("printf '{bytes}'; sleep 30");
    move |mut job| {
        let args = ["sh", "-c", &script].map(Into::into).to_vec();
        let (read_only, tree, note, forks) = (vec![], None, None, false);
        job.command = Command { program: "/bin/sh".into(), args, read_only, tree, note, forks };
        job.env = [("PATH".into(), "/usr/bin:/bin".into())].into();
        job.profile = Profile::Standard;
        job
    }
}

#[test]
fn tool_23_what_does_not_keep_to_the_protocol_is_not_believed() {
    let loaded = r"\013\000\000\000\001\001\000\000\000\002\000\000\000r1";
    // Says allow, to a question that was not asked.
    let allow = r"\030\000\000\000\003\011\000\000\000\000\000\000\000\001\000\000\000\002\000\000\000r1\001\000\000\000\000";
    // Says allow for a rule that is not there; the number is that of the first question.
    let stranger = allow.replace(r"\003\011", r"\003\001").replace("r1", "r2");
    for (said, starts) in [
        (r"yyyyyyyyyyyyyyyy".to_owned(), false),
        (r"\001\000\000\000\011".to_owned(), false),
        (allow.to_owned(), false),
        (format!("{loaded}{allow}"), true),
        (format!("{loaded}{stranger}"), true),
        (format!(r"{loaded}\377\377\377\377"), true),
    ] {
        let (sandbox, _home) = sandbox();
        let instead = says(&said);
        let extension = Extension::start(&sources(""), move |job| sandbox.start(instead(job)));
        assert_eq!(extension.is_ok(), starts, "{said}: {extension:?}");
        if let Ok(extension) = extension {
            let failed = ask(&extension, &nothing()).expect_err(&said);
            assert_eq!(failed, Failed::Broken { why: "the answer is not one".into() }, "{said}");
        }
    }
    // The same, said rightly: the control.
    let rightly = allow.replace(r"\003\011", r"\003\001");
    let (sandbox, _home) = sandbox();
    let instead = says(&format!("{loaded}{rightly}"));
    let extension = Extension::start(&sources(""), move |job| sandbox.start(instead(job))).unwrap();
    assert_eq!(ask(&extension, &nothing()).unwrap()[0].decision, Decision::Allow);
}

/// Whether the limit on memory or the time comes first is the host's affair.
#[test]
fn memory_taken_piece_by_piece_has_an_end() {
    let rules = load(&body(
        "const a: string[] = [];
         while (call.args.bomb) a.push('x'.repeat(100_000) + a.length);
         return { decision: 'allow', reason: 'fine' };",
    ));
    for _ in 0..3 {
        assert!(rules.ask_until_there(&json!({ "bomb": true })).is_err());
        assert_eq!(rules.ask_until_there(&nothing()).unwrap()[0].reason, "fine");
    }
}

#[test]
fn tool_23_a_process_that_hangs_is_ended_in_time_and_replaced() {
    // Few steps, and each takes long.
    let rules = load(&body(
        "const large = (1n << 500_000n) - 1n;
         for (let i = 0; call.args.hang && i < 5000; i++) large * large;
         return { decision: 'allow', reason: 'fine' };",
    ));
    assert!(rules.ask(&nothing()).is_ok());
    let begun = Instant::now();
    let failed = rules.ask(&json!({ "hang": true })).unwrap_err();
    assert!(matches!(failed, Failed::Late { .. }), "{failed}");
    assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
    assert_eq!(rules.ask_until_there(&nothing()).unwrap()[0].reason, "fine");
    assert_eq!(rules.starts(), 2);
}
