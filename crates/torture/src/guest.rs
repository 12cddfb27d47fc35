//! The attacks that need cgroup v2 or more PUs than a small host has, in a virtual machine.

use anyhow::Result;
use perch_testbed::{Guest, Topology};
use std::{path::Path, process::ExitCode, time::Duration};

/// Those that are made there.
const ATTACKS: [&str; 4] = ["same-value", "cpusets", "widened", "two"];

/// An emulated machine is slow.
const LIMIT: Duration = Duration::from_secs(1800);
/// And makes this percentage of the usual tries.
const PERCENT: u32 = 5;

/// Makes them.
///
/// # Errors
/// A guest that does not boot, or does not end.
pub fn run(perch: &Path, seed: u64, quick: bool) -> Result<ExitCode> {
    let own = std::env::current_exe()?;
    let only = ATTACKS.map(|name| format!("--only {name}")).join(" ");
    let form = if quick {
        "--quick".to_owned()
    } else {
        format!("--percent {PERCENT}")
    };
    let perch = perch.canonicalize()?;
    let program = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("/bin/{name}")
    };
    let (perch_there, own_there) = (program(&perch), program(&own));
    let script = format!(
        "mkdir -p /sys/fs/cgroup /run /tmp\n\
         [ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup\n\
         exec {own_there} --perch {perch_there} --seed {seed} {form} {only}\n"
    );
    let output = Guest::new(Topology::Smt2)
        .program(perch)
        .program(own)
        .limit(LIMIT)
        .run(&script)?;
    print!("{}", output.stdout);
    eprint!("{}", output.stderr);
    Ok(ExitCode::from(u8::try_from(output.status).unwrap_or(1)))
}
