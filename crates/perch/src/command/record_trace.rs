//! `perch record-trace`: what a program executes, as a file for the simulated machine.

use crate::{
    args::{RecordTraceArgs, TraceFormat},
    exit, render,
};
use anyhow::{Context, Result, bail};
use perch_trace::record::{self, Format, Options, Progress, Tools};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    io::{IsTerminal, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicUsize},
};

/// The summary as JSON.
#[derive(Serialize)]
struct Told<'a> {
    /// Files that were written.
    files: &'a [PathBuf],
    /// Seconds for which was recorded.
    seconds: f64,
    /// Recorded instructions a second.
    instructions_per_second: f64,
    /// Whether perch ended the program.
    stopped: bool,
    #[serde(flatten)]
    summary: &'a perch_trace::Summary,
}

/// Runs the program under qemu and records it.
///
/// # Errors
/// A program that cannot be recorded, qemu or the plugin missing, a file that cannot be written.
pub fn record_trace(args: &RecordTraceArgs) -> Result<ExitCode> {
    if args.instructions == 0 {
        bail!("--instructions 0 would record nothing");
    }
    let path = std::env::var_os("PATH");
    let name = args.program.first().cloned().unwrap_or_default();
    let program = perch_linux::launch::find(&name, path.as_deref())?;
    record::check_program(&program)?;
    let tools = Tools::find(args.plugin.as_deref())?;
    let format = match args.format {
        TraceFormat::Perch => Format::Perch,
        TraceFormat::Champsim => Format::ChampSim,
    };
    let options = Options {
        command: args.program.clone(),
        output: args
            .output
            .clone()
            .unwrap_or_else(|| output(&program, format)),
        program,
        format,
        instructions: args.instructions,
        skip: args.skip,
        stop: args.stop,
    };
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)
            .context("signals cannot be received")?;
    }
    let terminal = std::io::stderr().is_terminal() && !args.quiet && !args.json;
    let mut shown = false;
    let outcome = record::record(&options, &tools, &signal, &mut |progress| {
        if terminal {
            shown = true;
            show(&progress);
        }
    })?;
    if shown {
        eprint!("\r\x1b[K");
    }
    let code = match outcome.stopped {
        true => 0,
        false => exit::from_wait_status(outcome.status.into_raw()),
    };
    if outcome.summary.instructions() == 0 && code == 0 {
        bail!(
            "nothing was recorded: no thread executed more than --skip {} instructions",
            args.skip
        );
    }
    let seconds = outcome.recording.as_secs_f64();
    let speed = outcome.summary.instructions() as f64 / seconds.max(1e-9);
    if args.json {
        super::print_json(&Told {
            files: &outcome.files,
            seconds,
            instructions_per_second: speed,
            stopped: outcome.stopped,
            summary: &outcome.summary,
        })?;
    } else if !args.quiet {
        let mut text = render::trace::summary(&outcome.summary);
        let files: Vec<_> = outcome
            .files
            .iter()
            .map(|f| f.display().to_string())
            .collect();
        text += &format!(
            "\nrecorded in {seconds:.1} s, {:.1} million instructions a second, as\n  {}\n",
            speed / 1e6,
            files.join("\n  ")
        );
        if outcome.stopped {
            text += "the program was ended then (--stop)\n";
        }
        // Standard output is the program's.
        anstream::eprint!("{}", render::shown(&text));
    }
    Ok(ExitCode::from(code))
}

/// The program's name in the current folder.
fn output(program: &Path, format: Format) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(match format {
        Format::Perch => ".trace",
        Format::ChampSim => ".champsimtrace.gz",
    });
    PathBuf::from(name)
}

fn show(progress: &Progress) {
    let seconds = progress.elapsed.as_secs_f64();
    let millions = progress.instructions as f64 / 1e6;
    eprint!(
        "\r\x1b[K{seconds:.1} s  {}, {} complete  {millions:.1} million instructions",
        render::count(progress.threads, "thread"),
        progress.full,
    );
    let _ = std::io::stderr().flush();
}
