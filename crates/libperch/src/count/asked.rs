//! What the program and the environment ask for.

use crate::{Error, Options};
use perch_core::text::printable;
use perch_regions::folder;
use perch_stat::Space;
use std::{path::PathBuf, time::Duration};

/// Event sets, separated by semicolons.
const EVENTS: &str = "PERCH_REGION_EVENTS";
/// Metrics, separated by semicolons.
const METRICS: &str = "PERCH_REGION_METRICS";
/// Virtual counters, separated by commas.
const VIRTUALS: &str = "PERCH_REGION_VIRTUALS";
/// `user` or `kernel`.
const SPACE: &str = "PERCH_REGION_SPACE";
/// Where the report goes.
const REPORT: &str = "PERCH_REGION_REPORT";
/// The sampling interval.
const INTERVAL: &str = "PERCH_REGION_INTERVAL";
/// Anything but nothing and `0` switches all off.
const OFF: &str = "PERCH_REGION_OFF";

/// Shortest sampling interval: a sample of a running thread costs an interrupt.
const SHORTEST: Duration = Duration::from_millis(1);

/// What was asked for, the environment before the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub options: Options,
    /// The folder of perch stat.
    pub folder: Option<PathBuf>,
    /// The environment asks for regions.
    pub by_environment: bool,
    /// Names of events come from the environment: somebody has just written them.
    pub names_by_environment: bool,
    /// The environment forbids them.
    pub off: bool,
}

impl Asked {
    /// Of this process.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        Self::with(options, &variable)
    }

    /// The variables that say what is counted, with their values; `None` if there are none.
    pub(crate) fn variables() -> Option<String> {
        let all = [EVENTS, METRICS, VIRTUALS, SPACE, INTERVAL];
        let set = all
            .iter()
            .filter_map(|name| Some(format!("{name}={}", printable(&variable(name)?))));
        let set: Vec<String> = set.collect();
        (!set.is_empty()).then(|| set.join(", "))
    }

    fn with(options: &Options, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut options = options.clone();
        let list = |text: String, separator: char| -> Vec<String> {
            let parts = text.split(separator).map(str::trim);
            parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let events = variable(EVENTS);
        let report = variable(REPORT);
        let folder = variable(folder::VARIABLE).map(PathBuf::from);
        let names_by_environment = events.is_some() || variable(METRICS).is_some();
        let by_environment = events.is_some() || report.is_some() || folder.is_some();
        if let Some(text) = events {
            options.events = list(text, ';');
        }
        if let Some(text) = variable(METRICS) {
            options.metrics = list(text, ';');
        }
        if let Some(text) = variable(VIRTUALS) {
            options.virtuals = list(text, ',');
        }
        if let Some(text) = variable(SPACE) {
            options.space = match text.as_str() {
                "user" => Space::User,
                "kernel" => Space::Kernel,
                "all" => Space::All,
                other => {
                    return Err(Error::Setting(format!(
                        "{SPACE}={other}: write user, kernel or all"
                    )));
                }
            };
        }
        if report.is_some() {
            options.report = report;
        }
        if let Some(text) = variable(INTERVAL) {
            let interval = humantime::parse_duration(&text).map_err(|_| {
                Error::Setting(format!(
                    "{INTERVAL}={text}: not a time; write for instance 100ms"
                ))
            })?;
            options.interval = Some(interval);
        }
        if options.interval.is_some_and(|interval| interval < SHORTEST) {
            return Err(Error::Setting(
                "regions are sampled at intervals of at least 1 ms".to_owned(),
            ));
        }
        Ok(Self {
            options,
            folder,
            by_environment,
            names_by_environment,
            off: variable(OFF).is_some_and(|value| value != "0"),
        })
    }
}

/// An environment variable that is not empty. A program with more rights than its user does not listen to them.
fn variable(name: &str) -> Option<String> {
    // SAFETY: reads a word of the auxiliary vector.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let value = std::env::var_os(name).filter(|value| !secure && !value.is_empty());
    value.map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &Options, variables: &[(&str, &str)]) -> Result<Asked, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Asked::with(options, &variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_goes_before_the_program() {
        let options = Options {
            events: vec!["cycles".to_owned()],
            report: Some("stderr".to_owned()),
            ..Options::default()
        };
        let by_program = asked(&options, &[]).unwrap();
        assert_eq!(by_program.options.events, ["cycles"]);
        assert!(!by_program.by_environment && !by_program.off);
        let variables = [
            (
                "PERCH_REGION_EVENTS",
                "page-faults,task-clock; cpu/event=1,umask=2/ ;",
            ),
            ("PERCH_REGION_METRICS", "a=b/c;d=e"),
            ("PERCH_REGION_VIRTUALS", "run_delay, context_switches"),
            ("PERCH_REGION_SPACE", "user"),
            ("PERCH_REGION_INTERVAL", "100ms"),
            ("PERCH_REGIONS", "/tmp/x"),
            ("PERCH_REGION_OFF", "1"),
        ];
        let asked = asked(&options, &variables).unwrap();
        assert_eq!(
            asked.options.events,
            ["page-faults,task-clock", "cpu/event=1,umask=2/"]
        );
        assert_eq!(asked.options.metrics, ["a=b/c", "d=e"]);
        assert_eq!(asked.options.virtuals, ["run_delay", "context_switches"]);
        assert_eq!(asked.options.space, Space::User);
        assert_eq!(asked.options.interval, Some(Duration::from_millis(100)));
        assert_eq!(asked.options.report.as_deref(), Some("stderr"));
        assert!(asked.by_environment && asked.off);
    }

    #[test]
    fn settings_that_mean_nothing_are_named() {
        let why = |name, value| asked(&Options::default(), &[(name, value)]).unwrap_err();
        assert!(why("PERCH_REGION_SPACE", "moon").contains("PERCH_REGION_SPACE=moon"));
        assert!(why("PERCH_REGION_INTERVAL", "soon").contains("100ms"));
        assert!(why("PERCH_REGION_INTERVAL", "1us").contains("at least 1 ms"));
    }
}
