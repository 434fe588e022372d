//! Finds where this process may make cgroups.
//!
//! The hierarchies come from `/proc/self/mountinfo`, the own place in each from
//! `/proc/self/cgroup`. v1 takes the own cgroup or the nearest one above that can be written. v2 has
//! three more conditions: the directory must have the controllers, it must be able to pass them on
//! (no processes of its own, unless it is the root), and its `cgroup.procs` must be writable, since
//! the kernel asks that of the nearest common ancestor when a process moves.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::dir::Dir;
use super::error::{Missing, Unavailable};
use super::name::{Name, Ours, ours};
use super::parse::{self, Membership, Mount, Version};
use super::systemd::ScopeError;
use crate::cause;

/// Largest `/proc/self/mountinfo` that is read: some 30,000 mounts.
const MOUNTINFO_MOST: u64 = 4 << 20;
/// How often a leaf is made anew when a sweep of another process removes it before it is entered.
const LEAF_TRIES: usize = 3;

/// What a hierarchy is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Memory = 1,
    Pids = 2,
    Cpu = 4,
    Usage = 8,
    Freezer = 16,
}

/// Without these three there are no runs at the levels that promise cgroups.
const REQUIRED: [Role; 3] = [Role::Memory, Role::Pids, Role::Cpu];

impl Role {
    const ALL: [Role; 5] = [Role::Memory, Role::Pids, Role::Cpu, Role::Usage, Role::Freezer];

    /// The kernel's name of the controller.
    pub(super) fn controller(self) -> &'static str {
        match self {
            Role::Memory => "memory",
            Role::Pids => "pids",
            Role::Cpu => "cpu",
            Role::Usage => "cpuacct",
            Role::Freezer => "freezer",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Roles(u8);

impl Roles {
    pub(super) fn has(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }

    pub(super) fn with(self, role: Role) -> Roles {
        Roles(self.0 | role as u8)
    }

    pub(super) fn without(self, role: Role) -> Roles {
        Roles(self.0 & !(role as u8))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[cfg(test)]
    pub(super) const REQUIRED: Roles = Roles(7);

    #[cfg(test)]
    pub(super) fn of_one(role: Role) -> Roles {
        Roles::default().with(role)
    }

    fn of(roles: impl Iterator<Item = Role>) -> Roles {
        roles.fold(Roles::default(), Roles::with)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&r| self.has(r))
    }
}

/// One hierarchy, and the directory in it below which cgroups are made.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    pub(super) roles: Roles,
    pub(super) base: Dir,
    /// For messages only.
    pub(super) path: PathBuf,
}

impl Hierarchy {
    /// Whether systemd made the base for one hotcell process; others have theirs beside it.
    pub(super) fn is_own_scope(&self) -> bool {
        last_name(&self.path) == Some(Ours::Scope)
    }
}

/// Where the kernel tells about mounts and memberships.
#[derive(Debug)]
pub(super) struct Host {
    proc_self: PathBuf,
    /// Exists where systemd is pid 1.
    systemd_mark: PathBuf,
}

impl Host {
    pub(super) fn real() -> Host {
        Host { proc_self: "/proc/self".into(), systemd_mark: "/run/systemd/system".into() }
    }

    #[cfg(test)]
    pub(super) fn fake(proc_self: &Path, systemd_mark: &Path) -> Host {
        Host { proc_self: proc_self.into(), systemd_mark: systemd_mark.into() }
    }

