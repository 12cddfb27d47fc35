//! From demands to PUs.

use super::{
    CpiConfig, Memory, Variant, Will,
    balance::{self, Item, Pipeline},
    cores::{Cores, reaches},
    explain,
    view::{Candidate, Demand, Demands, core_of},
};
use crate::{busy::Census, history::PerThread, matching};
use perch_core::{MetricName, PuSet, Reason, Snapshot, ThreadState};

/// Demands that differ by no more than this part stand for each other with `perch`.
const ALIKE: f64 = 0.05;

/// What stands where it is: threads that must be left alone, and bound ones about which nothing is known.
pub(super) struct Ground {
    /// Threads in each core, and what they ask for.
    fixed: Vec<(usize, f64)>,
    /// PUs that they hold alone.
    taken: PuSet,
    /// Bound threads that stay since nothing is known of them.
    kept: Vec<(usize, PuSet)>,
}

impl Ground {
    pub fn new(
        snapshot: &Snapshot,
        memory: &PerThread<Memory>,
        census: &Census<Demand>,
        cores: &Cores,
    ) -> Self {
        let mut ground = Self {
            fixed: vec![(0, 0.0); cores.len()],
            taken: PuSet::new(),
            kept: Vec::new(),
        };
        for &at in census.unmanaged.iter().chain(&census.unknown) {
            let thread = &snapshot.threads[at];
            let pus = match thread.unmanaged {
                Some(_) => Some(&thread.allowed),
                None => (thread.bound.as_ref()).filter(|pus| pus.is_subset(&thread.allowed)),
            };
            let Some((pus, core)) = pus.and_then(|pus| Some((pus, cores.of_all(pus)?))) else {
                continue;
            };
            // Two threads of ours were never bound to one PU.
            if let (Some(pu), 1) = (pus.first(), pus.len()) {
                ground.taken.insert(pu);
            }
            if thread.unmanaged.is_none() {
                ground.kept.push((at, pus.clone()));
            }
            let (count, demand) = &mut ground.fixed[core];
            *count += 1;
            let asks = memory[at].predictor.demand().unwrap_or(0.0);
            *demand += asks * runnable(thread);
        }
        ground
    }
}

/// Share of the period in which the thread wanted a PU.
fn runnable(thread: &ThreadState) -> f64 {
    thread.wanted().clamp(0.0, 1.0)
}

/// Threads and cores, ready to be dealt.
pub(super) struct Field<'a> {
    snapshot: &'a Snapshot,
    demands: &'a Demands,
    ground: &'a Ground,
    cores: &'a Cores,
    field: balance::Field,
    /// By falling demand.
    items: Vec<Item>,
    candidates: Vec<Candidate>,
}

impl<'a> Field<'a> {
    pub fn new(
        snapshot: &'a Snapshot,
        demands: &'a Demands,
        ground: &'a Ground,
        cores: &'a Cores,
        variant: Variant,
    ) -> Self {
        let census = &demands.threads;
        let threads = |c: &Candidate| &snapshot.threads[c.at];
        let masks = census.ranked.iter().map(|c| &threads(c).allowed);
        let (reach_of, reaches) = reaches(cores, masks);
        let items = census.ranked.iter().zip(&reach_of).map(|(c, reach)| {
            let thread = threads(c);
            let bound = thread.bound.as_ref();
            let in_force = bound.filter(|pus| pus.is_subset(&thread.allowed));
            Item {
                // A thread that sleeps half of the time asks for half as much; the paper's threads never sleep.
                demand: match variant {
                    Variant::Perch => c.known.demand * runnable(thread),
                    Variant::Paper => c.known.demand,
                },
                reach: *reach,
                home: core_of(thread, cores),
                settled: in_force.is_some_and(|pus| cores.of_all(pus).is_some()),
            }
        });
        let mut both: Vec<(Item, Candidate)> = items.zip(census.ranked.iter().copied()).collect();
        both.sort_by(|a, b| b.0.demand.total_cmp(&a.0.demand));
        let (items, candidates) = both.into_iter().unzip();
        let pipelines = cores.iter().zip(&ground.fixed);
        let pipelines = pipelines.map(|(core, (fixed, fixed_demand))| Pipeline {
            width: demands.widths[core.kind],
            contexts: core.pus.len(),
            fixed: *fixed,
            fixed_demand: *fixed_demand,
        });
        Self {
            field: balance::Field {
                cores: pipelines.collect(),
                reaches,
            },
            snapshot,
            demands,
            ground,
            cores,
            items,
            candidates,
        }
    }

