//! Counters of the calling thread, for a program that counts parts of itself: totals are read at both ends of a part.
//!
//! Events are resolved once for the program ([`OwnPlan`]); each thread opens its own ([`OwnPlan::open`]).

use super::{
    Accumulator,
    group::{Group, Reading, Target},
    resolve::{self, SetPlan},
};
use crate::{
    perf::{Privilege, encode::Encoder},
    plausibility,
};
use perch_core::{Count, EventPlan, Limits, MachineError, Remark};
use perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE;
use std::{collections::BTreeSet, io};

/// What each thread of a program counts of itself.
#[derive(Debug, Clone)]
pub struct OwnPlan {
    sets: Vec<SetPlan>,
    limits: Option<Limits>,
    user_only: bool,
}

/// The open counters of one thread.
pub struct OwnCounters {
    sets: Vec<Vec<Group>>,
    active: usize,
    /// Whether the events' pages can be believed; see [`OwnPlan::open`].
    by_page: bool,
}

/// Totals at one moment, one reading for each group of the set that is switched on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    groups: Vec<Reading>,
}

/// What one set counted between pairs of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    groups: Vec<Reading>,
    /// A counter went backwards.
    impossible: bool,
}

impl OwnPlan {
    /// Resolves every event and tries it on the calling thread. Also returns remarks about events that cannot be counted.
    ///
    /// # Errors
    /// No event can be counted: with each spelling and the reason; or not permitted, with the remedy.
    pub fn resolve(plan: &EventPlan) -> Result<(Self, Vec<Remark>), MachineError> {
        let user_only = !Privilege::detect()?.kernel;
        let (sets, remarks) = resolve::resolve(plan, &Encoder::new(), user_only)?;
        let own = Self {
            sets,
            limits: plan.limits,
            user_only,
        };
        Ok((own, remarks))
    }

    /// How many sets are in rotation.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// A set's place in the plan; sets of which nothing can be counted are left out.
    pub fn number(&self, set: usize) -> u32 {
        self.sets[set].number
    }

    /// Whether only user space is counted.
    pub fn user_only(&self) -> bool {
        self.user_only
    }

    /// The events that are counted, under the profile's names.
    pub fn aliases(&self) -> BTreeSet<&str> {
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        groups
            .flat_map(|group| group.events.iter().map(|(alias, _)| &**alias))
            .collect()
    }

    /// Whether all events are the kernel's, not the processor's.
    pub fn software_only(&self) -> bool {
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        groups
            .flat_map(|group| &group.events)
            .all(|(_, event)| event.code.kind == PERF_TYPE_SOFTWARE)
    }

    /// Opens the counters of the calling thread, the first set switched on.
    ///
    /// Hardware events are read without a system call if the kernel and the PMU allow it, and if what is read so lies
    /// between two readings by system call: in virtual machines the page may tell no clock.
    ///
    /// # Errors
    /// No descriptors left; not permitted.
    pub fn open(&self) -> io::Result<OwnCounters> {
        let by_page = !self.software_only();
        if by_page
            && let Ok(counters) = self.open_as(true)
            && counters.page_agrees()
        {
            return Ok(counters);
        }
        self.open_as(false)
    }

    fn open_as(&self, by_page: bool) -> io::Result<OwnCounters> {
        let mut sets = Vec::with_capacity(self.sets.len());
        for (at, set) in self.sets.iter().enumerate() {
            let groups = set.groups.iter().map(|plan| {
                let mut group = Group::open(plan, Target::Own, self.user_only)?;
                if at > 0 {
                    group.disable()?;
                }
                if by_page { group.map() } else { Ok(group) }
            });
            sets.push(groups.collect::<io::Result<Vec<_>>>()?);
        }
        Ok(OwnCounters {
            sets,
            active: 0,
            by_page,
        })
    }

    /// The counts of a set, checked against what no processor can count, and the nanoseconds for which the thread ran
    /// while the set was switched on.
    pub fn counts(&self, set: usize, sums: &Sums) -> (Vec<Count>, u64) {
        let mut tally = Accumulator::default();
        for (plan, group) in self.sets[set].groups.iter().zip(&sums.groups) {
            for ((alias, _), value) in plan.events.iter().zip(&group.values) {
                let value = (!sums.impossible).then_some(*value);
                tally.add_event(alias, value, (group.enabled, group.running));
            }
        }
        let on_cpu = tally.on_cpu();
        if on_cpu.longest == 0 {
            return (Vec::new(), 0);
        }
        let (mut counts, _) = tally.counts();
        plausibility::judge(&mut counts, on_cpu, self.user_only, self.limits.as_ref());
        (counts, on_cpu.longest)
    }
}

