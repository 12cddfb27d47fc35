//! One round of each kernel.

use crate::{
    Bench,
    keep::{keep, keep_float, needed},
    memory::LINE,
};

/// x = x · FACTOR + TERM stays near 1.
const FACTOR: f64 = 0.999_999;
const TERM: f64 = 0.000_001;

/// Steps of a generator of random numbers (Knuth's MMIX).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

impl Bench {
    /// Reads a word of which the offset is below its end by what the caller's loop says.
    #[inline(always)]
    fn read(&self, offset: usize) -> u64 {
        // SAFETY: every loop below keeps its offsets multiples of 8 and below `bytes`: walks in order turn back at the
        // end, which is a multiple of their step; random walks are masked to lines, of which there are mask + 1.
        unsafe { self.room.read(offset) }
    }

    /// Writes a word likewise.
    #[inline(always)]
    fn write(&self, offset: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.room.write(offset, value) }
    }
}

#[inline(always)]
fn chance(x: u64) -> u64 {
    x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// Twelve chains of a multiplication and an addition each: more than two pipelined units need.
pub fn fp(_: &mut Bench) {
    let mut chains = [1.0f64; 12];
    for _ in 0..512 {
        for x in &mut chains {
            *x = keep_float(*x * FACTOR + TERM);
        }
    }
    needed(chains);
}

/// One such chain.
pub fn fp_chain(_: &mut Bench) {
    let mut x = 1.0;
    for _ in 0..256 {
        for _ in 0..4 {
            x = keep_float(x * FACTOR + TERM);
        }
    }
    needed(x);
}

/// As much integer work as floating-point work, and some loads of the first level.
pub fn fp_half(bench: &mut Bench) {
    let (mut a, mut b, mut i, mut j) = (1.0f64, 1.0f64, bench.x, 1u64);
    let bytes = bench.room.bytes();
    for at in (0..2048 * 16).step_by(16) {
        a = keep_float(a * FACTOR + TERM);
        b = keep_float(b * FACTOR + TERM);
        i = keep(i.rotate_left(5) ^ j);
        j = keep(j.wrapping_add(i));
        i = i.wrapping_add(bench.read(at & (bytes - 1)));
    }
    needed((a, b, j));
    bench.x = i;
}

/// Eight chains of simple integer operations.
pub fn integer(bench: &mut Bench) {
    let mut chains: [u64; 8] = std::array::from_fn(|at| bench.x.wrapping_add(at as u64));
    for _ in 0..512 {
        for x in &mut chains {
            *x = keep(keep(keep(x.wrapping_add(0x51)) ^ 0x33).rotate_left(7));
        }
    }
    bench.x = chains.iter().fold(0, |all, x| all ^ x);
}

/// Two chains, some loads and stores of the first level, branches that go one way.
pub fn integer_half(bench: &mut Bench) {
    let (mut a, mut b) = (bench.x, 3u64);
    let bytes = bench.room.bytes();
    for at in (0..2048 * 16).step_by(16) {
        a = keep(keep(a.wrapping_add(0x51)) ^ b);
        b = keep(keep(b.rotate_left(3)).wrapping_add(bench.read(at & (bytes - 1))));
        if keep(at as u64) & 48 == 0 {
            bench.write(at & (bytes - 1), 0);
        }
    }
    bench.x = a ^ b;
}

/// One chain.
pub fn integer_chain(bench: &mut Bench) {
    let mut x = bench.x;
    for _ in 0..512 {
        for _ in 0..4 {
            x = keep(keep(x.wrapping_add(0x51)).rotate_left(7));
        }
    }
    bench.x = x;
}

/// Divisions of integers and of floating-point numbers among other operations.
pub fn divide(bench: &mut Bench) {
    let (mut x, mut y, mut sum) = (bench.x | 1 << 40, 1.5f64, 0u64);
    for _ in 0..256 {
        let by = keep(0x1_2345_6789);
        sum = keep(sum.wrapping_add(x / by));
        x = keep(x.rotate_left(9)) | 1 << 40;
        y = keep_float(keep_float(1.7) / y);
        sum = keep(sum ^ keep(x.wrapping_add(0x51)));
    }
    needed(y);
    bench.x = sum;
}

/// Branches that cannot be predicted.
pub fn branch(bench: &mut Bench) {
    let (mut x, mut a, mut b) = (bench.x, 0u64, 1u64);
    for _ in 0..512 {
        x = chance(x);
        let mut bits = x >> 32;
        for _ in 0..8 {
            // What is kept is something done, which no conditional move can do.
            if bits & 1 == 0 {
                a = keep(a.wrapping_add(b));
            } else {
                b = keep(b ^ bits);
            }
            bits = keep(bits >> 1);
        }
    }
    needed((a, b));
    bench.x = x;
}

/// Three loads and a store, one word after the other.
pub fn words(bench: &mut Bench) {
    let (mut a, mut b) = (0u64, 0u64);
    let bytes = bench.room.bytes() / 64 * 64;
    let mut at = bench.at;
    for _ in 0..512 {
        a = a.wrapping_add(bench.read(at));
        b ^= bench.read(at + 8);
        a = a.wrapping_add(bench.read(at + 16));
        bench.write(at + 24, a);
        b ^= bench.read(at + 32);
        a = a.wrapping_add(bench.read(at + 40));
        b ^= bench.read(at + 48);
        at += 64;
        if at >= bytes {
            at = 0;
        }
    }
    needed((a, b));
    bench.at = at;
}

/// The offset of a random line.
#[inline(always)]
fn line(x: u64, mask: u64) -> usize {
    ((x >> 24) & mask) as usize * LINE
}

/// Two loads of random lines, which do not wait for each other, and of `WORK` more a store.
#[inline(always)]
fn anywhere<const FLOATS: bool>(bench: &mut Bench) {
    let (mut x, mut sum, mut y) = (bench.x, 0u64, 1.0f64);
    for step in 0..256u64 {
        x = chance(x);
        sum = sum.wrapping_add(bench.read(line(x, bench.mask)));
        sum ^= bench.read(line(x.rotate_left(23), bench.mask) + 8);
        if FLOATS {
            y = keep_float(y * FACTOR + TERM);
        }
        if step & 3 == 0 {
            bench.write(line(x, bench.mask) + 16, sum);
        }
    }
    needed((sum, y));
    bench.x = x;
}

/// Loads and stores of random lines.
pub fn random(bench: &mut Bench) {
    anywhere::<false>(bench);
}

/// The same with some floating-point work.
pub fn random_fp(bench: &mut Bench) {
    anywhere::<true>(bench);
}

/// Loads of random lines, each of which waits for the one before.
pub fn chase(bench: &mut Bench) {
    let mut x = bench.x;
    for _ in 0..64 {
        // All words are 0, but the processor must wait to know it.
        x = chance(x.wrapping_add(bench.read(line(x, bench.mask))));
    }
    bench.x = x;
}

/// Loads of one line after the other.
pub fn stream(bench: &mut Bench) {
    let (mut a, mut b) = (0u64, 0u64);
    let bytes = bench.room.bytes() / 256 * 256;
    let mut at = bench.at;
    for _ in 0..256 {
        a = a.wrapping_add(bench.read(at));
        b ^= bench.read(at + 64);
        a = a.wrapping_add(bench.read(at + 128));
        b ^= bench.read(at + 192);
        at += 256;
        if at >= bytes {
            at = 0;
        }
    }
    needed((a, b));
    bench.at = at;
}

/// Reads and writes one line after the other.
pub fn stream_store(bench: &mut Bench) {
    let bytes = bench.room.bytes() / 128 * 128;
    let (mut at, mut sum) = (bench.at, 0u64);
    for _ in 0..256 {
        sum = sum.wrapping_add(bench.read(at));
        bench.write(at + 8, sum);
        sum = sum.wrapping_add(bench.read(at + 64));
        bench.write(at + 72, sum);
        at += 128;
        if at >= bytes {
            at = 0;
        }
    }
    needed(sum);
    bench.at = at;
}

/// One word after the other of much memory, with floating-point work on it.
pub fn stream_words(bench: &mut Bench) {
    let bytes = bench.room.bytes() / 64 * 64;
    let (mut at, mut sum, mut y) = (bench.at, 0u64, 1.0f64);
    for _ in 0..256 {
        for word in 0..8 {
            sum = keep(sum.wrapping_add(bench.read(at + 8 * word)));
            y = keep_float(y * FACTOR + TERM);
        }
        at += 64;
        if at >= bytes {
            at = 0;
        }
    }
    needed((sum, y));
    bench.at = at;
}

/// One line of each page after the other.
pub fn pages(bench: &mut Bench) {
    let stride = rustix::param::page_size() + LINE;
    let bytes = bench.room.bytes();
    let (mut at, mut sum) = (bench.at, 0u64);
    for _ in 0..512 {
        sum = keep(sum.wrapping_add(bench.read(at)));
        at += stride;
        if at + LINE > bytes {
            at = 0;
        }
    }
    needed(sum);
    bench.at = at;
}
