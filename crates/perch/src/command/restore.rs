//! `perch restore`: undo what a killed perch has left.

use crate::{
    args::RestoreArgs,
    render::{count, restored::restored},
};
use anyhow::Result;
use perch_core::text::printable;
use perch_engine::{
    Recovery, RestoreReport, StateDir, journal::state_dir::VARIABLE, recover_all, recover_one,
};
use perch_linux::{
    affinity::LinuxAffinity,
    noise::tracer,
    proc::check_numbers,
    resctrl::{self, Leftovers},
};
use serde::Serialize;
use std::process::ExitCode;

/// One journal as `--json` tells it.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum Entry {
    Alive {
        pid: i32,
    },
    Elsewhere,
    OtherBoot,
    Restored(RestoreReport),
    Damaged {
        #[serde(flatten)]
        report: RestoreReport,
        /// Names need not be text.
        kept: String,
    },
    Unreadable {
        why: String,
    },
}

/// Restores and tells. The exit code is 1 if something is left that could not be restored.
///
/// # Errors
/// A journal folder that cannot be read.
pub fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    check_numbers().map_err(anyhow::Error::msg)?;
    let mut affinity = LinuxAffinity::new();
    let mut recovered = Vec::new();
    for path in &args.journals {
        if let Some(recovery) = recover_one(path, &mut affinity)? {
            recovered.push((path.clone(), recovery));
        } else {
            anyhow::bail!("{}: no such journal", path.display());
        }
    }
    if args.journals.is_empty() {
        recovered = recover_all(&StateDir::standard()?, &mut affinity)?;
        for dir in StateDir::others_of_caller() {
            recovered.extend(recover_all(&dir, &mut affinity)?);
        }
        // Root may undo what any user's perch has left, and is the only one who can after a setuid program.
        let chosen = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
        if rustix::process::geteuid().is_root() && !chosen {
            for dir in StateDir::of_other_users() {
                match recover_all(&dir, &mut affinity) {
                    Ok(more) => recovered.extend(more),
                    Err(error) => recovered.push((
                        dir.path().to_owned(),
                        Recovery::Unreadable {
                            why: error.to_string(),
                        },
                    )),
                }
            }
        }
    }
    let groups = match args.journals.is_empty() {
        true => resctrl::remove_leftovers(),
        false => Leftovers::default(),
    };
    let instances = match args.journals.is_empty() {
        true => tracer::remove_leftovers(),
        false => 0,
    };
    let failed = recovered.iter().any(|(_, recovery)| recovery.has_failed());
    let failed = failed || !groups.failed.is_empty();
    let no_groups = groups == Leftovers::default();
    if args.json {
        let mut journals: Vec<serde_json::Value> = recovered
            .into_iter()
            .map(|(journal, recovery)| {
                let mut value = serde_json::to_value(entry(recovery))?;
                value["journal"] = journal.to_string_lossy().into();
                Ok(value)
            })
            .collect::<Result<_>>()?;
        if !no_groups {
            journals.push(serde_json::json!({
                "state": "monitoring-groups",
                "removed": groups.removed,
                "failed": groups.failed,
            }));
        }
        if instances > 0 {
            journals.push(serde_json::json!({
                "state": "tracing-instances",
                "removed": instances,
            }));
        }
        super::print_json(&journals)?;
    } else if recovered.is_empty() && no_groups && instances == 0 {
        super::print("Nothing to restore: no perch has left anything behind.")?;
    } else {
        for (path, recovery) in recovered {
            let path = printable(&path.to_string_lossy()).into_owned();
            super::print(&format!("{path}: {}", sentence(&recovery)))?;
        }
        if instances > 0 {
            super::print(&format!(
                "tracefs: {} removed",
                count(instances, "instance") + " of perch noise"
            ))?;
        }
        if groups.removed > 0 {
            super::print(&format!(
                "resctrl: {} removed",
                self::groups(groups.removed)
            ))?;
        }
        for why in groups.failed {
            super::print(&format!("resctrl: {why}"))?;
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn entry(recovery: Recovery) -> Entry {
    match recovery {
        Recovery::Alive { pid } => Entry::Alive { pid },
        Recovery::Elsewhere => Entry::Elsewhere,
        Recovery::OtherBoot => Entry::OtherBoot,
        Recovery::Restored(report) => Entry::Restored(report),
        Recovery::Damaged { report, kept } => Entry::Damaged {
            report,
            kept: kept.to_string_lossy().into_owned(),
        },
        Recovery::Unreadable { why } => Entry::Unreadable { why },
    }
}

/// Monitoring groups, in words.
pub fn groups(number: usize) -> String {
    match number {
        1 => "1 monitoring group was".to_owned(),
        number => format!("{number} monitoring groups were"),
    }
}

/// The outcome of a journal, in words.
pub fn sentence(recovery: &Recovery) -> String {
    match recovery {
        Recovery::Alive { pid } => {
            format!("in use by perch {pid}, or by another `perch restore`; nothing to do")
        }
        Recovery::Elsewhere => {
            "its threads live on another machine, or in another PID or time namespace; run `perch restore` on the machine \
             and in the container where perch ran"
                .to_owned()
        }
        Recovery::OtherBoot => "from before the last boot: void, removed".to_owned(),
        Recovery::Unreadable { why } => format!("cannot be restored: {why}"),
        Recovery::Damaged { report, kept } => format!(
            "{} damaged or missing, so some threads may keep a mask that perch set (see `taskset -p`); from the rest: \
             {}; the file is kept as {}",
            count(report.damaged, "record"),
            restored(report),
            kept.display()
        ),
        Recovery::Restored(report) => restored(report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

    /// Any user can give a journal such a name, and root restores them all.
    #[test]
    fn a_name_that_is_no_text_is_told_in_json_too() {
        let damaged = Recovery::Damaged {
            report: RestoreReport::default(),
            kept: PathBuf::from(OsStr::from_bytes(b"/tmp/\xff.damaged")),
        };
        let told = serde_json::to_value(entry(damaged)).expect("text");
        assert_eq!(told["kept"], "/tmp/\u{fffd}.damaged");
    }
}
