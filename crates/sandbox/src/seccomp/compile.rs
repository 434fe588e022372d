//! Compiles a profile to classic BPF: the ABI check, a balanced binary search for the number, and for
//! the calls that need it a few tests of arguments.
//!
//! The program is written from its end to its start. Classic BPF only jumps forward, so every target
//! exists before the jump to it, and distances are known when they are needed.

use super::Arch;
use super::profile::{Action, Rule, Test, UNMENTIONED, Verdict};
use super::table::Syscall;

/// `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) jt: u8,
    pub(super) jf: u8,
    pub(super) k: u32,
}

/// BPF_LD | BPF_W | BPF_ABS
pub(super) const LOAD: u16 = 0x20;
/// BPF_ALU | BPF_AND | BPF_K
pub(super) const AND: u16 = 0x54;
/// BPF_JMP | BPF_JA
pub(super) const JUMP: u16 = 0x05;
/// BPF_JMP | BPF_JEQ | BPF_K
pub(super) const IF_EQUAL: u16 = 0x15;
/// BPF_JMP | BPF_JGE | BPF_K
pub(super) const IF_AT_LEAST: u16 = 0x35;
/// BPF_JMP | BPF_JSET | BPF_K
pub(super) const IF_ANY_BIT: u16 = 0x45;
/// BPF_RET | BPF_K
pub(super) const RETURN: u16 = 0x06;

pub(super) const KILL_PROCESS: u32 = 0x8000_0000;
pub(super) const ERRNO: u32 = 0x0005_0000;
pub(super) const USER_NOTIF: u32 = 0x7fc0_0000;
pub(super) const TRACE: u32 = 0x7ff0_0000;
pub(super) const ALLOW: u32 = 0x7fff_0000;

/// Offsets in `struct seccomp_data`. Both architectures are little-endian: the lower half comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Set in the number of every x32 call. Those come with the architecture of x86_64.
const X32: u32 = 0x4000_0000;

impl Arch {
    /// `AUDIT_ARCH_*`
    pub(super) const fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }
}

impl Verdict {
    pub(super) fn value(self) -> u32 {
        match self {
            Verdict::Allow => ALLOW,
            Verdict::Errno(number) => ERRNO | u32::from(number),
            Verdict::Report => USER_NOTIF,
            Verdict::Missing => TRACE,
        }
    }
}

/// In kernel layout. The fields are in the byte order of the machine that installs the filter, and
/// both architectures are little-endian.
pub(super) fn bytes(program: &[Instruction]) -> Vec<u8> {
    let instruction = |i: &Instruction| {
        let [code0, code1] = i.code.to_le_bytes();
        let [k0, k1, k2, k3] = i.k.to_le_bytes();
        [code0, code1, i.jt, i.jf, k0, k1, k2, k3]
    };
    program.iter().flat_map(instruction).collect()
}

/// A filter whose answer to everything that is not mentioned is `otherwise`.
pub(super) fn compile(
    arch: Arch,
    actions: &[(Syscall, Action)],
    otherwise: Verdict,
) -> Vec<Instruction> {
    let mut program = Program::default();
    let otherwise = Action::Always(otherwise);
    let search = program.search(&ranges(arch, actions, &otherwise));
    let native = match arch {
        Arch::X86_64 => {
            let kill = program.give(KILL_PROCESS);
            program.branch(IF_ANY_BIT, X32, kill, search)
        }
        Arch::Aarch64 => search,
    };
    let number = program.before(LOAD, NUMBER, native);
    let kill = program.give(KILL_PROCESS);
    let check = program.branch(IF_EQUAL, arch.audit(), number, kill);
    program.before(LOAD, ARCHITECTURE, check);
    program.finish()
}

/// Numbers from `first` to the next range.
#[derive(Debug)]
struct Range<'a> {
    first: u32,
    action: &'a Action,
}

/// Splits all numbers into the fewest ranges of equal action.
fn ranges<'a>(
    arch: Arch,
    actions: &'a [(Syscall, Action)],
    otherwise: &'a Action,
) -> Vec<Range<'a>> {
    let mut mentioned: Vec<(u32, &Action)> =
        actions.iter().filter_map(|(call, action)| Some((call.number(arch)?, action))).collect();
    mentioned.sort_unstable_by_key(|(number, _)| *number);

    let mut edges = vec![];
    let mut next = 0;
    for (number, action) in mentioned {
        if next < number {
            edges.push(Range { first: next, action: otherwise });
        }
        edges.push(Range { first: number, action });
        next = number + 1;
    }
    edges.push(Range { first: next, action: otherwise });
    edges.dedup_by(|later, earlier| later.action == earlier.action);
    edges
}

