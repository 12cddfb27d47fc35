//! The kernel's description of its own types (`/sys/kernel/btf/vmlinux`), as far as the offsets of a few members need it.
//!
//! Source: `Documentation/bpf/btf.rst` of the kernel. Own code: btf-rs is under the LGPL, aya-obj hides members, and
//! libbpf needs a C compiler when perch is built.

use std::ops::Range;

/// What bpf_iter programs may load: an offset that fits in an instruction.
pub type Offset = i16;

const MAGIC: u16 = 0xeb9f;

/// Kinds of types, in the order of btf.rst.
pub const STRUCT: u32 = 4;
const UNION: u32 = 5;
const VOLATILE_CONST_RESTRICT: Range<u32> = 9..12;
const TYPEDEF: u32 = 8;
pub const FUNCTION: u32 = 12;
const TYPE_TAG: u32 = 18;

/// Anonymous members hold members of their own; no kernel nests them deeper.
const DEPTH: u32 = 16;

/// All types, by number.
pub struct Btf<'a> {
    bytes: &'a [u8],
    /// Where type `i + 1` begins.
    types: Vec<u32>,
    strings: usize,
}

/// A type's fixed part.
struct Type {
    name: u32,
    kind: u32,
    /// Number of members.
    members: usize,
    /// Whether members' offsets share their word with the width of bit fields.
    has_bit_fields: bool,
    /// What it refers to.
    of: u32,
}

