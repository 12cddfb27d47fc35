//! Generated inputs: text to compress, sound to encode, C to compile. The same bytes on every machine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

const TEXT_BYTES: usize = 96 << 20;
const SOUND_SECONDS: u32 = 600;
const SOUND_RATE: u32 = 44_100;
const LARGE_FUNCTIONS: usize = 2600;
const SMALL_FUNCTIONS: usize = 40;

/// Writes `text`, `sound.raw`, `large.c` and `small.c`.
///
/// # Errors
/// As for any file.
pub fn write_all(folder: &Path) -> Result<()> {
    write_text(&mut BufWriter::new(File::create(folder.join("text"))?))?;
    write_sound(&mut BufWriter::new(File::create(folder.join("sound.raw"))?))?;
    std::fs::write(folder.join("large.c"), c_source(LARGE_FUNCTIONS))?;
    std::fs::write(folder.join("small.c"), c_source(SMALL_FUNCTIONS))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Words of a vocabulary in which few words are frequent and many are rare, with numbers between them.
fn write_text(out: &mut impl Write) -> Result<()> {
    let mut random = Random(1);
    let vocabulary: Vec<String> = (0..4000)
        .map(|_| {
            let letters = 2 + random.below(9);
            (0..letters)
                .map(|_| char::from(b'a' + random.below(26) as u8))
                .collect()
        })
        .collect();
    let mut written = 0;
    while written < TEXT_BYTES {
        // The product of two uniform numbers falls off much as words do.
        let rank = random.below(64) * random.below(64) * 4000 / 4096;
        let word = &vocabulary[rank as usize];
        let end = if random.below(12) == 0 { '\n' } else { ' ' };
        if random.below(16) == 0 {
            let number = random.below(100_000).to_string();
            write!(out, "{number}{end}")?;
            written += number.len() + 1;
        } else {
            write!(out, "{word}{end}")?;
            written += word.len() + 1;
        }
    }
    out.flush()
}

/// Two channels of three gliding tones and some noise, 16 bits, little-endian.
fn write_sound(out: &mut impl Write) -> Result<()> {
    let mut random = Random(2);
    for sample in 0..SOUND_SECONDS * SOUND_RATE {
        let time = f64::from(sample) / f64::from(SOUND_RATE);
        let glide = 1.0 + 0.2 * (time * 0.7).sin();
        for channel in [1.0, 1.01] {
            let tones = (time * 2764.0 * glide * channel).sin() * 0.4
                + (time * 941.0 * channel).sin() * 0.3
                + (time * 6911.0 * glide).sin() * 0.1;
            let noise = random.below(2048) as f64 - 1024.0;
            let value = (tones * 30_000.0 + noise).clamp(-32_768.0, 32_767.0) as i16;
            out.write_all(&value.to_le_bytes())?;
        }
    }
    out.flush()
}

/// Functions with loops, conditions, calls and arrays, each a little different.
fn c_source(functions: usize) -> String {
    let mut random = Random(3);
    let mut text = String::from("int step0(int *a, int n) { return a[0] + n; }\n");
    for number in 1..=functions {
        let (p, q, r) = (random.below(97) + 2, random.below(31), random.below(7) + 1);
        let callee = random.below(number as u64);
        write!(
            text,
            "int step{number}(int *a, int n)\n{{\n    int sum = {p}, last = 0;\n    \
             for (int i = 0; i < n; i++) {{\n        if (a[i] % {p} == {q} || sum > n * {r})\n            \
             sum ^= a[i] << {r};\n        else if (i > {q} && a[i - 1] > last)\n            \
             sum += step{callee}(a + i % {p}, n / {p}) - last;\n        switch ((a[i] + i) & 7) {{\n        \
             case 0: last = a[i] * {p}; break;\n        case 3: last -= sum / {p}; break;\n        \
             case 5: a[i] = last ^ {q}; break;\n        default: last++;\n        }}\n    }}\n    \
             return sum - last;\n}}\n"
        )
        .expect("writing to a String");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_accepts_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.c");
        std::fs::write(&file, c_source(20)).unwrap();
        let status = std::process::Command::new("cc")
            .args(["-Wall", "-Werror", "-fsyntax-only"])
            .arg(&file)
            .status();
        assert!(status.unwrap().success());
    }
}
