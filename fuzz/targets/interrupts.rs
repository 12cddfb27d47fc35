//! /proc/interrupts.
#![no_main]

use perch_linux::irq::{between, parse_interrupts};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let middle = bytes.len() / 2;
    let (before, after) = (parse_interrupts(&bytes[..middle]), parse_interrupts(&bytes[middle..]));
    for read in [&before, &after] {
        assert!(read.lines.iter().all(|line| line.counts.len() == read.pus.len()));
    }
    between(&before, &after);
});
