//! Policies by name, with their options.

use crate::{
    Cpi, CpiConfig, Fixed, FixedConfig, Inputs, Irq, IrqConfig, Masa, MasaConfig, Method, Observe,
    PolicyError, PsSched, PsSchedConfig, Sos, SosConfig, Symbiosis, SymbiosisConfig, WorkOver,
    WorkOverConfig, masa::BUILT_IN,
};
use perch_core::{
    Policy,
    diagnostic::{did_you_mean_one_of, from_deserializer},
};
use schemars::Schema;
use serde::{Serialize, de::DeserializeOwned};

/// Builds a policy from its options and what they name.
type Build = fn(&toml::Table, &Inputs) -> Result<Box<dyn Policy>, PolicyError>;

struct Entry {
    name: &'static str,
    summary: &'static str,
    needs: &'static str,
    default_config: fn() -> toml::Table,
    schema: fn() -> Schema,
    /// The values of its option `calibration` that name no file; `None` if it has no such option.
    calibration: Option<&'static [&'static str]>,
    check: fn(&toml::Table) -> Result<(), PolicyError>,
    build: Build,
}

static ENTRIES: [Entry; 10] = [
    Entry {
        name: "symbiosis",
        summary: "puts threads where the loss is least that a calibration of this machine predicts",
        needs: "needs a calibration (perch calibrate), and counters or a sampled instruction mix; no root",
        default_config: || table(&SymbiosisConfig::default()),
        schema: || schemars::schema_for!(SymbiosisConfig),
        calibration: Some(&[""]),
        check: |config| symbiosis(config).map(drop),
        build: |config, inputs| {
            let config = symbiosis(config)?;
            Ok(Box::new(match &inputs.calibration {
                Some(calibration) => Symbiosis::with_calibration(config, (**calibration).clone())?,
                None => Symbiosis::new(config)?,
            }))
        },
    },
    Entry {
        name: "workover",
        summary: "puts floating-point threads beside integer threads on PUs that share FP units (WorkOver)",
        needs: "needs FP shares (counters or sampling); no calibration, no root",
        default_config: || table(&WorkOverConfig::default()),
        schema: || schemars::schema_for!(WorkOverConfig),
        calibration: None,
        check: |config| workover(config).map(drop),
        build: |config, _| Ok(Box::new(WorkOver::new(workover(config)?))),
    },
    Entry {
        name: "masa",
        summary: "swaps threads between packages (cores, caches) where one exceeds a resource's limit (MASA)",
        needs: "needs a calibration (`perch calibrate`), and load metrics counted, or else FP shares; no root",
        default_config: || table(&MasaConfig::default()),
        schema: || schemars::schema_for!(MasaConfig),
        calibration: Some(&["", BUILT_IN]),
        check: |config| masa(config).map(drop),
        build: |config, inputs| {
            let config = masa(config)?;
            let measured = config.limits.is_empty() && config.calibration != BUILT_IN;
            Ok(Box::new(match &inputs.calibration {
                Some(calibration) if measured => Masa::with_calibration(config, calibration)?,
                _ => Masa::new(config)?,
            }))
        },
    },
    Entry {
        name: "cpi",
        summary: "balances pipeline demand (1/CPI) over cores, low-CPI beside high-CPI threads (Fedorova et al.)",
        needs: "needs cycles and instructions counted, or else a sampled instruction mix; no calibration, no root",
        default_config: || table(&CpiConfig::default()),
        schema: || schemars::schema_for!(CpiConfig),
        calibration: None,
        check: |config| cpi(config).map(drop),
        build: |config, _| Ok(Box::new(Cpi::new(cpi(config)?))),
    },
    Entry {
        name: "sos",
        summary: "tries sampled schedules in turn and keeps the best for a while (Snavely and Tullsen)",
        needs: "needs cycles and instructions counted; no calibration, no root",
        default_config: || table(&SosConfig::default()),
        schema: || schemars::schema_for!(SosConfig),
        calibration: None,
        check: |config| sos(config).map(drop),
        build: |config, _| Ok(Box::new(Sos::new(sos(config)?))),
    },
    Entry {
        name: "observe",
        summary: "watches and never binds anything",
        needs: "needs nothing",
        default_config: toml::Table::new,
        schema: || schemars::schema_for!(NoOptions),
        calibration: None,
        check: |config| no_options(config).map(drop),
        build: |config, _| {
            let NoOptions {} = no_options(config)?;
            Ok(Box::new(Observe))
        },
    },
    Entry {
        name: "irq",
        summary: "balances the interrupts of devices over packages and PUs, and leaves threads alone (MASA, section 5)",
        needs: "needs root, or only shows what would be better; no counters, no calibration",
        default_config: || table(&IrqConfig::default()),
        schema: || schemars::schema_for!(IrqConfig),
        calibration: None,
        check: |config| irq(config).map(drop),
        build: |config, _| Ok(Box::new(Irq::new(irq(config)?))),
    },
    Entry {
        name: "ps-sched-1",
        summary: "moves the operating system's work to one PU, which runs more slowly, and programs off it (Grant, Afsahi)",
        needs: "needs root, and the whole machine; no counters, no calibration",
        default_config: || table(&PsSchedConfig::default()),
        schema: || schemars::schema_for!(PsSchedConfig),
        calibration: None,
        check: |config| ps_sched("ps-sched-1", config).map(drop),
        build: |config, _| {
            let config = ps_sched("ps-sched-1", config)?;
            Ok(Box::new(PsSched::new(Method::One, config)))
        },
    },
    Entry {
        name: "ps-sched-2",
        summary: "moves the operating system's work and one thread to one PU, and all others run more slowly (Grant, Afsahi)",
        needs: "needs root, and the whole machine; no counters, no calibration",
        default_config: || table(&PsSchedConfig::default()),
        schema: || schemars::schema_for!(PsSchedConfig),
        calibration: None,
        check: |config| ps_sched("ps-sched-2", config).map(drop),
        build: |config, _| {
            let config = ps_sched("ps-sched-2", config)?;
            Ok(Box::new(PsSched::new(Method::Two, config)))
        },
    },
    Entry {
        name: "fixed",
        summary: "binds threads by name to the PUs that you give (--pin 'PATTERN=PUS')",
        needs: "needs at least one rule; no counters, no calibration, no root",
        default_config: || table(&FixedConfig::default()),
        schema: || schemars::schema_for!(FixedConfig),
        calibration: None,
        check: |config| Fixed::new(&fixed(config)?).map(drop),
        build: |config, _| Ok(Box::new(Fixed::new(&fixed(config)?)?)),
    },
];

