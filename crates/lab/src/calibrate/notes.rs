//! What a reader should know of who contends with whom, in words.

use super::{case::Case, kernels::Kind, plan::Sites};
use perch_policy::{
    Share,
    calibration::{NOTICED, TIGHT},
};

/// A machine is noisy if so many slowdowns are unknown, as a part of all.
const NOISY: f64 = 0.1;

/// Notes on what contends, what does not and what is not known.
pub(super) fn notes(kernels: &[Kind<'_>], sites: &Sites, cases: &[Case<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let contends = |case: &&Case<'_>| case.judged.is_significant() && case.slowdown() >= NOTICED;
    let unknown = |case: &&Case<'_>| !case.judged.is_significant() && case.judged.all.half > TIGHT;
    let of_core = |case: &&Case<'_>| {
        let mut all = case.beside.iter().chain([&case.seat.kernel]);
        case.share == Share::Core && all.all(|kernel| kernels[*kernel].core)
    };
    match sites.levels.iter().any(|level| level.share == Share::Core) {
        false => notes.push(
            "no SMT: no two PUs share a core, so that nobody competes for units, issue slots and the first level"
                .to_owned(),
        ),
        true if !cases.iter().filter(of_core).any(|case| contends(&case) || unknown(&case)) => notes.push(
            "PUs that claim to share a core do not slow each other down in what a core shares: perhaps they are no \
             siblings, and a virtual machine only says so"
                .to_owned(),
        ),
        true => {}
    }
    if sites.levels.is_empty() {
        notes.push("one PU only: there is nobody beside whom anything could run".to_owned());
        return notes;
    }
    let unknown_ones = cases.iter().filter(unknown).count();
    if unknown_ones as f64 > NOISY * cases.len() as f64 {
        notes.push(noisy(kernels, cases, unknown_ones));
    } else if unknown_ones > 0 {
        notes.push(format!(
            "{unknown_ones} of {} slowdowns are unknown: they vary too much to tell; policies take them for no effect",
            cases.len()
        ));
    }
    let any = cases.iter().any(|case| contends(&case));
    if !any {
        let rest = match unknown_ones {
            0 => "it makes no difference who runs beside whom",
            _ => "no difference is known between who runs beside whom",
        };
        notes.push(format!(
            "nothing contends as far as can be told: no kernel was shown to lose more than {:.0} % beside any other, so that {rest}",
            100.0 * (NOTICED - 1.0)
        ));
    }
    if !any || sites.levels.len() == 1 {
        let why = match any {
            true => "each two PUs share the same",
            false => "no slowdown is more than noise",
        };
        notes.push(format!("nothing that placement could use: {why}"));
    }
    notes
}

/// How noisy a machine is.
fn noisy(kernels: &[Kind<'_>], cases: &[Case<'_>], unknown: usize) -> String {
    let size = |case: &Case<'_>| {
        let draws = &case.coupled.noise;
        let squares: f64 = draws.iter().map(|draw| draw * draw).sum();
        (squares / draws.len().max(1) as f64).sqrt().exp_m1()
    };
    let mut sizes: Vec<(f64, usize)> = cases
        .iter()
        .map(|case| (size(case), case.seat.kernel))
        .collect();
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (middle, (most, kernel)) = (sizes[sizes.len() / 2].0, sizes[sizes.len() - 1]);
    format!(
        "this machine is noisy: speeds under the same conditions differ by {:.1} % (median of all slowdowns; most of all \
         {:.0} %, kernel {}), so that {unknown} of {} slowdowns are unknown; policies take them for no effect",
        100.0 * middle,
        100.0 * most,
        kernels[kernel].name,
        cases.len()
    )
}
