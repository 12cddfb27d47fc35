//! Taskstats records of threads that ended, as netlink datagrams.
#![no_main]

use perch_linux::taskstats::parse;

/// A number that the kernel may give to the family.
const FAMILY: u16 = 21;

libfuzzer_sys::fuzz_target!(|input: (bool, &[u8])| {
    let (framed, bytes) = input;
    let _ = match framed {
        // Behind headers that are right, so that the structure is reached.
        true => {
            let length = 20 + bytes.len() as u32;
            let mut datagram = [length.to_ne_bytes(), u32::from(FAMILY).to_ne_bytes()].concat();
            datagram.extend([0; 8]);
            datagram.extend([2, 1, 0, 0]);
            datagram.extend(bytes);
            parse(&datagram, FAMILY)
        }
        false => parse(bytes, FAMILY),
    };
});
