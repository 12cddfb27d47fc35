//! Complete counts by `valgrind --tool=callgrind --dump-instr=yes`, classified with the code in the ELF files.

use super::{Truth, native_arch, standard_error};
use crate::catalogue::Program;
use crate::estimate::{CPU_TIME, Rights};
use crate::process::Running;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSegment, SegmentFlags};
use perch_sampling::{CodeImage, CodeSource, Decoded, InstructionDecoder, MixSum};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Valgrind without counting takes about this many times as long.
const SLOWDOWN: u32 = 4;
/// Parts into which the time that perch is asked about is divided; a stretch in the middle of each is counted.
const STRETCHES: u32 = 6;
/// Fewer stretches do not say whether a program is the same all along.
const FEWEST_STRETCHES: usize = 3;
/// Time on CPU that one stretch takes; callgrind counts 100 to 300 million instructions a second.
const COUNTING: Duration = Duration::from_millis(500);
/// A program that is counted from beginning to end is cut off after this time on CPU.
const MOST_COUNTING: Duration = Duration::from_secs(5);
/// Give up on a run that does not get its time on CPU, or does not end.
const MOST_WAITING: Duration = Duration::from_secs(180);

/// A stretch with fewer, the remainder after the last, says nothing about how much the program changes.
const FEWEST_INSTRUCTIONS: f64 = 3e6;

/// Executions by instruction address, relative to the object file, by the object's path.
pub type Counts = HashMap<String, HashMap<u64, u64>>;

/// Runs the program under callgrind, and counts stretches spread evenly over the time that perch is asked about: from
/// the end of the start-up on for [`CPU_TIME`], or to the program's end. A program with a `truth_run` is counted from
/// beginning to end.
///
/// # Errors
/// Valgrind is missing or wrote nothing, or too much code cannot be read.
pub fn count(program: &Program, workspace: &Workspace) -> Result<Truth> {
    let folder = workspace.scratch(Rights::Own)?;
    let in_stretches = program.truth_run.is_none();
    let mut words: Vec<String> = ["valgrind", "-q"].map(String::from).into();
    words.extend(
        [
            "--tool=callgrind",
            "--dump-instr=yes",
            "--compress-pos=no",
            "--compress-strings=no",
            "--trace-children=yes",
            if in_stretches {
                "--instr-atstart=no"
            } else {
                "--instr-atstart=yes"
            },
        ]
        .map(String::from),
    );
    let output = folder.path().join("%p.callgrind");
    words.push(format!("--callgrind-out-file={}", output.display()));
    let run = program.truth_run.as_ref().unwrap_or(&program.run);
    words.extend(workspace.expand(run, folder.path()));

    let messages = folder.path().join("messages");
    let mut command = workspace.command(program, &words, folder.path());
    let mut running = Running::start(&mut command, fs::File::create(&messages)?.into())
        .context("apt-get install valgrind")?;
    if in_stretches {
        running.wait_for_cpu_time(program.start_up() * SLOWDOWN, MOST_WAITING)?;
        count_stretches(&mut running)?;
    } else {
        running.wait_for_cpu_time(MOST_COUNTING, MOST_WAITING)?;
    }
    let to_the_end = running.ended()?.is_some();
    running.terminate();
    running.wait_for_end(MOST_WAITING)?;

    let stretches = read_stretches(folder.path())?;
    ensure!(
        !stretches.is_empty(),
        "callgrind counted nothing; it said: {}",
        fs::read_to_string(&messages)?.trim()
    );
    let mut sum = MixSum::default();
    let mut unknown = 0.0;
    let mut shares = Vec::new();
    for counts in stretches.values() {
        let (part, unknown_part) = classify(counts)?;
        if let Some(mix) = part.mix().filter(|_| part.weight() >= FEWEST_INSTRUCTIONS) {
            shares.push(mix.fp_share());
        }
        sum.merge(&part, 1.0);
        unknown += unknown_part;
    }
    let error = if in_stretches {
        ensure!(
            shares.len() >= FEWEST_STRETCHES,
            "only {} stretches of it were counted before it ended",
            shares.len()
        );
        standard_error(&shares)
    } else {
        0.0
    };
    Truth::new(&sum, unknown, error, shares, to_the_end)
}

