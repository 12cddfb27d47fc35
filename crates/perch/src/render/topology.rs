//! A machine drawn as text: packages, NUMA nodes, caches, cores as boxes, and what runs on each PU.

use super::{WIDTH, bytes, count, fit};
use perch_core::{
    PuSet, Topology,
    topology::{Cache, Core, PuState},
};
use std::{collections::BTreeMap, fmt::Write};
use unicode_width::UnicodeWidthStr;

/// What runs on a PU.
#[derive(Debug, Clone, PartialEq)]
pub struct PuLoad {
    /// Share of the time that it is busy, 0 to 1.
    pub busy: f64,
    /// The thread that was on it most.
    pub thread: Option<String>,
}

/// Columns inside a core's box.
const INSIDE: usize = 22;
/// Columns of a box with its frame and the space after it.
const BOX: usize = INSIDE + 3;
/// Above this many cores, cores that are alike are listed in one line instead of drawn.
const DRAWN_CORES: usize = 24;
/// Of cores that are listed, a PU that is busy for this share of the time is named with what runs on it.
const BUSY: f64 = 0.05;
/// Up to this many NUMA nodes, the distances between them are listed.
const DRAWN_NODES: usize = 16;
/// But of the cores of a line only this many, the busiest.
const NAMED: usize = 12;

/// Draws the machine. `load` may hold nothing for some or all PUs.
pub fn draw(topology: &Topology, load: &BTreeMap<u32, PuLoad>) -> String {
    let mut text = format!("{}\n", summary(topology));
    for package in &topology.packages {
        let _ = write!(text, "\npackage {}", package.os);
        if !package.model.is_empty() {
            let _ = write!(text, " · {}", fit(&package.model, 50).trim_end());
        }
        text.push('\n');
        for node in topology
            .numa_nodes
            .iter()
            .filter(|node| !node.pus.and(&package.pus).is_empty())
        {
            let _ = write!(text, "  NUMA node {}", node.os);
            if node.memory > 0 {
                let _ = write!(text, " · {}", bytes(node.memory));
            }
            text.push('\n');
            let here = node.pus.and(&package.pus);
            for (cache, pus) in last_level_domains(topology, &here) {
                if let Some(cache) = cache {
                    let _ = writeln!(text, "    {}", cache_title(cache, &pus));
                }
                let cores: Vec<_> = topology
                    .cores
                    .iter()
                    .enumerate()
                    .filter(|(_, core)| lies_in(core, &pus))
                    .collect();
                if topology.cores.len() > DRAWN_CORES {
                    tell_cores(&mut text, topology, &cores, load);
                } else {
                    draw_cores(&mut text, topology, &cores, load);
                }
            }
        }
    }
    for node in topology
        .numa_nodes
        .iter()
        .filter(|node| node.pus.is_empty())
    {
        let _ = writeln!(
            text,
            "\nNUMA node {} · {} · memory only",
            node.os,
            bytes(node.memory)
        );
    }
    text + &distances(topology)
}

/// The latencies between NUMA nodes, where they are known and there are several nodes.
fn distances(topology: &Topology) -> String {
    let nodes = &topology.numa_nodes;
    let all = || nodes.iter().flat_map(|node| &node.distances);
    let known = nodes.len() > 1 && nodes.iter().all(|node| node.distances.len() == nodes.len());
    let (Some(least), Some(most)) = (all().min(), all().max()) else {
        return String::new();
    };
    if !known {
        return String::new();
    }
    let title = "NUMA distances (firmware's latencies; 10: the own memory)";
    if nodes.len() > DRAWN_NODES {
        return format!("\n{title}: {least} to {most}\n");
    }
    let row = |name: String, numbers: &mut dyn Iterator<Item = String>| {
        let cells: String = numbers.map(|number| format!("{number:>4}")).collect();
        format!("  {name:<8}{cells}\n")
    };
    let mut text = format!("\n{title}\n");
    text += &row(
        "from, to".to_owned(),
        &mut nodes.iter().map(|node| node.os.to_string()),
    );
    for node in nodes {
        let numbers = &mut node.distances.iter().map(u64::to_string);
        text += &row(node.os.to_string(), numbers);
    }
    text
}

