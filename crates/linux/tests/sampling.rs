//! Instruction sampling of real threads: whole CPUs and single threads, as far as either is permitted here.

mod support;

use perch_core::{Module, metric::names::FP_SHARE};
use perch_linux::{
    perf::{TaskEvent, TaskEvents, task_events::Buffering},
    sampling::{Options, SamplerModule},
};
use perch_skip::skip;
use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};
use support::{Periods, Work, Worker, own_pid, thread_id, value};

/// On a PU, not on the clock: enough for some forty samples of either kind.
const WORK: Duration = Duration::from_millis(400);

/// Above this a thread does much floating point, below the other little: 5 % is where policies draw the line. The truth
/// is over 0.4 and 0.
const MUCH: f64 = 0.2;
const NONE: f64 = 0.05;

fn per_thread() -> Options {
    Options {
        per_thread: true,
        ..Options::default()
    }
}

/// Both ways of sampling.
fn modules() -> Vec<SamplerModule> {
    [Options::default(), per_thread()]
        .into_iter()
        .filter_map(|options| SamplerModule::open(options).ok())
        .collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc").count()
}

#[test]
fn floating_point_and_integer_threads_are_told_apart_within_a_second() {
    for module in modules() {
        let mut periods = Periods::new(module);
        let (integer, float) = (Worker::start(Work::Integer), Worker::start(Work::Float));
        periods.follow(integer.id, own_pid());
        periods.follow(float.id, own_pid());
        let both = [integer.id, float.id];
        let metrics = periods.period_of_work(&both, WORK);
        let share = value(&metrics, integer.id, FP_SHARE).expect("sampled");
        assert!(share < NONE, "{share}");
        assert!(value(&metrics, float.id, FP_SHARE).expect("sampled") > MUCH);
        // Roles change: two periods are enough.
        integer.turn_to(Work::Float);
        float.turn_to(Work::Integer);
        periods.period_of_work(&both, WORK);
        let both = [integer.id, float.id];
        let metrics = periods.period_of_work(&both, WORK);
        assert!(value(&metrics, integer.id, FP_SHARE).expect("sampled") > MUCH);
        let share = value(&metrics, float.id, FP_SHARE).expect("sampled");
        assert!(share < NONE, "{share}");
        assert!(periods.module.remarks().is_empty());
    }
}

/// A process that is killed when the test is over, whatever its outcome.
struct Other(Child);

impl Other {
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::null()).spawn();
        Self(child.expect("another process"))
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other process of another test; runs until it is killed"]
fn computes_for_ever() {
    loop {
        support::float();
    }
}

/// The thread of a process that computes: the test harness runs it beside its main thread.
fn busy_thread(pid: i32) -> i32 {
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(20));
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("alive");
        let numbers = tasks.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
        if let Some(busy) = numbers.filter(|tid| *tid != pid).max() {
            return busy;
        }
    }
    panic!("process {pid} has no second thread")
}

#[test]
fn another_process_is_sampled() {
    for module in modules() {
        let program = std::env::current_exe().expect("this test");
        let computing = ["--exact", "computes_for_ever", "--ignored", "--nocapture"];
        let other = Other::start(Command::new(program).args(computing));
        let pid = other.pid();
        let busy = thread_id(busy_thread(pid));
        let mut periods = Periods::new(module);
        periods.follow(busy, pid);
        let metrics = periods.period_of_work(&[busy], WORK);
        assert!(value(&metrics, busy, FP_SHARE).expect("sampled") > MUCH);
        drop(other);
        // what was sampled before the end
        periods.period(Duration::from_millis(10));
        assert!(periods.period(Duration::from_millis(10)).is_empty());
    }
}

#[test]
fn a_program_that_executes_another_is_read_anew() {
    let module = match SamplerModule::open(Options::default()) {
        Ok(module) => module,
        Err(error) => return skip!(Perf, "{error}"),
    };
    // An endless loop of the shell, then on a signal another program in the same process.
    let program = std::env::current_exe().expect("this test");
    let script = format!(
        "trap 'exec {} --exact computes_for_ever --ignored --nocapture' USR1; while :; do :; done",
        program.display()
    );
    let other = Other::start(Command::new("sh").args(["-c", &script]));
    let pid = other.pid();
    let mut source =
        TaskEvents::for_process(pid, 0, Buffering::default()).expect("one's own child");
    let mut periods = Periods::new(module);
    let shell = thread_id(pid);
    periods.follow(shell, pid);
    let metrics = periods.period_of_work(&[shell], WORK);
    assert!(value(&metrics, shell, FP_SHARE).expect("sampled") < NONE);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&other.0),
        rustix::process::Signal::USR1,
    )
    .expect("signal");
    let busy = thread_id(busy_thread(pid));
    let events = source.drain();
    let executed =
        |e: &TaskEvent| matches!(e, TaskEvent::Comm { exec: true, pid: p, .. } if *p == pid);
    assert!(events.iter().any(executed), "{events:?}");
    events.iter().for_each(|event| periods.module.note(event));
    periods.follow(busy, pid);
    let metrics = periods.period_of_work(&[busy], WORK);
    assert!(value(&metrics, busy, FP_SHARE).expect("sampled") > MUCH);
}

