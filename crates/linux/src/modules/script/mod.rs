//! A program as a module: it reads and writes JSON lines (docs/modules.md). One that hangs or exits costs its own values
//! and nothing else.

mod process;
mod protocol;

use super::Entry;
use perch_core::{
    MachineError, Metric, MetricInfo, MetricName, MetricScope, MetricSource, Metrics, Module,
    ModuleContext, ModuleValues, Need, Reading, Remark, Subject, ThreadEvent, ThreadId,
    WantedEvents, text,
};
use process::{Lost, Process};
use protocol::{Hello, Request, VERSION, Value, Values};
use rustc_hash::FxHashMap;
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long it may take to say what it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take to answer at most, and at least; between them, a quarter of the interval.
const ANSWER_WITHIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// So many answers in a row may be missing before it is ended.
const MOST_MISSES: u32 = 5;

/// Whether a line is one that a program may answer. For tests: any line must be survived.
pub fn is_answer(line: &str) -> bool {
    Hello::parse(line).is_ok() || serde_json::from_str::<Values>(line).is_ok()
}

/// The module.
pub struct ScriptModule {
    program: PathBuf,
    hello: Hello,
    /// `None` after it failed.
    process: Option<Process>,
    seq: u64,
    /// Answers in a row that did not come in time.
    misses: u32,
    names: FxHashMap<String, (MetricName, MetricInfo)>,
    remarks: Vec<Remark>,
}

impl ScriptModule {
    /// Starts a program and asks it what it is.
    ///
    /// # Errors
    /// A program that is not there, hangs, exits, or speaks something else.
    pub fn start(program: &Path) -> Result<Self, MachineError> {
        let mut process = Process::start(program)?;
        let wrong = |why: String| MachineError::Other(format!("{}: {why}", program.display()));
        process.queue(&line(&Request::Hello { protocol: VERSION }));
        let answer = process.line(Instant::now() + HELLO_WITHIN);
        let answer = answer.map_err(|Lost(why)| wrong(why))?;
        let Some(answer) = answer else {
            return Err(wrong(format!(
                "it did not answer hello within {} s; a module reads JSON lines from standard input and flushes what it \
                 writes (docs/modules.md){}",
                HELLO_WITHIN.as_secs(),
                process.said()
            )));
        };
        let hello = Hello::parse(&answer).map_err(wrong)?;
        let names = hello.metrics.iter().map(|metric| {
            let name = metric.name.to_string();
            (name, (MetricName::clone(&metric.name), metric.clone()))
        });
        Ok(Self {
            program: program.to_owned(),
            names: names.collect(),
            hello,
            process: Some(process),
            seq: 0,
            misses: 0,
            remarks: Vec::new(),
        })
    }

    /// Gives it up, and says why.
    fn give_up(&mut self, why: &str) {
        if self.process.take().is_some() {
            let text = format!(
                "module {} ({}) is not asked any more: {why}",
                self.hello.name,
                text::printable(&self.program.to_string_lossy())
            );
            let remark = Remark::error("module-failed", text);
            self.remarks.push(remark.keyed(self.hello.name.clone()));
        }
    }

    /// Asks for the values of an interval; `None` if there is no answer in time.
    fn ask(&mut self, context: &ModuleContext<'_>) -> Result<Option<Values>, Lost> {
        self.seq += 1;
        let Some(process) = &mut self.process else {
            return Ok(None);
        };
        // One that does not read is not sent more and more.
        if !process.is_behind() {
            let threads = context.threads.iter();
            process.ask(&line(&Request::Sample {
                seq: self.seq,
                interval_s: context.interval as f64 / 1e9,
                threads: self
                    .hello
                    .threads
                    .then(|| threads.map(Into::into).collect()),
            }));
        }
        let (least, most) = ANSWER_WITHIN;
        let time = Duration::from_nanos(context.interval / 4).clamp(least, most);
        let until = Instant::now() + time;
        while let Some(answer) = process.line(until)? {
            let values: Values = serde_json::from_str(&answer)
                .map_err(|error| Lost(format!("it answers what is no list of values: {error}")))?;
            // Answers to earlier questions came too late.
            if values.seq == self.seq {
                return Ok(Some(values));
            }
        }
        Ok(None)
    }

