//! Queues of the nodes' memory channels, of the ports between caches, and of the links between nodes.

use super::{fate::Fate, layout::Layout, running::Running, wait::Wait};
use crate::model::MachineModel;

/// How far a channel's queue follows at each step what it should be: not all the way, since speeds follow it in turn.
const FOLLOW: f64 = 0.6;

/// By so much it changes in one step at most.
const LEAP: f64 = 4.0;

/// The first guess of a channel's use is at most this.
const GUESS: f64 = 0.9;

/// How long each thread's transfers wait for the channels that they use, and by how much that changed. `queues` are the
/// channels' from the step before; none at first.
///
/// Who comes finds those that wait and, half done, the one that is served: queue = sum of used · (wait + service / 2).
/// Of a thread with N lines under way, only N - 1 others can be there when its next one comes: its wait is the queue less
/// the N-th part of its own (a closed queueing network; Schweitzer 1979). `under_way` gives N, by thread and server. Where
/// N is large and all wait for the same queue this is M/D/1, service · used / (2 · (1 - used)). Where threads ask
/// for more than there is, it grows until they are slow enough; there a small change of use is a large one of the queue,
/// so it is followed the other way round: the queue grows while more is used than it goes with, and shrinks while less is.
pub(super) fn waits(
    machine: &MachineModel,
    layout: &Layout,
    running: &[Running<'_>],
    speeds: &[f64],
    fates: &[Fate],
    under_way: &dyn Fn(usize, usize) -> f64,
    queues: &mut Vec<f64>,
) -> (Vec<Wait>, f64) {
    let services = layout.servers();
    // Of which channels a thread uses how much.
    let used: Vec<Vec<(usize, f64)>> = running
        .iter()
        .zip(fates)
        .zip(speeds)
        .map(|((who, fate), speed)| {
            let mut uses = uses(layout, who, fate, speed * layout.service);
            let ports = fate.ports.iter();
            uses.extend(ports.map(|its| {
                let port = layout.port(its.cache);
                (port, its.lines * speed * services[port])
            }));
            let links = fate.links.lines.iter();
            uses.extend(links.map(|(link, lines)| (*link, lines * speed * services[*link])));
            uses
        })
        .collect();
    let mut total = vec![0.0; services.len()];
    for (server, used) in used.iter().flatten() {
        total[*server] += used;
    }
    // As many lines wait for a port or a link as the threads that use it have under way, at most.
    let mut longest = vec![0.0; services.len()];
    for ((who, fate), uses) in running.iter().zip(fates).zip(&used) {
        let kind = machine.kind(&machine.cores[layout.pus[who.pu].core]);
        let needed = f64::from(match kind.misses {
            0 => kind.window,
            most => most,
        });
        for (server, _) in uses {
            longest[*server] += match layout.is_link(*server) {
                true => needed + fate.ahead(),
                false => needed,
            };
        }
    }
    let wait = |at: usize, (server, used): (usize, f64), queues: &[f64]| {
        let own = used * running[at].demand.loads() / under_way(at, server);
        ((queues[server] - own * services[server] / 2.0) / (1.0 + own)).max(0.0)
    };
    let mut moved = 0.0f64;
    if queues.is_empty() {
        let guess = |(used, service): (&f64, &f64)| {
            let used = used.min(GUESS);
            service * used / (2.0 * (1.0 - used))
        };
        *queues = total.iter().zip(&services).map(guess).collect();
        moved = f64::INFINITY;
    } else {
        let mut found = vec![0.0; services.len()];
        for (at, uses) in used.iter().enumerate() {
            for (server, used) in uses {
                let half = services[*server] / 2.0;
                found[*server] += used * (wait(at, (*server, *used), queues) + half);
            }
        }
        let servers = queues
            .iter_mut()
            .zip(found)
            .zip(total.iter().zip(&services));
        for (server, ((queue, found), (used, service))) in servers.enumerate() {
            if *queue > 0.0 && *used > 0.0 {
                // Never more than all of the channel.
                let factor = (found / *queue).max(*used).powf(FOLLOW);
                let factor = factor.clamp(1.0 / LEAP, LEAP);
                *queue *= factor;
                if server >= layout.nodes {
                    *queue = queue.min(longest[server] * service);
                }
                // A change too small to notice does not count.
                moved = moved.max(factor.ln().abs() * *queue / (*queue + service));
            }
        }
    }
    let memory = |at: usize, uses: &[(usize, f64)]| {
        let all: f64 = uses.iter().map(|(_, used)| used).sum();
        match uses {
            [one] => wait(at, *one, queues),
            _ if all <= 0.0 => 0.0,
            several => {
                let waits = several.iter().map(|of| wait(at, *of, queues) * of.1);
                waits.sum::<f64>() / all
            }
        }
    };
    let of_thread = |(at, uses): (usize, &Vec<(usize, f64)>)| {
        let ports = uses.partition_point(|(server, _)| *server < layout.nodes);
        let (nodes, ports) = uses.split_at(ports);
        let others = ports.iter().map(|of| (of.0, wait(at, *of, queues)));
        Wait {
            memory: memory(at, nodes),
            servers: others.collect(),
            most: ports.iter().fold(1.0, |most, (server, _)| {
                f64::min(most, 1.0 / total[*server])
            }),
        }
    };
    (used.iter().enumerate().map(of_thread).collect(), moved)
}

/// How much of which nodes' channels a thread uses that has a line moved `each` times an instruction: its own first.
fn uses(layout: &Layout, who: &Running<'_>, fate: &Fate, each: f64) -> Vec<(usize, f64)> {
    let apart: f64 = fate.apart.iter().map(|(_, lines)| lines).sum();
    let mut uses = vec![(
        who.homes.own.min(layout.nodes - 1),
        (fate.transfers - apart).max(0.0) * each,
    )];
    for (home, lines) in &fate.apart {
        let (nodes, part) = layout.nodes_of(*home);
        for node in nodes {
            let used = lines * part * each;
            match uses.iter_mut().find(|(known, _)| *known == node) {
                Some((_, sum)) => *sum += used,
                None => uses.push((node, used)),
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::find_machine,
        interval::demand::{Class, Demand},
        model::Op,
        workload::Mix,
    };

    /// How long each of N threads waits for a line, in service times of the channel. Each thread keeps the channel busy for
    /// `used` of the time and has `lines` lines under way.
    fn waits_of(threads: usize, used: f64, lines: f64) -> Vec<f64> {
        let machine = find_machine("core2-quad").unwrap();
        let layout = Layout::new(&machine);
        let mut mix = Mix {
            code_bytes: 64,
            ..Mix::default()
        };
        mix.shares[Op::Load as usize] = 1.0;
        let class = Class::default();
        let demand = Demand::new(&mix, class, &[], layout.line, layout.page);
        let running: Vec<Running<'_>> = (0..threads)
            .map(|pu| Running {
                pu,
                demand: &demand,
                homes: class.homes,
                ways: class.ways,
            })
            .collect();
        let fates = vec![
            Fate {
                transfers: 1.0,
                ..Fate::default()
            };
            threads
        ];
        let speeds = vec![used / layout.service; threads];
        let mut queues = Vec::new();
        let mut found = Vec::new();
        for _ in 0..200 {
            let under_way = |_, _| lines;
            (found, _) = waits(
                &machine,
                &layout,
                &running,
                &speeds,
                &fates,
                &under_way,
                &mut queues,
            );
        }
        found
            .iter()
            .map(|wait| wait.memory / layout.service)
            .collect()
    }

    #[test]
    fn a_thread_with_one_line_under_way_does_not_wait_for_itself() {
        for used in [0.1, 0.5, 0.9] {
            assert!(waits_of(1, used, 1.0)[0] < 1e-6);
        }
    }

    /// Many lines, no matter whose: the formula of Pollaczek and Khinchine.
    #[test]
    fn with_many_lines_under_way_it_is_an_m_d_1_queue() {
        for used in [0.1, 0.3, 0.45] {
            let all = 2.0 * used;
            for wait in waits_of(2, used, 1e9) {
                let expected = all / (2.0 * (1.0 - all));
                assert!((wait / expected - 1.0).abs() < 1e-3, "{wait} {expected}");
            }
        }
    }

    /// Of two threads with a line each, one finds at most the other's.
    #[test]
    fn of_two_threads_with_a_line_each_one_waits_for_the_other_at_most() {
        for used in [0.1, 0.3, 0.45] {
            for wait in waits_of(2, used, 1.0) {
                assert!(wait > 0.0 && wait < 1.0, "{wait}");
            }
        }
    }
}
