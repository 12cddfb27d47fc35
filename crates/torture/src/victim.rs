//! The programs that perch is run on: one that executes orders, one that does nothing, one that squats.

use crate::orders::{Message, Order, Reply};
use anyhow::{Context, Result, bail};
use nix::unistd::{ForkResult, fork, setsid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::{
    collections::HashMap,
    convert::Infallible,
    ffi::{CStr, CString},
    io::{BufRead, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    ptr,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// Threads of a crowd do nothing.
const CROWD_STACK: usize = 32 << 10;

type Ask = (Order, Sender<Result<Started>>);

/// What obeying an order brought about.
enum Started {
    /// The thread or process of that number.
    Tid(i32),
    /// A thread that takes orders.
    Thread(i32, String, Sender<Ask>),
}

/// Obeys the orders on standard input until it ends.
pub fn run() -> Result<()> {
    ignore_signals();
    say(&Reply::Tid(own_tid()))?;
    let mut threads: HashMap<String, Sender<Ask>> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let Message { to, order } = serde_json::from_str(&line?)?;
        let done = if to.is_empty() {
            obey(order)
        } else {
            ask(&threads, &to, order)
        };
        let reply = match done {
            Ok(Started::Tid(tid)) => Reply::Tid(tid),
            Ok(Started::Thread(tid, name, sender)) => {
                threads.insert(name, sender);
                Reply::Tid(tid)
            }
            Err(error) => Reply::Failed(format!("{error:#}")),
        };
        say(&reply)?;
    }
    std::process::exit(0)
}

fn ask(threads: &HashMap<String, Sender<Ask>>, to: &str, order: Order) -> Result<Started> {
    let sender = threads.get(to).with_context(|| format!("no thread {to}"))?;
    let (answer, answered) = channel();
    sender.send((order, answer))?;
    answered.recv()?
}

fn say(reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    std::io::stdout().lock().write_all(line.as_bytes())?;
    Ok(std::io::stdout().lock().flush()?)
}

/// perch passes signals on; the victim must outlive them to be looked at.
fn ignore_signals() {
    use nix::libc::{SIG_IGN, SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, signal};
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM] {
        // SAFETY: no handler of ours is installed.
        unsafe { signal(number, SIG_IGN) };
    }
}

fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn name_self(name: &str) -> Result<()> {
    Ok(rustix::thread::set_name(&CString::new(name)?)?)
}

fn take_orders(orders: &Receiver<Ask>) {
    for (order, answer) in orders {
        let _ = answer.send(obey(order));
    }
}

/// Does it in the calling thread, which is what children inherit from.
fn obey(order: Order) -> Result<Started> {
    Ok(Started::Tid(match order {
        Order::Thread(name) => return thread(name),
        Order::Crowd(name, count) => crowd(&name, count)?,
        Order::Pin(pus) => {
            crate::masks::set_mask(own_tid(), &pus.parse()?)?;
            own_tid()
        }
        Order::Rename(name) => {
            name_self(&name)?;
            own_tid()
        }
        Order::Fork(name) => still(&name)?,
        Order::Daemon(name) => daemon(&name)?,
        Order::Spawn(command) => {
            let mut spawn = program(&command)?;
            spawn.stdin(Stdio::null()).stdout(Stdio::null());
            spawn.spawn()?.id() as i32
        }
        Order::Exec(command) => bail!("{}", program(&command)?.exec()),
        Order::Dumpable(dumpable) => {
            set_dumpable_behavior(if dumpable {
                DumpableBehavior::Dumpable
            } else {
                DumpableBehavior::NotDumpable
            })?;
            own_tid()
        }
        Order::End => std::process::exit(0),
    }))
}

fn program(command: &[String]) -> Result<Command> {
    let (program, arguments) = command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn thread(name: String) -> Result<Started> {
    let (sender, orders) = channel();
    let (say_tid, tid) = channel();
    let own = name.clone();
    // Named by itself: a name that the standard library would refuse is wanted too.
    std::thread::Builder::new().spawn(move || {
        let named = name_self(&own);
        let _ = say_tid.send(named.map(|()| own_tid()));
        take_orders(&orders);
    })?;
    Ok(Started::Thread(tid.recv()??, name, sender))
}

/// Threads on stacks of one mapping: with several mappings each, the kernel's limit would be at 16,000 threads.
fn crowd(name: &str, count: usize) -> Result<i32> {
    let name: &'static CStr = Box::leak(CString::new(name)?.into_boxed_c_str());
    let before = IN_CROWD.load(Ordering::Relaxed);
    // SAFETY: a new mapping, which is never unmapped, and of which each thread gets its own part. The threads never
    // end, the name is never freed, and the attributes are initialised.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let stacks = libc::mmap(
            ptr::null_mut(),
            count * CROWD_STACK,
            protection,
            flags,
            -1,
            0,
        );
        if stacks == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        for index in 0..count {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&raw mut attributes);
            let stack = stacks.byte_add(index * CROWD_STACK);
            libc::pthread_attr_setstack(&raw mut attributes, stack, CROWD_STACK);
            let mut thread = 0;
            let name = name.as_ptr().cast_mut().cast();
            match libc::pthread_create(&raw mut thread, &raw const attributes, in_crowd, name) {
                0 => {}
                error => return Err(std::io::Error::from_raw_os_error(error).into()),
            }
        }
    }
    while IN_CROWD.load(Ordering::Relaxed) < before + count {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(own_tid())
}

/// How many threads of crowds have their names.
static IN_CROWD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn in_crowd(name: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the name of a crowd, which is never freed.
    let name = unsafe { CStr::from_ptr(name.cast_const().cast()) };
    let _ = rustix::thread::set_name(name);
    IN_CROWD.fetch_add(1, Ordering::Relaxed);
    loop {
        nix::unistd::pause();
    }
}

/// A forked process that does nothing.
fn still(name: &str) -> Result<i32> {
    // SAFETY: the child makes system calls only, and never returns.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => rest(name),
    }
}

fn rest(name: &str) -> ! {
    let _ = name_self(name);
    loop {
        nix::unistd::pause();
    }
}

fn daemon(name: &str) -> Result<i32> {
    let (mut tid, mut say_tid) = std::io::pipe()?;
    // SAFETY: the child and its child make system calls only, and never return.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(say_tid);
            let mut number = [0; 4];
            tid.read_exact(&mut number)?;
            nix::sys::wait::waitpid(child, None)?;
            Ok(i32::from_ne_bytes(number))
        }
        ForkResult::Child => {
            let _ = setsid();
            // SAFETY: as above.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    let _ = say_tid.write_all(&own_tid().to_ne_bytes());
                    drop(say_tid);
                    rest(name)
                }
                // SAFETY: ends this process without running anything of the copied one.
                _ => unsafe { nix::libc::_exit(0) },
            }
        }
    }
}

/// Does nothing until it is killed.
pub fn idle() -> ! {
    loop {
        std::thread::park();
    }
}

/// Binds the abstract names of these PUs' locks and keeps them until it is killed.
pub fn squat(pus: &[u32]) -> Result<Infallible> {
    let mut sockets = Vec::new();
    for pu in pus {
        let address = SocketAddrUnix::new_abstract_name(format!("perch-pu-{pu}").as_bytes())?;
        let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        bind(&socket, &address)?;
        sockets.push(socket);
    }
    say(&Reply::Tid(own_tid()))?;
    idle()
}
