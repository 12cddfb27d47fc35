//! The lives of programs and threads: they start, start others, and end.

use super::{Process, SimError, Start, System, addresses::own_bytes};
use crate::{
    os::{Queue, Sync},
    thread::{Identity, Sources, State, Thread},
    units::Ps,
    workload::{Step, ThreadModel},
};
use perch_core::PuSet;
use std::{collections::HashMap, sync::Arc};

/// Threads that live at a time at most, as many as a workload may begin with.
const MOST_ALIVE: usize = 65_536;

/// Threads of a run at most: none has the number of another, and this is the largest `pid_max` of Linux.
const MOST_STARTED: usize = 4_194_304;

impl System {
    /// Starts the programs whose time has come.
    pub(super) fn begin(&mut self) {
        while let Some(start) = self
            .starts
            .last()
            .copied()
            .filter(|start| start.at <= self.now)
        {
            self.starts.pop();
            self.start(start);
        }
    }

    fn start(&mut self, start: Start) {
        let program = start.program;
        let workload = Arc::clone(&self.workload);
        let model = &workload.programs[program];
        let number = self.processes.len();
        let mut regions = HashMap::new();
        for set in workload.mixes.iter().flat_map(|mix| &mix.working_sets) {
            if let Some(region) = &set.region {
                let taken = || {
                    let base = self.addresses.take(set.bytes);
                    if model.has_several_threads() {
                        self.processor.watch(base, set.bytes);
                    }
                    base
                };
                regions.entry(region.clone()).or_insert_with(taken);
            }
        }
        let mut code = self
            .addresses
            .code(workload.code_of(program), &workload.mixes);
        let recorded = self.addresses.recordings(model, &workload.mixes, &mut code);
        if model.has_several_threads() {
            for (base, bytes) in recorded {
                self.processor.watch(base, bytes);
            }
        }
        let started = self.now;
        let first = self.threads.len();
        let requests = model.requests.as_ref().map(|requests| {
            let random = self.random.part(u64::MAX - number as u64);
            Queue::new(requests, self.machine.scale, random, started)
        });
        if requests.is_some() {
            self.serving.push(number);
        }
        self.processes.push(Process {
            program,
            name: model.name.clone(),
            pid: first as i32 + 1,
            started,
            ended: None,
            live: 0,
            again: start.again,
            sync: Sync::default(),
            requests,
            born: vec![0; model.threads.len()],
            free: Vec::new(),
            regions,
            code,
        });
        for (kind, model) in model.threads.iter().enumerate() {
            for _ in 0..model.count {
                self.bear(number, kind, None);
            }
        }
        self.changed = true;
        for index in first..self.threads.len() {
            self.go_on(index, started, true);
        }
    }

    /// A new thread of a process, which has not done its first step.
    fn bear(&mut self, process: usize, kind: usize, parent: Option<usize>) -> usize {
        let index = self.threads.len();
        let workload = Arc::clone(&self.workload);
        let here = &mut self.processes[process];
        let model = &workload.programs[here.program].threads[kind];
        here.born[kind] += 1;
        here.live += 1;
        let name = match (model.count, parent) {
            (1, None) => model.name.clone(),
            _ => format!("{}-{}", model.name, here.born[kind]),
        };
        for name in barriers(model) {
            here.sync.join_barrier(name);
        }
        let addresses = &mut self.addresses;
        let own = here.free.pop();
        let own = own.unwrap_or_else(|| addresses.take(own_bytes(&workload.mixes)));
        let sources = Sources {
            mixes: &workload.mixes,
            own,
            regions: &here.regions,
            code: &here.code,
            ordinal: here.born.iter().sum::<u32>() as usize - 1,
        };
        let identity = Identity {
            tid: index as i32 + 1,
            process,
            program: here.program,
            kind,
            parent,
            name,
            started: self.now,
        };
        // Copies do the same steps.
        let twin = self.threads.last().filter(|last| {
            let other = &last.identity;
            other.process == process && other.kind == kind && last.ended.is_none()
        });
        let steps: Arc<[Step]> = match twin {
            Some(twin) => twin.steps(),
            None => model.steps.clone().into(),
        };
        let random = self.random.part(index as u64 + 2);
        let mask = match model.pus.is_empty() {
            true => self.default_mask.clone(),
            false => model.pus.iter().copied().collect::<PuSet>(),
        };
        let mask = mask.and(&self.default_mask);
        if mask.is_empty() {
            self.failure.get_or_insert(SimError::Pinned {
                thread: identity.name.clone(),
                pus: self.machine.pus(),
            });
        }
        let thread = Thread::new(identity, steps, model, mask, &sources, &random);
        self.threads.push(thread);
        self.alive += 1;
        index
    }