/// One line: how many of what.
pub fn summary(topology: &Topology) -> String {
    let off = topology
        .pus
        .iter()
        .filter(|pu| pu.state == PuState::Offline)
        .count();
    let foreign = topology
        .pus
        .iter()
        .filter(|pu| pu.state == PuState::Disallowed)
        .count();
    let mut parts = vec![
        count(topology.packages.len(), "package"),
        count(topology.numa_nodes.len(), "NUMA node"),
        count(topology.cores.len(), "core"),
        count(topology.pus.len(), "PU"),
    ];
    if off > 0 {
        parts.push(format!("{off} offline"));
    }
    if foreign > 0 {
        parts.push(format!("{foreign} not in our cpuset"));
    }
    let parts = parts.join(", ");
    let source = topology.source.as_str();
    let source = fit(source, source.width().min(WIDTH));
    match source.width() + parts.width() + 2 <= WIDTH {
        true => format!("{source}: {parts}"),
        false => format!("{source}:\n{parts}"),
    }
}

/// `L3 32 MiB · PUs 0-7`.
fn cache_title(cache: &Cache, pus: &PuSet) -> String {
    let size = if cache.size > 0 {
        format!(" {}", bytes(cache.size))
    } else {
        String::new()
    };
    fit(&format!("L{}{size} · PUs {pus}", cache.level), WIDTH - 4)
        .trim_end()
        .to_owned()
}

/// The PUs cut into the domains of the last shared cache; a machine without one is one domain.
fn last_level_domains<'a>(
    topology: &'a Topology,
    within: &PuSet,
) -> Vec<(Option<&'a Cache>, PuSet)> {
    let level = topology.llc_level().filter(|level| *level >= 3);
    let mut domains: Vec<(Option<&Cache>, PuSet)> = topology
        .caches
        .iter()
        .filter(|cache| Some(cache.level) == level && !cache.pus.and(within).is_empty())
        .map(|cache| (Some(cache), cache.pus.and(within)))
        .collect();
    let covered = PuSet::union(domains.iter().map(|(_, pus)| pus));
    let rest = within.minus(&covered);
    if !rest.is_empty() {
        domains.push((None, rest));
    }
    domains
}

/// Whether these are all PUs of a core. Sets are long on large machines, so one PU is looked for first.
fn lies_in(core: &Core, pus: &PuSet) -> bool {
    let first = core.pus.first();
    first.is_some_and(|first| pus.contains(first)) && core.pus.is_subset(pus)
}

