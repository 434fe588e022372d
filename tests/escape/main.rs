//! The published attacks, by id.
use std::collections::BTreeMap;

use hotcell_sandbox::{Command, Holes, Job, Sandbox, Settings, Sink, Stdin, hole};
use hotcell_types::{Level, Outcome, Profile, Template};

struct Quiet;
impl Sink for Quiet {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

fn run(sandbox: &Sandbox, script: &str, holes: Holes) -> Outcome {
    let job = Job {
        command: Command {
            program: "/usr/bin/python3".into(),
            args: ["python3", "-c", script].map(Into::into).to_vec(),
            read_only: vec![],
            note: None,
        },
        env: BTreeMap::from([("PATH".into(), "/usr/bin".into())]),
        stdin: Stdin::Empty,
        inputs: vec![],
        limits: Template::DEFAULT.limits,
        profile: Profile::Standard,
        holes,
    };
    sandbox.start(job).unwrap().wait(&mut Quiet, None).unwrap()
}

#[test]
fn smoke() {
    let settings = Settings { minimum: Level::NoProc, home: "/tmp/h".into() };
    let sandbox = Sandbox::open_with_host(&settings).unwrap();
    for holes in [
        Holes::default(),
        Holes { layers: hole::LANDLOCK, ..Holes::default() },
        Holes { layers: hole::LANDLOCK, own_id: true, ..Holes::default() },
        Holes { layers: hole::NET, ..Holes::default() },
        Holes { layers: hole::IPC, ..Holes::default() },
        Holes { layers: hole::UTS, ..Holes::default() },
        Holes { layers: hole::PID, ..Holes::default() },
        Holes { layers: hole::CGROUP_NAMESPACE, ..Holes::default() },
        Holes { layers: hole::CAPABILITIES, ..Holes::default() },
        Holes {
            layers: hole::NO_NEW_PRIVS | hole::CAPABILITIES,
            seccomp: true,
            ..Holes::default()
        },
        Holes {
            layers: hole::SESSION
                | hole::KEYRING
                | hole::RLIMITS
                | hole::DESCRIPTORS
                | hole::DUMPABLE,
            ..Holes::default()
        },
        Holes { cgroup: true, seccomp: true, ..Holes::default() },
    ] {
        let o = run(
            &sandbox,
            "import os\ntry: print(open('/host/etc/shadow').read(10), os.listdir('/proc'))\nexcept Exception as e: print(e)",
            holes,
        );
        println!("{holes:?}: {:?} {}", o.status, String::from_utf8_lossy(&o.stdout.bytes));
    }
}
