//! What hotcell and the launcher say to each other: one message per packet, little-endian, every
//! field bounded by the packet. The same code writes and reads on both sides.

use core::ffi::CStr;

/// Largest packet. A job's arguments, environment and filter fit; code travels as a descriptor.
pub const MAX_PACKET: usize = 160 * 1024;
/// Most descriptors in one packet: the kernel's own bound is 253.
pub const MAX_FDS: usize = 160;
/// Most entries of the root tree.
pub const MAX_ENTRIES: usize = 512;
/// Most strings in `argv`, and in the environment.
pub const MAX_STRINGS: usize = 2048;
/// Most things for the working directory in one packet.
pub const MAX_ITEMS: usize = 32;
/// Most cgroup hierarchies that a run is attached to.
pub const MAX_CGROUPS: usize = 8;
/// Most different blocked system calls that are counted for one run.
pub const MAX_BLOCKED: usize = 16;
/// Longest name of a cgroup.
pub const MAX_NAME: usize = 64;
/// Checked first, so that a launcher of another build is refused and never misread.
pub const MAGIC: u32 = 0x6863_0001;

/// A packet that does not fit or does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Appends fields to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    length: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    pub fn new(buffer: &'a mut [u8]) -> Writer<'a> {
        Writer { buffer, length: 0, overflowed: false }
    }

    pub fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.raw(value);
    }

    /// A string that the reader can hand to the kernel as it lies there. A NUL inside is refused.
    pub fn text(&mut self, value: &[u8]) {
        if value.contains(&0) {
            self.overflowed = true;
        }
        self.u32(value.len() as u32 + 1);
        self.raw(value);
        self.u8(0);
    }

    /// The packet, if everything fitted.
    pub fn finish(self) -> Result<&'a [u8], Malformed> {
        if self.overflowed {
            return Err(Malformed);
        }
        self.buffer.get(..self.length).ok_or(Malformed)
    }

    fn raw(&mut self, value: &[u8]) {
        let end = self.length.saturating_add(value.len());
        match self.buffer.get_mut(self.length..end) {
            Some(place) => {
                place.copy_from_slice(value);
                self.length = end;
            }
            None => self.overflowed = true,
        }
    }
}

/// Takes fields from a packet.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(packet: &'a [u8]) -> Reader<'a> {
        Reader { rest: packet }
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of at most `most`.
    pub fn count(&mut self, most: usize) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).ok().filter(|&n| n <= most).ok_or(Malformed)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count(self.rest.len())?;
        self.take(length)
    }

    pub fn text(&mut self) -> Result<&'a CStr, Malformed> {
        CStr::from_bytes_with_nul(self.bytes()?).map_err(|_| Malformed)
    }

    /// Nothing may be left over.
    pub fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }
}

/// One entry of the root tree, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    Dir(&'a CStr),
    Link {
        at: &'a CStr,
        to: &'a CStr,
    },
    File {
        at: &'a CStr,
        content: &'a [u8],
    },
    /// A read-only view of a directory of the host.
    BindDir {
        from: &'a CStr,
        at: &'a CStr,
    },
    /// A read-only view of a file of the host.
    BindFile {
        from: &'a CStr,
        at: &'a CStr,
    },
    /// A device node of the host that may be written.
    Device {
        from: &'a CStr,
        at: &'a CStr,
    },
    /// A view of the host as it is, writable and without a Landlock rule: what the walls keep away.
    #[cfg(feature = "holes")]
    Hole {
        from: &'a CStr,
        at: &'a CStr,
    },
}

impl<'a> Entry<'a> {
    pub fn write(&self, w: &mut Writer<'_>) {
        let (kind, first, second) = match self {
            Entry::Dir(at) => (0, at.to_bytes(), &[][..]),
            Entry::Link { at, to } => (1, at.to_bytes(), to.to_bytes()),
            Entry::File { at, content } => (2, at.to_bytes(), *content),
            Entry::BindDir { from, at } => (3, at.to_bytes(), from.to_bytes()),
            Entry::BindFile { from, at } => (4, at.to_bytes(), from.to_bytes()),
            Entry::Device { from, at } => (5, at.to_bytes(), from.to_bytes()),
            #[cfg(feature = "holes")]
            Entry::Hole { from, at } => (6, at.to_bytes(), from.to_bytes()),
        };
        w.u8(kind);
        w.text(first);
        match self {
            Entry::Dir(_) => {}
            Entry::File { .. } => w.bytes(second),
            _ => w.text(second),
        }
    }

