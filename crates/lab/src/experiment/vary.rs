//! The variants of an experiment: where no source gives a number, each value of a range in place of what files say.

use super::{
    Experiment, Variant,
    changes::InForce,
    checker::{Checked, Checker},
    file::{self, Choice},
    place::MOST_DRAWS,
};
use perch_sim::stream::Random;

impl Checker<'_> {
    /// The experiment at each value of each parameter, the others as they are, and with all of them drawn.
    pub(super) fn variants(&self, name: &str, file: &file::File) -> Checked<Vec<Variant>> {
        let Some(variation) = &file.variation else {
            return Ok(Vec::new());
        };
        if let Some(empty) = variation.parameter.iter().find(|p| p.values.is_empty()) {
            return Err(self.wrong(empty.name.span(), "a parameter without a value", None));
        }
        if let Some(seeds) = &variation.seeds
            && seeds.get_ref().is_empty()
        {
            return Err(self.wrong(seeds.span(), "no seed, so nothing would run", None));
        }
        let mut all = Vec::new();
        for parameter in &variation.parameter {
            for choice in &parameter.values {
                let label = format!("{} {}", parameter.name.get_ref(), choice.name.get_ref());
                all.push((label, vec![choice]));
            }
        }
        let mut random = Random::new(1);
        let draws = variation.draws.as_ref().map_or(0, |draws| *draws.get_ref());
        if let Some(item) = variation.draws.as_ref().filter(|_| draws > MOST_DRAWS) {
            let message =
                format!("must be from 0 to {MOST_DRAWS}: each is a simulation of all runs");
            return Err(self.wrong(item.span(), message, None));
        }
        for draw in 1..=draws {
            // Also as the files have it.
            let drawn = variation.parameter.iter().filter_map(|parameter| {
                let at = random.below(parameter.values.len() as u64 + 1) as usize;
                parameter.values.get(at)
            });
            all.push((format!("draw {draw}"), drawn.collect()));
        }
        let variant = |(label, choices): (String, Vec<&Choice>)| {
            let mut experiment = self.with(name, file, &choices)?;
            if let Some(seeds) = &variation.seeds {
                experiment.seeds.clone_from(seeds.get_ref());
            }
            Ok(Variant {
                name: label,
                experiment,
            })
        };
        all.into_iter().map(variant).collect()
    }

    /// The experiment with these choices.
    pub(super) fn with(
        &self,
        name: &str,
        file: &file::File,
        choices: &[&Choice],
    ) -> Checked<Experiment> {
        self.in_force.replace(InForce::new(file, choices));
        let experiment = self.experiment(name, file)?;
        let in_force = self.in_force.borrow();
        match in_force.idle() {
            None => Ok(experiment),
            Some(place) => {
                let message = format!("no run has anything at `{}`", place.get_ref());
                Err(self.wrong(place.span(), message, None))
            }
        }
    }
}
