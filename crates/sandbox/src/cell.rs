//! Cells: jails that wait for their one job, with the cgroup and the id that they were made with.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use hotcell_jail::wire::{Entrance, Limits as WireLimits, Order};
use hotcell_types::{Layer, Limits, Profile, Template};

use crate::cgroup::{Cgroup, CgroupError, Dies};
use crate::hold::Hold;
use crate::ids::{Id, IdPool};
use crate::kept::Standing;
use crate::launcher::packet_pair;
use crate::native::{Base, Ground};
use crate::places::Places;
use crate::{Network, Refusal, start};

/// What a cell is made for. A job takes only a cell that was made for its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub(crate) limits: Limits,
    pub(crate) loopback: bool,
    pub(crate) network: Network,
    /// The zygote that it is forked from; none is zero.
    pub(crate) zygote: u8,
    #[cfg(feature = "holes")]
    pub(crate) holes: crate::Holes,
}

impl Kind {
    /// How many sockets its way out has.
    pub(crate) fn listeners(&self) -> usize {
        match self.network {
            Network::None => 0,
            Network::Proxied => 1 + usize::from(self.loopback),
        }
    }

    pub fn of(job: &crate::Job) -> Kind {
        Kind {
            loopback: job.profile == Profile::StandardNet,
            network: job.network,
            #[cfg(feature = "holes")]
            holes: job.holes,
            ..Kind::of_limits(job.limits)
        }
    }

    pub(crate) fn of_limits(limits: Limits) -> Kind {
        // These two are kept outside of the cell, as those of the job that it is given: a cell, and with it the
        // demand for such ones, is the same whatever they are.
        let Limits { timeout, output, .. } = Template::DEFAULT.limits;
        Kind {
            limits: Limits { timeout, output, ..limits },
            loopback: false,
            network: Network::None,
            zygote: 0,
            #[cfg(feature = "holes")]
            holes: crate::Holes::default(),
        }
    }
}

/// A jail without a job. Dropping it ends it: the fields go in this order.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) ordered: Instant,
    /// To the spawner.
    pub(crate) socket: OwnedFd,
    /// To the cell itself.
    pub(crate) line: OwnedFd,
    pub(crate) hold: Hold,
    /// Where it works without a mount namespace.
    pub(crate) places: Option<Places>,
    /// Given back when nothing is left that has it.
    pub(crate) id: Option<Id>,
}

impl Cell {
    /// Orders one from the launcher. What goes wrong in it is told on its socket.
    pub(crate) fn order(ground: &Ground, base: &Base, kind: Kind) -> Result<Cell, Refusal> {
        Cell::order_kept(ground, base, kind, 0)
    }

    /// The same, of one inside which others are made by this number.
    pub(crate) fn order_kept(
        ground: &Ground,
        base: &Base,
        kind: Kind,
        keeps: u32,
    ) -> Result<Cell, Refusal> {
        // Without namespaces there is no id but one's own.
        let pool = ground.ids.as_ref().filter(|_| !base.setup.bare);
        let id = pool.map(reserve_id).transpose()?;
        let cgroups = ground.cgroups.as_ref();
        #[cfg(feature = "holes")]
        let (id, cgroups) =
            (id.filter(|_| !kind.holes.own_id), cgroups.filter(|_| !kind.holes.cgroup));
        let cgroup = match cgroups {
            Some(cgroups) => {
                let dies = if keeps == 0 { Dies::Together } else { Dies::Alone };
                Some(cgroups.create_for(&kind.limits, dies).map_err(cgroup_refusal)?)
            }
            None => None,
        };
        let pair = || packet_pair().map_err(start::internal("making the run's sockets"));
        let ((socket, spawners), (line, cells)) = (pair()?, pair()?);
        let mut fds: Vec<BorrowedFd<'_>> = vec![spawners.as_fd(), cells.as_fd()];
        // A zygote is nobody who may put its children into a cgroup: they go there through open files.
        let joins = match &cgroup {
            Some(cgroup) if kind.zygote != 0 => cgroup.joins().map_err(cgroup_refusal)?,
            _ => Vec::new(),
        };
        let entrance = match kind.zygote {
            0 => enter(cgroup.as_ref(), &mut fds),
            _ => Entrance { born: false, joins: u8::try_from(joins.len()).unwrap_or(u8::MAX) },
        };
        fds.extend(joins.iter().map(AsFd::as_fd));
        let places = base.setup.bare.then(|| Places::make(&ground.home)).transpose();
        let places = places.map_err(start::internal("making a directory for the run"))?;
        fds.extend(places.as_ref().map(Places::fd));
        let name = cgroup.as_ref().map(Cgroup::name).unwrap_or_default();
        let order = Order {
            outer_uid: outer_uid(id.as_ref()),
            outer_gid: outer_gid(id.as_ref()),
            limits: limits(&kind.limits, cgroup.is_some()),
            entrance,
            cgroup_name: name.as_bytes(),
            loopback: kind.loopback,
            proxied: kind.network == Network::Proxied,
            brings_places: places.is_some(),
            zygote: kind.zygote,
            keeps,
            inside: 0,
            #[cfg(feature = "holes")]
            holes: kind.holes.layers,
        };
        base.nursery.forks(kind.zygote);
        send(base, &order, &fds)?;
        drop(fds);
        let hold = Hold::of(cgroup);
        Ok(Cell { kind, ordered: Instant::now(), socket, line, hold, places, id })
    }

