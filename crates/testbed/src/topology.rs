//! The machines that a guest can be, and what the kernel in them must say about themselves.

use std::ops::Range;

/// A guest machine, described by the counts of its packages, cores and PUs.
///
/// PUs are numbered depth first, as QEMU does: siblings of one core are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topology {
    /// One PU: nothing to place.
    Flat1,
    /// Two cores of one PU each: no PU shares a core.
    Flat2,
    /// One package, 4 cores of 2 PUs.
    Smt2,
    /// One package, 2 cores of 4 PUs.
    Smt4,
    /// One package, 4 cores of 4 PUs.
    Smt4x4,
    /// Two packages, each a NUMA node of 2 cores of 2 PUs.
    Numa2,
    /// Two packages, each a NUMA node of one core of 2 PUs.
    Packages2,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Flat1,
        Self::Flat2,
        Self::Smt2,
        Self::Smt4,
        Self::Smt4x4,
        Self::Numa2,
        Self::Packages2,
    ];

    /// (packages, cores per package, PUs per core).
    pub const fn shape(self) -> (usize, usize, usize) {
        match self {
            Self::Flat1 => (1, 1, 1),
            Self::Flat2 => (1, 2, 1),
            Self::Smt2 => (1, 4, 2),
            Self::Smt4 => (1, 2, 4),
            Self::Smt4x4 => (1, 4, 4),
            Self::Numa2 => (2, 2, 2),
            Self::Packages2 => (2, 1, 2),
        }
    }

    /// Number of PUs.
    pub const fn pus(self) -> usize {
        let (packages, cores, threads) = self.shape();
        packages * cores * threads
    }

    /// Number of cores.
    pub const fn cores(self) -> usize {
        let (packages, cores, _) = self.shape();
        packages * cores
    }

    /// Number of NUMA nodes; here every package is one.
    pub const fn nodes(self) -> usize {
        self.shape().0
    }

    /// The PUs of a core, cores counted through the whole machine.
    pub const fn pus_of_core(self, core: usize) -> Range<usize> {
        let (_, _, threads) = self.shape();
        core * threads..(core + 1) * threads
    }

    /// The PUs of a NUMA node.
    pub const fn pus_of_node(self, node: usize) -> Range<usize> {
        let (_, cores, threads) = self.shape();
        node * cores * threads..(node + 1) * cores * threads
    }

    /// The core that a PU belongs to.
    pub const fn core_of(self, pu: usize) -> usize {
        pu / self.shape().2
    }

    /// QEMU's arguments for this machine with so much memory.
    pub(crate) fn qemu_arguments(self, mebibytes: usize) -> Vec<String> {
        let (packages, cores, threads) = self.shape();
        let mut args = vec![
            "-m".to_owned(),
            mebibytes.to_string(),
            "-smp".to_owned(),
            format!(
                "{},sockets={packages},cores={cores},threads={threads}",
                self.pus()
            ),
        ];
        if packages > 1 {
            for node in 0..packages {
                let Range { start, end } = self.pus_of_node(node);
                args.push("-object".to_owned());
                args.push(format!(
                    "memory-backend-ram,id=m{node},size={}M",
                    mebibytes / packages
                ));
                args.push("-numa".to_owned());
                args.push(format!(
                    "node,nodeid={node},cpus={start}-{},memdev=m{node}",
                    end - 1
                ));
            }
            args.push("-numa".to_owned());
            args.push("dist,src=0,dst=1,val=21".to_owned());
        }
        args
    }
}