    fn view(&self) -> Result<View, Unavailable> {
        let read = |file: &str| {
            let path = self.proc_self.join(file);
            bounded_read(&path, MOUNTINFO_MOST).map_err(|e| {
                let why = format!("`{}` cannot be read: {e}", path.display());
                all_missing(&why, "mount -t proc proc /proc")
            })
        };
        Ok(View {
            mounts: parse::mounts(&read("mountinfo")?),
            own: parse::memberships(&read("cgroup")?),
            systemd: self.systemd_mark.exists(),
        })
    }
}

fn bounded_read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// For what stands in the way of every controller alike.
fn all_missing(why: &str, fix: &str) -> Unavailable {
    let missing =
        |role: Role| Missing { controller: role.controller(), why: why.into(), fix: fix.into() };
    Unavailable { missing: REQUIRED.map(missing).into() }
}

/// Finds directly where that works, and asks systemd for a scope where it does not.
pub(super) fn hierarchies(
    host: &Host,
    ask_systemd: impl FnOnce(&str) -> Result<(), ScopeError>,
) -> Result<Vec<Hierarchy>, Unavailable> {
    let name = Name::random().map_err(|e| {
        all_missing(&format!("the kernel gives no random numbers: {e}"), "uname -r")
    })?;
    let view = host.view()?;
    let direct = match view.hierarchies(&name) {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    // A scope brings v2 controllers and nothing else.
    if !view.systemd || view.v2_required().is_empty() || !view.v1_is_complete() {
        return Err(Unavailable { missing: direct });
    }
    match ask_systemd(&name.scope()) {
        Ok(()) => host.view()?.hierarchies(&name).map_err(|missing| Unavailable { missing }),
        Err(refused) => Err(Unavailable { missing: with_refusal(direct, &refused) }),
    }
}

fn with_refusal(direct: Vec<Missing>, refused: &ScopeError) -> Vec<Missing> {
    let add = |m: Missing| Missing {
        why: format!("{}; and systemd gave no scope: {refused}", m.why),
        fix: refused.fix().into(),
        ..m
    };
    direct.into_iter().map(add).collect()
}

/// What the host shows at one moment.
#[derive(Debug)]
struct View {
    mounts: Vec<Mount>,
    own: Vec<Membership>,
    systemd: bool,
}

impl View {
    fn hierarchies(&self, name: &Name) -> Result<Vec<Hierarchy>, Vec<Missing>> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for own in self.own.iter().filter(|m| m.version() == Version::V1) {
            match self.v1(own) {
                Ok(hierarchy) => found.extend(hierarchy),
                Err(lacking) => missing.extend(lacking),
            }
        }
        match self.v2(name) {
            Ok(hierarchy) => found.extend(hierarchy),
            Err(lacking) => missing.extend(lacking),
        }
        // The kernel lists hierarchies as they were mounted; people read the same order every time.
        missing.sort_by_key(|m| REQUIRED.iter().position(|r| r.controller() == m.controller));
        if missing.is_empty() { Ok(found) } else { Err(missing) }
    }

    /// The required controllers that no v1 hierarchy has taken.
    fn v2_required(&self) -> Roles {
        let on_v1 = |role: Role| {
            self.own.iter().any(|m| m.controllers.iter().any(|c| c == role.controller()))
        };
        Roles::of(REQUIRED.into_iter().filter(|&r| !on_v1(r)))
    }

    fn v1_is_complete(&self) -> bool {
        let v1 = self.own.iter().filter(|m| m.version() == Version::V1);
        v1.map(|own| self.v1(own)).all(|found| found.is_ok())
    }

    /// `None` for a hierarchy that is of no use here.
    fn v1(&self, own: &Membership) -> Result<Option<Hierarchy>, Vec<Missing>> {
        let named = |r: &Role| own.controllers.iter().any(|c| c == r.controller());
        let roles = Roles::of(Role::ALL.into_iter().filter(named));
        if roles.is_empty() {
            return Ok(None);
        }
        let place = self.v1_mount(own).ok_or(Obstacle::NotMounted).and_then(|mount| {
            let places = candidates(mount, &own.path);
            nearest_writable(places)
        });
        match place {
            Ok((base, path)) => Ok(Some(Hierarchy { version: Version::V1, roles, base, path })),
            // Freezer and usage are good to have; runs start without them.
            Err(_) if !REQUIRED.into_iter().any(|r| roles.has(r)) => Ok(None),
            Err(obstacle) => {
                let required = REQUIRED.into_iter().filter(|&r| roles.has(r));
                Err(required.map(|r| obstacle.missing(r, Version::V1)).collect())
            }
        }
    }

    fn v1_mount(&self, own: &Membership) -> Option<&Mount> {
        let carries = |mount: &&Mount| {
            mount.version == Version::V1
                && own.controllers.iter().all(|c| mount.options.contains(c))
        };
        showing(self.mounts.iter().filter(carries), own)
    }

    fn v2(&self, name: &Name) -> Result<Option<Hierarchy>, Vec<Missing>> {
        let required = self.v2_required();
        let mounts = self.mounts.iter().filter(|m| m.version == Version::V2);
        let own = self.own.iter().find(|m| m.version() == Version::V2);
        let place = match own.and_then(|own| Some((showing(mounts, own)?, own))) {
            None => Err(Obstacle::NotMounted),
            Some((mount, own)) => self.v2_place(candidates(mount, &own.path), required, name),
        };
        match place {
            Ok((base, path)) => {
                let roles = required.with(Role::Usage).with(Role::Freezer);
                Ok(Some(Hierarchy { version: Version::V2, roles, base, path }))
            }
            // Beside v1 it only helps with freezing, killing and counting.
            Err(_) if required.is_empty() => Ok(None),
            Err(obstacle) => {
                let lacking = required.iter().filter(|&r| obstacle.concerns(r));
                Err(lacking.map(|r| obstacle.missing(r, Version::V2)).collect())
            }
        }
    }

    fn v2_place(
        &self,
        places: Vec<PathBuf>,
        required: Roles,
        name: &Name,
    ) -> Result<(Dir, PathBuf), Obstacle> {
        let mut worst = Obstacle::NotMounted;
        let mut open = Vec::new();
        for path in places {
            match open_v2(&path) {
                Ok(dir) => open.push((dir, path)),
                Err(errno) => worst = worst.max(Obstacle::Closed { path, errno }),
            }
        }
        if self.systemd {
            open = as_systemd_wants(open);
        }
        for (dir, path) in open {
            match enable(&dir, &path, required, name) {
                Ok(()) => return Ok((dir, path)),
                Err(obstacle) => worst = worst.max(obstacle),
            }
        }
        Err(worst)
    }
}

/// The mount in which the own cgroup can be seen, or else the first.
fn showing<'a>(
    mounts: impl Iterator<Item = &'a Mount> + Clone,
    own: &Membership,
) -> Option<&'a Mount> {
    mounts.clone().find(|m| own.path.starts_with(&m.root)).or_else(|| mounts.clone().next())
}

