//! What hotcell and the launcher say to each other. A packet that is accepted is written back as the same
//! bytes: there is one spelling of everything.

use hotcell_jail::wire::{
    Blocked, Content, Ended, Entrance, Entry, Failed, Forking, Gone, Item, Job, JobParts, Limits,
    MAX_CGROUPS, MAX_ENTRIES, MAX_FDS, MAX_ITEMS, MAX_PACKET, MAX_STRINGS, Moment, Order, Ready,
    Report, Seen, Setup, Standing, Step, Supplies, What, Writer, Zygote, ZygoteParts,
};

use crate::outcome;

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = vec![0; MAX_PACKET];
    let mut writer = Writer::new(&mut buffer);
    write(&mut writer);
    writer.finish().expect("it fits").to_vec()
}

/// As the kernel delivers it: never longer than a packet.
fn packet(data: &[u8]) -> &[u8] {
    &data[..data.len().min(MAX_PACKET)]
}

pub fn wire_setup(data: &[u8]) -> u64 {
    let data = packet(data);
    let Ok((standing, entries)) = Standing::read(data) else { return 1 };
    let entries: Vec<Entry<'_>> = entries.collect();
    assert!(entries.len() <= MAX_ENTRIES && standing.cgroups as usize <= MAX_CGROUPS);
    let again = written(|w| {
        standing.write(entries.len() as u32, w);
        entries.iter().for_each(|entry| entry.write(w));
    });
    assert_eq!(again, data, "every entry that was counted is there");
    outcome(&[entries.is_empty(), standing.setup.bare, standing.setup.proc, standing.cgroups > 0])
}

pub(crate) fn setup_seeds() -> Vec<Vec<u8>> {
    let entries = [
        Entry::Dir(c"/etc"),
        Entry::Link { at: c"/bin", to: c"usr/bin" },
        Entry::File { at: c"/etc/hosts", content: b"127.0.0.1 localhost\n" },
        Entry::BindDir { from: c"/usr", at: c"/usr" },
        Entry::BindFile { from: c"/etc/localtime", at: c"/etc/localtime" },
        Entry::Device { from: c"/dev/null", at: c"/dev/null" },
    ];
    let seed = |count: usize, cgroups: u32| {
        let setup = Setup { user_namespace: count == 1, proc: true, bare: false };
        let standing = Standing { setup, cgroup_name: c"hotcell-0123456789abcdef", cgroups };
        written(|w| {
            standing.write(count as u32, w);
            entries.iter().take(count).for_each(|entry| entry.write(w));
        })
    };
    vec![seed(0, 0), seed(1, 1), seed(entries.len(), 8), vec![]]
}

pub fn wire_order(data: &[u8]) -> u64 {
    let data = packet(data);
    if let Ok(forking) = Forking::read(data) {
        assert_eq!(written(|w| forking.write(w)), data);
        return outcome(&[true, forking.drops_groups, forking.order.zygote == 0]);
    }
    let Ok(order) = Order::read(data) else { return 1 };
    assert!(order.descriptors() <= 3 + MAX_CGROUPS && order.descriptors() <= MAX_FDS);
    assert_eq!(written(|w| order.write(w)), data);
    outcome(&[order.loopback, order.brings_places, order.entrance.born, order.entrance.joins > 0])
}

pub(crate) fn order_seeds() -> Vec<Vec<u8>> {
    let limits = Limits {
        disk_bytes: 1 << 29,
        file_bytes: 1 << 29,
        files: 10_000,
        open_files: 1024,
        ..Limits::default()
    };
    let order = |born, joins, cgroup_name| {
        let entrance = Entrance { born, joins };
        Order {
            outer_uid: 1,
            outer_gid: 2,
            limits,
            entrance,
            cgroup_name,
            loopback: born,
            proxied: !born,
            brings_places: joins == 7,
            zygote: joins,
            keeps: u32::from(cgroup_name == b"/kept"),
            inside: u32::from(cgroup_name == b"/inside"),
        }
    };
    let seed = |born, joins, name| written(|w| order(born, joins, name).write(w));
    let forking = Forking {
        setup: Setup { user_namespace: false, proc: true, bare: false },
        landlock_abi: 7,
        drops_groups: true,
        order: order(false, 4, b"/x"),
    };
    vec![
        written(|w| forking.write(w)),
        seed(false, 0, b""),
        seed(true, 0, b"/hotcell-0123456789abcdef/1"),
        seed(true, 7, b"/x"),
        seed(false, 8, b"/x"),
        seed(true, 0, b"/kept"),
        seed(true, 0, b"/inside"),
    ]
}

pub fn wire_zygote(data: &[u8]) -> u64 {
    let data = packet(data);
    let Ok(zygote) = Zygote::read(data) else { return 1 };
    let args: Vec<&[u8]> = zygote.args.clone().map(|text| text.to_bytes()).collect();
    let env: Vec<&[u8]> = zygote.env.clone().map(|text| text.to_bytes()).collect();
    assert!(Zygote::is_one(data) && args.len() <= MAX_STRINGS && env.len() <= MAX_STRINGS);
    let Zygote { number, uid, gid, entrance, filter, program, .. } = zygote;
    assert!(zygote.entrance.descriptors() <= MAX_CGROUPS);
    let program = program.to_bytes();
    let parts = ZygoteParts { number, uid, gid, entrance, filter, program, args: &args, env: &env };
    assert_eq!(written(|w| parts.write(w)), data);
    outcome(&[args.is_empty(), env.is_empty(), uid == gid])
}

