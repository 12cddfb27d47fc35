//! Placements of a workload's threads on a machine's PUs: at random, and all that differ.
//!
//! Two placements do not differ if one becomes the other by exchanging threads that do the same, or parts of the
//! machine that are alike: contexts of a core, cores below one cache, caches of a node. NUMA nodes are distinguished,
//! since a thread's memory may lie in one of them.

use perch_core::PuSet;
use perch_sim::{
    model::MachineModel,
    stream::Random,
    workload::{ProgramModel, Step, ThreadModel, WorkloadModel},
};
use std::collections::BTreeMap;

/// The PU of each thread, in the order in which threads start.
pub type Placement = Vec<u32>;

/// A thread that starts with the workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The name of its kind.
    pub kind: String,
    /// Threads of one class do the same: which of them is where makes no difference.
    pub class: usize,
    /// The program: an index of the workload's.
    pub program: usize,
    /// Its kind: an index of the program's threads.
    pub thread: usize,
    /// The PUs to which it is pinned; none if it may be on any.
    pub pus: Vec<u32>,
}

/// The threads of a workload all of whose programs start at once, in the order in which they start.
pub fn slots(workload: &WorkloadModel) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut class = 0;
    let programs = workload.programs.iter().enumerate();
    for (program, model) in programs.filter(|(_, program)| !program.system) {
        let together =
            model
                .threads
                .iter()
                .flat_map(|thread| &thread.steps)
                .any(|step| match step {
                    Step::Barrier(_)
                    | Step::Lock(_)
                    | Step::Unlock(_)
                    | Step::Receive
                    | Step::Reply
                    | Step::Spawn { .. }
                    | Step::Join(_) => true,
                    Step::Compute { mix, .. } => workload.mixes[*mix]
                        .working_sets
                        .iter()
                        .any(|set| set.region.is_some()),
                    Step::Sleep(_) | Step::Io { .. } => false,
                });
        let first = class;
        for copy in 0..model.count as usize {
            for (number, thread) in model.threads.iter().enumerate() {
                // Threads of two processes cannot be exchanged if their own fellows matter to them.
                let process = if together { copy } else { 0 };
                let of = first + process * model.threads.len() + number;
                class = class.max(of + 1);
                for _ in 0..thread.count {
                    slots.push(Slot {
                        kind: thread.name.clone(),
                        class: of,
                        program,
                        thread: number,
                        pus: thread.pus.clone(),
                    });
                }
            }
        }
    }
    slots
}

/// The same workload with its programs, each copy by itself, and the threads of each, in an order of chance.
pub fn shuffled(workload: &WorkloadModel, random: &mut Random) -> WorkloadModel {
    let mut workload = workload.clone();
    let programs = std::mem::take(&mut workload.programs);
    workload.programs = programs.into_iter().flat_map(copies).collect();
    for program in &mut workload.programs {
        let kinds = std::mem::take(&mut program.threads);
        let mut all = Vec::new();
        for (number, kind) in kinds.into_iter().enumerate() {
            // Those that others start stay one kind.
            let copies = kind.count.max(1) as usize;
            let count = kind.count.min(1);
            let one = ThreadModel { count, ..kind };
            all.extend(std::iter::repeat_n((number, one), copies));
        }
        random.shuffle(&mut all);
        let of_kind: Vec<usize> = all.iter().map(|(number, _)| *number).collect();
        let now = |kind: usize| of_kind.iter().position(|number| *number == kind);
        program.threads = all.into_iter().map(|(_, thread)| thread).collect();
        for step in program.threads.iter_mut().flat_map(|t| &mut t.steps) {
            if let Step::Spawn { kind, .. } | Step::Join(kind) = step {
                *kind = now(*kind).unwrap_or(*kind);
            }
        }
    }
    random.shuffle(&mut workload.programs);
    workload
}

/// Makes each copy of a program that is started more than once a program of its own, so that others may start between
/// them. Copies that serve requests stay together: their statistics are reported for all of them.
fn copies(program: ProgramModel) -> Vec<ProgramModel> {
    if program.count < 2 || program.requests.is_some() {
        return vec![program];
    }
    let copies = program.count as usize;
    vec![
        ProgramModel {
            count: 1,
            ..program
        };
        copies
    ]
}