#[test]
fn a_thousand_threads_leave_no_descriptor() {
    for module in modules() {
        let mut periods = Periods::new(module);
        let before = descriptors();
        for _ in 0..10 {
            let workers: Vec<Worker> = (0..100).map(|_| Worker::start(Work::Sleep)).collect();
            for worker in &workers {
                periods.follow(worker.id, own_pid());
            }
            periods.period(Duration::from_millis(20));
            periods.end_all();
            drop(workers);
            periods.period(Duration::from_millis(20));
        }
        // other tests of this program may hold a few
        assert!(
            descriptors() < before + 60,
            "{} and {before}",
            descriptors()
        );
    }
}

#[test]
fn threads_that_switch_often_are_sampled_for_a_while_and_reported_once() {
    let module = match SamplerModule::open(per_thread()) {
        Ok(module) => module,
        Err(error) => return skip!(Perf, "{error}"),
    };
    assert!(!module.system_wide());
    let mut periods = Periods::new(module);
    let worker = Worker::start(Work::Float);
    periods.follow(worker.id, own_pid());
    periods.period_with(Duration::from_millis(100), 1_000);
    let remarks = periods.module.remarks();
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(
        remarks[0]
            .text
            .contains("times a second (1 now) are sampled for a part of some periods")
    );
    assert!(remarks[0].text.contains("kernel.perf_event_paranoid"));
    // It is known all the same.
    let mut known = None;
    for _ in 0..40 {
        let metrics = periods.period_with(Duration::from_millis(100), 1_000);
        known = known.or(value(&metrics, worker.id, FP_SHARE));
    }
    assert!(known.expect("sampled") > MUCH);
    assert!(periods.module.remarks().is_empty());
    // Beyond all measure it is not.
    // Samples of before are told of within a second.
    for _ in 0..13 {
        periods.period_with(Duration::from_millis(100), 500_000);
    }
    assert!(
        periods
            .period_with(Duration::from_millis(100), 500_000)
            .is_empty()
    );
    assert!(
        periods.module.remarks()[0]
            .text
            .contains("are not sampled (1 now)")
    );
    // calm again, it is sampled again
    periods.period_of_work(&[worker.id], WORK);
    let metrics = periods.period_of_work(&[worker.id], WORK);
    assert!(value(&metrics, worker.id, FP_SHARE).expect("sampled") > MUCH);
}

#[cfg(target_arch = "x86_64")]
mod made_at_run_time {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    };

    /// mov ecx, 200000; add rax, rdx; xor rdx, rax; dec ecx; jne; ret
    const INTEGER: [u8; 16] = [
        0xb9, 0x40, 0x0d, 0x03, 0x00, 0x48, 0x01, 0xd0, 0x48, 0x31, 0xc2, 0xff, 0xc9, 0x75, 0xf6,
        0xc3,
    ];

    /// mov ecx, 200000; addsd xmm0, xmm1; mulsd xmm0, xmm1; dec ecx; jne; ret
    const FLOAT: [u8; 18] = [
        0xb9, 0x40, 0x0d, 0x03, 0x00, 0xf2, 0x0f, 0x58, 0xc1, 0xf2, 0x0f, 0x59, 0xc1, 0xff, 0xc9,
        0x75, 0xf4, 0xc3,
    ];

    /// A page that can be written and executed.
    fn page() -> u64 {
        // SAFETY: a new private anonymous mapping, which nothing else knows of.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        page as u64
    }

    fn write(page: u64, code: &[u8]) {
        // SAFETY: the page is writable, longer than the code, and not executed while it is written.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), page as *mut u8, code.len()) }
    }

    fn call(page: u64) {
        // SAFETY: the page holds one of the functions above: no arguments, no result, only scratch registers.
        let function: extern "C" fn() = unsafe { std::mem::transmute(page as *const ()) };
        function();
    }

    #[test]
    fn code_that_is_overwritten_is_decoded_again() {
        for module in modules() {
            let page = page();
            write(page, &INTEGER);
            let (stop, rewrite) = (
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicBool::new(false)),
            );
            let tid = Arc::new(AtomicU64::new(0));
            let thread = {
                let (stop, rewrite, tid) = (stop.clone(), rewrite.clone(), tid.clone());
                std::thread::spawn(move || {
                    let own = rustix::thread::gettid().as_raw_nonzero().get();
                    tid.store(own as u64, Ordering::SeqCst);
                    while !stop.load(Ordering::SeqCst) {
                        if rewrite.swap(false, Ordering::SeqCst) {
                            write(page, &FLOAT);
                        }
                        call(page);
                    }
                })
            };
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let id = thread_id(tid.load(Ordering::SeqCst) as i32);
            let mut periods = Periods::new(module);
            periods.follow(id, own_pid());
            let before = value(&periods.period_of_work(&[id], WORK), id, FP_SHARE);
            rewrite.store(true, Ordering::SeqCst);
            periods.period_of_work(&[id], WORK);
            let after = value(&periods.period_of_work(&[id], WORK), id, FP_SHARE);
            stop.store(true, Ordering::SeqCst);
            thread.join().expect("join");
            assert!(before.expect("sampled") < NONE);
            assert!(after.expect("sampled") > MUCH);
        }
    }
}
