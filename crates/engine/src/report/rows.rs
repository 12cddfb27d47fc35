//! The rows of the timeline as the machine has its PUs: core by core, so that siblings stand together.

use super::{Placements, Row};
use perch_core::{Topology, topology::PuState};
use std::collections::BTreeMap;

/// The same with the idle siblings of the PUs on which threads were seen, core by core, each row with its core.
pub(super) fn by_core(placements: Placements, topology: &Topology) -> Placements {
    let Placements { columns, rows } = placements;
    let mut rows: BTreeMap<u32, Row> = rows.into_iter().map(|row| (row.pu, row)).collect();
    let mut ordered = Vec::new();
    for (number, core) in topology.cores.iter().enumerate() {
        if !core.pus.iter().any(|pu| rows.contains_key(&pu)) {
            continue;
        }
        let label = topology.core_label(number);
        let usable = |pu: u32| {
            topology
                .pu(pu)
                .is_some_and(|pu| pu.state == PuState::Usable)
        };
        for pu in core.pus.iter() {
            let idle = || Row {
                pu,
                core: String::new(),
                cells: vec![None; columns.len()],
            };
            let row = rows.remove(&pu).or_else(|| usable(pu).then(idle));
            ordered.extend(row.map(|row| Row {
                core: label.clone(),
                ..row
            }));
        }
    }
    // PUs that went away with their cores.
    ordered.extend(rows.into_values());
    Placements {
        columns,
        rows: ordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{
        PuSet,
        topology::{Core, CoreKind, NumaNode, Package, Pu},
    };

    #[test]
    fn siblings_stand_together_and_idle_ones_are_not_left_out() {
        // Core 0 has PUs 0 and 2, core 1 has 1 and 3, core 2 has 4 and 5, of which 5 is offline.
        let cores: [[u32; 2]; 3] = [[0, 2], [1, 3], [4, 5]];
        let all: PuSet = (0..6).collect();
        let pu = |os: u32| Pu {
            os,
            core: cores.iter().position(|pus| pus.contains(&os)).unwrap(),
            state: match os {
                5 => PuState::Offline,
                _ => PuState::Usable,
            },
        };
        let topology = Topology {
            source: "a test".into(),
            packages: vec![Package {
                os: 0,
                pus: all.clone(),
                model: String::new(),
            }],
            numa_nodes: vec![NumaNode {
                os: 0,
                pus: all.clone(),
                ..NumaNode::default()
            }],
            caches: Vec::new(),
            cores: cores
                .iter()
                .map(|pus| Core {
                    pus: pus.iter().copied().collect(),
                    package: 0,
                    numa_node: 0,
                    kind: 0,
                })
                .collect(),
            kinds: vec![CoreKind {
                name: "core".to_owned(),
                pus: all,
            }],
            pus: (0..6).map(pu).collect(),
        };
        let row = |pu: u32| Row {
            pu,
            core: String::new(),
            cells: vec![None],
        };
        let seen = Placements {
            columns: vec![7],
            rows: vec![row(2), row(4), row(9)],
        };
        let rows = by_core(seen, &topology).rows;
        let told: Vec<(u32, &str)> = rows.iter().map(|row| (row.pu, &*row.core)).collect();
        let wanted = [(0, "core 0"), (2, "core 0"), (4, "core 2"), (9, "")];
        assert_eq!(told, wanted);
        assert!(rows.iter().all(|row| row.cells.len() == 1));
    }
}