    pub fn read(r: &mut Reader<'a>) -> Result<Entry<'a>, Malformed> {
        let kind = r.u8()?;
        let at = r.text()?;
        Ok(match kind {
            0 => Entry::Dir(at),
            1 => Entry::Link { at, to: r.text()? },
            2 => Entry::File { at, content: r.bytes()? },
            3 => Entry::BindDir { from: r.text()?, at },
            4 => Entry::BindFile { from: r.text()?, at },
            5 => Entry::Device { from: r.text()?, at },
            #[cfg(feature = "holes")]
            6 => Entry::Hole { from: r.text()?, at },
            _ => return Err(Malformed),
        })
    }
}

/// How the launcher itself is to stand before it takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Make a user namespace first: the caller is not root.
    pub user_namespace: bool,
    /// Give each run a /proc.
    pub proc: bool,
    /// Without namespaces at all: Landlock, seccomp and rlimits only.
    pub bare: bool,
}

impl Setup {
    fn write(self, w: &mut Writer<'_>) {
        for flag in [self.user_namespace, self.proc, self.bare] {
            w.u8(flag.into());
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Setup, Malformed> {
        Ok(Setup { user_namespace: r.flag()?, proc: r.flag()?, bare: r.flag()? })
    }
}

/// The fixed part of a setup packet. Descriptors of the packet, in order: hotcell's own directory in
/// each cgroup hierarchy, the leash, then others that are only held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    pub setup: Setup,
    /// Name of hotcell's own directory in every cgroup hierarchy.
    pub cgroup_name: &'a CStr,
    /// In how many hierarchies there is one.
    pub cgroups: u32,
}

impl<'a> Standing<'a> {
    /// The fixed part; entries follow, `entries` of them.
    pub fn write(&self, entries: u32, w: &mut Writer<'_>) {
        w.u32(MAGIC);
        self.setup.write(w);
        w.text(self.cgroup_name.to_bytes());
        w.u32(self.cgroups);
        w.u32(entries);
    }

    /// The fixed part, and the entries.
    pub fn read(packet: &'a [u8]) -> Result<(Standing<'a>, Entries<'a>), Malformed> {
        let mut r = Reader::new(packet);
        if r.u32()? != MAGIC {
            return Err(Malformed);
        }
        let setup = Setup::read(&mut r)?;
        let cgroup_name = r.text()?;
        let cgroups = r.count(MAX_CGROUPS)? as u32;
        let left = r.count(MAX_ENTRIES)?;
        let entries = Entries { reader: r, left };
        entries.clone().check()?;
        Ok((Standing { setup, cgroup_name, cgroups }, entries))
    }
}

/// The entries of a setup; checked as a whole before the first is used.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl Entries<'_> {
    fn check(mut self) -> Result<(), Malformed> {
        for _ in 0..self.left {
            Entry::read(&mut self.reader)?;
        }
        self.reader.end()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.left = self.left.checked_sub(1)?;
        Entry::read(&mut self.reader).ok()
    }
}

/// The launcher is ready for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    pub landlock_abi: u32,
}

/// How a run enters its cgroup: descriptors come with the job, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entrance {
    /// Born into a v2 directory.
    pub born: bool,
    /// Writes itself into this many v1 `tasks` files.
    pub joins: u8,
}

impl Entrance {
    pub fn descriptors(self) -> usize {
        usize::from(self.born) + usize::from(self.joins)
    }
}

/// What a cell is made with. A cell takes one job, perhaps long after it was made. Descriptors of the
/// packet, in order: the run's socket, the cell's own line, then the cgroup's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order<'a> {
    /// Id of the run outside, in the launcher's user namespace.
    pub outer_uid: u32,
    pub outer_gid: u32,
    pub limits: Limits,
    pub entrance: Entrance,
    /// How the path of the run's cgroup ends, as `/proc/PID/cgroup` shows it.
    pub cgroup_name: &'a [u8],
    /// A loopback interface that is up, and TCP as far as Landlock goes.
    pub loopback: bool,
    /// Sockets that listen inside and come out with [`Report::Built`]: one by a path, and with a loopback
    /// interface one there.
    pub proxied: bool,
    /// Without a mount namespace, the run's places are a directory of the host, whose descriptor comes
    /// last.
    pub brings_places: bool,
    /// The zygote that the cell is forked from; none is zero.
    pub zygote: u8,
    /// The number under which other cells are made inside this one; none is zero. A cell that is kept
    /// gets no job: it holds namespaces and places for those.
    pub keeps: u32,
    /// The kept cell inside which this one is made; none is zero. They have user, network, IPC and UTS
    /// namespace and the places together, and no process of one can see those of another.
    pub inside: u32,
    /// Layers to leave out, for the positive controls of the escape tests.
    #[cfg(feature = "holes")]
    pub holes: u32,
}

/// Limits that the launcher sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub disk_bytes: u64,
    /// Of one file.
    pub file_bytes: u64,
    pub files: u64,
    pub open_files: u64,
    /// Per-process bounds where no cgroup enforces a total; zero means that a cgroup does.
    pub data_bytes: u64,
    pub processes: u64,
    pub cpu_seconds: u64,
}

