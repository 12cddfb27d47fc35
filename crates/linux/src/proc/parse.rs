//! Parsers of `stat`, `schedstat`, `status` and `sched`. They accept arbitrary bytes and never panic.

use perch_core::PuSet;

/// `/proc/…/schedstat`: times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a PU since the thread started.
    pub run: u64,
    /// Time runnable but waiting for a PU since the thread started.
    pub wait: u64,
    /// Number of time slices run on a PU (schedstat's third field).
    pub slices: u64,
}

/// The fields of `/proc/…/stat` that perch uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The number that the file belongs to.
    pub number: i32,
    /// The name, at most 15 bytes, any bytes but NUL.
    pub comm: &'a [u8],
    /// `R`, `S`, `D`, `T`, `Z`, `X`, …
    pub state: u8,
    /// The parent process; 0 for none (or one in another PID namespace).
    pub parent: i32,
    /// The process group's id.
    pub group: i32,
    /// The POSIX session's id.
    pub session: i32,
    /// `PF_*` bits (`include/linux/sched.h`).
    pub flags: u32,
    /// User plus system time, in clock ticks.
    pub ticks: u64,
    /// The same of the children for which its process has waited, and of theirs.
    pub children: u64,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// When it started, in clock ticks after boot.
    pub start: u64,
    /// Where its program's code and stack begin; 0 or 1 where the caller may not know.
    pub image: (u64, u64),
    /// The PU on which it runs or ran last.
    pub last_pu: Option<u32>,
    /// Its scheduling policy (sched(7)).
    pub policy: Option<u32>,
}

impl Stat<'_> {
    /// `PF_NO_SETAFFINITY`: the kernel refuses to change the mask (per-CPU kernel threads).
    const NO_SETAFFINITY: u32 = 0x0400_0000;

    /// `PF_EXITING`: the thread is in do_exit(). The kernel may have reported its end already.
    const EXITING: u32 = 0x4;

    /// Whether the thread executes its program no more, but has not ended yet or waits for its parent to notice.
    pub fn is_exiting(&self) -> bool {
        self.flags & Self::EXITING != 0
    }

    /// Whether the thread has ended and only waits for its parent to notice.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether the kernel lets no process change this thread's mask.
    pub fn refuses_affinity(&self) -> bool {
        self.flags & Self::NO_SETAFFINITY != 0
    }

    /// The name as printable text.
    pub fn name(&self) -> String {
        perch_core::text::name(self.comm)
    }
}

/// The lines of `/proc/…/status` that perch uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The process that the thread belongs to.
    pub process: i32,
    /// The parent process.
    pub parent: i32,
    /// Real, effective and saved user.
    pub users: Option<[u32; 3]>,
    /// The affinity mask, offline PUs included.
    pub mask: Option<PuSet>,
    /// Context switches, voluntary and not, since the thread started.
    pub switches: Option<u64>,
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// Reads `schedstat`: run time, waiting time, time slices.
pub fn parse_schedstat(bytes: &[u8]) -> Option<Schedstat> {
    let mut fields = bytes
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .map(number::<u64>);
    Some(Schedstat {
        run: fields.next()??,
        wait: fields.next()??,
        slices: fields.next()??,
    })
}

/// Reads `stat`. The name stands in parentheses and may itself hold spaces and parentheses, so fields are counted from
/// the last one.
pub fn parse_stat(bytes: &[u8]) -> Option<Stat<'_>> {
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let comm = bytes.get(open + 1..close)?;
    // Field 3 of proc(5) is the first after the name.
    let mut fields = bytes[close + 1..]
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let session = number(fields.next()?)?;
    let flags = number(fields.nth(2)?)?;
    let user: u64 = number(fields.nth(4)?)?;
    let system: u64 = number(fields.next()?)?;
    let children: u64 = number(fields.next()?)?;
    let of_children: u64 = number(fields.next()?)?;
    let nice = number(fields.nth(1)?)?;
    let start = number(fields.nth(2)?)?;
    let code = fields.nth(3).and_then(number).unwrap_or_default();
    let stack = fields.nth(1).and_then(number).unwrap_or_default();
    let last_pu = fields.nth(10).and_then(number);
    let policy = fields.nth(1).and_then(number);
    Some(Stat {
        number: number(&bytes[..open])?,
        comm,
        state,
        parent,
        group,
        session,
        flags,
        ticks: user.saturating_add(system),
        children: children.saturating_add(of_children),
        nice,
        start,
        image: (code, stack),
        last_pu,
        policy,
    })
}