/// The name of the option that names a calibration file, and of that which gives limits instead of one.
const CALIBRATION: &str = "calibration";
const LIMITS: &str = "limits";

fn symbiosis(config: &toml::Table) -> Result<SymbiosisConfig, PolicyError> {
    read_checked("symbiosis", config, SymbiosisConfig::check)
}

fn workover(config: &toml::Table) -> Result<WorkOverConfig, PolicyError> {
    read_checked("workover", config, WorkOverConfig::check)
}

fn masa(config: &toml::Table) -> Result<MasaConfig, PolicyError> {
    read_checked("masa", config, MasaConfig::check)
}

fn cpi(config: &toml::Table) -> Result<CpiConfig, PolicyError> {
    read_checked("cpi", config, CpiConfig::check)
}

fn sos(config: &toml::Table) -> Result<SosConfig, PolicyError> {
    read_checked("sos", config, SosConfig::check)
}

fn irq(config: &toml::Table) -> Result<IrqConfig, PolicyError> {
    read_checked("irq", config, IrqConfig::check)
}

fn ps_sched(name: &'static str, config: &toml::Table) -> Result<PsSchedConfig, PolicyError> {
    read_checked(name, config, PsSchedConfig::check)
}

fn fixed(config: &toml::Table) -> Result<FixedConfig, PolicyError> {
    read("fixed", config, &FixedConfig::default())
}

fn no_options(config: &toml::Table) -> Result<NoOptions, PolicyError> {
    read("observe", config, &NoOptions {})
}

/// A policy without options.
#[derive(Default, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

/// The names of all policies, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// One-line summary of a policy.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn summary(name: &str) -> Result<&'static str, PolicyError> {
    entry(name).map(|entry| entry.summary)
}

/// Requirements of a policy: counters, calibration, root.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn needs(name: &str) -> Result<&'static str, PolicyError> {
    entry(name).map(|entry| entry.needs)
}

/// The policy of that name with its options: those that `config` leaves out have their defaults. `inputs` are what the
/// options name, read before ([`Inputs::read`]).
///
/// # Errors
/// No such policy, no such option, or a value that does not fit, each with what to write instead; a calibration that the
/// policy needs or its options name, and that `inputs` lacks.
pub fn build(
    name: &str,
    config: &toml::Table,
    inputs: &Inputs,
) -> Result<Box<dyn Policy>, PolicyError> {
    (entry(name)?.build)(config, inputs)
}

