//! `perch compare`: a program with and without perch, alternately, and what the difference is worth.

use crate::{
    args::CompareArgs,
    command::place::Output,
    config::Settings,
    exit,
    render::{
        self,
        table::{Align, table},
    },
};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use statrs::{
    distribution::{Binomial, DiscreteCDF},
    statistics::{Data, Median, OrderStatistics},
};
use std::{
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

/// Runs both ways and prints the comparison.
///
/// # Errors
/// A program that fails, or fails to start; settings that are wrong.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    Settings::new(&args.place)?;
    let output = args.place.output.as_deref().map(Output::open).transpose()?;
    if let Some(log) = &args.place.log {
        perch_files::output(log)
            .with_context(|| format!("--log {}: cannot be written", log.display()))?;
    }
    let with = with_perch(args)?;
    let without = &args.program;
    for run in 0..args.warm_up {
        progress(&format!("warm-up {} of {}", run + 1, args.warm_up));
        time(without, args.show_output)?;
    }
    let mut times = Times::default();
    for pair in 0..args.runs {
        progress(&format!("pair {} of {}", pair + 1, args.runs));
        // ABBA order: a machine that slowly drifts treats both alike.
        let (a, b) = if pair % 2 == 0 {
            (without, &with)
        } else {
            (&with, without)
        };
        let (first, second) = (time(a, args.show_output)?, time(b, args.show_output)?);
        let (without, with) = if pair % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        times.without.push(without);
        times.with.push(with);
    }
    progress("");
    let comparison = Comparison::new(
        &times,
        frequency_remarks(Path::new("/sys/devices/system/cpu")),
    );
    let text = match args.place.json {
        true => render::json(&serde_json::to_string_pretty(&comparison)?),
        false => comparison.render(),
    };
    match output {
        None => super::print(&text)?,
        Some(output) => output.write(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The same program under `perch run --quiet` with the same settings.
fn with_perch(args: &CompareArgs) -> Result<Vec<OsString>> {
    let own = std::env::current_exe()
        .context("perch cannot find its own executable in /proc/self/exe")?;
    let mut command: Vec<OsString> = vec![own.into(), "run".into(), "--quiet".into()];
    let place = &args.place;
    let mut option = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(value);
            command.push(flag);
        }
    };
    option("policy", place.policy.clone().map(Into::into));
    option(
        "period",
        place
            .period
            .map(|period| format!("{}s", period.as_secs_f64()).into()),
    );
    option("profile", place.profile.clone().map(Into::into));
    option(
        "counters",
        place.counters.map(|how| {
            clap::ValueEnum::to_possible_value(&how)
                .map(|value| value.get_name().into())
                .unwrap_or_default()
        }),
    );
    option(
        "sampling-rate",
        place.sampling_rate.map(|rate| rate.to_string().into()),
    );
    option("config", place.config.clone().map(Into::into));
    option("pin-file", place.pin_file.clone().map(Into::into));
    option("pus", place.pus.as_ref().map(|pus| pus.to_string().into()));
    option("log", place.log.clone().map(Into::into));
    for pin in &place.pin {
        option("pin", Some(pin.into()));
    }
    if place.dry_run {
        command.push("--dry-run".into());
    }
    if place.take_over {
        command.push("--take-over".into());
    }
    command.push("--".into());
    command.extend(args.program.iter().cloned());
    Ok(command)
}

/// One run's wall time in seconds.
fn time(command: &[OsString], show_output: bool) -> Result<f64> {
    let name = command[0].to_string_lossy().into_owned();
    let output = || {
        if show_output {
            Stdio::inherit()
        } else {
            Stdio::null()
        }
    };
    let start = Instant::now();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .status()
        .map_err(|error| perch_linux::launch::spawn_error(&name, &error))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        let code = exit::from_wait_status(std::os::unix::process::ExitStatusExt::into_raw(status));
        bail!(
            "{name} ended with status {code}: a program that fails cannot be compared (see it with --show-output)"
        );
    }
    Ok(seconds)
}

/// One line on a terminal, overwritten by the next.
fn progress(text: &str) {
    use std::io::{IsTerminal, Write};
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}

/// Wall times in seconds, pair by pair.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Times {
    without: Vec<f64>,
    with: Vec<f64>,
}

/// One way's times, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower_quartile: f64,
    /// The upper quartile.
    pub upper_quartile: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// All, in the order of the runs.
    pub times: Vec<f64>,
}

impl Spread {
    fn new(times: &[f64]) -> Self {
        let mut data = Data::new(times.to_vec());
        Self {
            median: data.median(),
            lower_quartile: data.lower_quartile(),
            upper_quartile: data.upper_quartile(),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            max: times.iter().copied().fold(0.0, f64::max),
            times: times.to_vec(),
        }
    }
}

/// What `perch compare --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Without perch.
    pub without: Spread,
    /// With perch.
    pub with: Spread,
    /// Median with / median without: below 1, perch made it faster.
    pub ratio: f64,
    /// The smallest and largest ratio of a pair.
    pub pair_ratios: (f64, f64),
    /// Pairs in which the run with perch was the faster one.
    pub pairs_faster: usize,
    /// How probable at least so lopsided a result is if perch changes nothing (two-sided sign test).
    pub chance: f64,
    /// What may have spoiled the comparison.
    pub remarks: Vec<String>,
}

