//! The lives of programs and threads: they start, compute, wait for each other, sleep and end.

use super::{Process, SimError, Start, Streams, System, addresses::own_bytes};
use crate::{
    os::Sync,
    thread::{Identity, Sources, State, Thread, Wish},
    units::{NANOSECOND, Ps},
    workload::Step,
};
use std::{cmp::Reverse, collections::HashMap, sync::Arc};

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
                let taken = || self.addresses.take(set.bytes);
                regions.entry(region.clone()).or_insert_with(taken);
            }
        }
        let mut code = self.addresses.code(program, &workload.mixes);
        self.addresses.recordings(model, &workload.mixes, &mut code);
        let own = own_bytes(&workload.mixes);
        let mut sync = Sync::default();
        let first = self.threads.len();
        for kind in &model.threads {
            let steps: Arc<[Step]> = kind.steps.clone().into();
            for copy in 0..kind.count {
                let index = self.threads.len();
                let name = match kind.count {
                    1 => kind.name.clone(),
                    _ => format!("{}-{}", kind.name, copy + 1),
                };
                let identity = Identity {
                    tid: index as i32 + 1,
                    process: number,
                    name,
                    started: self.now,
                };
                let mut barriers: Vec<&str> = kind.steps.iter().filter_map(barrier).collect();
                barriers.sort_unstable();
                barriers.dedup();
                barriers.iter().for_each(|name| sync.join_barrier(name));
                let sources = Sources {
                    mixes: &workload.mixes,
                    own: self.addresses.take(own),
                    regions: &regions,
                    code: &code,
                    ordinal: index - first,
                };
                let random = self.random.part(index as u64 + 2);
                let mask = self.default_mask.clone();
                self.threads.push(Thread::new(
                    identity,
                    Arc::clone(&steps),
                    kind.repeat,
                    mask,
                    &sources,
                    &random,
                ));
            }
        }
        let started = self.now;
        self.processes.push(Process {
            program,
            name: model.name.clone(),
            pid: first as i32 + 1,
            started,
            ended: None,
            live: self.threads.len() - first,
            again: start.again,
            sync,
        });
        self.changed = true;
        for index in first..self.threads.len() {
            self.go_on(index, started, true);
        }
    }

    /// Lets a thread go on to what it wants next. It is on no PU, unless it computes on.
    fn go_on(&mut self, index: usize, at: Ps, mut stopped: bool) {
        loop {
            let process = self.threads[index].identity.process;
            match self.threads[index].step() {
                Wish::Compute if stopped => {
                    let is_new = self.threads[index].cpu_time == 0;
                    self.threads[index].state = State::Runnable;
                    match is_new {
                        true => self.scheduler.start(index, &mut self.threads, self.now),
                        false => self.scheduler.wake(index, &mut self.threads, self.now),
                    }
                    return;
                }
                Wish::Compute => return self.resume(index, at),
                Wish::Barrier(name) => match self.processes[process].sync.arrive(&name, index) {
                    Some(others) => {
                        for other in others {
                            self.go_on(other, at, true);
                        }
                    }
                    None => return self.block(index, State::AtBarrier(name), stopped),
                },
                Wish::Lock(name) => {
                    if !self.processes[process].sync.lock(&name, index) {
                        return self.block(index, State::ForLock(name), stopped);
                    }
                }
                Wish::Unlock(name) => {
                    if let Some(next) = self.processes[process].sync.unlock(&name) {
                        self.go_on(next, at, true);
                    }
                }
                Wish::Sleep(time) => {
                    let time = ((time * NANOSECOND) as f64 / self.machine.scale) as Ps;
                    let until = at + time.max(1);
                    self.sleepers.push(Reverse((until, index)));
                    return self.block(index, State::Sleeping(until), stopped);
                }
                Wish::End => return self.end(index, at, stopped),
            }
            stopped |= !self.threads[index].is_runnable();
        }
    }

    /// It computes on where it is.
    fn resume(&mut self, index: usize, at: Ps) {
        let Some(place) = self.threads[index].place else {
            return;
        };
        let (core, context) = self.places[place.pu as usize];
        let mut streams = Streams(&mut self.threads);
        self.cores[core].assign(
            context,
            Some(index as u32),
            at,
            &mut streams,
            &mut self.memory,
        );
    }

    fn block(&mut self, index: usize, state: State, stopped: bool) {
        self.threads[index].state = state;
        if !stopped {
            self.leave(index);
        }
    }

    /// A thread that was runnable has nothing to do.
    fn leave(&mut self, index: usize) {
        self.threads[index].switches += 1;
        self.take_off(index);
        let now = self.now;
        self.scheduler.stop(index, &mut self.threads, now);
    }

    fn end(&mut self, index: usize, at: Ps, stopped: bool) {
        self.threads[index].state = State::Ended;
        self.threads[index].ended = Some(at);
        if !stopped {
            self.leave(index);
        }
        let number = self.threads[index].identity.process;
        let process = &mut self.processes[number];
        process.live -= 1;
        if process.live > 0 {
            return;
        }
        process.ended = Some(at);
        let program = process.program;
        self.unfinished -= usize::from(!process.again);
        if self.workload.programs[program].restart && self.unfinished > 0 {
            let again = Start {
                program,
                at,
                again: true,
            };
            self.starts.push(again);
        }
    }

    pub(super) fn handle_finished(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        self.changed = true;
        let mut finished = std::mem::take(&mut self.finished);
        for done in finished.drain(..) {
            self.go_on(done.thread as usize, done.at.min(self.now), false);
        }
        self.finished = finished;
    }

    pub(super) fn next_wake(&self) -> Option<Ps> {
        let sleeper = self.sleepers.peek().map(|Reverse((at, _))| *at);
        sleeper
            .into_iter()
            .chain(self.starts.last().map(|start| start.at))
            .min()
    }

    pub(super) fn wake(&mut self) {
        while let Some(Reverse((at, index))) = self.sleepers.peek().copied()
            && at <= self.now
        {
            self.sleepers.pop();
            self.changed = true;
            self.go_on(index, self.now, true);
        }
    }

    pub(super) fn deadlock(&self) -> SimError {
        let waiting = self.threads.iter().filter_map(|thread| {
            let process = &self.processes[thread.identity.process];
            let name = format!("{} of {}", thread.identity.name, process.name);
            match &thread.state {
                State::AtBarrier(barrier) => {
                    let (there, parties) = process.sync.at_barrier(barrier);
                    Some(format!(
                        "  {name} waits at barrier '{barrier}' ({there} of {parties} are there)"
                    ))
                }
                State::ForLock(lock) => {
                    let holder = process
                        .sync
                        .holder(lock)
                        .map(|holder| self.threads[holder].identity.name.as_str());
                    Some(format!(
                        "  {name} waits for lock '{lock}', held by {}",
                        holder.unwrap_or("nobody")
                    ))
                }
                _ => None,
            }
        });
        SimError::Deadlock {
            at: format!("{:.6} ms", self.now as f64 * 1e-9),
            waiting: waiting.collect(),
        }
    }
}

fn barrier(step: &Step) -> Option<&str> {
    match step {
        Step::Barrier(name) => Some(name),
        _ => None,
    }
}
