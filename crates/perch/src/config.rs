//! Settings: command line before environment before file before default.

use crate::args::{Counters, PlaceArgs, parse_period};
use anyhow::{Context, Result};
use perch_core::{
    Diagnostic, Policy, PuSet,
    diagnostic::{did_you_mean_one_of, from_deserializer},
};
use perch_engine::recording::Header;
use perch_policy::{Calibration, Inputs, PolicyError, registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The configuration file (`~/.config/perch/config.toml`, or `--config FILE`). Every setting is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConfigFile {
    /// The policy that decides, such as "workover" (see `perch policies`).
    pub policy: Option<String>,
    /// How often to decide, such as "1s" or "250ms".
    pub period: Option<String>,
    /// How often to look at the threads, if more often than to decide, such as "100ms".
    pub interval: Option<String>,
    /// The processor profile: a name or a file.
    pub profile: Option<String>,
    /// Source of thread metrics: "auto", "pmu" or "sampling".
    pub counters: Option<Counters>,
    /// Samples a second on each busy PU, where metrics come from sampling (1 to 10000).
    #[schemars(range(min = 1, max = 10000))]
    #[serde(alias = "sampling_rate")]
    pub sampling_rate: Option<u32>,
    /// Also place threads that the user or another program has placed already.
    #[serde(alias = "take_over")]
    pub take_over: Option<bool>,
    /// Use only these PUs, such as "0-7".
    pub pus: Option<String>,
    /// Rules of the policy `fixed`, such as "solver*=core:0-3".
    pub pin: Option<Vec<String>>,
    /// CPU weights of the policy `fixed`, such as "backup*=10" (1 to 10000, usual is 100).
    pub weight: Option<Vec<String>>,
    /// Ways of caches that threads may fill, of the policy `fixed`, such as "stream*=L3:0x3" (on simulated machines).
    pub ways: Option<Vec<String>>,
    /// Settings of the policies, a table each, such as [policies.workover].
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(
        with = "std::collections::BTreeMap<String, std::collections::BTreeMap<String, serde_json::Value>>"
    )]
    pub policies: toml::Table,
}

/// What is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The policy's name.
    pub policy: String,
    /// Whether neither the user nor the file has chosen it.
    pub policy_is_default: bool,
    /// Its settings.
    pub policy_config: toml::Table,
    /// The period; `None` for the policy's own.
    pub period: Option<Duration>,
    /// How often to observe; `None` for once a period.
    pub interval: Option<Duration>,
    /// Profile name or file; `None` to detect.
    pub profile: Option<String>,
    /// Source of thread metrics.
    pub counters: Counters,
    /// Samples a second on each busy PU; `None` for the default of the privileges at hand.
    pub sampling_rate: Option<u32>,
    /// Whether threads that were already placed are placed too.
    pub take_over: bool,
    /// The only PUs to use.
    pub pus: Option<PuSet>,
    /// Rules of the policy `fixed`.
    pub pin: Vec<String>,
    /// CPU weights of the policy `fixed`.
    pub weight: Vec<String>,
    /// Ways of caches of the policy `fixed`.
    pub ways: Vec<String>,
    /// A file of rules of the policy `fixed`.
    pub pin_file: Option<PathBuf>,
    /// The text of a calibration of the machine, for a recording's header.
    pub calibration: Option<String>,
    /// A calibration that is in no file, for a policy that lacks one: a name and the text.
    found: Option<(String, String)>,
}

/// The policy where nothing else is said.
pub const DEFAULT_POLICY: &str = "workover";

/// The one where nothing else is said on a machine that was calibrated.
pub const CALIBRATED_POLICY: &str = "symbiosis";

/// The names of all settings, each with a value as it is written.
const SETTINGS: [(&str, &str); 12] = [
    ("policy", "\"cpi\""),
    ("period", "\"1s\""),
    ("interval", "\"250ms\""),
    ("profile", "\"zen4\""),
    ("counters", "\"auto\""),
    ("sampling-rate", "251"),
    ("take-over", "false"),
    ("pus", "\"0-7\""),
    ("pin", "[\"solver*=core:0-3\"]"),
    ("weight", "[\"backup*=10\"]"),
    ("ways", "[\"stream*=L3:0x3\"]"),
    ("policies", "{ workover = { margin = 0.2 } }"),
];

