//! Looks for the operating point of least cost while the programs run. The paper fixes one for each run (section 8).
//!
//! The cost of a point is what a unit of work takes there: energy times a power of the time (energy, energy-delay product,
//! ED²P). Work is counted in instructions of the programs.

use perch_core::Remark;
use std::fmt;

/// A point costs less than another one if the difference is above this part: less is noise, and not worth a change.
const MARGIN: f64 = 0.02;

/// Periods of work for which a point is measured, after one in which the clocks change.
const MEASURED: u32 = 3;

/// Points that may cost more than the best one so far before the search turns back.
const PATIENCE: u32 = 2;

/// The programs do something else if their power or their pace at the held point differs by this part from what it was,
/// in this number of measurements in a row.
const CHANGED: (f64, u32) = (0.25, 2);

/// Measurements at the point that is held until the others are looked at again.
const HELD: u32 = 200;

/// What is to be small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    Energy,
    EnergyDelay,
    EnergyDelaySquared,
}

impl Goal {
    /// As the options write it.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("energy", Self::Energy),
        ("ed", Self::EnergyDelay),
        ("ed2", Self::EnergyDelaySquared),
    ];

    fn exponent(self) -> i32 {
        match self {
            Self::Energy => 0,
            Self::EnergyDelay => 1,
            Self::EnergyDelaySquared => 2,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Energy => "energy",
            Self::EnergyDelay => "energy-delay product",
            Self::EnergyDelaySquared => "ED²P",
        })
    }
}

/// What a period took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Took {
    /// Of all packages, in joules.
    pub energy: f64,
    /// Instructions of the programs.
    pub work: f64,
    /// In seconds.
    pub time: f64,
}

/// Power and pace at a point.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// In watts.
    power: f64,
    /// In instructions a second.
    pace: f64,
}

impl Measured {
    fn of(took: Took) -> Self {
        Self {
            power: took.energy / took.time,
            pace: took.work / took.time,
        }
    }

    fn cost(self, goal: Goal) -> f64 {
        self.power / self.pace.powi(1 + goal.exponent())
    }

    fn is_like(self, other: Self) -> bool {
        let (part, _) = CHANGED;
        (self.power / other.power - 1.0).abs() < part && (self.pace / other.pace - 1.0).abs() < part
    }
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Each point is measured after the one above it. The last `worse` of them cost more than the best one.
    Looking { worse: u32 },
    /// The best one is held, since `since` measurements. The last `unlike` of them differ from the first.
    Holding { since: u32, unlike: u32 },
}

/// The search.
#[derive(Debug, Clone)]
pub(super) struct Search {
    goal: Goal,
    /// Part of the pace at the full clock that may be lost.
    most_slowdown: f64,
    /// Clocks as parts of the highest one, from that on down.
    points: Vec<f64>,
    measured: Vec<Measured>,
    at: usize,
    phase: Phase,
    /// Whether this period began with another clock.
    settling: bool,
    periods: u32,
    took: Took,
}

impl Search {
    pub fn new(goal: Goal, most_slowdown: f64) -> Self {
        Self {
            goal,
            most_slowdown,
            points: Vec::new(),
            measured: Vec::new(),
            at: 0,
            phase: Phase::Looking { worse: 0 },
            settling: true,
            periods: 0,
            took: Took::default(),
        }
    }

    /// The clock for the next period, as a part of the highest one.
    pub fn share(&self) -> f64 {
        self.points.get(self.at).copied().unwrap_or(1.0)
    }

    /// A period is over, in which the machine offered these points. Gives back what the user should know.
    pub fn period(&mut self, points: Vec<f64>, took: Took) -> Option<Remark> {
        if points != self.points {
            self.points = points;
            self.restart();
            return None;
        }
        if self.points.len() < 2 || !(took.energy > 0.0 && took.work > 0.0 && took.time > 0.0) {
            return None;
        }
        if std::mem::take(&mut self.settling) {
            return None;
        }
        self.periods += 1;
        self.took.energy += took.energy;
        self.took.work += took.work;
        self.took.time += took.time;
        if self.periods < MEASURED {
            return None;
        }
        self.periods = 0;
        let measured = Measured::of(std::mem::take(&mut self.took));
        match self.phase {
            Phase::Looking { worse } => self.look(measured, worse),
            Phase::Holding { since, unlike } => {
                self.hold(measured, since, unlike);
                None
            }
        }
    }

    /// A period is over in which nothing ran: the next one begins with cold caches, and the clock stays.
    pub fn pause(&mut self) {
        self.settling = true;
    }

    fn restart(&mut self) {
        self.measured.clear();
        self.periods = 0;
        self.took = Took::default();
        self.phase = Phase::Looking { worse: 0 };
        self.go(0);
    }

    fn go(&mut self, to: usize) {
        self.settling = true;
        self.at = to;
    }

    fn look(&mut self, measured: Measured, worse: u32) -> Option<Remark> {
        let best_before = self.measured.get(self.best()).copied();
        self.measured.push(measured);
        let is_worse = best_before
            .is_some_and(|best| measured.cost(self.goal) > best.cost(self.goal) * (1.0 + MARGIN));
        let worse = if is_worse { worse + 1 } else { 0 };
        let goes_on = worse < PATIENCE && self.is_allowed(measured);
        if goes_on && self.at + 1 < self.points.len() {
            self.phase = Phase::Looking { worse };
            self.go(self.at + 1);
            return None;
        }
        let best = self.best();
        self.phase = Phase::Holding {
            since: 0,
            unlike: 0,
        };
        if best != self.at {
            self.go(best);
        }
        Some(self.found(best))
    }

