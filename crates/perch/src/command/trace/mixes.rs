//! Mixes that resemble a recording's threads.

use anyhow::{Context, Result, bail};
use perch_lab::derived::{Check, Found};
use perch_sim::{
    config,
    derived::{self, Derived},
    model::MachineModel,
    system::SimError,
    workload::{Mix, Trace},
};
use perch_trace::Recording;
use std::{io::Write, path::Path, sync::Arc};

/// Writes a mix for each thread with instructions to `to`, and compares them on these machines.
///
/// # Errors
/// No such machine, a file that cannot be written, a recording without instructions.
pub fn write(
    recording: &Arc<Recording>,
    from: &Path,
    to: &Path,
    machines: &[String],
) -> Result<Vec<Found>> {
    let machines: Vec<Arc<MachineModel>> = machines
        .iter()
        .map(|machine| config::find_machine(machine).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let trace = Trace::new(from.to_string_lossy(), None, Arc::clone(recording));
    let all = 0..recording.threads().len();
    let stem = from.file_stem().unwrap_or_default().to_string_lossy();
    let mut derived: Vec<(usize, Derived)> = Vec::new();
    for thread in all {
        let name = match derived.len() {
            0 => stem.clone().into_owned(),
            others => format!("{stem}-{}", others + 1),
        };
        derived.extend(derived::mix(&trace, thread, &name).map(|found| (thread, found)));
    }
    if derived.is_empty() {
        bail!("{}: no thread has an instruction", from.display());
    }
    let mixes: Vec<Mix> = derived.iter().map(|(_, found)| found.mix.clone()).collect();
    let text = derived::text(
        &about(recording, &stem),
        &sources(recording, &derived),
        &mixes,
    );
    perch_files::output(to)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{}: cannot be written", to.display()))?;
    derived
        .into_iter()
        .map(|(thread, found)| {
            let recorded = Mix {
                name: found.mix.name.clone(),
                code_bytes: trace.layout().bytes(),
                trace: Some(trace.with_thread(Some(thread))),
                ..Mix::default()
            };
            let check = |machine: &Arc<MachineModel>| {
                Check::new(machine, &recorded, &found.mix, found.operations)
            };
            Ok(Found {
                operations: found.operations,
                data: found.mix.working_sets.iter().map(|set| set.bytes).sum(),
                code: found.mix.code_bytes,
                checks: machines
                    .iter()
                    .map(check)
                    .collect::<Result<_, SimError>>()?,
                name: found.mix.name.clone(),
            })
        })
        .collect()
}

fn about(recording: &Recording, stem: &str) -> String {
    match recording.program.is_empty() {
        true => format!("Mixes derived from the recording {stem}"),
        false => format!("Mixes derived from a recording of `{}`", recording.program),
    }
}

fn sources(recording: &Recording, derived: &[(usize, Derived)]) -> Vec<String> {
    let threads = derived.iter().map(|(thread, found)| {
        let instructions = recording.threads()[*thread].instructions;
        format!(
            "{}: thread {} of the recording, {instructions} instructions, {} operations, {} loads and stores, {} KiB of \
             data touched; perch {}, `perch trace --mix`",
            found.mix.name,
            thread + 1,
            found.operations,
            found.accesses,
            (found.lines[0] * 64).div_ceil(1024),
            env!("CARGO_PKG_VERSION"),
        )
    });
    threads.collect()
}
