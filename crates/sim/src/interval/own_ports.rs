//! Ports of caches that only one core uses, simulated with that core.
//!
//! A thread that waits for a line asks for no other, and one that does not asks for several at once, which queue behind each
//! other: no mean wait is right for both. So the simulation of a core ([`super::play`]) has the ports themselves, and the
//! closed formula ([`super::channels`]) only carries what it shows over to other speeds.

use super::{demand::Demand, fate::Fate, layout::Layout, wait::Wait};
use crate::{memory::Channel, units::Ps};

/// The ports of a core, and who uses them how much.
#[derive(Debug, Default)]
pub(super) struct OwnPorts {
    /// Time that each takes for a line, in picoseconds.
    pub services: Vec<Ps>,
    /// By thread.
    pub of: Vec<Vec<Passes>>,
}

/// One thread's lines at one port.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Passes {
    /// The port: its place among the services.
    pub port: usize,
    /// Loads and stores pass it that miss more caches than this; none if `None`. And so do fetches.
    pub data: Option<usize>,
    pub fetch: Option<usize>,
    /// Whether stores that miss bring lines. Where they are written through, those that pass are among the others.
    pub stores: bool,
    /// Lines that are written back, by one that is brought.
    pub back: f64,
    /// Other lines, by one load or store: brought by prefetchers in time, or written through.
    pub others: f64,
    /// How often prefetchers ask in vain, by one load or store that misses, and for how many lines at once.
    pub vain: f64,
    pub at_once: f64,
}

/// Caches with ports that only the PUs of this core use.
fn own(layout: &Layout, core: usize) -> impl Iterator<Item = usize> {
    (0..layout.caches.len()).filter(move |number| {
        let cache = &layout.caches[*number];
        let mut cores = cache.pus.iter().map(|pu| layout.pus[*pu as usize].core);
        cache.line_transfer > 0.0 && !cache.victim && cores.all(|its| its == core)
    })
}

/// The lines of a thread on a PU at one of these ports, if its accesses meet this: that of the cache of this number.
fn passes(
    layout: &Layout,
    (port, number): (usize, usize),
    (pu, demand, fate): (usize, &Demand, &Fate),
) -> Passes {
    let at = &layout.pus[pu];
    let before = |path: &[usize]| {
        let place = path.iter().position(|its| *its == number)?;
        place.checked_sub(1)
    };
    let (data, fetch) = (before(&at.data), before(&at.fetch));
    let first = data.map(|place| at.data[place]);
    let stores = first.is_none_or(|first| layout.caches[first].through.is_none());
    let (mut missed, mut saved) = (0.0, 0.0);
    for kept in fate.kept.iter().filter(|kept| Some(kept.cache) == first) {
        if !demand.lines[kept.which].code {
            missed += kept.unsaved;
            saved += kept.misses - kept.unsaved;
        }
    }
    if !stores {
        missed *= demand.loads();
        saved = 0.0;
    }
    let fetched = fetch.map_or(0.0, |place| {
        fate.fetch[layout.caches[at.fetch[place]].level]
    });
    let all = fate.ports.iter().find(|its| its.cache == number);
    let all = all.copied().unwrap_or_default();
    // Where hardly any line is missed, most of what prefetchers ask for in vain is beside those that they bring in time.
    let times = all.times.min(missed);
    let at_once = all.vain / all.times.max(1e-30);
    let brought = missed + fetched;
    let dirty = (all.lines - all.vain - brought - saved).max(0.0);
    let back = match stores {
        true => dirty.min(brought),
        false => 0.0,
    };
    let rest = (all.lines - brought - back - times * at_once).max(0.0);
    let by = |lines: f64, of: f64| if of > 0.0 { lines / of } else { 0.0 };
    Passes {
        port,
        data,
        fetch,
        stores,
        back: by(back, brought),
        others: by(rest, demand.accesses()),
        vain: by(times, missed),
        at_once,
    }
}

