//! What was sampled of one thread.

use crate::accesses::{Access, PER_SAMPLE};
use crate::confidence::{self, Spread, TOLERANCE, Z99};
use crate::estimator::{ENOUGH_FOR_FLOW, Estimate};
use crate::flow::Hits;
use crate::footprint::Footprint;
use crate::mix::{Mix, MixSum};
use crate::window::WindowKind;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// How much samples of a second ago still count when branches are fitted.
const FADE: f64 = 0.8;
/// Faded samples below which an address is forgotten.
const FORGOTTEN: f64 = 0.1;
/// Addresses remembered for one thread; samples elsewhere still count one by one.
const MAX_ADDRESSES: usize = 4096;

/// One sample, after its address was looked up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The sampled address.
    pub ip: u64,
    /// Mix of the code that the address stands for; `None` if there is no valid code.
    pub mix: Option<Mix>,
    /// What that code is; `None` if there is no valid code.
    pub kind: Option<WindowKind>,
    /// Whether the instruction before the address reads memory, if known.
    pub after_load: Option<bool>,
    /// Address of a memory access around the sample, if registers were sampled and give one.
    pub data_address: Option<u64>,
    /// Memory accesses around the sample whose addresses the registers give, that one among them.
    pub accesses: [Option<Access>; PER_SAMPLE],
}

/// Accumulates the samples of one thread. One without samples holds no heap memory.
#[derive(Debug, Clone, Default)]
pub struct ThreadMix {
    pub(crate) sum: MixSum,
    pub(crate) fp: Spread,
    pub(crate) undecoded: u64,
    /// Samples by address.
    pub(crate) hits: FxHashMap<u64, Hits>,
    after_load: u64,
    predecessors: u64,
    footprint: Footprint,
}

impl ThreadMix {
    /// Adds one sample.
    pub fn add(&mut self, sample: &Sample) {
        match &sample.mix {
            Some(mix) => {
                self.sum.add(mix, 1.0);
                self.fp.add(mix.fp_share());
                if self.hits.len() < MAX_ADDRESSES || self.hits.contains_key(&sample.ip) {
                    let hits = self.hits.entry(sample.ip).or_default();
                    hits.now += 1.0;
                    hits.faded += 1.0;
                }
            }
            None => self.undecoded += 1,
        }
        if let Some(after_load) = sample.after_load {
            self.predecessors += 1;
            self.after_load += u64::from(after_load);
        }
        if let Some(address) = sample.data_address {
            self.footprint.add(address);
        }
    }

    /// Samples added since the last [`take`](crate::Estimator::take).
    pub fn samples(&self) -> u64 {
        self.fp.count() + self.undecoded
    }

    /// Whether the samples since the last [`take`](crate::Estimator::take) are enough to be seen together.
    pub fn is_enough(&self) -> bool {
        self.fp.count() >= ENOUGH_FOR_FLOW
    }

    /// Whether any sample since the last [`take`](crate::Estimator::take) fell on code with floating-point work.
    pub fn has_fp(&self) -> bool {
        self.sum.mix().is_some_and(|mix| mix.fp_share() > 0.0)
    }

    /// Forgets past periods too, as after an exec. [`take`](crate::Estimator::take) keeps the last 1,024
    /// data addresses and, fading, where samples fell.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// What the period's samples say; the next period begins, and this one fades by its length.
    pub(crate) fn finish(&mut self, estimate: Estimate, period: Duration) -> SampledMetrics {
        let metrics = SampledMetrics {
            samples: self.fp.count(),
            undecoded: self.undecoded,
            mix: estimate.mix,
            fp: self.fp,
            fp_model_error: estimate.model_error,
            memory_stall_share: (self.predecessors > 0)
                .then(|| self.after_load as f64 / self.predecessors as f64),
            footprint_bytes: self.footprint.bytes(),
            footprint_samples: self.footprint.len(),
        };
        let footprint = std::mem::take(&mut self.footprint);
        let mut hits = std::mem::take(&mut self.hits);
        let fade = FADE.powf(period.as_secs_f64());
        hits.retain(|_, hits| {
            *hits = Hits {
                now: 0.0,
                faded: hits.faded * fade,
            };
            hits.faded >= FORGOTTEN
        });
        *self = Self {
            footprint,
            hits,
            ..Self::default()
        };
        metrics
    }
}

/// Metrics estimated from a thread's samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledMetrics {
    /// Samples whose code could be decoded; everything but the footprint rests on these.
    pub samples: u64,
    /// Samples without valid code at their address.
    pub undecoded: u64,
    /// Estimated instruction mix.
    pub mix: Mix,
    /// Spread of the samples' floating-point shares: the sampling noise.
    pub fp: Spread,
    /// Standard error of the floating-point share besides sampling noise, 0 to 1: how far the estimate is from the
    /// truth however many samples there are.
    pub fp_model_error: f64,
    /// Share of samples whose previous instruction reads memory, 0 to 1. It rises with memory stalls,
    /// but tight loops over cached data have a high share too.
    pub memory_stall_share: Option<f64>,
    /// Estimated bytes of distinct cache lines accessed (a lower bound), over up to 1,024 past accesses.
    pub footprint_bytes: Option<f64>,
    /// Accesses that the footprint rests on; below about 200 it is a rough guess.
    pub footprint_samples: usize,
}

impl SampledMetrics {
    /// Stall share above which a thread may wait for memory.
    pub const STALL_THRESHOLD: f64 = 0.3;

    /// Share of instructions that do floating-point work, 0 to 1.
    pub fn fp_share(&self) -> f64 {
        self.mix.fp_share()
    }

    /// Standard error of the floating-point share, 0 to 1: sampling noise and the model's error.
    pub fn fp_share_error(&self) -> f64 {
        self.fp.standard_error().hypot(self.fp_model_error)
    }

    /// Half-width of the 99 % interval of the floating-point share, at most 1.
    pub fn fp_half_width(&self) -> f64 {
        (Z99 * self.fp_share_error()).min(1.0)
    }

    /// Probability that the floating-point share is within five points of the truth, 0 to 1.
    pub fn confidence(&self) -> f64 {
        confidence::within(TOLERANCE, self.fp_share_error())
    }

    /// Whether the thread's floating-point share is above `threshold`, with the probability of being right.
    pub fn fp_above(&self, threshold: f64) -> (bool, f64) {
        confidence::above(self.fp_share(), self.fp_share_error(), threshold)
    }

    /// How strongly the thread works on memory beyond a private cache of `l2_bytes`, 0 to 1: the stall
    /// share times the share of the footprint that does not fit, if the stall share exceeds
    /// [`STALL_THRESHOLD`](Self::STALL_THRESHOLD) and the footprint the cache; else 0. `None` if either
    /// is unknown.
    pub fn memory_intensity(&self, l2_bytes: u64) -> Option<f64> {
        let (stall, footprint) = (self.memory_stall_share?, self.footprint_bytes?);
        let cache = l2_bytes as f64;
        Some(if stall > Self::STALL_THRESHOLD && footprint > cache {
            stall * (1.0 - cache / footprint)
        } else {
            0.0
        })
    }
}
