//! A machine as nested boxes: packages, NUMA nodes, caches, cores and PUs, with the execution units that PUs share.

use super::{Anchor, Area, Canvas, GREY, INK, PALE, cut, width};
use crate::render::bytes;
use perch_core::{
    PuSet, Topology, UnitClass, UnitDomains,
    topology::{Cache, PuState},
};
use plotters::style::RGBColor;

/// What is shown in a PU's box.
#[derive(Debug, Clone, PartialEq)]
pub struct PuMark {
    /// Its colour.
    pub colour: RGBColor,
    /// Below its number.
    pub label: String,
}

/// How large the PUs' boxes are, in pixels, and what is on them.
pub struct Marks<'a> {
    /// The width of a PU's box.
    pub width: i32,
    /// Whether there is a line below the number.
    pub labels: bool,
    /// What is on a PU.
    pub of: &'a dyn Fn(u32) -> Option<PuMark>,
}

/// Shared execution units.
const SHARED: RGBColor = RGBColor(214, 200, 236);
/// Lines across PUs that cannot be used: light, so that their numbers can be read.
const HATCH: RGBColor = RGBColor(190, 190, 190);
/// The background of boxes, by depth.
const SHADES: [RGBColor; 2] = [RGBColor(255, 255, 255), RGBColor(238, 242, 247)];

/// Pixels: around what is in a box, a title's line, a line of units, a PU's line.
const PAD: i32 = 5;
const TITLE: i32 = 15;
const UNITS: i32 = 13;
const LINE: i32 = 16;
/// Letters of titles, and of what is in PUs.
const FONT: u32 = 10;
/// As wide as high by this, a box is filled.
const ASPECT: f64 = 1.7;
/// PUs in a row of a core.
const PUS: usize = 4;

/// A box with what is in it.
#[derive(Debug, Default)]
struct Node {
    pus: PuSet,
    /// A line each.
    title: Vec<String>,
    /// Names of units that all of its PUs share.
    units: Vec<&'static str>,
    /// Boxes in it, then PUs in it that are in none of them.
    parts: Vec<Node>,
    bare: Vec<u32>,
    /// Where it is in the box around it, by [`Node::lay`].
    area: Area,
    cells: Vec<Area>,
}

/// Draws a machine at a place; returns what it covers.
pub fn machine(
    canvas: &mut Canvas,
    at: (i32, i32),
    topology: &Topology,
    units: &UnitDomains,
    marks: &Marks<'_>,
) -> Area {
    let mut root = tree(topology, units);
    root.lay(marks);
    let area = root.area.moved(at.0, at.1);
    let mut layers = Layers::default();
    root.draw_inside(&mut layers, at, 0, topology, marks);
    layers.onto(canvas);
    area
}

/// What is drawn, by how deep it lies; within a layer nothing lies over anything else. Alike shapes that follow one another
/// take little room in a file.
#[derive(Default)]
struct Layers {
    boxes: Vec<Canvas>,
    titles: Canvas,
    strips: Canvas,
    units: Canvas,
    cells: Canvas,
    frames: Canvas,
    labels: Canvas,
}

impl Layers {
    fn boxes(&mut self, depth: usize) -> &mut Canvas {
        while self.boxes.len() <= depth {
            self.boxes.push(Canvas::default());
        }
        &mut self.boxes[depth]
    }

    fn onto(self, canvas: &mut Canvas) {
        let shapes = self.boxes.into_iter().chain([self.strips, self.cells]);
        let texts = [self.titles, self.units, self.labels];
        for mut layer in shapes.chain([self.frames]).chain(texts) {
            layer.sort();
            canvas.append(layer);
        }
    }
}

/// A legend of what [`machine`] draws, for what there is.
pub fn legend(
    canvas: &mut Canvas,
    (x, y): (i32, i32),
    topology: &Topology,
    units: &UnitDomains,
    load: bool,
) {
    let mut x = x;
    let mut entry = |canvas: &mut Canvas, text: &str, draw: &dyn Fn(&mut Canvas, Area)| {
        draw(canvas, Area::new(x, y, 18, 12));
        canvas.text(text, (x + 23, y + 6), 11, Anchor::Left, INK);
        x += 23 + width(text, 11) + 16;
    };
    let shared = UnitClass::ALL
        .iter()
        .any(|(_, class)| units.of(*class).iter().any(|of| of.pus.len() > 1));
    if shared {
        let text = "execution units that these PUs share";
        entry(canvas, text, &|canvas, area| canvas.fill(area, SHARED));
    }
    for (state, text) in [
        (PuState::Offline, "offline"),
        (PuState::Disallowed, "not in our cpuset"),
    ] {
        if topology.pus.iter().any(|pu| pu.state == state) {
            entry(canvas, text, &|canvas, area| hatched(canvas, area, state));
        }
    }
    if load {
        entry(canvas, "busy", &|canvas, area| {
            for step in 0..area.w {
                let part = Area::new(area.x + step, area.y, 1, area.h);
                canvas.fill(part, shade(f64::from(step) / f64::from(area.w - 1)));
            }
            canvas.frame(area, GREY);
        });
    }
}

