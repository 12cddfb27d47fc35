//! In which order threads stand, and which are left out.

use crate::{Frame, frame::Thread};
use perch_core::MetricName;
use std::{cmp::Ordering, ops::Range, sync::Arc};

/// What threads are sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The thread's number.
    Tid,
    /// The process's number.
    Pid,
    /// The thread's name.
    Name,
    /// The process's name.
    Process,
    /// Share of the interval on a PU.
    Cpu,
    /// Share of the interval runnable but without a PU.
    Waiting,
    /// The PU on which it was last seen.
    Pu,
    /// Context switches a second.
    Switches,
    /// Moves from one PU to another a second.
    Migrations,
    /// A metric.
    Metric(MetricName),
}

impl Key {
    /// Whether the greatest come first, unless the user reverses the order.
    pub fn descends(&self) -> bool {
        !matches!(
            self,
            Self::Tid | Self::Pid | Self::Name | Self::Process | Self::Pu
        )
    }

    /// All that a frame's threads can be sorted by, in the order of their columns.
    pub fn all(frame: &Frame) -> Vec<Self> {
        let mut keys = vec![Self::Tid, Self::Name, Self::Cpu, Self::Waiting, Self::Pu];
        let metrics = frame.metrics.iter();
        keys.extend(metrics.map(|column| Self::Metric(Arc::clone(&column.name))));
        keys.extend([Self::Process, Self::Pid, Self::Switches, Self::Migrations]);
        keys
    }
}

/// How threads are sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub key: Key,
    /// Whether in the other order than the key's usual one.
    pub reversed: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self {
            key: Key::Cpu,
            reversed: false,
        }
    }
}

/// Compares threads of a frame.
pub struct Comparison<'a> {
    frame: &'a Frame,
    key: &'a Key,
    values: Option<&'a [f32]>,
    descending: bool,
}

impl<'a> Comparison<'a> {
    /// As a sort asks for it.
    pub fn new(frame: &'a Frame, sort: &'a Sort) -> Self {
        let values = match &sort.key {
            Key::Metric(name) => {
                let mut columns = frame.metrics.iter();
                let column = columns.find(|column| column.name == *name);
                column.map(|column| &column.values[..])
            }
            _ => None,
        };
        Self {
            frame,
            key: &sort.key,
            values,
            descending: sort.key.descends() != sort.reversed,
        }
    }

    /// Threads by their places in the frame: a strict order, by id where all else is equal. What is not known comes last
    /// either way.
    pub fn compare(&self, a: u32, b: u32) -> Ordering {
        let (x, y) = (
            &self.frame.threads[a as usize],
            &self.frame.threads[b as usize],
        );
        let by = match self.key {
            Key::Tid => self.turned(x.id.cmp(&y.id)),
            Key::Pid => self.turned(x.pid.cmp(&y.pid)),
            Key::Name => self.turned(x.name.cmp(&y.name)),
            Key::Process => self.turned(x.process.cmp(&y.process)),
            Key::Cpu => self.known(Some(x.cpu), Some(y.cpu)),
            Key::Waiting => self.known(Some(x.waiting), Some(y.waiting)),
            Key::Pu => self.known(x.pu.map(|pu| pu as f32), y.pu.map(|pu| pu as f32)),
            Key::Switches => self.known(x.switches, y.switches),
            Key::Migrations => self.known(x.migrations, y.migrations),
            Key::Metric(_) => {
                let value = |at: u32| {
                    let value = self.values.and_then(|values| values.get(at as usize));
                    value.copied().filter(|value| !value.is_nan())
                };
                self.known(value(a), value(b))
            }
        };
        by.then(a.cmp(&b))
    }

    fn turned(&self, ordering: Ordering) -> Ordering {
        match self.descending {
            true => ordering.reverse(),
            false => ordering,
        }
    }

    fn known(&self, a: Option<f32>, b: Option<f32>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => self.turned(a.total_cmp(&b)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }

    /// Brings those into place that stand in a range; the others before it are before it then, and those after it after.
    /// Linear, but for sorting the range itself.
    pub fn sort(&self, order: &mut [u32], range: Range<usize>) {
        let end = range.end.min(order.len());
        let start = range.start.min(end);
        if start > 0 && start < order.len() {
            order.select_nth_unstable_by(start, |a, b| self.compare(*a, *b));
        }
        if end > start && end < order.len() {
            let rest = &mut order[start..];
            rest.select_nth_unstable_by(end - start, |a, b| self.compare(*a, *b));
        }
        order[start..end].sort_unstable_by(|a, b| self.compare(*a, *b));
    }
}

/// Which threads are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// A text that the name of the thread or process has, in whatever case; or the number of either. All if empty.
    pub text: String,
    /// Only threads that run.
    pub running: bool,
}

