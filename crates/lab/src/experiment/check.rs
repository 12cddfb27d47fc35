//! From a file as it is written to an experiment that is sound.

use super::{
    Experiment, Measure, Place, Run, Span, Sweep, Times,
    checker::{Checked, Checker},
    file::{self, Text},
    quantity,
};
use crate::error::Diagnostic;
use perch_sim::{config, detail::Fidelity, model::MachineModel, workload::WorkloadModel};
use std::{cell::RefCell, path::Path, sync::Arc, time::Duration};

pub(super) fn read(
    name: &str,
    text: &str,
    path: &str,
    sibling: &dyn Fn(&str) -> Result<String, String>,
) -> Checked<Experiment> {
    let checker = Checker {
        path,
        text,
        sibling,
        in_force: RefCell::default(),
    };
    let file: file::File = toml::from_str(text).map_err(|error| checker.toml(&error))?;
    let mut experiment = checker.with(name, &file, &[])?;
    experiment.variants = checker.variants(name, &file)?;
    Ok(experiment)
}

impl Checker<'_> {
    /// The experiment with the changes in force, without its variants.
    pub(super) fn experiment(&self, name: &str, file: &file::File) -> Checked<Experiment> {
        let times = self.times(&file.time)?;
        let sweep = file
            .sweep
            .as_ref()
            .map(|sweep| self.sweep(sweep))
            .transpose()?;
        let mut runs: Vec<Run> = Vec::new();
        for written in &file.runs {
            if runs.iter().any(|run| run.name == *written.name.get_ref()) {
                let message = format!("a second run `{}`", written.name.get_ref());
                return Err(self.wrong(written.name.span(), message, None));
            }
            runs.push(self.run(written, file, times, sweep.as_ref())?);
        }
        let measures: Vec<Measure> = file
            .measure
            .iter()
            .map(|(name, measure)| self.measure(name, measure, &runs, sweep.as_ref()))
            .collect::<Checked<_>>()?;
        let claims = file.claims.iter().map(|claim| self.claim(claim, &measures));
        let claims = claims.collect::<Checked<_>>()?;
        let figure = file.figure.as_ref().map(|figure| {
            let title = file.title.clone();
            self.figure(figure, title, &runs, &measures, sweep.as_ref())
        });
        let seeds = match &file.seeds {
            Some(seeds) if seeds.get_ref().is_empty() => {
                return Err(self.wrong(seeds.span(), "no seed, so nothing would run", None));
            }
            Some(seeds) => seeds.get_ref().clone(),
            None => vec![1],
        };
        Ok(Experiment {
            name: name.to_owned(),
            about: file.about.split_whitespace().collect::<Vec<_>>().join(" "),
            title: file.title.clone(),
            seeds,
            warm: file.warm,
            variants: Vec::new(),
            sweep,
            runs,
            measures,
            claims,
            left_out: (file.left_out.iter())
                .map(|written| self.left_out(written))
                .collect::<Checked<_>>()?,
            figure: figure.transpose()?,
        })
    }

    fn times(&self, time: &file::Time) -> Checked<Times> {
        let length = self.span(&time.length)?;
        if matches!(length, Span::Cycles(0) | Span::Time(Duration::ZERO)) {
            return Err(self.wrong(time.length.span(), "a run of no length", None));
        }
        Ok(Times {
            warm_up: self.span(&time.warm_up)?,
            length,
        })
    }

    pub(super) fn span(&self, text: &Text) -> Checked<Span> {
        let wrong = || {
            self.wrong(
                text.span(),
                "expected a time, as in \"20000 cycles\" or \"3 s\"",
                None,
            )
        };
        quantity::span(text.get_ref()).ok_or_else(wrong)
    }

    fn sweep(&self, sweep: &file::Sweep) -> Checked<Sweep> {
        let written = sweep.working_set.get_ref();
        if written.is_empty() {
            return Err(self.wrong(sweep.working_set.span(), "a sweep without a value", None));
        }
        let bytes = |text: &Text| {
            quantity::bytes(text.get_ref()).map_err(|why| self.wrong(text.span(), why, None))
        };
        let values: Vec<u64> = written.iter().map(bytes).collect::<Checked<_>>()?;
        if let Some(at) = values.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(self.wrong(
                written[at + 1].span(),
                "not greater than the value before",
                None,
            ));
        }
        Ok(Sweep {
            label: "working set of a thread".to_owned(),
            values,
            texts: written.iter().map(|text| text.get_ref().clone()).collect(),
        })
    }

    fn run(
        &self,
        run: &file::Run,
        file: &file::File,
        times: Times,
        sweep: Option<&Sweep>,
    ) -> Checked<Run> {
        let machine = Arc::new(self.machine(&run.machine)?);
        let workload = self.workload(&run.workload)?;
        let workloads = match (sweep, &file.sweep) {
            (Some(sweep), Some(written)) => self.swept(&workload, run, sweep, written)?,
            _ => vec![Arc::new(workload)],
        };
        let place = self.place(run, &machine, &workloads[0])?;
        let shuffled = match &run.shuffled {
            Some(shuffled) if !matches!(place, Place::Default | Place::Policy { .. }) => {
                let message =
                    "placed beforehand: the order in which threads start makes no difference";
                return Err(self.wrong(shuffled.span(), message, None));
            }
            Some(shuffled) => *shuffled.get_ref(),
            None => false,
        };
        let times = run
            .time
            .as_ref()
            .map_or(Ok(times), |time| self.times(time))?;
        let fidelity = match run.fidelity.as_ref().or(file.fidelity.as_ref()) {
            Some(name) => self.choice("fidelity", name, Fidelity::ALL.into_iter())?,
            None => Fidelity::default(),
        };
        Ok(Run {
            name: run.name.get_ref().clone(),
            machine,
            workloads,
            place,
            shuffled,
            fidelity,
            times,
        })
    }

    fn machine(&self, name: &Text) -> Checked<MachineModel> {
        let wrong = |error: config::ConfigError| self.wrong(name.span(), error.to_string(), None);
        let wanted = name.get_ref();
        let text = match wanted.contains('/') {
            true => self.neighbour(name)?,
            false => {
                let shipped = config::shipped_machines();
                let Some(file) = shipped.iter().find(|file| file.name == *wanted) else {
                    return config::find_machine(wanted).map_err(wrong);
                };
                file.text.to_owned()
            }
        };
        let changed = self.in_force.borrow_mut().machine(&text);
        let read = |text: &str| config::machine_from_text(text, Path::new(wanted));
        read(changed.as_deref().unwrap_or(&text)).map_err(|error| {
            let in_force = self.in_force.borrow();
            let accepted = |text: &str| read(text).is_ok();
            match in_force.culprit_of_machine(&text, &accepted) {
                Some(change) => self.wrong_change(change, wanted, error),
                None => wrong(error),
            }
        })
    }

    fn workload(&self, name: &Text) -> Checked<WorkloadModel> {
        let wrong = |error: config::ConfigError| self.wrong(name.span(), error.to_string(), None);
        let wanted = name.get_ref();
        let text = match wanted.contains('/') {
            true => self.neighbour(name)?,
            false => {
                let shipped = config::shipped_workloads();
                let Some(file) = shipped.iter().find(|file| file.name == *wanted) else {
                    return config::find_workload(wanted).map_err(wrong);
                };
                file.text.to_owned()
            }
        };
        let shipped_path = config::workload_path(wanted);
        let path = match wanted.contains('/') {
            true => Path::new(wanted),
            false => &shipped_path,
        };
        let neighbour =
            |path: &Path| (self.sibling)(&path.to_string_lossy()).map_err(std::io::Error::other);
        let files: &dyn Fn(&Path) -> std::io::Result<String> = match wanted.contains('/') {
            true => &neighbour,
            false => &config::read_shipped,
        };
        // Changes reach imported mixes too.
        let whole = config::expanded(&text, path, files);
        let to_change = whole.as_deref().unwrap_or(&text);
        let changed = self.in_force.borrow_mut().workload(to_change);
        let read = |text: &str| config::workload_with(text, path, files);
        read(changed.as_deref().unwrap_or(&text)).map_err(|error| {
            let in_force = self.in_force.borrow();
            let accepted = |text: &str| read(text).is_ok();
            match in_force.culprit_of_workload(to_change, &accepted) {
                Some(change) => self.wrong_change(change, wanted, error),
                None => wrong(error),
            }
        })
    }

    /// A change that makes the file of a machine or a workload wrong. The changed file is nowhere to be seen, so the change
    /// is shown.
    fn wrong_change(
        &self,
        change: &Text,
        file: &str,
        error: config::ConfigError,
    ) -> Box<Diagnostic> {
        let (message, hint) = match error {
            config::ConfigError::Diagnostic(mistake) => (mistake.message, mistake.hint),
            other => (other.to_string(), None),
        };
        self.wrong(change.span(), format!("in `{file}`: {message}"), hint)
    }

    fn neighbour(&self, name: &Text) -> Checked<String> {
        (self.sibling)(name.get_ref()).map_err(|why| {
            let message = format!("{}: {why}", name.get_ref());
            self.wrong(
                name.span(),
                message,
                Some("paths are relative to this file".to_owned()),
            )
        })
    }

    /// The workload with each value of the sweep.
    fn swept(
        &self,
        workload: &WorkloadModel,
        run: &file::Run,
        sweep: &Sweep,
        written: &file::Sweep,
    ) -> Checked<Vec<Arc<WorkloadModel>>> {
        let mixes = workload.mixes.iter().map(|mix| mix.name.as_str());
        let only = match &written.mix {
            Some(mix) => Some(self.reference("mix", mix, mixes)?),
            None => None,
        };
        let is_swept = |mix: usize| only.is_none_or(|only| only == mix);
        let mut swept = workload
            .mixes
            .iter()
            .enumerate()
            .filter(|(mix, _)| is_swept(*mix));
        if swept.all(|(_, mix)| mix.working_sets.is_empty()) {
            let message = format!("`{}` has no working set to be varied", workload.name);
            return Err(self.wrong(run.workload.span(), message, None));
        }
        let with = |bytes: &u64| {
            let mut workload = workload.clone();
            let mixes = workload.mixes.iter_mut().enumerate();
            let mixes = mixes.filter(|(mix, _)| is_swept(*mix));
            for set in mixes.flat_map(|(_, mix)| &mut mix.working_sets) {
                set.bytes = *bytes;
            }
            Arc::new(workload)
        };
        Ok(sweep.values.iter().map(with).collect())
    }
}