/// The core's own L2 (or the one that it shares), as a title.
fn core_title(topology: &Topology, index: usize, core: &Core) -> String {
    let kind = match topology.kinds.len() {
        0 | 1 => "",
        _ => topology.kinds[core.kind].name.as_str(),
    };
    let l2 = topology
        .caches
        .iter()
        .find(|cache| cache.level == 2 && lies_in(core, &cache.pus));
    let l2 = l2
        .filter(|cache| cache.size > 0)
        .map(|cache| format!("L2 {}", bytes(cache.size)));
    [
        Some(format!("core {index}")),
        l2,
        Some(kind.to_owned()).filter(|kind| !kind.is_empty()),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

/// Cores as boxes, as many in a row as fit.
fn draw_cores(
    text: &mut String,
    topology: &Topology,
    cores: &[(usize, &Core)],
    load: &BTreeMap<u32, PuLoad>,
) {
    const INDENT: usize = 4;
    for row in cores.chunks((WIDTH - INDENT) / BOX) {
        let boxes: Vec<Vec<String>> = row
            .iter()
            .map(|(index, core)| {
                let title = fit(&core_title(topology, *index, core), INSIDE - 2);
                let title = title.trim_end();
                let mut lines = vec![format!(
                    "┌ {title} {}┐",
                    "─".repeat(INSIDE - 2 - title.width())
                )];
                lines.extend(
                    core.pus
                        .iter()
                        .map(|pu| format!("│{}│", fit(&pu_line(topology, pu, load), INSIDE))),
                );
                lines.push(format!("└{}┘", "─".repeat(INSIDE)));
                lines
            })
            .collect();
        for line in 0..boxes.iter().map(Vec::len).max().unwrap_or(0) {
            let cells = boxes.iter().map(|lines| {
                lines
                    .get(line)
                    .cloned()
                    .unwrap_or_else(|| " ".repeat(INSIDE + 2))
            });
            let joined = cells.collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "{}{}", " ".repeat(INDENT), joined.trim_end());
        }
    }
}

/// ` PU 0   12 % firefox`.
fn pu_line(topology: &Topology, os: u32, load: &BTreeMap<u32, PuLoad>) -> String {
    let state = topology.pu(os).map(|pu| pu.state);
    let what = match (state, load.get(&os)) {
        (Some(PuState::Offline), _) => "offline".to_owned(),
        (Some(PuState::Disallowed), _) => "not in our cpuset".to_owned(),
        (_, Some(load)) => {
            let percent = (load.busy * 100.0).round();
            format!("{percent:>3} % {}", load.thread.as_deref().unwrap_or(""))
        }
        (_, None) => String::new(),
    };
    format!(" PU {os:<3} {what}")
}

/// Cores that are alike, in one line each kind, and what runs on them.
fn tell_cores(
    text: &mut String,
    topology: &Topology,
    cores: &[(usize, &Core)],
    load: &BTreeMap<u32, PuLoad>,
) {
    let mut alike: BTreeMap<(usize, String), Vec<&(usize, &Core)>> = BTreeMap::new();
    for entry in cores {
        let title = core_title(topology, 0, entry.1).replacen("core 0", "", 1);
        alike
            .entry((entry.1.pus.len(), title))
            .or_default()
            .push(entry);
    }
    for ((pus, title), group) in alike {
        let numbers: PuSet = group.iter().map(|(index, _)| *index as u32).collect();
        let all = PuSet::union(group.iter().map(|(_, core)| &core.pus));
        let line = format!(
            "cores {numbers} · {} each{title} · PUs {all}",
            count(pus, "PU")
        );
        let _ = writeln!(text, "      {}", fit(&line, WIDTH - 6).trim_end());
        for (state, what) in [
            (PuState::Offline, "offline"),
            (PuState::Disallowed, "not in our cpuset"),
        ] {
            let is = |pu: &u32| topology.pu(*pu).is_some_and(|pu| pu.state == state);
            let pus: PuSet = all.iter().filter(is).collect();
            if !pus.is_empty() {
                let line = format!("{what}: PUs {pus}");
                let _ = writeln!(text, "        {}", fit(&line, WIDTH - 8).trim_end());
            }
        }
        *text += &busy(&all, load);
    }
}

/// The busiest PUs and what runs on them.
fn busy(pus: &PuSet, load: &BTreeMap<u32, PuLoad>) -> String {
    let on = pus.iter().filter_map(|pu| Some((pu, load.get(&pu)?)));
    let mut busy: Vec<(u32, &PuLoad)> = on.filter(|(_, load)| load.busy >= BUSY).collect();
    if busy.is_empty() {
        return String::new();
    }
    busy.sort_by(|a, b| b.1.busy.total_cmp(&a.1.busy).then(a.0.cmp(&b.0)));
    let told = busy.iter().take(NAMED).map(|(pu, load)| {
        let thread = load.thread.as_deref().unwrap_or("");
        let thread = fit(thread, 15);
        format!("PU {pu} {:.0} % {}", load.busy * 100.0, thread.trim_end())
    });
    let told: Vec<String> = told.map(|one| one.trim_end().to_owned()).collect();
    let more = match busy.len() - told.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    super::wrapped("        busy: ", &format!("{}{more}", told.join(", ")))
}
