//! Interrupts: how often each came on each PU (`/proc/interrupts`, proc(5)).

use crate::proc::{Reader, process_numbers};
use perch_core::MachineError;
use rustix::fs::{Access, AtFlags, CWD, accessat};

/// One line per interrupt with a count per online PU (proc(5)).
const INTERRUPTS: &str = "/proc/interrupts";

/// The contents of `/proc/interrupts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// The PUs that are online, in the order of the columns.
    pub pus: Vec<u32>,
    /// The lines that tell a number for each of them.
    pub lines: Vec<Line>,
}

/// One line of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its label: a number, or a short name of one that every PU has (`LOC`, `RES`, …).
    pub label: String,
    /// How often it came since boot, for each of [`Interrupts::pus`].
    pub counts: Vec<u64>,
    /// Controller, kind and devices, as the kernel reports them.
    pub what: String,
}

impl Line {
    /// The number of one that belongs to a device.
    pub fn irq(&self) -> Option<u32> {
        self.label.parse().ok()
    }
}

/// Reads the text. Accepts arbitrary bytes; a line that does not fit the heading is left out, as those are which tell
/// one number for the whole machine (`ERR`).
pub fn parse_interrupts(bytes: &[u8]) -> Interrupts {
    // Devices' names come from drivers, and those of USB devices from the device.
    let text = String::from_utf8_lossy(bytes);
    let text = perch_core::text::printable_lines(&text);
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    let pus: Option<Vec<u32>> = heading
        .split_ascii_whitespace()
        .map(|column| column.strip_prefix("CPU")?.parse().ok())
        .collect();
    // The kernel counts upwards; whatever does not is no heading.
    let pus = pus.filter(|pus| pus.is_sorted_by(|a, b| a < b));
    let pus = pus.unwrap_or_default();
    let lines = match pus.is_empty() {
        true => Vec::new(),
        false => lines.filter_map(|line| of_line(line, pus.len())).collect(),
    };
    Interrupts { pus, lines }
}

fn of_line(line: &str, pus: usize) -> Option<Line> {
    let (label, rest) = line.split_once(':')?;
    let mut rest = rest.trim_start();
    let mut counts = Vec::with_capacity(pus);
    for _ in 0..pus {
        let end = rest.find(|c: char| c.is_ascii_whitespace());
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        counts.push(number.parse().ok()?);
        rest = after.trim_start();
    }
    let label = label.trim();
    (!label.is_empty()).then(|| Line {
        label: label.to_owned(),
        counts,
        what: rest.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
    })
}

/// How often each interrupt came between two readings, on each PU that was online in both: label, description, PU and
/// count. What is new in the second began at nothing; a count that fell is another device's, and left out.
pub fn between(before: &Interrupts, after: &Interrupts) -> Vec<(Line, Vec<(u32, u64)>)> {
    let old: std::collections::HashMap<&str, &Line> = before
        .lines
        .iter()
        .map(|line| (line.label.as_str(), line))
        .collect();
    let column = |pu: u32| before.pus.iter().position(|old| *old == pu);
    let columns: Vec<(usize, u32, Option<usize>)> = after
        .pus
        .iter()
        .enumerate()
        .map(|(at, pu)| (at, *pu, column(*pu)))
        .collect();
    let lines = after.lines.iter().map(|line| {
        let old = old.get(line.label.as_str());
        let since = columns.iter().filter_map(|(at, pu, before)| {
            let now = *line.counts.get(*at)?;
            let then = match old {
                Some(old) => *old.counts.get((*before)?)?,
                None => 0,
            };
            Some((*pu, now.checked_sub(then)?))
        });
        (line.clone(), since.collect())
    });
    lines.collect()
}

/// This machine's interrupts since boot.
///
/// # Errors
/// A file that cannot be read.
pub fn read() -> Result<Interrupts, MachineError> {
    let mut reader = Reader::new();
    let failed = |why: &str| {
        MachineError::Other(format!(
            "{INTERRUPTS}: {why}: perch needs /proc mounted (`mount -t proc proc /proc`)"
        ))
    };
    let bytes = reader
        .file(INTERRUPTS)
        .map_err(|_| failed("cannot be read"))?;
    let read = parse_interrupts(bytes);
    match read.pus.is_empty() {
        true => Err(failed("names no CPUs")),
        false => Ok(read),
    }
}

/// A folder for each interrupt, with the PUs to which it may go (proc(5)).
const FOLDERS: &str = "/proc/irq";

