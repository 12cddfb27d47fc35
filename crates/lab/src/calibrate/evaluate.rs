//! From what was measured to a calibration: slowdowns, limits, ∆T/∆L, the order of checks.

use super::{
    case::Case,
    judge::{LEVEL, judge},
    kernels::{Kind, LoadMetric},
    measured::Measured,
    notes::notes,
    plan::{Run, Seat, Sites},
};
use perch_core::metric::names;
use perch_policy::{CalibratedMetric, Calibration, Coupling, Kernel, Share, calibration::VERSION};
use std::collections::BTreeMap;

/// Losses that differ by no more are alike.
const ALIKE: f64 = 0.05;

/// Runs with what was measured of each of their seats.
#[derive(Debug, Clone)]
pub struct Measurements<'a> {
    /// The kernels.
    pub kernels: Vec<Kind<'a>>,
    /// Where they ran.
    pub sites: &'a Sites,
    /// The runs.
    pub runs: &'a [Run],
    /// What came of each run, seat by seat.
    pub measured: &'a [Vec<Measured>],
}

impl Measurements<'_> {
    /// Kernels, couplings and metrics of a calibration, with notes on what contends and what does not.
    pub fn calibration(
        &self,
        machine: String,
        date: String,
        load_metrics: &[LoadMetric],
    ) -> Calibration {
        let cases = self.cases();
        let kernels = self.kernels();
        let metrics = metrics(load_metrics, &kernels, &cases);
        let mut notes = notes(&self.kernels, self.sites, &cases);
        notes.extend(missing(load_metrics, &metrics));
        Calibration {
            version: VERSION,
            machine,
            date,
            notes,
            metrics,
            kernels,
            couplings: self.couplings(&cases),
            transfers: Vec::new(),
        }
    }

    /// All coupled threads, in the order of the runs.
    fn cases(&self) -> Vec<Case<'_>> {
        let both = || self.runs.iter().zip(self.measured);
        let alone: BTreeMap<Seat, &Measured> = both()
            .filter(|(run, _)| run.level.is_none())
            .flat_map(|(run, measured)| run.seats.iter().copied().zip(measured))
            .collect();
        let judged = judge(self.runs, self.measured, LEVEL);
        let mut cases = Vec::new();
        for ((run, measured), judged) in both().zip(&judged) {
            let Some(level) = run.level else {
                continue;
            };
            for (at, seat) in run.seats.iter().enumerate() {
                let (Some(judged), Some(alone)) = (judged[at], alone.get(seat)) else {
                    continue;
                };
                let others = run.seats.iter().enumerate();
                let others = others.filter(|(other, _)| *other != at);
                cases.push(Case {
                    share: self.sites.levels[level].share,
                    seat: *seat,
                    beside: others.map(|(_, seat)| seat.kernel).collect(),
                    coupled: &measured[at],
                    alone,
                    judged,
                });
            }
        }
        cases
    }

    /// Each kernel as it was alone.
    fn kernels(&self) -> Vec<Kernel> {
        let kernel = |(number, kind): (usize, &Kind<'_>)| {
            let seat = Seat {
                pu: self.sites.first,
                kernel: number,
            };
            let mut both = self.runs.iter().zip(self.measured);
            let alone = both.find(|(run, _)| run.level.is_none() && run.seats == [seat]);
            let metrics = alone.map_or_else(BTreeMap::new, |(_, measured)| {
                let metrics = measured[0].metrics.iter();
                // Amounts of a window say nothing of what a kernel is.
                let metrics = metrics.filter(|(name, _)| !names::AMOUNTS.contains(&name.as_str()));
                metrics
                    .map(|(name, value)| (name.clone(), *value))
                    .collect()
            });
            Kernel {
                name: kind.name.to_owned(),
                metrics,
            }
        };
        self.kernels.iter().enumerate().map(kernel).collect()
    }

    fn couplings(&self, cases: &[Case<'_>]) -> Vec<Coupling> {
        let name = |kernel: usize| self.kernels[kernel].name.to_owned();
        let coupling = |case: &Case<'_>| Coupling {
            share: case.share,
            kernel: name(case.seat.kernel),
            beside: case.beside.iter().map(|kernel| name(*kernel)).collect(),
            slowdown: case.slowdown(),
            spread: is_known(case).then(|| case.judged.own.half.exp_m1()),
            low: is_known(case).then(|| case.judged.all.low().exp()),
            high: is_known(case).then(|| case.judged.all.high().exp()),
            significant: Some(case.judged.is_significant()),
        };
        cases.iter().map(coupling).collect()
    }
}

