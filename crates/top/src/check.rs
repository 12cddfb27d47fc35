//! Whether a topology from outside holds together: the view follows its indices.

use perch_core::Topology;

/// How many PUs, and of each other object, a topology may have.
pub const MOST_PUS: usize = 16_384;

/// Caches: a few of each PU.
const MOST_CACHES: usize = 6 * MOST_PUS;

/// What is wrong with a topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid topology: {0}")]
pub struct InvalidTopology(&'static str);

/// Whether every index and number leads somewhere, and nothing is beyond all measure.
///
/// # Errors
/// What is wrong.
pub fn topology(topology: &Topology) -> Result<(), InvalidTopology> {
    let wrong = |why| Err(InvalidTopology(why));
    if topology.pus.is_empty() {
        return wrong("it has no PU");
    }
    let counts = [
        topology.pus.len(),
        topology.cores.len(),
        topology.packages.len(),
        topology.numa_nodes.len(),
        topology.kinds.len(),
    ];
    if counts.into_iter().any(|count| count > MOST_PUS) || topology.caches.len() > MOST_CACHES {
        return wrong("it has too many objects (up to 16384 PUs are shown)");
    }
    if !topology.pus.windows(2).all(|pair| pair[0].os < pair[1].os) {
        return wrong("its PUs are not in rising order");
    }
    if topology.pus.iter().any(|pu| {
        let core = topology.cores.get(pu.core);
        core.is_none_or(|core| !core.pus.contains(pu.os))
    }) {
        return wrong("a PU is in no core");
    }
    if topology
        .cores
        .iter()
        .any(|core| core.kind >= topology.kinds.len())
    {
        return wrong("a core is of no kind");
    }
    // Sets are as long as their highest number; together they may not name more than a large machine's.
    let cores = topology.cores.iter().map(|core| core.pus.len());
    let caches = topology.caches.iter().map(|cache| cache.pus.len());
    let packages = topology.packages.iter().map(|package| package.pus.len());
    let nodes = topology.numa_nodes.iter().map(|node| node.pus.len());
    let named: usize = cores.chain(caches).chain(packages).chain(nodes).sum();
    if named > 32 * MOST_PUS {
        return wrong("its objects overlap");
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use perch_core::{
        PuSet,
        topology::{Cache, Core, CoreKind, NumaNode, Package, Pu, PuState},
    };
    use std::sync::Arc;

    /// Packages of cores of PUs, each package with one last-level cache and one node.
    pub(crate) fn machine(packages: u32, cores: u32, pus: u32) -> Arc<Topology> {
        let set = |from: u32, count: u32| (from..from + count).collect::<PuSet>();
        let all = packages * cores * pus;
        let package = |n: u32| set(n * cores * pus, cores * pus);
        let core = |n: u32| set(n * pus, pus);
        let cache = |level, size, pus| Cache { level, size, pus };
        let mut caches: Vec<Cache> = (0..packages)
            .map(|n| cache(3, 32 << 20, package(n)))
            .collect();
        caches.extend((0..packages * cores).map(|n| cache(2, 1 << 20, core(n))));
        Arc::new(Topology {
            source: "a test".into(),
            packages: (0..packages)
                .map(|os| Package {
                    os,
                    pus: package(os),
                    model: "Test".into(),
                })
                .collect(),
            numa_nodes: (0..packages)
                .map(|os| NumaNode {
                    os,
                    pus: package(os),
                    memory: 0,
                    distances: Vec::new(),
                })
                .collect(),
            caches,
            cores: (0..packages * cores)
                .map(|n| Core {
                    pus: core(n),
                    package: n / cores,
                    numa_node: n / cores,
                    kind: 0,
                })
                .collect(),
            kinds: vec![CoreKind {
                name: "core".into(),
                pus: set(0, all),
            }],
            pus: (0..all)
                .map(|os| Pu {
                    os,
                    core: (os / pus) as usize,
                    state: PuState::Usable,
                })
                .collect(),
        })
    }

    #[test]
    fn wrong_indices_are_refused() {
        let good = machine(2, 2, 2);
        assert_eq!(topology(&good), Ok(()));
        let with = |change: &dyn Fn(&mut Topology)| {
            let mut changed = Topology::clone(&good);
            change(&mut changed);
            topology(&changed).unwrap_err().to_string()
        };
        assert!(with(&|t| t.pus.clear()).contains("no PU"));
        assert!(with(&|t| t.pus.swap(0, 1)).contains("rising"));
        assert!(with(&|t| t.pus[1].core = 99).contains("no core"));
        assert!(with(&|t| t.cores[1].kind = 1).contains("no kind"));
        let wide: PuSet = (0..65_000).collect();
        let many = |t: &mut Topology| t.caches.iter_mut().for_each(|of| of.pus = wide.clone());
        let error = with(&|t| {
            t.caches = vec![t.caches[0].clone(); 20];
            many(t);
        });
        assert!(error.contains("overlap"), "{error}");
    }
}