/// Why this process can move no interrupt; `None` if it may try, or if there is none to move.
pub fn refusal() -> Option<String> {
    let folders = std::fs::read_dir(FOLDERS).ok()?.flatten();
    let mut masks = folders
        .map(|folder| folder.path().join("smp_affinity_list"))
        .filter(|mask| mask.exists())
        .peekable();
    masks.peek()?;
    let may_write =
        |mask: &std::path::Path| accessat(CWD, mask, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    if masks.any(|mask| may_write(&mask)) {
        return None;
    }
    Some(match rustix::process::geteuid().is_root() {
        false => "only root can move interrupts".to_owned(),
        true => format!(
            "interrupts cannot be moved here: {FOLDERS} cannot be written, as in a container"
        ),
    })
}

/// The process of irqbalance(1), if it runs: it moves interrupts too.
pub fn irqbalance() -> Option<i32> {
    let mut reader = Reader::new();
    process_numbers().into_iter().find(|pid| {
        let name = reader.file(&format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == b"irqbalance\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU2       
  0:         12          0   IO-APIC   2-edge      timer
 24:          1       9000  PCI-MSIX-0000:00:01.0   1-edge      virtio0-input, other
LOC:   15079304   14797091   Local timer interrupts
ERR:          0
MIS:          0
";

    #[test]
    fn lines_of_devices_and_of_pus_are_told_apart_and_those_of_the_machine_left_out() {
        let read = parse_interrupts(TEXT.as_bytes());
        assert_eq!(read.pus, [0, 2]);
        let labels: Vec<(&str, Option<u32>)> = read
            .lines
            .iter()
            .map(|line| (line.label.as_str(), line.irq()))
            .collect();
        assert_eq!(labels, [("0", Some(0)), ("24", Some(24)), ("LOC", None)]);
        assert_eq!(read.lines[1].counts, [1, 9000]);
        assert_eq!(
            read.lines[1].what,
            "PCI-MSIX-0000:00:01.0 1-edge virtio0-input, other"
        );
    }

    #[test]
    fn what_came_between_is_told_by_pu_and_label() {
        let before = parse_interrupts(TEXT.as_bytes());
        let later = "  CPU1 CPU2\n 24: 7 9010 x virtio0\n 30: 5 6 x new\nLOC: 1 3 Local\n";
        let after = parse_interrupts(later.as_bytes());
        let told = between(&before, &after);
        let of = |label: &str| {
            told.iter()
                .find(|(line, _)| line.label == label)
                .unwrap()
                .1
                .clone()
        };
        assert_eq!(of("24"), [(2, 10)], "PU 1 was not online before");
        assert_eq!(of("30"), [(1, 5), (2, 6)]);
        assert_eq!(of("LOC"), [], "a count that fell");
    }

    #[test]
    fn this_machines_file_is_read() {
        let read = read().unwrap();
        let pus: perch_core::PuSet = read.pus.iter().copied().collect();
        assert_eq!(pus, crate::perf::limits::online_cpus());
        assert!(!read.lines.is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let read = parse_interrupts(&bytes);
            between(&read, &read);
        }

        #[test]
        fn damaged_text_is_read_as_far_as_it_makes_sense(cut in 0usize..400, at in 0usize..400, byte: u8) {
            let mut bytes = TEXT.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            let read = parse_interrupts(&bytes);
            for line in &read.lines {
                prop_assert_eq!(line.counts.len(), read.pus.len());
            }
            let same = between(&read, &read);
            prop_assert!(same.iter().all(|(_, counts)| counts.iter().all(|(_, count)| *count == 0)));
        }

        #[test]
        fn every_table_comes_back(
            pus in proptest::collection::btree_set(0u32..2000, 1..6),
            lines in proptest::collection::vec((0u32..5000, proptest::collection::vec(any::<u64>(), 6)), 0..8),
        ) {
            let mut text = pus.iter().map(|pu| format!(" CPU{pu}")).collect::<String>() + "\n";
            for (irq, counts) in &lines {
                let counts: String = counts.iter().take(pus.len()).map(|c| format!(" {c:>10}")).collect();
                text += &format!("{irq:>4}:{counts}  IR-PCI-MSI 524288-edge  nvme0q{irq}\n");
            }
            let read = parse_interrupts(text.as_bytes());
            prop_assert_eq!(read.pus, pus.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(read.lines.len(), lines.len());
            for (line, (irq, counts)) in read.lines.iter().zip(&lines) {
                prop_assert_eq!(line.irq(), Some(*irq));
                prop_assert_eq!(&line.counts[..], &counts[..pus.len()]);
            }
        }
    }
}