/// Counts a stretch in the middle of each part of the time.
fn count_stretches(running: &mut Running) -> Result<()> {
    let half = CPU_TIME * SLOWDOWN / STRETCHES / 2;
    for _ in 0..STRETCHES {
        wait(running, half)?;
        let Some((pid, _)) = running.busiest_thread() else {
            return Ok(());
        };
        // It may end at any time.
        if running.ended()?.is_some() || !order(pid, &["instrumentation", "on"])? {
            return Ok(());
        }
        wait(running, COUNTING)?;
        if !order(pid, &["dump"])? || !order(pid, &["instrumentation", "off"])? {
            return Ok(());
        }
        wait(running, half)?;
    }
    Ok(())
}

fn wait(running: &mut Running, cpu_time: Duration) -> Result<()> {
    let wanted = running.cpu_time() + cpu_time;
    running.wait_for_cpu_time(wanted, MOST_WAITING)
}

/// Tells a callgrind what to do; whether it still ran.
fn order(pid: i32, order: &[&str]) -> Result<bool> {
    let output = Command::new("vgdb")
        .arg(format!("--pid={pid}"))
        .args(order)
        .stdin(Stdio::null())
        .output()
        .context("cannot run vgdb (apt-get install valgrind)")?;
    Ok(output.status.success())
}

/// The counts of every stretch, by its number: callgrind writes one file `PID.callgrind.NUMBER` at each dump, and one
/// without a number at the end, with what was counted after the last dump.
fn read_stretches(folder: &Path) -> Result<BTreeMap<u32, Counts>> {
    let mut stretches: BTreeMap<u32, Counts> = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((_, number)) = name.and_then(|name| name.split_once(".callgrind")) else {
            continue;
        };
        let number = match number.strip_prefix('.') {
            Some(number) => number.parse().unwrap_or(u32::MAX),
            None => u32::MAX,
        };
        let counts = stretches.entry(number).or_default();
        read_counts(BufReader::new(fs::File::open(path)?), counts)?;
    }
    stretches.retain(|_, counts| !counts.is_empty());
    Ok(stretches)
}

/// Adds the self costs of one output file (written without compression, with `--dump-instr=yes`).
///
/// # Errors
/// An unreadable file, or lines that are no callgrind format.
pub fn read_counts(file: impl BufRead, counts: &mut Counts) -> Result<()> {
    let mut object = String::new();
    let mut is_call = false;
    for (number, line) in file.lines().enumerate() {
        let line = line?;
        if let Some(path) = line.strip_prefix("ob=") {
            object = path.to_string();
        } else if line.starts_with("calls=") {
            // The next line is the cost of what was called, counted again where it was executed.
            is_call = true;
        } else if line.starts_with("0x") {
            if std::mem::take(&mut is_call) {
                continue;
            }
            let mut fields = line.split_ascii_whitespace();
            let cost = (|| {
                let address = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
                let executed = fields.nth(1).map_or(Some(0), |text| text.parse().ok())?;
                Some((address, executed))
            })();
            let (address, executed): (u64, u64) = cost
                .with_context(|| format!("line {} of callgrind's output: '{line}'", number + 1))?;
            if executed > 0 {
                *counts
                    .entry(object.clone())
                    .or_default()
                    .entry(address)
                    .or_default() += executed;
            }
        }
    }
    Ok(())
}

