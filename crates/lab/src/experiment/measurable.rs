//! What can be measured of a run: names, units, and what each needs.

/// What can be measured of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Instructions of all threads / cycle of the machine.
    Throughput,
    /// The sum of each thread's speed over its speed in isolation on the machine: how many threads in isolation would
    /// do as much (weighted speedup, Snavely and Tullsen 2000).
    Speedup,
    /// Cycles on a PU / instruction, the mean of the threads.
    Cpi,
    /// Cycles between the issue of an instruction and the next one of the same thread, less the cycle that it issues
    /// in: [`Quantity::Cpi`] - 1.
    Delay,
    /// Loads and stores that hit L1 / loads and stores.
    L1Hits,
    /// How far a thread's CPI beside others is from its CPI alone, as a part of the latter, the mean of the threads.
    CpiError,
    /// How far the CPI alone that `perch_policy::cpi::SoloCpi` infers from CPIs beside others is from the true one, in
    /// the same way. Only for threads that stay on their core.
    SoloError,
    /// Share of the PUs' time in which they had a thread.
    Busy,
    /// Times that a thread went on on another PU.
    Migrations,
    /// No placement has a throughput above this: what the cores can issue, or what the threads that need least time
    /// would do alone. Not for threads that bring data in for each other.
    Bound,
    /// How many placements were simulated.
    Placements,
    /// Mean seconds of the operating system from a request's arrival to its reply, of the requests that were replied to
    /// while it was counted; all programs together, as the following.
    ResponseTime,
    /// Seconds that 95 % of these did not exceed.
    ResponseP95,
    /// Requests replied to, in a second of the operating system.
    Requests,
    /// Joules a second of the machine, all its parts, from the beginning; of machines whose files say what parts take.
    Power,
    /// Nanojoules of all parts / instruction, from the beginning.
    Energy,
    /// 1 - cycles with nothing in the core's floating-point units / cycles, the mean of the threads (WorkOver, equation
    /// 1). Covers all threads that share the units; not for runs with a policy.
    FpUsage,
    /// Floating-point instructions / cycle, the mean of the threads (WorkOver, equation 2).
    FpRate,
    /// Loads, stores and fetches that missed level 2 / cycle, the mean of the threads.
    L2Rate,
    /// The same / 1,000 instructions, of all threads together.
    L2Misses,
    /// Instructions of threads of one name / cycle of the machine.
    Work,
    /// Floating-point instructions of threads of one name, or in one package / cycle of the machine.
    FpWork,
    /// Loads, stores and fetches of such threads that missed level 2 / cycle of the machine.
    L2Work,
    /// Seconds of the operating system that a thread takes to do its steps once, at the speed that it had on average: of
    /// programs that are started again and again.
    RunTime,
    /// Seconds from the beginning to the end of a step that computes.
    StepTime,
    /// Seconds until each thread has done its steps, added up over the threads.
    TotalTime,
    /// Threads that a policy has moved, for reasons with a word in them.
    Moves,
    /// Power of ten of the number of ways to choose who runs and on which core; contexts of a core are alike.
    Combinations,
}

/// What a quantity can be narrowed down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Narrowed {
    /// Nothing: it is of all threads together.
    No,
    /// The threads of one name.
    Threads,
    /// These, and the threads of one package.
    Packages,
}

/// From what a quantity is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// What threads did in all.
    Totals,
    /// This, and what each class of threads does alone on the machine.
    Alone,
    /// What threads did, and where, in the course of time.
    Course,
    /// How far threads were at each moment.
    Marks,
}

/// What there is to know about a quantity.
#[derive(Debug, Clone, Copy)]
struct About {
    quantity: Quantity,
    /// Its name in files.
    name: &'static str,
    unit: &'static str,
    narrowed: Narrowed,
    source: Source,
}