/// An instruction, counted from the end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// The instructions so far, the last one first.
#[derive(Debug, Default)]
struct Program {
    reversed: Vec<Instruction>,
}

impl Program {
    /// Leads to what is done in the range that holds the number.
    fn search(&mut self, ranges: &[Range<'_>]) -> Label {
        let (low, high) = ranges.split_at(ranges.len() / 2);
        match (low, high) {
            (_, []) => self.give(UNMENTIONED.value()),
            ([], [only, ..]) => self.action(only.action),
            (_, [middle, ..]) => {
                let at_least = self.search(high);
                let below = self.search(low);
                self.branch(IF_AT_LEAST, middle.first, at_least, below)
            }
        }
    }

    fn action(&mut self, action: &Action) -> Label {
        match action {
            Action::Always(verdict) => self.give(verdict.value()),
            Action::ByArguments { rules, otherwise } => {
                let otherwise = self.give(otherwise.value());
                rules.iter().rev().fold(otherwise, |no, rule| self.rule(rule, no))
            }
        }
    }

    fn rule(&mut self, rule: &Rule, no: Label) -> Label {
        let then = self.give(rule.then.value());
        rule.tests.iter().rev().fold(then, |yes, test| self.test(test, yes, no))
    }

    fn test(&mut self, test: &Test, yes: Label, no: Label) -> Label {
        match *test {
            Test::OneOf { argument, mask, values } => {
                let compare = self.any_of(values, yes, no);
                let masked = self.mask(mask, compare);
                self.before(LOAD, lower(argument), masked)
            }
            Test::AnyBit { argument, mask } => {
                let compare = self.branch(IF_ANY_BIT, mask, yes, no);
                self.before(LOAD, lower(argument), compare)
            }
            Test::Exactly { argument, value } => {
                let [low, high] = halves(value);
                let compare_low = self.branch(IF_EQUAL, low, yes, no);
                let load_low = self.before(LOAD, lower(argument), compare_low);
                let compare_high = self.branch(IF_EQUAL, high, load_low, no);
                self.before(LOAD, upper(argument), compare_high)
            }
        }
    }

    fn any_of(&mut self, values: &[u32], yes: Label, no: Label) -> Label {
        values.iter().rev().fold(no, |no, value| self.branch(IF_EQUAL, *value, yes, no))
    }

    fn mask(&mut self, mask: u32, then: Label) -> Label {
        if mask == u32::MAX { then } else { self.before(AND, mask, then) }
    }

    /// A return with this value: one within reach, or a new one.
    fn give(&mut self, value: u32) -> Label {
        let instruction = Instruction { code: RETURN, jt: 0, jf: 0, k: value };
        match self.reversed.iter().rposition(|i| *i == instruction).map(Label) {
            Some(label) if self.reach(label).is_some() => label,
            _ => self.push(instruction),
        }
    }

    /// Goes to `yes` if the test holds and to `no` if not, by way of a jump where that is too far.
    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        match (self.reach(yes), self.reach(no)) {
            (Some(jt), Some(jf)) => self.push(Instruction { code, jt, jf, k }),
            (None, _) => {
                let yes = self.jump(yes);
                self.branch(code, k, yes, no)
            }
            (_, None) => {
                let no = self.jump(no);
                self.branch(code, k, yes, no)
            }
        }
    }

    /// An instruction that is followed by `then`.
    fn before(&mut self, code: u16, k: u32, then: Label) -> Label {
        if self.distance(then) > 0 {
            self.jump(then);
        }
        self.push(Instruction { code, jt: 0, jf: 0, k })
    }

    fn jump(&mut self, target: Label) -> Label {
        // Four billion instructions away is not in the program; the kernel would refuse it.
        let k = u32::try_from(self.distance(target)).unwrap_or(u32::MAX);
        self.push(Instruction { code: JUMP, jt: 0, jf: 0, k })
    }

    /// The distance, if a conditional jump can go that far.
    fn reach(&self, target: Label) -> Option<u8> {
        u8::try_from(self.distance(target)).ok()
    }

    /// How many instructions the next one has to skip to reach `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    fn push(&mut self, instruction: Instruction) -> Label {
        self.reversed.push(instruction);
        Label(self.reversed.len() - 1)
    }

    fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }
}

fn lower(argument: u8) -> u32 {
    ARGUMENTS + 8 * u32::from(argument)
}

fn upper(argument: u8) -> u32 {
    lower(argument) + 4
}

/// The lower and the upper 32 bits.
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