    fn take(&mut self, values: Values, context: &ModuleContext<'_>) -> ModuleValues {
        let mut taken = ModuleValues::default();
        let mut threads: FxHashMap<ThreadId, Metrics> = FxHashMap::default();
        let ids: FxHashMap<i32, ThreadId> = match self.provides_of_threads() {
            true => {
                let ids = context.threads.iter().map(|thread| thread.info.id);
                ids.map(|id| (id.tid, id)).collect()
            }
            false => FxHashMap::default(),
        };
        let mut ignored = None;
        for value in values.values {
            let Some((name, info)) = self.names.get(&value.name) else {
                ignored = Some(format!("it has no metric {}", text::printable(&value.name)));
                continue;
            };
            if !value.value.is_finite() {
                ignored = Some(format!("{name} is no number"));
                continue;
            }
            let metric = Metric {
                value: value.value,
                confidence: value.confidence.clamp(0.0, 1.0),
                source: MetricSource::Sensor,
            };
            match about(&value, info.scope, &ids) {
                // It would be in totals, but in no row.
                Some(About::Other(Subject::Pu(pu))) if context.topology.pu(pu).is_none() => {
                    ignored = Some(format!("{name}: there is no PU {pu} here"));
                }
                Some(About::Thread(id)) => {
                    let metrics = threads.entry(id).or_default();
                    metrics.set(MetricName::clone(name), metric);
                }
                Some(About::Other(subject)) => taken.readings.push(Reading {
                    subject,
                    name: MetricName::clone(name),
                    kind: info.kind,
                    metric,
                }),
                // A thread that has exited meanwhile is no mistake.
                None if value.tid.is_some() => {}
                None => {
                    ignored = Some(format!(
                        "{name} is declared as a metric of each {0}, but a value does not say of which {0}",
                        info.scope.name()
                    ));
                }
            }
        }
        if let Some(why) = ignored {
            let text = format!("module {}: values are ignored: {why}", self.hello.name);
            let remark = Remark::warning("module-values", text);
            self.remarks.push(remark.keyed(self.hello.name.clone()));
        }
        taken.threads = threads.into_iter().collect();
        taken
    }

    fn provides_of_threads(&self) -> bool {
        let mut metrics = self.hello.metrics.iter();
        metrics.any(|metric| metric.scope == MetricScope::Thread)
    }
}

/// What a value is about.
enum About {
    Thread(ThreadId),
    Other(Subject),
}

fn about(value: &Value, scope: MetricScope, ids: &FxHashMap<i32, ThreadId>) -> Option<About> {
    Some(match scope {
        MetricScope::Thread => About::Thread(*ids.get(&value.tid?)?),
        MetricScope::Process => About::Other(Subject::Process(value.pid?)),
        MetricScope::Pu => About::Other(Subject::Pu(value.pu?)),
        MetricScope::Package => About::Other(Subject::Package(value.package?)),
        MetricScope::Machine => About::Other(Subject::Machine),
    })
}

fn line(request: &Request<'_>) -> String {
    serde_json::to_string(request).unwrap_or_default()
}

impl Module for ScriptModule {
    fn name(&self) -> &str {
        &self.hello.name
    }

    fn provides(&self) -> Vec<MetricInfo> {
        self.hello.metrics.clone()
    }

    fn needs(&self) -> Vec<Need> {
        let events = self.hello.events.iter();
        events
            .map(|event| Need::Event(event.clone().into()))
            .collect()
    }

    fn wants(&self) -> WantedEvents {
        match self.process {
            Some(_) => self.hello.wants,
            None => WantedEvents::default(),
        }
    }

    fn thread_event(&mut self, event: ThreadEvent<'_>) {
        // What one that hangs does not read is lost.
        if let Some(process) = self.process.as_mut().filter(|_| self.misses == 0) {
            process.queue(&line(&event.into()));
        }
    }

    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        match self.ask(context) {
            Ok(Some(values)) => {
                self.misses = 0;
                Ok(self.take(values, context))
            }
            Ok(None) => {
                self.misses += 1;
                if self.misses >= MOST_MISSES {
                    let said = self.process.as_ref().map(Process::said).unwrap_or_default();
                    self.give_up(&format!(
                        "it did not answer {MOST_MISSES} times in a row{said}"
                    ));
                }
                Ok(ModuleValues::default())
            }
            Err(Lost(why)) => {
                self.give_up(&why);
                Ok(ModuleValues::default())
            }
        }
    }

    fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    fn description(&self) -> String {
        let program = self.program.to_string_lossy();
        format!("{} by {}", self.hello.name, text::printable(&program))
    }
}

impl Entry {
    /// A program as a module. It is started to learn what it provides.
    ///
    /// # Errors
    /// As [`ScriptModule::start`].
    pub fn script(program: &Path) -> Result<Self, MachineError> {
        let first = ScriptModule::start(program)?;
        let hello = first.hello.clone();
        let needs = first.needs();
        // The first one that is asked for runs already.
        let first = Mutex::new(Some(first));
        let path = program.to_owned();
        let open = move |_: &_| {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            let module = match first.take() {
                Some(module) => module,
                None => ScriptModule::start(&path)?,
            };
            Ok(Box::new(module) as Box<dyn Module>)
        };
        Ok(Self {
            name: hello.name.into(),
            summary: hello.about.into(),
            metrics: hello.metrics,
            needs,
            how: super::How::Opened(Box::new(open)),
        })
    }
}
