//! Programs of many threads, whose page faults are known.

use anyhow::Result;
use memmap2::MmapMut;
use std::{
    hint,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Pages that each thread is the first to touch.
pub const PAGES: usize = 8;

const PAGE: usize = 4096;

/// Threads need little.
const STACK: usize = 64 << 10;

/// Starts `threads` threads. When all are there, each touches its pages, and none ends before all have.
pub fn at_once(threads: usize) -> Result<()> {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                barrier.wait();
                let memory = touched();
                barrier.wait();
                memory.map(drop)
            };
            thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, work)?;
        }
        Ok(())
    })
}

/// Starts `threads` threads of about a millisecond, one after the other.
pub fn in_turn(threads: usize) -> Result<()> {
    for _ in 0..threads {
        let work = || {
            let start = Instant::now();
            let memory = touched();
            while start.elapsed() < Duration::from_millis(1) {
                hint::spin_loop();
            }
            memory.map(drop)
        };
        thread::scope(|scope| scope.spawn(work).join().expect("it cannot panic"))?;
    }
    Ok(())
}

fn touched() -> std::io::Result<MmapMut> {
    let mut memory = MmapMut::map_anon(PAGES * PAGE)?;
    memory.chunks_mut(PAGE).for_each(|page| page[0] = 1);
    Ok(memory)
}
