//! From facts and a trial to layers, level and what would raise it. Pure.

use hotcell_types::{Layer, LayerReport, Level, Outcome};

use super::facts::HostFacts;
use super::reason::{OLDEST_KERNEL, OPEN_FILES_LEAST, Reason};
use crate::Refusal;

/// What came of really running something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// The jail stood, with these layers.
    Ran { level: Level, layers: Vec<LayerReport> },
    /// It did not come to a run.
    Refused { layer: Option<Layer>, why: String, fix: String },
}

impl From<&Outcome> for Trial {
    fn from(outcome: &Outcome) -> Trial {
        Trial::Ran { level: outcome.level, layers: outcome.layers.clone() }
    }
}

impl From<&Refusal> for Trial {
    fn from(refusal: &Refusal) -> Trial {
        let (layer, why, fix) = match refusal {
            Refusal::Layer { layer, why, fix } => (Some(*layer), why.clone(), fix.clone()),
            Refusal::Level { why, fix, .. } | Refusal::Invalid { why, fix, .. } => {
                (None, why.clone(), fix.clone())
            }
            Refusal::Busy { .. } => (None, refusal.to_string(), "wait and run it again".into()),
            Refusal::NotRunnable { why, .. } => (None, why.clone(), String::new()),
            Refusal::Internal { doing, source } => {
                (None, format!("{doing}: {source}"), String::new())
            }
        };
        Trial::Refused { layer, why, fix }
    }
}

/// What a host gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// `None` where nothing can run.
    pub level: Option<Level>,
    /// In the order of `Layer::ALL`.
    pub layers: Vec<Check>,
    /// What stands between this level and the next; `None` at the highest.
    pub next: Option<Next>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub layer: Layer,
    pub active: bool,
    /// What was read back, or why it is off.
    pub seen: String,
    /// Why it is off, where that is known.
    pub reason: Option<Reason>,
}

/// The next level, and everything that is in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    pub level: Level,
    pub obstacles: Vec<Obstacle>,
}

/// One thing to change, for all the layers that it keeps off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub layers: Vec<Layer>,
    pub reason: Reason,
}

/// What this host gives, why not more, and what would change it.
pub fn diagnose(facts: &HostFacts, trial: &Trial) -> Diagnosis {
    let layers: Vec<Check> = Layer::ALL.into_iter().map(|l| check(facts, trial, l)).collect();
    let level = match trial {
        Trial::Ran { level, .. } => Some(*level),
        Trial::Refused { .. } => None,
    };
    let next = match trial {
        Trial::Ran { level, .. } => above(*level).map(|next| in_the_way(next, &layers)),
        Trial::Refused { layer, why, fix } => Some(first_step(facts, *layer, why, fix, &layers)),
    };
    Diagnosis { level, layers, next }
}

fn above(level: Level) -> Option<Level> {
    Level::ALL.into_iter().find(|&other| other > level)
}

/// Everything that `next` has and this host does not.
fn in_the_way(next: Level, layers: &[Check]) -> Next {
    let mut obstacles: Vec<Obstacle> = Vec::new();
    for check in layers.iter().filter(|c| !c.active && c.layer.since() <= next) {
        let Some(reason) = &check.reason else { continue };
        match obstacles.iter_mut().find(|o| o.reason.fix() == reason.fix()) {
            Some(same) => same.layers.push(check.layer),
            None => {
                obstacles.push(Obstacle { layers: vec![check.layer], reason: reason.clone() });
            }
        }
    }
    Next { level: next, obstacles }
}

/// Where nothing ran, the one thing that ended the attempt comes first: what else there may be shows
/// when it is out of the way.
fn first_step(
    facts: &HostFacts,
    layer: Option<Layer>,
    why: &str,
    fix: &str,
    layers: &[Check],
) -> Next {
    let reason = match layer {
        Some(layer) => reason(facts, layer, why, fix),
        None => is_hopeless(facts).unwrap_or_else(|| unexplained(why, fix)),
    };
    let same = |c: &&Check| c.reason.as_ref() == Some(&reason);
    let mut affected: Vec<Layer> = layers.iter().filter(same).map(|c| c.layer).collect();
    if affected.is_empty() {
        affected.extend(layer);
    }
    let level = affected.iter().map(|l| l.since()).max().unwrap_or(Level::LandlockOnly);
    Next { level, obstacles: vec![Obstacle { layers: affected, reason }] }
}

