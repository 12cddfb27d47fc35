//! `perch trace`: looks at a recording, and writes it in another format.

use crate::{
    args::{TraceArgs, files::same},
    render,
};
use anyhow::{Context, Result, bail};
use perch_lab::derived::Found;
use perch_trace::{Limits, Recording, Summary, champsim, file};
use serde::Serialize;
use std::{io::BufWriter, process::ExitCode, sync::Arc};

mod mixes;

/// What is printed as JSON.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixes: Option<&'a [Found]>,
}

/// Shows what is in a recording.
///
/// # Errors
/// A file that is no recording or is damaged; one that cannot be written.
pub fn trace(args: &TraceArgs) -> Result<ExitCode> {
    let recording = Arc::new(perch_trace::read(&args.file, &Limits::default())?);
    let mut files = Vec::new();
    if let Some(path) = &args.champsim {
        // Only the recording tells into how many files.
        let outputs = champsim::files(&recording, path);
        if let Some(file) = outputs.iter().find(|file| same(file, &args.file)) {
            bail!(
                "--champsim {}: it would be written to {}, which is read",
                path.display(),
                file.display()
            );
        }
        files.extend(champsim::write(&recording, path)?);
    }
    if let Some(path) = &args.perch {
        perch_files::output(path)
            .and_then(|out| file::write(&recording, BufWriter::new(out)))
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        files.push(path.clone());
    }
    let summary = Summary::of(&recording);
    let mixes = mixes_of(args, &recording)?;
    files.extend(mixes.is_some().then(|| args.mix.clone()).flatten());
    if args.json {
        super::print_json(&Told {
            summary: &summary,
            mixes: mixes.as_deref(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = render::trace::summary(&summary);
    let memory = render::bytes(recording.memory() as u64);
    text += &format!("\n{memory} in memory\n");
    if let Some(mixes) = &mixes {
        text += &render::mixes::found(mixes);
    }
    for file in files {
        text += &format!("written: {}\n", file.display());
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes mixes, and compares them with the recording, if that is wanted.
fn mixes_of(args: &TraceArgs, recording: &Arc<Recording>) -> Result<Option<Vec<Found>>> {
    let Some(path) = &args.mix else {
        return Ok(None);
    };
    mixes::write(recording, &args.file, path, &args.check).map(Some)
}
