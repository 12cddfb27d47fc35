//! Where code bytes come from.

use crate::instruction::{Arch, Decoded, InstructionDecoder};

/// The memory of one address space, as far as its code is concerned.
///
/// Implementations read `/proc/PID/mem`, an ELF file on disk, a recording, or a buffer.
pub trait CodeSource {
    /// Instruction set of the code.
    fn arch(&self) -> Arch;

    /// Copies bytes from `address` on into `buffer` and returns how many; fewer than asked for where
    /// readable memory ends, 0 if nothing can be read. Called for code, and for the fixed pointers of
    /// linkage tables that code jumps through.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
}

/// Code held in memory: segments of bytes at their addresses.
#[derive(Debug, Clone)]
pub struct CodeImage {
    arch: Arch,
    segments: Vec<(u64, Vec<u8>)>,
}

impl CodeImage {
    /// An image without code.
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            segments: Vec::new(),
        }
    }

    /// Adds bytes at `address`. Where segments overlap, the one that starts last counts.
    pub fn add(&mut self, address: u64, bytes: impl Into<Vec<u8>>) {
        let position = self
            .segments
            .partition_point(|(start, _)| *start <= address);
        self.segments.insert(position, (address, bytes.into()));
    }
}

impl CodeSource for CodeImage {
    fn arch(&self) -> Arch {
        self.arch
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let after = self
            .segments
            .partition_point(|(start, _)| *start <= address);
        let Some((start, bytes)) = after.checked_sub(1).map(|i| &self.segments[i]) else {
            return 0;
        };
        let available = usize::try_from(address - start)
            .ok()
            .and_then(|skip| bytes.get(skip..));
        let available = available.unwrap_or_default();
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        count
    }
}

/// Bytes fetched at once: a system call costs far more than the copy, and loops are short.
const CHUNK: usize = 512;
/// Chunks kept.
const CHUNKS: usize = 16;

struct Chunk {
    base: u64,
    len: usize,
    bytes: [u8; CHUNK],
}

/// Decodes instructions at arbitrary addresses of a source, keeping the last few chunks of bytes.
pub(crate) struct CodeReader {
    decoder: InstructionDecoder,
    chunks: Vec<Chunk>,
    next: usize,
}

impl CodeReader {
    pub(crate) fn new(arch: Arch) -> Self {
        Self {
            decoder: InstructionDecoder::new(arch),
            chunks: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn arch(&self) -> Arch {
        self.decoder.arch()
    }

    /// Forgets all bytes: the code may have changed.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.next = 0;
    }

    /// The instruction at `ip`.
    pub(crate) fn decode(&mut self, source: &dyn CodeSource, ip: u64) -> Option<Decoded> {
        let (bytes, count) = self.bytes(source, ip);
        self.decoder.decode(&bytes[..count], ip)
    }

    /// Length of the instruction at `ip`.
    pub(crate) fn length(&mut self, source: &dyn CodeSource, ip: u64) -> Option<u8> {
        let (bytes, count) = self.bytes(source, ip);
        self.decoder.length(&bytes[..count], ip)
    }

    /// As many bytes from `ip` on as an instruction may have, and how many could be read.
    fn bytes(&mut self, source: &dyn CodeSource, ip: u64) -> ([u8; 15], usize) {
        let longest = self.arch().max_instruction_len();
        let mut bytes = [0; 15];
        let mut have = 0;
        while have < longest {
            let Some(address) = ip.checked_add(have as u64) else {
                break;
            };
            let Some(chunk) = self.chunk(source, address) else {
                break;
            };
            let part = &chunk.bytes[(address - chunk.base) as usize..chunk.len];
            let count = part.len().min(longest - have);
            bytes[have..have + count].copy_from_slice(&part[..count]);
            have += count;
        }
        (bytes, have)
    }

    /// The pointer stored at `slot`.
    pub(crate) fn pointer(&mut self, source: &dyn CodeSource, slot: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let size = self.arch().pointer_size();
        (source.read(slot, &mut bytes[..size]) == size)
            .then(|| u64::from_le_bytes(bytes))
            .filter(|&target| target != 0)
    }

    /// The chunk with the byte at `address`, if that byte can be read.
    fn chunk(&mut self, source: &dyn CodeSource, address: u64) -> Option<&Chunk> {
        let base = address & !(CHUNK as u64 - 1);
        let known = self.chunks.iter().position(|chunk| chunk.base == base);
        let index = match known {
            Some(index) => index,
            None => {
                let mut chunk = Chunk {
                    base,
                    len: 0,
                    bytes: [0; CHUNK],
                };
                chunk.len = source.read(base, &mut chunk.bytes).min(CHUNK);
                if self.chunks.len() < CHUNKS {
                    self.chunks.push(chunk);
                    self.chunks.len() - 1
                } else {
                    let index = self.next;
                    self.next = (self.next + 1) % CHUNKS;
                    self.chunks[index] = chunk;
                    index
                }
            }
        };
        let chunk = &self.chunks[index];
        ((address - base) < chunk.len as u64).then_some(chunk)
    }
}
