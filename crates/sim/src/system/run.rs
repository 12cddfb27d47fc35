//! Time passes: threads run on PUs, and what they did is accounted for.

use super::{SimError, Stay, System};
use crate::{thread::Place, units::Ps};

impl System {
    /// Runs up to a moment, or until every program has ended once.
    ///
    /// # Errors
    /// A deadlock, threads that are started without an end.
    pub fn run(&mut self, until: Ps) -> Result<(), SimError> {
        while self.now < until && !self.is_done() {
            self.begin();
            self.put();
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let wake = self.next_wake();
            if wake.is_none() && self.scheduler.is_idle() {
                return Err(self.deadlock());
            }
            let still = self.processor.plays_long_spans() && self.scheduler.is_still(&self.threads);
            let tick = if still {
                Ps::MAX
            } else {
                self.scheduler.next_tick()
            };
            let next = until
                .min(tick.max(self.now + 1))
                .min(wake.unwrap_or(Ps::MAX).max(self.now + 1));
            // While all PUs are idle, nothing happens until a thread wakes.
            let next = match wake.filter(|_| self.scheduler.is_idle()) {
                Some(wake) => wake.clamp(self.now + 1, until),
                None => next,
            };
            let irq = self.interrupts.next().filter(|_| !self.scheduler.is_idle());
            let next = next.min(irq.unwrap_or(Ps::MAX).max(self.now + 1));
            let (from, processor) = (self.now, &mut self.processor);
            self.now = processor.run(from, next, &mut self.threads, &mut self.finished);
            if still {
                self.account();
                self.scheduler.pass(&self.threads, self.now);
            }
            self.handle_finished();
            self.interrupt();
            self.wake();
            if self.scheduler.next_tick() <= self.now {
                self.account();
                self.scheduler.tick(&mut self.threads, self.now);
                self.changed = true;
            }
        }
        self.account();
        self.measure();
        let now = self.now;
        for process in &self.serving {
            if let Some(queue) = &mut self.processes[*process].requests {
                queue.advance(now);
            }
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Puts on every PU the thread that the scheduler wants there.
    pub(super) fn put(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        for pu in 0..self.pus {
            let wanted = self.scheduler.current(pu);
            let present = self.processor.thread(pu).map(|thread| thread as usize);
            if wanted == present {
                continue;
            }
            if let Some(before) = present {
                self.take_off(before);
            }
        }
        for pu in 0..self.pus {
            let Some(wanted) = self.scheduler.current(pu) else {
                continue;
            };
            if self.processor.thread(pu).is_some() || self.threads[wanted].place.is_some() {
                continue;
            }
            let now = self.now;
            self.threads[wanted].place = Some(Place {
                pu: pu as u32,
                begun: now,
                accounted: now,
            });
            if let Some(meter) = &mut self.meter {
                meter.arrive(pu, now);
            }
            let at = self.interrupts.until(pu, self.now) + self.switch;
            self.processor
                .assign(pu, Some(wanted as u32), at, &mut self.threads);
        }
    }

    /// Interrupts that have come take their PUs.
    fn interrupt(&mut self) {
        while let Some((pu, time)) = self.interrupts.take(self.now) {
            self.deeds[pu].interrupts += time;
            match self.processor.thread(pu) {
                Some(_) => self.hold(pu),
                None => self.deeds[pu].idle_interrupts += time,
            }
        }
    }

    /// A PU does something else for some time from now on.
    pub(super) fn seize(&mut self, pu: usize, time: Ps) {
        if time > 0 {
            self.interrupts.seize(pu, self.now, time);
            self.hold(pu);
        }
    }

    /// A PU's thread goes on once the PU is no longer taken. That time counts as the thread's, as on a kernel that does not
    /// account for interrupts by themselves.
    fn hold(&mut self, pu: usize) {
        let Some(thread) = self.processor.thread(pu) else {
            return;
        };
        self.account_one(thread as usize);
        let at = self.interrupts.until(pu, self.now);
        self.processor
            .assign(pu, Some(thread), at, &mut self.threads);
    }

    /// Takes a thread off a PU that it may no longer use, which is busy with that for some time, and so is the one that it
    /// goes to.
    pub(super) fn put_after(&mut self, thread: usize, before: usize, time: Ps) {
        if time > 0 {
            self.interrupts.seize(before, self.now, time);
        }
        self.put();
        if let Some(place) = self.threads[thread].place {
            self.seize(place.pu as usize, time);
        }
    }

    /// Takes a thread off its PU, with what it has counted there.
    pub(super) fn take_off(&mut self, index: usize) {
        self.account_one(index);
        let Some(place) = self.threads[index].place.take() else {
            return;
        };
        if let Some(meter) = &mut self.meter {
            meter.leave(place.pu as usize, self.now);
        }
        if let Some(stays) = &mut self.stays {
            stays.push(Stay {
                thread: index,
                pu: place.pu,
                from: place.begun,
                to: self.now,
            });
        }
        let now = self.now;
        self.processor
            .assign(place.pu as usize, None, now, &mut self.threads);
    }

    /// Brings times and counts of running threads up to date.
    pub(super) fn account(&mut self) {
        for pu in 0..self.pus {
            if let Some(thread) = self.processor.thread(pu) {
                self.account_one(thread as usize);
            }
        }
    }

    fn account_one(&mut self, index: usize) {
        let now = self.now;
        let Some(place) = &mut self.threads[index].place else {
            return;
        };
        let ran = now.saturating_sub(place.accounted);
        place.accounted = now;
        let pu = place.pu as usize;
        let counted = self.processor.take_counters(pu);
        let cycles = ran / self.processor.cycle_time(pu);
        let deed = &mut self.deeds[pu];
        deed.busy += ran;
        deed.cycles += cycles;
        deed.counters += counted;
        let thread = &mut self.threads[index];
        if let Some(meter) = &mut self.meter {
            let energy = meter.take(pu, &counted, now);
            deed.energy += energy;
            thread.energy += energy;
        }
        thread.cpu_time += ran;
        thread.virtual_time += thread.charge(ran);
        thread.cycles += cycles;
        thread.counters += counted;
    }
}