impl OwnPorts {
    /// Those of a core with threads on these PUs, each with what its accesses meet.
    pub fn new(layout: &Layout, core: usize, threads: &[(usize, &Demand, &Fate)]) -> Self {
        let numbers: Vec<usize> = own(layout, core).collect();
        let of_thread = |thread: &(usize, &Demand, &Fate)| {
            let ports = numbers.iter().copied().enumerate();
            ports.map(|port| passes(layout, port, *thread)).collect()
        };
        let service = |number: &usize| layout.caches[*number].line_transfer as Ps;
        Self {
            of: threads.iter().map(of_thread).collect(),
            services: numbers.iter().map(service).collect(),
        }
    }

    /// The same waits without those for a core's own ports, which its simulation adds.
    pub fn without(layout: &Layout, core: usize, wait: &Wait) -> Wait {
        let ports: Vec<usize> = own(layout, core).map(|cache| layout.port(cache)).collect();
        let mut wait = wait.clone();
        wait.servers.retain(|(server, _)| !ports.contains(server));
        wait
    }

    /// The ports, with nothing under way.
    pub fn channels(&self) -> Vec<Channel> {
        let services = self.services.iter();
        services
            .map(|service| Channel::with_service(*service))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{find_machine, find_workload, shipped_machines, shipped_workloads},
        interval::{demand::Class, running::Running, traffic::Traffic},
    };

    /// What the simulation of a core moves over a port is what the formulas say, whatever brings it there.
    #[test]
    fn no_line_is_lost_between_formula_and_simulation() {
        let mut found = [0.0; 4];
        for machine in shipped_machines() {
            let layout = Layout::new(&find_machine(machine.name).unwrap());
            let core = layout.pus[0].core;
            for workload in shipped_workloads() {
                let workload = find_workload(workload.name).unwrap();
                let mixes = workload.mixes.iter().filter(|mix| mix.trace.is_none());
                for mix in mixes {
                    let class = Class::default();
                    let demand = Demand::new(mix, class, &[], layout.line, layout.page);
                    let running = [Running {
                        pu: 0,
                        demand: &demand,
                        homes: class.homes,
                        ways: class.ways,
                    }];
                    let fate = &Traffic::new(&layout, &running).fates(&[1e-3])[0];
                    let ports = OwnPorts::new(&layout, core, &[(0, &demand, fate)]);
                    assert_eq!(ports.services.len(), ports.of[0].len());
                    for (number, its) in own(&layout, core).zip(&ports.of[0]) {
                        let missed = |place: usize| layout.pus[0].data[place];
                        let data = its.data.map_or(0.0, |place| {
                            let kept = fate.kept.iter();
                            let kept = kept.filter(|kept| kept.cache == missed(place));
                            let kept = kept.filter(|kept| !demand.lines[kept.which].code);
                            let loads = if its.stores { 1.0 } else { demand.loads() };
                            kept.map(|kept| kept.unsaved).sum::<f64>() * loads
                        });
                        let code = its.fetch.map_or(0.0, |place| {
                            fate.fetch[layout.caches[layout.pus[0].fetch[place]].level]
                        });
                        let parts = [
                            data + code,
                            (data + code) * its.back,
                            demand.accesses() * its.others,
                            data * its.vain * its.at_once,
                        ];
                        let passed = fate.ports.iter().find(|port| port.cache == number);
                        let passed = passed.map_or(0.0, |port| port.lines);
                        let sum: f64 = parts.iter().sum();
                        assert!(
                            (sum - passed).abs() <= 1e-9 + 1e-6 * passed,
                            "{} on {}: {parts:?} of {passed}",
                            mix.name,
                            machine.name
                        );
                        assert!(its.back <= 1.0 && its.vain <= 1.0);
                        found
                            .iter_mut()
                            .zip(parts)
                            .for_each(|(all, its)| *all += its);
                    }
                }
            }
        }
        assert!(found.iter().all(|lines| *lines > 0.0), "{found:?}");
    }
}
