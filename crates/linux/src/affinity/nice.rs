//! Nice values: read from `/proc`, set only if no other process has changed them (setpriority(2), sched(7)).

use super::{LinuxAffinity, refused};
use crate::capability;
use nix::libc;
use perch_core::{MaskError, NiceChange, Outcome, ThreadId, WeightGroups, Weights, text};
use procfs::process::{LimitValue, Process};
use rustix::{
    io::Errno,
    process::{Pid, setpriority_process},
};

/// `SCHED_OTHER` and `SCHED_BATCH`: the others share PUs by other rules than weights.
pub(super) const WEIGHED: [u32; 2] = [0, 3];
const CAP_SYS_NICE: u64 = 1 << 23;

/// Whether what the thread creates begins with nice value 0 if its own is lower (`SCHED_RESET_ON_FORK`, sched(7)). What
/// such a child would have without perch is nowhere to be found then.
fn resets_on_fork(tid: i32) -> bool {
    // SAFETY: takes a number, touches no memory.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    policy >= 0 && policy & libc::SCHED_RESET_ON_FORK != 0
}

/// Whether perch may lower any thread's nice value. The kernel asks for the capability in the first user namespace.
fn privileged() -> bool {
    let capable = Process::myself().and_then(|own| own.status());
    let first = std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    first && capable.is_ok_and(|own| own.capeff & CAP_SYS_NICE != 0)
}

/// The lowest nice value that the thread may be given without a privilege (`RLIMIT_NICE`, getrlimit(2)).
fn floor(tid: i32) -> Option<i32> {
    let limits = Process::new(tid)
        .and_then(|process| process.limits())
        .ok()?;
    Some(match limits.max_nice_priority.soft_limit {
        LimitValue::Unlimited => -20,
        LimitValue::Value(limit) => 20 - limit.min(40) as i32,
    })
}

impl Weights for LinuxAffinity {
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError> {
        self.stat(thread, |stat| stat.nice)
    }

    fn permitted(&self, change: &NiceChange) -> Result<(), String> {
        let found = self.stat(change.thread, |stat| (stat.policy, stat.name()));
        let Ok((policy, name)) = found else {
            // The change itself will say what is wrong.
            return Ok(());
        };
        let name = text::printable(&name);
        if policy.is_none_or(|policy| !WEIGHED.contains(&policy)) {
            return Err(format!(
                "thread {} ({name}) has a scheduling policy that knows no weights (see `chrt -p {}`): its weight stays",
                change.thread.tid, change.thread.tid
            ));
        }
        if change.set < 0 && resets_on_fork(change.thread.tid) {
            return Err(format!(
                "thread {} ({name}) hands no negative nice value on (SCHED_RESET_ON_FORK): what it creates would keep nice \
                 value 0, so its weight stays",
                change.thread.tid
            ));
        }
        let lowest = change.set.min(change.expect);
        if self.may_be_lowered(change.thread, lowest) || privileged() {
            return Ok(());
        }
        Err(format!(
            "the CPU weight of {name} stays: perch could not {} nice value {lowest} without a privilege: run perch as root, \
             raise the program's RLIMIT_NICE to {} (`ulimit -e`, systemd's LimitNICE=), or {}",
            if change.set < change.expect {
                "set"
            } else {
                "give it back"
            },
            20 - lowest,
            capability::advice("CAP_SYS_NICE")
        ))
    }

    fn may_be_lowered(&self, thread: ThreadId, nice: i32) -> bool {
        floor(thread.tid).is_some_and(|floor| floor <= nice)
    }

    fn change_nice(&mut self, change: &NiceChange) -> Outcome {
        match self.nice(change.thread) {
            Ok(now) if now == change.expect => {}
            Ok(_) => return Outcome::ChangedByOthers,
            Err(error) => return refused(&error),
        }
        match setpriority_process(Pid::from_raw(change.thread.tid), change.set) {
            Ok(()) => Outcome::Applied,
            Err(Errno::SRCH) => Outcome::Gone,
            Err(_) => Outcome::NotPermitted,
        }
    }

    fn groups(&mut self) -> Option<&mut dyn WeightGroups> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of this test that waits until it is dropped.
    fn sleeper() -> (ThreadId, std::sync::mpsc::Sender<()>) {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let start = crate::proc::start_of(tid).unwrap();
        (ThreadId { tid, start }, stop)
    }

    #[test]
    fn a_value_is_set_if_it_is_as_it_was_and_the_thread_is_that_one() {
        let (thread, _stop) = sleeper();
        let mut affinity = LinuxAffinity::new();
        let before = affinity.nice(thread).unwrap();
        let change = |thread, expect, set| NiceChange {
            thread,
            expect,
            set,
        };
        let outcome = affinity.change_nice(&change(thread, before + 1, 19));
        assert_eq!(outcome, Outcome::ChangedByOthers);
        assert_eq!(affinity.nice(thread), Ok(before));
        let other = ThreadId {
            start: thread.start + 1,
            ..thread
        };
        assert_eq!(
            affinity.change_nice(&change(other, before, 19)),
            Outcome::Gone
        );
        assert_eq!(
            affinity.change_nice(&change(thread, before, 19)),
            Outcome::Applied
        );
        assert_eq!(affinity.nice(thread), Ok(19));
        // No other thread of the process.
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let start = crate::proc::start_of(own).unwrap();
        assert_eq!(affinity.nice(ThreadId { tid: own, start }), Ok(before));
    }

    #[test]
    fn a_value_that_children_would_not_inherit_is_refused() {
        let (thread, _stop) = sleeper();
        let affinity = LinuxAffinity::new();
        let expect = affinity.nice(thread).unwrap();
        let told = |set| {
            affinity.permitted(&NiceChange {
                thread,
                expect,
                set,
            })
        };
        let refused =
            |told: Result<(), String>| told.is_err_and(|why| why.contains("SCHED_RESET_ON_FORK"));
        assert!(!refused(told(-1)));
        let param = libc::sched_param { sched_priority: 0 };
        let policy = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
        // SAFETY: reads the parameter only, which lives until then.
        let set = unsafe { libc::sched_setscheduler(thread.tid, policy, &raw const param) };
        assert_eq!(set, 0);
        assert!(refused(told(-1)));
        assert!(!refused(told(1)));
    }

    #[test]
    fn what_could_not_be_undone_is_refused_with_what_would_help() {
        let (thread, _stop) = sleeper();
        let affinity = LinuxAffinity::new();
        let expect = affinity.nice(thread).unwrap();
        let change = NiceChange {
            thread,
            expect,
            set: 19,
        };
        let may = privileged() || floor(thread.tid).unwrap() <= expect;
        match affinity.permitted(&change) {
            Ok(()) => assert!(may),
            Err(why) => {
                assert!(!may);
                assert!(why.contains("RLIMIT_NICE") && why.contains("root"), "{why}");
            }
        }
    }
}
