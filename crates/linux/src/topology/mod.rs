//! The machine's topology through hwloc: this machine, a synthetic description, or a saved XML file.
//!
//! hwloc is called from `hwloc.rs` alone; everything else sees [`perch_core::Topology`].

mod hwloc;
mod kinds;
mod sysfs;

pub use sysfs::{OnlineWatch, online as online_pus, possible as possible_pus};

use perch_core::{MachineError, PuSet, Topology, topology::PuState};
use std::path::{Path, PathBuf};

/// The source of a topology: this machine, an XML file or a synthetic description.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Source {
    /// The machine that perch runs on (or the captured tree that hwloc's `HWLOC_FSROOT` names).
    #[default]
    Native,
    /// hwloc's synthetic description, such as `package:1 core:4 pu:2`.
    Synthetic(String),
    /// A file that `lstopo --of xml` or [`export_xml`] wrote.
    Xml(PathBuf),
}

impl Source {
    /// What a user's text names: an existing file or a name that ends in `.xml` is a file, everything else a synthetic
    /// description.
    pub fn from_text(text: &str) -> Self {
        if text.ends_with(".xml") || Path::new(text).is_file() {
            Self::Xml(text.into())
        } else {
            Self::Synthetic(text.to_owned())
        }
    }
}

/// A topology and what is known of its processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// PUs, cores, caches, nodes and packages as hwloc reports them.
    pub topology: Topology,
    /// What hwloc says of machine and packages (`CPUVendor`, `CPUModel`, …), for profile detection.
    pub infos: Vec<(String, String)>,
}

/// How many PUs a synthetic description may have. For 16,384 hwloc takes minutes.
pub const MAX_DESCRIBED: u64 = 4096;

/// How many PUs a file may have.
pub const MAX_READ: u64 = 16_384;

/// How many PUs a synthetic description has: the product of its levels' counts. Attributes in parentheses and memory in
/// brackets have no part in it.
fn described(text: &str) -> u64 {
    let mut depth = 0_u32;
    let levels: String = text
        .chars()
        .map(|c| {
            let inside = depth > 0;
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if inside || depth > 0 { ' ' } else { c }
        })
        .collect();
    levels
        .split_whitespace()
        .filter_map(|level| level.rsplit(':').next()?.parse::<u64>().ok())
        .fold(1, u64::saturating_mul)
}

/// Loads a topology.
///
/// # Errors
/// A description or file that hwloc refuses.
pub fn load(source: &Source) -> Result<Loaded, MachineError> {
    hwloc::load(source)
}

/// The topology in hwloc's XML, to be loaded as [`Source::Xml`] later or elsewhere.
///
/// # Errors
/// A description or file that hwloc refuses.
pub fn export_xml(source: &Source) -> Result<String, MachineError> {
    hwloc::export_xml(source)
}

/// Whether the machine has all of these PUs (`--pus`), be they usable now or not.
///
/// # Errors
/// Some are not there.
pub fn check_named(topology: &Topology, pus: &PuSet) -> Result<(), MachineError> {
    let all = topology.all();
    let absent = pus.minus(&all);
    match absent.is_empty() {
        true => Ok(()),
        false => Err(MachineError::Other(format!(
            "--pus {pus}: no PU {absent} here; the machine has the PUs {all}"
        ))),
    }
}

/// Makes all PUs disallowed that are not in `pus` (`--pus`).
///
/// # Errors
/// No usable PU left.
pub fn restrict(topology: &mut Topology, pus: &PuSet) -> Result<(), MachineError> {
    let left = topology.usable().and(pus);
    if left.is_empty() {
        return Err(MachineError::Other(format!(
            "--pus {pus}: none of these PUs can be used here; usable are {}",
            topology.usable()
        )));
    }
    for pu in &mut topology.pus {
        if pu.state == PuState::Usable && !pus.contains(pu.os) {
            pu.state = PuState::Disallowed;
        }
    }
    Ok(())
}

/// Makes all PUs disallowed: none that perch may use is left.
pub fn disallow_all(topology: &mut Topology) {
    for pu in &mut topology.pus {
        if pu.state == PuState::Usable {
            pu.state = PuState::Disallowed;
        }
    }
}

