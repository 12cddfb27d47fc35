//! The façade: samples in, metrics out.

use std::ops::Range;

use crate::code_cache::CodeCache;
use crate::instruction::Arch;
use crate::regs::Regs;
use crate::source::CodeSource;
use crate::thread::{Sample, SampledMetrics, ThreadMix};
use crate::window::WindowFinder;

/// Addresses remembered in one address space: about 3 MB when full.
const CACHE_CAPACITY: usize = 16 * 1024;

/// Estimates what threads do from sampled addresses: one for each address space.
///
/// Keep it as long as the process keeps its mappings: drop it at exec, and call
/// [`invalidate`](Self::invalidate) for executable mappings that appear, go or (anonymous ones) may have
/// been rewritten by a just-in-time compiler.
pub struct Estimator {
    finder: WindowFinder,
    cache: CodeCache,
}

impl Estimator {
    /// An estimator for code of `arch`.
    pub fn new(arch: Arch) -> Self {
        Self {
            finder: WindowFinder::new(arch),
            cache: CodeCache::new(CACHE_CAPACITY),
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
                after_load: None,
                data_address: None,
            };
        };
        Sample {
            ip,
            mix: Some(window.mix),
            after_load: window.after_load,
            data_address: regs
                .zip(window.operand.as_ref())
                .and_then(|(regs, operand)| operand.address(regs)),
        }
    }

    /// The metrics of what `thread` accumulated, which starts anew; `None` if nothing was decoded.
    /// `source` serves code around the sampled addresses that was not needed before.
    pub fn take(
        &mut self,
        source: &dyn CodeSource,
        thread: &mut ThreadMix,
    ) -> Option<SampledMetrics> {
        let _ = source;
        self.finder.clear();
        let mix = thread.sum.mix()?;
        Some(thread.finish(mix))
    }

    /// Forgets what was learnt from code at these addresses.
    pub fn invalidate(&mut self, range: Range<u64>) {
        self.finder.clear();
        self.cache.invalidate(&range);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.finder.clear();
        self.cache.clear();
    }

    /// Addresses remembered.
    pub fn known_addresses(&self) -> usize {
        self.cache.len()
    }
}