impl<'a> Order<'a> {
    pub fn write(&self, w: &mut Writer<'_>) {
        let l = &self.limits;
        w.u32(MAGIC);
        w.u8(ORDER);
        w.u32(self.outer_uid);
        w.u32(self.outer_gid);
        let of_process = [l.open_files, l.data_bytes, l.processes, l.cpu_seconds];
        for value in [l.disk_bytes, l.file_bytes, l.files].into_iter().chain(of_process) {
            w.u64(value);
        }
        w.u8(self.entrance.born.into());
        w.u8(self.entrance.joins);
        w.bytes(self.cgroup_name);
        w.u8(self.loopback.into());
        w.u8(self.proxied.into());
        w.u8(self.brings_places.into());
        w.u8(self.zygote);
        w.u32(self.keeps);
        w.u32(self.inside);
        #[cfg(feature = "holes")]
        w.u32(self.holes);
    }

    pub fn read(packet: &'a [u8]) -> Result<Order<'a>, Malformed> {
        let mut r = Reader::new(packet);
        if (r.u32()?, r.u8()?) != (MAGIC, ORDER) {
            return Err(Malformed);
        }
        let (outer_uid, outer_gid) = (r.u32()?, r.u32()?);
        let limits = Limits {
            disk_bytes: r.u64()?,
            file_bytes: r.u64()?,
            files: r.u64()?,
            open_files: r.u64()?,
            data_bytes: r.u64()?,
            processes: r.u64()?,
            cpu_seconds: r.u64()?,
        };
        let order = Order {
            outer_uid,
            outer_gid,
            limits,
            entrance: Entrance { born: r.flag()?, joins: r.u8()? },
            cgroup_name: r.bytes()?,
            loopback: r.flag()?,
            proxied: r.flag()?,
            brings_places: r.flag()?,
            zygote: r.u8()?,
            keeps: r.u32()?,
            inside: r.u32()?,
            #[cfg(feature = "holes")]
            holes: r.u32()?,
        };
        r.end()?;
        let stays = order.keeps != 0 || order.inside != 0;
        if order.entrance.descriptors() > MAX_CGROUPS
            || order.cgroup_name.len() > MAX_NAME
            || (order.keeps != 0 && order.inside != 0)
            || (stays && (order.zygote != 0 || order.brings_places))
        {
            return Err(Malformed);
        }
        Ok(order)
    }

    /// How many descriptors must come with it.
    pub fn descriptors(&self) -> usize {
        2 + self.entrance.descriptors() + usize::from(self.brings_places)
    }

    /// How many sockets listen inside.
    pub fn listeners(&self) -> usize {
        if self.proxied { 1 + usize::from(self.loopback) } else { 0 }
    }

    /// How many of them it hands out: those of a kept cell were handed out by that.
    pub fn handed(&self) -> usize {
        if self.inside == 0 { self.listeners() } else { 0 }
    }

    /// Whether a layer is to be left out: never, but in the launcher of the escape tests.
    #[cfg(feature = "holes")]
    pub fn leaves_out(&self, hole: u32) -> bool {
        self.holes & hole != 0
    }

    /// Whether a layer is to be left out: never, but in the launcher of the escape tests.
    #[cfg(not(feature = "holes"))]
    pub const fn leaves_out(&self, _hole: u32) -> bool {
        false
    }
}

/// One thing in the working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Relative. What it lies in came before it.
    pub path: &'a CStr,
    pub what: What<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// Its descriptor comes with the packet, in the same order.
    File(Content),
    Directory,
    Link(&'a CStr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub bytes: u64,
    /// Modification time; lets the collector tell a changed file from an untouched one.
    pub modified: Moment,
    pub executable: bool,
}

/// Since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// A list of strings, as the kernel wants them.
#[derive(Debug, Clone)]
pub struct Strings<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a CStr;

    fn next(&mut self) -> Option<&'a CStr> {
        self.left = self.left.checked_sub(1)?;
        self.reader.text().ok()
    }
}

/// A list of things for the working directory.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        self.left = self.left.checked_sub(1)?;
        Item::read(&mut self.reader).ok()
    }
}

impl<'a> Item<'a> {
    fn write(&self, w: &mut Writer<'_>) {
        w.text(self.path.to_bytes());
        match self.what {
            What::File(content) => {
                w.u8(0);
                w.u64(content.bytes);
                w.u64(content.modified.seconds.cast_unsigned());
                w.u32(content.modified.nanos);
                w.u8(content.executable.into());
            }
            What::Directory => w.u8(1),
            What::Link(target) => {
                w.u8(2);
                w.text(target.to_bytes());
            }
        }
    }

