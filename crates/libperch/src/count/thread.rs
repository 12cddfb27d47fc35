//! One thread's regions.

use super::{
    moment::{self, Moment, Source},
    names,
    part::Part,
    plan::Plan,
};
use crate::Error;
use perch_regions::{DEEPEST, End, MOST_REGIONS};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Most samples that a thread keeps.
const MOST_SAMPLES: usize = 100_000;

/// A thread that counts itself. Node 0 is no region but what is around the outermost ones.
pub(crate) struct Thread {
    tid: i32,
    pub name: Arc<str>,
    source: Source,
    sets: usize,
    /// Every piece of a region's time becomes a sample.
    sampled: bool,
    /// The program switches sets itself.
    by_hand: bool,
    nodes: Vec<Node>,
    stack: Vec<Frame>,
    pub samples: Vec<Sample>,
    pub lost_samples: u64,
    pub lost_regions: u64,
    numbers: FxHashMap<Arc<str>, u32>,
    /// Used again, so that starting a region allocates nothing.
    spare: Vec<Moment>,
    /// When it last stopped a region.
    last: u64,
    pub remark: Option<String>,
}

/// A region, by its path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    pub name: u32,
    pub parent: usize,
    children: Vec<(u32, usize)>,
    pub calls: u64,
    pub part: Part,
    /// Threads that were in it.
    pub threads: u32,
    /// Whether it is open now, or was when its thread exited.
    pub open: bool,
}

/// A region that was started and not stopped.
struct Frame {
    node: usize,
    /// Where its present piece begins.
    base: Moment,
    /// A sample was asked for.
    marked: bool,
}

/// What a region did in a piece of its time.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub node: usize,
    pub end: End,
    pub at: u64,
    pub set: usize,
    pub part: Part,
}

impl Thread {
    /// The calling thread. One that cannot be counted has times only, and says why.
    pub(crate) fn new(plan: &Plan) -> Self {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let mut remark = None;
        let counters = plan.counters.as_ref().and_then(|counters| {
            let opened = counters.open();
            opened
                .map_err(|error| {
                    let refused = perch_linux::perf::privilege::refusal("counting", error);
                    remark = Some(format!("of some threads only times are counted: {refused}"));
                })
                .ok()
        });
        Self {
            tid,
            name: own_name(),
            source: Source::new(tid, counters, plan.needs_waits),
            sets: plan.sets(),
            sampled: plan.asked.options.interval.is_some(),
            by_hand: false,
            nodes: vec![Node::default()],
            stack: Vec::with_capacity(DEEPEST),
            samples: Vec::new(),
            lost_samples: 0,
            lost_regions: 0,
            numbers: FxHashMap::default(),
            spare: Vec::new(),
            last: 0,
            remark,
        }
    }

    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    /// When it last stopped a region, on the monotonic clock.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether it is in no region.
    pub(crate) fn is_outside(&self) -> bool {
        self.stack.is_empty()
    }

