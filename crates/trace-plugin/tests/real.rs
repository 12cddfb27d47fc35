//! Real programs, recorded under qemu and held against what is known of them.

use perch_sim::{
    config,
    counters::Counters,
    detail::{Detail, Fidelity},
    model::Op,
    os::SchedulerModel,
    system::System,
};
use perch_skip::skip;
use perch_trace::{
    Class, Cursor, Limits, Recording,
    record::{Format, Options, Outcome, PACKAGE, PLUGIN, Tools, record},
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicUsize},
};
use tempfile::TempDir;

/// As in `counted.c`.
const ROUNDS: usize = 5000;
const STRIDE: u64 = 256;
const CELLS: usize = 1000;

/// qemu and the plugin, which cargo builds beside the tests; nothing where there is no qemu.
fn tools() -> Result<Tools, impl std::fmt::Display> {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let plugin = folders.map(|f| f.join(PLUGIN)).find(|file| file.is_file());
    let plugin = plugin.expect("cargo builds the plugin before its tests");
    let found = Tools::find(Some(&plugin));
    if let Err(error) = &found {
        assert!(error.to_string().contains(PACKAGE), "{error}");
    }
    found
}

/// The program of `counted.c`.
fn counted(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counted.c");
    let program = folder.join("counted");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source);
    assert!(compiler.status().unwrap().success());
    program
}

fn options(program: PathBuf, output: PathBuf) -> Options {
    Options {
        command: vec![OsString::from(&program)],
        program,
        output,
        format: Format::Perch,
        instructions: 1_000_000,
        skip: 0,
        stop: false,
    }
}

fn made(options: &Options, tools: &Tools) -> Outcome {
    record(options, tools, &AtomicUsize::new(0), &mut |_| {}).unwrap()
}

fn read(path: &Path) -> Arc<Recording> {
    Arc::new(perch_trace::read(path, &Limits::default()).unwrap())
}

/// Executions of each instruction of a thread, by its number in the table, and the addresses of its first access.
fn executions(recording: &Arc<Recording>, thread: usize) -> Vec<Vec<u64>> {
    let mut executions = vec![Vec::new(); recording.table().codes().len()];
    let mut cursor = Cursor::new(Arc::clone(recording), thread).unwrap();
    while let Some(instruction) = cursor.next() {
        let address = instruction.addresses.first().copied().unwrap_or(0);
        executions[instruction.id as usize].push(address);
    }
    executions
}

#[test]
fn a_program_is_recorded_as_it_is_known_to_run() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => return skip!(Tool, "{error}"),
    };
    let folder = TempDir::new().unwrap();
    let options = options(counted(folder.path()), folder.path().join("counted.trace"));
    let outcome = made(&options, &tools);
    assert_eq!(outcome.status.code(), Some(7));
    let recording = read(&options.output);
    assert_eq!(recording.threads().len(), 2);
    assert_eq!(perch_trace::Summary::of(&recording), outcome.summary);

    // The main thread: its chain of multiplications, and a branch that is taken each time but the last.
    let main = executions(&recording, 0);
    let code = |id: usize| recording.table().code(id as u32);
    let chain = |id: &usize| code(*id).class == Class::Fp && main[*id].len() == ROUNDS;
    assert_eq!((0..main.len()).filter(chain).count(), 1);
    let mut cursor = Cursor::new(Arc::clone(&recording), 0).unwrap();
    let mut after_chain = false;
    let (mut taken, mut fell) = (0, 0);
    while let Some(instruction) = cursor.next() {
        if instruction.code.branch.is_some() && after_chain {
            taken += usize::from(instruction.taken);
            fell += usize::from(!instruction.taken);
            after_chain = false;
        }
        after_chain |= chain(&(instruction.id as usize));
    }
    assert_eq!((taken, fell), (ROUNDS - 1, 1));

    // The other: stores of four bytes, each a stride behind the last.
    let other = executions(&recording, 1);
    let walks = (0..other.len()).filter(|id| {
        let accesses = &code(*id).accesses;
        accesses.len() == 1
            && accesses[0].store
            && accesses[0].bytes == 4
            && other[*id].len() == CELLS
            && other[*id]
                .windows(2)
                .all(|pair| pair[1] - pair[0] == STRIDE)
    });
    assert_eq!(walks.count(), 1);
    let told = &outcome.summary.threads[1];
    assert!(told.data_lines >= CELLS as u64 && told.stores >= CELLS as u64);
}

#[test]
fn every_instruction_follows_the_one_before() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => return skip!(Tool, "{error}"),
    };
    let folder = TempDir::new().unwrap();
    let options = options("/bin/true".into(), folder.path().join("true.trace"));
    let outcome = made(&options, &tools);
    assert_eq!(outcome.status.code(), Some(0));
    let recording = read(&options.output);
    let mut cursor = Cursor::new(Arc::clone(&recording), 0).unwrap();
    let (mut end, mut instructions, mut repeated) = (None, 0, 0);
    while let Some(instruction) = cursor.next() {
        let code = instruction.code;
        // A repeated string instruction is executed once for each repetition.
        let follows = end.is_none_or(|(begin, end)| [begin, end].contains(&code.address));
        assert!(follows, "{code:x?} after {end:x?}");
        repeated += usize::from(end.is_some_and(|(begin, _)| begin == code.address));
        end = (!instruction.taken).then(|| (code.address, code.end()));
        instructions += 1;
    }
    assert!(instructions > 10_000, "{instructions}");
    assert!(repeated < instructions / 2);
}

