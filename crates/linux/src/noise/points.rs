//! The tracepoints by which perch sees what runs on a PU, and how a record of one becomes an event.

use super::{
    event::{Kind, Source, SourceId, What},
    tracefs::{Field, Format, Tracefs},
};
use perch_core::text;
use rustc_hash::FxHashMap;
use std::{collections::HashMap, sync::Arc};

/// Soft interrupts by their numbers (`include/linux/interrupt.h`).
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// The task state bits that say that a thread waits or has ended; with none of them it still wants a PU
/// (`include/linux/sched.h`, `TASK_REPORT`).
const WAITING: u64 = 0x7f;
/// Idle threads of the kernel wait, too (`TASK_REPORT_IDLE`).
const IDLE: u64 = 0x80;

/// A record may raise this interrupt, so the kernel refuses records of its end (`irq_work_exit` in
/// `arch/x86/include/asm/trace/irq_vectors.h`).
const UNSAMPLED: [&str; 1] = ["irq_work"];

/// What a tracepoint tells.
#[derive(Debug, Clone)]
enum Tells {
    Switch {
        from: Field,
        state: Field,
        to: Field,
        name: Field,
    },
    IrqEntry {
        number: Field,
        name: Field,
    },
    IrqExit {
        number: Field,
    },
    SoftirqEntry(Field),
    SoftirqExit(Field),
    /// An interrupt of the PU itself, with its name.
    LocalEntry(Arc<str>),
    LocalExit(Arc<str>),
    Work(Field),
    WorkDone,
    /// How long a handler of an NMI took.
    Nmi(Field),
}

/// The tracepoints of this kernel, by their numbers.
#[derive(Debug, Clone)]
pub(super) struct Points(FxHashMap<u16, Tells>);

impl Points {
    /// Those that the kernel has; `None` if it has not even that of switches.
    pub fn of(tracefs: &Tracefs) -> Option<Self> {
        let mut points = Self(FxHashMap::default());
        let switch = tracefs.format("sched", "sched_switch")?;
        points.add(Some(switch), |format| {
            Some(Tells::Switch {
                from: format.field("prev_pid")?,
                state: format.field("prev_state")?,
                to: format.field("next_pid")?,
                name: format.field("next_comm")?,
            })
        });
        if points.0.is_empty() {
            return None;
        }
        points.add(tracefs.format("irq", "irq_handler_entry"), |format| {
            Some(Tells::IrqEntry {
                number: format.field("irq")?,
                name: format.field("name")?,
            })
        });
        points.add(tracefs.format("irq", "irq_handler_exit"), |format| {
            let number = format.field("irq")?;
            Some(Tells::IrqExit { number })
        });
        let vector =
            |tells: fn(Field) -> Tells| move |format: &Format| format.field("vec").map(tells);
        points.add(
            tracefs.format("irq", "softirq_entry"),
            vector(Tells::SoftirqEntry),
        );
        points.add(
            tracefs.format("irq", "softirq_exit"),
            vector(Tells::SoftirqExit),
        );
        points.add(
            tracefs.format("workqueue", "workqueue_execute_start"),
            |format| format.field("function").map(Tells::Work),
        );
        points.add(tracefs.format("workqueue", "workqueue_execute_end"), |_| {
            Some(Tells::WorkDone)
        });
        points.add(tracefs.format("nmi", "nmi_handler"), |format| {
            format.field("delta_ns").map(Tells::Nmi)
        });
        // x86 has a pair for each vector, other processors one for all inter-processor interrupts.
        for subsystem in ["irq_vectors", "ipi"] {
            for event in tracefs.events(subsystem) {
                let (name, entry) = match event.strip_suffix("_entry") {
                    Some(name) => (name, true),
                    None => match event.strip_suffix("_exit") {
                        Some(name) => (name, false),
                        None => continue,
                    },
                };
                if UNSAMPLED.contains(&name) {
                    continue;
                }
                let name: Arc<str> = Arc::from(name);
                points.add(tracefs.format(subsystem, &event), |_| match entry {
                    true => Some(Tells::LocalEntry(name)),
                    false => Some(Tells::LocalExit(name)),
                });
            }
        }
        Some(points)
    }