/// Decodes what was executed. Code without a readable file (run-time compiled, vdso) counts as unknown.
///
/// The sum of what could be decoded, and how many instructions could not.
fn classify(counts: &Counts) -> Result<(MixSum, f64)> {
    let arch = native_arch()?;
    let mut decoder = InstructionDecoder::new(arch);
    let mut sum = MixSum::default();
    let mut unknown = 0.0;
    for (path, addresses) in counts {
        let mut image = CodeImage::new(arch);
        if Path::new(path).is_file() {
            add_code(Path::new(path), &mut image)?;
        }
        let mut bytes = [0; 15];
        let bytes = &mut bytes[..arch.max_instruction_len()];
        for (&address, &executed) in addresses {
            let have = image.read(address, bytes);
            match decoder.decode(&bytes[..have], address) {
                Some(instruction) => {
                    let next = addresses.get(&instruction.next(address));
                    let executed = executions(&instruction, executed, next.copied());
                    sum.add_instruction(&instruction, executed as f64);
                }
                None => unknown += executed as f64,
            }
        }
    }
    Ok((sum, unknown))
}

/// How often an instruction was executed that callgrind counted `counted` times, and the one behind it `next` times.
///
/// Callgrind counts every iteration of a repeated string instruction. The processor, and this experiment, take it for
/// one instruction that runs for long. It always falls through, so it was executed no more often than the one behind it.
fn executions(instruction: &Decoded, counted: u64, next: Option<u64>) -> u64 {
    if instruction.rep {
        counted.min(next.unwrap_or(1))
    } else {
        counted
    }
}

/// Adds the executable segments of an ELF file.
fn add_code(path: &Path, image: &mut CodeImage) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(bytes.as_slice())
        .with_context(|| format!("{} is no object file", path.display()))?;
    for segment in file.segments() {
        let SegmentFlags::Elf { p_flags } = segment.flags() else {
            continue;
        };
        if p_flags & object::elf::PF_X != 0 {
            image.add(segment.address(), segment.data()?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_are_not_counted_twice() {
        let text = "positions: instr line\nevents: Ir\n\nob=/bin/a\nfl=a.c\nfn=main\n\
            0x1000 3 10\n0x1004 4 10\ncob=/lib/b\ncfn=f\ncalls=10 0x20 0\n0x1004 4 5000\n\
            ob=/lib/b\nfn=f\n0x20 0 500\n0x20 0 7\ntotals: 527\n";
        let mut counts = Counts::new();
        read_counts(text.as_bytes(), &mut counts).unwrap();
        assert_eq!(
            counts["/bin/a"],
            HashMap::from([(0x1000, 10), (0x1004, 10)])
        );
        assert_eq!(counts["/lib/b"], HashMap::from([(0x20, 507)]));
    }

    #[test]
    fn every_dump_is_a_stretch() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, executed: u32| {
            let text = format!("ob=/bin/a\n0x10 1 {executed}\n");
            fs::write(folder.path().join(name), text).unwrap();
        };
        file("7.callgrind.1", 5);
        file("7.callgrind.2", 6);
        file("8.callgrind.2", 60);
        file("7.callgrind", 0);
        file("messages", 100);
        let stretches = read_stretches(folder.path()).unwrap();
        let executed: Vec<u64> = stretches.values().map(|c| c["/bin/a"][&0x10]).collect();
        assert_eq!(executed, [5, 66]);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read_counts("ob=x\n0xzz 1 2\n".as_bytes(), &mut Counts::new()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn a_repeated_instruction_counts_once_an_execution() {
        let mut decoder = InstructionDecoder::new(perch_sampling::Arch::X86_64);
        let copy = decoder.decode(&[0xf3, 0xa4], 0).unwrap();
        assert_eq!(executions(&copy, 5000, Some(10)), 10);
        assert_eq!(executions(&copy, 5, Some(10)), 5);
        assert_eq!(executions(&copy, 5000, None), 1);
        let add = decoder.decode(&[0x01, 0xc8], 0).unwrap();
        assert_eq!(executions(&add, 5000, Some(10)), 5000);
    }

    #[test]
    fn own_code_can_be_read() {
        let mut image = CodeImage::new(native_arch().unwrap());
        add_code(&std::env::current_exe().unwrap(), &mut image).unwrap();
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "(ob=[a-z]{0,3}\n|calls=[0-9]\n|0x[0-9a-f]{0,18}( [0-9x]{0,22}){0,3}\n|.{0,9}\n){0,20}") {
            let _ = read_counts(text.as_bytes(), &mut Counts::new());
        }
    }
}