/// Reads `status`; lines that are missing or not understood leave their field empty.
pub fn parse_status(bytes: &[u8]) -> Status {
    let mut status = Status::default();
    let mut switches = None::<u64>;
    for line in bytes.split(|b| *b == b'\n') {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        let value = &line[colon + 1..];
        match &line[..colon] {
            b"Tgid" => status.process = number(value).unwrap_or_default(),
            b"PPid" => status.parent = number(value).unwrap_or_default(),
            b"Uid" => status.users = users(value),
            b"Cpus_allowed_list" => status.mask = number(value),
            b"voluntary_ctxt_switches" | b"nonvoluntary_ctxt_switches" => {
                if let Some(count) = number::<u64>(value) {
                    switches = Some(switches.unwrap_or_default().saturating_add(count));
                }
            }
            _ => {}
        }
    }
    status.switches = switches;
    status
}

fn users(value: &[u8]) -> Option<[u32; 3]> {
    let mut fields = value
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .map(number::<u32>);
    Some([fields.next()??, fields.next()??, fields.next()??])
}

/// Reads `se.nr_migrations` from `sched` (there on kernels with scheduler debugging, which is nearly all).
pub fn parse_migrations(bytes: &[u8]) -> Option<u64> {
    let line = bytes
        .split(|b| *b == b'\n')
        .find(|line| line.starts_with(b"se.nr_migrations"))?;
    let colon = line.iter().position(|b| *b == b':')?;
    number(&line[colon + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stat_line(number: i32, comm: &[u8], parent: i32, start: u64, pu: u32) -> Vec<u8> {
        let mut line = format!("{number} (").into_bytes();
        line.extend_from_slice(comm);
        let mut tail = format!(") S {parent} 7 8 0 -1 67108864 1 2 3 4 10 5 0 0 20 0 3 0 {start}");
        // Fields 23 to 38, then the PU.
        for field in 23..39 {
            tail.push_str(&format!(" {field}"));
        }
        tail.push_str(&format!(" {pu} 0 0 0\n"));
        line.extend_from_slice(tail.as_bytes());
        line
    }

    proptest! {
        #[test]
        fn stat_is_read_whatever_the_name(
            number in 1..i32::MAX, comm in proptest::collection::vec(1..=255u8, 0..16),
            parent in 0..i32::MAX, start: u64, pu in 0..5000u32,
        ) {
            let line = stat_line(number, &comm, parent, start, pu);
            let stat = parse_stat(&line).unwrap();
            prop_assert_eq!(stat.number, number);
            prop_assert_eq!(stat.comm, &comm[..]);
            prop_assert_eq!((stat.parent, stat.group, stat.session), (parent, 7, 8));
            prop_assert_eq!((stat.start, stat.ticks, stat.last_pu), (start, 15, Some(pu)));
            prop_assert_eq!(stat.image, (26, 28));
            prop_assert!(stat.refuses_affinity() && !stat.is_dead());
        }

        #[test]
        fn schedstat_round_trip(run: u64, wait: u64, slices: u64) {
            let text = format!("{run} {wait} {slices}\n");
            prop_assert_eq!(parse_schedstat(text.as_bytes()), Some(Schedstat { run, wait, slices }));
        }

        #[test]
        fn status_sums_both_kinds_of_switches(v in 0..1u64 << 60, n in 0..1u64 << 60, pid in 1..i32::MAX) {
            let text = format!("Name:\tx: y\nTgid:\t{pid}\nPPid:\t1\nUid:\t7\t8\t9\t8\nCpus_allowed_list:\t0-3,9\n\
                voluntary_ctxt_switches:\t{v}\nnonvoluntary_ctxt_switches:\t{n}\n");
            let status = parse_status(text.as_bytes());
            prop_assert_eq!(status.switches, Some(v + n));
            prop_assert_eq!((status.process, status.parent, status.users), (pid, 1, Some([7, 8, 9])));
            prop_assert_eq!(status.mask.unwrap().to_string(), "0-3,9");
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (parse_stat(&bytes), parse_schedstat(&bytes), parse_status(&bytes), parse_migrations(&bytes));
        }

        #[test]
        fn cut_or_damaged_lines_never_panic(
            cut in 0..200usize, at in 0..100usize, byte: u8, comm in "[a-z() ]{0,15}",
        ) {
            let mut line = stat_line(7, comm.as_bytes(), 1, 99, 3);
            let at = at % line.len();
            line[at] = byte;
            line.truncate(cut);
            let _ = parse_stat(&line);
        }
    }

    #[test]
    fn missing_lines_leave_fields_empty() {
        assert_eq!(
            parse_status(b"Name:\tx\nCpus_allowed_list:\toops\n"),
            Status::default()
        );
        assert_eq!(parse_schedstat(b"12 13\n"), None);
    }

    #[test]
    fn migrations() {
        let text =
            b"cat (7, #threads: 1)\n-----\nse.nr_migrations            :                   17\n";
        assert_eq!(parse_migrations(text), Some(17));
        assert_eq!(parse_migrations(b"se.vruntime : 1\n"), None);
    }
}