impl Filter {
    /// Whether a thread is shown.
    pub fn takes(&self, thread: &Thread) -> bool {
        if self.running && thread.cpu < crate::frame::RUNS {
            return false;
        }
        if self.text.is_empty() {
            return true;
        }
        let number = self.text.parse::<i32>().ok();
        number.is_some_and(|number| number == thread.id.tid || number == thread.pid)
            || has(&thread.name, &self.text)
            || has(&thread.process, &self.text)
    }
}

/// Whether a text has another one in it, without regard to the case of ASCII letters.
fn has(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    text.windows(part.len())
        .any(|window| window.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check::tests::machine, frame::Column};
    use perch_core::ThreadId;
    use proptest::prelude::*;

    fn frame(threads: &[(f32, Option<u32>)]) -> Frame {
        let thread = |(at, (cpu, pu)): (usize, &(f32, Option<u32>))| Thread {
            id: ThreadId {
                tid: at as i32 + 1,
                start: 0,
            },
            pid: 1,
            name: format!("Worker-{at}").into(),
            process: "solver".into(),
            cpu: *cpu,
            waiting: 0.0,
            pu: *pu,
            switches: None,
            migrations: None,
            bound: None,
        };
        let ipc = threads.iter().map(|(cpu, _)| match *cpu < 0.5 {
            true => f32::NAN,
            false => *cpu,
        });
        Frame {
            metrics: vec![Column {
                name: "ipc".into(),
                values: ipc.collect(),
            }],
            threads: threads.iter().enumerate().map(thread).collect(),
            ..Frame::empty(machine(1, 1, 1))
        }
    }

    proptest! {
        #[test]
        fn a_window_is_what_a_whole_sort_has_there(
            threads in proptest::collection::vec((0.0..1.0f32, proptest::option::of(0..4u32)), 0..60),
            key in 0usize..10, reversed: bool, start in 0usize..70, length in 0usize..30,
        ) {
            let frame = frame(&threads);
            let keys = Key::all(&frame);
            let sort = Sort { key: keys[key % keys.len()].clone(), reversed };
            let comparison = Comparison::new(&frame, &sort);
            let mut whole: Vec<u32> = (0..threads.len() as u32).collect();
            whole.sort_by(|a, b| comparison.compare(*a, *b));
            let mut window: Vec<u32> = (0..threads.len() as u32).rev().collect();
            comparison.sort(&mut window, start..start + length);
            let (from, to) = (start.min(whole.len()), (start + length).min(whole.len()));
            prop_assert_eq!(&window[from..to], &whole[from..to]);
        }
    }

    #[test]
    fn what_is_not_known_comes_last_in_both_orders() {
        let frame = frame(&[(0.1, None), (0.9, Some(1)), (0.6, Some(0))]);
        for (key, reversed, expected) in [
            (Key::Cpu, false, [1, 2, 0]),
            (Key::Cpu, true, [0, 2, 1]),
            (Key::Pu, false, [2, 1, 0]),
            (Key::Pu, true, [1, 2, 0]),
            (Key::Metric("ipc".into()), false, [1, 2, 0]),
            (Key::Metric("ipc".into()), true, [2, 1, 0]),
            (Key::Name, true, [2, 1, 0]),
        ] {
            let sort = Sort { key, reversed };
            let mut order = [0, 1, 2];
            Comparison::new(&frame, &sort).sort(&mut order, 0..3);
            assert_eq!(order, expected, "{sort:?}");
        }
    }

    #[test]
    fn filters_take_names_of_either_and_numbers() {
        let frame = frame(&[(0.0, None), (0.9, None)]);
        let taken = |text: &str, running| {
            let filter = Filter {
                text: text.into(),
                running,
            };
            let threads = frame.threads.iter();
            threads.filter(|of| filter.takes(of)).count()
        };
        assert_eq!(taken("", false), 2);
        assert_eq!(taken("", true), 1);
        assert_eq!(taken("wORKER-1", false), 1);
        assert_eq!(taken("Solve", true), 1);
        assert_eq!(taken("2", false), 1);
        assert_eq!(taken("nobody", false), 0);
        assert_eq!(taken("a text longer than all names", false), 0);
    }
}