    fn read(r: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
        let path = r.text()?;
        let what = match r.u8()? {
            0 => What::File(Content {
                bytes: r.u64()?,
                modified: Moment { seconds: r.u64()?.cast_signed(), nanos: r.u32()? },
                executable: r.flag()?,
            }),
            1 => What::Directory,
            2 => What::Link(r.text()?),
            _ => return Err(Malformed),
        };
        Ok(Item { path, what })
    }
}

/// A part of what goes into the working directory, before the job.
#[derive(Debug, Clone)]
pub struct Supplies<'a> {
    /// The job comes next. Otherwise the cell says when it has taken this part.
    pub is_last: bool,
    pub items: Items<'a>,
}

const SUPPLIES: u8 = 0;
const JOB: u8 = 1;
const ORDER: u8 = 2;
const ZYGOTE: u8 = 3;
const FORKING: u8 = 4;

/// An interpreter to start, that cells are then forked from. Descriptors of the packet, in order: where
/// hotcell hears of its end, the library that it serves with, the script that it loads that by, then the
/// cgroup's.
#[derive(Debug, Clone)]
pub struct Zygote<'a> {
    /// Its name in orders; not zero.
    pub number: u8,
    /// Its id outside, in the launcher's user namespace.
    pub uid: u32,
    pub gid: u32,
    /// Into a cgroup of its own.
    pub entrance: Entrance,
    /// Classic BPF, which everything that is forked from it has as well.
    pub filter: &'a [u8],
    pub program: &'a CStr,
    pub args: Strings<'a>,
    pub env: Strings<'a>,
}

impl<'a> Zygote<'a> {
    /// How many descriptors come with it before those of its cgroup.
    pub const DESCRIPTORS: usize = 3;
    /// Where it has its line to the spawner, the library and the script.
    pub const LINE: u32 = 3;
    pub const LIBRARY: u32 = 4;
    pub const SCRIPT: u32 = 5;

    /// Whether a packet is meant to be one.
    pub fn is_one(packet: &[u8]) -> bool {
        packet.get(size_of_val(&MAGIC)) == Some(&ZYGOTE)
    }

    pub fn read(packet: &'a [u8]) -> Result<Zygote<'a>, Malformed> {
        let mut r = Reader::new(packet);
        if (r.u32()?, r.u8()?) != (MAGIC, ZYGOTE) {
            return Err(Malformed);
        }
        let (number, uid, gid) = (r.u8()?, r.u32()?, r.u32()?);
        let entrance = Entrance { born: r.flag()?, joins: r.u8()? };
        let filter = r.bytes()?;
        let program = r.text()?;
        let args = read_strings(&mut r)?;
        let env = read_strings(&mut r)?;
        r.end()?;
        if number == 0 || entrance.descriptors() > MAX_CGROUPS {
            return Err(Malformed);
        }
        Ok(Zygote { number, uid, gid, entrance, filter, program, args, env })
    }

    /// How many descriptors must come with it.
    pub fn descriptors(&self) -> usize {
        Zygote::DESCRIPTORS + self.entrance.descriptors()
    }
}

/// The same, as hotcell writes it.
#[derive(Debug)]
pub struct ZygoteParts<'a> {
    pub number: u8,
    pub uid: u32,
    pub gid: u32,
    pub entrance: Entrance,
    pub filter: &'a [u8],
    pub program: &'a [u8],
    pub args: &'a [&'a [u8]],
    pub env: &'a [&'a [u8]],
}

impl ZygoteParts<'_> {
    pub fn write(&self, w: &mut Writer<'_>) {
        w.u32(MAGIC);
        w.u8(ZYGOTE);
        w.u8(self.number);
        w.u32(self.uid);
        w.u32(self.gid);
        w.u8(self.entrance.born.into());
        w.u8(self.entrance.joins);
        w.bytes(self.filter);
        w.text(self.program);
        write_strings(self.args, w);
        write_strings(self.env, w);
    }
}

/// An order as the spawner passes it on to a zygote. Descriptors of the packet, in order: the cell's cord,
/// then what came with the order, without the run's socket, then the Landlock ruleset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forking<'a> {
    pub setup: Setup,
    pub landlock_abi: u32,
    pub drops_groups: bool,
    pub order: Order<'a>,
}

/// Largest of them.
pub const MAX_FORKING: usize = 512;

impl<'a> Forking<'a> {
    pub fn write(&self, w: &mut Writer<'_>) {
        w.u32(MAGIC);
        w.u8(FORKING);
        self.setup.write(w);
        w.u32(self.landlock_abi);
        w.u8(self.drops_groups.into());
        self.order.write(w);
    }

