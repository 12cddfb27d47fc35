//! `perch calibrate`: what sharing costs on a machine, measured and written to a file.

mod alone;
mod conditions;
mod handed;
mod live;
mod siblings;

pub use alone::kernel;

use crate::{
    args::CalibrateArgs,
    command::place::Output,
    render::{
        calibration::{Written, in_words, levels, render},
        progress::Bar,
        svg::{Canvas, heat::heat},
    },
};
use anyhow::{Context, Result, bail};
use perch_lab::calibrate::{How, simulated};
use perch_policy::Calibration;
use perch_sim::config;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::SystemTime,
};

/// Calibrates, writes the file and prints what contends.
///
/// # Errors
/// A machine that is not there, a kernel that cannot run, a file that cannot be written.
pub fn calibrate(args: &CalibrateArgs) -> Result<ExitCode> {
    if let Some(file) = &args.svg {
        check(file).context("--svg")?;
    }
    if let Some(file) = &args.show {
        let calibration = Calibration::read(file)?;
        draw(&calibration, args)?;
        tell(&calibration, None, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (calibration, file) = match &args.machine {
        Some(name) => {
            if let Some(file) = &args.output {
                check(file)?;
            }
            (on_simulated(name, args)?, args.output.clone())
        }
        None => {
            let file = args.output.clone().or_else(where_to_write);
            let Some(file) = file else {
                bail!(
                    "neither XDG_CONFIG_HOME nor HOME says where the file belongs: give --output FILE"
                );
            };
            // Before minutes are spent.
            check(&file)?;
            let folder = folder(&file)?;
            (
                live::live(args)?,
                Some(folder.join(file.file_name().unwrap_or_default())),
            )
        }
    };
    if calibration.metrics.is_empty() {
        tell(&calibration, None, args.json)?;
        bail!(
            "no load metric could be measured, and without one a calibration is of no use to a policy: perch needs hardware \
             counters or sampling (see kernel.perf_event_paranoid)"
        );
    }
    if let Some(file) = &file {
        write(&calibration, file)?;
    }
    draw(&calibration, args)?;
    tell(&calibration, file.as_deref(), args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn on_simulated(name: &str, args: &CalibrateArgs) -> Result<Calibration> {
    let machine = Arc::new(config::find_machine(name)?);
    let how = How {
        quick: args.quick,
        ..How::new(today())
    };
    let mut bar = None;
    let calibration = simulated(&machine, &how, |done, all| {
        let bar = bar.get_or_insert_with(|| {
            let bar = Bar::new(true, all as u64);
            bar.says(&crate::render::fit(&machine.name, 28));
            bar
        });
        bar.is_at(done as u64);
    });
    drop(bar);
    calibration.map_err(|why| anyhow::anyhow!("{}: {why}", machine.name))
}

/// Draws the heat maps, if they are wanted.
fn draw(calibration: &Calibration, args: &CalibrateArgs) -> Result<()> {
    let Some(file) = &args.svg else {
        return Ok(());
    };
    let mut canvas = Canvas::default();
    let levels = levels(calibration).into_iter();
    let levels: Vec<_> = levels.map(|level| (level, in_words(level))).collect();
    heat(&mut canvas, calibration, &levels);
    Output::open(file)?.write(&canvas.svg()).context("--svg")
}

fn tell(calibration: &Calibration, file: Option<&Path>, json: bool) -> Result<()> {
    match json {
        true => super::print_json(calibration),
        false => {
            let written = file.map(|file| Written {
                file,
                is_used: calibration.tells_of_kernels() && where_to_read().as_deref() == Some(file),
            });
            super::print(&render(calibration, written))
        }
    }
}

/// Where the calibration of this machine is written: `/etc/perch` as root, else where the user's settings are.
pub fn where_to_write() -> Option<PathBuf> {
    match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from(SYSTEM)),
        false => of_user(),
    }
}

/// The calibration of this machine that policies use unless another is configured: the user's, else the machine's;
/// `None` if there is none.
pub fn where_to_read() -> Option<PathBuf> {
    let places = of_user().into_iter().chain([PathBuf::from(SYSTEM)]);
    places.into_iter().find(|path| path.is_file())
}

const SYSTEM: &str = "/etc/perch/calibration.toml";

fn of_user() -> Option<PathBuf> {
    Some(crate::config::user_folder()?.join("calibration.toml"))
}

/// Whether the file could be written now. It is replaced in the end, which a device would not survive.
fn check(file: &Path) -> Result<()> {
    let cannot = || format!("{}: cannot be written", file.display());
    if std::fs::metadata(file).is_ok_and(|meta| !meta.is_file()) {
        bail!("{}: it is not a regular file", cannot());
    }
    let folder = folder(file)?;
    tempfile::tempfile_in(folder).with_context(cannot)?;
    Ok(())
}

/// The file's folder, which is made if need be.
fn folder(file: &Path) -> Result<PathBuf> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot be made", folder.display()))?;
    Ok(folder.to_owned())
}

/// Writes the file atomically: a reader sees the old or the new one.
fn write(calibration: &Calibration, file: &Path) -> Result<()> {
    let cannot = || format!("{}: cannot be written", file.display());
    folder(file)?;
    let head = "# Written by `perch calibrate`; docs/calibration.md explains it.\n\n";
    let text = head.to_owned() + &calibration.to_toml().with_context(cannot)?;
    perch_files::replace(file, text.as_bytes()).with_context(cannot)
}

/// The day, such as `2026-11-22`, in UTC.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}