    /// The balance from scratch, or the present one if that is as good.
    pub fn deal(&self) -> Vec<Option<usize>> {
        let dealt = balance::deal(&self.items, &self.field, 0.0);
        let present = balance::complete(&self.items, &self.field);
        let all_bound = self.items.iter().all(|item| item.settled);
        match all_bound && balance::as_even(&self.items, &present, &dealt, &self.field) {
            true => present,
            false => dealt,
        }
    }

    /// The present placement, or a better one if the model predicts enough of a gain for long enough.
    ///
    /// # Errors
    /// Why nothing is to be bound.
    pub fn choose(
        &self,
        config: &CpiConfig,
        will: &mut Will,
    ) -> Result<Vec<Option<usize>>, String> {
        if let Some(why) = self.never_saturated(config.gain) {
            will.wanted = 0;
            return Err(why);
        }
        let doubt = match self.demands.delivered {
            Some(delivered) => {
                let change = config.gain * config.large;
                will.trust.follow(self.items.len(), delivered, change)
            }
            None => 1.0,
        };
        let enough_gain = config.gain * doubt;
        let mut promise = |from: f64, to: f64| {
            if let Some(delivered) = self.demands.delivered.filter(|_| from > 0.0) {
                will.trust.promise(delivered, to / from - 1.0);
            }
        };
        let value = |placed: &[Option<usize>]| self.throughput(placed);
        let any_bound = self.items.iter().any(|item| item.settled) || !self.ground.kept.is_empty();
        let as_it_is: Vec<Option<usize>> = self.items.iter().map(|item| item.home).collect();
        let now = value(&as_it_is);
        let present = balance::complete(&self.items, &self.field);
        let dealt = balance::deal(&self.items, &self.field, ALIKE);
        let enough = value(&dealt);
        let few_moves = balance::exchange(&self.items, present.clone(), &self.field, enough);
        let (few, most) = (value(&few_moves), enough);
        let best = few.max(most);
        // Fewer moves are worth as much as threads gain by the last bit of balance.
        let better = if few * (1.0 + config.gain) >= most {
            few_moves
        } else {
            dealt
        };
        let chosen = value(&better);
        if !any_bound {
            will.wanted = 0;
            if chosen > now * (1.0 + enough_gain) {
                promise(now, chosen);
                return Ok(better);
            }
            return Err(explain::no_gain(now, best.max(now), enough_gain));
        }
        let base = value(&present);
        let gains = |times: f64| chosen > base * (1.0 + enough_gain * times);
        will.wanted = if gains(1.0) { will.wanted + 1 } else { 0 };
        if will.wanted >= config.patience || gains(config.large) {
            will.wanted = 0;
            promise(base, chosen);
            return Ok(better);
        }
        Ok(present)
    }

    /// Whether no core can be asked for more than it can issue, whichever threads are on it.
    fn never_saturated(&self, gain: f64) -> Option<String> {
        let more = self.items.len() + self.ground.fixed.iter().map(|(n, _)| n).sum::<usize>();
        if more > self.cores.pus() {
            return None;
        }
        let mut worst: Option<(f64, f64)> = None;
        for core in &self.field.cores {
            let free = core.contexts.saturating_sub(core.fixed);
            let top = self.items.iter().take(free).map(|item| item.demand);
            let most = core.fixed_demand + top.sum::<f64>();
            if worst.is_none_or(|(load, width)| most / core.width > load / width) {
                worst = Some((most, core.width));
            }
        }
        let (most, width) = worst?;
        (most * (1.0 + gain) <= width).then(|| explain::never_saturated(most, width))
    }

    fn throughput(&self, placed: &[Option<usize>]) -> f64 {
        balance::throughput(&self.items, placed, &self.field)
    }