/// Whether a policy of that name takes these options, as far as they tell: opens no file, and needs no calibration.
///
/// # Errors
/// No such policy, no such option, or a value that does not fit, each with what to write instead.
pub fn check(name: &str, config: &toml::Table) -> Result<(), PolicyError> {
    (entry(name)?.check)(config)
}

/// The calibration file that a policy's options name, if they name one; and the policy.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn calibration_file<'a>(
    name: &str,
    config: &'a toml::Table,
) -> Result<(&'static str, Option<&'a str>), PolicyError> {
    let entry = entry(name)?;
    let file = entry.calibration.and_then(|no_files| {
        let given = config.get(CALIBRATION)?.as_str()?;
        (!no_files.contains(&given)).then_some(given)
    });
    Ok((entry.name, file))
}

/// Whether the policy takes a calibration that these options neither name nor make needless.
pub fn lacks_calibration(name: &str, config: &toml::Table) -> bool {
    let takes = entry(name).is_ok_and(|entry| entry.calibration.is_some());
    let named = config.get(CALIBRATION).and_then(toml::Value::as_str);
    let limits = config.get(LIMITS).and_then(toml::Value::as_array);
    takes && named.is_none_or(str::is_empty) && limits.is_none_or(Vec::is_empty)
}

/// The policy's options with their defaults.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn default_config(name: &str) -> Result<toml::Table, PolicyError> {
    entry(name).map(|entry| (entry.default_config)())
}

/// The options with the keys that are documented, where they are spelt with hyphens.
///
/// # Errors
/// No policy of that name, with a suggestion; an option that is given twice.
pub fn with_documented_keys(name: &str, config: &toml::Table) -> Result<toml::Table, PolicyError> {
    let entry = entry(name)?;
    documented(entry.name, config, &(entry.default_config)())
}

/// The JSON schema of the policy's options.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn schema(name: &str) -> Result<Schema, PolicyError> {
    entry(name).map(|entry| (entry.schema)())
}

fn entry(name: &str) -> Result<&'static Entry, PolicyError> {
    ENTRIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| PolicyError::UnknownPolicy {
            name: name.to_owned(),
            hint: did_you_mean_one_of(name, names().collect::<Vec<_>>()),
        })
}

fn table(config: &impl Serialize) -> toml::Table {
    // All our configurations are plain structs; one that were not would show in the tests as an empty table.
    toml::Table::try_from(config).unwrap_or_default()
}

fn read_checked<T: DeserializeOwned + Serialize + Default>(
    policy: &'static str,
    config: &toml::Table,
    check: fn(&T) -> Result<(), String>,
) -> Result<T, PolicyError> {
    let config = read(policy, config, &T::default())?;
    check(&config).map_err(|message| PolicyError::BadOption { policy, message })?;
    Ok(config)
}

/// The options with the keys that are documented: hyphens are as good as underscores.
fn documented(
    policy: &'static str,
    config: &toml::Table,
    options: &toml::Table,
) -> Result<toml::Table, PolicyError> {
    let mut read = toml::Table::new();
    for (key, value) in config {
        let documented = key.replace('-', "_");
        let key = match options.contains_key(&documented) {
            true => documented,
            false => key.clone(),
        };
        if read.insert(key.clone(), value.clone()).is_some() {
            return Err(PolicyError::BadOption {
                policy,
                message: format!("a second key `{key}`"),
            });
        }
    }
    Ok(read)
}

fn read<T: DeserializeOwned + Serialize>(
    policy: &'static str,
    config: &toml::Table,
    defaults: &T,
) -> Result<T, PolicyError> {
    let options = table(defaults);
    let config = documented(policy, config, &options)?;
    if let Some(option) = config.keys().find(|key| !options.contains_key(*key)) {
        let known: Vec<&str> = options.keys().map(String::as_str).collect();
        return Err(PolicyError::UnknownOption {
            policy,
            option: option.clone(),
            hint: match known.is_empty() {
                true => "it has no options".to_owned(),
                false => did_you_mean_one_of(option, known),
            },
        });
    }
    for (option, value) in &config {
        // One at a time, so that the message can name the option.
        let alone: toml::Table = [(option.clone(), value.clone())].into_iter().collect();
        if let Err(error) = alone.try_into::<T>() {
            let (message, hint) = from_deserializer(error.message(), &[]);
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            return Err(PolicyError::BadOption {
                policy,
                message: format!("{option} = {value}: {message}{hint}"),
            });
        }
    }
    config
        .try_into()
        .map_err(|error: toml::de::Error| PolicyError::BadOption {
            policy,
            message: error.message().to_owned(),
        })
}