/// The documented spelling of a setting: underscores are as good as hyphens.
fn setting(name: &str) -> Option<(&'static str, &'static str)> {
    let name = name.replace('_', "-");
    SETTINGS.into_iter().find(|(known, _)| *known == name)
}

/// Makes a mistake of a place, a message and a hint.
type Wrong<'a> = &'a dyn Fn(Range<usize>, String, Option<String>) -> Box<Diagnostic>;

/// Checks the table of one policy.
fn policy(
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    wrong: Wrong<'_>,
) -> Result<(), Box<Diagnostic>> {
    let name: &str = key.get_ref();
    let Ok(schema) = registry::schema(name) else {
        let hint = did_you_mean_one_of(name, registry::names().collect::<Vec<_>>());
        return Err(wrong(key.span(), format!("no policy `{name}`"), Some(hint)));
    };
    let DeValue::Table(options) = value.get_ref() else {
        let message = format!("`{name}` must be a table");
        let hint = format!("write [policies.{name}] and its options below");
        return Err(wrong(value.span(), message, Some(hint)));
    };
    let known: Vec<&str> = schema
        .get("properties")
        .and_then(|properties| properties.as_object())
        .into_iter()
        .flat_map(|properties| properties.keys())
        .map(String::as_str)
        .collect();
    for option in options.keys() {
        let told: &str = option.get_ref();
        if !known.contains(&&*told.replace('-', "_")) {
            let hint = did_you_mean_one_of(told, known.iter().copied());
            let message = format!("unknown key `{told}` of policy {name}");
            return Err(wrong(option.span(), message, Some(hint)));
        }
    }
    Ok(())
}

/// The bytes of a policy's option, or of its whole table.
fn place(file: &DeTable<'_>, policy: &str, option: Option<&str>) -> Range<usize> {
    let table = file
        .get("policies")
        .and_then(|policies| policies.get_ref().as_table()?.get(policy));
    let of = |option| table?.get_ref().as_table()?.get(option).map(Spanned::span);
    let whole = || table.map(Spanned::span);
    option.and_then(of).or_else(whole).unwrap_or(0..0)
}

