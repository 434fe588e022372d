//! Constructs of TypeScript and what is left of them, row by row.

use hotcell_strip::strip;

fn check(source: &str, expected: &str) {
    assert_eq!(strip(source).as_deref(), Ok(expected), "{source:?}");
}

#[test]
fn types_become_blanks() {
    for (source, expected) in [
        ("let x = 1;", "let x = 1;"),
        ("let x: number = 1;", "let x         = 1;"),
        ("let x!: number;", "let x         ;"),
        (
            "const f = (a: A, b?: B, ...c: C[]): D => a;",
            "const f = (a   , b    , ...c     )    => a;",
        ),
        ("const f = <T,>(a: T) => a;", "const f =     (a   ) => a;"),
        ("const f = async <T>(a: T) => a;", "const f = async    (a   ) => a;"),
        (
            "function f<T extends A = B>(a?: T): a is T {}",
            "function f                 (a    )         {}",
        ),
        ("function f(this: A, b: B) {}", "function f(         b   ) {}"),
        ("function f(this: A) {}", "function f(       ) {}"),
        (
            "function f({ a, b }: { a: A; b: B } = d) {}",
            "function f({ a, b }                 = d) {}",
        ),
        ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
        ("for (const x of y as any[]) {}", "for (const x of y         ) {}"),
        ("x = y as A as B;", "x = y          ;"),
        ("x = y satisfies A;", "x = y            ;"),
        ("x = { a: 1 } as const;", "x = { a: 1 }         ;"),
        ("x = y!.z!;", "x = y .z ;"),
        (
            "f<A>(b); new C<D<E>>(); t<A>`x`; a?.<T>(b);",
            "f   (b); new C      (); t   `x`; a?.   (b);",
        ),
        ("const g = f<A>;", "const g = f   ;"),
        ("if (a < b || c > (d)) {}", "if (a < b || c > (d)) {}"),
        ("x = (a as B) < c;", "x = (a     ) < c;"),
        ("x = a + b as number === c;", "x = a + b           === c;"),
    ] {
        check(source, expected);
    }
}

#[test]
fn statements_that_are_types_leave_a_semicolon() {
    for source in [
        "type A = string;",
        "interface A { b: C }",
        "export type A = 1;",
        "export interface A {}",
        "export default interface A {}",
        "import type A from 'a';",
        "import type { A } from 'a';",
        "export type { A };",
        "export type { A } from 'a';",
        "export type * from 'a';",
        "declare const a: A;",
        "declare function f(): void;",
        "export declare class A { b: C; d(): void }",
        "declare enum A { B }",
        "declare module 'a' { const b: C }",
        "declare global { interface A {} }",
        "namespace A { export type B = 1; namespace C { interface D {} } }",
        "function f(a: A): B;",
        "export default function f(a: A): B;",
        "import type A = require('a');",
    ] {
        let stripped = strip(source).unwrap_or_else(|fault| panic!("{source:?}: {fault}"));
        assert_eq!(stripped, format!(";{}", " ".repeat(source.len() - 1)), "{source:?}");
    }
}

#[test]
fn names_that_are_types_leave_lists() {
    for (source, expected) in [
        ("import { type A, b } from 'a';", "import {         b } from 'a';"),
        ("import { b, type A } from 'a';", "import { b,        } from 'a';"),
        ("import { type A } from 'a';", "import {        } from 'a';"),
        ("import type from 'a';", "import type from 'a';"),
        ("import { type } from 'a';", "import { type } from 'a';"),
        ("let b; export { type A, b };", "let b; export {         b };"),
    ] {
        assert_eq!(strip(source).as_deref(), Ok(expected));
    }
}

#[test]
fn classes_keep_what_is_there_when_they_run() {
    for (source, expected) in [
        (
            "abstract class A<T> extends B<T> implements C, D {}",
            "         class A    extends B                    {}",
        ),
        ("const A = class implements C {};", "const A = class              {};"),
        ("export abstract class A {}", "export          class A {}"),
        (
            "class A { private readonly x: number = 1; }",
            "class A { ;                x         = 1; }",
        ),
        ("class A { static readonly x = 1; }", "class A { static          x = 1; }"),
        ("class A { x?: A; y!: B; }", "class A { x    ; y    ; }"),
        ("class A { ['x']?: A; }", "class A { ['x']    ; }"),
        ("class A { declare x: A; }", "class A { ;             }"),
        ("class A { [k: string]: A; }", "class A { ;               }"),
        (
            "abstract class A { abstract f(): void; abstract x: A; }",
            "         class A { ;                   ;              }",
        ),
        ("class A { f(a: A): B; f(a) {} }", "class A { ;           f(a) {} }"),
        ("class A { public async *f?(): A {} }", "class A { ;      async *f ()    {} }"),
        (
            "class A { protected get x(): A { return 1 } }",
            "class A { ;         get x()    { return 1 } }",
        ),
        ("class A { override f() {} }", "class A { ;        f() {} }"),
        ("class A { public /* private */ x; }", "class A { ;      /* private */ x; }"),
    ] {
        assert_eq!(strip(source).as_deref(), Ok(expected), "{source:?}");
    }
}

