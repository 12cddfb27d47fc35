//! The instruction that ran before a sampled address.

use crate::instruction::{Arch, Decoded, Flow};
use crate::source::{CodeReader, CodeSource};

/// How far back decoding starts, in bytes: enough for chains from wrong starting points to have met the
/// true sequence (x86 resynchronises within a few instructions).
const REACH: usize = 64;

/// The instruction that ends at `ip` and may have run before it, with its address.
///
/// Code is only decodable forward, so on x86 every address within reach is tried as a start; chains that
/// arrive at `ip` vote for their last instruction. Where none arrives, or the winner never falls through,
/// there is no answer.
pub(crate) fn predecessor(
    reader: &mut CodeReader,
    source: &dyn CodeSource,
    ip: u64,
) -> Option<(u64, Decoded)> {
    let winner = match reader.arch() {
        Arch::Aarch64 => 4,
        Arch::X86 | Arch::X86_64 => vote(reader, source, ip)?,
    };
    let address = ip.checked_sub(winner as u64)?;
    let instruction = reader.decode(source, address)?;
    let falls_through = !matches!(
        instruction.flow,
        Flow::Jump(_) | Flow::IndirectJump { .. } | Flow::Return | Flow::Stop
    );
    (falls_through && instruction.next(address) == ip).then_some((address, instruction))
}

/// Distance from `ip` of the instruction that most chains end with.
fn vote(reader: &mut CodeReader, source: &dyn CodeSource, ip: u64) -> Option<usize> {
    // For each distance: with which instruction (its distance) the chain from there arrives at `ip`.
    let mut arrives_by = [0u8; REACH + 1];
    let mut votes = [0u32; REACH + 1];
    for distance in 1..=REACH {
        let Some(address) = ip.checked_sub(distance as u64) else {
            break;
        };
        let Some(length) = reader.length(source, address) else {
            continue;
        };
        let length = usize::from(length);
        let by = match length.cmp(&distance) {
            std::cmp::Ordering::Equal => distance as u8,
            std::cmp::Ordering::Less => arrives_by[distance - length],
            std::cmp::Ordering::Greater => 0,
        };
        arrives_by[distance] = by;
        if by != 0 {
            // A chain from further away has had more time to meet the true sequence.
            votes[usize::from(by)] += distance as u32;
        }
    }
    (1..=REACH)
        .filter(|&d| votes[d] > 0)
        .max_by_key(|&d| votes[d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::CodeImage;

    fn before(arch: Arch, bytes: &[u8], offset: u64) -> Option<(u64, Decoded)> {
        let mut image = CodeImage::new(arch);
        image.add(0x1000, bytes);
        predecessor(&mut CodeReader::new(arch), &image, 0x1000 + offset)
    }

    #[test]
    fn the_true_boundary_wins() {
        // 32 nops; mov 0x8(%rax,%rbx,4),%rcx; add %rcx,%rdx; mov %rdx,0x1234(%rsi); nop; …
        let mut code = vec![0x90; 32];
        code.extend([
            0x48, 0x8b, 0x4c, 0x98, 0x08, 0x48, 0x01, 0xca, 0x48, 0x89, 0x96, 0x34, 0x12, 0x00,
            0x00, 0x90, 0x90,
        ]);
        let (address, load) = before(Arch::X86_64, &code, 37).unwrap();
        assert_eq!((address, load.reads), (0x1020, true));
        let (address, add) = before(Arch::X86_64, &code, 40).unwrap();
        assert_eq!((address, add.reads), (0x1025, false));
        let (address, store) = before(Arch::X86_64, &code, 47).unwrap();
        assert_eq!((address, store.writes), (0x1028, true));
    }

    #[test]
    fn nothing_falls_through_a_return_and_nothing_precedes_the_start() {
        // nop; ret; nop
        assert_eq!(before(Arch::X86_64, &[0x90, 0xc3, 0x90], 2), None);
        assert_eq!(before(Arch::X86_64, &[0x90], 0), None);
        // ret; nop (aarch64)
        let code = [0xc0, 0x03, 0x5f, 0xd6, 0x1f, 0x20, 0x03, 0xd5];
        assert_eq!(before(Arch::Aarch64, &code, 4), None);
        assert!(before(Arch::Aarch64, &code, 8).is_some());
    }
}