    /// Whether a point loses no more pace than it may.
    fn is_allowed(&self, measured: Measured) -> bool {
        measured.pace >= self.measured[0].pace * (1.0 - self.most_slowdown)
    }

    /// The point of least cost among those that are measured and allowed; a lower clock only if it is worth it.
    fn best(&self) -> usize {
        let mut best = 0;
        for (at, measured) in self.measured.iter().enumerate().skip(1) {
            let least = self.measured[best].cost(self.goal) * (1.0 - MARGIN);
            if self.is_allowed(*measured) && measured.cost(self.goal) < least {
                best = at;
            }
        }
        best
    }

    fn found(&self, best: usize) -> Remark {
        let (full, found) = (self.measured[0], self.measured[best]);
        let percent = |ratio: f64| 100.0 * (1.0 - ratio);
        let text = match best {
            0 => format!(
                "no lower clock saves {} % of the {}: full speed",
                100.0 * MARGIN,
                self.goal
            ),
            _ => format!(
                "at {:.0} % of the highest clock, the {} is {:.1} % less than at full speed ({:.1} W instead of {:.1} W, \
                 {:.1} % fewer instructions a second)",
                100.0 * self.points[best],
                self.goal,
                percent(found.cost(self.goal) / full.cost(self.goal)),
                found.power,
                full.power,
                percent(found.pace / full.pace),
            ),
        };
        Remark::note("operating-point", text).keyed(format!("{best}"))
    }

    fn hold(&mut self, measured: Measured, since: u32, unlike: u32) {
        let (_, limit) = CHANGED;
        let unlike = match self.measured[self.at].is_like(measured) {
            true => 0,
            false => unlike + 1,
        };
        if unlike >= limit || since >= HELD {
            return self.restart();
        }
        self.phase = Phase::Holding {
            since: since + 1,
            unlike,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program whose work takes `busy` of its time at the full clock on the processor and the rest in memory, on a
    /// machine that takes `idle` watts and `full` more at the full clock.
    #[derive(Debug, Clone, Copy)]
    struct Machine {
        busy: f64,
        idle: f64,
        full: f64,
    }

    impl Machine {
        fn second(self, clock: f64) -> Took {
            Took {
                energy: self.idle + self.full * clock.powi(3),
                work: 1e9 / (self.busy / clock + 1.0 - self.busy),
                time: 1.0,
            }
        }
    }

    fn points() -> Vec<f64> {
        (8..=20)
            .rev()
            .map(|twentieths| f64::from(twentieths) / 20.0)
            .collect()
    }

    fn run(search: &mut Search, machine: Machine, seconds: usize) -> Vec<Remark> {
        let second = |_| search.period(points(), machine.second(search.share()));
        (0..seconds).filter_map(second).collect()
    }

    fn cost(machine: Machine, clock: f64, goal: Goal) -> f64 {
        Measured::of(machine.second(clock)).cost(goal)
    }

    fn machine() -> impl Strategy<Value = Machine> {
        (0.05..1.0, 1.0..40.0, 1.0..40.0).prop_map(|(busy, idle, full)| Machine {
            busy,
            idle,
            full,
        })
    }

    fn goal() -> impl Strategy<Value = Goal> {
        prop::sample::select(Goal::NAMES.map(|(_, goal)| goal).to_vec())
    }

    proptest! {
        #[test]
        fn the_point_found_is_the_best_one_up_to_the_margin(machine in machine(), goal in goal()) {
            let mut search = Search::new(goal, 1.0);
            prop_assert_eq!(run(&mut search, machine, 60).len(), 1);
            let found = cost(machine, search.share(), goal);
            let best = points().into_iter().map(|clock| cost(machine, clock, goal)).fold(f64::MAX, f64::min);
            prop_assert!(found <= best * (1.0 + 2.0 * MARGIN), "{found} {best}");
            // It stays there.
            let share = search.share();
            prop_assert_eq!(run(&mut search, machine, 300).len(), 0);
            prop_assert_eq!(search.share(), share);
        }

        #[test]
        fn no_more_pace_is_lost_than_allowed(machine in machine(), goal in goal(), most in 0.0..0.5) {
            let mut search = Search::new(goal, most);
            run(&mut search, machine, 60);
            let pace = machine.second(search.share()).work;
            prop_assert!(pace >= machine.second(1.0).work * (1.0 - most) * (1.0 - 1e-9));
        }
    }

    /// Waits for memory, so that slowing down costs little.
    const MEMORY: Machine = Machine {
        busy: 0.1,
        idle: 5.0,
        full: 20.0,
    };
    const COMPUTE: Machine = Machine {
        busy: 1.0,
        idle: 20.0,
        full: 5.0,
    };

    #[test]
    fn a_program_that_changes_is_searched_again() {
        let mut search = Search::new(Goal::EnergyDelay, 1.0);
        let remarks = run(&mut search, MEMORY, 60);
        assert!(search.share() < 0.7, "{}", search.share());
        assert!(
            remarks[0]
                .text
                .contains("% of the highest clock, the energy-delay product is")
        );
        assert_eq!(run(&mut search, COMPUTE, 60).len(), 1);
        assert_eq!(search.share(), 1.0);
    }

    #[test]
    fn idle_periods_and_machines_without_clocks_say_nothing() {
        let mut search = Search::new(Goal::Energy, 1.0);
        for _ in 0..20 {
            assert!(search.period(vec![1.0], MEMORY.second(1.0)).is_none());
        }
        assert_eq!(search.share(), 1.0);
        for _ in 0..20 {
            let idle = Took {
                work: 0.0,
                ..MEMORY.second(1.0)
            };
            assert!(search.period(points(), idle).is_none());
        }
        assert_eq!(search.share(), 1.0);
    }
}
