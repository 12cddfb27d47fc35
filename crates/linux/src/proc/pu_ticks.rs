//! `/proc/stat`: how each PU spent its time. Parsed here since the label of a line identifies its PU, which matters
//! where some PUs are offline.

/// What a PU did since it was first online, in clock ticks (proc(5), `/proc/stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PuTicks {
    /// The PU.
    pub pu: u32,
    /// Running threads or the kernel on their behalf, guests among it.
    pub running: u64,
    /// Interrupts and soft interrupts.
    pub interrupts: u64,
    /// Idle. Includes I/O wait and steal time: nothing was executed on the PU then.
    pub idle: u64,
}

/// The lines of PUs that are online, as the kernel has them: by rising number. Accepts arbitrary bytes.
pub fn parse_pu_ticks(bytes: &[u8]) -> Vec<PuTicks> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(of_line).collect()
}

fn of_line(line: &[u8]) -> Option<PuTicks> {
    // `cpu` alone is the sum of all.
    let text = std::str::from_utf8(line.strip_prefix(b"cpu")?).ok()?;
    let (pu, times) = text.split_once(' ')?;
    let mut ticks = [0; 8];
    let mut known = 0;
    for (slot, field) in ticks.iter_mut().zip(times.split_ascii_whitespace()) {
        *slot = field.parse().ok()?;
        known += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
    let sum = |times: &[u64]| {
        times
            .iter()
            .fold(0u64, |sum, time| sum.saturating_add(*time))
    };
    (known >= 4).then_some(PuTicks {
        pu: pu.parse().ok()?,
        running: sum(&[user, nice, system]),
        interrupts: sum(&[irq, softirq]),
        idle: sum(&[idle, iowait, steal]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offline_pus_are_left_out_and_the_sum_is_no_pu() {
        let text = b"cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 1 0\ncpu3 10 0 0 20\nintr 5 0 1\nctxt 7\n";
        let told = parse_pu_ticks(text);
        let first = PuTicks {
            pu: 0,
            running: 6,
            interrupts: 13,
            idle: 53,
        };
        let other = PuTicks {
            pu: 3,
            running: 10,
            interrupts: 0,
            idle: 20,
        };
        assert_eq!(told, [first, other]);
    }

    #[test]
    fn this_machines_file_is_read() {
        let bytes = std::fs::read("/proc/stat").unwrap();
        let told = parse_pu_ticks(&bytes);
        let online = crate::perf::limits::online_cpus();
        assert_eq!(
            told.iter()
                .map(|ticks| ticks.pu)
                .collect::<perch_core::PuSet>(),
            online
        );
        assert!(told.iter().all(|ticks| ticks.running > 0));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_pu_ticks(&bytes);
        }

        #[test]
        fn damaged_lines_are_left_out_and_the_others_stay(times: [u64; 10], at in 0usize..40, byte: u8) {
            let times = times.map(|time| time.to_string()).join(" ");
            let line = format!("cpu7 {times}\n");
            let mut damaged = line.clone().into_bytes();
            let at = at % damaged.len();
            damaged[at] = byte;
            damaged.extend_from_slice(b"\n");
            damaged.extend_from_slice(line.as_bytes());
            let told = parse_pu_ticks(&damaged);
            let whole = parse_pu_ticks(line.as_bytes());
            prop_assert_eq!(whole.len(), 1);
            prop_assert_eq!(told.last(), whole.first());
        }
    }
}
