//! What threads do from step to step: they compute, wait for each other and for requests and devices, and sleep.

use super::System;
use crate::{
    os::Taken,
    thread::{State, Wish},
    units::Ps,
};
use std::cmp::Reverse;

/// A thread whose turn it is to go on, and whether it is on no PU.
type Turn = (usize, bool);

impl System {
    /// Lets a thread go on to what it wants next, and every thread that can go on because of that. It is on no PU,
    /// unless it computes on.
    pub(super) fn go_on(&mut self, index: usize, at: Ps, stopped: bool) {
        // Not by recursion: a thousand threads may wait for one lock.
        let mut turns = std::mem::take(&mut self.turns);
        turns.push((index, stopped));
        while let Some(turn) = turns.pop() {
            self.take_turn(turn, at, &mut turns);
            if self.failure.is_some() {
                turns.clear();
            }
        }
        self.turns = turns;
    }

    /// One thread goes on until it computes, waits, ends, or lets others go on before itself.
    fn take_turn(&mut self, (index, stopped): Turn, at: Ps, turns: &mut Vec<Turn>) {
        let process = self.threads[index].identity.process;
        loop {
            let others = match self.threads[index].step() {
                Wish::Compute if stopped => {
                    let is_new = self.threads[index].cpu_time == 0;
                    self.threads[index].state = State::Runnable;
                    return match is_new {
                        true => self.scheduler.start(index, &mut self.threads, self.now),
                        false => self.scheduler.wake(index, &mut self.threads, self.now),
                    };
                }
                Wish::Compute => return self.resume(index, at),
                Wish::Barrier(name) => match self.processes[process].sync.arrive(&name, index) {
                    Some(others) => others,
                    None => return self.block(index, State::AtBarrier(name), stopped),
                },
                Wish::Lock(name) => match self.processes[process].sync.lock(&name, index) {
                    true => continue,
                    false => return self.block(index, State::ForLock(name), stopped),
                },
                Wish::Unlock(name) => {
                    let next = self.processes[process].sync.unlock(&name);
                    next.into_iter().collect()
                }
                Wish::Sleep(time) => {
                    let until = at.saturating_add(self.machine.machine_time(time).max(1));
                    self.sleepers.push(Reverse((until, index)));
                    return self.block(index, State::Sleeping(until), stopped);
                }
                Wish::Receive => match self.take_request(process, index, at) {
                    Taken::Request => continue,
                    Taken::Wait => return self.block(index, State::ForRequest, stopped),
                    Taken::Over => return self.end_turn(index, at, stopped, turns),
                },
                Wish::Reply => {
                    if let Some(queue) = &mut self.processes[process].requests {
                        queue.reply(index, at);
                    }
                    continue;
                }
                Wish::Io {
                    device,
                    time,
                    bytes,
                } => {
                    let until = self.devices.ask(device, time, bytes, at);
                    self.sleepers.push(Reverse((until, index)));
                    return self.block(index, State::ForDevice(device, until), stopped);
                }
                Wish::Spawn { kind, count } => self.spawn(index, kind, count),
                Wish::Join(kind) => match self.threads[index].living(kind) {
                    0 => continue,
                    _ => return self.block(index, State::Joining(kind), stopped),
                },
                Wish::End => return self.end_turn(index, at, stopped, turns),
            };
            if others.is_empty() {
                continue;
            }
            // First those, in their order, then this one again.
            turns.push((index, stopped));
            turns.extend(others.into_iter().rev().map(|other| (other, true)));
            return;
        }
    }

    fn end_turn(&mut self, index: usize, at: Ps, stopped: bool, turns: &mut Vec<Turn>) {
        let others = self.end(index, at, stopped);
        turns.extend(others.into_iter().rev().map(|other| (other, true)));
    }

    fn take_request(&mut self, process: usize, index: usize, at: Ps) -> Taken {
        match &mut self.processes[process].requests {
            Some(queue) => queue.take(index, at),
            None => Taken::Over,
        }
    }

    /// It computes on where it is.
    fn resume(&mut self, index: usize, at: Ps) {
        let Some(place) = self.threads[index].place else {
            return;
        };
        let (pu, thread) = (place.pu as usize, Some(index as u32));
        let at = self.interrupts.until(pu, at);
        self.processor.assign(pu, thread, at, &mut self.threads);
    }

    fn block(&mut self, index: usize, state: State, stopped: bool) {
        self.threads[index].state = state;
        if !stopped {
            self.leave(index);
        }
    }

    /// A thread that was runnable has nothing to do.
    pub(super) fn leave(&mut self, index: usize) {
        self.threads[index].switches += 1;
        self.take_off(index);
        let now = self.now;
        self.scheduler.stop(index, &mut self.threads, now);
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

    /// When the next thread wakes of itself, by a request or with its program.
    pub(super) fn next_wake(&self) -> Option<Ps> {
        let sleeper = self.sleepers.peek().map(|Reverse((at, _))| *at);
        let start = self.starts.last().map(|start| start.at);
        let queues = self.serving.iter();
        let requests = queues.filter_map(|process| {
            let queue = self.processes[*process].requests.as_ref()?;
            queue.next_wake()
        });
        sleeper.into_iter().chain(start).chain(requests).min()
    }

    pub(super) fn wake(&mut self) {
        while let Some(Reverse((at, index))) = self.sleepers.peek().copied()
            && at <= self.now
        {
            self.sleepers.pop();
            self.changed = true;
            self.go_on(index, self.now, true);
        }
        // Backwards: a process that ends leaves the list.
        for place in (0..self.serving.len()).rev() {
            let Some(process) = self.serving.get(place).copied() else {
                continue;
            };
            let now = self.now;
            while let Some(queue) = &mut self.processes[process].requests
                && let Some((thread, taken)) = queue.wake(now)
            {
                self.changed = true;
                match taken {
                    Taken::Over => {
                        for other in self.end(thread, now, true) {
                            self.go_on(other, now, true);
                        }
                    }
                    Taken::Request | Taken::Wait => self.go_on(thread, now, true),
                }
            }
        }
    }
}
