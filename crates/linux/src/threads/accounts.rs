//! How much CPU time the followed processes had in all, by the kernel's own accounts: what no sample of a thread tells
//! was spent by threads and processes that came and went within a period, or in a thread's last moments.
//!
//! A process's CPU-time clock (clock_getcpuclockid(3)) holds the time of its live and ended threads in nanoseconds, as
//! exact as what `schedstat` tells of each. Its `stat` holds that of the children for which it has waited (proc(5)), in
//! ticks of 10 ms, rounded down.

use crate::proc::{Reader, parse_stat};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Reading takes at most one part in this many of the time: the kernel sums up all threads of a process for it.
const SHARE: u32 = 200;

/// How often accounts are read without a sign that anything has ended.
const EVERY: Duration = Duration::from_secs(10);

/// One process, with the children that it has waited for. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// When it started, which tells it from another with its number.
    start: u64,
    parent: i32,
    /// What it had had before it was followed.
    before: u64,
    /// What it has had since its start, when it was last read.
    last: u64,
}

/// The accounts of all followed processes.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    of: BTreeMap<i32, Account>,
    /// Time of processes that are gone and for which no followed process has waited, less what others have waited for
    /// but was spent before it was followed.
    gone: i64,
    /// Time that samples of threads have told of.
    sampled: u64,
    /// Time that was told as unmeasured.
    told: u64,
    /// Whether threads have no sample yet whose time is in the accounts.
    waits: bool,
    /// When the accounts were last read.
    read: Option<Instant>,
    rest: Option<Instant>,
}

impl Accounts {
    /// Follows a process. If it was not born while it was followed, what it has had so far does not count.
    pub fn follow(&mut self, reader: &mut Reader, pid: i32, born: bool, tick: u64) {
        if let Some((start, parent, spent)) = read(reader, pid, tick) {
            let account = Account {
                start,
                parent,
                before: if born { 0 } else { spent },
                last: spent,
            };
            if let Some(old) = self
                .of
                .insert(pid, account)
                .filter(|old| old.start != start)
            {
                self.close(&old);
            }
        }
    }

    /// An orphan was waited for by perch: what it and those that it had waited for have had in all.
    pub fn orphan(&mut self, pid: i32, spent: u64) {
        match self.of.get_mut(&pid) {
            Some(account) => account.last = spent,
            // It came and went unseen.
            None => self.gone += spent as i64,
        }
    }

    /// Samples have told of this much time.
    pub fn sampled(&mut self, time: u64) {
        self.sampled += time;
    }

    /// Reads the accounts, if it is time: something has ended, or nothing was read for long.
    pub fn read(&mut self, reader: &mut Reader, tick: u64, ended: bool, must: bool) {
        let began = Instant::now();
        let long_ago = self.read.is_none_or(|read| began - read >= EVERY);
        let due = (ended || long_ago) && self.rest.is_none_or(|rest| began >= rest);
        if !due && !must {
            return;
        }
        self.read = Some(began);
        // Parents before their children: the time of a child that is waited for in between is missed for now, not
        // counted twice.
        let mut pids: Vec<(u64, i32)> = self.of.iter().map(|(pid, of)| (of.start, *pid)).collect();
        pids.sort_unstable();
        for (start, pid) in pids {
            match read(reader, pid, tick).filter(|(now, ..)| *now == start) {
                Some((_, parent, spent)) => {
                    if let Some(account) = self.of.get_mut(&pid) {
                        (account.parent, account.last) = (parent, spent);
                    }
                }
                None => {
                    if let Some(account) = self.of.remove(&pid) {
                        self.close(&account);
                    }
                }
            }
        }
        let now = Instant::now();
        self.rest = Some(now + (now - began).max(Duration::from_micros(100)) * SHARE);
    }

    /// Time that no sample tells of and that was not told before; it is told now.
    pub fn unmeasured(&mut self) -> u64 {
        let unmeasured = self.rest();
        self.told += unmeasured;
        unmeasured
    }