    pub fn read(packet: &'a [u8]) -> Result<Forking<'a>, Malformed> {
        let mut r = Reader::new(packet);
        if (r.u32()?, r.u8()?) != (MAGIC, FORKING) {
            return Err(Malformed);
        }
        let setup = Setup::read(&mut r)?;
        let (landlock_abi, drops_groups) = (r.u32()?, r.flag()?);
        Ok(Forking { setup, landlock_abi, drops_groups, order: Order::read(r.rest)? })
    }
}

fn write_strings(strings: &[&[u8]], w: &mut Writer<'_>) {
    w.u32(strings.len() as u32);
    for text in strings {
        w.text(text);
    }
}

impl<'a> Supplies<'a> {
    pub fn write(items: &[Item<'_>], is_last: bool, w: &mut Writer<'_>) {
        w.u32(MAGIC);
        w.u8(SUPPLIES);
        w.u8(is_last.into());
        w.u32(items.len() as u32);
        for item in items {
            item.write(w);
        }
    }

    pub fn read(packet: &'a [u8]) -> Result<Supplies<'a>, Malformed> {
        let mut r = Reader::new(packet);
        if (r.u32()?, r.u8()?) != (MAGIC, SUPPLIES) {
            return Err(Malformed);
        }
        let is_last = r.flag()?;
        let left = r.count(MAX_ITEMS)?;
        let items = Items { reader: r.clone(), left };
        for _ in 0..left {
            Item::read(&mut r)?;
        }
        r.end()?;
        Ok(Supplies { is_last, items })
    }

    /// How many descriptors must come with it.
    pub fn descriptors(&self) -> usize {
        self.items.clone().filter(|item| matches!(item.what, What::File(_))).count()
    }
}

/// A job, as its cell reads it. Descriptors of the packet, in order: stdin, stdout, stderr.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Classic BPF, as `struct sock_filter`.
    pub filter: &'a [u8],
    /// The secret that the strict profile asks for in an argument that the call does not have; zero
    /// where executing is free.
    pub exec_key: u64,
    pub program: &'a CStr,
    pub args: Strings<'a>,
    pub env: Strings<'a>,
}

/// A job, as hotcell writes it.
#[derive(Debug)]
pub struct JobParts<'a> {
    pub filter: &'a [u8],
    pub exec_key: u64,
    pub program: &'a [u8],
    pub args: &'a [&'a [u8]],
    pub env: &'a [&'a [u8]],
}

impl JobParts<'_> {
    pub fn write(&self, w: &mut Writer<'_>) {
        w.u32(MAGIC);
        w.u8(JOB);
        w.bytes(self.filter);
        w.u64(self.exec_key);
        w.text(self.program);
        write_strings(self.args, w);
        write_strings(self.env, w);
    }
}

impl<'a> Job<'a> {
    /// How many descriptors must come with it.
    pub const DESCRIPTORS: usize = 3;

    /// Whether a packet is meant to be one.
    pub fn is_one(packet: &[u8]) -> bool {
        packet.get(size_of_val(&MAGIC)) == Some(&JOB)
    }

    pub fn read(packet: &'a [u8]) -> Result<Job<'a>, Malformed> {
        let mut r = Reader::new(packet);
        if (r.u32()?, r.u8()?) != (MAGIC, JOB) {
            return Err(Malformed);
        }
        let filter = r.bytes()?;
        let exec_key = r.u64()?;
        let program = r.text()?;
        let args = read_strings(&mut r)?;
        let env = read_strings(&mut r)?;
        r.end()?;
        Ok(Job { filter, exec_key, program, args, env })
    }
}

fn read_strings<'a>(r: &mut Reader<'a>) -> Result<Strings<'a>, Malformed> {
    let left = r.count(MAX_STRINGS)?;
    let strings = Strings { reader: r.clone(), left };
    for _ in 0..left {
        r.text()?;
    }
    Ok(strings)
}

/// Layers that the launcher of the escape tests can leave out, so that each test shows what its layer
/// stops. The shipped launcher reads no such field.
pub mod hole {
    pub const NET: u32 = 1 << 0;
    pub const IPC: u32 = 1 << 1;
    pub const UTS: u32 = 1 << 2;
    pub const PID: u32 = 1 << 3;
    pub const CGROUP_NAMESPACE: u32 = 1 << 4;
    pub const LANDLOCK: u32 = 1 << 5;
    pub const CAPABILITIES: u32 = 1 << 6;
    pub const NO_NEW_PRIVS: u32 = 1 << 7;
    pub const SESSION: u32 = 1 << 8;
    pub const KEYRING: u32 = 1 << 9;
    pub const RLIMITS: u32 = 1 << 10;
    pub const DESCRIPTORS: u32 = 1 << 11;
    pub const DUMPABLE: u32 = 1 << 12;
    /// The tree has a hole, so that its mounts are not as they have to be.
    pub const ROOT: u32 = 1 << 13;
    /// Leaves nothing out: what is left out besides is not overlooked, as if it had happened by mistake.
    pub const SEEN: u32 = 1 << 14;
}