fn check(facts: &HostFacts, trial: &Trial, layer: Layer) -> Check {
    let off =
        |reason: Reason| Check { layer, active: false, seen: reason.why(), reason: Some(reason) };
    match trial {
        Trial::Ran { level, layers } => match layers.iter().find(|report| report.layer == layer) {
            Some(report) if report.active => {
                Check { layer, active: true, seen: report.seen.clone(), reason: None }
            }
            report => {
                let seen = report.map_or("it was not reported", |r| r.seen.as_str());
                off(reason(facts, decisive(*level, layer), seen, ""))
            }
        },
        Trial::Refused { layer: Some(failed), why, fix } if *failed == layer => {
            off(reason(facts, layer, why, fix))
        }
        Trial::Refused { layer: failed, .. } => not_reached(facts, *failed, layer),
    }
}

/// The layer whose absence explains that of another: without namespaces there is no place for a /proc.
fn decisive(level: Level, layer: Layer) -> Layer {
    match (level, layer) {
        (Level::LandlockOnly, Layer::Proc) => Layer::Root,
        _ => layer,
    }
}

/// A layer that no run got as far as: what the host says of it by itself.
fn not_reached(facts: &HostFacts, failed: Option<Layer>, layer: Layer) -> Check {
    let by_itself = match layer {
        Layer::Landlock => match facts.landlock_abi {
            Some(abi) => Ok(format!("ABI {abi} (asked, not tried)")),
            None => Err(Some(landlock(facts))),
        },
        Layer::Seccomp if facts.seccomp_filters => {
            Ok("the kernel has it (asked, not tried)".into())
        }
        Layer::Seccomp => Err(Some(Reason::NoSeccomp)),
        Layer::CgroupMemory | Layer::CgroupPids | Layer::CgroupCpu => no_cgroup(facts, layer)
            .map_or_else(
                || Ok("there is a place for it (asked, not tried)".into()),
                |reason| Err(Some(reason)),
            ),
        Layer::UniqueId => Err(unique_id(facts)),
        // A reason for one of these is a reason for all that the kernel makes at the same time.
        _ if is_namespace(layer) && failed.is_some_and(is_namespace) => {
            Err(known_namespaces(facts, layer))
        }
        Layer::Proc if !facts.masked_proc.is_empty() => Err(Some(masked(facts))),
        _ => Err(None),
    };
    let (active, seen, reason) = match by_itself {
        Ok(seen) => (true, seen, None),
        Err(Some(reason)) => (false, reason.why(), Some(reason)),
        Err(None) => {
            let at = failed.map_or(String::new(), |f| format!(" at `{f}`"));
            (false, format!("not tried: the run ended before it{at}"), None)
        }
    };
    Check { layer, active, seen, reason }
}

fn is_namespace(layer: Layer) -> bool {
    layer.since() == Level::NoProc
}

/// Why `layer` is off; `said` and `fix` are what hotcell itself could say about it.
fn reason(facts: &HostFacts, layer: Layer, said: &str, fix: &str) -> Reason {
    let known = match layer {
        _ if is_hopeless(facts).is_some() => is_hopeless(facts),
        Layer::Landlock => facts.landlock_abi.is_none().then(|| landlock(facts)),
        Layer::Seccomp => (!facts.seccomp_filters).then_some(Reason::NoSeccomp),
        Layer::Proc => Some(masked(facts)),
        Layer::CgroupMemory | Layer::CgroupPids | Layer::CgroupCpu => no_cgroup(facts, layer),
        Layer::UniqueId => unique_id(facts),
        // Nothing is built at all where the launcher cannot be executed.
        Layer::Root if facts.memfd_noexec >= 2 => Some(Reason::MemfdNoexec),
        _ if is_namespace(layer) => known_namespaces(facts, layer),
        _ => None,
    };
    known.unwrap_or_else(|| match facts.under_seccomp && layer.since() < Level::User {
        true => under_seccomp(facts),
        false => unexplained(said, fix),
    })
}

