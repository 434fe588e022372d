//! quick
use hotcell_sandbox::*;
use hotcell_types::*;
use std::collections::BTreeMap;
use std::time::Instant;
struct Null;
impl Sink for Null {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}
fn main() {
    let n: usize = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(200);
    let prog = std::env::args().nth(2).unwrap_or("/usr/bin/true".into());
    let sb = Sandbox::open(&Settings { minimum: Level::NoProc, home: "/tmp/h".into() }).unwrap();
    let mut v = vec![];
    let mut st: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..n {
        let t = Instant::now();
        let args: Vec<std::ffi::OsString> = std::env::args_os().skip(2).collect();
        let args = if args.is_empty() { vec!["true".into()] } else { args };
        let job = Job {
            command: Command {
                program: prog.clone().into(),
                args,
                read_only: if prog.contains("pyenv") {
                    vec!["/root/.pyenv/versions/3.11.7".into()]
                } else {
                    vec![]
                },
                note: None,
            },
            env: BTreeMap::new(),
            stdin: Stdin::Empty,
            inputs: vec![],
            limits: Template::DEFAULT.limits,
            profile: Profile::Standard,
        };
        let o = sb.start(job).unwrap().wait(&mut Null, None).unwrap();
        assert!(matches!(o.status, Status::Success));
        v.push(t.elapsed().as_micros() as u64);
        for x in o.timings {
            st.entry(format!("{:?}", x.stage)).or_default().push(x.micros);
        }
    }
    v.sort();
    println!("median {} p99 {} min {}", v[n / 2], v[n * 99 / 100], v[0]);
    for (k, mut x) in st {
        x.sort();
        println!("  {k} {}", x[n / 2]);
    }
}
