//! How threads are characterised: hardware counters where they can be had and believed, else sampled instructions.

use crate::{
    perf::TaskEvent,
    sampling::{Options, SamplerModule},
};
use perch_core::{
    EventPlan, MachineError, Module, ModuleContext, Topology, observation::ThreadSample,
};
use rustix::fd::BorrowedFd;
use std::sync::Arc;

/// What the user wants (`--counters`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountersMode {
    /// Hardware counters if they can be had, else instruction sampling.
    #[default]
    Auto,
    /// Hardware counters or an error.
    Pmu,
    /// Instruction sampling or an error.
    Sampling,
}

/// What is in use.
#[derive(Default)]
pub(super) struct Counting {
    mode: CountersMode,
    options: Options,
    sampler: Option<SamplerModule>,
    /// Users' own modules.
    pub(super) modules: Vec<Box<dyn Module>>,
    remarks: Vec<String>,
}

impl Counting {
    pub(super) fn new(
        mode: CountersMode,
        rate: Option<u32>,
        modules: Vec<Box<dyn Module>>,
    ) -> Self {
        let mut options = Options::default();
        if let Some(rate) = rate {
            (options.cpu_hz, options.thread_hz) = (rate, rate);
        }
        Self {
            mode,
            options,
            modules,
            ..Self::default()
        }
    }

    /// Opens what the mode asks for. Without permission for any of it, `auto` goes on with the kernel's accounting.
    pub(super) fn configure(&mut self, _plan: &EventPlan) -> Result<(), MachineError> {
        if self.sampler.is_none() {
            match SamplerModule::open(self.options) {
                Ok(sampler) => self.sampler = Some(sampler),
                Err(error) if self.mode == CountersMode::Auto => self.remarks.push(format!(
                    "threads are not characterised, so nothing can be decided: {error}"
                )),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A program is about to start.
    pub(super) fn launched(&mut self, thread: perch_core::ThreadId) {
        if let Some(sampler) = &mut self.sampler {
            sampler.attach(thread, thread.tid);
        }
    }

    /// The kernel told something of a thread.
    pub(super) fn note(&mut self, event: &TaskEvent) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note(event);
        }
    }

    /// Readable when rings fill up: then call [`Counting::drain`].
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sampler.as_ref().map(SamplerModule::fd)
    }

    pub(super) fn drain(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.drain();
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut (dyn Module + 'static)> {
        let sampler = self
            .sampler
            .iter_mut()
            .map(|sampler| sampler as &mut (dyn Module + 'static));
        sampler.chain(self.modules.iter_mut().map(|module| &mut **module))
    }

    /// Adds to the threads of a period what is known of them.
    pub(super) fn period(
        &mut self,
        topology: &Arc<Topology>,
        interval: u64,
        threads: &mut [ThreadSample],
        ended: &[perch_core::ThreadId],
    ) -> Result<(), MachineError> {
        for module in self.all() {
            let added = module.period(&ModuleContext {
                topology,
                interval,
                threads,
                ended,
            })?;
            for (id, metrics) in added {
                if let Ok(at) = threads.binary_search_by_key(&id, |sample| sample.info.id) {
                    for (name, metric) in metrics.iter() {
                        threads[at].metrics.set(name.clone(), *metric);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn take_remarks(&mut self) -> Vec<String> {
        let mut remarks = std::mem::take(&mut self.remarks);
        remarks.extend(self.all().flat_map(|module| module.remarks()));
        remarks
    }

    /// See [`perch_core::Machine::counting`].
    pub(super) fn description(&self) -> String {
        let sampler = self.sampler.as_ref().map(|sampler| sampler.description());
        let texts: Vec<String> = sampler
            .into_iter()
            .chain(self.modules.iter().map(|module| module.description()))
            .collect();
        if texts.is_empty() {
            "the kernel's accounting only (run times, waiting, switches)".into()
        } else {
            texts.join("; ")
        }
    }
}