    fn add(&mut self, format: Option<Format>, tells: impl FnOnce(&Format) -> Option<Tells>) {
        if let Some(format) = format
            && let Some(tells) = tells(&format)
        {
            self.0.insert(format.id, tells);
        }
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.keys().copied()
    }
}

/// Sources as they are known while events are read: threads by number, functions by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Raw {
    /// A thread and its name.
    Task(i32, String),
    /// A function of the kernel, by its address.
    Function(u64),
    /// Something that has its name already.
    Named(Source),
}

/// Reads records of one PU.
#[derive(Debug)]
pub(super) struct Decoder {
    points: Arc<Points>,
    known: HashMap<Raw, SourceId>,
    sources: Vec<Raw>,
    /// The last name of each thread, so that a switch to one that is known costs no text.
    tasks: FxHashMap<i32, ([u8; 16], SourceId)>,
    /// The sources of interrupts that have begun.
    irqs: FxHashMap<u64, SourceId>,
    softirqs: FxHashMap<u64, SourceId>,
    locals: FxHashMap<Arc<str>, SourceId>,
}

impl Decoder {
    pub fn new(points: Arc<Points>) -> Self {
        Self {
            points,
            known: HashMap::new(),
            sources: Vec::new(),
            tasks: FxHashMap::default(),
            irqs: FxHashMap::default(),
            softirqs: FxHashMap::default(),
            locals: FxHashMap::default(),
        }
    }

    /// What a record tells; `None` for bytes that are no such record.
    pub fn read(&mut self, record: &[u8]) -> Option<What> {
        let id = u16::from_ne_bytes(*record.first_chunk()?);
        let points = Arc::clone(&self.points);
        Some(match points.0.get(&id)? {
            Tells::Switch {
                from,
                state,
                to,
                name,
            } => {
                let state = state.number(record)?;
                let to = to.number(record)? as i32;
                What::Switch {
                    from: from.number(record)? as i32,
                    done: state & (WAITING | IDLE) != 0,
                    to,
                    source: self.task(to, name.text(record)?),
                }
            }
            Tells::IrqEntry { number, name } => {
                let number = number.number(record)?;
                let source = match self.irqs.get(&number) {
                    Some(source) => *source,
                    None => {
                        let name = text::name(name.text(record)?);
                        let source = self.named(Kind::Irq, format!("{name} (IRQ {number})"));
                        self.irqs.insert(number, source);
                        source
                    }
                };
                What::Enter(source)
            }
            Tells::IrqExit { number } => What::Exit(*self.irqs.get(&number.number(record)?)?),
            Tells::SoftirqEntry(vector) => {
                let vector = vector.number(record)?;
                What::Enter(self.softirq(vector))
            }
            Tells::SoftirqExit(vector) => {
                let vector = vector.number(record)?;
                What::Exit(self.softirq(vector))
            }
            Tells::LocalEntry(name) => What::Enter(self.local(name)),
            Tells::LocalExit(name) => What::Exit(self.local(name)),
            Tells::Work(function) => {
                let function = function.number(record)?;
                What::Work(self.source(Raw::Function(function)))
            }
            Tells::WorkDone => What::WorkDone,
            Tells::Nmi(took) => {
                let source = self.named(Kind::Nmi, "NMI".to_owned());
                What::Nmi(source, took.number(record)?)
            }
        })
    }

    /// What sources are, by their numbers.
    pub fn into_sources(self) -> Vec<Raw> {
        self.sources
    }

    fn task(&mut self, tid: i32, name: &[u8]) -> SourceId {
        let mut bytes = [0; 16];
        let length = name.len().min(bytes.len());
        bytes[..length].copy_from_slice(&name[..length]);
        match self.tasks.get(&tid) {
            // Worker threads of the kernel are renamed all the time; idle threads all have number 0.
            Some((known, source)) if *known == bytes || tid == 0 => *source,
            _ => {
                let source = match tid {
                    0 => self.named(Kind::Idle, "idle".to_owned()),
                    _ => self.source(Raw::Task(tid, text::name(name))),
                };
                self.tasks.insert(tid, (bytes, source));
                source
            }
        }
    }

    fn softirq(&mut self, vector: u64) -> SourceId {
        if let Some(source) = self.softirqs.get(&vector) {
            return *source;
        }
        let name = match SOFTIRQS.get(vector as usize) {
            Some(name) => (*name).to_owned(),
            None => format!("softirq {vector}"),
        };
        let source = self.named(Kind::Softirq, name);
        self.softirqs.insert(vector, source);
        source
    }