pub(crate) fn zygote_seeds() -> Vec<Vec<u8>> {
    let seed = |number, args: &[&[u8]], env: &[&[u8]]| {
        let program = b"/usr/bin/python3";
        let entrance = Entrance { born: number == 1, joins: number % 3 };
        let filter = &[6, 0, 0, 0, 0, 0, 0xff, 0x7f];
        let parts = ZygoteParts { number, uid: 1, gid: 2, entrance, filter, program, args, env };
        written(|w| parts.write(w))
    };
    vec![seed(1, &[], &[]), seed(255, &[b"python3", b"-S"], &[b"A=b"]), seed(0, &[], &[])]
}

pub fn wire_job(data: &[u8]) -> u64 {
    let data = packet(data);
    let Ok(job) = Job::read(data) else { return 1 };
    let args: Vec<&[u8]> = job.args.clone().map(|text| text.to_bytes()).collect();
    let env: Vec<&[u8]> = job.env.clone().map(|text| text.to_bytes()).collect();
    assert!(Job::is_one(data) && args.len() <= MAX_STRINGS && env.len() <= MAX_STRINGS);
    let parts = JobParts {
        filter: job.filter,
        exec_key: job.exec_key,
        program: job.program.to_bytes(),
        args: &args,
        env: &env,
    };
    assert_eq!(written(|w| parts.write(w)), data);
    outcome(&[args.is_empty(), env.is_empty(), job.filter.is_empty(), job.exec_key == 0])
}

pub(crate) fn job_seeds() -> Vec<Vec<u8>> {
    let seed = |args: &[&[u8]], env: &[&[u8]], key: u64| {
        let parts = JobParts {
            filter: &[6, 0, 0, 0, 0, 0, 0xff, 0x7f],
            exec_key: key,
            program: b"/usr/bin/python3",
            args,
            env,
        };
        written(|w| parts.write(w))
    };
    vec![
        seed(&[], &[], 0),
        seed(&[b"python3", b"-u", b""], &[b"A=b"], 3),
        seed(&[b"\xff"], &[b"", b"="], 1),
    ]
}

pub fn wire_supplies(data: &[u8]) -> u64 {
    let data = packet(data);
    let Ok(supplies) = Supplies::read(data) else { return 1 };
    let items: Vec<Item<'_>> = supplies.items.clone().collect();
    assert!(!Job::is_one(data) && items.len() <= MAX_ITEMS);
    assert!(supplies.descriptors() <= items.len().min(MAX_FDS));
    assert_eq!(written(|w| Supplies::write(&items, supplies.is_last, w)), data);
    outcome(&[items.is_empty(), supplies.descriptors() == items.len()])
}

pub(crate) fn supplies_seeds() -> Vec<Vec<u8>> {
    let modified = Moment { seconds: -1, nanos: 7 };
    let file = What::File(Content { bytes: 7, modified, executable: true });
    let items = [
        Item { path: c"a", what: What::Directory },
        Item { path: c"a/b", what: file },
        Item { path: c"link", what: What::Link(c"a/b") },
    ];
    let seed = |items: &[Item<'_>]| written(|w| Supplies::write(items, items.len() > 1, w));
    vec![seed(&items), seed(&items[..1]), seed(&[])]
}

pub fn wire_report(data: &[u8]) -> u64 {
    let data = packet(data);
    let Ok(report) = Report::read(data) else { return 1 };
    let again = written(|w| report.write(w));
    assert_eq!(again, data);
    assert!(again.len() <= hotcell_jail::chan::MAX_REPORT);
    2 + match report {
        Report::Ready(_) => 0,
        Report::Built => 1,
        Report::Released(..) => 2,
        Report::Failed(failed) => 8 + failed.step as u64,
        Report::Ended(ended) => 3 + u64::from(ended.wait_status.is_some()),
        Report::Refusing => 5,
        Report::Taken => 7,
        Report::Gone(_) => 6,
        Report::Hatched => 130,
        Report::Born => 131,
        Report::Outgrown => 132,
        Report::Poised { landlock_denied } => 128 + u64::from(landlock_denied),
    }
}

pub(crate) fn report_seeds() -> Vec<Vec<u8>> {
    let ended = Ended { wait_status: Some(9), cpu_micros: 5, written: Some(7) };
    let mut gone = Gone::default();
    gone.blocked[0] = Blocked { number: 101, count: 3 };
    let reports = [
        Report::Ready(Ready { landlock_abi: 7 }),
        Report::Built,
        Report::Released(Seen::default(), 2),
        Report::Failed(Failed { step: Step::Busy, errno: -1, index: 9 }),
        Report::Ended(ended),
        Report::Ended(Ended::default()),
        Report::Refusing,
        Report::Taken,
        Report::Gone(gone),
        Report::Poised { landlock_denied: true },
        Report::Hatched,
        Report::Born,
        Report::Outgrown,
    ];
    reports.iter().map(|report| written(|w| report.write(w))).collect()
}
