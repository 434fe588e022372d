//! Filters, run by an interpreter of our own: for any call, a stricter profile never allows what a wider
//! one refuses, nor a run on the host itself what one in namespaces may not do, another ABI is always the end, and every program is one that the kernel takes.

use std::num::NonZeroU64;
use std::sync::OnceLock;

use hotcell_sandbox::seccomp::{Arch, Around, filter};
use hotcell_types::Profile;

use crate::outcome;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL: u32 = 0x8000_0000;

const KEY: u64 = 0x0123_4567_89ab_cdef;
const PROFILES: [Profile; 3] = [Profile::Strict, Profile::Standard, Profile::StandardNet];

/// `AUDIT_ARCH_*`, the number of `execveat`, and the filters from strict to wide.
struct Machine {
    arch: u32,
    execveat: u32,
    filters: [Vec<u8>; 3],
    /// The same without namespaces around them.
    on_the_host: [Vec<u8>; 3],
}

fn machines() -> &'static [Machine; 2] {
    static MACHINES: OnceLock<[Machine; 2]> = OnceLock::new();
    MACHINES.get_or_init(|| {
        let key = NonZeroU64::new(KEY).unwrap();
        let make = |arch, audit, execveat| Machine {
            arch: audit,
            execveat,
            filters: PROFILES.map(|profile| filter(profile, Around::Namespaces, arch, key)),
            on_the_host: PROFILES.map(|profile| filter(profile, Around::Host, arch, key)),
        };
        [make(Arch::X86_64, 0xc000_003e, 322), make(Arch::Aarch64, 0xc000_00b7, 281)]
    })
}

/// One byte for the machine, four for the number, four for the ABI, six times eight for the arguments;
/// what is missing is zero.
pub fn seccomp(data: &[u8]) -> u64 {
    let mut bytes = [0; 57];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    let machine = &machines()[usize::from(bytes[0] & 1)];
    let number = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
    // Mostly the machine's own, or nothing else would be reached.
    let foreign = u32::from_le_bytes(bytes[5..9].try_into().unwrap());
    let arch = if bytes[0] & 2 == 0 { machine.arch } else { foreign };
    let mut call = [0; 64];
    call[..4].copy_from_slice(&number.to_le_bytes());
    call[4..8].copy_from_slice(&arch.to_le_bytes());
    call[16..].copy_from_slice(&bytes[9..]);
    let verdicts = machine.filters.each_ref().map(|program| run(program, &call));
    let on_the_host = machine.on_the_host.each_ref().map(|program| run(program, &call));
    for (inside, outside) in verdicts.into_iter().zip(on_the_host) {
        assert!(inside == ALLOW || outside != ALLOW, "{number} is allowed only on the host");
    }
    for verdict in verdicts.into_iter().chain(on_the_host) {
        let known = [ALLOW, NOTIFY, KILL].contains(&verdict)
            || (verdict & 0xffff_0000 == ERRNO && verdict & 0xffff != 0);
        assert!(known, "{number} {arch:#x} gives {verdict:#x}");
    }
    if arch != machine.arch {
        assert_eq!(
            (verdicts, on_the_host),
            ([KILL; 3], [KILL; 3]),
            "{number} of another ABI ({arch:#x})"
        );
    }
    let [strict, standard, net] = verdicts.map(|verdict| verdict == ALLOW);
    // The one exec of strict is the launcher's, with the key that the program does not have.
    let launchers = number == machine.execveat && call[56..] == KEY.to_le_bytes();
    assert!(
        !strict || standard || launchers,
        "strict allows {number} {:?}, standard does not",
        &call[16..]
    );
    assert!(!standard || net, "standard allows {number} {:?}, standard-net does not", &call[16..]);
    outcome(&[strict, standard, net, verdicts[1] == NOTIFY, verdicts[1] == KILL]) << 10
        | u64::from(number & 0x3ff)
}

/// The program as the kernel runs it. Anything that its verifier would refuse is a panic.
fn run(program: &[u8], call: &[u8; 64]) -> u32 {
    assert!(program.len().is_multiple_of(8) && program.len() / 8 <= 4096);
    let mut accumulator = 0_u32;
    let mut at = 0;
    loop {
        let i = &program[at * 8..at * 8 + 8];
        let code = u16::from_le_bytes([i[0], i[1]]);
        let (jt, jf) = (usize::from(i[2]), usize::from(i[3]));
        let k = u32::from_le_bytes(i[4..].try_into().unwrap());
        at += 1;
        let branch = |holds: bool| if holds { jt } else { jf };
        match code {
            0x20 => {
                accumulator =
                    u32::from_le_bytes(call[k as usize..k as usize + 4].try_into().unwrap())
            }
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += branch(accumulator == k),
            0x25 => at += branch(accumulator > k),
            0x35 => at += branch(accumulator >= k),
            0x45 => at += branch(accumulator & k != 0),
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |flags: u8, number: u32, args: [u64; 6]| {
        let mut bytes = vec![flags];
        bytes.extend(number.to_le_bytes());
        bytes.extend(0x4000_0003_u32.to_le_bytes());
        bytes.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
        bytes
    };
    let mut all: Vec<Vec<u8>> =
        (0..470).map(|number| seed((number & 1) as u8, number, [0; 6])).collect();
    // clone, clone3, socket, prctl, execveat, ioctl, the x32 bit, another ABI.
    all.push(seed(0, 56, [0x7e02_0000, 0, 0, 0, 0, 0]));
    all.push(seed(0, 41, [1, 1, 0, 0, 0, 0]));
    all.push(seed(0, 41, [2, 1, 0, 0, 0, 0]));
    all.push(seed(0, 157, [22, 0, 0, 0, 0, 0]));
    all.push(seed(0, 322, [0, 0, 0, 0, 0, KEY]));
    all.push(seed(0, 16, [0, 0x5412, 0, 0, 0, 0]));
    all.push(seed(0, 0x4000_0000, [0; 6]));
    all.push(seed(2, 1, [0; 6]));
    all
}