    fn local(&mut self, name: &Arc<str>) -> SourceId {
        if let Some(source) = self.locals.get(name) {
            return *source;
        }
        let source = self.named(Kind::LocalIrq, name.to_string());
        self.locals.insert(Arc::clone(name), source);
        source
    }

    fn named(&mut self, kind: Kind, name: String) -> SourceId {
        self.source(Raw::Named(Source {
            kind,
            name,
            user: None,
        }))
    }

    fn source(&mut self, raw: Raw) -> SourceId {
        if let Some(id) = self.known.get(&raw) {
            return *id;
        }
        let id = self.sources.len() as SourceId;
        self.sources.push(raw.clone());
        self.known.insert(raw, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const HEAD: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n";

    /// A tree with some tracepoints as Linux 6.18 describes them.
    fn points() -> Arc<Points> {
        let folder = tempfile::tempdir().unwrap();
        let event = |path: &str, id: u16, fields: &str| {
            let path = folder.path().join("events").join(path);
            fs::create_dir_all(&path).unwrap();
            let text = format!("name: x\nID: {id}\nformat:\n{HEAD}\n{fields}\nprint fmt: \"\"\n");
            fs::write(path.join("format"), text).unwrap();
        };
        event(
            "sched/sched_switch",
            372,
            "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
             \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
             \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
             \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n",
        );
        event(
            "irq/softirq_entry",
            223,
            "\tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;\n",
        );
        event("irq_vectors/local_timer_entry", 90, "");
        event("irq_vectors/local_timer_exit", 91, "");
        event("irq_vectors/vector_alloc", 92, "");
        Arc::new(Points::of(&Tracefs::at(folder.path())).unwrap())
    }

    fn switch(from: i32, state: u64, to: i32, name: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 60];
        record[..2].copy_from_slice(&372u16.to_ne_bytes());
        record[24..28].copy_from_slice(&from.to_ne_bytes());
        record[32..40].copy_from_slice(&state.to_ne_bytes());
        record[40..40 + name.len()].copy_from_slice(name);
        record[56..60].copy_from_slice(&to.to_ne_bytes());
        record
    }

    #[test]
    fn records_become_events_and_names_are_printable() {
        let mut decoder = Decoder::new(points());
        assert_eq!(decoder.points.ids().count(), 4);
        let read = decoder.read(&switch(7, 0x100, 8, b"bad\x1b[2J")).unwrap();
        let expected = What::Switch {
            from: 7,
            done: false,
            to: 8,
            source: 0,
        };
        assert_eq!(read, expected);
        let Some(What::Switch { done, source, .. }) = decoder.read(&switch(8, 1, 0, b"swapper/1"))
        else {
            panic!("no switch");
        };
        assert!(done && source == 1);
        let mut softirq = vec![0; 12];
        softirq[..2].copy_from_slice(&223u16.to_ne_bytes());
        softirq[8] = 9;
        assert_eq!(decoder.read(&softirq), Some(What::Enter(2)));
        let timer = |id: u16| id.to_ne_bytes();
        assert_eq!(decoder.read(&timer(90)), Some(What::Enter(3)));
        assert_eq!(decoder.read(&timer(91)), Some(What::Exit(3)));
        assert_eq!(decoder.read(&timer(92)), None);
        let sources = decoder.into_sources();
        assert_eq!(sources[0], Raw::Task(8, "bad\\x1b[2J".to_owned()));
        let named = |kind, name: &str| {
            Raw::Named(Source {
                kind,
                name: name.to_owned(),
                user: None,
            })
        };
        assert_eq!(sources[1], named(Kind::Idle, "idle"));
        assert_eq!(sources[2], named(Kind::Softirq, "RCU"));
        assert_eq!(sources[3], named(Kind::LocalIrq, "local_timer"));
    }

    proptest! {
        #[test]
        fn any_record_is_survived(
            id in prop_oneof![Just(372u16), Just(223), Just(90), any::<u16>()],
            rest in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut record = id.to_ne_bytes().to_vec();
            record.extend(rest);
            let mut decoder = Decoder::new(points());
            let _ = decoder.read(&record);
        }
    }
}
