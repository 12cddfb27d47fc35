//! A [`System`] behind [`perch_core::Machine`]: policies, recordings and reports work on it as on a live machine.

mod changes;

use crate::{
    counters::Counters,
    energy::Energy,
    events::{self, Deed},
    model::Op,
    system::{PuDeed, SimError, System},
    topology::topology,
    units::Ps,
};
use perch_core::{
    Affinity, Count, CountQuality, EventPlan, Machine, MachineError, Metric, MetricKind,
    MetricSource, Metrics, NiceSample, Observation, ProcessId, PuSample, PuSet, Reading, Sharing,
    Subject, ThreadId, ThreadInfo, ThreadSample, Topology, Wake, Work, metric::names,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

/// A clock tick of start times: 10 ms, as on Linux.
const TICK: u64 = 10_000_000;

/// What a thread had done when it was last observed.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    cpu_time: Ps,
    wait_time: Ps,
    switches: u64,
    migrations: u64,
    cycles: u64,
    counters: Counters,
    /// Nanojoules.
    energy: Energy,
}

/// A simulated machine under perch.
pub struct SimMachine {
    system: System,
    topology: Arc<Topology>,
    /// Each event's alias and how it is read.
    events: Vec<(Arc<str>, events::Read)>,
    /// Those of them that PUs have too.
    pu_events: Vec<(Arc<str>, events::Read)>,
    seen: Vec<Seen>,
    /// Threads whose end is not reported yet, in the order in which they started.
    living: Vec<usize>,
    /// Whether cache occupancy is among the events.
    occupancy: bool,
    masks: HashMap<usize, PuSet>,
    /// What each PU had done when it was last observed, if PUs are watched.
    pus: Option<Vec<PuDeed>>,
    /// What each package had taken when it was last observed, in joules; none if energy is not modelled.
    packages: Vec<(u32, f64)>,
    /// Whether nice values are observed.
    nices: bool,
    /// Whether the operating system's threads are observed.
    os: bool,
    /// Whether clocks and throttling are observed.
    settings: bool,
    observed: u64,
    limit: Option<u64>,
}

impl SimMachine {
    /// A machine with its workload. It stops by itself after `limit` of the operating system's time.
    pub fn new(system: System, limit: Option<Duration>) -> Self {
        Self {
            topology: Arc::new(topology(system.machine())),
            system,
            events: Vec::new(),
            pu_events: Vec::new(),
            seen: Vec::new(),
            living: Vec::new(),
            occupancy: false,
            masks: HashMap::new(),
            packages: Vec::new(),
            pus: None,
            nices: false,
            os: false,
            settings: false,
            observed: 0,
            limit: limit.map(|limit| limit.as_nanos() as u64),
        }
    }

    /// The machine beneath.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The machine's time in nanoseconds of the operating system.
    fn now(&self) -> u64 {
        self.time(self.system.now())
    }

    /// Bytes that each thread holds of the last level of caches, if that is wanted: all lines are looked at.
    fn held(&self) -> HashMap<u32, u64> {
        let mut held = HashMap::new();
        let caches = &self.system.machine().caches;
        let Some(last) = caches.iter().max_by_key(|cache| cache.level) else {
            return held;
        };
        if self.occupancy {
            for cache in self.system.occupancy(last.level) {
                for (thread, lines) in cache.lines {
                    *held.entry(thread).or_default() += lines * u64::from(last.line);
                }
            }
        }
        held
    }

    /// What PUs did since the last call, if they are watched. `held` are the bytes that threads hold of the last level
    /// of caches, which count for the PU where each was last.
    fn pus(&mut self, interval: u64, held: &HashMap<u32, u64>) -> Vec<PuSample> {
        let Some(seen) = &mut self.pus else {
            return Vec::new();
        };
        let mut here: HashMap<u32, u64> = HashMap::new();
        for (thread, bytes) in held {
            let last = self.system.threads()[*thread as usize].last_pu;
            *here.entry(last).or_default() += bytes;
        }
        let machine = self.system.machine();
        let deeds = self.system.pus().iter().zip(seen.iter_mut());
        let samples = (0u32..).zip(deeds).map(|(pu, (now, seen))| {
            let before = std::mem::replace(seen, *now);
            let deed = Deed {
                cycles: now.cycles - before.cycles,
                counters: now.counters.since(&before.counters),
                energy: (before.energy, now.energy),
                rest: (before.rest, now.rest),
                occupancy: here.get(&pu).copied().unwrap_or(0),
                footprint: 0,
            };
            let counts = self.pu_events.iter().map(|(alias, read)| Count {
                alias: Arc::clone(alias),
                value: read.of(&deed) as f64,
                quality: CountQuality::Exact,
            });
            PuSample {
                pu,
                interval,
                busy: machine
                    .os_time(now.busy + now.idle_interrupts - before.busy - before.idle_interrupts)
                    .min(interval),
                interrupts: machine
                    .os_time(now.interrupts - before.interrupts)
                    .min(interval),
                counts: counts.collect(),
                event_set: None,
            }
        });
        samples.collect()
    }

