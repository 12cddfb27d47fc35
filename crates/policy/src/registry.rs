//! Policies by name, with their options.

use crate::{
    Cpi, CpiConfig, Fixed, FixedConfig, Masa, MasaConfig, Observe, PolicyError, Sos, SosConfig,
    Symbiosis, SymbiosisConfig, WorkOver, WorkOverConfig, error::suggestion,
};
use perch_core::Policy;
use schemars::Schema;
use serde::{Serialize, de::DeserializeOwned};

struct Entry {
    name: &'static str,
    summary: &'static str,
    needs: &'static str,
    default_config: fn() -> toml::Table,
    schema: fn() -> Schema,
    build: fn(&toml::Table) -> Result<Box<dyn Policy>, PolicyError>,
}

static ENTRIES: [Entry; 7] = [
    Entry {
        name: "symbiosis",
        summary: "puts threads where the loss is least that a calibration of this machine predicts",
        needs: "needs a calibration (perch calibrate), and counters or a sampled instruction mix; no root",
        default_config: || table(&SymbiosisConfig::default()),
        schema: || schemars::schema_for!(SymbiosisConfig),
        build: |config| {
            let config: SymbiosisConfig = read("symbiosis", config, &SymbiosisConfig::default())?;
            Ok(Box::new(Symbiosis::new(config)?))
        },
    },
    Entry {
        name: "workover",
        summary: "puts floating-point threads beside integer threads on PUs that share FP units (WorkOver)",
        needs: "needs FP shares (counters or sampling); no calibration, no root",
        default_config: || table(&WorkOverConfig::default()),
        schema: || schemars::schema_for!(WorkOverConfig),
        build: |config| {
            let config: WorkOverConfig = read("workover", config, &WorkOverConfig::default())?;
            config.check().map_err(|message| PolicyError::BadOption {
                policy: "workover",
                message,
            })?;
            Ok(Box::new(WorkOver::new(config)))
        },
    },
    Entry {
        name: "masa",
        summary: "swaps threads between packages (cores, caches) where one exceeds a resource's limit (MASA)",
        needs: "needs load metrics counted, or else FP shares; takes limits from a calibration or learns them; no root",
        default_config: || table(&MasaConfig::default()),
        schema: || schemars::schema_for!(MasaConfig),
        build: |config| {
            let config: MasaConfig = read("masa", config, &MasaConfig::default())?;
            Ok(Box::new(Masa::new(config)?))
        },
    },
    Entry {
        name: "cpi",
        summary: "balances pipeline demand (1/CPI) over cores, low-CPI beside high-CPI threads (Fedorova et al.)",
        needs: "needs cycles and instructions counted, or else a sampled instruction mix; no calibration, no root",
        default_config: || table(&CpiConfig::default()),
        schema: || schemars::schema_for!(CpiConfig),
        build: |config| {
            let config: CpiConfig = read("cpi", config, &CpiConfig::default())?;
            config.check().map_err(|message| PolicyError::BadOption {
                policy: "cpi",
                message,
            })?;
            Ok(Box::new(Cpi::new(config)))
        },
    },
    Entry {
        name: "sos",
        summary: "tries sampled schedules in turn and keeps the best for a while (Snavely and Tullsen)",
        needs: "needs cycles and instructions counted; no calibration, no root",
        default_config: || table(&SosConfig::default()),
        schema: || schemars::schema_for!(SosConfig),
        build: |config| {
            let config: SosConfig = read("sos", config, &SosConfig::default())?;
            config.check().map_err(|message| PolicyError::BadOption {
                policy: "sos",
                message,
            })?;
            Ok(Box::new(Sos::new(config)))
        },
    },
    Entry {
        name: "observe",
        summary: "watches and never binds anything",
        needs: "needs nothing",
        default_config: toml::Table::new,
        schema: || schemars::schema_for!(NoOptions),
        build: |config| {
            let NoOptions {} = read("observe", config, &NoOptions {})?;
            Ok(Box::new(Observe))
        },
    },
    Entry {
        name: "fixed",
        summary: "binds threads by name to the PUs that you give (--pin 'PATTERN=PUS')",
        needs: "needs at least one rule; no counters, no calibration, no root",
        default_config: || table(&FixedConfig::default()),
        schema: || schemars::schema_for!(FixedConfig),
        build: |config| {
            let config: FixedConfig = read("fixed", config, &FixedConfig::default())?;
            Ok(Box::new(Fixed::new(&config)?))
        },
    },
];

/// A policy without options.
#[derive(Default, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

/// The names of all policies, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// What the policy does, in one line.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn summary(name: &str) -> Result<&'static str, PolicyError> {
    entry(name).map(|entry| entry.summary)
}

/// What the policy needs: counters, calibration, root.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn needs(name: &str) -> Result<&'static str, PolicyError> {
    entry(name).map(|entry| entry.needs)
}

/// The policy of that name with its options: those that `config` leaves out have their defaults.
///
/// # Errors
/// No such policy, no such option, or a value that does not fit, each with what to write instead.
pub fn build(name: &str, config: &toml::Table) -> Result<Box<dyn Policy>, PolicyError> {
    (entry(name)?.build)(config)
}

/// The policy's options with their defaults.
///
/// # Errors
/// No policy of that name, with a suggestion.
pub fn default_config(name: &str) -> Result<toml::Table, PolicyError> {
    entry(name).map(|entry| (entry.default_config)())
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
            hint: suggestion(name, names()),
            known: names().collect::<Vec<_>>().join(", "),
        })
}

fn table(config: &impl Serialize) -> toml::Table {
    // All our configurations are plain structs; one that were not would show in the tests as an empty table.
    toml::Table::try_from(config).unwrap_or_default()
}

fn read<T: DeserializeOwned + Serialize>(
    policy: &'static str,
    config: &toml::Table,
    defaults: &T,
) -> Result<T, PolicyError> {
    let options = table(defaults);
    if let Some(option) = config.keys().find(|key| !options.contains_key(*key)) {
        let known: Vec<&str> = options.keys().map(String::as_str).collect();
        return Err(PolicyError::UnknownOption {
            policy,
            option: option.clone(),
            hint: suggestion(option, known.iter().copied()),
            known: match known.as_slice() {
                [] => "none".to_owned(),
                _ => known.join(", "),
            },
        });
    }
    for (option, value) in config {
        // One at a time, so that the message can name the option.
        let alone: toml::Table = [(option.clone(), value.clone())].into_iter().collect();
        if let Err(error) = alone.try_into::<T>() {
            return Err(PolicyError::BadOption {
                policy,
                message: format!("{option} = {value}: {}", error.message()),
            });
        }
    }
    config
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| PolicyError::BadOption {
            policy,
            message: error.message().to_owned(),
        })
}