    /// PUs and reasons.
    pub fn bind(&self, placed: &[Option<usize>]) -> Vec<(usize, PuSet, Reason)> {
        let (loads, counts) = balance::loads(&self.items, placed, &self.field);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.cores.len()];
        for (item, core) in placed.iter().enumerate() {
            if let Some(core) = *core {
                members[core].push(item);
            }
        }
        let names = [
            "demand",
            "measured_ipc",
            "confidence",
            "core_demand",
            "activity",
        ];
        let names = names.map(MetricName::from);
        // An item of each reach: its mask stands for all others', which are far apart in memory.
        let mut one_of = vec![0; self.field.reaches.len()];
        for (at, item) in self.items.iter().enumerate() {
            one_of[item.reach] = at;
        }
        let mut bindings = Vec::with_capacity(self.items.len());
        for (core, members) in members.iter().enumerate() {
            // More threads than PUs queue for the whole core; the kernel time-shares it among them.
            let queues = counts[core] > self.field.cores[core].contexts;
            let pus = if queues {
                let pus = |item: &usize| {
                    let allowed = &self.thread(one_of[self.items[*item].reach]).allowed;
                    let pus = self.cores[core].pus.iter().copied();
                    Some(pus.filter(|pu| allowed.contains(*pu)).collect())
                };
                members.iter().map(pus).collect()
            } else {
                self.one_each(core, members)
            };
            let width = self.demands.widths[self.cores[core].kind];
            let load = loads[core];
            let with = format!(
                "{} with its threads for {load:.2} of {width:.2}",
                self.label(core)
            );
            for (item, pus) in members.iter().zip(pus) {
                if let Some(pus) = pus {
                    let candidate = &self.candidates[*item];
                    let numbers = [
                        candidate.known.demand,
                        candidate.known.measured,
                        candidate.known.confidence,
                        load,
                        candidate.activity,
                    ];
                    let text = self.text(*item, core, &pus, &with);
                    let reason = Reason::new(text).with_all(&names, numbers);
                    bindings.push((candidate.at, pus, reason));
                }
            }
        }
        for (at, pus) in &self.ground.kept {
            let reason = Reason::new("its demand is not known now: stays until it is")
                .with("activity", self.snapshot.threads[*at].activity);
            bindings.push((*at, pus.clone(), reason));
        }
        bindings
    }

    /// A PU each: the thread's own if it is there, else a free one.
    fn one_each(&self, core: usize, members: &[usize]) -> Vec<Option<PuSet>> {
        let free = |pu: &u32| !self.ground.taken.contains(*pu);
        let free: Vec<u32> = (self.cores[core].pus.iter().copied())
            .filter(free)
            .collect();
        let mut order: Vec<usize> = (0..members.len()).collect();
        // Bound threads wish first.
        order.sort_by_key(|member| !self.items[members[*member]].settled);
        let wishes: Vec<Option<usize>> = (order.iter())
            .map(|member| {
                let thread = self.thread(members[*member]);
                let bound = thread.bound.as_ref().filter(|pus| pus.len() == 1);
                let pu = bound.and_then(PuSet::first).or(thread.last_pu);
                free.iter().position(|free| Some(*free) == pu)
            })
            .collect();
        let slots = matching::assign(&wishes, free.len(), |member, slot| {
            let thread = self.thread(members[order[member]]);
            thread.allowed.contains(free[slot])
        });
        let mut pus = vec![None; members.len()];
        for (member, slot) in order.into_iter().zip(slots) {
            pus[member] = slot.map(|slot| PuSet::single(free[slot]));
        }
        pus
    }

    fn thread(&self, item: usize) -> &ThreadState {
        &self.snapshot.threads[self.candidates[item].at]
    }

    fn label(&self, core: usize) -> String {
        format!("core {}", self.cores[core].index)
    }

    /// Why an item is on these PUs of a core; `with` gives the demand on the core.
    fn text(&self, item: usize, core: usize, pus: &PuSet, with: &str) -> String {
        let candidate = &self.candidates[item];
        let came = match (self.items[item].home, self.items[item].settled) {
            (Some(home), true) if home == core => "stays".to_owned(),
            (Some(home), false) if home == core => "bound where it runs".to_owned(),
            (Some(home), true) => format!("moved from {}", self.label(home)),
            (Some(home), false) => format!("brought from {}", self.label(home)),
            (None, _) => "bound".to_owned(),
        };
        format!(
            "asks for {:.2} instructions a cycle (measured {:.2}), {with}: PU {pus}; {came}",
            candidate.known.demand, candidate.known.measured,
        )
    }
}
