//! The metrics that `-m` asks for.

use super::modules::Chosen;
use crate::{args::StatArgs, command};
use anyhow::{Result, bail};
use perch_core::{MetricName, diagnostic::did_you_mean_one_of};
use perch_linux::perf::encode::kernel_names;
use perch_profile::Profile;
use perch_stat::{Derived, with_underscores};

/// The metrics that `-m` asks for: formulas, and names of the profile's.
pub struct Formulas {
    /// Of the user.
    pub derived: Vec<Derived>,
    /// Of the profile.
    pub of_profile: Vec<MetricName>,
}

impl Formulas {
    /// Reads the texts of `-m`.
    ///
    /// # Errors
    /// Texts that name no metric and are no formula.
    pub fn read(args: &StatArgs, profile: &Profile) -> Result<Self> {
        let (mut derived, mut of_profile) = (Vec::new(), Vec::new());
        let of_kernel = kernel_names();
        for text in &args.metrics {
            if text.contains('=') {
                derived.push(Derived::parse(&with_underscores(
                    text,
                    &args.events,
                    &of_kernel,
                ))?);
                continue;
            }
            let known = profile.metrics.iter().map(|metric| &*metric.name);
            match profile.metric(text) {
                Some(rule) => of_profile.push(MetricName::clone(&rule.name)),
                None => bail!(
                    "-m {text}: profile {} has no such metric; {} or define it: NAME=FORMULA",
                    profile.name,
                    did_you_mean_one_of(text, known.collect::<Vec<_>>())
                ),
            }
        }
        Ok(Self {
            derived,
            of_profile,
        })
    }
}

/// Refuses formulas over names that nothing has.
///
/// # Errors
/// Such names, with what may have been meant.
pub fn check_names(
    args: &StatArgs,
    profile: &Profile,
    formulas: &[Derived],
    modules: &Chosen,
) -> Result<()> {
    let named = args.events.iter().flat_map(|set| set.split(','));
    let named: Vec<&str> = named
        .filter_map(|event| Some(event.split_once('=')?.0.trim()))
        .collect();
    for formula in formulas {
        let events = formula.events();
        let events = events.filter(|name| !modules.has(name) && !named.contains(name));
        let unknown = command::events::unknown(profile, events);
        if unknown.is_empty() {
            continue;
        }
        let said = unknown.into_iter().map(|(name, near)| {
            let near = near.map_or(String::new(), |near| format!("; {near}"));
            format!("no event, metric or module is called `{name}`{near}")
        });
        let said: Vec<String> = said.collect();
        let minus = match formula.inputs().len() {
            1 => "",
            _ => "; a `-` between names is a minus",
        };
        bail!("-m {}: {}{minus}", formula.name, said.join("; "));
    }
    Ok(())
}