    /// The number of the name of a region that is about to start.
    pub(crate) fn name(&mut self, name: &str) -> Result<u32, Error> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = names::number(name).inspect_err(|_| self.lost_regions += 1)?;
        self.numbers.insert(name.into(), number);
        Ok(number)
    }

    /// Starts a region, in the one that was started last.
    pub(crate) fn start(&mut self, name: u32) -> Result<(), Error> {
        if self.stack.len() >= DEEPEST {
            self.lost_regions += 1;
            return Err(Error::TooMany(format!(
                "more than {DEEPEST} regions inside each other"
            )));
        }
        let around = self.stack.last().map_or(0, |frame| frame.node);
        let node = self.child(around, name)?;
        let mut base = self.spare.pop().unwrap_or_default();
        // The clock comes last here and first in `moment`: reading counters takes longest.
        self.source.read(true, &mut base);
        base.wall = moment::now();
        self.stack.push(Frame {
            node,
            base,
            marked: false,
        });
        Ok(())
    }

    fn child(&mut self, around: usize, name: u32) -> Result<usize, Error> {
        let children = &self.nodes[around].children;
        if let Some((_, node)) = children.iter().find(|(known, _)| *known == name) {
            return Ok(*node);
        }
        let node = self.nodes.len();
        if node > MOST_REGIONS / 10 {
            self.lost_regions += 1;
            return Err(Error::TooMany(format!(
                "more than {} regions in one thread",
                MOST_REGIONS / 10
            )));
        }
        self.nodes.push(Node {
            name,
            parent: around,
            threads: 1,
            ..Node::default()
        });
        self.nodes[around].children.push((name, node));
        Ok(node)
    }

    /// Stops the innermost region of this name.
    pub(crate) fn stop_named(&mut self, name: &str) -> Result<(), Error> {
        let number = self.numbers.get(name).copied();
        self.stop(number)
            .ok_or_else(|| Error::NotStarted(names::shown(name).to_string()))
    }

    /// Stops the innermost region of this name; `None` if there is none.
    pub(crate) fn stop(&mut self, name: Option<u32>) -> Option<()> {
        let now = self.moment(true);
        self.last = now.wall;
        let Some(at) = self.open(name?) else {
            self.spare.push(now);
            return None;
        };
        let frame = self.stack.remove(at);
        self.nodes[frame.node].calls += 1;
        self.book(&frame, &now, End::Stop);
        self.spare.push(frame.base);
        self.spare.push(now);
        if self.sets > 1 && self.stack.is_empty() && !self.by_hand {
            self.turn(true);
        }
        Some(())
    }

    /// Its totals now; `own` tells that the thread reads its own.
    fn moment(&mut self, own: bool) -> Moment {
        let mut now = self.spare.pop().unwrap_or_default();
        now.wall = moment::now();
        self.source.read(own, &mut now);
        now
    }

    /// The place on the stack of the innermost region of this name.
    fn open(&self, name: u32) -> Option<usize> {
        self.stack
            .iter()
            .rposition(|frame| self.nodes[frame.node].name == name)
    }

    fn active(&self) -> usize {
        let counters = self.source.counters.as_ref();
        counters.map_or(0, perch_linux::perf::OwnCounters::active)
    }

    /// Books the piece of a region's time that ends now.
    fn book(&mut self, frame: &Frame, now: &Moment, end: End) {
        let set = self.active();
        self.nodes[frame.node].part.add(set, &frame.base, now);
        if !self.sampled && !frame.marked {
            return;
        }
        if self.samples.len() >= MOST_SAMPLES {
            self.lost_samples += 1;
            return;
        }
        let mut part = Part::default();
        part.add(set, &frame.base, now);
        self.samples.push(Sample {
            node: frame.node,
            end,
            at: now.wall,
            set,
            part,
        });
    }

    /// Ends the present piece of all open regions.
    fn settle(&mut self, own: bool, end: End) {
        let now = self.moment(own);
        let mut stack = std::mem::take(&mut self.stack);
        for frame in &mut stack {
            self.book(frame, &now, end);
            frame.base.clone_from(&now);
        }
        self.stack = stack;
        self.spare.push(now);
    }

    /// Switches to the next event set.
    fn turn(&mut self, own: bool) {
        if let Some(counters) = &mut self.source.counters {
            // A set that cannot be switched counts on, and is marked as counted for its own time only.
            let _ = counters.turn();
        }
        let now = self.moment(own);
        for frame in &mut self.stack {
            frame.base.clone_from(&now);
        }
        self.spare.push(now);
    }

    /// Ends a piece of a region's time, as a sample of its own.
    pub(crate) fn mark(&mut self, name: &str) -> Result<(), Error> {
        let number = self.numbers.get(name).copied();
        let at = number.and_then(|number| self.open(number));
        let at = at.ok_or_else(|| Error::NotStarted(names::shown(name).to_string()))?;
        let now = self.moment(true);
        let mut frame = self.stack.remove(at);
        frame.marked = true;
        self.book(&frame, &now, End::Read);
        frame.base.clone_from(&now);
        self.stack.insert(at, frame);
        self.spare.push(now);
        Ok(())
    }

    /// The program switches to the next event set.
    pub(crate) fn next_set(&mut self) {
        self.by_hand = true;
        if self.sets > 1 {
            self.settle(true, End::Read);
            self.turn(true);
        }
    }

    /// The sampling interval is over: called by another thread.
    pub(crate) fn tick(&mut self) {
        if self.stack.is_empty() {
            return;
        }
        self.settle(false, End::Tick);
        if self.sets > 1 && !self.by_hand {
            self.turn(false);
        }
    }

    /// Forgets what was counted in regions of this name, and in those in them; open ones begin anew.
    pub(crate) fn reset(&mut self, name: &str) -> Result<(), Error> {
        let number = self.numbers.get(name).copied();
        let known = |node: &Node| number == Some(node.name);
        if !self.nodes[1..].iter().any(known) {
            return Err(Error::NoSuchRegion(names::shown(name).to_string()));
        }
        let mut inside = vec![false; self.nodes.len()];
        for at in 1..self.nodes.len() {
            let node = &self.nodes[at];
            // A region stands behind those around it.
            inside[at] = known(node) || inside[node.parent];
            if inside[at] {
                let node = &mut self.nodes[at];
                (node.calls, node.part) = (0, Part::default());
            }
        }
        self.samples.retain(|sample| !inside[sample.node]);
        let now = self.moment(true);
        for frame in self.stack.iter_mut().filter(|frame| inside[frame.node]) {
            frame.base.clone_from(&now);
        }
        self.spare.push(now);
        Ok(())
    }

    /// All regions as they are now, open ones included; those around a region stand before it, and node 0 is none.
    pub(crate) fn regions(&self, own: bool) -> Vec<Node> {
        let mut nodes = self.nodes.clone();
        if self.stack.is_empty() {
            return nodes;
        }
        let (mut now, set) = (Moment::default(), self.active());
        now.wall = moment::now();
        self.source.read(own, &mut now);
        for frame in &self.stack {
            let node = &mut nodes[frame.node];
            node.part.add(set, &frame.base, &now);
            node.open = true;
        }
        nodes
    }

    /// The thread exits: open regions end here, and nothing is counted any more.
    pub(crate) fn end(&mut self) {
        self.name = own_name();
        self.settle(true, End::Stop);
        for frame in std::mem::take(&mut self.stack) {
            self.nodes[frame.node].open = true;
        }
        self.close();
    }

    /// Closes its descriptors.
    pub(crate) fn close(&mut self) {
        self.source = Source::new(self.tid, None, false);
    }

    /// One for threads that have ended, to be added up.
    pub(crate) fn of_ended(plan: &Plan) -> Self {
        Self {
            tid: 0,
            name: "ended".into(),
            source: Source::new(0, None, false),
            remark: None,
            sets: plan.sets(),
            sampled: false,
            by_hand: false,
            nodes: vec![Node::default()],
            stack: Vec::new(),
            samples: Vec::new(),
            lost_samples: 0,
            lost_regions: 0,
            numbers: FxHashMap::default(),
            spare: Vec::new(),
            last: 0,
        }
    }

    /// Adds what a thread did that has ended; its samples are lost.
    pub(crate) fn absorb(&mut self, ended: &Self) {
        let mut here = vec![0; ended.nodes.len()];
        for (at, node) in ended.nodes.iter().enumerate().skip(1) {
            let known = self.nodes.len();
            let Ok(found) = self.child(here[node.parent], node.name) else {
                continue;
            };
            here[at] = found;
            let mine = &mut self.nodes[found];
            match found < known {
                true => mine.threads += node.threads,
                false => mine.threads = node.threads,
            }
            mine.calls += node.calls;
            mine.part.merge(&node.part);
        }
        self.lost_samples += ended.lost_samples + ended.samples.len() as u64;
        self.lost_regions += ended.lost_regions;
    }
}

/// The calling thread's name.
fn own_name() -> Arc<str> {
    let name = std::fs::read("/proc/thread-self/comm").unwrap_or_default();
    perch_core::text::name(name.trim_ascii_end()).into()
}
