//! Monitoring modules: told about threads, asked for values at the end of each period.

use crate::threads::Sampled;
use perch_core::{
    Module, ModuleContext, PuSample, Reading, Remark, ThreadEvent, ThreadId, ThreadInfo, Topology,
};
use rustc_hash::FxHashSet;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// The modules that were added to the machine.
pub(super) struct Modules {
    modules: Vec<Box<dyn Module>>,
    /// Launched threads whose start was reported before the program was executed.
    launched: FxHashSet<ThreadId>,
    /// Modules of which was said that they fail.
    failed: BTreeSet<String>,
    remarks: Vec<Remark>,
    /// How often some module must be read at least.
    refresh_every: Option<Duration>,
    refreshed: Instant,
}

/// What is known about a period before modules add to it.
pub(super) struct Period<'a> {
    pub topology: &'a Arc<Topology>,
    /// Nanoseconds.
    pub interval: u64,
    pub sampled: &'a mut Sampled,
    pub pus: &'a [PuSample],
}

impl Default for Modules {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Modules {
    pub(super) fn new(mut modules: Vec<Box<dyn Module>>) -> Self {
        modules.iter_mut().for_each(|module| module.begin());
        let refresh_every = modules.iter().filter_map(|module| module.refresh_every());
        Self {
            refresh_every: refresh_every.min(),
            modules,
            launched: FxHashSet::default(),
            failed: BTreeSet::new(),
            remarks: Vec::new(),
            refreshed: Instant::now(),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (dyn Module + 'static)> {
        self.modules.iter_mut().map(|module| &mut **module)
    }

    pub(super) fn descriptions(&self) -> impl Iterator<Item = String> {
        self.modules.iter().map(|module| module.description())
    }

    /// When [`Modules::refresh`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.refreshed + self.refresh_every?)
    }

    /// Reads what would be lost in a long period, if that is due.
    pub(super) fn refresh(&mut self) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.refreshed = Instant::now();
            self.iter_mut().for_each(Module::refresh);
        }
    }

    /// A program was forked and is about to be executed.
    pub(super) fn launched(&mut self, thread: ThreadId) {
        let info = ThreadInfo {
            id: thread,
            pid: thread.tid,
            name: "".into(),
            process: "".into(),
            work: perch_core::Work::default(),
        };
        self.launched.insert(thread);
        for module in self.iter_mut().filter(|module| module.wants().starts) {
            module.thread_event(ThreadEvent::Started(&info));
        }
    }

    /// Reports what happened to threads.
    fn tell(&mut self, sampled: &Sampled) {
        let threads = &sampled.threads;
        let launched = &self.launched;
        for module in &mut self.modules {
            let wants = module.wants();
            if wants.starts {
                for (id, _) in sampled.new.iter().filter(|(id, _)| !launched.contains(id)) {
                    if let Ok(at) = threads.binary_search_by_key(id, |sample| sample.info.id) {
                        module.thread_event(ThreadEvent::Started(&threads[at].info));
                    }
                }
            }
            if wants.migrations || wants.switches {
                for sample in threads {
                    let times = sample.migrations.filter(|times| *times > 0);
                    if let Some(times) = times.filter(|_| wants.migrations) {
                        module.thread_event(ThreadEvent::Migrated(sample, times));
                    }
                    let times = sample.switches.filter(|times| *times > 0);
                    if let Some(times) = times.filter(|_| wants.switches) {
                        module.thread_event(ThreadEvent::Switched(sample, times));
                    }
                }
            }
            if wants.exits {
                for id in &sampled.ended {
                    module.thread_event(ThreadEvent::Exited(*id));
                }
            }
        }
        for (id, _) in &sampled.new {
            self.launched.remove(id);
        }
    }

    /// Adds to the threads of a period what modules know of them, the sampler first; returns what they know of everything
    /// else.
    pub(super) fn period(
        &mut self,
        sampler: Option<&mut dyn Module>,
        period: Period<'_>,
    ) -> Vec<Reading> {
        let Period {
            topology,
            interval,
            sampled,
            pus,
        } = period;
        self.tell(sampled);
        self.refreshed = Instant::now();
        let Sampled { threads, ended, .. } = sampled;
        let (mut readings, mut failures) = (Vec::new(), Vec::new());
        let own = self
            .modules
            .iter_mut()
            .map(|module| &mut **module as &mut dyn Module);
        for module in sampler.into_iter().chain(own) {
            let values = module.period(&ModuleContext {
                topology,
                interval,
                threads,
                pus,
                ended,
            });
            let values = match values {
                Ok(values) => values,
                Err(error) => {
                    failures.push((module.name().to_owned(), error));
                    continue;
                }
            };
            for (id, metrics) in values.threads {
                if let Ok(at) = threads.binary_search_by_key(&id, |sample| sample.info.id) {
                    for (name, metric) in metrics.iter() {
                        threads[at].metrics.set(name.clone(), *metric);
                    }
                }
            }
            readings.extend(values.readings);
        }
        for (name, error) in failures {
            if self.failed.insert(name.clone()) {
                let text = format!("module `{name}` fails, so that less is known: {error}");
                let remark = Remark::error("module-failed", text).keyed(name);
                self.remarks.push(remark);
            }
        }
        readings
    }

    pub(super) fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }
}
