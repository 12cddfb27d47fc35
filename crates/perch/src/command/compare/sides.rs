//! What is compared: a program alone, and under `perch run` with a policy.

use crate::{
    args::{CompareArgs, PlaceArgs, TuningArgs},
    command::place,
};
use anyhow::{Context, Result, bail};
use std::{ffi::OsString, path::Path};

/// What runs without perch are called.
pub const PLAIN: &str = "without perch";

/// One way of running the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The policy's name, or [`PLAIN`].
    pub name: String,
    /// What stands before the program: nothing, or `perch run` with its options.
    pub prefix: Vec<OsString>,
}

impl Side {
    /// The program alone.
    pub fn plain() -> Self {
        Self {
            name: PLAIN.to_owned(),
            prefix: Vec::new(),
        }
    }

    /// Whether perch runs the program.
    pub fn has_perch(&self) -> bool {
        !self.prefix.is_empty()
    }
}

/// The baseline and the policies to compare with it. `account` is the file to which `perch run` writes its account.
///
/// # Errors
/// Settings that are wrong, a policy that is named twice, another perch that is placing threads.
pub fn sides(args: &CompareArgs, account: &Path) -> Result<Vec<Side>> {
    let wanted: Vec<Option<&str>> = match args.policy.is_empty() {
        true => vec![None],
        false => args.policy.iter().map(|name| Some(name.as_str())).collect(),
    };
    let against = args.against.as_deref();
    let mut named = wanted.iter().flatten().chain(&against);
    let rules_are_for_one = named.any(|name| *name == "fixed");
    let mut sides = vec![match against {
        None => Side::plain(),
        Some(policy) => side(args, Some(policy), rules_are_for_one, account)?,
    }];
    for policy in wanted {
        let side = side(args, policy, rules_are_for_one, account)?;
        if sides.iter().any(|other| other.name == side.name) {
            bail!(
                "policy {} is compared with itself: name two different ones (--policy, --against)",
                side.name
            );
        }
        sides.push(side);
    }
    Ok(sides)
}

/// The program under `perch run`.
fn side(
    args: &CompareArgs,
    policy: Option<&str>,
    rules_are_for_fixed: bool,
    account: &Path,
) -> Result<Side> {
    let mut tuning = args.tuning.clone();
    if rules_are_for_fixed && policy != Some("fixed") {
        (tuning.pin, tuning.weight, tuning.pin_file) = (Vec::new(), Vec::new(), None);
        tuning.ways = Vec::new();
    }
    let place = PlaceArgs {
        policy: policy.map(str::to_owned),
        tuning,
        ..PlaceArgs::default()
    };
    let name = place::check(&place)?;
    let mut prefix = perch_run(&name, &place.tuning)?;
    let mut flag = OsString::from("--account=");
    flag.push(account);
    prefix.extend([flag, "--".into()]);
    Ok(Side { name, prefix })
}

/// `perch run --quiet` with this policy and these options.
fn perch_run(policy: &str, tuning: &TuningArgs) -> Result<Vec<OsString>> {
    let own = std::env::current_exe()
        .context("perch cannot find its own executable in /proc/self/exe")?;
    let mut command: Vec<OsString> = vec![own.into(), "run".into(), "--quiet".into()];
    let mut option = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(value);
            command.push(flag);
        }
    };
    // All of them by name: a new one must not be forgotten here.
    let TuningArgs {
        period,
        interval,
        profile,
        counters,
        sampling_rate,
        pin,
        weight,
        ways,
        pin_file,
        set,
        config,
        take_over,
        pus,
    } = tuning;
    option("policy", Some(policy.into()));
    let seconds = |time: std::time::Duration| format!("{}s", time.as_secs_f64()).into();
    option("period", period.map(seconds));
    option("interval", interval.map(seconds));
    option("profile", profile.clone().map(Into::into));
    let how = counters.as_ref();
    let how = how.and_then(clap::ValueEnum::to_possible_value);
    option("counters", how.map(|value| value.get_name().into()));
    let rate = sampling_rate.map(|rate| rate.to_string());
    option("sampling-rate", rate.map(Into::into));
    option("config", config.clone().map(Into::into));
    option("pin-file", pin_file.clone().map(Into::into));
    let pus = pus.as_ref().map(ToString::to_string);
    option("pus", pus.map(Into::into));
    for weight in weight {
        option("weight", Some(weight.into()));
    }
    for ways in ways {
        option("ways", Some(ways.into()));
    }
    for pin in pin {
        option("pin", Some(pin.into()));
    }
    for (name, value) in set {
        option("set", Some(format!("{name}={value}").into()));
    }
    if *take_over {
        command.push("--take-over".into());
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        compare: CompareArgs,
    }

    fn of(words: &[&str]) -> Result<Vec<Side>> {
        let words = [&["compare"], words, &["--", "true"]].concat();
        sides(&Line::try_parse_from(words)?.compare, Path::new("/a"))
    }

    fn names(words: &[&str]) -> Vec<String> {
        let sides = of(words).unwrap();
        sides.into_iter().map(|side| side.name).collect()
    }

    /// All are `observe` or a policy's mistake, so that no lock is asked for.
    #[test]
    fn each_policy_is_compared_with_the_baseline() {
        assert_eq!(names(&["-p", "observe"]), [PLAIN, "observe"]);
        let twice = of(&["-p", "observe", "--against", "observe"]).unwrap_err();
        assert!(twice.to_string().contains("with itself"), "{twice}");
        let unknown = of(&["-p", "observ"]).unwrap_err();
        assert!(unknown.to_string().contains("observe"), "{unknown}");
    }

    #[test]
    fn all_settings_reach_perch_run() {
        let words = "-p observe --period 250ms --interval 50ms --profile zen4 --counters sampling --sampling-rate 99 \
                     --pus 0 --take-over";
        let words: Vec<&str> = words.split_whitespace().collect();
        let sides = of(&words).unwrap();
        assert!(!sides[0].has_perch());
        let told: Vec<_> = sides[1].prefix[1..]
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        let expected = "run --quiet --policy=observe --period=0.25s --interval=0.05s --profile=zen4 \
                        --counters=sampling --sampling-rate=99 --pus=0 --take-over --account=/a --";
        assert_eq!(told.join(" "), expected);
        let tuning = TuningArgs {
            set: vec![("patience".to_owned(), "3".to_owned())],
            ..TuningArgs::default()
        };
        let told = perch_run("workover", &tuning).unwrap();
        assert_eq!(told.last().unwrap(), "--set=patience=3");
    }
}
