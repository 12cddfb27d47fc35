//! The groups of x86 mnemonics, read from `mnemonics.txt`.

use std::sync::LazyLock;

use iced_x86::Mnemonic;
use rustc_hash::FxHashMap;

/// What a mnemonic does, before its operands are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Group {
    ScalarFp,
    ScalarFpDivide,
    PackedFp,
    PackedFpDivide,
    X87,
    X87Divide,
    X87Move,
    VectorInt,
    VectorMove,
    VectorLoad,
    Move,
    IntMultiply,
    IntDivide,
    IntAlu,
    Branch,
    Other,
}

const NAMES: [(&str, Group); 16] = [
    ("scalar-fp", Group::ScalarFp),
    ("scalar-fp-divide", Group::ScalarFpDivide),
    ("packed-fp", Group::PackedFp),
    ("packed-fp-divide", Group::PackedFpDivide),
    ("x87", Group::X87),
    ("x87-divide", Group::X87Divide),
    ("x87-move", Group::X87Move),
    ("vector-int", Group::VectorInt),
    ("vector-move", Group::VectorMove),
    ("vector-load", Group::VectorLoad),
    ("move", Group::Move),
    ("int-multiply", Group::IntMultiply),
    ("int-divide", Group::IntDivide),
    ("int-alu", Group::IntAlu),
    ("branch", Group::Branch),
    ("other", Group::Other),
];

const TABLE: &str = include_str!("mnemonics.txt");

/// Group of every mnemonic, by its number.
static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let listed: FxHashMap<&str, Group> = entries().collect();
    Mnemonic::values()
        .map(|mnemonic| {
            listed
                .get(format!("{mnemonic:?}").as_str())
                .copied()
                .unwrap_or(Group::Other)
        })
        .collect()
});

/// The group that `mnemonic` is listed in.
#[inline]
pub(super) fn group(mnemonic: Mnemonic) -> Group {
    GROUPS[mnemonic as usize]
}

/// Every (mnemonic, group) of the table, in its order.
fn entries() -> impl Iterator<Item = (&'static str, Group)> {
    let mut current = Group::Other;
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(move |line| {
            let header = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'));
            if let Some(header) = header {
                current = NAMES
                    .iter()
                    .find(|(name, _)| *name == header)
                    .map_or(Group::Other, |&(_, group)| group);
            }
            let group = current;
            let words = if header.is_some() { "" } else { line };
            words.split_whitespace().map(move |word| (word, group))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, FlowControl, MemorySize};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_mnemonic_is_in_exactly_one_group() {
        let mut seen = BTreeMap::new();
        for (name, group) in entries() {
            assert!(seen.insert(name, group).is_none(), "{name} is listed twice");
        }
        let known: BTreeSet<String> = Mnemonic::values().map(|m| format!("{m:?}")).collect();
        for name in &known {
            assert!(seen.contains_key(name.as_str()), "{name} is in no group");
        }
        for name in seen.keys() {
            assert!(
                known.contains(*name),
                "{name} is no mnemonic of the decoder"
            );
        }
        let headers: Vec<&str> = TABLE.lines().filter_map(|l| l.strip_prefix('[')).collect();
        assert_eq!(headers.len(), NAMES.len());
        for header in headers {
            assert!(
                NAMES.iter().any(|(name, _)| format!("{name}]") == header),
                "[{header}"
            );
        }
    }

    /// Whether the decoder's own tables say that a form touches floating-point elements.
    fn has_float_elements(code: Code) -> bool {
        let float = |size: MemorySize| {
            use MemorySize::*;
            matches!(
                size.element_type(),
                Float16 | Float32 | Float64 | Float80 | Float128 | BFloat16
            )
        };
        float(code.op_code().memory_size()) || float(code.op_code().broadcast_memory_size())
    }

    /// The decoder describes memory operands by element type, independently of the names that the table
    /// was written from: a float operand belongs to floating point or to a move, and packed or scalar
    /// floating-point groups have a form with one.
    #[test]
    fn groups_agree_with_the_decoders_element_types() {
        use Group::*;
        for code in Code::values() {
            let group = group(code.mnemonic());
            if has_float_elements(code) {
                let fits = !matches!(group, IntAlu | IntMultiply | IntDivide | Move | Branch);
                assert!(fits, "{code:?} has float operands but is {group:?}");
            }
            let branch = !matches!(
                code.flow_control(),
                FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception
            );
            if branch && code.mnemonic() != Mnemonic::INVALID {
                assert!(
                    matches!(group, Branch | Other),
                    "{code:?} branches but is {group:?}"
                );
            }
        }
        let float: BTreeSet<_> = Code::values()
            .filter(|&code| has_float_elements(code))
            .map(|code| code.mnemonic() as usize)
            .collect();
        let without: Vec<String> = Mnemonic::values()
            .filter(|&m| matches!(group(m), ScalarFpDivide | PackedFpDivide))
            .filter(|&m| !float.contains(&(m as usize)))
            .map(|m| format!("{m:?}"))
            .collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