impl OwnCounters {
    /// The set that is switched on.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Whether counters are read without a system call.
    pub fn by_page(&self) -> bool {
        self.by_page
    }

    /// Totals of the active set, read by the thread that is counted.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, into: &mut Snapshot) -> io::Result<()> {
        let groups = &self.sets[self.active];
        into.groups.resize_with(groups.len(), Reading::default);
        for (group, reading) in groups.iter().zip(&mut into.groups) {
            if !(self.by_page && group.read_user(reading)) {
                group.read_into(reading)?;
            }
        }
        Ok(())
    }

    /// Totals of the active set, read by another thread.
    ///
    /// # Errors
    /// The system's.
    pub fn read_remotely(&self, into: &mut Snapshot) -> io::Result<()> {
        let groups = &self.sets[self.active];
        into.groups.resize_with(groups.len(), Reading::default);
        for (group, reading) in groups.iter().zip(&mut into.groups) {
            group.read_into(reading)?;
        }
        Ok(())
    }

    /// Switches to the next set. Snapshots of the set before cannot be compared with later ones.
    ///
    /// # Errors
    /// The system's.
    pub fn turn(&mut self) -> io::Result<()> {
        for group in &mut self.sets[self.active] {
            group.disable()?;
        }
        self.active = (self.active + 1) % self.sets.len();
        for group in &mut self.sets[self.active] {
            group.enable()?;
        }
        Ok(())
    }

    /// Whether the pages tell the same as system calls before and after.
    fn page_agrees(&self) -> bool {
        let (mut before, mut page, mut after) = Default::default();
        self.sets[self.active].iter().all(|group| {
            let read = group.read_into(&mut before).is_ok()
                && group.read_user(&mut page)
                && group.read_into(&mut after).is_ok();
            read && page.is_between(&before, &after)
        })
    }
}

impl Snapshot {
    /// Forgets what was read: differences to and from it are nothing.
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// Nanoseconds for which the thread has run while the set was switched on.
    pub fn enabled(&self) -> u64 {
        self.groups
            .iter()
            .map(|group| group.enabled)
            .max()
            .unwrap_or(0)
    }
}

impl Sums {
    /// Adds what was counted between two snapshots of the same set.
    pub fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        let groups = self.groups.len().max(after.groups.len());
        self.groups.resize_with(groups, Reading::default);
        for ((sum, before), after) in self
            .groups
            .iter_mut()
            .zip(&before.groups)
            .zip(&after.groups)
        {
            self.impossible |= !sum.add(before, after);
        }
    }

    /// Adds other sums of the same set.
    pub fn merge(&mut self, other: &Self) {
        let none = Reading::default();
        self.groups
            .resize_with(self.groups.len().max(other.groups.len()), Reading::default);
        for (sum, other) in self.groups.iter_mut().zip(&other.groups) {
            sum.add(&none, other);
        }
        self.impossible |= other.impossible;
    }
}

impl Reading {
    /// Adds the difference of two readings; false if something went backwards, which then adds nothing.
    fn add(&mut self, before: &Self, after: &Self) -> bool {
        let mut forwards = true;
        let mut grow = |sum: &mut u64, before: u64, after: u64| match after.checked_sub(before) {
            Some(more) => *sum = sum.saturating_add(more),
            None => forwards = false,
        };
        grow(&mut self.enabled, before.enabled, after.enabled);
        grow(&mut self.running, before.running, after.running);
        self.values.resize(after.values.len(), 0);
        for (at, (sum, after)) in self.values.iter_mut().zip(&after.values).enumerate() {
            grow(sum, before.values.get(at).copied().unwrap_or(0), *after);
        }
        forwards
    }