impl ConfigFile {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first mistake, with its place: no TOML, an unknown setting, policy or option, a value that is none.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Box<Diagnostic>> {
        let path = path.to_string_lossy();
        let wrong = |at: Range<usize>, message: String, hint: Option<String>| {
            Box::new(Diagnostic::at(&path, text, at, message, hint))
        };
        let no_toml = |error: toml::de::Error| {
            let (message, hint) = from_deserializer(error.message(), &[]);
            wrong(error.span().unwrap_or(0..0), message, hint)
        };
        let file = DeTable::parse(text).map_err(no_toml)?;
        for key in file.get_ref().keys() {
            let name: &str = key.get_ref();
            if setting(name).is_none() {
                let hint = did_you_mean_one_of(name, SETTINGS.map(|(name, _)| name));
                return Err(wrong(
                    key.span(),
                    format!("unknown key `{name}`"),
                    Some(hint),
                ));
            }
        }
        let policies = file.get_ref().get("policies");
        if let Some(DeValue::Table(policies)) = policies.map(Spanned::get_ref) {
            for (name, options) in policies {
                policy(name, options, &wrong)?;
            }
        }
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            let keys = file.get_ref().iter();
            let key = keys
                .filter(|(key, value)| {
                    key.span().start <= at.start || value.span().start <= at.start
                })
                .max_by_key(|(key, value)| key.span().start.max(value.span().start));
            let form = key.and_then(|(key, _)| setting(key.get_ref()));
            let mut mistake = no_toml(error);
            if let Some((name, value)) = form
                && mistake.message.starts_with("expected ")
            {
                let form = || format!("write {name} = {value}");
                mistake.hint.get_or_insert_with(form);
            }
            mistake
        })?;
        let spelt = |name: &str, given: &str| given.replace('_', "-") == name;
        let at = |name: &str| {
            let mut keys = file.get_ref().iter();
            let found = keys.find(|(key, _)| spelt(name, key.get_ref()));
            found.map_or(0..0, |(_, value)| value.span())
        };
        if let Some(policy) = &config.policy
            && !registry::names().any(|known| known == policy)
        {
            let hint = did_you_mean_one_of(policy, registry::names().collect::<Vec<_>>());
            return Err(wrong(
                at("policy"),
                format!("no policy `{policy}`"),
                Some(hint),
            ));
        }
        for (name, time) in [("period", &config.period), ("interval", &config.interval)] {
            if let Some(time) = time {
                parse_period(time).map_err(|why| wrong(at(name), why, None))?;
            }
        }
        if let Some(rate) = config
            .sampling_rate
            .filter(|rate| !(1..=10_000).contains(rate))
        {
            let message = format!("{rate} samples a second: out of 1 to 10000");
            return Err(wrong(at("sampling-rate"), message, None));
        }
        if let Some(pus) = &config.pus {
            pus.parse::<PuSet>()
                .map_err(|why| wrong(at("pus"), why.to_string(), None))?;
        }
        for (name, options) in &config.policies {
            let Some(options) = options.as_table() else {
                continue;
            };
            let Err(error) = accepted(name, options) else {
                continue;
            };
            // The option that is refused by itself, if one is.
            let culprit = options.iter().find(|(option, value)| {
                let only = [((*option).clone(), (*value).clone())]
                    .into_iter()
                    .collect();
                accepted(name, &only).is_err()
            });
            let at = place(
                file.get_ref(),
                name,
                culprit.map(|(option, _)| option.as_str()),
            );
            return Err(wrong(at, error.to_string(), None));
        }
        for (name, options) in config.policies.iter_mut() {
            if let Some(options) = options.as_table_mut()
                && let Ok(documented) = registry::with_documented_keys(name, options)
            {
                *options = documented;
            }
        }
        Ok(config)
    }

    /// The file that was asked for, else the user's own if there is one, else nothing.
    ///
    /// # Errors
    /// A file that cannot be read or is no configuration.
    pub fn load(asked: Option<&Path>) -> Result<Self> {
        Ok(Self::load_from(asked)?.0)
    }

    /// As [`ConfigFile::load`], with the file's path if there is one.
    ///
    /// # Errors
    /// A file that cannot be read or is no configuration.
    pub fn load_from(asked: Option<&Path>) -> Result<(Self, Option<PathBuf>)> {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let (path, must) = match asked {
            Some(path) => (path.to_owned(), true),
            None => match user_config() {
                Some(path) => (path, false),
                None => return Ok((Self::default(), None)),
            },
        };
        match perch_files::read_to_string(&path) {
            Ok(text) => Ok((Self::parse(&text, &path)?, Some(path))),
            // The user did not ask for it: HOME may be another user's, as under sudo or setpriv.
            Err(error) if !must && matches!(error.kind(), NotFound | PermissionDenied) => {
                Ok((Self::default(), None))
            }
            Err(error) => Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        }
    }
}

/// `~/.config/perch/config.toml`.
fn user_config() -> Option<PathBuf> {
    Some(user_folder()?.join("config.toml"))
}

/// The directory of the user's settings, profiles and calibration.
pub fn user_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    settings_folder(variable("XDG_CONFIG_HOME"), variable("HOME"))
}

/// `perch` below `$XDG_CONFIG_HOME`, else below `$HOME/.config`, as the XDG base directory specification says: paths that
/// are not absolute are ignored.
pub fn settings_folder(config_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let of_home = || Some(home.filter(absolute)?.join(".config"));
    let base = config_home.filter(absolute).or_else(of_home)?;
    Some(base.join("perch"))
}

/// The option that names a calibration.
const CALIBRATION: &str = "calibration";

/// Whether a policy takes these options, with the files that they name. A calibration may be missing: it is found, or
/// asked for, when the policy is run.
fn accepted(name: &str, options: &toml::Table) -> Result<(), PolicyError> {
    registry::check(name, options)?;
    if let (_, Some(_)) = registry::calibration_file(name, options)? {
        registry::build(name, options, &Inputs::read(name, options)?)?;
    }
    Ok(())
}