const fn about(
    name: &'static str,
    quantity: Quantity,
    unit: &'static str,
    narrowed: Narrowed,
    source: Source,
) -> About {
    About {
        quantity,
        name,
        unit,
        narrowed,
        source,
    }
}

#[rustfmt::skip]
const ALL: [About; 28] = {
    use self::{Narrowed::*, Quantity as Q, Source::*};
    [
        about("throughput", Q::Throughput, "instructions / cycle", No, Totals),
        about("speedup", Q::Speedup, "threads alone", No, Alone),
        about("cpi", Q::Cpi, "cycles / instruction", Threads, Totals),
        about("delay", Q::Delay, "cycles", Threads, Totals),
        about("l1-hits", Q::L1Hits, "hits / access", Threads, Totals),
        about("cpi-error", Q::CpiError, "of the CPI alone", No, Alone),
        about("solo-error", Q::SoloError, "of the CPI alone", No, Alone),
        about("busy", Q::Busy, "of the PUs' time", No, Totals),
        about("migrations", Q::Migrations, "migrations", No, Totals),
        about("bound", Q::Bound, "instructions / cycle", No, Alone),
        about("placements", Q::Placements, "placements", No, Totals),
        about("response-time", Q::ResponseTime, "s", No, Totals),
        about("response-p95", Q::ResponseP95, "s", No, Totals),
        about("requests", Q::Requests, "requests / s", No, Totals),
        about("power", Q::Power, "W", No, Totals),
        about("energy", Q::Energy, "nJ / instruction", No, Totals),
        about("fp-usage", Q::FpUsage, "of the cycles", Threads, Totals),
        about("fp-rate", Q::FpRate, "instructions / cycle", Threads, Totals),
        about("l2-rate", Q::L2Rate, "misses / cycle", Threads, Totals),
        about("l2-misses", Q::L2Misses, "misses / 1,000 instructions", Threads, Totals),
        about("work", Q::Work, "instructions / cycle", Packages, Course),
        about("fp-work", Q::FpWork, "instructions / cycle", Packages, Course),
        about("l2-work", Q::L2Work, "misses / cycle", Packages, Course),
        about("run-time", Q::RunTime, "s", Packages, Course),
        about("step-time", Q::StepTime, "s", Threads, Marks),
        about("total-time", Q::TotalTime, "s", No, Marks),
        about("moves", Q::Moves, "threads", No, Course),
        about("combinations", Q::Combinations, "power of ten", No, Totals),
    ]
};

impl Quantity {
    fn about(self) -> &'static About {
        let found = ALL.iter().find(|about| about.quantity == self);
        found.expect("every quantity has a row, which a test checks")
    }

    /// The names that files use, and what they name.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> + Clone {
        ALL.iter().map(|about| (about.name, about.quantity))
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        self.about().unit
    }

    /// Whether each class of threads must be simulated alone for it.
    pub fn needs_alone(self) -> bool {
        self.about().source == Source::Alone
    }

    /// Whether it exists for the threads of one name.
    pub fn is_of_threads(self) -> bool {
        self.about().narrowed != Narrowed::No
    }

    /// Whether it exists for the threads of one package.
    pub fn is_of_packages(self) -> bool {
        self.about().narrowed == Narrowed::Packages
    }

    /// Whether it is read from what threads did in the course of time.
    pub(crate) fn is_of_course(self) -> bool {
        matches!(self.about().source, Source::Course | Source::Marks)
    }

    /// Whether it must be known how far threads were at each moment.
    pub(crate) fn needs_marks(self) -> bool {
        self.about().source == Source::Marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_quantity_has_one_row_and_one_name() {
        // Rows are in the order in which the quantities are declared.
        let numbers = ALL.iter().map(|about| about.quantity as usize);
        assert!(numbers.eq(0..ALL.len()));
        let names: BTreeSet<&str> = Quantity::all().map(|(name, _)| name).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(Quantity::Combinations as usize + 1, ALL.len());
    }
}
