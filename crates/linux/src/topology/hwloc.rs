//! The one place that calls hwloc.

use super::{
    Loaded, Source,
    kinds::{RawKind, core_kinds},
    sysfs,
};
use hwlocality::{
    Topology as Hwloc,
    cpu::cpuset::CpuSet,
    info::TextualInfo,
    object::{
        TopologyObject, attributes::ObjectAttributes, distance::DistancesKind, types::ObjectType,
    },
    topology::{
        builder::{BuildFlags, TypeFilter},
        export::xml::XMLExportFlags,
    },
};
use perch_core::{
    MachineError, PuSet, Topology,
    topology::{Cache, Core, NumaNode, Package, Pu, PuState, TopologySource},
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
};

/// Bytes that libxml2, with which hwloc reads XML, takes without being told to take more.
const XML_LIMIT: usize = 10_000_000;

fn failed(what: impl std::fmt::Display) -> MachineError {
    MachineError::Other(what.to_string())
}

fn open(source: &Source) -> Result<Hwloc, MachineError> {
    let mut length = 0;
    let builder = Hwloc::builder();
    let builder = match source {
        Source::Native => {
            // hwloc reads what this names without a limit (a device never ends), and ignores what it cannot read.
            if let Some(path) = std::env::var_os("HWLOC_XMLFILE").filter(|path| !path.is_empty()) {
                let path = std::path::Path::new(&path);
                perch_files::read_to_string(path).map_err(|error| MachineError::Io {
                    what: format!("HWLOC_XMLFILE: topology file {}", path.display()),
                    error,
                })?;
            }
            builder
        }
        Source::Synthetic(text) if super::described(text) > super::MAX_DESCRIBED => {
            return Err(failed(format!(
                "`{text}` describes {} PUs: perch takes descriptions of up to {}, since hwloc's time to build one \
                 grows with the cube of their number",
                super::described(text),
                super::MAX_DESCRIBED
            )));
        }
        Source::Synthetic(text) => builder.from_synthetic(text).map_err(|_| {
            failed(format!(
                "`{text}` is not a valid topology: write levels from the outside in, each with its count below the one before, \
                 such as 'package:1 core:4 pu:2' or 'package:2 [numanode] l3:2 core:4 pu:2' (hwloc(7), synthetic \
                 topologies), or name a file that `lstopo --of xml FILE` wrote"
            ))
        })?,
        Source::Xml(path) => {
            // hwloc does not tell why it refuses a file.
            let text = perch_files::read_to_string(path).map_err(|error| MachineError::Io {
                what: format!("topology file {}", path.display()),
                error,
            })?;
            let pus = text.matches("type=\"PU\"").count() as u64;
            if pus > super::MAX_READ {
                return Err(failed(format!(
                    "{}: {pus} PUs: perch takes up to {} of a file",
                    path.display(),
                    super::MAX_READ
                )));
            }
            length = text.len();
            builder.from_xml(&text).map_err(|_| not_xml(path, length))?
        }
    };
    builder
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(failed)?
        .with_io_type_filter(TypeFilter::KeepNone)
        .map_err(failed)?
        .build()
        .map_err(|error| match source {
            Source::Xml(path) => not_xml(path, length),
            _ => failed(format!(
                "hwloc cannot read the topology ({error}); `lstopo` should fail alike"
            )),
        })
}

/// Why hwloc may have refused a file of that many bytes.
fn not_xml(path: &std::path::Path, length: usize) -> MachineError {
    let without_libxml = std::env::var_os("HWLOC_LIBXML").is_some_and(|value| value == "0");
    if length > XML_LIMIT && !without_libxml {
        return failed(format!(
            "{}: hwloc cannot read it; of its {} MB the library libxml2 takes up to {} (about 10,000 PUs): with \
             HWLOC_LIBXML=0 in the environment hwloc does without it",
            path.display(),
            length / 1_000_000,
            XML_LIMIT / 1_000_000
        ));
    }
    failed(format!(
        "{}: not a topology that hwloc can read; write one with `lstopo --of xml machine.xml` or `hwloc-gather-topology`",
        path.display()
    ))
}

/// See [`super::export_xml`].
pub fn export_xml(source: &Source) -> Result<String, MachineError> {
    let topology = open(source)?;
    let xml = topology
        .export_xml(XMLExportFlags::empty())
        .map_err(|error| failed(format!("hwloc cannot write the topology: {error}")))?;
    Ok(xml.to_string())
}

/// See [`super::load`].
pub fn load(source: &Source) -> Result<Loaded, MachineError> {
    let hwloc = open(source)?;
    let root = sysfs::root();
    let (name, is_native) = match source {
        Source::Native if root != std::path::Path::new("/") => {
            let tree = format!("captured tree {}", root.display());
            (TopologySource::Described(tree), true)
        }
        // HWLOC_XMLFILE and HWLOC_SYNTHETIC go before what was asked for.
        Source::Native if !hwloc.is_this_system() => (
            TopologySource::Described("hwloc's environment".to_owned()),
            false,
        ),
        Source::Native => (TopologySource::ThisMachine, true),
        Source::Synthetic(text) => (TopologySource::Described(text.clone()), false),
        Source::Xml(path) => (TopologySource::Described(path.display().to_string()), false),
    };
    let topology = convert(&hwloc, name, is_native)?;
    let infos = infos(&hwloc);
    Ok(Loaded { topology, infos })
}

