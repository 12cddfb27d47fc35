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
use perch_lab::statistics::{Comparison, Spread, Times};
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
        false => in_words(&comparison),
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
    option("timeline", place.timeline.clone().map(Into::into));
    for weight in &place.weight {
        option("weight", Some(weight.into()));
    }
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

/// A comparison in readable form.
fn in_words(comparison: &Comparison) -> String {
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
            row("without perch", &comparison.without),
            row("with perch", &comparison.with),
        ],
    );
    let percent = (1.0 - comparison.ratio) * 100.0;
    let word = if percent >= 0.0 { "faster" } else { "slower" };
    let pairs = comparison.with.times.len();
    text += &format!(
        "\n\nwith / without = {:.3} ({:.1} % {word}; pairs {:.3} to {:.3}); faster in {} of {pairs} pairs\n",
        comparison.ratio,
        percent.abs(),
        comparison.pair_ratios.0,
        comparison.pair_ratios.1,
        comparison.pairs_faster,
    );
    text += &if comparison.chance <= 0.05 {
        format!(
            "Chance alone does this with probability {:.3}: believe it.\n",
            comparison.chance
        )
    } else {
        format!(
            "Chance alone does this with probability {:.2}: no difference is shown.\n",
            comparison.chance
        )
    };
    if pairs < 6 {
        text += "With fewer than 6 pairs nothing can be shown: -N 10 says more.\n";
    }
    for remark in &comparison.remarks {
        text += &format!("note: {remark}\n");
    }
    text
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
    fn a_clear_gain_and_no_gain_read_differently() {
        let pairs = |ratio: f64| Times {
            without: (0..10).map(|run| 1.0 + f64::from(run) * 0.01).collect(),
            with: (0..10)
                .map(|run| (1.0 + f64::from(run) * 0.01) * ratio)
                .collect(),
        };
        let gain = in_words(&Comparison::new(&pairs(0.8), vec![]));
        insta::assert_snapshot!(gain);
        let mut even = pairs(1.0);
        for (run, time) in even.with.iter_mut().enumerate() {
            *time *= if run % 2 == 0 { 1.01 } else { 0.99 };
        }
        assert!(in_words(&Comparison::new(&even, vec![])).contains("no difference is shown"));
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