/// From white to orange: how busy a PU is, 0 to 1.
pub fn shade(busy: f64) -> RGBColor {
    super::heat::between((255, 255, 255), (240, 150, 60), busy)
}

fn hatched(canvas: &mut Canvas, area: Area, state: PuState) {
    canvas.fill(area, PALE);
    canvas.hatch(area, state == PuState::Offline, HATCH);
    canvas.frame(area, GREY);
}

/// The machine as boxes in boxes.
fn tree(topology: &Topology, units: &UnitDomains) -> Node {
    let node = |pus: &PuSet, title: Vec<String>| Node {
        pus: pus.clone(),
        title,
        ..Node::default()
    };
    let mut boxes: Vec<(usize, Node)> = Vec::new();
    for package in &topology.packages {
        let mut title = format!("package {}", package.os);
        if !package.model.is_empty() {
            title += &format!(" · {}", package.model);
        }
        boxes.push((0, node(&package.pus, vec![title])));
    }
    for of in topology.numa_nodes.iter().filter(|of| !of.pus.is_empty()) {
        let mut title = format!("NUMA node {}", of.os);
        if of.memory > 0 {
            title += &format!(" · {}", bytes(of.memory));
        }
        boxes.push((1, node(&of.pus, vec![title])));
    }
    // A core's own caches are lines of its title.
    let own = |cache: &Cache| {
        let core = cache.pus.first().and_then(|pu| topology.core_of(pu));
        core.is_some_and(|core| cache.pus.is_subset(&core.pus))
    };
    let sized = |cache: &Cache| match cache.size {
        0 => format!("L{}", cache.level),
        size => format!("L{} {}", cache.level, bytes(size)),
    };
    for cache in topology
        .caches
        .iter()
        .filter(|cache| cache.level > 1 && !own(cache))
    {
        boxes.push((
            10 - usize::from(cache.level),
            node(&cache.pus, vec![sized(cache)]),
        ));
    }
    for (number, core) in topology.cores.iter().enumerate() {
        let mut title = vec![format!("core {number}")];
        if topology.kinds.len() > 1 {
            title.push(topology.kinds[core.kind].name.clone());
        }
        let l2 = topology
            .caches
            .iter()
            .find(|cache| cache.level == 2 && cache.pus == core.pus && cache.size > 0);
        title.extend(l2.map(sized));
        boxes.push((20, node(&core.pus, title)));
    }
    boxes.sort_by_key(|(rank, of)| (std::cmp::Reverse(of.pus.len()), *rank, of.pus.first()));
    let mut root = node(&topology.all(), Vec::new());
    for (_, of) in boxes {
        root.take_in(of);
    }
    for pu in topology.pus.iter().map(|pu| pu.os) {
        root.take_in_pu(pu);
    }
    for (name, class) in UnitClass::ALL {
        let name = if class == UnitClass::Fp { "FP" } else { name };
        for domain in units.of(class).iter().filter(|of| of.pus.len() > 1) {
            root.share(&domain.pus, name);
        }
    }
    root
}

impl Node {
    /// Puts a box, no larger than any before, where it belongs. One that cuts through another is left out.
    fn take_in(&mut self, of: Node) {
        if let Some(around) = self
            .parts
            .iter_mut()
            .find(|part| of.pus.is_subset(&part.pus))
        {
            around.take_in(of);
        } else if self.parts.iter().all(|part| of.pus.is_disjoint(&part.pus)) {
            self.parts.push(of);
        }
    }

    fn take_in_pu(&mut self, pu: u32) {
        match self.parts.iter_mut().find(|part| part.pus.contains(pu)) {
            Some(part) => part.take_in_pu(pu),
            None => self.bare.push(pu),
        }
    }