    /// Orders one inside a cell that is kept: with its places, its network, its id and its cgroup.
    pub(crate) fn order_inside(
        base: &Base,
        kind: Kind,
        standing: &Arc<Standing>,
    ) -> Result<Cell, Refusal> {
        let pair = || packet_pair().map_err(start::internal("making the run's sockets"));
        let ((socket, spawners), (line, cells)) = (pair()?, pair()?);
        let mut fds: Vec<BorrowedFd<'_>> = vec![spawners.as_fd(), cells.as_fd()];
        let entrance = enter(standing.cgroup.as_ref(), &mut fds);
        let name = standing.cgroup.as_ref().map(Cgroup::name).unwrap_or_default();
        let order = Order {
            outer_uid: outer_uid(standing.id.as_ref()),
            outer_gid: outer_gid(standing.id.as_ref()),
            limits: limits(&kind.limits, standing.cgroup.is_some()),
            entrance,
            cgroup_name: name.as_bytes(),
            loopback: kind.loopback,
            proxied: kind.network == Network::Proxied,
            brings_places: false,
            zygote: 0,
            keeps: 0,
            inside: standing.number,
            #[cfg(feature = "holes")]
            holes: kind.holes.layers,
        };
        send(base, &order, &fds)?;
        drop(fds);
        let hold = Hold::inside(standing);
        Ok(Cell { kind, ordered: Instant::now(), socket, line, hold, places: None, id: None })
    }

    /// Id of its processes outside, where that is not one's own.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.id.as_ref().map(Id::number).or_else(|| self.hold.owner())
    }

    /// How many sockets it hands out.
    pub(crate) fn handed(&self) -> usize {
        if self.hold.is_shared() { 0 } else { self.kind.listeners() }
    }
}

fn send(base: &Base, order: &Order<'_>, fds: &[BorrowedFd<'_>]) -> Result<(), Refusal> {
    let ordered = base.launcher.order(order, fds);
    ordered.map_err(|e| Refusal::of_talking("ordering a cell from the launcher", e))
}

fn outer_uid(id: Option<&Id>) -> u32 {
    id.map_or_else(|| rustix::process::geteuid().as_raw(), Id::number)
}

fn outer_gid(id: Option<&Id>) -> u32 {
    id.map_or_else(|| rustix::process::getegid().as_raw(), Id::number)
}

pub(crate) fn enter<'a>(cgroup: Option<&'a Cgroup>, fds: &mut Vec<BorrowedFd<'a>>) -> Entrance {
    let Some(entry) = cgroup.map(Cgroup::entry) else { return Entrance::default() };
    let joins = u8::try_from(entry.joins.len()).unwrap_or(u8::MAX);
    fds.extend(entry.born);
    fds.extend(entry.joins);
    Entrance { born: entry.born.is_some(), joins }
}

fn limits(limits: &Limits, has_cgroup: bool) -> WireLimits {
    // Where no cgroup holds the run as a whole, each process is held by itself.
    let alone = |value: u64| if has_cgroup { 0 } else { value };
    let cpu_seconds = limits.cpu_time.map_or(0, |span| span.as_millis().div_ceil(1000));
    WireLimits {
        disk_bytes: limits.disk.get(),
        file_bytes: limits.file_size.map_or(limits.disk, |most| most.min(limits.disk)).get(),
        files: limits.files.get(),
        open_files: limits.open_files.get(),
        data_bytes: alone(limits.memory.get()),
        processes: alone(limits.pids.get()),
        cpu_seconds: alone(cpu_seconds),
    }
}

pub(crate) fn cgroup_refusal(error: CgroupError) -> Refusal {
    let fix = error.fix().to_owned();
    Refusal::Layer { layer: Layer::CgroupMemory, why: error.to_string(), fix }
}

pub(crate) fn reserve_id(pool: &IdPool) -> Result<Id, Refusal> {
    match pool.reserve() {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(Refusal::Layer {
            layer: Layer::UniqueId,
            why: "every id is in use".into(),
            fix: "wait until other runs have ended".into(),
        }),
        Err(source) => Err(start::internal("reserving an id")(source)),
    }
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Bytes, Count, Span};

    use super::*;

    #[test]
    fn a_cell_suits_every_job_that_differs_only_in_what_is_kept_outside_of_it() {
        let limits = Template::DEFAULT.limits;
        let kind = Kind::of_limits(limits);
        let timeout = Limits { timeout: Span::millis(77), ..limits };
        let output = Limits { output: Bytes::kib(7), ..limits };
        for same in [timeout, output] {
            assert_eq!(Kind::of_limits(same), kind);
        }
        let memory = Limits { memory: Bytes::mib(77), ..limits };
        let pids = Limits { pids: Count::of(77), ..limits };
        let files = Limits { files: Count::of(77), ..limits };
        let file_size = Limits { file_size: Some(Bytes::kib(7)), ..limits };
        let cpu_time = Limits { cpu_time: Some(Span::millis(77)), ..limits };
        for other in [memory, pids, files, file_size, cpu_time] {
            assert_ne!(Kind::of_limits(other), kind);
        }
    }
}
