//! Random schedules: which threads share a core.

use crate::cpi::cores::Cores;

/// SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014): a few lines whose numbers
/// will be the same for ever, as a recording that is replayed needs them.
#[derive(Debug, Clone, Default)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; the bias of the multiplication is below one in 2^32 for any number of threads.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

/// A core all of whose PUs have a thread.
const FULL: usize = 1 << 20;

/// Each thread's core.
pub(super) type Schedule = Vec<Option<usize>>;

/// A random schedule of as many threads on each of a core's PUs as on any other, give or take one. `fixed` is how many
/// threads each core has that cannot be moved; `allowed` says whether a thread may use a core.
pub(super) fn random(
    threads: usize,
    cores: &Cores,
    fixed: &[usize],
    allowed: impl Fn(usize, usize) -> bool,
    random: &mut Random,
) -> Schedule {
    // While there are PUs for all, each core's first place is filled before any core's second; beyond that cores fill in
    // proportion to their PUs.
    let all = threads + fixed.iter().sum::<usize>();
    let each = all.div_ceil(cores.pus().max(1)).max(1);
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (at, (core, fixed)) in cores.iter().zip(fixed).enumerate() {
        let pus = core.pus.len();
        let turn = |place: usize| match each {
            1 => place,
            _ => (place + 1) * FULL / pus,
        };
        places.extend((*fixed..pus * each).map(|place| (turn(place), at)));
    }
    random.shuffle(&mut places);
    places.sort_by_key(|(turn, _)| *turn);
    places.truncate(threads);
    random.shuffle(&mut places);
    let mut schedule = vec![None; threads];
    let mut homeless = Vec::new();
    let mut order: Vec<usize> = (0..threads).collect();
    random.shuffle(&mut order);
    for thread in order {
        match places.iter().rposition(|(_, core)| allowed(thread, *core)) {
            Some(place) => schedule[thread] = Some(places.swap_remove(place).1),
            None => homeless.push(thread),
        }
    }
    // Masks may leave some without a place: then a core that they may use takes one more if it has a free PU.
    let mut count = fixed.to_vec();
    schedule
        .iter()
        .flatten()
        .for_each(|core: &usize| count[*core] += 1);
    for thread in homeless {
        let free = (0..cores.len())
            .filter(|core| allowed(thread, *core) && count[*core] < cores[*core].pus.len() * each);
        schedule[thread] = free.min_by_key(|core| count[*core]);
        if let Some(core) = schedule[thread] {
            count[core] += 1;
        }
    }
    schedule
}

/// What two schedules have in common that are the same but for the cores' names: who is with whom.
pub(super) fn company(schedule: &Schedule, sizes: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
    for (thread, core) in schedule.iter().enumerate() {
        if let Some(core) = *core {
            members[core].push(thread);
        }
    }
    let mut company: Vec<(usize, Vec<usize>)> = sizes.iter().copied().zip(members).collect();
    company.sort_unstable();
    company
}
