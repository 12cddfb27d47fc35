//! A program's recorded threads in memory.

use crate::{Code, Encoder, cursor::Decoder};
use rustc_hash::FxHashMap;

/// The instructions of a program, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeTable {
    codes: Vec<Code>,
    /// The number of the first access of each instruction, counted over the table; then their number.
    slots: Vec<u32>,
    ids: FxHashMap<Code, u32>,
}

impl CodeTable {
    /// The number of an instruction, which is added if it is new.
    pub fn id(&mut self, code: Code) -> u32 {
        if let Some(id) = self.ids.get(&code) {
            return *id;
        }
        let id = self.add(code.clone());
        self.ids.insert(code, id);
        id
    }

    /// Adds an instruction without looking whether it is there.
    pub(crate) fn add(&mut self, code: Code) -> u32 {
        let id = self.codes.len() as u32;
        if self.slots.is_empty() {
            self.slots.push(0);
        }
        self.slots.push((self.slots() + code.accesses.len()) as u32);
        self.codes.push(code);
        id
    }

    /// The instruction of a number that the table gave out.
    ///
    /// # Panics
    /// Another number.
    #[inline]
    pub fn code(&self, id: u32) -> &Code {
        &self.codes[id as usize]
    }

    /// All instructions, by number.
    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// The number of the instruction's first access, counted over the table.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> usize {
        self.slots[id as usize] as usize
    }

    /// Accesses of all instructions together.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.slots.last().map_or(0, |slots| *slots as usize)
    }
}

/// What one thread executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// How many instructions.
    pub instructions: u64,
    /// Which, as [`Encoder`] writes them.
    pub(crate) bytes: Vec<u8>,
}

/// What the threads of one program executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The program, as it was started; empty if that is not known.
    pub program: String,
    pub(crate) table: CodeTable,
    pub(crate) threads: Vec<ThreadRecord>,
}

impl Recording {
    /// A recording without threads.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            ..Self::default()
        }
    }

    /// A recording of what encoders have taken down with this table.
    pub fn from_parts(
        program: impl Into<String>,
        table: CodeTable,
        threads: impl IntoIterator<Item = Encoder>,
    ) -> Self {
        let threads = threads.into_iter().map(|mut encoder| ThreadRecord {
            instructions: encoder.instructions(),
            bytes: encoder.finish(),
        });
        Self {
            program: program.into(),
            threads: threads.collect(),
            table,
        }
    }

    /// The instructions that its threads executed, each once.
    pub fn table(&self) -> &CodeTable {
        &self.table
    }

    /// Its threads, in the order in which they began.
    pub fn threads(&self) -> &[ThreadRecord] {
        &self.threads
    }

    /// About how much memory it takes, in bytes.
    pub fn memory(&self) -> usize {
        let code = |code: &Code| {
            size_of::<Code>()
                + code.bases.len()
                + code.sources.len()
                + code.destinations.len()
                + size_of_val(&*code.accesses)
        };
        let codes: usize = self.table.codes.iter().map(code).sum();
        codes + self.threads.iter().map(|t| t.bytes.len()).sum::<usize>()
    }

    /// Walks through all threads: whether every byte is as it must be.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (number, thread) in self.threads.iter().enumerate() {
            let mut decoder = Decoder::default();
            let mut instructions = 0u64;
            while decoder
                .step(&self.table, &thread.bytes)
                .map_err(|why| format!("thread {}: {why}", number + 1))?
                .is_some()
            {
                instructions += 1;
            }
            if instructions != thread.instructions {
                return Err(format!(
                    "thread {} has {instructions} instructions, and should have {}",
                    number + 1,
                    thread.instructions
                ));
            }
        }
        Ok(())
    }
}