    /// What packages took since the last call, as the sensors of a live machine tell it: without memory.
    fn readings(&mut self) -> Vec<Reading> {
        let machine = self.system.machine();
        if machine.energy.is_none() {
            return Vec::new();
        }
        let mut packages: BTreeMap<u32, f64> = BTreeMap::new();
        let places = machine.places();
        for ((core, _), deed) in places.iter().zip(self.system.pus()) {
            let package = packages.entry(machine.cores[*core].package).or_default();
            *package += (deed.energy.packages() + deed.rest.packages()) * 1e-9;
        }
        let packages: Vec<(u32, f64)> = packages.into_iter().collect();
        let before = std::mem::replace(&mut self.packages, packages);
        let reading = |(at, (package, energy)): (usize, &(u32, f64))| Reading {
            subject: Subject::Package(*package),
            name: names::ENERGY_PKG.into(),
            kind: MetricKind::Amount,
            metric: Metric {
                value: energy - before.get(at).map_or(0.0, |(_, energy)| *energy),
                confidence: 1.0,
                source: MetricSource::Simulation,
            },
        };
        self.packages.iter().enumerate().map(reading).collect()
    }

    /// Who shares memory with whom, over an interval of the operating system's time.
    fn sharing(&mut self, interval: u64) -> Vec<Sharing> {
        let shared = self.system.take_shared();
        let mut sharing: Vec<Sharing> = shared
            .into_iter()
            .map(|shared| {
                let (a, b) = (self.id(shared.threads.0), self.id(shared.threads.1));
                Sharing {
                    threads: (a.min(b), a.max(b)),
                    transfers: shared.lines * 1e9 / interval.max(1) as f64,
                    confidence: 1.0,
                }
            })
            .collect();
        sharing.sort_unstable_by_key(|sharing| sharing.threads);
        sharing
    }

    fn time(&self, ps: Ps) -> u64 {
        self.system.machine().os_time(ps)
    }

    fn id(&self, index: usize) -> ThreadId {
        let identity = &self.system.threads()[index].identity;
        ThreadId {
            tid: identity.tid,
            start: self.time(identity.started) / TICK,
        }
    }

    fn index(&self, thread: ThreadId) -> Option<usize> {
        let index = usize::try_from(thread.tid).ok()?.checked_sub(1)?;
        let there = self.system.threads().get(index)?;
        (there.ended.is_none() && self.id(index) == thread).then_some(index)
    }
}

/// In words for the user.
fn failed(error: SimError) -> MachineError {
    MachineError::Other(error.to_string())
}

impl Machine for SimMachine {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError> {
        let (mut events, mut pu_events, mut occupancy) = (Vec::new(), Vec::new(), false);
        for event in plan.sets.iter().flat_map(|set| &set.events) {
            let Some(read) = event
                .spellings
                .iter()
                .find_map(|spelling| events::find(spelling, self.system.machine()))
            else {
                let spelling = event.spellings.first().map_or("", String::as_str);
                let hint = events::suggest(spelling, self.system.machine());
                let hint = hint.map_or(String::new(), |name| {
                    format!("; did you mean `sim::{name}`?")
                });
                return Err(MachineError::Other(format!(
                    "event `{}`: a simulated machine does not count `{spelling}`{hint}",
                    event.alias
                )));
            };
            let is = |name| events::names(&event.spellings, name);
            if !events::is_counted(&event.spellings, self.system.machine()) {
                continue;
            }
            occupancy |= is(events::LLC_OCCUPANCY);
            // All sets are counted at once, so once is enough.
            let known = |(alias, _): &(Arc<str>, events::Read)| *alias == event.alias;
            if events.iter().chain(&pu_events).any(known) {
                continue;
            }
            // What no thread takes is known of PUs only.
            if !events::REST.into_iter().any(is) {
                events.push((Arc::clone(&event.alias), read));
            }
            // What was touched is known of threads only.
            if !is(events::FOOTPRINT) {
                pu_events.push((Arc::clone(&event.alias), read));
            }
        }
        (self.events, self.pu_events, self.occupancy) = (events, pu_events, occupancy);
        Ok(())
    }

    fn watch_pus(&mut self, watch: bool) -> Result<(), MachineError> {
        self.pus = watch.then(|| self.system.pus().to_vec());
        Ok(())
    }

    fn watch_weights(&mut self, watch: bool) -> Result<(), MachineError> {
        self.nices = watch;
        Ok(())
    }

