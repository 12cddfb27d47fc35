//! Series over time: of the busiest threads, processes and names, and of all others together.

use super::{
    data::{Series, SeriesSets, Short},
    totals::{ThreadSum, Totals},
    values::Means,
};
use perch_core::{ThreadId, ThreadSample};
use perch_engine::report::name_pattern;
use rustc_hash::FxHashMap;

/// Series of each kind, without that of all others.
const THREADS: usize = 40;
/// See [`THREADS`].
const GROUPS: usize = 24;

/// The kinds of series: of threads, processes and names.
const KINDS: usize = 3;

/// Every series, and which threads each is of.
#[derive(Debug)]
pub struct Tracks {
    /// The place of each thread's series, by kind.
    of: FxHashMap<ThreadId, [usize; KINDS]>,
    kinds: [Vec<Track>; KINDS],
    quantities: usize,
}

#[derive(Debug, Default)]
struct Track {
    label: String,
    /// Of the column that is not complete yet.
    open: Option<Slot>,
    /// By quantity and column: CPU share, share waiting, then those of [`Means`].
    values: Vec<Vec<Option<Short>>>,
}

#[derive(Debug, Default)]
struct Slot {
    cpu: u64,
    wait: u64,
    means: Means,
}

impl Tracks {
    /// Those of a recording; `ranked` are its threads by falling CPU time.
    pub fn new(totals: &Totals, ranked: &[&ThreadSum]) -> Self {
        let mut of: FxHashMap<ThreadId, [usize; KINDS]> = FxHashMap::default();
        let labels: [&dyn Fn(&ThreadSum) -> String; KINDS] = [
            &|thread| format!("{} {}", thread.info.name, thread.info.id.tid),
            &|thread| format!("{} {}", thread.info.process, thread.info.pid),
            &|thread| name_pattern(&thread.info.name),
        ];
        let kinds = [0, 1, 2].map(|kind| {
            let key = |thread: &ThreadSum| match kind {
                // A TID may be used again.
                0 => format!("{} {}", thread.info.id.tid, thread.info.id.start),
                1 => thread.info.pid.to_string(),
                _ => labels[2](thread),
            };
            // CPU time, and the rank of the busiest thread.
            let mut sums: FxHashMap<String, (u64, usize)> = FxHashMap::default();
            for (rank, thread) in ranked.iter().enumerate() {
                let sum = sums.entry(key(thread)).or_insert((0, rank));
                sum.0 = sum.0.saturating_add(thread.cpu);
            }
            let mut sums: Vec<(String, (u64, usize))> = sums.into_iter().collect();
            sums.sort_by_key(|(_, (time, rank))| (u64::MAX - time, *rank));
            let most = [THREADS, GROUPS, GROUPS][kind];
            // One that would stand alone for the others keeps its name.
            let most = if sums.len() == most + 1 {
                most + 1
            } else {
                most
            };
            let others = sums.len().saturating_sub(most);
            let places: FxHashMap<&str, usize> = sums
                .iter()
                .take(most)
                .enumerate()
                .map(|(at, (key, _))| (&**key, at))
                .collect();
            for thread in ranked {
                let place = places.get(&*key(thread)).copied().unwrap_or(most);
                of.entry(thread.info.id).or_default()[kind] = place;
            }
            let busiest = sums.iter().take(most);
            let labels = busiest.map(|(_, (_, rank))| labels[kind](ranked[*rank]));
            let rest = (others > 0).then(|| {
                let noun = ["threads", "processes", "names"][kind];
                format!("{others} other {noun} together")
            });
            let quantities = totals.quantities.list().len() + 2;
            let tracks = labels.chain(rest).map(|label| Track {
                label,
                open: None,
                values: vec![Vec::new(); quantities],
            });
            tracks.collect()
        });
        Self {
            of,
            kinds,
            quantities: totals.quantities.list().len(),
        }
    }

    /// Adds a thread's period.
    pub fn sample(&mut self, totals: &Totals, sample: &ThreadSample) {
        let Some(places) = self.of.get(&sample.info.id) else {
            return;
        };
        let values = totals.quantities.known(&totals.profile, sample);
        for (tracks, place) in self.kinds.iter_mut().zip(places) {
            let Some(track) = tracks.get_mut(*place) else {
                continue;
            };
            let slot = track.open.get_or_insert_with(Slot::default);
            slot.cpu = slot.cpu.saturating_add(sample.cpu_time);
            slot.wait = slot.wait.saturating_add(sample.wait_time);
            for (number, value) in &values {
                slot.means.add(*number, *value);
            }
        }
    }

    /// Completes a column of that many nanoseconds.
    pub fn close(&mut self, length: u64) {
        for track in self.kinds.iter_mut().flatten() {
            let slot = track.open.take();
            let share = |time: u64| Short::new(time as f64 / length as f64);
            let times = [
                slot.as_ref().map(|slot| share(slot.cpu)),
                slot.as_ref().map(|slot| share(slot.wait)),
            ];
            let means = (0..self.quantities).map(|number| {
                let mean = slot.as_ref().and_then(|slot| slot.means.get(number));
                mean.map(|mean| Short::new(f64::from(mean)))
            });
            for (values, value) in track.values.iter_mut().zip(times.into_iter().chain(means)) {
                values.push(value);
            }
        }
    }

    /// The series of all kinds.
    pub fn finish(self) -> SeriesSets {
        let [thread, process, name] = self.kinds.map(|tracks| {
            let series = tracks.into_iter().map(|track| Series {
                label: track.label,
                values: track
                    .values
                    .into_iter()
                    .map(|values| match values.iter().any(Option::is_some) {
                        true => values,
                        false => Vec::new(),
                    })
                    .collect(),
            });
            series.collect()
        });
        SeriesSets {
            thread,
            process,
            name,
        }
    }
}
