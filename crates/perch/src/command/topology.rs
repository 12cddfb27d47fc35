//! `perch topology`: what a machine is made of and what is on it.

use crate::{
    args::TopologyArgs,
    command::place::Output,
    processor,
    render::{
        self,
        svg::{
            self, Anchor, Canvas, INK,
            machine::{Marks, PuMark},
        },
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
    if let Some(file) = &args.svg {
        let picture = picture(&loaded.topology, &chosen.profile, &on_it);
        return match file.as_os_str() == "-" {
            true => super::print(&picture),
            false => Output::open(file)?.write(&picture),
        }
        .map(|()| ExitCode::SUCCESS);
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

/// PUs beyond these have no room for more than their number.
const LABELLED: usize = 256;

/// Pixels of the title at most: a description may be of any length.
const TITLE: i32 = 900;

/// The machine as SVG; PUs of which the load is known are shaded.
fn picture(topology: &Topology, profile: &Profile, load: &BTreeMap<u32, PuLoad>) -> String {
    let units = profile.unit_domains(topology);
    let labels = !load.is_empty() && topology.pus.len() <= LABELLED;
    let digits = topology.pus.last().map_or(1, |pu| pu.os.to_string().len()) as i32;
    let mark = |pu: u32| {
        let load = load.get(&pu)?;
        Some(PuMark {
            colour: svg::machine::shade(load.busy),
            label: format!("{:.0} %", load.busy * 100.0),
        })
    };
    let marks = Marks {
        width: if labels { 44 } else { 24.max(8 + 7 * digits) },
        labels,
        of: &mark,
    };
    let mut canvas = Canvas::default();
    let title = render::topology::summary(topology).replace('\n', " ");
    canvas.text(&svg::cut(&title, TITLE, 13), (0, 8), 13, Anchor::Left, INK);
    let area = svg::machine::machine(&mut canvas, (-5, 18), topology, &units, &marks);
    let below = area.y + area.h;
    svg::machine::legend(
        &mut canvas,
        (0, below + 10),
        topology,
        &units,
        !load.is_empty(),
    );
    let text = format!("profile {}: {}", profile.name, sharing(profile, topology));
    canvas.text(&text, (0, below + 36), 11, Anchor::Left, INK);
    canvas.svg()
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
