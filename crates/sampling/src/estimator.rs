//! The façade: samples in, metrics out.

use std::ops::Range;
use std::time::Duration;

use crate::accesses::{Access, PER_SAMPLE};
use crate::code_cache::CodeCache;
use crate::flow;
use crate::graph::{Blocks, Graph};
use crate::instruction::Arch;
use crate::mix::{Mix, MixSum};
use crate::regs::Regs;
use crate::source::CodeSource;
use crate::thread::{Sample, SampledMetrics, ThreadMix};
use crate::window::WindowFinder;

/// Addresses remembered in one address space: about 3 MB when full.
const CACHE_CAPACITY: usize = 16 * 1024;

/// Fewer samples than this are taken one by one: they say too little about which way branches go.
pub(crate) const ENOUGH_FOR_FLOW: u64 = 20;

/// Standard error of the estimate, in units of the standard deviation √(p (1 - p)) that an instruction's being
/// floating-point has: nothing where nothing is floating point, most in the middle. Fitted to the programs for
/// development (docs/accuracy.md says how).
const FLOOR: f64 = 0.08;
/// The same for windows alone.
const FLOOR_APART: f64 = 0.10;
/// Standard error for every point by which the walk and the windows disagree.
const DISAGREEMENT: f64 = 0.4;
/// The least standard error, for rare code on which no sample fell.
const LEAST: f64 = 0.002;

/// A mix, with how wrong it may be besides sampling noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) mix: Mix,
    /// One standard error of the floating-point share, 0 to 1.
    pub(crate) model_error: f64,
}

impl Estimate {
    /// From the walk and from each sample's own window: their mean. Either can be far off, the windows where slow
    /// instructions draw the samples, the walk where it takes the wrong ways; how far they are apart says how wrong their
    /// mean may be.
    fn together(walked: &Mix, apart: &Mix) -> Self {
        let mut sum = MixSum::default();
        sum.add(walked, 1.0);
        sum.add(apart, 1.0);
        let mix = sum.mix().unwrap_or(*apart);
        let distance = walked.fp_share() - apart.fp_share();
        Self {
            mix,
            model_error: floor(&mix, FLOOR).hypot(DISAGREEMENT * distance),
        }
    }

    /// From the windows alone.
    fn apart(mix: Mix) -> Self {
        Self {
            mix,
            model_error: floor(&mix, FLOOR_APART),
        }
    }
}

fn floor(mix: &Mix, part: f64) -> f64 {
    let share = mix.fp_share();
    LEAST.hypot(part * (share * (1.0 - share)).max(0.0).sqrt())
}

/// Estimates what threads do from sampled addresses: one for each address space.
///
/// Keep it as long as the process keeps its mappings: drop it at exec, and call
/// [`invalidate`](Self::invalidate) for executable mappings that appear, go or (anonymous ones) may have
/// been rewritten by a just-in-time compiler.
pub struct Estimator {
    finder: WindowFinder,
    cache: CodeCache,
    blocks: Blocks,
}

impl Estimator {
    /// An estimator for code of `arch`.
    pub fn new(arch: Arch) -> Self {
        Self {
            finder: WindowFinder::new(arch),
            cache: CodeCache::new(CACHE_CAPACITY),
            blocks: Blocks::default(),
        }
    }

    /// Looks up one user-mode sample. A known address costs a hash lookup; a new one is decoded from
    /// `source`.
    pub fn sample(&mut self, source: &dyn CodeSource, ip: u64, regs: Option<&Regs>) -> Sample {
        if self.cache.get(ip).is_none() {
            let window = self.finder.window(source, ip);
            self.cache.insert(ip, window);
        }
        let Some(window) = self.cache.get(ip).and_then(Option::as_ref) else {
            return Sample {
                ip,
                mix: None,
                kind: None,
                after_load: None,
                data_address: None,
                accesses: [None; PER_SAMPLE],
            };
        };
        Sample {
            ip,
            mix: Some(window.mix),
            kind: Some(window.kind),
            after_load: window.after_load,
            data_address: regs
                .zip(window.operand.as_ref())
                .and_then(|(regs, operand)| operand.address(regs)),
            accesses: window.operands.map(|operand| {
                let (operand, regs) = (operand?, regs?);
                Some(Access {
                    address: operand.address(regs)?,
                    write: operand.write,
                })
            }),
        }
    }

    /// The metrics of what `thread` accumulated in a period of this length, which starts anew; `None` if nothing was
    /// decoded. `source` serves code around the sampled addresses that was not needed before.
    pub fn take(
        &mut self,
        source: &dyn CodeSource,
        thread: &mut ThreadMix,
        period: Duration,
    ) -> Option<SampledMetrics> {
        let apart = thread.sum.mix()?;
        let estimate = match self.walk(source, thread) {
            Some(walked) => Estimate::together(&walked, &apart),
            None => Estimate::apart(apart),
        };
        self.finder.clear();
        Some(thread.finish(estimate, period))
    }

    /// Like [`take`](Self::take), but every sample by itself: hundreds of times cheaper, and less exact (see
    /// [`SampledMetrics::fp_share_error`]). For threads of which little is to be told, or when there are too many.
    pub fn take_apart(
        &mut self,
        thread: &mut ThreadMix,
        period: Duration,
    ) -> Option<SampledMetrics> {
        let mix = thread.sum.mix()?;
        Some(thread.finish(Estimate::apart(mix), period))
    }

    /// The mix of a walk from all samples of the thread, or `None` if there are too few.
    fn walk(&mut self, source: &dyn CodeSource, thread: &ThreadMix) -> Option<Mix> {
        if thread.fp.count() < ENOUGH_FOR_FLOW {
            return None;
        }
        // The most sampled first, for the graph's size is bounded; ties by address, to be repeatable.
        let mut addresses: Vec<(u64, f64)> = thread
            .hits
            .iter()
            .map(|(&ip, hits)| (ip, hits.faded))
            .collect();
        addresses.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let addresses: Vec<u64> = addresses.into_iter().map(|(ip, _)| ip).collect();
        let graph = Graph::explore(
            &mut self.finder.reader,
            &mut self.blocks,
            source,
            &addresses,
        );
        flow::mix(&graph, &thread.hits)
    }

    /// Forgets what was learnt from code at these addresses.
    pub fn invalidate(&mut self, range: Range<u64>) {
        self.finder.clear();
        self.blocks.clear();
        self.cache.invalidate(&range);
    }

    /// Forgets at which addresses there was no valid code, so that they are read again.
    pub fn forget_undecoded(&mut self) {
        self.finder.clear();
        self.blocks.clear();
        self.cache.forget_undecoded();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.finder.clear();
        self.blocks.clear();
        self.cache.clear();
    }

    /// Addresses remembered.
    pub fn known_addresses(&self) -> usize {
        self.cache.len()
    }
}