/// Where something failed. Each has a name for people in `hotcell-sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Protocol = 0,
    UserNamespace,
    IdMap,
    Namespaces,
    Propagation,
    HostProc,
    RootMount,
    TreeEntry,
    ProcMount,
    Pivot,
    RootReadOnly,
    LandlockRuleset,
    Clone,
    CgroupAttach,
    CgroupNamespace,
    DeathSignal,
    Hostname,
    Keyring,
    Loopback,
    SwitchId,
    Writable,
    Inputs,
    NoNewPrivs,
    Landlock,
    Capabilities,
    Fork,
    Session,
    Rlimits,
    Descriptors,
    Seccomp,
    Program,
    AttestNamespaces,
    AttestStatus,
    AttestIds,
    AttestMounts,
    AttestCgroup,
    AttestRlimits,
    AttestDescriptors,
    AttestLandlock,
    AttestSession,
    Busy,
    Zygote,
    Proxy,
    AttestProxy,
    Inside,
}

impl Step {
    pub const ALL: [Step; 45] = [
        Step::Protocol,
        Step::UserNamespace,
        Step::IdMap,
        Step::Namespaces,
        Step::Propagation,
        Step::HostProc,
        Step::RootMount,
        Step::TreeEntry,
        Step::ProcMount,
        Step::Pivot,
        Step::RootReadOnly,
        Step::LandlockRuleset,
        Step::Clone,
        Step::CgroupAttach,
        Step::CgroupNamespace,
        Step::DeathSignal,
        Step::Hostname,
        Step::Keyring,
        Step::Loopback,
        Step::SwitchId,
        Step::Writable,
        Step::Inputs,
        Step::NoNewPrivs,
        Step::Landlock,
        Step::Capabilities,
        Step::Fork,
        Step::Session,
        Step::Rlimits,
        Step::Descriptors,
        Step::Seccomp,
        Step::Program,
        Step::AttestNamespaces,
        Step::AttestStatus,
        Step::AttestIds,
        Step::AttestMounts,
        Step::AttestCgroup,
        Step::AttestRlimits,
        Step::AttestDescriptors,
        Step::AttestLandlock,
        Step::AttestSession,
        Step::Busy,
        Step::Zygote,
        Step::Proxy,
        Step::AttestProxy,
        Step::Inside,
    ];

    fn from_u8(value: u8) -> Result<Step, Malformed> {
        Step::ALL.get(usize::from(value)).copied().ok_or(Malformed)
    }
}

/// A step that failed: the error number, and which one of several (an entry's or input's index).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    pub step: Step,
    pub errno: i32,
    pub index: u32,
}

/// What the launcher read of the program's process from outside, before it let it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    pub uid: u32,
    pub gid: u32,
    /// Inodes of user, mnt, pid, net, ipc, uts, cgroup; zero where it is the launcher's own.
    pub namespaces: [u64; 7],
    pub mounts: u32,
    /// Mounts that can be written: the run's own places.
    pub writable_mounts: u32,
    pub proc_mounted: bool,
    pub no_new_privs: bool,
    /// Filters on the process.
    pub seccomp_filters: u32,
    /// All five capability sets together.
    pub capabilities: u64,
    /// The sentinel file answered "permission denied".
    pub landlock_denied: bool,
    pub cgroups: u32,
    pub own_session: bool,
    pub descriptors: u32,
    pub open_files: u64,
    /// The way out, where there is to be one: its sockets that listen in the run's namespaces.
    pub listeners: u32,
}

/// A call that the filter refused and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocked {
    pub number: u32,
    pub count: u64,
}

/// How a run's program ended, as the run's own init saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// The program's wait status; `None` when it was ended from outside.
    pub wait_status: Option<u32>,
    /// Processor time of all that was waited for.
    pub cpu_micros: u64,
    /// Bytes given to write calls; `None` where there is no /proc.
    pub written: Option<u64>,
}

/// Nothing is left of a run: its init has been reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gone {
    pub blocked: [Blocked; MAX_BLOCKED],
}

/// What the launcher tells hotcell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Ready(Ready),
    /// The descriptor of the run's writable file system comes with it, then those of the way out.
    Built,
    /// What was seen, and how many microseconds that took.
    Released(Seen, u32),
    Failed(Failed),
    /// From the run's init to hotcell: everything that the program started has ended, and the init
    /// ends now. It is not said when the init itself was killed.
    Ended(Ended),
    /// From the program's process to hotcell: what came so far is in the working directory.
    Taken,
    /// A call was refused and counted for the first time: the counts come with [`Report::Gone`].
    Refusing,
    Gone(Gone),
    /// From the program's process to the launcher: every layer is on, the filter's listener comes with
    /// it, and the sentinel file was refused or not.
    Poised {
        landlock_denied: bool,
    },
    /// From a zygote to the launcher: it is ready to be forked.
    Hatched,
    /// From a zygote to the launcher: the init of a cell, whose descriptor comes with it.
    Born,
    /// From the launcher to hotcell: a zygote is not any more what it was when it hatched.
    Outgrown,
}