    /// A thread starts others. They are all there before the first of them does anything.
    pub(super) fn spawn(&mut self, parent: usize, kind: usize, count: u32) -> Vec<usize> {
        let process = self.threads[parent].identity.process;
        let more = count as usize;
        let limit = if self.alive + more > MOST_ALIVE {
            format!("{MOST_ALIVE} at a time is the most")
        } else if self.threads.len() + more > MOST_STARTED {
            format!("{MOST_STARTED} in a run is the most")
        } else {
            self.threads[parent].bear(kind, count);
            self.changed = true;
            return (0..count)
                .map(|_| self.bear(process, kind, Some(parent)))
                .collect();
        };
        let program = &self.workload.programs[self.processes[process].program];
        self.failure = Some(SimError::Threads {
            at: self.moment(),
            why: format!(
                "{limit}; `{}` of `{}` starts `{}` again and again. Let it `join` them, or do it less often",
                self.threads[parent].identity.name, program.name, program.threads[kind].name,
            ),
        });
        Vec::new()
    }

    /// A thread has ended. Returns those that go on because of that.
    pub(super) fn end(&mut self, index: usize, at: Ps, stopped: bool) -> Vec<usize> {
        self.threads[index].state = State::Ended;
        self.threads[index].ended = Some(at);
        if !stopped {
            self.leave(index);
        }
        self.alive -= 1;
        let workload = Arc::clone(&self.workload);
        let (kind, parent) = {
            let identity = &self.threads[index].identity;
            (identity.kind, identity.parent)
        };
        let number = self.threads[index].identity.process;
        let process = &mut self.processes[number];
        let model = &workload.programs[process.program];
        process.free.push(self.threads[index].own);
        self.threads[index].bury();
        let mut others = Vec::new();
        if let Some(parent) = parent {
            // Threads that come and go do not keep the others from meeting.
            for name in barriers(&model.threads[kind]) {
                others.extend(process.sync.leave_barrier(name));
            }
            if self.threads[parent].lose(kind) {
                others.push(parent);
            }
        }
        process.live -= 1;
        if process.live > 0 {
            return others;
        }
        process.ended = Some(at);
        let program = process.program;
        self.unfinished -= usize::from(!process.again && !model.system);
        if let Some(queue) = &mut process.requests {
            queue.advance(at);
            self.serving.retain(|serving| *serving != number);
        }
        if model.restart && self.unfinished > 0 {
            let again = Start {
                program,
                at,
                again: true,
            };
            self.starts.push(again);
        }
        others
    }

    /// Now, in words.
    pub(super) fn moment(&self) -> String {
        format!("{:.6} ms", self.now as f64 * 1e-9)
    }

    pub(super) fn deadlock(&self) -> SimError {
        let waiting = self.threads.iter().filter_map(|thread| {
            let process = &self.processes[thread.identity.process];
            let name = format!("{} of {}", thread.identity.name, process.name);
            Some(match &thread.state {
                State::AtBarrier(barrier) => {
                    let (there, parties) = process.sync.at_barrier(barrier);
                    format!(
                        "  {name} waits at barrier `{barrier}` ({there} of {parties} are there)"
                    )
                }
                State::ForLock(lock) => {
                    let holder = process
                        .sync
                        .holder(lock)
                        .map(|holder| self.threads[holder].identity.name.as_str());
                    format!(
                        "  {name} waits for lock `{lock}`, held by {}",
                        holder.unwrap_or("nobody")
                    )
                }
                State::Joining(kind) => {
                    let kinds = &self.workload.programs[process.program].threads;
                    let living = thread.living(*kind);
                    format!(
                        "  {name} waits for the end of {living} `{}`",
                        kinds[*kind].name
                    )
                }
                State::ForRequest => format!("  {name} waits for a request"),
                State::Runnable | State::Sleeping(_) | State::ForDevice(..) | State::Ended => {
                    return None;
                }
            })
        });
        SimError::Deadlock {
            at: self.moment(),
            waiting: waiting.collect(),
        }
    }
}

/// The barriers at which such a thread waits, each once.
fn barriers(model: &ThreadModel) -> Vec<&str> {
    let names = model.steps.iter().filter_map(|step| match step {
        Step::Barrier(name) => Some(name.as_str()),
        _ => None,
    });
    let mut barriers: Vec<&str> = names.collect();
    barriers.sort_unstable();
    barriers.dedup();
    barriers
}