    /// Notes units with the innermost box of exactly these PUs.
    fn share(&mut self, pus: &PuSet, name: &'static str) {
        match self.parts.iter_mut().find(|part| pus.is_subset(&part.pus)) {
            Some(part) => part.share(pus, name),
            None if self.pus == *pus => self.units.push(name),
            None => {}
        }
    }

    fn head(&self) -> i32 {
        TITLE * self.title.len() as i32
    }

    fn foot(&self) -> i32 {
        if self.units.is_empty() { 0 } else { UNITS + 2 }
    }

    /// Gives everything in the box its place, and the box its size.
    fn lay(&mut self, marks: &Marks<'_>) {
        for part in &mut self.parts {
            part.lay(marks);
        }
        let cell = (marks.width, if marks.labels { 2 * LINE - 3 } else { LINE });
        let parts = self.parts.iter().map(|part| (part.area.w, part.area.h));
        let sizes: Vec<(i32, i32)> = match self.parts.is_empty() {
            true => vec![cell; self.bare.len()],
            // PUs beside boxes: a core that the machine does not tell.
            false => parts.chain(vec![cell; self.bare.len()]).collect(),
        };
        let most = |side: &dyn Fn(&(i32, i32)) -> i32| sizes.iter().map(side).max().unwrap_or(0);
        let (w, h) = (most(&|size| size.0) + PAD, most(&|size| size.1) + PAD);
        let columns = match self.parts.is_empty() {
            true => sizes.len().clamp(1, PUS),
            false => columns(sizes.len(), w, h),
        };
        let (left, top) = (PAD, PAD + self.head());
        let place = |(at, size): (usize, &(i32, i32))| {
            let (row, column) = ((at / columns) as i32, (at % columns) as i32);
            Area::new(left + column * w, top + row * h, size.0, size.1)
        };
        let areas: Vec<Area> = sizes.iter().enumerate().map(place).collect();
        for (part, area) in self.parts.iter_mut().zip(&areas) {
            part.area = *area;
        }
        self.cells = areas[self.parts.len()..].to_vec();
        let rows = sizes.len().div_ceil(columns) as i32;
        let used = columns.min(sizes.len().max(1)) as i32;
        let title = self.title.iter().map(|line| width(line, FONT)).max();
        // A long model's name may be cut, a core's may not.
        let least = title.unwrap_or(0).min(230) + 2 * PAD;
        self.area.w = (used * w + PAD).max(least);
        self.area.h = top + rows * h + self.foot();
    }

    fn draw(
        &self,
        layers: &mut Layers,
        at: (i32, i32),
        depth: usize,
        topology: &Topology,
        marks: &Marks<'_>,
    ) {
        let area = self.area.moved(at.0, at.1);
        layers.boxes(depth).fill(area, SHADES[depth % SHADES.len()]);
        layers.boxes(depth).frame(area, GREY);
        for (line, title) in self.title.iter().enumerate() {
            let y = area.y + PAD + TITLE * line as i32 + TITLE / 2 - 2;
            let title = cut(title, area.w - 2 * PAD, FONT);
            let at = (area.x + PAD, y);
            layers.titles.text(&title, at, FONT, Anchor::Left, INK);
        }
        self.draw_inside(layers, (area.x, area.y), depth, topology, marks);
    }

    fn draw_inside(
        &self,
        layers: &mut Layers,
        at: (i32, i32),
        depth: usize,
        topology: &Topology,
        marks: &Marks<'_>,
    ) {
        for part in &self.parts {
            part.draw(layers, at, depth + 1, topology, marks);
        }
        for (pu, cell) in self.bare.iter().zip(&self.cells) {
            draw_pu(layers, cell.moved(at.0, at.1), *pu, topology, marks);
        }
        if !self.units.is_empty() {
            let y = at.1 + self.area.h - UNITS - PAD;
            let strip = Area::new(at.0 + PAD, y, self.area.w - 2 * PAD, UNITS);
            layers.strips.fill(strip, SHARED);
            layers.units.label(&self.units.join(", "), strip, FONT - 1);
        }
    }
}

