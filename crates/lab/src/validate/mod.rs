//! A simulated machine by itself, without any policy: microbenchmarks on it beside what others measured on the real one.

mod file;
mod kernel;
mod probe;
mod results;

pub use file::{
    Alone, Bandwidth, Gain, Instruction, Latency, Measurements, Pair, Range, Source, Threads, Unit,
    Walk,
};
pub use kernel::{Kernel, Stream};
pub use results::{Kind, NEAR, Row, Validated, Validation};

use crate::parallel::{each, host_threads};
use perch_sim::{
    model::{MachineModel, Op},
    workload::Mix,
};
use probe::Probe;
use std::sync::Arc;

/// A row without its simulated value, and how to get that.
struct Wanted {
    what: String,
    unit: &'static str,
    measured: Range,
    kind: Kind,
    source: String,
    /// The kind of core.
    on: Option<String>,
    by: Measure,
}

/// What a probe does.
enum Measure {
    Load(u64, Walk, Unit),
    Dependent(Op),
    Independent(Op),
    Read(u64, Threads),
    Stream(Mix, f64, Threads),
    Gain(u64),
    Alone(Mix),
    Pair(Box<[Mix; 2]>),
}

/// Compares a machine with what was measured, of that what has `only` in its name. Reports to `done` how many values are
/// done, of how many.
///
/// # Errors
/// In words: a simulation that cannot go on, or whose caches do not settle.
pub fn validate(
    machine: &Arc<MachineModel>,
    measurements: &Measurements,
    only: &str,
    mut done: impl FnMut(usize, usize),
) -> Result<Vec<Row>, String> {
    let mut wanted = wanted(measurements)?;
    wanted.retain(|one| one.what.contains(only));
    let count = wanted.len();
    let row = |at: usize| {
        let one = &wanted[at];
        let told = |why: String| format!("{}: {why}", one.what);
        let kind = one.on.as_ref().map(|on| kind(machine, on));
        let probe = Probe::new(machine, kind.transpose().map_err(told)?);
        Ok(Row {
            what: one.what.clone(),
            unit: one.unit.to_owned(),
            measured: one.measured,
            simulated: one.by.on(&probe).map_err(told)?,
            kind: one.kind,
            source: one.source.clone(),
        })
    };
    each(count, host_threads(), row, |at| done(at, count)).map_err(|(_, error)| error)
}

fn kind(machine: &MachineModel, name: &str) -> Result<usize, String> {
    let mut kinds = machine.kinds.iter();
    kinds
        .position(|kind| kind.name == name)
        .ok_or_else(|| format!("no kind of core `{name}`"))
}

