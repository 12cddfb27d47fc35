//! Reads the programs of a workload: threads and what they do.

use super::{
    arrivals,
    kind::MOST_PUS,
    quantity::TIME,
    step::{self, Names, is_endless, often, takes_time},
    table::{Checked, Item, Table},
};
use crate::workload::{DeviceModel, Mix, ProgramModel, Step, ThreadModel};

/// Threads of a workload at most, all copies of its programs together.
const MOST_THREADS: u64 = 65_536;

/// The programs, in the order of the file.
pub(super) fn read(
    item: Item<'_>,
    mixes: &[Mix],
    devices: &[DeviceModel],
) -> Checked<Vec<ProgramModel>> {
    let mut programs: Vec<ProgramModel> = Vec::new();
    let mut threads = 0;
    for table in item.tables(
        "a program",
        &[
            "name", "count", "start", "restart", "system", "arrivals", "threads",
        ],
    )? {
        let program = one(&table, mixes, devices)?;
        if programs.iter().any(|other| other.name == program.name) {
            return Err(table
                .need("name")?
                .wrong(format!("a second program `{}`", program.name)));
        }
        let each: u64 = program
            .threads
            .iter()
            .map(|thread| u64::from(thread.count))
            .sum();
        threads += each * u64::from(program.count);
        if threads > MOST_THREADS {
            return Err(table.wrong(format!(
                "{threads} threads with this program; {MOST_THREADS} is the most"
            )));
        }
        programs.push(program);
    }
    match programs.iter().any(|program| !program.system) {
        true => Ok(programs),
        false => Err(item.wrong_hint(
            "all programs are work of the operating system",
            Some("leave `system = true` away where it is the work that counts".to_owned()),
        )),
    }
}

fn one(table: &Table<'_>, mixes: &[Mix], devices: &[DeviceModel]) -> Checked<ProgramModel> {
    let name = table.need("name")?.text()?.to_owned();
    let count = table
        .get("count")
        .map_or(Ok(1), |count| count.whole(1..=MOST_THREADS as u32))?;
    let start = table
        .get("start")
        .map_or(Ok(0), |start| start.quantity(&TIME))?;
    let requests = table.get("arrivals").map(arrivals::read).transpose()?;
    let tables = table.need("threads")?.tables(
        "a thread",
        &["name", "count", "nice", "pus", "repeat", "serves", "steps"],
    )?;
    let mut kinds: Vec<&str> = Vec::new();
    for table in &tables {
        let item = table.need("name")?;
        let name = item.text()?;
        if kinds.contains(&name) {
            let message = format!("a second thread `{name}`: give one `count`, or another name");
            return Err(item.wrong(message));
        }
        kinds.push(name);
    }
    let names = Names {
        mixes,
        devices,
        kinds: &kinds,
    };
    let threads: Vec<ThreadModel> = tables
        .iter()
        .map(|table| thread(table, names, requests.is_some()))
        .collect::<Checked<_>>()?;
    they_can_live(&tables, &threads)?;
    let serves = |thread: &ThreadModel| thread.steps.first() == Some(&Step::Receive);
    if let Some(item) = table.get("arrivals")
        && !threads.iter().any(serves)
    {
        return Err(item.wrong_hint(
            "no thread of the program serves the requests",
            Some("give one `serves = true`".to_owned()),
        ));
    }
    let restart = match table.get("restart") {
        None => false,
        Some(item) => {
            let restart = item.flag()?;
            let endless = |thread: &&ThreadModel| restart && thread.is_endless(requests.as_ref());
            if let Some(thread) = threads.iter().find(endless) {
                return Err(item.wrong(format!(
                    "`{}` never ends, so the program is never started again",
                    thread.name
                )));
            }
            restart
        }
    };
    Ok(ProgramModel {
        name,
        count,
        start,
        restart,
        system: table.get("system").map_or(Ok(false), Item::flag)?,
        requests,
        threads,
    })
}

/// Every kind is started by something, at least one from the beginning, and repeats nothing that takes no time.
fn they_can_live(tables: &[Table<'_>], threads: &[ThreadModel]) -> Checked<()> {
    let started = |kind: usize| {
        let mut steps = threads.iter().flat_map(|thread| &thread.steps);
        steps.any(|step| matches!(step, Step::Spawn { kind: other, .. } if *other == kind))
    };
    for (kind, (table, thread)) in tables.iter().zip(threads).enumerate() {
        if thread.count == 0 && !started(kind) {
            return Err(table.need("count")?.wrong(format!(
                "no thread has a step `spawn = \"{}\"`, so there is never one",
                thread.name
            )));
        }
        let lasts = |step: &Step| match step {
            Step::Join(kind) => threads[*kind].steps.iter().any(takes_time),
            step => takes_time(step),
        };
        if thread.repeat > 1 && !thread.steps.iter().any(lasts) {
            let what = match thread.steps.first() {
                Some(Step::Receive) => "a request needs no time",
                _ => "repeated, but no step takes time",
            };
            return Err(table
                .need("steps")?
                .wrong(format!("{what}: add a `compute`, an `io` or a `sleep`")));
        }
    }
    match threads.iter().any(|thread| thread.count > 0) {
        true => Ok(()),
        false => Err(tables[0]
            .need("count")?
            .wrong("the program begins without any thread")),
    }
}

fn thread(table: &Table<'_>, names: Names<'_>, requests: bool) -> Checked<ThreadModel> {
    let name = table.need("name")?.text()?.to_owned();
    let count = table
        .get("count")
        .map_or(Ok(1), |count| count.whole(0..=MOST_THREADS as u32))?;
    let mut repeat = table.get("repeat").map_or(Ok(1), often)?;
    let items = table.need("steps")?.some()?;
    let mut steps = step::read(&items, names, MOST_THREADS as u32)?;
    if let Some(serves) = table.get("serves")
        && serves.flag()?
    {
        if !requests {
            return Err(serves.wrong_hint(
                "no requests come to the program",
                Some("give the program `arrivals = { rate = \"100 / s\" }`".to_owned()),
            ));
        }
        if let Some(item) = table.get("repeat") {
            return Err(
                item.wrong("a thread that serves goes on while requests come: leave `repeat` away")
            );
        }
        if let Some((item, _)) = items.iter().zip(&steps).find(|(_, step)| is_endless(step)) {
            return Err(item.wrong("without an end: the request would never be done"));
        }
        steps.insert(0, Step::Receive);
        steps.push(Step::Reply);
        repeat = u64::MAX;
    }
    Ok(ThreadModel {
        name,
        count,
        steps,
        repeat,
        nice: table
            .get("nice")
            .map_or(Ok(0), |nice| nice.whole(-20..=19))?,
        pus: table.get("pus").map_or(Ok(Vec::new()), pus)?,
    })
}

/// The PUs of a mask, each once.
fn pus(item: Item<'_>) -> Checked<Vec<u32>> {
    let mut pus = Vec::new();
    for item in item.some()? {
        let pu = item.whole(0..=MOST_PUS - 1)?;
        if pus.contains(&pu) {
            return Err(item.wrong(format!("PU {pu} is in the list already")));
        }
        pus.push(pu);
    }
    Ok(pus)
}