/// The own directory and those above it up to the mount, nearest first.
///
/// A process that was started inside a cgroup of hotcell's must not nest its own below that one,
/// which may be removed at any time, so the path is cut before the first such name.
fn candidates(mount: &Mount, own: &Path) -> Vec<PathBuf> {
    let below = own.strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let plain = below.components().all(|c| matches!(c, Component::Normal(_)));
    // `/../..` is a place outside this cgroup namespace: only the mount itself can be named.
    let components = if plain { below.components() } else { Path::new("").components() };
    let mut path = mount.point.clone();
    let mut places = vec![path.clone()];
    for component in components {
        let kind = ours(component.as_os_str().as_encoded_bytes());
        if matches!(kind, Some(Ours::Parent | Ours::Leaf)) {
            break;
        }
        path.push(component);
        places.push(path.clone());
    }
    places.reverse();
    places
}

fn last_name(path: &Path) -> Option<Ours> {
    ours(path.file_name()?.as_encoded_bytes())
}

fn nearest_writable(places: Vec<PathBuf>) -> Result<(Dir, PathBuf), Obstacle> {
    let mut worst = Obstacle::NotMounted;
    for path in places {
        match Dir::open(&path).and_then(|dir| dir.writable(c".").map(|()| dir)) {
            Ok(dir) => return Ok((dir, path)),
            Err(errno) => worst = worst.max(Obstacle::Closed { path, errno }),
        }
    }
    Err(worst)
}

fn open_v2(path: &Path) -> Result<Dir, Errno> {
    let dir = Dir::open(path)?;
    dir.writable(c".")?;
    dir.writable(c"cgroup.procs")?;
    Ok(dir)
}