fn set(bitmap: impl Deref<Target = CpuSet>) -> PuSet {
    // An unlimited bitmap stands for "unknown"; no finite set says that.
    if bitmap.weight().is_none() {
        return PuSet::new();
    }
    bitmap
        .iter_set()
        .filter_map(|index| u32::try_from(usize::from(index)).ok())
        .filter(|pu| *pu <= perch_core::pu_set::MAX_PU)
        .collect()
}

fn pus_of(object: &TopologyObject) -> PuSet {
    object.cpuset().map(set).unwrap_or_default()
}

fn os_of(object: &TopologyObject) -> u32 {
    object
        .os_index()
        .and_then(|index| index.try_into().ok())
        // Objects without an own number (synthetic groups) have at least an order.
        .unwrap_or_else(|| object.logical_index() as u32)
}

fn texts(infos: &[TextualInfo]) -> impl Iterator<Item = (String, String)> + '_ {
    infos.iter().map(|info| {
        let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
        (text(info.name()), text(info.value()))
    })
}

/// The PUs near to a NUMA node are those of the object it is attached to.
fn numa_nodes(hwloc: &Hwloc) -> Vec<NumaNode> {
    let mut nodes: Vec<NumaNode> = hwloc
        .objects_with_type(ObjectType::NUMANode)
        .map(|node| NumaNode {
            os: os_of(node),
            pus: pus_of(node),
            memory: match node.attributes() {
                Some(ObjectAttributes::NUMANode(attributes)) => {
                    attributes.local_memory().map_or(0, u64::from)
                }
                _ => 0,
            },
            distances: Vec::new(),
        })
        .collect();
    // Nodes without PUs last.
    nodes.sort_by_key(|node| (node.pus.first().unwrap_or(u32::MAX), node.os));
    let known = numa_distances(hwloc);
    let all: Vec<u32> = nodes.iter().map(|node| node.os).collect();
    for node in &mut nodes {
        let row = all.iter().map(|to| known.get(&(node.os, *to)).copied());
        node.distances = row.collect::<Option<Vec<u64>>>().unwrap_or_default();
    }
    nodes
}

/// What the operating system says of the latency between NUMA nodes, by their numbers.
fn numa_distances(hwloc: &Hwloc) -> BTreeMap<(u32, u32), u64> {
    let kind = DistancesKind::MEANS_LATENCY | DistancesKind::FROM_OS;
    let Ok(tables) = hwloc.distances_with_type(Some(kind), ObjectType::NUMANode) else {
        return BTreeMap::new();
    };
    let Some(table) = tables.first() else {
        return BTreeMap::new();
    };
    let nodes: Vec<Option<u32>> = table.objects().map(|node| node.map(os_of)).collect();
    let known = table.enumerate_distances();
    let known = known.filter_map(|((from, to), value)| Some(((nodes[from]?, nodes[to]?), value)));
    known.collect()
}

fn caches(hwloc: &Hwloc) -> Vec<Cache> {
    let levels = [
        (1, ObjectType::L1Cache),
        (2, ObjectType::L2Cache),
        (3, ObjectType::L3Cache),
        (4, ObjectType::L4Cache),
    ];
    let mut caches: Vec<Cache> = levels
        .into_iter()
        .flat_map(|(level, kind)| {
            hwloc.objects_with_type(kind).map(move |object| Cache {
                level,
                size: match object.attributes() {
                    Some(ObjectAttributes::Cache(cache)) => cache.size().map_or(0, u64::from),
                    _ => 0,
                },
                pus: pus_of(object),
            })
        })
        .collect();
    caches.sort_by_key(|cache| (cache.pus.first(), cache.level));
    caches
}

fn kinds(hwloc: &Hwloc) -> Vec<RawKind> {
    let Ok(kinds) = hwloc.cpu_kinds() else {
        return Vec::new();
    };
    kinds
        .map(|kind| {
            let infos: BTreeMap<_, _> = texts(kind.infos).collect();
            RawKind {
                pus: set(&kind.cpuset),
                core_type: infos.get("CoreType").cloned(),
                capacity: infos.get("LinuxCapacity").and_then(|v| v.parse().ok()),
            }
        })
        .collect()
}