#[test]
fn only_what_was_asked_for_is_recorded() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => return skip!(Tool, "{error}"),
    };
    let folder = TempDir::new().unwrap();
    let whole = options(counted(folder.path()), folder.path().join("whole.trace"));
    let all = made(&whole, &tools).summary;
    let part = Options {
        instructions: 1234,
        skip: 20_000,
        output: folder.path().join("part.trace"),
        ..whole.clone()
    };
    let some = made(&part, &tools).summary;
    assert!(all.threads[0].instructions > 25_000);
    assert_eq!(some.threads[0].instructions, 1234);
    let endless = Options {
        command: vec!["sh".into(), "-c".into(), "while :; do :; done".into()],
        program: "/bin/sh".into(),
        instructions: 200_000,
        stop: true,
        output: folder.path().join("endless.trace"),
        ..whole
    };
    let outcome = made(&endless, &tools);
    assert!(outcome.stopped);
    assert_eq!(outcome.summary.instructions(), 200_000);
}

#[test]
fn a_recording_is_simulated_in_address_spaces_of_its_own() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => return skip!(Tool, "{error}"),
    };
    let folder = TempDir::new().unwrap();
    let options = options(counted(folder.path()), folder.path().join("counted.trace"));
    made(&options, &tools);
    let workload = r#"
about = "The same recording twice"
[mixes.counted]
trace = "counted.trace"
[[programs]]
name = "a"
[[programs.threads]]
name = "t"
count = 2
steps = [{ compute = "counted", instructions = "300k" }]
[[programs]]
name = "b"
[[programs.threads]]
name = "t"
steps = [{ compute = "counted", instructions = "300k" }]
"#;
    let path = folder.path().join("twice.toml");
    let model = config::workload_from_text(workload, &path).unwrap();
    let machine = Arc::new(config::find_machine("smt2-zen").unwrap());
    let run = |fidelity| {
        let model = Arc::new(model.clone());
        let detail = Detail::new(fidelity, &machine, &model);
        let machine = Arc::clone(&machine);
        let mut system = System::at(&detail, machine, model, SchedulerModel::default(), 1);
        system.run(u64::MAX / 2).unwrap();
        let counted: Vec<_> = system
            .threads()
            .iter()
            .map(|t| (t.cycles, t.counters))
            .collect();
        counted
    };
    let counted = run(Fidelity::Cycle);
    assert_eq!(counted, run(Fidelity::Cycle));
    for (_, counters) in &counted {
        assert_eq!(counters.instructions(), 300_000);
    }
    // Both begin with the recording's first thread.
    assert!(counted[0].1 != counted[1].1);

    // At the interval level the same threads execute the same operations, as far as each counts expected numbers.
    let roughly = run(Fidelity::Interval);
    assert_eq!(roughly, run(Fidelity::Interval));
    for ((_, exact), (cycles, counters)) in counted.iter().zip(&roughly) {
        assert_eq!(counters.instructions(), 300_000);
        assert!(*cycles > 300_000 / 6, "more than its core can issue");
        let fp = |counters: &Counters| counters.ops[Op::Fp as usize];
        assert!(fp(counters).abs_diff(fp(exact)) <= 3_000 + fp(exact) / 4);
    }

    let wrong = workload.replace("counted.trace\"", "counted.trace\"\nthread = 3");
    let error = config::workload_from_text(&wrong, &path)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("twice.toml:5:10: the recording has the threads 1 to 2"),
        "{error}"
    );
    let wrong = workload.replace("counted.trace", "nothing.trace");
    let error = config::workload_from_text(&wrong, &path)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("twice.toml:4:9: ") && error.contains("No such file"),
        "{error}"
    );
}

/// Whatever is recorded for ChampSim, it reads as branches of the kinds that they are.
#[test]
fn champsim_gets_each_thread_as_a_file() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => return skip!(Tool, "{error}"),
    };
    let folder = TempDir::new().unwrap();
    let program = counted(folder.path());
    let options = Options {
        format: Format::ChampSim,
        ..options(program, folder.path().join("counted.champsimtrace.gz"))
    };
    let outcome = made(&options, &tools);
    let names: BTreeSet<_> = outcome
        .files
        .iter()
        .filter_map(|f| f.file_name()?.to_str())
        .collect();
    assert_eq!(
        names,
        ["counted.1.champsimtrace.gz", "counted.2.champsimtrace.gz"].into()
    );
    assert!(!options.output.exists());
    for (file, told) in outcome.files.iter().zip(&outcome.summary.threads) {
        let recording = read(file);
        let back = &perch_trace::Summary::of(&recording).threads[0];
        assert_eq!(back.instructions, told.instructions);
        assert_eq!(back.classes["branch"], told.classes["branch"]);
        assert_eq!(back.taken, told.taken);
    }
}