    fn is_between(&self, before: &Self, after: &Self) -> bool {
        let within = |at: u64, from: u64, to: u64| from <= at && at <= to;
        let values = self
            .values
            .iter()
            .zip(before.values.iter().zip(&after.values));
        within(self.enabled, before.enabled, after.enabled)
            && within(self.running, before.running, after.running)
            && values.fold(true, |all, (at, (from, to))| all && within(*at, *from, *to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{CountQuality, EventChoice, EventSet};
    use proptest::prelude::*;

    fn plan(sets: &[&[&str]]) -> EventPlan {
        let set = |names: &&[&str]| {
            EventSet::new(
                "a set",
                names
                    .iter()
                    .map(|name| EventChoice {
                        alias: (*name).into(),
                        spellings: vec![(*name).to_owned()],
                        pmu: None,
                    })
                    .collect(),
            )
        };
        EventPlan {
            sets: sets.iter().map(set).collect(),
            limits: None,
        }
    }

    /// Touches this many new pages.
    fn touch(pages: usize) {
        let mut map = memmap2::MmapMut::map_anon(pages * 4096).unwrap();
        for page in 0..pages {
            map[page * 4096] = 1;
        }
    }

    #[test]
    fn page_faults_of_a_part_are_counted_and_sets_take_turns() {
        let Ok((plan, remarks)) = OwnPlan::resolve(&plan(&[
            &["page-faults", "task-clock"],
            &["context-switches"],
        ])) else {
            return perch_skip::skip!(Perf, "no perf events");
        };
        assert!(remarks.is_empty() && plan.software_only() && plan.sets() == 2);
        let mut counters = plan.open().unwrap();
        let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
        let mut sums = Sums::default();
        for _ in 0..2 {
            counters.read(&mut before).unwrap();
            touch(100);
            counters.read(&mut after).unwrap();
            sums.add(&before, &after);
        }
        let (counts, enabled) = plan.counts(0, &sums);
        let faults = counts
            .iter()
            .find(|count| &*count.alias == "page-faults")
            .unwrap();
        // Huge pages may take several at once, and the allocator a few more.
        assert!(faults.value >= 2.0 && faults.value < 300.0, "{counts:?}");
        assert_eq!(faults.quality, CountQuality::Exact);
        assert!(enabled > 0);
        counters.turn().unwrap();
        assert_eq!(counters.active(), 1);
        counters.read(&mut before).unwrap();
        assert_eq!(before.groups[0].values.len(), 1);
        // What is switched off does not count.
        touch(10);
        counters.turn().unwrap();
        let mut later = Snapshot::default();
        counters.read(&mut later).unwrap();
        assert!(
            later.groups[0].values[0] - after.groups[0].values[0] < 10,
            "{later:?} {after:?}"
        );
    }

    #[test]
    fn software_events_are_not_read_from_their_pages() {
        let Ok((plan, _)) = OwnPlan::resolve(&plan(&[&["page-faults"]])) else {
            return perch_skip::skip!(Perf, "no perf events");
        };
        let mapped = plan.open_as(true).unwrap();
        assert!(!mapped.page_agrees(), "no counter is behind them");
        // Reading falls back on the system call.
        let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
        mapped.read(&mut before).unwrap();
        touch(10);
        mapped.read(&mut after).unwrap();
        assert!(after.groups[0].values[0] > before.groups[0].values[0]);
    }

    fn reading(words: [u64; 3]) -> Reading {
        Reading {
            enabled: words[0],
            running: words[1],
            values: vec![words[2]],
        }
    }

    proptest! {
        #[test]
        fn sums_of_parts_are_the_sum_of_the_whole(steps in proptest::collection::vec(proptest::array::uniform3(0u64..1 << 40), 1..10)) {
            let mut at = [0u64; 3];
            let mut moments = vec![Snapshot { groups: vec![reading(at)] }];
            for step in &steps {
                at = std::array::from_fn(|i| at[i] + step[i]);
                moments.push(Snapshot { groups: vec![reading(at)] });
            }
            let mut sums = Sums::default();
            moments.windows(2).for_each(|pair| sums.add(&pair[0], &pair[1]));
            prop_assert_eq!(&sums.groups[0], &reading(at));
            prop_assert!(!sums.impossible);
            let mut twice = sums.clone();
            twice.merge(&sums);
            prop_assert_eq!(twice.groups[0].values[0], 2 * at[2]);
        }

        #[test]
        fn what_goes_backwards_is_noticed(before: [u64; 3], after: [u64; 3]) {
            let moment = |words| Snapshot { groups: vec![reading(words)] };
            let mut sums = Sums::default();
            sums.add(&moment(before), &moment(after));
            prop_assert_eq!(sums.impossible, (0..3).any(|i| after[i] < before[i]));
        }
    }
}
