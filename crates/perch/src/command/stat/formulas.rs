//! The metrics that `-m` asks for.

use super::modules::Chosen;
use crate::{args::StatArgs, command};
use anyhow::{Result, bail};
use perch_core::{MetricName, diagnostic::did_you_mean_one_of};
use perch_linux::perf::encode::{GENERIC_EVENTS, cache_events};
use perch_profile::Profile;
use perch_stat::Derived;

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
        for text in &args.metrics {
            if text.contains('=') {
                derived.push(Derived::parse(&with_underscores(text, &args.events))?);
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

/// A formula with `_` for `-` in names of events, those of -e and the kernel's: there `-` is no minus.
pub(super) fn with_underscores(text: &str, events: &[String]) -> String {
    let asked = events.iter().flat_map(|set| set.split([',', ':', '=']));
    let generic = GENERIC_EVENTS.iter().flat_map(|event| event.names);
    let caches: Vec<String> = cache_events().collect();
    let caches = caches.iter().map(String::as_str);
    let mut names: Vec<&str> = asked
        .chain(generic.copied())
        .chain(caches)
        .map(str::trim)
        .collect();
    let is_plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    names.retain(|name| name.contains('-') && is_plain(name));
    // A name may begin with another one.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = text.to_owned();
    for name in names {
        let is_inside = |c: char| c.is_alphanumeric() || "_-".contains(c);
        let at = text.match_indices(name).map(|(at, _)| at);
        let whole: Vec<usize> = at
            .filter(|at| {
                let before = text[..*at].chars().next_back();
                let behind = text[at + name.len()..].chars().next();
                !before.is_some_and(is_inside) && !behind.is_some_and(is_inside)
            })
            .collect();
        for at in whole {
            text.replace_range(at..at + name.len(), &name.replace('-', "_"));
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyphen_in_the_name_of_an_event_is_no_minus() {
        // The second one is an event of one processor only, by sysfs.
        let events = ["instructions,topdown-fe-bound:u".to_owned()];
        let read = |text: &str| with_underscores(text, &events);
        for (text, expected) in [
            ("r=page-faults/cpu_seconds", "r=page_faults/cpu_seconds"),
            (
                "r=(page-faults + topdown-fe-bound)/2",
                "r=(page_faults + topdown_fe_bound)/2",
            ),
            (
                "r=LLC-load-misses-topdown-fe-bound",
                "r=LLC-load-misses-topdown-fe-bound",
            ),
            ("r=LLC-load-misses - 1", "r=LLC_load_misses - 1"),
            ("r=a-b", "r=a-b"),
            (
                "r=1e-3*page-faults*page-faults",
                "r=1e-3*page_faults*page_faults",
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }
}
