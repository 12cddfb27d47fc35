//! What the machine measures by itself, listed as modules.

use super::{Entry, How};
use crate::{
    perf::{Privilege, probe},
    sampling::SamplerModule,
};
use perch_core::{MachineError, MetricInfo, MetricKind, MetricScope, Need};
use std::fs;

/// Metrics that the kernel accounts for every thread: their names, units and meanings.
const ACCOUNTED: [(&str, &str, &str); 3] = [
    ("run_delay", "s", "time runnable without a PU"),
    ("context_switches", "", "times that it left a PU"),
    ("cpu_migrations", "", "moves to another PU"),
];

/// The sources in the order in which they are asked.
pub(super) fn entries() -> Vec<Entry> {
    let permission = Need::Permission(
        "kernel.perf_event_paranoid ≤ 2 for one's own threads; CAP_PERFMON or ≤ 0 for whole PUs"
            .into(),
    );
    let entry = |name: &'static str, summary: &'static str, metrics, needs, check| Entry {
        name: name.into(),
        summary: summary.into(),
        metrics,
        needs,
        how: How::BuiltIn(check),
    };
    vec![
        entry(
            "counters",
            "events of the processor's counters (-e), and metrics over them (-m)",
            Vec::new(),
            vec![
                Need::File("a core PMU in /sys/bus/event_source/devices".into()),
                permission.clone(),
            ],
            counters,
        ),
        entry(
            "software",
            "the kernel's software events (-e page-faults, context-switches, …)",
            Vec::new(),
            vec![permission.clone()],
            perf_events,
        ),
        entry(
            "sampling",
            "what sampled instructions tell of each thread",
            SamplerModule::provided(),
            vec![permission],
            perf_events,
        ),
        entry(
            "accounting",
            "what the kernel accounts for each thread",
            ACCOUNTED.map(accounted).into(),
            vec![Need::File("/proc/PID/task/TID/{schedstat,status}".into())],
            schedstat,
        ),
    ]
}

fn accounted((name, unit, about): (&'static str, &'static str, &'static str)) -> MetricInfo {
    MetricInfo::new(name, unit, MetricScope::Thread, MetricKind::Amount, about)
}

fn counters() -> Result<String, MachineError> {
    let probe = probe();
    match probe.pmu_usable {
        true => Ok("hardware counters".to_owned()),
        false => Err(MachineError::Other(probe.why)),
    }
}

fn perf_events() -> Result<String, MachineError> {
    let privilege = Privilege::detect()?;
    Ok(match privilege.system_wide {
        true => "of threads and of whole PUs".to_owned(),
        false => format!("of threads only ({})", privilege.paranoid_text()),
    })
}

fn schedstat() -> Result<String, MachineError> {
    match fs::metadata("/proc/self/schedstat") {
        Ok(_) => Ok("schedstat and status of each thread".to_owned()),
        Err(_) => Err(MachineError::Other(
            "/proc/self/schedstat is missing: the kernel was built without CONFIG_SCHED_INFO"
                .to_owned(),
        )),
    }
}