fn wanted(measurements: &Measurements) -> Result<Vec<Wanted>, String> {
    let mut all = Vec::new();
    let mut add = |what: String, unit, measured, kind, source: &String, on: &Option<String>, by| {
        all.push(Wanted {
            what: match on {
                Some(on) => format!("{what} ({on})"),
                None => what,
            },
            unit,
            measured,
            kind,
            source: source.clone(),
            on: on.clone(),
            by,
        });
    };
    let kernel = |name: &String| {
        let mut kernels = measurements.kernels.iter();
        let found = kernels.find(|one| one.name == *name);
        found.ok_or_else(|| format!("no kernel `{name}`"))
    };
    for one in &measurements.latencies {
        let unit = match one.unit {
            Unit::Cycles => "cycles",
            Unit::Ns => "ns",
        };
        // In order of lines, a level costs what the file says; else TLB and caches come together.
        let kind = match one.walk {
            _ if one.read_off => Kind::Input,
            Walk::Lines => Kind::Input,
            Walk::Pages | Walk::Random | Walk::Steps(_) => Kind::Prediction,
        };
        let by = Measure::Load(one.bytes, one.walk, one.unit);
        let what = match one.walk {
            Walk::Steps(step) => format!("load: {}, +{step} B", one.of),
            Walk::Lines | Walk::Pages | Walk::Random => format!("load: {}", one.of),
        };
        add(what, unit, one.time, kind, &one.source, &one.on, by);
    }
    for one in &measurements.instructions {
        let op = one.op.name();
        let ways = [
            ("dependent", one.latency, Measure::Dependent(one.op)),
            ("independent", one.every, Measure::Independent(one.op)),
        ];
        for (how, range, by) in ways {
            if let Some(range) = range {
                let what = format!("{op}: {how}");
                add(what, "cycles", range, Kind::Input, &one.source, &one.on, by);
            }
        }
    }
    for one in &measurements.bandwidths {
        let (what, by) = match &one.kernel {
            None => ("reads".to_owned(), Measure::Read(one.bytes, one.threads)),
            Some(name) => {
                let kernel = kernel(name)?;
                let mix = kernel.mix(Some(one.bytes))?;
                let by = Measure::Stream(mix, kernel.bytes_each(), one.threads);
                (name.clone(), by)
            }
        };
        let what = format!("{what}: {}", one.of);
        let range = one.gb_per_second;
        add(
            what,
            "GB/s",
            range,
            Kind::Prediction,
            &one.source,
            &one.on,
            by,
        );
    }
    for one in &measurements.alone {
        let kernel = kernel(&one.kernel)?;
        let by = Measure::Alone(kernel.mix(Some(one.bytes))?);
        let [most, least] = one.cycles.map(|cycles| kernel.instructions() / cycles);
        let what = named("alone", &one.kernel, one.of.as_deref());
        let range = [least, most];
        add(
            what,
            "IPC",
            range,
            Kind::Prediction,
            &one.source,
            &one.on,
            by,
        );
    }
    for one in &measurements.gains {
        let what = format!("second context: {}", one.of);
        let by = Measure::Gain(one.read);
        add(
            what,
            "times",
            one.gain,
            Kind::Prediction,
            &one.source,
            &None,
            by,
        );
    }
    for one in &measurements.pairs {
        let [a, b] = &one.kernels;
        let mix = |name| kernel(name)?.mix(one.bytes);
        let by = Measure::Pair(Box::new([mix(a)?, mix(b)?]));
        let what = named("pair", &format!("{a} + {b}"), one.of.as_deref());
        add(
            what,
            "times",
            one.gain,
            Kind::Prediction,
            &one.source,
            &None,
            by,
        );
    }
    Ok(all)
}

fn named(group: &str, name: &str, of: Option<&str>) -> String {
    let of = of.map(|of| format!(", {of}")).unwrap_or_default();
    format!("{group}: {name}{of}")
}