/// A random placement: every PU has as many threads as any other, give or take one.
pub fn random(pus: usize, threads: usize, random: &mut Random) -> Placement {
    let mut placed = Vec::with_capacity(threads + pus);
    while placed.len() < threads {
        let mut round: Vec<u32> = (0..pus as u32).collect();
        random.shuffle(&mut round);
        placed.extend(round);
    }
    placed.truncate(threads);
    // Which thread is in a round that is not full must be chance too.
    random.shuffle(&mut placed);
    placed
}

/// A random placement that spreads threads over cores: no core has two threads while another has none, and so on.
pub fn spread(machine: &MachineModel, threads: usize, random: &mut Random) -> Placement {
    let mut cores: Vec<Vec<u32>> = vec![Vec::new(); machine.cores.len()];
    for (pu, (core, _)) in machine.places().into_iter().enumerate() {
        cores[core].push(pu as u32);
    }
    let most = cores.iter().map(Vec::len).max().unwrap_or(0);
    let mut placed = Vec::with_capacity(threads + machine.pus());
    while placed.len() < threads {
        random.shuffle(&mut cores);
        for pus in &mut cores {
            random.shuffle(pus);
        }
        for context in 0..most {
            placed.extend(cores.iter().filter_map(|pus| pus.get(context)));
        }
    }
    placed.truncate(threads);
    random.shuffle(&mut placed);
    placed
}

/// Moves pinned threads to PUs to which they are pinned, at random.
pub fn respect_pins(placement: &mut Placement, slots: &[Slot], random: &mut Random) {
    for (pu, slot) in placement.iter_mut().zip(slots) {
        if !slot.pus.is_empty() && !slot.pus.contains(pu) {
            *pu = slot.pus[random.below(slot.pus.len() as u64) as usize];
        }
    }
}

/// All placements that differ, each thread on a PU of its own; `None` if there are more than `most`, more threads than
/// PUs, or threads that are pinned, for which PUs that are alike differ.
pub fn every(machine: &MachineModel, slots: &[Slot], most: usize) -> Option<Vec<Placement>> {
    if slots.len() > machine.pus() || slots.iter().any(|slot| !slot.pus.is_empty()) {
        return None;
    }
    let mut classes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (thread, slot) in slots.iter().enumerate() {
        classes.entry(slot.class).or_default().push(thread);
    }
    let classes: Vec<Vec<usize>> = classes.into_values().collect();
    let (order, blocks) = symmetries(machine);
    let mut left: Vec<usize> = vec![order.len() - slots.len()];
    left.extend(classes.iter().map(Vec::len));
    let mut search = Search {
        blocks,
        left,
        chosen: Vec::with_capacity(order.len()),
        found: Vec::new(),
        pus: order.len(),
        most,
    };
    search.go_on();
    if search.found.len() > most {
        return None;
    }
    let placement = |chosen: Vec<usize>| {
        let mut placed = vec![0; slots.len()];
        let mut next = vec![0; classes.len()];
        for (at, class) in chosen.into_iter().enumerate() {
            if let Some(class) = class.checked_sub(1) {
                placed[classes[class][next[class]]] = order[at];
                next[class] += 1;
            }
        }
        placed
    };
    Some(search.found.into_iter().map(placement).collect())
}

/// Some PUs in a row that are like as many PUs right before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Twin {
    length: usize,
}

/// Chooses what is on each PU: 0 for no thread, or a class from 1. Of placements that do not differ it keeps the one in
/// which every part of the machine has no less than its twin before it.
struct Search {
    /// The twins that end with each PU.
    blocks: Vec<Vec<Twin>>,
    /// How many of each are left.
    left: Vec<usize>,
    chosen: Vec<usize>,
    found: Vec<Vec<usize>>,
    pus: usize,
    most: usize,
}

impl Search {
    fn go_on(&mut self) {
        if self.found.len() > self.most {
            return;
        }
        let at = self.chosen.len();
        if at == self.pus {
            self.found.push(self.chosen.clone());
            return;
        }
        for choice in 0..self.left.len() {
            if self.left[choice] == 0 {
                continue;
            }
            self.chosen.push(choice);
            let end = at + 1;
            let in_order = self.blocks[at].iter().all(|twin| {
                let start = end - twin.length;
                self.chosen[start - twin.length..start] <= self.chosen[start..end]
            });
            if in_order {
                self.left[choice] -= 1;
                self.go_on();
                self.left[choice] += 1;
            }
            self.chosen.pop();
        }
    }
}

/// A part of the machine: a PU, or the PUs of a core, a cache, a package or a node.
#[derive(Debug, Clone)]
struct Part {
    pus: PuSet,
    /// What it is like.
    attributes: String,
    parts: Vec<Part>,
}

