//! Checks what is measured, claimed and drawn.

use super::{
    Against, Bar, Claim, Figure, Holds, Line, Mark, Measure, Quantity, Run, Scale, Shape, Sweep,
    Take,
    checker::{Checked, Checker},
    file::{self, Aim, Text},
};
use crate::{placement, published};
use perch_core::diagnostic::did_you_mean;
use perch_profile::formula::Formula;

/// The kinds of claims that have a number of ours.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Within,
    AtLeast,
    AtMost,
}

const KINDS: [(&str, Kind); 3] = [
    ("within", Kind::Within),
    ("at-least", Kind::AtLeast),
    ("at-most", Kind::AtMost),
];

impl Checker<'_> {
    pub(super) fn measure(
        &self,
        name: &Text,
        measure: &file::Measure,
        runs: &[Run],
        sweep: Option<&Sweep>,
    ) -> Checked<Measure> {
        let of = self.choice("quantity", &measure.of, Quantity::all())?;
        let names = || runs.iter().map(|run| run.name.as_str());
        let run = self.reference("run", &measure.run, names())?;
        let per = measure
            .per
            .as_ref()
            .map(|per| self.reference("run", per, names()))
            .transpose()?;
        let points = || {
            sweep
                .iter()
                .flat_map(|sweep| sweep.texts.iter().map(String::as_str))
        };
        let at = measure
            .at
            .iter()
            .map(|at| self.reference("value of the sweep", at, points()));
        if let Some(thread) = &measure.thread {
            let workload = &runs[run].workloads[0];
            let slots = placement::slots(workload);
            self.reference(
                "thread",
                thread,
                slots.iter().map(|slot| slot.kind.as_str()),
            )?;
            if !of.is_of_threads() {
                let message = format!("`{}` is of all threads together", measure.of.get_ref());
                return Err(self.wrong(thread.span(), message, None));
            }
        }
        let parsed = Formula::parse(name.get_ref());
        if !parsed.is_ok_and(|formula| formula.names() == [name.get_ref().as_str()]) {
            let message = format!(
                "`{}` cannot be told from arithmetic in a formula",
                name.get_ref()
            );
            let hint = "write letters, digits and underscores, and begin with no function's name (`min`, `max`, `e`)";
            return Err(self.wrong(name.span(), message, Some(hint.to_owned())));
        }
        Ok(Measure {
            name: name.get_ref().clone(),
            of,
            run,
            per,
            at: at.collect::<Checked<_>>()?,
            only: self.only(measure, of, &runs[run])?,
            thread: measure
                .thread
                .as_ref()
                .map(|thread| thread.get_ref().clone()),
            take: match &measure.take {
                Some(take) => self.choice("way to take", take, Take::ALL.into_iter())?,
                None => Take::Mean,
            },
        })
    }

    /// A formula over measured numbers.
    fn formula(&self, text: &Text, measures: &[Measure]) -> Checked<Formula> {
        // The quotation mark before the text.
        let inside = |at: std::ops::Range<usize>| {
            let start = text.span().start + 1;
            start + at.start..start + at.end
        };
        let formula = Formula::parse(text.get_ref())
            .map_err(|error| self.wrong(inside(error.at.clone()), error.message, None))?;
        for name in formula.names() {
            if !measures.iter().any(|measure| measure.name == *name) {
                let hint = did_you_mean(name, measures.iter().map(|measure| measure.name.as_str()));
                let message = format!("`{name}` is not measured");
                return Err(self.wrong(inside(formula.position(name)), message, hint));
            }
        }
        Ok(formula)
    }

    pub(super) fn claim(&self, claim: &file::Claim, measures: &[Measure]) -> Checked<Claim> {
        let name = claim.name.get_ref().clone();
        let whole = || claim.name.span();
        let (published, place, id) = self.against(claim)?;
        let (ours, holds) = match (&claim.ours, &claim.rising) {
            (Some(ours), None) => {
                let ours = self.formula(ours, measures)?;
                (vec![ours], self.tolerated(claim)?)
            }
            (None, Some(rising)) if rising.get_ref().len() >= 2 => {
                if let Some(kind) = &claim.kind {
                    return Err(self.wrong(kind.span(), "an ordering has no other kind", None));
                }
                let ours = rising
                    .get_ref()
                    .iter()
                    .map(|text| self.formula(text, measures));
                let margin = self.tolerance(claim)?;
                (ours.collect::<Checked<_>>()?, Holds::Rising(margin))
            }
            (None, Some(rising)) => {
                return Err(self.wrong(rising.span(), "an ordering of two or more formulas", None));
            }
            _ => {
                let message = "a claim has either `ours`, a formula, or `rising`, a list of them";
                return Err(self.wrong(whole(), message, None));
            }
        };
        let wants_number = matches!(
            holds,
            Holds::Within(_) | Holds::AtLeast(_) | Holds::AtMost(_)
        );
        if wants_number && matches!(published, Against::Words(_)) {
            return Err(self.wrong(
                whole(),
                "what is published is no number: say `rising` or `between`",
                None,
            ));
        }
        let is_spread = |name: &String| {
            let of = measures.iter().find(|measure| measure.name == *name);
            of.is_some_and(|of| matches!(of.take, Take::Spread | Take::Deviation))
        };
        let names = ours.iter().map(|formula| formula.names());
        let by_chance = match holds {
            Holds::Rising(margin) => {
                let mut names = names.filter(|names| !names.is_empty());
                margin <= 0.0 && names.all(|names| names.iter().all(is_spread))
            }
            _ => false,
        };
        Ok(Claim {
            by_chance,
            name,
            published,
            place,
            ours,
            unit: claim.unit.clone().unwrap_or_default(),
            class: self.class(claim, id.as_deref())?,
            null: self.null(claim, &holds)?,
            id,
            holds,
        })
    }

    /// What ours is held against, where that stands, and its name in the table of published values.
    fn against(&self, claim: &file::Claim) -> Checked<(Against, String, Option<String>)> {
        match (&claim.published, &claim.aim, &claim.place) {
            (Some(id), None, None) => {
                let row = self.published(id)?;
                let value = match row.number() {
                    Some(number) => Against::Number(number),
                    None => Against::Words(row.value.clone()),
                };
                let place = format!("{}, {}", row.paper, row.place);
                Ok((value, place, Some(row.id.clone())))
            }
            (None, Some(aim), Some(place)) => {
                let value = match aim.get_ref() {
                    Aim::Number(number) => Against::Number(*number),
                    Aim::Words(words) => Against::Words(words.clone()),
                };
                Ok((value, place.get_ref().clone(), None))
            }
            _ => {
                let message = "a claim has either `published`, a name of published.tsv, or `aim` and its `place`";
                Err(self.wrong(claim.name.span(), message, None))
            }
        }
    }

    /// A row of the table of published values.
    fn published(&self, id: &Text) -> Checked<&'static published::Published> {
        published::find(id.get_ref()).ok_or_else(|| {
            let known = published::all().iter().map(|row| row.id.as_str());
            let message = format!("no published value `{}`", id.get_ref());
            self.wrong(id.span(), message, did_you_mean(id.get_ref(), known))
        })
    }

    /// A published value to be drawn.
    fn mark(
        &self,
        id: &Text,
        times: &Option<Text>,
        divides: &Option<Text>,
        measures: &[Measure],
    ) -> Checked<Mark> {
        let Some(published) = self.published(id)?.number() else {
            let message = "what is published is no number: it cannot be drawn";
            return Err(self.wrong(id.span(), message, None));
        };
        let scale = match (times, divides) {
            (None, None) => Scale::None,
            (Some(times), None) => Scale::Times(self.formula(times, measures)?),
            (None, Some(divides)) => Scale::Divides(self.formula(divides, measures)?),
            (Some(_), Some(divides)) => {
                let message = "`divides` beside `times`: it is one of both";
                return Err(self.wrong(divides.span(), message, None));
            }
        };
        Ok(Mark { published, scale })
    }

    fn tolerated(&self, claim: &file::Claim) -> Checked<Holds> {
        let kind = match &claim.kind {
            Some(kind) => self.choice("kind of claim", kind, KINDS.into_iter())?,
            None => Kind::Within,
        };
        if let Some(between) = &claim.between {
            let [least, most] = *between.get_ref();
            let alone = claim.tolerance.is_none() && matches!(kind, Kind::Within);
            if !alone {
                return Err(self.wrong(
                    between.span(),
                    "`between` is a tolerance of its own",
                    None,
                ));
            }
            // Also what is no number is not in order.
            if least.is_nan() || most.is_nan() || least > most {
                return Err(self.wrong(between.span(), "the lower bound comes first", None));
            }
            return Ok(Holds::Between(least, most));
        }
        let tolerance = self.tolerance(claim)?;
        Ok(match kind {
            Kind::Within => Holds::Within(tolerance),
            Kind::AtLeast => Holds::AtLeast(tolerance),
            Kind::AtMost => Holds::AtMost(tolerance),
        })
    }

    fn tolerance(&self, claim: &file::Claim) -> Checked<f64> {
        match &claim.tolerance {
            Some(tolerance) if tolerance.get_ref().is_finite() && *tolerance.get_ref() >= 0.0 => {
                Ok(*tolerance.get_ref())
            }
            Some(tolerance) => Err(self.wrong(tolerance.span(), "a tolerance is 0 or more", None)),
            None => {
                let hint = "it is written down before the run: `tolerance = 0.05`".to_owned();
                Err(self.wrong(claim.name.span(), "a claim without `tolerance`", Some(hint)))
            }
        }
    }

    pub(super) fn figure(
        &self,
        figure: &file::Figure,
        title: String,
        runs: &[Run],
        measures: &[Measure],
        sweep: Option<&Sweep>,
    ) -> Checked<Figure> {
        let shape = match (&figure.of, figure.bars.as_slice(), figure.lines.as_slice()) {
            (None, bars @ [_, ..], []) => {
                let bar = |bar: &file::Bar| {
                    let range = match &bar.range {
                        Some([low, high]) => {
                            Some((self.formula(low, measures)?, self.formula(high, measures)?))
                        }
                        None => None,
                    };
                    Ok(Bar {
                        group: bar.group.clone(),
                        series: bar.series.clone(),
                        value: self.formula(&bar.value, measures)?,
                        range,
                        published: match &bar.published {
                            Some(id) => Some(self.mark(id, &bar.times, &bar.divides, measures)?),
                            None => None,
                        },
                    })
                };
                Shape::Bars(bars.iter().map(bar).collect::<Checked<_>>()?)
            }
            (Some(of), [], lines @ [_, ..]) if sweep.is_some() => {
                let line = |line: &file::Line| {
                    let names = runs.iter().map(|run| run.name.as_str());
                    Ok(Line {
                        series: line.series.clone(),
                        run: self.reference("run", &line.run, names)?,
                    })
                };
                let points = sweep.iter().flat_map(|sweep| &sweep.texts);
                let points: Vec<&str> = points.map(String::as_str).collect();
                let mark = |mark: &file::Mark| {
                    let at =
                        self.reference("value of the sweep", &mark.at, points.iter().copied())?;
                    let published =
                        self.mark(&mark.published, &mark.times, &mark.divides, measures)?;
                    Ok((at, published))
                };
                Shape::Lines {
                    of: self.choice("quantity", of, Quantity::all())?,
                    lines: lines.iter().map(line).collect::<Checked<_>>()?,
                    marks: figure.marks.iter().map(mark).collect::<Checked<_>>()?,
                }
            }
            _ => {
                let at = self.find("[figure]");
                let message = "a figure has either `[[figure.bar]]`, or `of` and `[[figure.line]]` over a sweep";
                return Err(self.wrong(at, message, None));
            }
        };
        Ok(Figure {
            title: figure.title.clone().unwrap_or(title),
            x: figure.x.clone(),
            y: figure.y.clone(),
            shape,
        })
    }
}
