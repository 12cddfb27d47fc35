//! Reads a workload: its mixes of instructions. The programs are read by [`super::program`].

use super::{
    depends, device,
    import::{self, Place},
    machine::texts,
    program,
    quantity::SIZE,
    recording::{self, Recordings},
    table::{Checked, Item, Source, Table},
};
use crate::{
    model::Op,
    workload::{Depends, Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};
use std::collections::HashMap;

/// Streams draw operations from a table of this many places, so smaller shares would be lost.
const PLACES: f64 = 4096.0;

/// Bytes of a working set at least: a word.
const WORD: u64 = 8;

/// Bytes of a step of [`Pattern::Stride`] where the file says nothing.
const STRIDE: u64 = 64;

/// Bytes that all threads touch together at most: caches tell 2^43 lines apart, of 16 bytes at least.
const MOST_DATA: u128 = 1 << 44;

const PATTERNS: [(&str, Pattern); 2] = [("random", Pattern::Random), ("stride", Pattern::Stride)];

/// Reads and checks a workload; `name` is the file's.
pub(super) fn read(source: Source<'_>, place: &Place<'_>, name: &str) -> Checked<WorkloadModel> {
    let root = source.parse()?;
    let file = Table::new(
        source,
        root.get_ref(),
        0..0,
        "a workload",
        &["about", "sources", "mixes", "devices", "programs"],
    )?;
    let about = file.need("about")?.text()?.to_owned();
    let mut read = Reader {
        sources: texts(file.get("sources"))?,
        ..Reader::default()
    };
    let mixes = file.need("mixes")?.named()?;
    let mixes: Vec<Mix> = mixes
        .into_iter()
        .map(|(name, item)| read.mix(name, item, place))
        .collect::<Checked<_>>()?;
    let devices = device::read(file.get("devices"))?;
    let programs = program::read(file.need("programs")?, &mixes, &devices)?;
    if data(&mixes, &programs) > MOST_DATA {
        return Err(file.wrong(
            "all working sets of all threads together are more than 16 TiB, beyond what addresses tell apart",
        ));
    }
    Ok(WorkloadModel {
        name: name.to_owned(),
        about,
        sources: read.sources,
        mixes,
        devices,
        programs,
    })
}

/// Bytes of all working sets, counted for each mix that a thread executes; at least as much as there is.
fn data(mixes: &[Mix], programs: &[ProgramModel]) -> u128 {
    let of_mix =
        |mix: &Mix| mix.code_bytes + mix.working_sets.iter().map(|set| set.bytes).sum::<u64>();
    let of_step = |step: &Step| match step {
        Step::Compute { mix, .. } => u128::from(of_mix(&mixes[*mix])),
        _ => 0,
    };
    let of_thread = |thread: &ThreadModel| {
        u128::from(thread.count.max(1)) * thread.steps.iter().map(of_step).sum::<u128>()
    };
    let of_program = |program: &ProgramModel| {
        u128::from(program.count) * program.threads.iter().map(of_thread).sum::<u128>()
    };
    programs.iter().map(of_program).sum()
}

/// What mixes of all files have in common.
#[derive(Default)]
struct Reader {
    /// Sizes of the shared regions so far.
    regions: HashMap<String, u64>,
    recordings: Recordings,
    /// Of the workload, then those of the files from which it has mixes.
    sources: Vec<String>,
}

impl Reader {
    fn mix(&mut self, name: &str, item: Item<'_>, place: &Place<'_>) -> Checked<Mix> {
        let table = item.table("a mix", &recording::MIX)?;
        if let Some(from) = table.get("from") {
            let there = |item: Item<'_>, place: &Place<'_>| self.mix(name, item, place);
            let (mix, sources) = import::read(name, &table, from, place, there)?;
            for source in sources {
                if !self.sources.contains(&source) {
                    self.sources.push(source);
                }
            }
            return Ok(mix);
        }
        if let Some(mix) = table.get("mix") {
            return Err(mix.wrong("`mix` belongs to `from`"));
        }
        if let Some(file) = table.get("trace") {
            return recording::read(name, &table, file, place, &mut self.recordings);
        }
        if let Some(thread) = table.get("thread") {
            return Err(thread.wrong("`thread` belongs to `trace`"));
        }
        let sets = match table.get("working-sets") {
            None => Vec::new(),
            Some(sets) => sets.tables(
                "a working set",
                &["size", "share", "pattern", "stride", "region"],
            )?,
        };
        Ok(Mix {
            name: name.to_owned(),
            shares: shares(table.need("shares")?)?,
            depends: table
                .get("depends")
                .map_or(Ok(Depends::default()), depends::read)?,
            extra: table
                .get("extra")
                .map_or(Ok(0), |item| item.whole(0..=u32::from(u16::MAX)))?
                as u16,
            mispredicted: table
                .get("mispredicted")
                .map_or(Ok(0.0), |item| item.number(0.0..=1.0))?,
            code_bytes: match table.get("code") {
                None => 4096,
                Some(item) => {
                    item.quantity_within(&SIZE, 4..=1 << 30, "from 4 B (an instruction) to 1 GiB")?
                }
            },
            working_sets: sets
                .iter()
                .map(|set| working_set(set, &mut self.regions))
                .collect::<Checked<_>>()?,
            trace: None,
        })
    }
}

fn shares(item: Item<'_>) -> Checked<[f64; Op::COUNT]> {
    let table = item.table("the shares", &Op::NAMES)?;
    let mut shares = [0.0; Op::COUNT];
    for op in Op::ALL {
        shares[op as usize] = table
            .get(op.name())
            .map_or(Ok(0.0), |share| share.number(0.0..=1e9))?;
    }
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return Err(item.wrong("no share is above 0: nothing would be executed"));
    }
    let lost = Op::ALL.into_iter().find(|op| {
        (0.0..1.0 / PLACES).contains(&(shares[*op as usize] / total)) && shares[*op as usize] > 0.0
    });
    match lost.and_then(|op| table.get(op.name())) {
        Some(share) => Err(share.wrong(format!(
            "less than a {PLACES}th of all shares is not modelled: leave it away"
        ))),
        None => Ok(shares),
    }
}

