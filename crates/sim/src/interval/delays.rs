//! How long a thread's accesses are delayed by caches and memory.

/// A possible delay of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Delay {
    /// The chance to be delayed that long.
    pub chance: f64,
    pub time: f64,
}

/// What happens to the accesses of one sort of lines.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sort {
    /// The share of the thread's accesses.
    pub share: f64,
    /// Accesses in a row to one line. The first may miss; the others wait until the line is there.
    pub accesses: f64,
    /// Of the first access to a line, in the same steps as [`Delays::load`].
    pub delays: Vec<Delay>,
}

/// What happens to the accesses of a thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Delays {
    /// Of a load of any line; the chances of those that are not delayed are left out.
    pub load: Vec<Delay>,
    /// The same by sort of lines.
    pub sorts: Vec<Sort>,
    /// Of a fetch of a line.
    pub fetch: Vec<Delay>,
    /// A walk through the page tables, besides.
    pub walk: Delay,
}

impl Delays {
    /// Of accesses to these sorts of lines.
    pub fn of(sorts: Vec<Sort>, fetch: Vec<Delay>, walk: Delay) -> Self {
        let steps = sorts.iter().map(|sort| sort.delays.len()).max();
        let step = |step: usize| {
            let delays = sorts.iter().filter_map(|sort| {
                let delay = sort.delays.get(step)?;
                Some((sort.share / sort.accesses * delay.chance, delay.time))
            });
            let (chance, time) = delays.fold((0.0, 0.0), |(sum, all), (chance, time)| {
                (sum + chance, all + chance * time)
            });
            Delay {
                chance: chance.min(1.0),
                time: match chance > 0.0 {
                    true => time / chance,
                    false => sorts
                        .iter()
                        .filter_map(|sort| sort.delays.get(step))
                        .map(|delay| delay.time)
                        .fold(0.0, f64::max),
                },
            }
        };
        Self {
            load: (0..steps.unwrap_or(0)).map(step).collect(),
            sorts,
            fetch,
            walk,
        }
    }

    /// Only the delays of one step, so that this part of the loads meets them.
    pub fn only(&self, step: usize, chance: f64) -> Self {
        let present = self.load[step].chance;
        let sorts = self.sorts.iter().map(|sort| {
            let delay = sort.delays.get(step).copied().unwrap_or_default();
            // Where none does now, all sorts do alike.
            let chance = match present > 0.0 {
                true => delay.chance * chance / present,
                false => chance * sort.accesses,
            };
            Sort {
                delays: vec![Delay {
                    chance: chance.min(1.0),
                    time: if delay.time > 0.0 {
                        delay.time
                    } else {
                        self.load[step].time
                    },
                }],
                ..*sort
            }
        });
        Self::of(sorts.collect(), Vec::new(), Delay::default())
    }

    /// How long a load is delayed on the average, in picoseconds.
    pub fn of_load(&self) -> f64 {
        self.walk.chance * self.walk.time + mean(&self.load)
    }

    /// How long a fetch of a line is delayed on the average.
    pub fn of_fetch(&self) -> f64 {
        mean(&self.fetch)
    }
}

fn mean(delays: &[Delay]) -> f64 {
    delays.iter().map(|delay| delay.chance * delay.time).sum()
}