impl<'a> Btf<'a> {
    /// Finds where the types are; `None` if the bytes are damaged, or of a kind that is not known.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let [header, types, length, strings] = [4, 8, 12, 16].map(|at| word(bytes, at));
        let header = header? as usize;
        let first = header.checked_add(types? as usize)?;
        let end = first.checked_add(length? as usize)?;
        let strings = header.checked_add(strings? as usize)?;
        let mut btf = Self {
            bytes,
            types: Vec::new(),
            strings,
        };
        let mut at = first;
        while at < end {
            let found = btf.at(at)?;
            btf.types.push(at as u32);
            at = at.checked_add(12 + found.tail()?)?;
        }
        Some(btf)
    }

    /// The number of the type of that kind and name.
    pub fn find(&self, kind: u32, name: &str) -> Option<u32> {
        let found = self.types.iter().position(|at| {
            self.at(*at as usize)
                .is_some_and(|found| found.kind == kind && self.is_named(found.name, name))
        })?;
        Some(found as u32 + 1)
    }

    /// The offset in bytes of a member of a member … of a structure.
    pub fn offset(&self, structure: u32, path: &[&str]) -> Option<Offset> {
        let mut at = 0_u32;
        let mut holder = structure;
        for name in path {
            let (offset, of) = self.member(holder, name, DEPTH)?;
            at = at.checked_add(offset)?;
            holder = of;
        }
        Offset::try_from(at).ok()
    }

    /// Where a member is in its structure, in bytes, and the number of its type.
    fn member(&self, structure: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        let (at, found) = self.plain(structure)?;
        for index in 0..found.members {
            let [own_name, of, offset] = [0, 4, 8].map(|word| at + 12 + 12 * index + word);
            let bits = word(self.bytes, offset)?;
            let bits = match found.has_bit_fields {
                true => bits & 0x00ff_ffff,
                false => bits,
            };
            let (own_name, of) = (word(self.bytes, own_name)?, word(self.bytes, of)?);
            if self.is_named(own_name, name) {
                return Some((bits / 8, of));
            }
            let anonymous = self.is_named(own_name, "") && depth > 0;
            if anonymous && let Some((inner, of)) = self.member(of, name, depth - 1) {
                return Some((inner.checked_add(bits / 8)?, of));
            }
        }
        None
    }

    /// The structure or union behind names and qualifiers, and where it is.
    fn plain(&self, mut number: u32) -> Option<(usize, Type)> {
        for _ in 0..DEPTH {
            let at = *self.types.get((number as usize).checked_sub(1)?)? as usize;
            let found = self.at(at)?;
            match found.kind {
                STRUCT | UNION => return Some((at, found)),
                TYPEDEF | TYPE_TAG => number = found.of,
                kind if VOLATILE_CONST_RESTRICT.contains(&kind) => number = found.of,
                _ => return None,
            }
        }
        None
    }

    fn at(&self, at: usize) -> Option<Type> {
        let [name, info, of] = [0, 4, 8].map(|offset| word(self.bytes, at + offset));
        let info = info?;
        Some(Type {
            name: name?,
            kind: info >> 24 & 0x1f,
            members: (info & 0xffff) as usize,
            has_bit_fields: info >> 31 == 1,
            of: of?,
        })
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let from = self.strings.saturating_add(name as usize);
        let text = self.bytes.get(from..).unwrap_or_default();
        text.strip_prefix(wanted.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Type {
    /// Bytes that follow the fixed part.
    fn tail(&self) -> Option<usize> {
        match self.kind {
            1 | 14 | 17 => Some(4),
            3 => Some(12),
            STRUCT | UNION | 15 | 19 => Some(12 * self.members),
            6 | 13 => Some(8 * self.members),
            2 | 7..=12 | 16 | TYPE_TAG => Some(0),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_ne_bytes(bytes.get(at..end)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int a; struct { int b; const inner_t in; }; }`, `struct inner { int c : 3; int d; }`.
    fn example() -> Vec<u8> {
        let names = b"\0outer\0a\0b\0in\0inner\0c\0d\0inner_t\0int\0f\0";
        let name = |text: &str| {
            let text = [&[0], text.as_bytes(), &[0]].concat();
            let at = names.windows(text.len()).position(|window| window == text);
            at.map_or(0, |at| at as u32 + 1)
        };
        let info = |kind: u32, members: u32| kind << 24 | members;
        let types: Vec<u32> = [
            // 1: int
            &[name("int"), info(1, 0), 4, 32][..],
            // 2: inner, with bit fields
            &[name("inner"), info(STRUCT, 2) | 1 << 31, 8],
            &[name("c"), 1, 3 << 24, name("d"), 1, 32],
            // 3: typedef, 4: const
            &[name("inner_t"), info(TYPEDEF, 0), 2],
            &[0, info(10, 0), 3],
            // 5: the anonymous one
            &[0, info(STRUCT, 2), 12],
            &[name("b"), 1, 0, name("in"), 4, 32],
            // 6: outer
            &[name("outer"), info(STRUCT, 2), 16],
            &[name("a"), 1, 0, 0, 5, 32],
            // 7: a function's type, 8: the function
            &[0, info(13, 1), 1, 0, 1],
            &[name("f"), info(FUNCTION, 0), 7],
        ]
        .concat();
        let length = 4 * types.len() as u32;
        let header = [24, 0, length, length, names.len() as u32];
        let mut bytes = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let words = header.iter().chain(&types);
        bytes.extend(words.flat_map(|word| word.to_ne_bytes()));
        bytes.extend_from_slice(names);
        bytes
    }

    #[test]
    fn members_are_found_through_names_and_anonymous_structures() {
        let bytes = example();
        let btf = Btf::parse(&bytes).expect("sound");
        let outer = btf.find(STRUCT, "outer").expect("there");
        assert_eq!(outer, 6);
        assert_eq!(btf.offset(outer, &["a"]), Some(0));
        assert_eq!(btf.offset(outer, &["b"]), Some(4));
        assert_eq!(btf.offset(outer, &["in", "c"]), Some(8));
        assert_eq!(btf.offset(outer, &["in", "d"]), Some(12));
        assert_eq!(btf.offset(outer, &["d"]), None);
        assert_eq!(btf.offset(outer, &["a", "d"]), None);
        assert_eq!(btf.find(FUNCTION, "f"), Some(8));
        assert_eq!(btf.find(STRUCT, "f"), None);
        assert_eq!(btf.find(STRUCT, "oute"), None);
    }

    proptest! {
        #[test]
        fn damage_is_survived(
            cut in 0usize..400,
            places in proptest::collection::vec((0usize..400, any::<u8>()), 0..8),
        ) {
            let mut bytes = example();
            for (at, byte) in places {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(200)));
            if let Some(btf) = Btf::parse(&bytes) {
                for number in 0..12 {
                    btf.offset(number, &["in", "d"]);
                    btf.offset(number, &["nowhere"]);
                }
                btf.find(STRUCT, "outer");
            }
        }
    }
}