/// What a recording calls a policy's options.
fn options_name(policy: &str) -> String {
    format!("policies.{policy}")
}

impl Settings {
    /// The settings by name, for a recording's header.
    pub fn told(&self) -> BTreeMap<String, serde_json::Value> {
        let mut told = BTreeMap::new();
        told.insert("counters".to_owned(), serde_json::json!(self.counters));
        told.insert(
            "sampling-rate".to_owned(),
            serde_json::json!(self.sampling_rate),
        );
        told.insert("pin".to_owned(), serde_json::json!(self.pins_of_both()));
        told.insert("weight".to_owned(), serde_json::json!(self.weight));
        told.insert("ways".to_owned(), serde_json::json!(self.ways));
        told.insert(
            options_name(&self.policy),
            serde_json::json!(self.policy_config),
        );
        told
    }

    /// The rules of the file of rules, which may be another one when a recording is replayed, and those given directly.
    fn pins_of_both(&self) -> Vec<String> {
        let text = self.pin_file.as_deref().map(perch_files::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let lines = text.lines().map(str::trim);
        let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rules = rules.map(str::to_owned);
        rules.chain(self.pin.iter().cloned()).collect()
    }

    /// Whether the policy takes a calibration that the settings do not name.
    pub fn lacks_calibration(&self) -> bool {
        registry::lacks_calibration(&self.policy, &self.policy_config)
    }

    /// Names the calibration file for a policy that lacks one.
    pub fn calibrated_by(&mut self, file: &Path) {
        if self.lacks_calibration() {
            let file = file.display().to_string();
            self.policy_config
                .insert(CALIBRATION.to_owned(), toml::Value::String(file));
        }
    }

    /// Gives a policy that lacks one a calibration that is in no file; `name` stands for the file in errors.
    pub fn calibrated_with(&mut self, name: String, text: String) {
        self.found = Some((name, text));
    }

    /// The policy, with what its options name.
    ///
    /// # Errors
    /// No such policy or option, a calibration that cannot be read or has a mistake.
    pub fn build(&self) -> Result<Box<dyn Policy>> {
        let inputs = match &self.found {
            Some((name, text)) if self.lacks_calibration() => {
                Calibration::parse(text, name)?.into()
            }
            _ => Inputs::read(&self.policy, &self.policy_config)?,
        };
        Ok(registry::build(&self.policy, &self.policy_config, &inputs)?)
    }

    /// Keeps the text of the calibration that the policy reads, else of the machine's `own`: a recording is to be replayed
    /// with what was known then.
    pub fn keep_calibration(&mut self, own: Option<&Path>) {
        let named = self.policy_config.get(CALIBRATION);
        let named = named.and_then(toml::Value::as_str).map(Path::new);
        let file = named.filter(|file| !file.as_os_str().is_empty()).or(own);
        let read = |file: &Path| perch_files::read_to_string(file).ok();
        self.calibration = match &self.found {
            Some((_, text)) if self.lacks_calibration() => Some(text.clone()),
            _ => file.and_then(read),
        };
    }

    /// Takes the options with which a policy was recorded.
    pub fn options_of(&mut self, recorded: &Header) {
        let options = recorded.configuration.get(&options_name(&self.policy));
        let options = options.and_then(|options| toml::Table::try_from(options).ok());
        self.policy_config = options.unwrap_or_default();
        // Whatever is in that file by now.
        if recorded.calibration.is_some() {
            self.policy_config.remove(CALIBRATION);
        }
    }

    /// Merges the command line (which already holds the environment) over the file over the defaults.
    ///
    /// # Errors
    /// A configuration file that cannot be read or is wrong.
    pub fn new(args: &PlaceArgs) -> Result<Self> {
        let file = ConfigFile::load(args.tuning.config.as_deref())?;
        Self::merged(args, file, || DEFAULT_POLICY)
    }

    /// The same with a configuration file that has been read already: a pipe can be read only once. Where nothing is said,
    /// `policy` is asked for one.
    ///
    /// # Errors
    /// Settings that are wrong.
    pub fn merged(
        args: &PlaceArgs,
        file: ConfigFile,
        policy: impl FnOnce() -> &'static str,
    ) -> Result<Self> {
        let policy_given = args.policy.as_ref();
        let args = &args.tuning;
        let pins_given = args.has_rules();
        // Rules without a policy can only mean the policy that uses them.
        let chosen = match (policy_given, pins_given) {
            (Some(policy), _) => Some(policy.clone()),
            (None, true) => Some("fixed".to_owned()),
            (None, false) => file.policy.clone(),
        };
        let policy_is_default = chosen.is_none();
        let policy = chosen.unwrap_or_else(|| policy().to_owned());
        if pins_given && policy != "fixed" {
            anyhow::bail!(
                "--pin, --pin-file, --weight and --ways are rules of the policy fixed, but the policy is {policy}: drop one"
            );
        }
        // A file may keep rules for when `-p fixed` is given.
        let of_file = policy_given.is_none() && !pins_given && file.policy.is_some();
        let has = |rules: &Option<Vec<String>>| rules.as_ref().is_some_and(|all| !all.is_empty());
        let any = [&file.pin, &file.weight, &file.ways].into_iter().any(has);
        if of_file && policy != "fixed" && any {
            anyhow::bail!(
                "the configuration file: `pin`, `weight` and `ways` are rules of the policy fixed, but its policy is \
                 {policy}: drop one"
            );
        }
        let from_file = |text: &String| parse_period(text).map_err(anyhow::Error::msg);
        let pus = match (&args.pus, &file.pus) {
            (Some(pus), _) => Some(pus.clone()),
            (None, Some(text)) => Some(text.parse()?),
            (None, None) => None,
        };
        let mut policy_config = file
            .policies
            .get(&policy)
            .and_then(|table| table.as_table())
            .cloned()
            .unwrap_or_default();
        set_options(&mut policy_config, &policy, &args.set)?;
        Ok(Self {
            policy_config,
            period: match args.period {
                Some(period) => Some(period),
                None => file.period.as_ref().map(from_file).transpose()?,
            },
            interval: match args.interval {
                Some(interval) => Some(interval),
                None => file.interval.as_ref().map(from_file).transpose()?,
            },
            profile: args.profile.clone().or(file.profile),
            counters: args.counters.or(file.counters).unwrap_or(Counters::Auto),
            sampling_rate: args.sampling_rate.or(file.sampling_rate),
            take_over: args.take_over || file.take_over.unwrap_or(false),
            pin: if pins_given {
                args.pin.clone()
            } else {
                file.pin.unwrap_or_default()
            },
            weight: if pins_given {
                args.weight.clone()
            } else {
                file.weight.unwrap_or_default()
            },
            ways: if pins_given {
                args.ways.clone()
            } else {
                file.ways.unwrap_or_default()
            },
            pin_file: args.pin_file.clone(),
            calibration: None,
            found: None,
            pus,
            policy,
            policy_is_default,
        })
    }
}

/// Adds the options of `--set` to those of the configuration file. Values are written as there, but texts need no quotes.
///
/// # Errors
/// No such policy or option, a value that does not fit.
fn set_options(config: &mut toml::Table, policy: &str, set: &[(String, String)]) -> Result<()> {
    if set.is_empty() {
        return Ok(());
    }
    let options = registry::default_config(policy)?;
    for (name, text) in set {
        let documented = name.replace('-', "_");
        let is_text = matches!(options.get(&documented), Some(toml::Value::String(_)));
        let read = || toml::from_str::<toml::Table>(&format!("value = {text}")).ok();
        let value = match is_text {
            true => None,
            false => read().and_then(|mut table| table.remove("value")),
        };
        // The file may spell it with hyphens.
        config.retain(|key, _| key.replace('-', "_") != documented);
        config.insert(
            documented,
            value.unwrap_or_else(|| toml::Value::String(text.clone())),
        );
    }
    registry::check(policy, config).context("--set")
}