/// systemd removes empty cgroups that it finds in a unit it ends, so only those are safe that it
/// gave away (nearest first), and the topmost that can be written, which never ends: the root for
/// root, the user's manager for a user.
fn as_systemd_wants(mut open: Vec<(Dir, PathBuf)>) -> Vec<(Dir, PathBuf)> {
    let top = open.pop();
    open.retain(|(dir, path)| last_name(path) == Some(Ours::Scope) || is_delegated(dir));
    open.extend(top);
    open
}

/// systemd marks what it delegates; reading the first mark takes privilege, the second does not.
fn is_delegated(dir: &Dir) -> bool {
    let mut value = [0; 8];
    [c"trusted.delegate", c"user.delegate"].into_iter().any(|mark| {
        let n = rustix::fs::fgetxattr(dir, mark, &mut value);
        n.is_ok_and(|n| value.get(..n) == Some(b"1".as_slice()))
    })
}

/// Makes `dir` pass the required controllers on to what is made in it.
fn enable(dir: &Dir, path: &Path, required: Roles, name: &Name) -> Result<(), Obstacle> {
    let refused = |errno| Obstacle::Refused { path: path.into(), errno };
    if required.is_empty() {
        return Ok(());
    }
    let available = dir.read(c"cgroup.controllers").map_err(refused)?;
    let lacking =
        Roles::of(required.iter().filter(|r| !parse::lists(available.as_bytes(), r.controller())));
    if !lacking.is_empty() {
        return Err(Obstacle::Lacks { path: path.into(), lacking });
    }
    let passed = dir.read(c"cgroup.subtree_control").map_err(refused)?;
    if required.iter().all(|r| parse::lists(passed.as_bytes(), r.controller())) {
        return Ok(());
    }
    match pass_on(dir, required) {
        // "No internal processes": it works when the only process in the way is this one.
        Err(Errno::BUSY) => {
            leave_for_leaf(dir, path, name)?;
            pass_on(dir, required).map_err(refused)
        }
        passed => passed.map_err(refused),
    }
}

pub(super) fn pass_on(dir: &Dir, required: Roles) -> Result<(), Errno> {
    let words: Vec<String> = required
        .iter()
        .filter(|r| REQUIRED.contains(r))
        .map(|r| format!("+{}", r.controller()))
        .collect();
    if words.is_empty() {
        return Ok(());
    }
    dir.write(c"cgroup.subtree_control", words.join(" ").as_bytes())
}

