//! `perch lab run tournament`: all policies against each other.

use crate::render::{self, progress::Bar};
use anyhow::{Result, anyhow, bail};
use perch_core::diagnostic::did_you_mean;
use perch_lab::tournament::{Rules, picture, play};
use std::{path::Path, process::ExitCode};

/// What it is called among experiments.
pub const NAME: &str = "tournament";

/// What of it is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Workloads a machine at most.
    pub workloads: Option<u64>,
    /// The machines; all of the rules if there are none.
    pub machines: &'a [String],
    /// Where the picture goes.
    pub figures: Option<&'a Path>,
}

/// What it is, in a line.
pub fn title() -> String {
    let rules = Rules::shipped();
    format!(
        "all policies on {} random workloads and {} machines",
        workloads(&rules),
        rules.machines.len()
    )
}

/// Whether these names mean the tournament.
///
/// # Errors
/// It is misspelt or named together with experiments, or what only it takes is given without it.
pub fn is_meant(names: &[String], wanted: &Wanted<'_>) -> Result<bool> {
    if names == [NAME] {
        return Ok(true);
    }
    if names.iter().any(|name| name == NAME) {
        bail!("the tournament has tables of its own: run `perch lab run tournament` by itself");
    }
    for name in names.iter().filter(|name| !name.ends_with(".toml")) {
        if let Some(hint) = did_you_mean(name, [NAME]) {
            bail!("no experiment `{name}`; {hint}");
        }
    }
    if wanted.workloads.is_some() || !wanted.machines.is_empty() {
        bail!("--workloads and --machine belong to `perch lab run tournament`");
    }
    Ok(false)
}

/// Plays it and prints tables, or JSON.
///
/// # Errors
/// A machine that does not take part, a policy that cannot be run, a file that cannot be written.
pub fn tournament(wanted: &Wanted<'_>, json: bool) -> Result<ExitCode> {
    let rules = narrowed(Rules::shipped(), wanted)?;
    let bar = Bar::new(true, workloads(&rules));
    bar.says("calibrating the machines");
    let done = |finished: usize, count: usize| {
        bar.says(match finished == count {
            true => "judging again at the cycle level",
            false => NAME,
        });
        bar.is_at(finished as u64);
    };
    let outcome = play(&rules, done).map_err(|why| anyhow!("the tournament: {why}"))?;
    drop(bar);
    if let Some(folder) = wanted.figures {
        let svg = picture(&outcome).map_err(|why| anyhow!("the picture cannot be drawn: {why}"))?;
        super::lab::write(&folder.join(format!("{NAME}.svg")), &svg)?;
    }
    match json {
        true => super::print_json(&outcome)?,
        false => super::print(&render::tournament::tournament(&outcome))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn workloads(rules: &Rules) -> u64 {
    rules.machines.iter().map(|machine| machine.workloads).sum()
}

/// The rules with only the machines and workloads that are wanted.
fn narrowed(mut rules: Rules, wanted: &Wanted<'_>) -> Result<Rules> {
    for name in wanted.machines {
        let mut known = rules.machines.iter().map(|machine| machine.name.as_str());
        if !known.clone().any(|known| known == name) {
            let hint = did_you_mean(name, known.clone()).unwrap_or_else(|| {
                format!(
                    "there are {}",
                    known.by_ref().collect::<Vec<_>>().join(", ")
                )
            });
            bail!("machine `{name}` takes no part in the tournament; {hint}");
        }
    }
    if !wanted.machines.is_empty() {
        let wanted = |name: &String| wanted.machines.contains(name);
        rules.machines.retain(|machine| wanted(&machine.name));
    }
    if let Some(most) = wanted.workloads {
        let machines = rules.machines.iter_mut();
        machines.for_each(|machine| machine.workloads = machine.workloads.min(most));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_narrows_the_rules() {
        let machines = ["core2-quad".to_owned(), "smt2-zen".to_owned()];
        let wanted = Wanted {
            workloads: Some(3),
            machines: &machines,
            figures: None,
        };
        let rules = narrowed(Rules::shipped(), &wanted).unwrap();
        let found = rules
            .machines
            .iter()
            .map(|m| (m.name.as_str(), m.workloads));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [("smt2-zen", 3), ("core2-quad", 3)]);
        assert_eq!(rules.contestants, Rules::shipped().contestants);
    }
}
