//! What the machine is and what else it was doing.

use std::fs;

use crate::peers::Failure;

/// Load per processor above which times are not to be trusted.
const BUSY: f64 = 0.3;

/// Processor time in the kernel's ticks, and the load average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed {
    pub(crate) load: f64,
    /// All processors together: everything but idling, and what the hypervisor took.
    busy: f64,
    stolen: f64,
    total: f64,
    /// This process with everything that it has waited for.
    own: f64,
}

impl Observed {
    pub(crate) fn now() -> Result<Observed, Failure> {
        let stat = fs::read_to_string("/proc/stat")?;
        let cpu = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> =
            cpu.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0.0);
        let total: f64 = ticks.iter().take(8).sum();
        let own = fs::read_to_string("/proc/self/stat")?;
        let fields = own.rsplit(')').next().unwrap_or_default().split_whitespace();
        // utime, stime, cutime, cstime
        let own = fields.skip(11).take(4).filter_map(|n| n.parse::<f64>().ok()).sum();
        let busy = total - at(3) - at(4) - at(7);
        Ok(Observed { load: load()?, busy, stolen: at(7), total, own })
    }

    /// Shares of the machine's processor time since then: of other programs, and of other machines.
    pub(crate) fn others_since(&self, begun: &Observed) -> (f64, f64) {
        let total = (self.total - begun.total).max(1.0);
        let others = (self.busy - begun.busy) - (self.own - begun.own);
        (others.max(0.0) / total, (self.stolen - begun.stolen) / total)
    }
}

/// Processor time of a process so far, in seconds.
pub(crate) fn spent(pid: u32) -> Result<f64, Failure> {
    // The unit of times in /proc, whatever the kernel's own is.
    const PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // utime, stime
    let ticks: f64 = fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    Ok(ticks / PER_SECOND)
}

pub(crate) fn warn_when_busy() {
    let per_core = load().unwrap_or(0.0) / cores() as f64;
    if per_core > BUSY {
        eprintln!(
            "warning: the machine is busy (load {per_core:.1} per processor): trust the ratios more \
             than the times, and neither much"
        );
    }
}

fn load() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Version of the kernel without what the builder of this one added.
pub(crate) fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().split('-').next().unwrap_or_default().to_owned()
}
