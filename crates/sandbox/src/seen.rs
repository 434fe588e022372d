//! What the launcher read back, as the layers of the result.

use hotcell_jail::wire::Seen;
use hotcell_types::{Layer, LayerReport, Level, Profile};

use crate::Network;

/// What else there is to say about a run's layers.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) level: Level,
    pub(crate) landlock_abi: u32,
    pub(crate) profile: Profile,
    pub(crate) network: Network,
    /// What the cgroup's limits were read back as, by layer.
    pub(crate) cgroup: Vec<(Layer, String)>,
    pub(crate) unique_id: bool,
}

/// One report per layer, in the order of `Layer::ALL`.
pub(crate) fn layers(seen: &Seen, context: &Context) -> Vec<LayerReport> {
    Layer::ALL.into_iter().map(|layer| report(layer, seen, context)).collect()
}

fn report(layer: Layer, seen: &Seen, context: &Context) -> LayerReport {
    let [user, mnt, pid, net, ipc, uts, cgroup] = seen.namespaces;
    let namespace = |inode: u64| (inode != 0, format!("inode {inode}"));
    let (active, text) = match layer {
        Layer::UserNamespace => namespace(user),
        Layer::MountNamespace => namespace(mnt),
        Layer::PidNamespace => namespace(pid),
        Layer::NetNamespace => match context.network {
            Network::None => namespace(net),
            Network::Proxied => {
                (net != 0 && seen.listeners > 0, format!("inode {net}, proxy only"))
            }
        },
        Layer::IpcNamespace => namespace(ipc),
        Layer::UtsNamespace => namespace(uts),
        Layer::CgroupNamespace => namespace(cgroup),
        Layer::Root => {
            (seen.mounts > 0, format!("{} mounts, {} writable", seen.mounts, seen.writable_mounts))
        }
        Layer::Proc => (seen.proc_mounted, "its own processes only, read-only".into()),
        Layer::Landlock => (seen.landlock_denied, format!("ABI {}", context.landlock_abi)),
        Layer::Seccomp => (
            seen.seccomp_filters > 0,
            format!("profile {}, {} filters", context.profile, seen.seccomp_filters),
        ),
        Layer::Capabilities => {
            (seen.capabilities == 0, format!("all sets {:#x}", seen.capabilities))
        }
        Layer::NoNewPrivs => (seen.no_new_privs, "set".into()),
        Layer::UniqueId => (context.unique_id, format!("uid {}, gid {}", seen.uid, seen.gid)),
        Layer::Session => (
            seen.own_session && seen.descriptors == 3,
            format!("own session, no terminal, {} descriptors", seen.descriptors),
        ),
        Layer::Rlimits => (seen.open_files > 0, format!("{} open files, no core", seen.open_files)),
        Layer::CgroupMemory | Layer::CgroupPids | Layer::CgroupCpu => {
            match context.cgroup.iter().find(|(of, _)| *of == layer) {
                Some((_, text)) => (true, text.clone()),
                None => (false, "not enforced: this host gives no cgroup".into()),
            }
        }
    };
    let seen = if active || text.starts_with("not enforced") { text } else { off(layer, context) };
    LayerReport { layer, active, seen }
}

fn off(layer: Layer, context: &Context) -> String {
    if layer == Layer::Root && context.level == Level::LandlockOnly {
        return "off: disk and number of files are not limited, only the size of each file".into();
    }
    format!("off at level {} ({layer} needs {})", context.level, layer.since())
}
