//! ChampSim's side: the same instructions in a trace file of its format, simulated by the user's own binary.

use crate::streams::Kind;
use perch_sim::{model::Op, stream::Instruction};
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
};
use tempfile::NamedTempFile;

/// The first general register in a trace, and how many there are.
const REGISTERS: (u64, u64) = (32, 64);

/// The special registers of a conditional branch: it reads the flags and writes the instruction pointer.
const FLAGS: u8 = 25;
const INSTRUCTION_POINTER: u8 = 26;

/// Instructions in the trace beyond those that are asked for: ChampSim reads ahead.
const BEYOND: u64 = 2_000;

/// One record of a trace (ChampSim, `inc/trace_instruction.h`): where it stands; whether it is a branch, and taken; two
/// destination and four source registers; two addresses written and four read. Registers and addresses of 0 are none.
fn record(number: u64, instruction: &Instruction) -> [u8; 64] {
    let register = |number: u64| (REGISTERS.0 + number % REGISTERS.1) as u8;
    let mut record = [0; 64];
    record[..8].copy_from_slice(&instruction.at.to_le_bytes());
    let depends = u64::from(instruction.depends);
    if depends > 0 && depends <= number {
        record[12] = register(number - depends);
    }
    record[10] = register(number);
    match instruction.op {
        Op::Branch => {
            (record[8], record[10]) = (1, INSTRUCTION_POINTER);
            (record[12], record[13]) = (INSTRUCTION_POINTER, FLAGS);
        }
        Op::Store => {
            record[10] = 0;
            record[16..24].copy_from_slice(&instruction.data.to_le_bytes());
        }
        Op::Load => record[32..40].copy_from_slice(&instruction.data.to_le_bytes()),
        _ => {}
    }
    record
}

/// The stream as a trace.
pub fn write(kind: &Kind) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().suffix(".champsim").tempfile()?;
    let mut out = BufWriter::new(file.as_file_mut());
    let mut stream = kind.stream();
    for number in 0..kind.theirs + BEYOND {
        out.write_all(&record(number, &stream.next()))?;
    }
    out.flush()?;
    drop(out);
    Ok(file)
}

/// CPU time of children that have ended, in seconds (proc(5): `cutime` and `cstime`, in hundredths on Linux).
fn children() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name may hold anything, but no closing bracket comes behind it.
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks = fields
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok());
    Ok(ticks.sum::<u64>() as f64 / 100.0)
}

/// Instructions a second of one CPU, start included: some hundredths of a second.
pub fn rate(binary: &Path, trace: &Path, kind: &Kind) -> io::Result<f64> {
    let before = children()?;
    let status = Command::new(binary)
        .args(["--hide-heartbeat", "-w", "0", "-i"])
        .arg(kind.theirs.to_string())
        .arg(trace)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("it failed: {status}")));
    }
    Ok(kind.theirs as f64 / (children()? - before).max(0.01))
}
