//! Checks who places the threads of a run.

use super::{
    Chosen, Place, Span,
    checker::{Checked, Checker},
    file::{self, Text},
};
use crate::placement;
use perch_core::diagnostic::did_you_mean;
use perch_policy::{Inputs, PolicyError, registry};
use perch_sim::{model::MachineModel, workload::WorkloadModel};
use std::ops::Range;

/// Random placements or draws of an experiment at most.
pub(super) const MOST_DRAWS: usize = 10_000;

/// Placements that a search looks at, at most.
const MOST_PLACEMENTS: usize = 1_000_000;

/// More placements than these are not tried where the file says nothing.
const MOST: usize = 2_000;

impl Checker<'_> {
    pub(super) fn place(
        &self,
        run: &file::Run,
        machine: &MachineModel,
        workload: &WorkloadModel,
    ) -> Checked<Place> {
        let given: Vec<(&str, Range<usize>)> = [
            ("policy", run.policy.as_ref().map(Text::span)),
            ("pus", run.pus.as_ref().map(toml::Spanned::span)),
            ("cores", run.cores.as_ref().map(toml::Spanned::span)),
            ("random", run.random.as_ref().map(toml::Spanned::span)),
            ("search", run.search.as_ref().map(Text::span)),
        ]
        .into_iter()
        .filter_map(|(name, span)| Some((name, span?)))
        .collect();
        if let [(first, _), (second, span), ..] = given.as_slice() {
            let message = format!("`{second}` beside `{first}`: only one can place the threads");
            return Err(self.wrong(span.clone(), message, None));
        }
        let belongs = |given: bool, span: Option<Range<usize>>, what: &str| match span {
            Some(span) if !given => Err(self.wrong(span, format!("only with `{what}`"), None)),
            _ => Ok(()),
        };
        belongs(
            run.policy.is_some(),
            run.options.as_ref().map(toml::Spanned::span),
            "policy",
        )?;
        belongs(
            run.policy.is_some(),
            run.period.as_ref().map(Text::span),
            "policy",
        )?;
        belongs(
            run.search.is_some(),
            run.most.as_ref().map(toml::Spanned::span),
            "search",
        )?;
        if let Some((name, span)) = given.first()
            && *name != "policy"
            && let Some(program) = workload.programs.iter().find(|p| p.start > 0 || p.restart)
        {
            let message = format!(
                "`{}` starts later or again: it cannot be placed beforehand",
                program.name
            );
            return Err(self.wrong(span.clone(), message, None));
        }
        if let Some(policy) = &run.policy {
            return self.policy(policy, run);
        }
        if let Some(pus) = &run.pus {
            return self.listed(pus, machine, workload);
        }
        if let Some(cores) = &run.cores {
            return self.by_core(cores, machine, workload).map(Place::Listed);
        }
        if let Some(draws) = &run.random {
            return match *draws.get_ref() {
                0 => Err(self.wrong(draws.span(), "no draw, so nothing would run", None)),
                draws @ 1..=MOST_DRAWS => Ok(Place::Random(draws)),
                _ => Err(self.wrong(
                    draws.span(),
                    format!("must be from 1 to {MOST_DRAWS}: each is a simulation"),
                    None,
                )),
            };
        }
        let Some(search) = &run.search else {
            return Ok(Place::Default);
        };
        let known = [
            ("every", Chosen::Every),
            ("best", Chosen::Best),
            ("worst", Chosen::Worst),
        ];
        let most = match &run.most {
            Some(most) if *most.get_ref() == 0 => {
                return Err(self.wrong(most.span(), "no placement, so nothing would run", None));
            }
            Some(most) if *most.get_ref() > MOST_PLACEMENTS => {
                let message = format!("must be from 1 to {MOST_PLACEMENTS}: each is a simulation");
                return Err(self.wrong(most.span(), message, None));
            }
            Some(most) => *most.get_ref(),
            None => MOST,
        };
        Ok(Place::Search {
            chosen: self.choice("search", search, known.into_iter())?,
            most,
        })
    }

    fn policy(&self, policy: &Text, run: &file::Run) -> Checked<Place> {
        let options = run
            .options
            .as_ref()
            .map(|options| options.get_ref().clone());
        let options = options.unwrap_or_default();
        let name = policy.get_ref();
        let inputs = Inputs::read(name, &options).and_then(|inputs| {
            registry::build(name, &options, &inputs)?;
            Ok(inputs)
        });
        let inputs = inputs.map_err(|error| {
            let options = run.options.as_ref().map(toml::Spanned::span);
            let at = match &error {
                PolicyError::UnknownPolicy { .. } => policy.span(),
                _ => options.unwrap_or_else(|| policy.span()),
            };
            self.wrong(at, error.to_string(), None)
        })?;
        let period = match &run.period {
            None => None,
            Some(text) => match self.span(text)? {
                Span::Time(period) if !period.is_zero() => Some(period),
                _ => {
                    return Err(self.wrong(
                        text.span(),
                        "expected a period, as in \"100 ms\"",
                        None,
                    ));
                }
            },
        };
        Ok(Place::Policy {
            name: name.clone(),
            options,
            inputs,
            period,
        })
    }

    fn listed(
        &self,
        pus: &toml::Spanned<Vec<u32>>,
        machine: &MachineModel,
        workload: &WorkloadModel,
    ) -> Checked<Place> {
        let slots = placement::slots(workload);
        let threads = slots.len();
        let list = pus.get_ref();
        if list.len() != threads {
            let plural = if list.len() == 1 { "" } else { "s" };
            let message = format!("{} PU{plural} for {threads} threads", list.len());
            return Err(self.wrong(pus.span(), message, None));
        }
        if let Some(pu) = list.iter().find(|pu| **pu as usize >= machine.pus()) {
            let message = format!("no PU {pu}: the machine has {}", machine.pus());
            return Err(self.wrong(pus.span(), message, None));
        }
        let elsewhere =
            |(pu, slot): &(&u32, &placement::Slot)| !slot.pus.is_empty() && !slot.pus.contains(pu);
        if let Some((pu, slot)) = list.iter().zip(&slots).find(elsewhere) {
            let message = format!("PU {pu} for `{}`, which its file pins to others", slot.kind);
            let hint = format!("its `pus` are {:?}", slot.pus);
            return Err(self.wrong(pus.span(), message, Some(hint)));
        }
        Ok(Place::Listed(list.clone()))
    }

    /// The names of threads by core, as the paper's table 1 has them.
    fn by_core(
        &self,
        cores: &toml::Spanned<Vec<Vec<Text>>>,
        machine: &MachineModel,
        workload: &WorkloadModel,
    ) -> Checked<placement::Placement> {
        let slots = placement::slots(workload);
        let mut placed = vec![None; slots.len()];
        if cores.get_ref().len() != machine.cores.len() {
            let message = format!(
                "{} cores; the machine has {}",
                cores.get_ref().len(),
                machine.cores.len()
            );
            return Err(self.wrong(cores.span(), message, None));
        }
        let mut first = 0;
        for (core, names) in machine.cores.iter().zip(cores.get_ref()) {
            let contexts = machine.kind(core).contexts;
            for (at, name) in names.iter().enumerate() {
                if at as u32 >= contexts {
                    let message = format!("the core has {contexts} contexts");
                    return Err(self.wrong(name.span(), message, None));
                }
                let wanted = name.get_ref();
                let free = (0..slots.len())
                    .find(|slot| placed[*slot].is_none() && slots[*slot].kind == *wanted);
                let Some(slot) = free else {
                    let hint = did_you_mean(wanted, slots.iter().map(|slot| slot.kind.as_str()));
                    let message = format!("no thread `{wanted}` that is not placed yet");
                    return Err(self.wrong(name.span(), message, hint));
                };
                placed[slot] = Some(first + at as u32);
            }
            first += contexts;
        }
        if let Some(slot) = placed.iter().position(Option::is_none) {
            let message = format!("a thread `{}` is placed nowhere", slots[slot].kind);
            return Err(self.wrong(cores.span(), message, None));
        }
        Ok(placed.into_iter().flatten().collect())
    }
}
