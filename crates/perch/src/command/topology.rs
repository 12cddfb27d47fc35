//! `perch topology`: what a machine is made of and what is on it.

use crate::{
    args::TopologyArgs,
    processor,
    render::{
        topology::{PuLoad, draw},
        wrapped,
    },
};
use anyhow::Result;
use perch_core::{ShareLevel, Topology};
use perch_linux::{
    load,
    topology::{Source, load as load_topology},
};
use perch_profile::Profile;
use std::{collections::BTreeMap, process::ExitCode, time::Duration};

/// How long the PUs are watched.
const WINDOW: Duration = Duration::from_millis(200);

/// Draws or prints the machine.
///
/// # Errors
/// A description or file that is wrong, a profile that is not there.
pub fn topology(args: &TopologyArgs) -> Result<ExitCode> {
    let source = args
        .topology
        .as_deref()
        .map_or(Source::Native, Source::from_text);
    let loaded = load_topology(&source)?;
    if args.json {
        super::print_json(&loaded.topology)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = processor::choose(args.profile.as_deref(), &source, &loaded)?;
    let mut on_it = BTreeMap::new();
    if source == Source::Native && !args.no_load {
        let loads = load::watch(WINDOW);
        on_it.extend(loads.into_iter().map(|load| {
            (
                load.pu,
                PuLoad {
                    busy: load.busy,
                    thread: load.thread,
                },
            )
        }));
    }
    let mut text = draw(&loaded.topology, &on_it);
    text += &format!(
        "\n{}{}\n",
        wrapped(&format!("profile {}: ", chosen.profile.name), &chosen.why),
        sharing(&chosen.profile, &loaded.topology)
    );
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Which PUs share floating-point units, as a sentence.
pub fn sharing(profile: &Profile, topology: &Topology) -> String {
    let domains = profile.fp_domains(topology);
    let most = domains
        .iter()
        .map(|domain| domain.pus.len())
        .max()
        .unwrap_or(0);
    if most <= 1 {
        return "No two PUs share floating-point units: perch has nothing to gain from them here."
            .to_owned();
    }
    let level = match profile.fp_share_level() {
        ShareLevel::Pu => "PU",
        ShareLevel::Core => "core",
        ShareLevel::L2 => "module (L2 cache)",
        ShareLevel::Llc => "LLC domain",
        ShareLevel::Package => "package",
    };
    format!("The {most} PUs of each {level} share its floating-point units.")
}