fn leave_for_leaf(dir: &Dir, path: &Path, name: &Name) -> Result<(), Obstacle> {
    let refused = |errno| Obstacle::Refused { path: path.into(), errno };
    let me = std::process::id();
    let procs = dir.procs().map_err(refused)?;
    if !parse::pids(&procs).eq([me]) {
        return Err(Obstacle::Occupied { path: path.into() });
    }
    let leaf = name.leaf();
    for _ in 0..LEAF_TRIES {
        match dir.make(leaf.as_str()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(refused(errno)),
        }
        match dir.child(leaf.as_str()).and_then(|leaf| leaf.write(c"cgroup.procs", b"0")) {
            Ok(()) => return Ok(()),
            // Removed in between by the sweep of another process.
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    Err(refused(Errno::NOENT))
}

/// Why a place cannot be used, the one that got furthest last.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    NotMounted,
    Closed { path: PathBuf, errno: Errno },
    Lacks { path: PathBuf, lacking: Roles },
    Occupied { path: PathBuf },
    Refused { path: PathBuf, errno: Errno },
}

impl Obstacle {
    fn rank(&self) -> u8 {
        match self {
            Obstacle::NotMounted => 0,
            Obstacle::Closed { .. } => 1,
            Obstacle::Lacks { .. } => 2,
            Obstacle::Occupied { .. } => 3,
            Obstacle::Refused { .. } => 4,
        }
    }

    /// The one of higher rank; of two alike, the first, which is nearer to the process.
    fn max(self, other: Obstacle) -> Obstacle {
        if other.rank() > self.rank() { other } else { self }
    }

    fn concerns(&self, role: Role) -> bool {
        match self {
            Obstacle::Lacks { lacking, .. } => lacking.has(role),
            _ => true,
        }
    }

    fn missing(&self, role: Role, version: Version) -> Missing {
        let controller = role.controller();
        Missing { controller, why: self.why(controller), fix: self.fix(controller, version) }
    }

    fn why(&self, controller: &str) -> String {
        match self {
            Obstacle::NotMounted => "no hierarchy that has it is mounted here".into(),
            Obstacle::Closed { path, errno: Errno::ROFS } => {
                format!("`{}` is mounted read-only", path.display())
            }
            Obstacle::Closed { path, errno } => {
                format!("`{}` cannot be written: {}", path.display(), cause(&(*errno).into()))
            }
            Obstacle::Lacks { path, .. } => {
                format!("`{}` was not given {controller}", path.display())
            }
            Obstacle::Occupied { path } => {
                format!("other processes are in `{}`, so it cannot pass it on", path.display())
            }
            Obstacle::Refused { path, errno } => {
                format!("`{}` does not pass it on: {}", path.display(), cause(&(*errno).into()))
            }
        }
    }

    fn fix(&self, controller: &str, version: Version) -> String {
        let absent = matches!(self, Obstacle::NotMounted | Obstacle::Lacks { .. });
        if absent && is_disabled(controller) {
            return format!("add cgroup_enable={controller} to the kernel's command line and boot");
        }
        match (self, version) {
            (Obstacle::NotMounted, _) => "mount -t cgroup2 cgroup2 /sys/fs/cgroup".into(),
            (Obstacle::Closed { errno: Errno::ROFS, path }, _) => format!(
                "mount -o remount,rw {} (for a container: start it with --privileged, or with \
                 --cgroupns=private and a writable /sys/fs/cgroup)",
                path.display()
            ),
            (Obstacle::Closed { path, .. }, Version::V1) => closed_v1_fix(path),
            (Obstacle::Closed { .. }, Version::V2) => CLOSED_V2_FIX.into(),
            (Obstacle::Lacks { .. }, _) => lacks_fix(controller),
            (Obstacle::Occupied { path }, _) => occupied_fix(path),
            (Obstacle::Refused { path, .. }, _) => {
                format!("echo +{controller} > {}/cgroup.subtree_control", path.display())
            }
        }
    }
}

/// As on boards whose firmware turns the memory controller off.
fn is_disabled(controller: &str) -> bool {
    let table = std::fs::read("/proc/cgroups").unwrap_or_default();
    parse::is_disabled(&table, controller)
}

/// v1 asks for the target alone, so a directory of one's own and being in it is enough.
fn closed_v1_fix(path: &Path) -> String {
    let own = format!("{}/user-$(id -u)", path.display());
    format!(
        "sudo mkdir -p {own} && sudo chown -R $(id -u) {own} && echo $$ | sudo tee \
         {own}/cgroup.procs"
    )
}

/// For hosts without systemd. The shell goes into a leaf, since what passes controllers on must be
/// empty, and what is owned must reach up to the nearest common ancestor.
const CLOSED_V2_FIX: &str = "cd /sys/fs/cgroup && echo '+memory +pids +cpu' | sudo tee \
     cgroup.subtree_control && sudo mkdir -p user-$(id -u)/shell && sudo chown -R $(id -u) \
     user-$(id -u) && echo $$ | sudo tee user-$(id -u)/shell/cgroup.procs";

fn lacks_fix(controller: &str) -> String {
    format!(
        "sudo mkdir -p /etc/systemd/system/user@.service.d && printf \
         '[Service]\\nDelegate=cpu memory pids\\n' | sudo tee \
         /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload, then \
         log in again (without systemd: echo +{controller} > /sys/fs/cgroup/cgroup.subtree_control)"
    )
}

fn occupied_fix(path: &Path) -> String {
    let path = path.display();
    format!(
        "mkdir {path}/init && for p in $(cat {path}/cgroup.procs); do echo $p > \
         {path}/init/cgroup.procs; done"
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::super::dbus::DbusError;
    use super::*;

    /// A host made of ordinary files, one v2 hierarchy in it.
    struct Fake {
        dir: tempfile::TempDir,
    }

    impl Fake {
        fn new(own: &str) -> Fake {
            let fake = Fake { dir: tempfile::tempdir().unwrap() };
            let mountinfo =
                format!("1 2 0:3 / {} rw - cgroup2 cgroup2 rw\n", fake.cgroup("").display());
            std::fs::write(fake.path("mountinfo"), mountinfo).unwrap();
            fake.set_own(own);
            fake
        }

        fn set_own(&self, own: &str) {
            std::fs::write(self.path("cgroup"), format!("0::{own}\n")).unwrap();
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn cgroup(&self, path: &str) -> PathBuf {
            let path = path.trim_start_matches('/');
            let point = self.path("fs");
            if path.is_empty() { point } else { point.join(path) }
        }

        /// A cgroup that may be written.
        fn open(self, path: &str, controllers: &str, passed: &str) -> Fake {
            self.make_open(path, controllers, passed);
            self
        }

        fn make_open(&self, path: &str, controllers: &str, passed: &str) {
            self.make(path);
            let dir = self.cgroup(path);
            std::fs::write(dir.join("cgroup.procs"), "").unwrap();
            std::fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
            std::fs::write(dir.join("cgroup.subtree_control"), passed).unwrap();
        }

        /// A cgroup that may not: root may write everything, but nobody what is not there.
        fn closed(self, path: &str) -> Fake {
            self.make(path);
            self
        }

        fn make(&self, path: &str) {
            std::fs::create_dir_all(self.cgroup(path)).unwrap();
        }

        fn passed(&self, path: &str) -> String {
            std::fs::read_to_string(self.cgroup(path).join("cgroup.subtree_control")).unwrap()
        }

        fn with_systemd(self) -> Fake {
            std::fs::create_dir(self.path("systemd")).unwrap();
            self
        }

        fn host(&self) -> Host {
            Host::fake(self.dir.path(), &self.path("systemd"))
        }

        fn find(&self) -> Result<PathBuf, Unavailable> {
            let nobody = |_: &str| panic!("systemd was asked");
            hierarchies(&self.host(), nobody).map(|found| found[0].path.clone())
        }
    }

    const ALL: &str = "cpuset cpu io memory pids\n";

    #[test]
    fn the_nearest_cgroup_that_has_everything_is_taken() {
        let fake = Fake::new("/a/b").open("/", ALL, ALL).open("/a", ALL, ALL).closed("/a/b");
        assert_eq!(fake.find().unwrap(), fake.cgroup("/a"));
    }

    #[test]
    fn controllers_are_passed_on_where_they_are_not_yet() {
        let fake = Fake::new("/").open("/", ALL, "");
        assert_eq!(fake.find().unwrap(), fake.cgroup("/"));
        assert_eq!(fake.passed("/"), "+memory +pids +cpu");
    }

    #[test]
    fn a_v2_hierarchy_serves_every_role_alone() {
        let fake = Fake::new("/").open("/", ALL, ALL);
        let found = hierarchies(&fake.host(), |_| panic!("systemd was asked")).unwrap();
        assert_eq!(found.len(), 1);
        assert!(Role::ALL.into_iter().all(|r| found[0].roles.has(r)));
    }

    #[test]
    fn on_a_systemd_host_only_the_top_is_safe_unless_delegated() {
        let fake = Fake::new("/user.slice/session-1.scope").with_systemd();
        let fake = fake.open("/", ALL, "memory pids").open("/user.slice", ALL, ALL);
        let fake = fake.open("/user.slice/session-1.scope", ALL, ALL);
        assert_eq!(fake.find().unwrap(), fake.cgroup("/"));

        let slice = fake.cgroup("/user.slice");
        let mark = rustix::fs::XattrFlags::empty();
        if let Err(e) = rustix::fs::setxattr(&slice, c"trusted.delegate", b"1", mark) {
            eprintln!("SKIPPED the delegated half of this test: cannot set the mark: {e}");
            return;
        }
        assert_eq!(fake.find().unwrap(), slice);
    }

    #[test]
    fn only_the_controller_that_was_not_given_is_missing() {
        let fake = Fake::new("/").open("/", "memory pids", "memory pids");
        let missing = fake.find().unwrap_err().missing;
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].controller, "cpu");
        assert!(missing[0].fix.contains("Delegate=cpu memory pids"), "{}", missing[0].fix);
    }

    #[test]
    fn a_closed_hierarchy_names_the_nearest_place() {
        let fake = Fake::new("/a").closed("/a");
        let unavailable = fake.find().unwrap_err();
        assert_eq!(unavailable.missing.len(), 3);
        let place = fake.cgroup("/a").display().to_string();
        assert!(unavailable.to_string().contains(&place), "{unavailable}");
    }

    #[test]
    fn without_any_hierarchy_everything_is_missing() {
        let fake = Fake::new("/");
        std::fs::write(fake.path("mountinfo"), "garbage\n").unwrap();
        let missing = fake.find().unwrap_err().missing;
        let controllers: Vec<_> = missing.iter().map(|m| m.controller).collect();
        assert_eq!(controllers, ["memory", "pids", "cpu"]);
        std::fs::remove_file(fake.path("mountinfo")).unwrap();
        assert_eq!(fake.find().unwrap_err().missing.len(), 3);
    }

    #[test]
    fn systemd_is_asked_when_nothing_else_works_and_its_scope_is_used() {
        let fake = Fake::new("/session-1.scope").closed("/session-1.scope").with_systemd();
        let asked = Cell::new(String::new());
        let found = hierarchies(&fake.host(), |unit| {
            asked.set(unit.into());
            fake.make_open(&format!("/app.slice/{unit}"), ALL, "");
            fake.set_own(&format!("/app.slice/{unit}"));
            Ok(())
        });
        let found = found.unwrap();
        let unit = asked.take();
        assert_eq!(ours(unit.as_bytes()), Some(Ours::Scope));
        assert_eq!(found[0].path, fake.cgroup(&format!("/app.slice/{unit}")));
        assert!(found[0].is_own_scope());
        assert_eq!(fake.passed(&format!("/app.slice/{unit}")), "+memory +pids +cpu");
    }

    #[test]
    fn what_systemd_said_is_part_of_the_reason() {
        let fake = Fake::new("/session-1.scope").closed("/session-1.scope").with_systemd();
        let found = hierarchies(&fake.host(), |_| {
            let source = DbusError::Connect(io::ErrorKind::NotFound.into());
            Err(ScopeError::Bus { socket: "/run/user/1000/bus".into(), source })
        });
        let missing = found.unwrap_err().missing;
        assert_eq!(missing.len(), 3);
        assert!(missing[0].why.contains("/run/user/1000/bus"), "{}", missing[0].why);
        assert!(missing[0].fix.contains("enable-linger"), "{}", missing[0].fix);
    }

    #[test]
    fn joined_v1_controllers_are_one_hierarchy_and_absent_ones_are_missing() {
        let fake = Fake::new("/");
        let mut mountinfo = String::new();
        for (point, options) in [("cpu,cpuacct", "rw,cpu,cpuacct"), ("memory", "rw,memory")] {
            fake.make(&format!("/{point}/own"));
            let point = fake.cgroup(&format!("/{point}")).display().to_string();
            mountinfo.push_str(&format!("1 2 0:3 / {point} rw - cgroup cgroup {options}\n"));
        }
        std::fs::write(fake.path("mountinfo"), mountinfo).unwrap();
        let own = "3:cpu,cpuacct:/own\n2:memory:/own\n1:name=systemd:/own\n";
        std::fs::write(fake.path("cgroup"), own).unwrap();
        let missing = fake.find().unwrap_err().missing;
        assert_eq!(missing.iter().map(|m| m.controller).collect::<Vec<_>>(), ["pids"]);

        std::fs::write(fake.path("cgroup"), format!("{own}4:pids:/own\n")).unwrap();
        assert_eq!(fake.find().unwrap_err().missing[0].controller, "pids");

        fake.make("/pids/own");
        let point = fake.cgroup("/pids").display().to_string();
        let line = format!("5 2 0:4 / {point} rw - cgroup cgroup rw,pids\n");
        let text = std::fs::read_to_string(fake.path("mountinfo")).unwrap() + &line;
        std::fs::write(fake.path("mountinfo"), text).unwrap();
        let found = hierarchies(&fake.host(), |_| panic!("systemd was asked")).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found[0].roles.has(Role::Cpu) && found[0].roles.has(Role::Usage));
        assert_eq!(found[0].path, fake.cgroup("/cpu,cpuacct/own"));
    }

    #[test]
    fn candidates_stay_outside_of_our_own_cgroups_and_inside_the_mount() {
        let check = |root: &str, own: &str, expected: &[&str]| {
            let mount = Mount {
                version: Version::V2,
                root: root.into(),
                point: "/m".into(),
                options: Vec::new(),
            };
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(candidates(&mount, Path::new(own)), expected, "{root} {own}");
        };
        check("/", "/", &["/m"]);
        check("/", "/a/b", &["/m/a/b", "/m/a", "/m"]);
        check("/docker/1", "/docker/1/x", &["/m/x", "/m"]);
        check("/docker/1", "/elsewhere", &["/m"]);
        check("/", "/../../host", &["/m"]);
        check("/", "/a/hotcell-0123456789abcdef/3", &["/m/a", "/m"]);
        check("/", "/a/hotcell-0123456789abcdef.self", &["/m/a", "/m"]);
        let scope = "/m/a/hotcell-0123456789abcdef.scope";
        check("/", "/a/hotcell-0123456789abcdef.scope", &[scope, "/m/a", "/m"]);
    }

    #[test]
    fn nobody_else_is_moved_out_of_the_way() {
        let fake = Fake::new("/").open("/", ALL, "");
        std::fs::write(fake.cgroup("/").join("cgroup.procs"), "1\n2\n").unwrap();
        let path = fake.cgroup("/");
        let dir = Dir::open(&path).unwrap();
        let moved = leave_for_leaf(&dir, &path, &Name::random().unwrap());
        assert_eq!(moved, Err(Obstacle::Occupied { path }));
    }

    /// Not a test: a process of its own that a test can move about.
    #[test]
    #[ignore = "started by a_process_alone_in_its_cgroup_moves_into_a_leaf"]
    fn process_that_moves() {
        let Some(path) = std::env::var_os("HOTCELL_TEST_CGROUP").map(PathBuf::from) else { return };
        let dir = Dir::open(&path).unwrap();
        dir.write(c"cgroup.procs", b"0").unwrap();
        // What it has started is born where it is, and is not left behind.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let with_a_child = leave_for_leaf(&dir, &path, &Name::random().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(with_a_child, Err(Obstacle::Occupied { path: path.clone() }));
        leave_for_leaf(&dir, &path, &Name::random().unwrap()).unwrap();
        assert_eq!(dir.procs().unwrap(), b"");
        let own = parse::memberships(&std::fs::read("/proc/self/cgroup").unwrap());
        let own = own.iter().find(|m| m.version() == Version::V2).unwrap();
        assert_eq!(last_name(&own.path), Some(Ours::Leaf));
    }

    #[test]
    fn a_process_alone_in_its_cgroup_moves_into_a_leaf() {
        let points = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let point = points.iter().find(|p| p.join("cgroup.subtree_control").exists());
        let base = point.and_then(|p| Dir::open(p).ok()).filter(|b| b.writable(c".").is_ok());
        let Some((point, base)) = point.zip(base) else {
            eprintln!("SKIPPED a_process_alone_in_its_cgroup_moves_into_a_leaf: needs root and v2");
            return;
        };
        let name = format!("leaf-test-{}", std::process::id());
        base.make(name.as_str()).unwrap();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cgroup::find::tests::process_that_moves", "--ignored"])
            .env("HOTCELL_TEST_CGROUP", point.join(&name))
            .status();
        let dir = base.child(name.as_str()).unwrap();
        for leaf in dir.children().unwrap() {
            dir.remove(leaf.as_c_str()).unwrap();
        }
        base.remove(name.as_str()).unwrap();
        assert!(status.unwrap().success());
    }
}
