//! What one record of event-based sampling costs (`perch stat -e EVENT:every=N`): perch, and the thread whose events it
//! counts. Two numbers of records for the same events tell it apart from what counting them costs.

use crate::{
    spread::Spread,
    tool::{Tool, cpu_time},
    victim::Victim,
};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::{fmt, path::Path, thread::sleep, time::Duration};

/// Context switches to a record: many records, and hardly any.
const EVERY: [u64; 2] = [20, 20_000];

/// Until the tool counts.
const SETTLING: Duration = Duration::from_secs(1);

/// How long it is watched then.
const WINDOW: Duration = Duration::from_secs(3);

/// The cost of a record.
#[derive(Debug, Serialize)]
pub struct Records {
    /// Records a second while it was measured.
    pub per_second: f64,
    /// Seconds of CPU time that perch takes for a record, its row included.
    pub perch: Spread,
    /// Seconds of CPU time that the program loses by a record.
    pub program: Spread,
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {:.0} records a second, each: perch {} µs, the program {} µs",
            self.per_second,
            self.perch.scaled(1e6),
            self.program.scaled(1e6),
        )
    }
}

/// Measures in alternating pairs of many and few records.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn measure(perch: &Path, pairs: u32) -> Result<Records> {
    let mut victim = Victim::start(&["--mode", "switch"], false)?;
    let (mut of_perch, mut of_program, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut order = EVERY;
        if pair % 2 == 1 {
            order.reverse();
        }
        let mut seen = order
            .iter()
            .map(|every| watched(perch, &mut victim, *every))
            .collect::<Result<Vec<_>>>()?;
        seen.sort_by(|a, b| b.records.total_cmp(&a.records));
        let (many, few) = (&seen[0], &seen[1]);
        // Both for as much work of the program.
        let scale = many.work / few.work;
        let records = many.records - few.records * scale;
        ensure!(records > 0.0, "the program does not switch");
        of_perch.push((many.perch - few.perch * scale) / records);
        of_program.push((many.program - few.program * scale) / records);
        rates.push(many.records / WINDOW.as_secs_f64());
    }
    Ok(Records {
        per_second: Spread::of(&rates).median,
        perch: Spread::of(&of_perch),
        program: Spread::of(&of_program),
    })
}

/// What happened in a window.
struct Seen {
    records: f64,
    /// Passes of the program.
    work: f64,
    /// CPU time of perch, in seconds.
    perch: f64,
    /// CPU time of the program, in seconds.
    program: f64,
}

fn watched(perch: &Path, victim: &mut Victim, every: u64) -> Result<Seen> {
    let tool = Tool::perch_records(perch, victim.pid(), every)?;
    sleep(SETTLING);
    let mut read = || -> Result<[f64; 4]> {
        Ok([
            switches(victim.pid())? as f64,
            victim.work()? as f64,
            tool.cpu_time()?.as_secs_f64(),
            cpu_time(victim.pid())?.as_secs_f64(),
        ])
    };
    let before = read()?;
    sleep(WINDOW);
    let after = read()?;
    let [switches, work, perch, program] = std::array::from_fn(|i| after[i] - before[i]);
    Ok(Seen {
        records: switches / every as f64,
        work,
        perch,
        program,
    })
}

/// Context switches of all threads of a process so far.
fn switches(pid: u32) -> Result<u64> {
    let tasks = procfs::process::Process::new(pid as i32)
        .and_then(|process| process.tasks())
        .context("the victim has ended")?;
    let of_task = |task: procfs::process::Task| task.status().ok();
    let statuses = tasks.flatten().filter_map(of_task);
    let counts = statuses.flat_map(|status| {
        [
            status.voluntary_ctxt_switches,
            status.nonvoluntary_ctxt_switches,
        ]
    });
    Ok(counts.flatten().sum())
}
