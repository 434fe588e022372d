//! Runs a filter as the kernel would: first its checks of the program, then the program.

use super::compile::{AND, IF_ANY_BIT, IF_AT_LEAST, IF_EQUAL, Instruction, JUMP, LOAD, RETURN};

/// `BPF_MAXINSNS`
const LONGEST: usize = 4096;

/// `struct seccomp_data`
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) number: u32,
    pub(super) arch: u32,
    pub(super) args: [u64; 6],
}

impl Data {
    fn bytes(&self) -> Vec<u8> {
        let instruction_pointer = 0x7fff_1234_5678_u64;
        let mut bytes = [self.number.to_le_bytes(), self.arch.to_le_bytes()].concat();
        bytes.extend(instruction_pointer.to_le_bytes());
        bytes.extend(self.args.iter().flat_map(|arg| arg.to_le_bytes()));
        bytes
    }
}

/// What a run returned, and how many instructions it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) value: u32,
    pub(super) steps: usize,
}

/// The kernel's conditions (`bpf_check_classic` and `seccomp_check_filter`). Jumps are unsigned, so
/// they cannot go back.
pub(super) fn check(program: &[Instruction]) -> Result<(), String> {
    if program.is_empty() || program.len() > LONGEST {
        return Err(format!("{} instructions", program.len()));
    }
    for (at, instruction) in program.iter().enumerate() {
        let left = program.len() - at - 1;
        let fits = match instruction.code {
            LOAD => instruction.k % 4 == 0 && instruction.k < 64,
            AND | RETURN => true,
            JUMP => (instruction.k as usize) < left,
            IF_EQUAL | IF_AT_LEAST | IF_ANY_BIT => {
                usize::from(instruction.jt.max(instruction.jf)) < left
            }
            _ => false,
        };
        if !fits {
            return Err(format!("{instruction:?} at {at}"));
        }
    }
    match program.last() {
        Some(last) if last.code == RETURN => Ok(()),
        _ => Err("does not end in a return".into()),
    }
}

pub(super) fn run(program: &[Instruction], data: &Data) -> End {
    let bytes = data.bytes();
    let mut accumulator = 0_u32;
    let mut at = 0;
    let mut steps = 0;
    loop {
        steps += 1;
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let jump_if = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            LOAD => {
                let word = &bytes[k as usize..k as usize + 4];
                accumulator = u32::from_le_bytes(word.try_into().unwrap());
            }
            AND => accumulator &= k,
            JUMP => at += k as usize,
            IF_EQUAL => at += jump_if(accumulator == k),
            IF_AT_LEAST => at += jump_if(accumulator >= k),
            IF_ANY_BIT => at += jump_if(accumulator & k != 0),
            RETURN => return End { value: k, steps },
            _ => panic!("unknown instruction {code:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    #[test]
    fn a_program_the_kernel_would_refuse_is_refused() {
        let end = instruction(RETURN, 0, 0, 0);
        assert!(check(&[end]).is_ok());
        for program in [
            vec![],
            vec![instruction(LOAD, 0, 0, 0)],
            vec![instruction(LOAD, 0, 0, 2), end],
            vec![instruction(LOAD, 0, 0, 64), end],
            vec![instruction(JUMP, 0, 0, 1), end],
            vec![instruction(IF_EQUAL, 0, 1, 0), end],
            vec![instruction(0xff, 0, 0, 0), end],
            vec![end; LONGEST + 1],
        ] {
            assert!(check(&program).is_err(), "{program:?}");
        }
    }
}