/// Whether there is an interval at all, one that a file can hold.
fn is_known(case: &Case<'_>) -> bool {
    let all = &case.judged.all;
    all.high().exp().is_finite() && all.low().exp() > 0.0
}

/// The load metrics that were measured, in the order in which they are to be checked.
///
/// As in MASA's section 4.1: the limit is the most that a single thread does in isolation, and ∆T/∆L is that of the
/// kernel that does most, next to itself on the closest PUs that share the resource. Of two events a miss always costs
/// more than an addition, however rare it is. So the order is not that of ∆T/∆L (a second for each event more) but of
/// ∆T/∆L · limit, the seconds that are lost in a second in which a neighbour does as much as one thread can. Those that
/// lose alike are in the order of ∆T/∆L, as in the paper.
fn metrics(wanted: &[LoadMetric], kernels: &[Kernel], cases: &[Case<'_>]) -> Vec<CalibratedMetric> {
    let mut found: Vec<(f64, CalibratedMetric)> = Vec::new();
    let mut resources: Vec<&str> = Vec::new();
    for metric in wanted {
        let values = kernels.iter().enumerate().filter_map(|(at, kernel)| {
            let value = *kernel.metrics.get(&metric.name)?;
            (value.is_finite() && value > 0.0).then_some((at, value))
        });
        let most = values.max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((kernel, limit)) = most else {
            continue;
        };
        if resources.contains(&metric.resource.as_str()) {
            continue;
        }
        resources.push(&metric.resource);
        let twins = cases.iter().find(|case| {
            case.seat.kernel == kernel
                && case.beside == [kernel]
                && within(case.share, metric.share)
        });
        let is_shown = twins.is_some_and(|case| case.judged.is_significant());
        let ratio = twins.map(|case| ratio(case, &metric.name, limit));
        found.push((
            ratio.filter(|_| is_shown).unwrap_or(0.0) * limit,
            CalibratedMetric {
                name: metric.name.clone(),
                priority: 0,
                share: metric.share,
                limit,
                ratio,
                spread: twins.and_then(|case| case.alone.spread),
                significant: Some(is_shown),
            },
        ));
    }
    // Those that cost nothing stay in the order of the file.
    let order = |(loss, metric): &(f64, CalibratedMetric)| {
        ((loss / ALIKE).round(), metric.ratio.unwrap_or(0.0))
    };
    found.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let ordered = found.into_iter().zip(1..);
    let metric = |((_, metric), priority)| CalibratedMetric { priority, ..metric };
    ordered.map(metric).collect()
}

/// Which resources have no metric here.
fn missing(wanted: &[LoadMetric], found: &[CalibratedMetric]) -> Option<String> {
    let is_found = |resource: &str| {
        let mut ways = wanted.iter().filter(|way| way.resource == resource);
        ways.any(|way| found.iter().any(|metric| metric.name == way.name))
    };
    let mut without: Vec<&str> = wanted.iter().map(|way| way.resource.as_str()).collect();
    without.dedup();
    without.retain(|resource| !is_found(resource));
    (!without.is_empty())
        .then(|| format!("no load of these is measured here: {}", without.join(", ")))
}

/// ∆T/∆L for the same work alone and beside itself: ∆T = T(coupled) - T(alone), ∆L = both loads coupled - the load alone.
/// The work cancels out, so that it is a second's here: T is 1 / speed, and L is T times the events per second.
fn ratio(case: &Case<'_>, metric: &str, rate: f64) -> f64 {
    let alone = 1.0 / case.alone.speed;
    let coupled = alone * case.known();
    let events = rate * alone;
    // Where it was not counted beside itself, the same work is taken to have as many events.
    let counted = case.coupled.metrics.get(metric);
    let events_coupled = counted.map_or(events, |rate| rate * coupled);
    let more = 2.0 * events_coupled - events;
    match more > 0.0 {
        true => ((coupled - alone) / more).max(0.0),
        false => 0.0,
    }
}

/// Whether PUs whose closest is the one share the other too.
fn within(closest: Share, share: Share) -> bool {
    let order = |share: Share| match share {
        Share::Core => 0,
        Share::Fp => 1,
        Share::L2 => 2,
        Share::Llc => 3,
        Share::Node => 4,
        Share::Package => 5,
        Share::Machine => 6,
    };
    order(closest) <= order(share)
}