fn draw_pu(layers: &mut Layers, area: Area, pu: u32, topology: &Topology, marks: &Marks<'_>) {
    let state = topology.pu(pu).map_or(PuState::Usable, |pu| pu.state);
    let mark = (marks.of)(pu);
    match (state, &mark) {
        (PuState::Usable, Some(mark)) => layers.cells.fill(area, mark.colour),
        (PuState::Usable, None) => layers.cells.fill(area, PALE),
        _ => hatched(&mut layers.cells, area, state),
    }
    layers.frames.frame(area, GREY);
    if !marks.labels {
        layers.labels.label(&pu.to_string(), area, FONT);
        return;
    }
    let line = Area {
        h: area.h / 2,
        ..area
    };
    layers.labels.label(&format!("PU {pu}"), line, FONT - 1);
    if let Some(mark) = mark {
        let below = Area {
            y: line.y + line.h - 1,
            ..line
        };
        layers.labels.label(&mark.label, below, FONT);
    }
}

/// In how many columns boxes of a size come nearest to the shape that a page has.
fn columns(boxes: usize, w: i32, h: i32) -> usize {
    let off = |columns: &usize| {
        let rows = boxes.div_ceil(*columns);
        let aspect = (*columns as f64 * f64::from(w)) / (rows as f64 * f64::from(h));
        // A row that is not full looks like something else.
        let ragged = if boxes.is_multiple_of(*columns) {
            0.0
        } else {
            0.5
        };
        (aspect / ASPECT).ln().abs() + ragged
    };
    let all = 1..=boxes.max(1);
    all.min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::ShareLevel;
    use perch_linux::topology::{Source, load};

    fn laid(description: &str, level: ShareLevel) -> (Node, Topology) {
        let topology = load(&Source::Synthetic(description.to_owned()))
            .unwrap()
            .topology;
        let fp = (UnitClass::Fp, topology.domains(level));
        let mut root = tree(&topology, &[fp].into_iter().collect());
        root.lay(&Marks {
            width: 24,
            labels: false,
            of: &|_| None,
        });
        (root, topology)
    }

    /// Boxes and PUs lie in what is around them, and beside each other.
    fn check(node: &Node, pus: &mut Vec<u32>) {
        let inner = node.parts.iter().map(|part| part.area);
        let inner: Vec<Area> = inner.chain(node.cells.iter().copied()).collect();
        for (at, a) in inner.iter().enumerate() {
            assert!(a.x > 0 && a.y > 0, "{a:?}");
            assert!(a.x + a.w < node.area.w, "{a:?} in {:?}", node.area);
            assert!(
                a.y + a.h + node.foot() < node.area.h,
                "{a:?} in {:?}",
                node.area
            );
            for b in &inner[at + 1..] {
                let beside = a.x + a.w <= b.x || b.x + b.w <= a.x;
                let below = a.y + a.h <= b.y || b.y + b.h <= a.y;
                assert!(beside || below, "{a:?} and {b:?}");
            }
        }
        pus.extend(&node.bare);
        node.parts.iter().for_each(|part| check(part, pus));
    }

    #[test]
    fn boxes_lie_in_boxes_and_none_over_another() {
        for (description, count) in [
            ("pu:4", 4),
            ("package:2 numanode:1 l3:2 l2:4 core:1 pu:2", 32),
            ("package:1 l3:1 l2:4 core:2 pu:1", 8),
            ("package:4 numanode:2 l3:8 core:8 pu:2", 1024),
            ("core:3 pu:8", 24),
        ] {
            let (root, topology) = laid(description, ShareLevel::Core);
            let mut pus = Vec::new();
            check(&root, &mut pus);
            pus.sort_unstable();
            assert_eq!(pus.len(), count, "{description}");
            assert!(pus.iter().copied().eq(topology.pus.iter().map(|pu| pu.os)));
        }
    }

    #[test]
    fn units_stand_in_the_box_of_the_pus_that_share_them() {
        fn boxes(node: &Node) -> Vec<&Node> {
            let inner = node.parts.iter().flat_map(boxes);
            inner
                .chain([node])
                .filter(|node| !node.units.is_empty())
                .collect()
        }
        let (root, _) = laid("package:1 l3:1 l2:4 core:2 pu:1", ShareLevel::L2);
        let titles: Vec<&str> = boxes(&root).iter().map(|node| &*node.title[0]).collect();
        assert_eq!(titles.len(), 4);
        assert!(
            titles.iter().all(|title| title.starts_with("L2")),
            "{titles:?}"
        );
        let (root, _) = laid("package:1 l3:2 core:4 pu:2", ShareLevel::Core);
        assert_eq!(boxes(&root).len(), 8);
        let (root, _) = laid("package:1 l3:2 core:4 pu:2", ShareLevel::Pu);
        assert!(boxes(&root).is_empty());
    }
}