    fn watch_settings(&mut self, watch: bool) -> Result<(), MachineError> {
        if watch && self.points().is_empty() {
            let machine = &self.system.machine().name;
            return Err(MachineError::Absent(format!(
                "no core of {machine} can run at another clock (`clocks` in its file) or be throttled (`throttling`): choose \
                 another policy"
            )));
        }
        self.settings = watch;
        Ok(())
    }

    fn watch_system(&mut self, watch: bool) -> Result<(), MachineError> {
        self.os = watch;
        Ok(())
    }

    fn wait(&mut self, period: Duration) -> Result<Wake, MachineError> {
        let mut due = self.observed + period.as_nanos() as u64;
        if let Some(limit) = self.limit {
            due = due.min(limit);
        }
        let until = self.system.machine().machine_time(due);
        self.system.run(until).map_err(failed)?;
        Ok(match self.system.is_done() || self.limit == Some(due) {
            true => Wake::Ended(Some(0)),
            false => Wake::Period,
        })
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let now = self.now();
        let interval = now - std::mem::replace(&mut self.observed, now);
        let threads = self.system.threads().len();
        // Only those that are there are looked at, however many there were.
        self.living.extend(self.seen.len()..threads);
        self.seen.resize_with(threads, Seen::default);
        let held = self.held();
        let pus = self.pus(interval, &held);
        let living = std::mem::take(&mut self.living);
        let mut observation = Observation {
            at: now,
            interval,
            pus,
            sharing: self.sharing(interval),
            readings: self.readings(),
            settings: match self.settings {
                true => self.points(),
                false => Vec::new(),
            },
            ..Observation::default()
        };
        for index in living {
            let thread = &self.system.threads()[index];
            let before = self.seen[index];
            let id = self.id(index);
            let process = &self.system.processes()[thread.identity.process];
            // Of a thread that waits just now, the time that it has waited so far.
            let waiting = thread
                .waiting_since
                .map_or(0, |since| self.system.now() - since);
            let seen = Seen {
                cpu_time: thread.cpu_time,
                wait_time: thread.wait_time + waiting,
                switches: thread.switches,
                migrations: thread.migrations,
                cycles: thread.cycles,
                counters: thread.counters,
                energy: thread.energy,
            };
            self.seen[index] = seen;
            if thread.ended.is_none() {
                self.living.push(index);
            }
            let system = self.system.is_system(thread);
            if system && !self.os {
                continue;
            }
            let counters = seen.counters.since(&before.counters);
            let accesses = counters.ops[Op::Load as usize] + counters.ops[Op::Store as usize];
            let mix = thread.mix().map(|mix| &self.system.workload().mixes[mix]);
            let deed = Deed {
                cycles: seen.cycles - before.cycles,
                counters,
                footprint: mix.map_or(0, |mix| mix.touched(accesses)),
                energy: (before.energy, seen.energy),
                rest: (Energy::default(), Energy::default()),
                occupancy: held.get(&(index as u32)).copied().unwrap_or(0),
            };
            let counts = self.events.iter().map(|(alias, read)| Count {
                alias: Arc::clone(alias),
                value: read.of(&deed) as f64,
                quality: CountQuality::Exact,
            });
            let end = thread.ended.map_or(now, |end| self.time(end)).min(now);
            let start = self.time(thread.identity.started).max(now - interval);
            let mask = (self.masks.get(&index) != Some(&thread.mask)).then(|| thread.mask.clone());
            if mask.is_some() {
                self.masks.insert(index, thread.mask.clone());
            }
            if self.nices {
                observation.nices.push(NiceSample {
                    thread: id,
                    pid: process.pid,
                    nice: thread.nice,
                });
            }
            observation.threads.push(ThreadSample {
                info: ThreadInfo {
                    id,
                    pid: process.pid,
                    name: thread.identity.name.as_str().into(),
                    process: process.name.as_str().into(),
                    work: match system {
                        true => Work::System,
                        false => Work::Program,
                    },
                },
                interval: end.saturating_sub(start).max(1),
                cpu_time: self.time(seen.cpu_time - before.cpu_time),
                wait_time: self.time(seen.wait_time.saturating_sub(before.wait_time)),
                switches: Some(seen.switches - before.switches),
                migrations: Some(seen.migrations - before.migrations),
                last_pu: Some(thread.last_pu),
                mask,
                counts: counts.collect(),
                event_set: None,
                metrics: Metrics::default(),
            });
            if thread.ended.is_some() {
                observation.ended.push(id);
                self.masks.remove(&index);
            }
        }
        Ok(observation)
    }

    fn default_mask(&self) -> PuSet {
        self.system.default_mask().clone()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        self
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        Vec::new()
    }

    fn counting(&self) -> String {
        "the simulated machine's counters".into()
    }
}