/// Each would mean something else, or nothing, if types were only blanked.
#[test]
fn where_a_line_may_end_stays_the_same() {
    for (source, expected) in [
        ("a as B\n(c)", "a;    \n(c)"),
        ("a as B\n[0]", "a;    \n[0]"),
        ("let x = a!\n(b)", "let x = a \n(b)"),
        ("x\ntype A = 1\n(y)", "x\n;         \n(y)"),
        ("x\ninterface A {}\n[y]", "x\n;             \n[y]"),
        ("class A { x = 1\npublic ['y'] = 2 }", "class A { x = 1\n;      ['y'] = 2 }"),
        (
            "class A { x = 1\nabstract y: B\n['z'] = 2 }",
            "class A { x = 1\n;            \n['z'] = 2 }",
        ),
        ("class A { get: B\nf() {} }", "class A { get;  \nf() {} }"),
        ("class A { x = a as B\n['y'] = 2 }", "class A { x = a;    \n['y'] = 2 }"),
        ("x = (a): \nB => a", "x = (a   \n) => a"),
        ("x = (a): {\n} => a", "x = (a    \n) => a"),
        ("return1 = async <\nT>(a) => a", "return1 = async (\n   a) => a"),
        ("function f() { return <\nT>(a) => a }", "function f() { return (\n   a) => a }"),
        ("do x as B\nwhile (0)", "do x;    \nwhile (0)"),
    ] {
        assert_eq!(strip(source).as_deref(), Ok(expected), "{source:?}");
    }
}

#[test]
fn what_is_more_than_a_type_is_refused_with_what_to_write() {
    for (source, position, fix) in [
        ("enum A { B }", (1, 1), "as const"),
        ("let x;\nconst enum A { B }", (2, 1), "as const"),
        ("namespace A { export const b = 1 }", (1, 1), "export the values"),
        ("class A { constructor(private x: B) {} }", (1, 23), "assign it"),
        ("class A { constructor(readonly x: B) {} }", (1, 23), "assign it"),
        ("@a class B {}", (1, 1), "call the function"),
        ("class A { @b c() {} }", (1, 11), "call the function"),
        ("abstract class A { @b abstract c: D }", (1, 20), "call the function"),
        ("import a = require('a');", (1, 1), "from"),
        ("import a = b.c;", (1, 1), "const"),
        ("export = a;", (1, 1), "export default"),
        ("export as namespace A;", (1, 1), "export"),
        ("let x = <A>y;", (1, 9), "as Type"),
        ("let x = a + b as number * c;", (1, 9), "parentheses"),
        ("let x = -a as number ** b;", (1, 9), "parentheses"),
    ] {
        let fault = strip(source).expect_err(source);
        assert_eq!((fault.line, fault.column), position, "{source:?}: {fault}");
        assert!(fault.fix.contains(fix), "{source:?}: {fault}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place() {
    for (source, line) in
        [("let x: = 1;", 1), ("let a;\n\nlet b: string = ;", 3), ("function (", 1), ("ä b", 1)]
    {
        let fault = strip(source).expect_err(source);
        assert_eq!(fault.line, line, "{source:?}: {fault}");
        assert!(!fault.why.is_empty() && !fault.fix.is_empty(), "{fault:?}");
    }
}

#[test]
fn characters_of_several_bytes_keep_the_offsets() {
    let source = "let x: 'ä€𝄞' = y; // ü";
    let stripped = strip(source).unwrap();
    assert_eq!(stripped.len(), source.len());
    assert_eq!(stripped.find('='), source.find('='));
    assert!(stripped.ends_with("// ü"));
}

#[test]
fn a_source_has_a_longest_length() {
    let most = hotcell_strip::MOST_SOURCE;
    assert!(strip(&" ".repeat(most)).is_ok());
    assert!(strip(&" ".repeat(most + 1)).unwrap_err().why.contains("bytes"));
}

#[test]
fn what_people_nest_fits_the_stack() {
    let parts = [
        "(",
        "[",
        "{",
        "!",
        "a=>",
        "`${",
        "a?",
        "if(a)",
        "a<",
        "new ",
        "x:",
        "()=>{",
        "let a:(",
        "let a:{b:",
        "let a:A<",
        "let a:keyof ",
        "function f(){",
        "class A{x=",
        "a**",
        "else ",
        "a as ",
        "({a:",
        "do ",
        "@",
        "<T>",
        "let a:B extends C?",
    ];
    for part in parts {
        assert!(strip(&part.repeat(300)).is_err(), "{part:?}");
    }
    check(
        &format!("{}a{}", "(".repeat(500), ")".repeat(500)),
        &format!("{}a{}", "(".repeat(500), ")".repeat(500)),
    );
    let sum = format!("x = a{}", " + a".repeat(10_000));
    check(&sum, &sum);
}