fn working_set(table: &Table<'_>, regions: &mut HashMap<String, u64>) -> Checked<WorkingSet> {
    let size = table.need("size")?;
    let bytes = size.quantity_within(&SIZE, WORD..=1 << 40, "from 8 B (a word) to 1 TiB")?;
    let pattern = table
        .get("pattern")
        .map_or(Ok(Pattern::Random), |item| item.choice(&PATTERNS))?;
    let stride = match table.get("stride") {
        None => STRIDE,
        Some(item) if pattern == Pattern::Random => {
            return Err(item.wrong_hint(
                "a random pattern has no stride",
                Some("write `pattern = \"stride\"`, or leave the stride away".to_owned()),
            ));
        }
        Some(item) => item.quantity_within(&SIZE, 1..=1 << 40, "from 1 B to 1 TiB")?,
    };
    let region = match table.get("region") {
        None => None,
        Some(item) => {
            let name = item.text()?;
            let known = *regions.entry(name.to_owned()).or_insert(bytes);
            if known != bytes {
                return Err(size.wrong(format!(
                    "the region `{name}` has {known} B elsewhere, {bytes} B here"
                )));
            }
            Some(name.to_owned())
        }
    };
    let share = match table.get("share") {
        None => 1.0,
        Some(item) => match item.number(0.0..=1e9)? {
            0.0 => return Err(item.wrong("must be above 0: leave out what is never touched")),
            share => share,
        },
    };
    Ok(WorkingSet {
        bytes,
        share,
        pattern,
        stride,
        region,
    })
}
