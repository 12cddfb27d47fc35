//! Blocks of instructions as qemu translates them, decoded.

use crate::{Access, Class, Code, decode, recording::CodeTable};
use rustc_hash::FxHashMap;

/// One instruction before it is known what it does with memory.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) code: Code,
    /// The ways in which it has touched memory, and its number in the table for each.
    variants: Vec<(Box<[Access]>, u32)>,
}

/// All blocks that the plugin has told.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    templates: Vec<Template>,
    known: FxHashMap<(u64, Box<[u8]>), u32>,
    /// Templates of each block.
    blocks: FxHashMap<u32, Box<[u32]>>,
}

impl Blocks {
    /// Takes in blocks from a message; one that is damaged ends it.
    pub(super) fn add(&mut self, mut body: &[u8]) {
        while let Some((number, block)) = self.block(&mut body) {
            self.blocks.insert(number, block);
        }
    }

    fn block(&mut self, body: &mut &[u8]) -> Option<(u32, Box<[u32]>)> {
        let number = u32::from_le_bytes(take(body)?);
        let count = u32::from_le_bytes(take(body)?);
        let mut block = Vec::new();
        for _ in 0..count {
            let address = u64::from_le_bytes(take(body)?);
            let [length] = take(body)?;
            let (bytes, rest) = body.split_at_checked(usize::from(length))?;
            *body = rest;
            block.push(self.template(address, bytes));
        }
        Some((number, block.into()))
    }

    fn template(&mut self, address: u64, bytes: &[u8]) -> u32 {
        let next = self.templates.len() as u32;
        let known = self.known.entry((address, bytes.into()));
        *known.or_insert_with(|| {
            let code = decode(bytes, address).unwrap_or_else(|| unknown(address, bytes));
            self.templates.push(Template {
                code,
                variants: Vec::new(),
            });
            next
        })
    }

    /// The templates of a block.
    pub(super) fn get(&self, block: u32) -> Option<&[u32]> {
        self.blocks.get(&block).map(|block| &**block)
    }

    /// An instruction of a block.
    pub(super) fn code(&self, template: u32) -> &Code {
        &self.templates[template as usize].code
    }

    /// The number of an instruction that touches memory in this way.
    #[inline]
    pub(super) fn id(&mut self, template: u32, accesses: &[Access], table: &mut CodeTable) -> u32 {
        let template = &mut self.templates[template as usize];
        let mut variants = template.variants.iter();
        if let Some((_, id)) = variants.find(|(known, _)| **known == *accesses) {
            return *id;
        }
        let code = Code {
            accesses: accesses.into(),
            ..template.code.clone()
        };
        let id = table.id(code);
        template.variants.push((accesses.into(), id));
        id
    }
}

/// An instruction that the decoder does not know, but qemu does.
fn unknown(address: u64, bytes: &[u8]) -> Code {
    Code {
        address,
        length: bytes.len() as u8,
        class: Class::Alu,
        branch: None,
        bases: Box::default(),
        sources: Box::default(),
        destinations: Box::default(),
        accesses: Box::default(),
    }
}

fn take<const BYTES: usize>(body: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (first, rest) = body.split_first_chunk()?;
    *body = rest;
    Some(*first)
}
