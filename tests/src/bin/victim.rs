//! Runs one Python attack in a process of its own. Tests kill it, or give it a terminal, a keyring or
//! a host name to lose.
//!
//! `victim CODE LAYERS FLAGS TIMEOUT_MS`: says `running` once the program was let go, and in the end
//! everything that the program said.

use std::io::Write;

use hotcell_tests::{Attack, Quiet};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, code, layers, flags, timeout] = args.as_slice() else {
        panic!("victim CODE LAYERS FLAGS TIMEOUT_MS");
    };
    let mut attack = Attack::python(code)
        .without(layers.parse().expect("a number of layers"))
        .timeout(timeout.parse().expect("a number of milliseconds"));
    for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
        attack = match flag {
            "seccomp" => attack.without_seccomp(),
            "id" => attack.without_own_id(),
            "cgroup" => attack.without_cgroup(),
            "root" => attack.without_root(),
            other => panic!("there is no layer `{other}`"),
        };
    }
    let running = attack.start().expect("the run starts");
    let mut stdout = std::io::stdout();
    stdout.write_all(b"running\n").expect("stdout");
    stdout.flush().expect("stdout");
    let outcome = running.wait(&mut Quiet, None).expect("the run ends");
    stdout.write_all(&outcome.stdout.bytes).expect("stdout");
    stdout.write_all(&outcome.stderr.bytes).expect("stdout");
    stdout.write_all(format!("status={:?}\n", outcome.status).as_bytes()).expect("stdout");
}
