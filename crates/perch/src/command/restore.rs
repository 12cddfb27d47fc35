//! `perch restore`: undo what a killed perch has left.

use crate::{args::JsonArgs, render::count};
use anyhow::Result;
use perch_engine::{Recovery, RestoreReport, StateDir, recover_all};
use perch_linux::{
    affinity::LinuxAffinity,
    topology::{Source, load},
};
use serde::Serialize;
use std::process::ExitCode;

/// One journal as `--json` tells it.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum Entry {
    Alive { pid: i32 },
    OtherBoot,
    Restored(RestoreReport),
    Unreadable { why: String },
}

/// Restores and tells. The exit code is 1 if a thread could not be restored.
///
/// # Errors
/// A journal folder that cannot be read.
pub fn restore(args: JsonArgs) -> Result<ExitCode> {
    let usable = load(&Source::Native)?.topology.usable();
    let recovered = recover_all(&StateDir::standard()?, &mut LinuxAffinity::new(), &usable)?;
    let failed = recovered.iter().any(|(_, recovery)| match recovery {
        Recovery::Restored(report) => report.has_failed(),
        Recovery::Unreadable(_) => true,
        Recovery::Alive { .. } | Recovery::OtherBoot => false,
    });
    if args.json {
        let entries: Vec<(String, Entry)> = recovered
            .into_iter()
            .map(|(path, recovery)| (path.to_string_lossy().into_owned(), entry(recovery)))
            .collect();
        let journals: Vec<serde_json::Value> = entries
            .into_iter()
            .map(|(journal, entry)| {
                let mut value = serde_json::to_value(entry)?;
                value["journal"] = journal.into();
                Ok(value)
            })
            .collect::<Result<_>>()?;
        super::print_json(&journals)?;
    } else if recovered.is_empty() {
        super::print("Nothing to restore: no perch has left anything behind.")?;
    } else {
        for (path, recovery) in recovered {
            super::print(&format!("{}: {}", path.display(), sentence(&recovery)))?;
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn entry(recovery: Recovery) -> Entry {
    match recovery {
        Recovery::Alive { pid } => Entry::Alive { pid },
        Recovery::OtherBoot => Entry::OtherBoot,
        Recovery::Restored(report) => Entry::Restored(report),
        Recovery::Unreadable(error) => Entry::Unreadable {
            why: error.to_string(),
        },
    }
}

fn sentence(recovery: &Recovery) -> String {
    match recovery {
        Recovery::Alive { pid } => {
            format!("perch {pid} is at work; it will restore its threads itself")
        }
        Recovery::OtherBoot => "from before the last boot: void, removed".to_owned(),
        Recovery::Unreadable(error) => format!("cannot be read: {error}"),
        Recovery::Restored(report) => {
            let mut parts = vec![format!("{} restored", count(report.restored, "thread"))];
            let others = [
                (report.already, "had their masks already"),
                (report.gone, "ended"),
                (
                    report.left_alone,
                    "left alone: somebody else has placed them since",
                ),
            ];
            parts.extend(
                others
                    .iter()
                    .filter(|(number, _)| *number > 0)
                    .map(|(number, what)| format!("{number} {what}")),
            );
            parts.extend(
                report
                    .failed
                    .iter()
                    .map(|(thread, why)| format!("{thread} failed: {why}")),
            );
            if !report.irqs.is_empty() {
                parts.push(crate::render::irq::restored(&report.irqs));
            }
            parts.join("; ")
        }
    }
}