/// What keeps everything from working, whatever failed first.
fn is_hopeless(facts: &HostFacts) -> Option<Reason> {
    if facts.kernel_version() < OLDEST_KERNEL {
        return Some(Reason::OldKernel { release: facts.kernel.clone() });
    }
    let limit = facts.open_files;
    (limit < OPEN_FILES_LEAST).then_some(Reason::FewOpenFiles { limit })
}

fn under_seccomp(facts: &HostFacts) -> Reason {
    Reason::UnderSeccomp { container: facts.container }
}

fn unexplained(said: &str, fix: &str) -> Reason {
    let report = "report it with the output of `hotcell doctor --json`";
    let fix = if fix.is_empty() || fix.contains("hotcell doctor") { report } else { fix };
    Reason::Unexplained { said: said.into(), fix: fix.into() }
}

fn landlock(facts: &HostFacts) -> Reason {
    if facts.kernel_version() < OLDEST_KERNEL {
        return Reason::OldKernel { release: facts.kernel.clone() };
    }
    let on = facts.lsm.iter().flatten().any(|name| name == "landlock");
    if on || (facts.lsm.is_none() && facts.under_seccomp) {
        return Reason::LandlockHidden { container: facts.container };
    }
    Reason::LandlockOff { lsm: facts.lsm.clone(), wsl: facts.wsl }
}

fn masked(facts: &HostFacts) -> Reason {
    Reason::MaskedProc { container: facts.container, masked: facts.masked_proc.clone() }
}

fn no_cgroup(facts: &HostFacts, layer: Layer) -> Option<Reason> {
    let controller = match layer {
        Layer::CgroupMemory => "memory",
        Layer::CgroupPids => "pids",
        _ => "cpu",
    };
    let missing = facts.missing_controllers.iter().find(|m| m.controller == controller)?;
    Some(Reason::NoCgroup { controller, why: missing.why.clone(), fix: missing.fix.clone() })
}

/// What keeps namespaces, or the mounts in them, from being made: the first that applies, from what
/// forbids them to everybody to what forbids them to this process.
fn known_namespaces(facts: &HostFacts, layer: Layer) -> Option<Reason> {
    let forbidden = &facts.forbidden_namespaces;
    // The kernel does not say which of several it refused.
    if let Some(&layer) = forbidden.iter().find(|l| **l == layer).or(forbidden.first()) {
        return Some(Reason::NamespacesForbidden { layer });
    }
    if facts.chrooted {
        return Some(Reason::Chroot);
    }
    // With this capability no user namespace has to come first.
    let ordinary = !facts.sys_admin;
    if let Some(container) = facts.container
        && (facts.under_seccomp || ordinary)
    {
        return Some(Reason::Container { container });
    }
    if ordinary && facts.userns_clone_off {
        return Some(Reason::UsernsCloneOff);
    }
    if ordinary && facts.apparmor_restricts {
        return Some(Reason::AppArmor { program: facts.program.clone() });
    }
    if facts.under_seccomp {
        return Some(under_seccomp(facts));
    }
    (!ordinary && !facts.ids_mapped).then_some(Reason::UnmappedIds)
}

/// Why runs have no ids of their own.
fn unique_id(facts: &HostFacts) -> Option<Reason> {
    match facts {
        HostFacts { uid: 1.., sys_admin: false, .. } => Some(Reason::NotRoot),
        HostFacts { ids_mapped: false, .. } => Some(Reason::UnmappedIds),
        HostFacts { sys_admin: false, .. } => Some(Reason::RootWithoutPrivileges),
        _ => None,
    }
}