impl Measure {
    fn on(&self, probe: &Probe<'_>) -> Result<f64, String> {
        let simulated = match self {
            Self::Load(bytes, walk, Unit::Cycles) => probe.chase(*bytes, *walk),
            Self::Load(bytes, walk, Unit::Ns) => probe
                .chase(*bytes, *walk)
                .map(|cycles| probe.nanoseconds(cycles)),
            Self::Dependent(op) => probe.latency(*op),
            Self::Independent(op) => probe.every(*op),
            Self::Read(bytes, threads) => {
                let rate = probe.bandwidth(*bytes, *threads);
                rate.map(|rate| rate * 1e-9)
            }
            Self::Stream(mix, bytes_each, threads) => {
                let rate = probe.stream(mix.clone(), *bytes_each, *threads);
                rate.map(|rate| rate * 1e-9)
            }
            Self::Gain(bytes) => probe.gain(*bytes),
            Self::Alone(mix) => probe.ipc(mix.clone()),
            Self::Pair(mixes) => probe.pair((**mixes).clone()),
        };
        simulated.map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_about_a_machine_and_every_value_has_a_source() {
        let machines = Measurements::machines();
        let shipped = perch_sim::config::shipped_machines();
        assert_eq!(
            machines,
            shipped.iter().map(|file| file.name).collect::<Vec<_>>()
        );
        for name in machines {
            let machine = perch_sim::config::find_machine(name).unwrap();
            let measurements = Measurements::of(name).unwrap();
            let wanted = wanted(&measurements).unwrap_or_else(|why| panic!("{name}: {why}"));
            for one in &wanted {
                let [least, most] = one.measured;
                assert!(0.0 < least && least <= most, "{name}, {}", one.what);
                if let Some(on) = &one.on {
                    kind(&machine, on).unwrap();
                }
                let mut keys = measurements.sources.iter().map(|source| &source.key);
                assert!(keys.any(|key| *key == one.source), "{name}: {}", one.source);
            }
            for source in &measurements.sources {
                let used = wanted.iter().any(|one| one.source == source.key);
                assert!(used, "{name}: no value is from {}", source.key);
            }
        }
        assert_eq!(Measurements::of("no-such-machine"), None);
    }

    fn kernel(ops: &[(Op, f64)], depends: u16) -> Mix {
        let kernel = Kernel {
            name: "kernel".into(),
            ops: ops.iter().copied().collect(),
            elements: 1.0,
            width: 8,
            streams: Vec::new(),
            depends,
            mix: None,
        };
        kernel.mix(None).unwrap()
    }

    fn machine(name: &str) -> Arc<MachineModel> {
        Arc::new(perch_sim::config::find_machine(name).unwrap())
    }

    /// Chains leave units free for a second thread, and a full unit leaves nothing.
    #[test]
    fn a_pair_gains_what_is_left() {
        let zen = machine("smt2-zen");
        let probe = Probe::new(&zen, None);
        let chain = || kernel(&[(Op::Alu, 1.0)], 1);
        let divide = || kernel(&[(Op::Divide, 1.0)], 0);
        let near = |gain: f64, wanted: f64| assert!((gain - wanted).abs() < 0.02, "{gain}");
        near(probe.pair([chain(), chain()]).unwrap(), 2.0);
        near(probe.pair([chain(), divide()]).unwrap(), 2.0);
        near(probe.pair([divide(), divide()]).unwrap(), 1.0);
    }

    /// Each kind of core has its own clock, units and caches.
    #[test]
    fn a_probe_runs_on_its_kind_of_core() {
        let both = machine("big-little");
        let ipc = |name| {
            let probe = Probe::new(&both, Some(kind(&both, name).unwrap()));
            probe.ipc(kernel(&[(Op::Alu, 1.0), (Op::Load, 1.0)], 0))
        };
        // Three a cycle of two ALUs and a load unit; two of an issue width of two.
        let (big, little) = (ipc("big").unwrap(), ipc("little").unwrap());
        assert!(big > 1.9 && little > 1.2 && little < 1.9, "{big} {little}");
        assert!(kind(&both, "medium").is_err());
    }

    /// What an element is made of, and what an instruction of it moves.
    #[test]
    fn a_loop_is_counted_by_its_elements() {
        let measurements = Measurements::of("ibm-power7-smt2").unwrap();
        let copy = measurements.kernels.iter().find(|one| one.name == "copy");
        let copy = copy.unwrap();
        assert!((copy.instructions() - 19.0 / 8.0).abs() < 1e-9);
        assert!((copy.bytes_each() - 8.0 * 16.0 / 19.0).abs() < 1e-9);
        let wanted = wanted(&measurements).unwrap();
        let alone = wanted.iter().find(|one| one.what == "alone: copy").unwrap();
        assert!((alone.measured[0] - 19.0 / 8.0 / 1.09).abs() < 1e-9);
        let masa = Measurements::of("intel-xeon-ht").unwrap();
        let mix = masa.kernels[0].mix(None).unwrap();
        assert_eq!(mix.name, "gzip");
    }

    #[test]
    fn like_cores_have_the_values_in_cycles() {
        let zen = Measurements::of("smt2-zen").unwrap();
        let server = Measurements::of("numa-2").unwrap();
        assert_eq!(zen.instructions, server.instructions);
        assert!(server.pairs.is_empty() && server.gains.is_empty());
        let in_ns = |of: &Measurements| {
            of.latencies
                .iter()
                .filter(|one| one.unit == Unit::Ns)
                .count()
        };
        assert_eq!((in_ns(&zen), in_ns(&server)), (5, 1));
    }
}
