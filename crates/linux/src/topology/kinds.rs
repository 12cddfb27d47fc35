//! Core kinds from what hwloc knows of them.

use perch_core::{PuSet, topology::CoreKind};

/// One kind as hwloc reports it, the most efficient first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawKind {
    /// Its PUs.
    pub pus: PuSet,
    /// `CoreType`: the processor's own name of the kind, such as `IntelAtom`.
    pub core_type: Option<String>,
    /// `LinuxCapacity`: the kernel's measure of the core's speed, 1024 for the fastest (Arm).
    pub capacity: Option<u64>,
}

impl RawKind {
    /// Whether nothing but its frequency tells it from others.
    pub fn is_nameless(&self) -> bool {
        self.core_type.is_none() && self.capacity.is_none()
    }
}

/// Core kinds that cover all of `all`, the most efficient first.
///
/// hwloc also tells kinds apart by top frequency alone; on processors with favoured cores that makes a dozen kinds of
/// equal cores, so only what the processor or the kernel itself calls different counts here.
pub fn core_kinds(raw: &[RawKind], all: &PuSet) -> Vec<CoreKind> {
    let mut merged: Vec<RawKind> = Vec::new();
    for kind in raw.iter().filter(|kind| !kind.is_nameless()) {
        let same = merged
            .iter_mut()
            .find(|m| m.core_type == kind.core_type && m.capacity == kind.capacity);
        match same {
            Some(same) => same.pus = same.pus.or(&kind.pus),
            None => merged.push(kind.clone()),
        }
    }
    merged.sort_by_key(|kind| kind.capacity.unwrap_or(0));
    let covered = merged
        .iter()
        .fold(PuSet::new(), |sum, kind| sum.or(&kind.pus));
    let rest = all.minus(&covered);
    if let Some(fastest) = merged.last_mut() {
        // PUs of which nothing is known (offline ones) go to the kind that is there anyway.
        fastest.pus = fastest.pus.or(&rest);
    }
    let count = merged.len();
    if count <= 1 {
        return vec![CoreKind {
            name: "core".into(),
            pus: all.clone(),
        }];
    }
    merged
        .into_iter()
        .enumerate()
        .map(|(rank, kind)| CoreKind {
            name: name(&kind, rank, count),
            pus: kind.pus,
        })
        .collect()
}

fn name(kind: &RawKind, rank: usize, count: usize) -> String {
    match kind.core_type.as_deref() {
        Some("IntelAtom") if count == 2 => return "efficiency".into(),
        Some("IntelCore") if count == 2 => return "performance".into(),
        _ => {}
    }
    match rank {
        0 => "efficiency".into(),
        _ if rank + 1 == count => "performance".into(),
        1 if count == 3 => "middle".into(),
        _ => format!("middle {rank}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(pus: &str, core_type: Option<&str>, capacity: Option<u64>) -> RawKind {
        RawKind {
            pus: pus.parse().unwrap(),
            core_type: core_type.map(str::to_owned),
            capacity,
        }
    }

    fn text(raw: &[RawKind], all: &str) -> Vec<String> {
        core_kinds(raw, &all.parse().unwrap())
            .iter()
            .map(|kind| format!("{} {}", kind.name, kind.pus))
            .collect()
    }

    #[test]
    fn kinds_that_differ_only_in_frequency_are_one() {
        let raw = [kind("0-5", None, None), kind("6-7", None, None)];
        assert_eq!(text(&raw, "0-7"), ["core 0-7"]);
        assert_eq!(text(&[], "0-3"), ["core 0-3"]);
    }

    #[test]
    fn hybrid_processors_keep_their_kinds() {
        let raw = [
            kind("16-23", Some("IntelAtom"), None),
            kind("0-11", Some("IntelCore"), None),
            kind("12-15", Some("IntelCore"), None),
        ];
        assert_eq!(text(&raw, "0-23"), ["efficiency 16-23", "performance 0-15"]);
    }

    #[test]
    fn capacities_order_the_kinds_and_unknown_pus_are_not_lost() {
        let raw = [
            kind("7", None, Some(1024)),
            kind("0-3", None, Some(267)),
            kind("4-6", None, Some(700)),
        ];
        assert_eq!(
            text(&raw, "0-8"),
            ["efficiency 0-3", "middle 4-6", "performance 7-8"]
        );
    }
}
