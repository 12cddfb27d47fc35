//! What a user should know before threads are placed without a calibration of the machine, or with another one's.

use crate::config::{DEFAULT_POLICY, Settings};
use perch_core::{Remark, ShareLevel, Topology};
use perch_policy::{Calibration, registry};
use std::path::Path;

/// A remark where neither the user nor a calibration has chosen the policy, and placement may matter. The figures are those
/// of docs/tournament.md.
pub fn remark(settings: &Settings, topology: &Topology) -> Option<Remark> {
    let unchosen = settings.policy_is_default && settings.policy == DEFAULT_POLICY;
    (unchosen && has_sharing(topology)).then(|| {
        let text = format!(
            "this machine is not calibrated: policy {DEFAULT_POLICY} does not know what sharing costs here, and on random \
             workloads it loses to the kernel about as often as it gains; run `perch calibrate` once, or check with `perch \
             compare`"
        );
        Remark::note("uncalibrated", text)
    })
}

/// A remark if the calibration that a policy reads was measured on another processor. The nodes of a cluster may share a
/// calibration, so hosts' names do not matter.
pub fn foreign(settings: &Settings, topology: &Topology) -> Option<Remark> {
    let (policy, file) =
        registry::calibration_file(&settings.policy, &settings.policy_config).ok()?;
    // A pipe can be read only once.
    let file = Some(Path::new(file?)).filter(|file| file.is_file())?;
    let measured = Calibration::read(file).ok()?.machine;
    let models = topology.packages.iter().map(|package| package.model.trim());
    let model = models.into_iter().find(|model| !model.is_empty());
    let is_other = match model {
        Some(model) => !measured.ends_with(model),
        None => measured.ends_with("(simulated)"),
    };
    is_other.then(|| {
        let text = format!(
            "the calibration of policy {policy} is that of another machine ({measured}; this one has {}): what sharing costs \
             here may be something else; run `perch calibrate`",
            model.unwrap_or("a processor without a name")
        );
        Remark::warning("calibration-of-another-machine", text)
    })
}

/// Whether PUs share a core or a cache that others do not share.
fn has_sharing(topology: &Topology) -> bool {
    let levels = [ShareLevel::Core, ShareLevel::L2, ShareLevel::Llc];
    levels.into_iter().any(|level| {
        let domains = topology.domains(level);
        domains.len() > 1 && domains.iter().any(|domain| domain.pus.len() > 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::PlaceArgs, config::ConfigFile};
    use clap::{Args, FromArgMatches};
    use perch_linux::topology::{Source, load};

    fn said(policy: Option<&str>, file: &str, topology: &str) -> bool {
        let command = PlaceArgs::augment_args(clap::Command::new("perch"));
        let mut words = vec!["perch"];
        words.extend(policy.iter().flat_map(|policy| ["--policy", policy]));
        let matches = command.try_get_matches_from(words).unwrap();
        let args = PlaceArgs::from_arg_matches(&matches).unwrap();
        let file: ConfigFile = toml::from_str(file).unwrap();
        let settings = Settings::merged(&args, file, || DEFAULT_POLICY).unwrap();
        let machine = load(&Source::from_text(topology)).unwrap();
        remark(&settings, &machine.topology).is_some()
    }

    #[test]
    fn a_policy_that_was_chosen_and_a_machine_without_sharing_need_no_remark() {
        let smt = "package:1 core:4 pu:2";
        assert!(said(None, "", smt));
        assert!(said(None, "", "package:2 core:2 pu:1"));
        assert!(!said(Some("workover"), "", smt));
        assert!(!said(None, "policy = 'workover'", smt));
        assert!(!said(Some("cpi"), "", smt));
        assert!(!said(None, "", "package:1 core:2 pu:1"));
    }
}
