/**
 * What an extension rule of a policy sees and returns.
 *
 * A file of rules is a module in TypeScript. Its default export and each named export is one rule:
 *
 *     import type { Call, Decision, Facts } from "./extension";
 *
 *     export default function source(call: Call, facts: Facts): Decision {
 *         if (call.operation !== "fs.write" || !call.path?.startsWith("src/")) {
 *             return { decision: "pass" };
 *         }
 *         return { decision: "allow", reason: "source files belong to the agent" };
 *     }
 *
 * Types are erased: no `enum`, no namespace with values, no decorator, no parameter property. Each file
 * stands alone and imports nothing but types.
 *
 * A rule is a function of its arguments. There is no clock (`facts.now` is the time), no randomness, no
 * `eval`, no promise, no file, no network. Nothing that a rule keeps is there in the next evaluation.
 * A rule that throws, returns something else, needs more than about half a million steps or 16 MiB, and any
 * evaluation that takes longer than 100 ms, is a deny.
 */

/** The call to be judged. */
export interface Call {
    readonly operation: string;
    readonly tool: string;
    /** The arguments, checked against the tool's schema. With an integer beyond 2^53 no rule is asked: a deny. */
    readonly args: unknown;
    readonly path: string | null;
    readonly host: string | null;
    readonly method: string | null;
    readonly tenant: string;
    readonly subject: string;
    readonly door: string;
    /** Of the subject, as the operator gave them. */
    readonly tags: readonly string[];
}

/** What is known besides the call. */
export interface Facts {
    /** Milliseconds since 1970: the one reading of the clock that the whole evaluation uses. */
    readonly now: number;
    /** Of the workflow. */
    readonly state: string | null;
    readonly mode: string | null;
}

/** `deny` beats `require_review`, which beats `allow`. `pass` says nothing. A reason has at most 1 KiB. */
export type Decision =
    | { decision: "pass" }
    | { decision: "allow" | "deny" | "require_review"; reason: string };

/** The form of every export. */
export type Rule = (call: Call, facts: Facts) => Decision;