/// After PUs came or went: the kernel reports nothing about a PU that is offline, so what was known of it is kept.
pub fn keep_offline(now: &mut Topology, before: &Topology) {
    let offline: Vec<(usize, u32)> = now
        .pus
        .iter()
        .enumerate()
        .filter(|(_, pu)| pu.state == PuState::Offline)
        .map(|(at, pu)| (at, pu.os))
        .collect();
    for (at, os) in offline {
        let Some(old) = before.core_of(os) else {
            continue;
        };
        let alone = now.pus[at].core;
        // Join the siblings that are still online; else take over what was known of the core as a whole.
        let home = now
            .cores
            .iter()
            .position(|core| !core.pus.contains(os) && !core.pus.is_disjoint(&old.pus));
        match home {
            Some(core) => {
                now.cores[core].pus.insert(os);
                now.pus[at].core = core;
                now.cores[alone].pus.remove(os);
            }
            None => {
                now.cores[alone].package = old.package;
                now.cores[alone].numa_node = old.numa_node;
            }
        }
        for cache in &before.caches {
            if cache.pus.contains(os) {
                let same = now.caches.iter_mut().find(|c| {
                    c.level == cache.level && c.size == cache.size && !c.pus.is_disjoint(&cache.pus)
                });
                if let Some(same) = same {
                    same.pus.insert(os);
                }
            }
        }
    }
    drop_empty_cores(now);
}

/// Removes cores without PUs and renumbers.
fn drop_empty_cores(topology: &mut Topology) {
    let mut new_index = Vec::with_capacity(topology.cores.len());
    let mut next = 0;
    for core in &topology.cores {
        new_index.push(next);
        next += usize::from(!core.pus.is_empty());
    }
    topology.cores.retain(|core| !core.pus.is_empty());
    for pu in &mut topology.pus {
        pu.core = new_index[pu.core];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_counted() {
        for (text, pus) in [
            ("pu:99999", 99_999),
            (
                "package:2 [numanode(memory=8GB)] l3:2(size=4194304) core:4 pu:2",
                32,
            ),
            ("2 3 4", 24),
            ("package:99999999999 core:99999999999 pu:2", u64::MAX),
            ("nonsense", 1),
        ] {
            assert_eq!(described(text), pus, "{text}");
        }
    }

    #[test]
    fn distances_between_nodes_are_read() {
        let source = Source::Synthetic("package:2 [numanode] core:2 pu:1".into());
        let xml = export_xml(&source).unwrap();
        let table = "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">\
                     <indexes length=\"4\">0 1 </indexes><u64values length=\"12\">10 21 23 10 </u64values></distances2>";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.xml");
        let distances = |xml: &str| {
            std::fs::write(&file, xml).unwrap();
            let nodes = load(&Source::Xml(file.clone()))
                .unwrap()
                .topology
                .numa_nodes;
            nodes.into_iter().map(|node| node.distances)
        };
        let with = xml.replace("</topology>", &format!("{table}</topology>"));
        assert_eq!(distances(&with).collect::<Vec<_>>(), [[10, 21], [23, 10]]);
        assert!(distances(&xml).all(|row| row.is_empty()));
    }

    #[test]
    fn pus_that_are_not_there_are_named() {
        let topology = load(&Source::Synthetic("core:2 pu:2".into()))
            .unwrap()
            .topology;
        let check = |pus: &str| check_named(&topology, &pus.parse().unwrap());
        assert!(check("0-3").is_ok() && check("2").is_ok());
        let error = check("0-7").unwrap_err().to_string();
        assert_eq!(
            error,
            "--pus 0-7: no PU 4-7 here; the machine has the PUs 0-3"
        );
    }

    #[test]
    fn one_that_would_take_minutes_is_refused_at_once() {
        let start = std::time::Instant::now();
        for text in ["pu:99999", "package:64 core:64 pu:16"] {
            let error = load(&Source::Synthetic(text.into()))
                .unwrap_err()
                .to_string();
            assert!(error.contains("up to 4096"), "{error}");
        }
        assert!(start.elapsed().as_secs() < 2);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large.xml");
        let refused = |text: String| {
            std::fs::write(&file, text).unwrap();
            let source = Source::Xml(file.clone());
            load(&source).unwrap_err().to_string()
        };
        let error = refused("<object type=\"PU\"/>\n".repeat(16_385));
        assert!(
            error.contains("16385 PUs") && error.contains("up to 16384"),
            "{error}"
        );
        // The library that hwloc reads XML with has a limit of its own.
        let error = refused(format!("<topology>{}", " ".repeat(11_000_000)));
        assert!(
            error.contains("takes up to 10") && error.contains("HWLOC_LIBXML=0"),
            "{error}"
        );
        let most = load(&Source::Synthetic("package:16 core:128 pu:2".into())).unwrap();
        assert_eq!(most.topology.pus.len() as u64, MAX_DESCRIBED);
    }
}