impl Comparison {
    fn new(times: &Times, remarks: Vec<String>) -> Self {
        let (without, with) = (Spread::new(&times.without), Spread::new(&times.with));
        let ratios: Vec<f64> = times
            .with
            .iter()
            .zip(&times.without)
            .map(|(with, without)| with / without)
            .collect();
        let faster = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        Self {
            ratio: with.median / without.median,
            pair_ratios: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            ),
            pairs_faster: faster,
            chance: sign_test(faster as u64, ratios.len() as u64),
            remarks,
            without,
            with,
        }
    }

    fn render(&self) -> String {
        let row = |name: &str, spread: &Spread| {
            vec![
                name.to_owned(),
                format!("{:.3} s", spread.median),
                format!(
                    "{:.3} – {:.3}",
                    spread.lower_quartile, spread.upper_quartile
                ),
                format!("{:.3} – {:.3}", spread.min, spread.max),
            ]
        };
        let columns = [
            ("", Align::Left),
            ("median", Align::Right),
            ("quartiles", Align::Right),
            ("range", Align::Right),
        ];
        let mut text = table(
            &columns,
            [
                row("without perch", &self.without),
                row("with perch", &self.with),
            ],
        );
        let percent = (1.0 - self.ratio) * 100.0;
        let word = if percent >= 0.0 { "faster" } else { "slower" };
        let pairs = self.with.times.len();
        text += &format!(
            "\n\nwith / without = {:.3} ({:.1} % {word}; pairs {:.3} to {:.3}); faster in {} of {pairs} pairs\n",
            self.ratio,
            percent.abs(),
            self.pair_ratios.0,
            self.pair_ratios.1,
            self.pairs_faster,
        );
        text += &if self.chance <= 0.05 {
            format!(
                "Chance alone does this with probability {:.3}: believe it.\n",
                self.chance
            )
        } else {
            format!(
                "Chance alone does this with probability {:.2}: no difference is shown.\n",
                self.chance
            )
        };
        if pairs < 6 {
            text += "With fewer than 6 pairs nothing can be shown: -N 10 says more.\n";
        }
        for remark in &self.remarks {
            text += &format!("note: {remark}\n");
        }
        text
    }
}

/// Two-sided sign test: how probable a split at least as uneven is among `pairs` fair coins.
fn sign_test(faster: u64, pairs: u64) -> f64 {
    let fewer = faster.min(pairs - faster);
    Binomial::new(0.5, pairs).map_or(1.0, |coins| (2.0 * coins.cdf(fewer)).min(1.0))
}

/// Turbo and frequency scaling, where the kernel tells.
pub fn frequency_remarks(cpu: &Path) -> Vec<String> {
    let read = |name: &str| {
        std::fs::read_to_string(cpu.join(name))
            .map(|text| text.trim().to_owned())
            .ok()
    };
    let mut remarks = Vec::new();
    let turbo = read("cpufreq/boost").as_deref() == Some("1")
        || read("intel_pstate/no_turbo").as_deref() == Some("0");
    if turbo {
        remarks.push(
            "turbo is on: clocks depend on how many cores are busy, which blurs comparisons"
                .to_owned(),
        );
    }
    if let Some(governor) =
        read("cpu0/cpufreq/scaling_governor").filter(|governor| governor != "performance")
    {
        remarks.push(format!(
            "the frequency governor is {governor}: set it to performance for steadier times"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_test_is_the_binomial_one() {
        assert!((sign_test(5, 5) - 0.0625).abs() < 1e-12);
        assert!((sign_test(0, 10) - 2.0 / 1024.0).abs() < 1e-12);
        assert_eq!(sign_test(2, 4), 1.0);
    }

    #[test]
    fn a_clear_gain_and_no_gain_read_differently() {
        let pairs = |ratio: f64| Times {
            without: (0..10).map(|run| 1.0 + f64::from(run) * 0.01).collect(),
            with: (0..10)
                .map(|run| (1.0 + f64::from(run) * 0.01) * ratio)
                .collect(),
        };
        let gain = Comparison::new(&pairs(0.8), vec![]).render();
        insta::assert_snapshot!(gain);
        let mut even = pairs(1.0);
        for (run, time) in even.with.iter_mut().enumerate() {
            *time *= if run % 2 == 0 { 1.01 } else { 0.99 };
        }
        assert!(
            Comparison::new(&even, vec![])
                .render()
                .contains("no difference is shown")
        );
    }

    #[test]
    fn turbo_and_governor_are_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("cpufreq")).unwrap();
        std::fs::create_dir_all(folder.path().join("cpu0/cpufreq")).unwrap();
        std::fs::write(folder.path().join("cpufreq/boost"), "1\n").unwrap();
        std::fs::write(
            folder.path().join("cpu0/cpufreq/scaling_governor"),
            "powersave\n",
        )
        .unwrap();
        assert_eq!(frequency_remarks(folder.path()).len(), 2);
        assert!(frequency_remarks(Path::new("/nonexistent")).is_empty());
    }
}
