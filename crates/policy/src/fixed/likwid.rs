//! PUs as likwid-pin(1) writes them: `S0:0-3@S1:0-3`, by number within an affinity domain, where the first PU of each core
//! comes before all second ones.

use super::location::LocationError;
use perch_core::{PuSet, Topology, pu_set::MAX_PU};
use std::fmt;

/// Numbers within one of likwid's affinity domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Domain {
    kind: Kind,
    index: usize,
    /// Ranges of numbers, both ends included, in the order in which they were written.
    ranges: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Machine,
    Socket,
    Cache,
    Memory,
}

const KINDS: [(char, Kind, &str); 4] = [
    ('N', Kind::Machine, "machine"),
    ('S', Kind::Socket, "socket"),
    ('C', Kind::Cache, "last-level cache"),
    ('M', Kind::Memory, "NUMA node"),
];

impl Kind {
    fn letter(self) -> char {
        let known = KINDS.iter().find(|(_, kind, _)| *kind == self);
        known.map_or('N', |(letter, ..)| *letter)
    }
}

/// The domain that a text begins with, and what follows its colon. `None` if it is no text of likwid's.
///
/// # Errors
/// What likwid-pin knows and perch does not, with what to write instead.
pub(super) fn domain(text: &str, at: usize) -> Option<Result<(Domain, &str), LocationError>> {
    let (name, numbers) = text.split_once(':')?;
    let letter = name.chars().next().filter(char::is_ascii_uppercase)?;
    let index = &name[1..];
    if !index.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let wrong = |what: String| Some(Err(LocationError { what, at }));
    let Some((_, kind, _)) = KINDS.iter().find(|(known, ..)| *known == letter) else {
        return wrong(format!(
            "`{name}` is no affinity domain that perch knows; write N:0-3 (machine), S0:0-3 (socket), C0:0-3 (last-level \
             cache), M0:0-3 (NUMA node), or hwloc's core:0-3"
        ));
    };
    let index = match (kind, index.parse().ok()) {
        (Kind::Machine, None) if index.is_empty() => 0,
        (Kind::Machine, _) | (_, None) => {
            return wrong(format!(
                "`{name}` is no affinity domain; write N:0-3, or S0:0-3"
            ));
        }
        (_, Some(index)) => index,
    };
    let ranges = Vec::new();
    let domain = Domain {
        kind: *kind,
        index,
        ranges,
    };
    Some(Ok((domain, numbers)))
}

impl Domain {
    /// Adds a number or a range of numbers.
    ///
    /// # Errors
    /// A text that is neither.
    pub fn add(&mut self, text: &str, at: usize) -> Result<(), LocationError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let bound = |text: &str| text.parse().ok().filter(|at| *at <= MAX_PU as usize);
        match (bound(first), bound(last)) {
            (Some(first), Some(last)) if first <= last => self.ranges.push((first, last)),
            _ => {
                let what = format!(
                    "`{text}` is no number or range within {self}; write S0:0-3, or S0:0,2 (likwid's E: and scatter are \
                     not known)"
                );
                return Err(LocationError { what, at });
            }
        }
        Ok(())
    }

    /// Its PUs, in the order of the numbers.
    ///
    /// # Errors
    /// A domain or number that the topology does not have, with what it has.
    pub fn resolve(&self, topology: &Topology) -> Result<Vec<u32>, String> {
        let domains: Vec<PuSet> = match self.kind {
            Kind::Machine => vec![topology.all()],
            Kind::Socket => topology.packages.iter().map(|of| of.pus.clone()).collect(),
            Kind::Memory => (topology.numa_nodes.iter())
                .map(|node| node.pus.clone())
                .collect(),
            Kind::Cache => {
                let level = topology.llc_level();
                let caches = topology.caches.iter();
                caches
                    .filter(|cache| Some(cache.level) == level)
                    .map(|cache| cache.pus.clone())
                    .collect()
            }
        };
        let letter = self.kind.letter();
        let Some(within) = domains.get(self.index) else {
            return Err(match domains.len() {
                0 => format!("there is no {letter}{}", self.index),
                count => format!(
                    "there is no {letter}{}; there are {letter}0 to {letter}{}",
                    self.index,
                    count - 1
                ),
            });
        };
        let pus = cores_first(topology, within);
        let mut found = Vec::new();
        for (first, last) in &self.ranges {
            match pus.get(*first..=*last) {
                Some(some) => found.extend(some),
                None => {
                    let highest = pus.len().saturating_sub(1);
                    return Err(format!(
                        "there is no {last} in {self}, which has PUs 0 to {highest}"
                    ));
                }
            }
        }
        Ok(found)
    }
}

/// The PUs of a domain: the first of each core, then the second of each, and so on.
fn cores_first(topology: &Topology, within: &PuSet) -> Vec<u32> {
    let mut numbered: Vec<(usize, usize, u32)> = Vec::new();
    for (core, of) in topology.cores.iter().enumerate() {
        let pus = of.pus.and(within);
        numbered.extend(pus.iter().enumerate().map(|(at, pu)| (at, core, pu)));
    }
    numbered.sort_unstable();
    numbered.into_iter().map(|(.., pu)| pu).collect()
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = self.kind.letter();
        match self.kind {
            Kind::Machine => write!(f, "{letter}")?,
            _ => write!(f, "{letter}{}", self.index)?,
        }
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            write!(f, "{}{first}", if at == 0 { ":" } else { "," })?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}