    /// Whether there are threads whose first sample will be the next one. Until then there is no rest: some of it is
    /// theirs.
    pub fn wait(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Time that no sample tells of and that was not told before.
    pub fn rest(&self) -> u64 {
        if self.waits {
            return 0;
        }
        let open: i64 = self
            .of
            .values()
            .map(|of| of.last as i64 - of.before as i64)
            .sum();
        let all = u64::try_from(open + self.gone).unwrap_or(0);
        all.saturating_sub(self.sampled + self.told)
    }

    /// A process is gone.
    fn close(&mut self, account: &Account) {
        self.gone += match self.of.contains_key(&account.parent) {
            // All that it had is now in its parent's account.
            true => -(account.before as i64),
            false => account.last as i64 - account.before as i64,
        };
    }
}

/// Start in ticks, parent, and time of a process and of those that it has waited for, in nanoseconds.
fn read(reader: &mut Reader, pid: i32, tick: u64) -> Option<(u64, i32, u64)> {
    let stat = reader
        .file(&format!("/proc/{pid}/stat"))
        .ok()
        .and_then(parse_stat)?;
    let (start, parent) = (stat.start, stat.parent);
    let ticks = |ticks: u64| ticks.saturating_mul(tick);
    let (own, children) = (ticks(stat.ticks), ticks(stat.children));
    let own = cpu_clock(pid).unwrap_or(own);
    Some((start, parent, own.saturating_add(children)))
}

/// A process's CPU time in nanoseconds, until it has been waited for. Every user may read it.
fn cpu_clock(pid: i32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel and the C library write to these two, and only read `clock` otherwise.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    read.then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_to_the_nanosecond_while_it_waits_for_its_parent() {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh")
            .args(["-c", busy])
            .spawn()
            .unwrap();
        let (pid, mut reader) = (child.id() as i32, Reader::new());
        let tick = 10_000_000;
        while !(reader.stat(pid, pid)).is_ok_and(|stat| stat.is_dead()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stat = reader.stat(pid, pid).unwrap();
        let (start, ticks) = (stat.start, stat.ticks);
        let (read_start, _, spent) = read(&mut reader, pid, tick).unwrap();
        assert_eq!(read_start, start);
        // User and system time are rounded down apart.
        assert!(
            (ticks * tick..=(ticks + 2) * tick).contains(&spent),
            "{spent}, {ticks}"
        );
        assert!(spent > 0 && spent % tick != 0, "{spent}");
        child.wait().unwrap();
        assert!(read(&mut reader, pid, tick).is_none());
    }

    fn account(parent: i32, before: u64, last: u64) -> Account {
        Account {
            start: 1,
            parent,
            before,
            last,
        }
    }

    /// Process 1 is followed, 2 is its child.
    fn family(before: u64) -> Accounts {
        let mut accounts = Accounts::default();
        accounts.of.insert(1, account(0, 0, 100));
        accounts.of.insert(2, account(1, before, 50));
        accounts
    }

    #[test]
    fn what_samples_do_not_tell_is_unmeasured_once() {
        let mut accounts = family(0);
        accounts.sampled(120);
        assert_eq!(accounts.unmeasured(), 30);
        assert_eq!(accounts.unmeasured(), 0);
        // The kernel's ticks lag behind.
        accounts.sampled(10);
        assert_eq!(accounts.unmeasured(), 0);
        accounts.of.get_mut(&1).expect("there").last = 200;
        assert_eq!(accounts.unmeasured(), 90);
    }

    #[test]
    fn what_the_next_sample_may_tell_is_not_told_before() {
        let mut accounts = family(0);
        accounts.sampled(120);
        accounts.wait(true);
        assert_eq!(accounts.unmeasured(), 0);
        accounts.sampled(20);
        accounts.wait(false);
        assert_eq!(accounts.unmeasured(), 10);
    }

    #[test]
    fn a_child_s_time_is_in_its_parent_s_account_once_that_has_waited_for_it() {
        for before in [0, 20] {
            let mut accounts = family(before);
            assert_eq!(accounts.unmeasured(), 150 - before);
            let child = accounts.of.remove(&2).expect("there");
            accounts.close(&child);
            // It had 60 in the end.
            accounts.of.get_mut(&1).expect("there").last = 160;
            assert_eq!(accounts.unmeasured(), 10);
        }
    }

    #[test]
    fn an_orphan_s_time_is_kept() {
        let mut accounts = family(0);
        accounts.of.get_mut(&2).expect("there").parent = 7;
        let child = accounts.of.remove(&2).expect("there");
        accounts.close(&child);
        assert_eq!(accounts.unmeasured(), 150);
        accounts.orphan(3, 5);
        assert_eq!(accounts.unmeasured(), 5);
    }
}
