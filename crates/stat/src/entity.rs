//! What a row is about: a thread, a process, a program, a PU or a part of the machine.

use perch_core::{ThreadId, ThreadInfo, Topology};
use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// By what rows are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// Each thread.
    #[default]
    Thread,
    /// The threads of a process together.
    Process,
    /// Threads of the same name together.
    Command,
    /// All threads together.
    All,
    /// Each PU, whatever runs on it.
    Pu,
    /// The PUs of a core together.
    Core,
    /// The PUs of a package together.
    Package,
    /// The PUs of a NUMA node together.
    Node,
    /// All PUs together.
    Machine,
}

impl By {
    /// All of them, with the names that the command line has.
    pub const ALL: [(&'static str, Self); 9] = [
        ("thread", Self::Thread),
        ("process", Self::Process),
        ("command", Self::Command),
        ("all", Self::All),
        ("pu", Self::Pu),
        ("core", Self::Core),
        ("package", Self::Package),
        ("node", Self::Node),
        ("machine", Self::Machine),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        let of = Self::ALL.iter().find(|(_, by)| *by == self);
        of.map_or("", |(name, _)| name)
    }

    /// Whether rows are about PUs rather than about threads.
    pub fn is_of_pus(self) -> bool {
        matches!(
            self,
            Self::Pu | Self::Core | Self::Package | Self::Node | Self::Machine
        )
    }
}

/// What one row is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entity {
    /// A thread.
    Thread(ThreadId),
    /// A process.
    Process(i32),
    /// All threads of that name.
    Command(Arc<str>),
    /// All threads.
    All,
    /// A PU, by the operating system's number.
    Pu(u32),
    /// A core, by its place in the topology.
    Core(usize),
    /// A package, by the operating system's number.
    Package(u32),
    /// A NUMA node, by the operating system's number.
    Node(u32),
    /// All PUs.
    Machine,
}

/// The name of [`Entity::All`].
static ALL: LazyLock<Arc<str>> = LazyLock::new(|| Entity::All.to_string().into());

impl Entity {
    /// That of a thread; `None` where rows are about PUs.
    pub fn of_thread(by: By, info: &ThreadInfo) -> Option<Self> {
        Some(match by {
            By::Thread => Self::Thread(info.id),
            By::Process => Self::Process(info.pid),
            By::Command => Self::Command(Arc::clone(&info.name)),
            By::All => Self::All,
            _ => return None,
        })
    }

    /// What rows call a thread's entity: its name, and its PID where the entity is within one process.
    pub(crate) fn labels(by: By, info: &ThreadInfo) -> (&Arc<str>, Option<i32>) {
        match by {
            By::Process => (&info.process, Some(info.pid)),
            By::Thread => (&info.name, Some(info.pid)),
            By::All => (&ALL, None),
            _ => (&info.name, None),
        }
    }

    /// That of a PU; `None` where rows are about threads, or for a PU that the topology does not place.
    pub fn of_pu(by: By, pu: u32, topology: &Topology) -> Option<Self> {
        let core = topology.core_of(pu);
        Some(match by {
            By::Pu => Self::Pu(pu),
            By::Core => Self::Core(topology.pu(pu)?.core),
            By::Package => Self::Package(core?.package),
            By::Node => Self::Node(core?.numa_node),
            By::Machine => Self::Machine,
            _ => return None,
        })
    }

    /// Its number, for files: a TID, a PID, a PU …; `None` for what has none.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Thread(id) => Some(i64::from(id.tid)),
            Self::Process(pid) => Some(i64::from(*pid)),
            Self::Pu(pu) => Some(i64::from(*pu)),
            Self::Package(os) | Self::Node(os) => Some(i64::from(*os)),
            Self::Core(core) => i64::try_from(*core).ok(),
            Self::Command(_) | Self::All | Self::Machine => None,
        }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(id) => write!(f, "{id}"),
            Self::Process(pid) => write!(f, "{pid}"),
            Self::Command(name) => f.write_str(name),
            Self::All => f.write_str("all threads"),
            Self::Pu(pu) => write!(f, "PU {pu}"),
            Self::Core(core) => write!(f, "core {core}"),
            Self::Package(package) => write!(f, "package {package}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Machine => f.write_str("all PUs"),
        }
    }
}