/// The PUs in an order in which parts that are alike stand side by side, and for each PU the twins that end with it.
fn symmetries(machine: &MachineModel) -> (Vec<u32>, Vec<Vec<Twin>>) {
    let mut whole = Part {
        pus: (0..machine.pus() as u32).collect(),
        attributes: "machine".to_owned(),
        parts: Vec::new(),
    };
    let mut parts = groups(machine);
    // Greater ones first, so that each finds those that it lies in.
    parts.sort_by_key(|part| (std::cmp::Reverse(part.pus.len()), part.pus.first()));
    let cuts: Vec<PuSet> = parts
        .into_iter()
        .filter_map(|part| whole.take_in(part))
        .collect();
    for cut in cuts {
        for pu in cut.iter() {
            whole.mark(pu, &cut.to_string());
        }
    }
    let mut order = Vec::new();
    let mut twins = vec![Vec::new(); machine.pus()];
    whole.lay(&mut order, &mut twins);
    (order, twins)
}

fn groups(machine: &MachineModel) -> Vec<Part> {
    let part = |pus: PuSet, attributes: String| Part {
        pus,
        attributes,
        parts: Vec::new(),
    };
    let places = machine.places();
    let on = |is: &dyn Fn(usize) -> bool| -> PuSet {
        (0..places.len() as u32)
            .filter(|pu| is(places[*pu as usize].0))
            .collect()
    };
    let mut groups = Vec::new();
    let mut seen_nodes = Vec::new();
    let mut seen_packages = Vec::new();
    for (number, core) in machine.cores.iter().enumerate() {
        groups.push(part(
            on(&|other| other == number),
            format!("core {}", core.kind),
        ));
        if !seen_nodes.contains(&core.numa_node) {
            seen_nodes.push(core.numa_node);
            let pus = on(&|other| machine.cores[other].numa_node == core.numa_node);
            // Distinguished by its number.
            groups.push(part(pus, format!("node {}", core.numa_node)));
        }
        if !seen_packages.contains(&core.package) {
            seen_packages.push(core.package);
            let pus = on(&|other| machine.cores[other].package == core.package);
            groups.push(part(pus, "package".to_owned()));
        }
    }
    for cache in &machine.caches {
        let like = format!(
            "L{} {:?} {} {}",
            cache.level, cache.holds, cache.size, cache.ways
        );
        groups.extend(
            cache
                .shared_by
                .iter()
                .map(|pus| part(pus.iter().copied().collect(), like.clone())),
        );
    }
    groups.extend((0..places.len() as u32).map(|pu| part(PuSet::single(pu), String::new())));
    groups
}

impl Part {
    /// Puts a part, no greater than any before, where it belongs. Returns one that cuts through another: its PUs must
    /// be distinguished from all others.
    fn take_in(&mut self, part: Part) -> Option<PuSet> {
        if part.pus == self.pus {
            self.attributes.push_str(&part.attributes);
            return None;
        }
        if let Some(around) = self
            .parts
            .iter_mut()
            .find(|other| part.pus.is_subset(&other.pus))
        {
            return around.take_in(part);
        }
        if self
            .parts
            .iter()
            .any(|other| !part.pus.is_disjoint(&other.pus))
        {
            return Some(part.pus);
        }
        self.parts.push(part);
        None
    }

    fn mark(&mut self, pu: u32, mark: &str) {
        for part in self.parts.iter_mut().filter(|part| part.pus.contains(pu)) {
            part.attributes.push_str(mark);
            part.mark(pu, mark);
        }
    }

    fn shape(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::shape).collect();
        format!("{}({})", self.attributes, parts.join(","))
    }

    fn lay(&mut self, order: &mut Vec<u32>, twins: &mut [Vec<Twin>]) {
        if self.parts.is_empty() {
            order.extend(self.pus.iter());
            return;
        }
        self.parts.iter_mut().for_each(Part::sort);
        self.parts
            .sort_by_key(|part| (part.shape(), part.pus.first()));
        let mut before = String::new();
        for part in &mut self.parts {
            part.lay(order, twins);
            let shape = part.shape();
            if shape == before {
                let length = part.pus.len();
                twins[order.len() - 1].push(Twin { length });
            }
            before = shape;
        }
    }

    fn sort(&mut self) {
        self.parts.iter_mut().for_each(Part::sort);
        self.parts
            .sort_by_key(|part| (part.shape(), part.pus.first()));
    }
}
