//! Complete counts by `valgrind --tool=callgrind --dump-instr=yes`, classified with the code in the ELF files.

use super::{Truth, native_arch};
use crate::catalogue::Program;
use crate::estimate::Rights;
use crate::process::Running;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSegment, SegmentFlags};
use perch_sampling::{CodeImage, CodeSource, Decoded, InstructionDecoder, MixSum};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time on CPU after which a run is cut off; callgrind writes its counts all the same.
const COUNTING: Duration = Duration::from_secs(5);
/// Valgrind without counting takes about this many times as long.
const SLOWDOWN: u32 = 15;
/// Give up on a run that does not get its time on CPU, or does not end.
const MOST_WAITING: Duration = Duration::from_secs(90);

/// Executions by instruction address, relative to the object file, by the object's path.
pub type Counts = HashMap<String, HashMap<u64, u64>>;

/// Runs the program under callgrind.
///
/// # Errors
/// Valgrind is missing or wrote nothing, or too much code cannot be read.
pub fn count(program: &Program, workspace: &Workspace) -> Result<Truth> {
    let folder = workspace.scratch(Rights::Own)?;
    let skip_start = program.truth_run.is_none() && !program.start_up().is_zero();
    let mut words: Vec<String> = ["valgrind", "-q"].map(String::from).into();
    words.extend(
        [
            "--tool=callgrind",
            "--dump-instr=yes",
            "--compress-pos=no",
            "--compress-strings=no",
            "--trace-children=yes",
            if skip_start {
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
    if skip_start {
        running.wait_for_cpu_time(program.start_up() * SLOWDOWN, MOST_WAITING)?;
        let (pid, _) = running.busiest_thread().context("it ended at once")?;
        begin_counting(pid)?;
    }
    let wanted = running.cpu_time() + COUNTING;
    running.wait_for_cpu_time(wanted, MOST_WAITING)?;
    running.terminate();
    running.wait_for_end(MOST_WAITING)?;

    let mut counts = Counts::new();
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "callgrind")
        {
            read_counts(BufReader::new(fs::File::open(path)?), &mut counts)?;
        }
    }
    ensure!(
        !counts.is_empty(),
        "callgrind counted nothing; it said: {}",
        fs::read_to_string(&messages)?.trim()
    );
    classify(&counts)
}

/// Tells a callgrind that was started without counting to count from now on.
fn begin_counting(pid: i32) -> Result<()> {
    let output = Command::new("vgdb")
        .args([&format!("--pid={pid}"), "instrumentation", "on"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run vgdb (apt-get install valgrind)")?;
    ensure!(
        output.status.success(),
        "callgrind does not begin to count: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
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
fn classify(counts: &Counts) -> Result<Truth> {
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
    Truth::new(&sum, unknown, 0.0)
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