impl Report {
    pub fn write(&self, w: &mut Writer<'_>) {
        match self {
            Report::Ready(ready) => {
                w.u8(0);
                w.u32(ready.landlock_abi);
            }
            Report::Built => w.u8(1),
            Report::Released(seen, micros) => {
                w.u8(2);
                write_seen(seen, w);
                w.u32(*micros);
            }
            Report::Failed(failed) => {
                w.u8(3);
                w.u8(failed.step as u8);
                w.u32(failed.errno as u32);
                w.u32(failed.index);
            }
            Report::Ended(ended) => {
                w.u8(4);
                write_optional(ended.wait_status.map(u64::from), w);
                w.u64(ended.cpu_micros);
                write_optional(ended.written, w);
            }
            Report::Refusing => w.u8(6),
            Report::Taken => w.u8(8),
            Report::Gone(gone) => {
                w.u8(7);
                for blocked in &gone.blocked {
                    w.u32(blocked.number);
                    w.u64(blocked.count);
                }
            }
            Report::Poised { landlock_denied } => {
                w.u8(5);
                w.u8((*landlock_denied).into());
            }
            Report::Hatched => w.u8(9),
            Report::Born => w.u8(10),
            Report::Outgrown => w.u8(11),
        }
    }

    pub fn read(packet: &[u8]) -> Result<Report, Malformed> {
        let mut r = Reader::new(packet);
        let report = match r.u8()? {
            0 => Report::Ready(Ready { landlock_abi: r.u32()? }),
            1 => Report::Built,
            2 => Report::Released(read_seen(&mut r)?, r.u32()?),
            3 => Report::Failed(Failed {
                step: Step::from_u8(r.u8()?)?,
                errno: r.u32()? as i32,
                index: r.u32()?,
            }),
            4 => Report::Ended(read_ended(&mut r)?),
            5 => Report::Poised { landlock_denied: r.flag()? },
            6 => Report::Refusing,
            7 => Report::Gone(read_gone(&mut r)?),
            8 => Report::Taken,
            9 => Report::Hatched,
            10 => Report::Born,
            11 => Report::Outgrown,
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(report)
    }
}

fn write_seen(seen: &Seen, w: &mut Writer<'_>) {
    w.u32(seen.uid);
    w.u32(seen.gid);
    for inode in seen.namespaces {
        w.u64(inode);
    }
    w.u32(seen.mounts);
    w.u32(seen.writable_mounts);
    w.u8(seen.proc_mounted.into());
    w.u8(seen.no_new_privs.into());
    w.u32(seen.seccomp_filters);
    w.u64(seen.capabilities);
    w.u8(seen.landlock_denied.into());
    w.u32(seen.cgroups);
    w.u8(seen.own_session.into());
    w.u32(seen.descriptors);
    w.u64(seen.open_files);
    w.u32(seen.listeners);
}

fn read_seen(r: &mut Reader<'_>) -> Result<Seen, Malformed> {
    let mut seen = Seen { uid: r.u32()?, gid: r.u32()?, ..Seen::default() };
    for inode in &mut seen.namespaces {
        *inode = r.u64()?;
    }
    seen.mounts = r.u32()?;
    seen.writable_mounts = r.u32()?;
    seen.proc_mounted = r.flag()?;
    seen.no_new_privs = r.flag()?;
    seen.seccomp_filters = r.u32()?;
    seen.capabilities = r.u64()?;
    seen.landlock_denied = r.flag()?;
    seen.cgroups = r.u32()?;
    seen.own_session = r.flag()?;
    seen.descriptors = r.u32()?;
    seen.open_files = r.u64()?;
    seen.listeners = r.u32()?;
    Ok(seen)
}

fn read_ended(r: &mut Reader<'_>) -> Result<Ended, Malformed> {
    let wait_status = match read_optional(r)? {
        Some(status) => Some(u32::try_from(status).map_err(|_| Malformed)?),
        None => None,
    };
    Ok(Ended { wait_status, cpu_micros: r.u64()?, written: read_optional(r)? })
}

fn read_gone(r: &mut Reader<'_>) -> Result<Gone, Malformed> {
    let mut gone = Gone::default();
    for blocked in &mut gone.blocked {
        *blocked = Blocked { number: r.u32()?, count: r.u64()? };
    }
    Ok(gone)
}

fn write_optional(value: Option<u64>, w: &mut Writer<'_>) {
    w.u8(value.is_some().into());
    w.u64(value.unwrap_or(0));
}

fn read_optional(r: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    match (r.flag()?, r.u64()?) {
        (true, value) => Ok(Some(value)),
        (false, 0) => Ok(None),
        (false, _) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::vec::Vec;

    use super::*;

    fn packet(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut writer = Writer::new(&mut buffer);
        write(&mut writer);
        writer.finish().unwrap().to_vec()
    }

    #[test]
    fn steps_are_listed_in_their_own_order() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, index, "{step:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_never_cut() {
        let mut small = [0; 7];
        let mut writer = Writer::new(&mut small);
        writer.bytes(b"1234");
        assert_eq!(writer.finish(), Err(Malformed));
    }

    #[test]
    fn a_nul_in_a_text_is_refused_where_it_is_written() {
        let mut buffer = [0; 64];
        let mut writer = Writer::new(&mut buffer);
        writer.text(b"a\0b");
        assert_eq!(writer.finish(), Err(Malformed));
    }

    #[test]
    fn a_packet_of_another_build_is_refused() {
        let order = Order {
            outer_uid: 1,
            outer_gid: 2,
            limits: Limits::default(),
            entrance: Entrance::default(),
            cgroup_name: b"",
            loopback: false,
            proxied: true,
            brings_places: false,
            zygote: 0,
            keeps: 0,
            inside: 7,
            #[cfg(feature = "holes")]
            holes: 0,
        };
        let mut bytes = packet(|w| order.write(w));
        assert_eq!(Order::read(&bytes), Ok(order));
        bytes[0] ^= 1;
        assert_eq!(Order::read(&bytes), Err(Malformed));
    }

    #[test]
    fn more_than_the_most_is_refused_before_it_is_looked_at() {
        let huge = packet(|w| {
            w.u32(MAGIC);
            w.u8(JOB);
            w.bytes(b"");
            w.u64(0);
            w.text(b"/bin/true");
            w.u32(u32::MAX);
        });
        assert!(Job::read(&huge).is_err());
    }

    fn texts() -> impl Strategy<Value = Vec<CString>> {
        proptest::collection::vec("[^\0]{0,20}", 0..20)
            .prop_map(|v| v.into_iter().map(|s| CString::new(s).unwrap()).collect())
    }

    proptest! {
        #[test]
        fn supplies_read_back(names in texts(), bytes: u64, seconds: i64, nanos: u32) {
            let modified = Moment { seconds, nanos };
            let items: Vec<_> = names.iter().enumerate().map(|(index, path)| {
                let what = match index % 3 {
                    0 => What::File(Content { bytes, modified, executable: path.is_empty() }),
                    1 => What::Directory,
                    _ => What::Link(path),
                };
                Item { path, what }
            }).collect();
            let packet = packet(|w| Supplies::write(&items, nanos % 2 == 0, w));
            prop_assert!(!Job::is_one(&packet) && Job::read(&packet).is_err());
            let supplies = Supplies::read(&packet).unwrap();
            prop_assert!(supplies.items.clone().eq(items.iter().copied()));
            prop_assert_eq!(supplies.descriptors(), items.len().div_ceil(3));
            prop_assert_eq!(supplies.is_last, nanos % 2 == 0);
        }

        #[test]
        fn a_job_reads_back(args in texts(), env in texts(), key: u64,
                            filter in proptest::collection::vec(any::<u8>(), 0..100)) {
            let (args_b, env_b): (Vec<_>, Vec<_>) =
                (args.iter().map(|a| a.to_bytes()).collect(), env.iter().map(|e| e.to_bytes()).collect());
            let parts = JobParts {
                filter: &filter, exec_key: key, program: b"/p", args: &args_b, env: &env_b,
            };
            let bytes = packet(|w| parts.write(w));
            prop_assert!(Job::is_one(&bytes) && Supplies::read(&bytes).is_err());
            let job = Job::read(&bytes).unwrap();
            prop_assert_eq!(job.filter, &filter[..]);
            prop_assert_eq!(job.exec_key, key);
            prop_assert!(job.args.clone().eq(args.iter().map(|a| a.as_c_str())));
            prop_assert!(job.env.clone().eq(env.iter().map(|e| e.as_c_str())));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            drop(Job::read(&bytes));
            drop(Supplies::read(&bytes));
            Order::read(&bytes).ok();
            Forking::read(&bytes).ok();
            Zygote::read(&bytes).ok();
            Standing::read(&bytes).ok();
            Report::read(&bytes).ok();
        }

        #[test]
        fn a_cut_or_longer_packet_is_refused(cut in 0usize..100, extra in 1usize..10) {
            let ended = Ended { wait_status: Some(9), written: None, ..Ended::default() };
            let bytes = packet(|w| Report::Ended(ended).write(w));
            prop_assert_eq!(Report::read(&bytes), Ok(Report::Ended(ended)));
            if cut < bytes.len() {
                prop_assert_eq!(Report::read(&bytes[..cut]), Err(Malformed));
            }
            let longer = [&bytes[..], &vec![0; extra]].concat();
            prop_assert_eq!(Report::read(&longer), Err(Malformed));
        }
    }
}