fn packages(hwloc: &Hwloc, all: &PuSet) -> Vec<Package> {
    let model = |object: &TopologyObject| {
        let name = object.info("CPUModel");
        name.map(|m| m.to_string_lossy().trim().to_owned())
            .unwrap_or_default()
    };
    let mut packages: Vec<Package> = hwloc
        .objects_with_type(ObjectType::Package)
        .map(|object| Package {
            os: os_of(object),
            pus: pus_of(object),
            model: model(object),
        })
        .collect();
    if packages.is_empty() {
        packages.push(Package {
            os: 0,
            pus: all.clone(),
            model: model(hwloc.root_object()),
        });
    }
    packages.sort_by_key(|package| package.pus.first());
    packages
}

fn convert(
    hwloc: &Hwloc,
    source: TopologySource,
    is_native: bool,
) -> Result<Topology, MachineError> {
    let online = set(hwloc.cpuset());
    if online.is_empty() {
        return Err(failed("hwloc found no PU in this topology"));
    }
    let allowed = set(hwloc.allowed_cpuset());
    let mut offline = set(hwloc.complete_cpuset()).minus(&online);
    if is_native {
        offline = offline.or(&sysfs::offline().minus(&online));
    }
    let all = online.or(&offline);
    let mut packages = packages(hwloc, &all);
    let mut numa_nodes = numa_nodes(hwloc);
    let mut raw_kinds = kinds(hwloc);
    if is_native && raw_kinds.iter().all(RawKind::is_nameless) {
        raw_kinds.extend(sysfs::hybrid_kinds());
    }
    let kinds = core_kinds(&raw_kinds, &all);

    let mut sets: Vec<PuSet> = hwloc
        .objects_with_type(ObjectType::Core)
        .map(pus_of)
        .collect();
    let in_cores = PuSet::union(&sets);
    // Of an offline PU the kernel does not tell the core, and some machines tell of no cores at all: one core each.
    sets.extend(all.minus(&in_cores).iter().map(PuSet::single));
    sets.sort_by_key(PuSet::first);
    adopt_offline(
        &offline,
        packages
            .iter_mut()
            .map(|package| &mut package.pus)
            .collect(),
    );
    adopt_offline(
        &offline,
        numa_nodes.iter_mut().map(|node| &mut node.pus).collect(),
    );

    let package_of = package_of(&packages);
    let node_of = nearest_nodes(&numa_nodes);
    let any_node = numa_nodes.first().map_or(0, |node| node.os);
    let cores: Vec<Core> = sets
        .into_iter()
        .map(|pus| {
            let first = pus.first().unwrap_or_default();
            Core {
                package: package_of.get(&first).copied().unwrap_or(0),
                numa_node: node_of.get(&first).copied().unwrap_or(any_node),
                kind: kinds
                    .iter()
                    .position(|kind| kind.pus.contains(first))
                    .unwrap_or(0),
                pus,
            }
        })
        .collect();
    let mut pus: Vec<Pu> = cores
        .iter()
        .enumerate()
        .flat_map(|(core, c)| c.pus.iter().map(move |os| (core, os)))
        .map(|(core, os)| Pu {
            os,
            core,
            state: if offline.contains(os) {
                PuState::Offline
            } else if allowed.contains(os) {
                PuState::Usable
            } else {
                PuState::Disallowed
            },
        })
        .collect();
    pus.sort_by_key(|pu| pu.os);
    Ok(Topology {
        source,
        packages,
        numa_nodes,
        caches: caches(hwloc),
        cores,
        kinds,
        pus,
    })
}

/// Puts offline PUs, of which nothing is known, into the set of the nearest lower PU.
fn adopt_offline(offline: &PuSet, mut sets: Vec<&mut PuSet>) {
    for os in offline.iter() {
        if sets.iter().any(|set| set.contains(os)) {
            continue;
        }
        let nearest = sets
            .iter_mut()
            .filter(|set| !set.is_empty())
            .max_by_key(|set| set.iter().take_while(|pu| *pu < os).last());
        if let Some(set) = nearest {
            set.insert(os);
        }
    }
}

/// The package of each PU.
fn package_of(packages: &[Package]) -> HashMap<u32, u32> {
    // Of two, the first.
    let packages = packages.iter().rev();
    packages
        .flat_map(|package| package.pus.iter().map(|pu| (pu, package.os)))
        .collect()
}

/// The smallest node that holds each PU: machines with slow memory besides have several.
fn nearest_nodes(nodes: &[NumaNode]) -> HashMap<u32, u32> {
    let mut by_size: Vec<&NumaNode> = nodes.iter().collect();
    by_size.sort_by_key(|node| std::cmp::Reverse((node.pus.len(), node.os)));
    by_size
        .into_iter()
        .flat_map(|node| node.pus.iter().map(|pu| (pu, node.os)))
        .collect()
}

/// What hwloc says of the machine and its packages, as pairs of its own keys and values, each once.
fn infos(hwloc: &Hwloc) -> Vec<(String, String)> {
    let packages = hwloc.objects_with_type(ObjectType::Package);
    let mut all: Vec<(String, String)> = Vec::new();
    for object in std::iter::once(hwloc.root_object()).chain(packages) {
        for info in texts(object.infos()) {
            if !all.contains(&info) {
                all.push(info);
            }
        }
    }
    all
}
