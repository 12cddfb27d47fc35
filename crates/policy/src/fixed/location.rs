//! PU sets as users write them: operating-system numbers like the kernel's lists, and hwloc's location syntax
//! (hwloc(7), "Hwloc locations") or likwid's for logical indexes.

use super::likwid::{self, Domain};
use perch_core::{PuSet, Topology, diagnostic::did_you_mean, pu_set::MAX_PU};
use std::{fmt, str::FromStr};

/// PUs to be found in a topology: terms separated by commas, together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location(Vec<Term>);

/// A text that is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LocationError {
    /// Description of the error, and the valid syntax.
    pub what: String,
    /// Position in the text, in bytes.
    pub at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    All,
    /// Operating-system numbers, both included.
    Numbers(u32, u32),
    /// Each step within the one before it.
    Path(Vec<Step>),
    Likwid(Domain),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    kind: Kind,
    indexes: Indexes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Package,
    Numa,
    Llc,
    Cache(u8),
    Core,
    Pu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexes {
    All,
    Odd,
    Even,
    /// From the first to the last, if there is a last.
    Range(usize, Option<usize>),
    /// This many from the first on, beginning again at 0 after the last one.
    Wrap(usize, usize),
}

const KINDS: [(&str, Kind); 13] = [
    ("package", Kind::Package),
    ("socket", Kind::Package),
    ("numa", Kind::Numa),
    ("numanode", Kind::Numa),
    ("node", Kind::Numa),
    ("llc", Kind::Llc),
    ("l1", Kind::Cache(1)),
    ("l2", Kind::Cache(2)),
    ("l3", Kind::Cache(3)),
    ("l4", Kind::Cache(4)),
    ("core", Kind::Core),
    ("pu", Kind::Pu),
    ("cpu", Kind::Pu),
];

impl Location {
    /// The PUs that the topology has there, offline ones included.
    ///
    /// # Errors
    /// A number or index that the topology does not have, with what it has.
    pub fn resolve(&self, topology: &Topology) -> Result<PuSet, LocationError> {
        Ok(self.resolve_in_order(topology)?.into_iter().collect())
    }

    /// The same PUs in the order of the terms, those of one term by rising number, or as likwid counts them. A PU that
    /// several terms name is there as often.
    ///
    /// # Errors
    /// As [`Location::resolve`].
    pub fn resolve_in_order(&self, topology: &Topology) -> Result<Vec<u32>, LocationError> {
        let mut found = Vec::new();
        for term in &self.0 {
            let pus = term
                .resolve(topology)
                .map_err(|what| LocationError { what, at: 0 })?;
            found.extend(pus);
        }
        Ok(found)
    }
}

impl Term {
    fn resolve(&self, topology: &Topology) -> Result<Vec<u32>, String> {
        let pus = match self {
            Self::Likwid(domain) => return domain.resolve(topology),
            Self::All => Ok(topology.all()),
            Self::Numbers(first, last) => {
                let pus: PuSet = (*first..=*last).collect();
                let all = topology.all();
                match pus.minus(&all) {
                    missing if missing.is_empty() => Ok(pus),
                    missing => Err(format!("there is no PU {missing}; there are {all}")),
                }
            }
            Self::Path(steps) => {
                let mut within = topology.all();
                for (depth, step) in steps.iter().enumerate() {
                    let outer = (depth > 0).then_some(&within);
                    let mut next = PuSet::new();
                    // Within several outer objects, such as `core:0-3.pu:1`, the indexes count in each of them.
                    let outers = match depth.checked_sub(1).map(|at| &steps[at]) {
                        Some(previous) => objects(topology, previous.kind, outer)
                            .into_iter()
                            .filter(|set| set.is_subset(&within))
                            .collect(),
                        None => vec![within.clone()],
                    };
                    for outer in outers {
                        let inner = objects(topology, step.kind, Some(&outer));
                        for object in step.indexes.pick(step.kind, &inner)? {
                            next = next.or(&object.and(&outer));
                        }
                    }
                    within = next;
                }
                Ok(within)
            }
        };
        pus.map(|pus: PuSet| pus.iter().collect())
    }
}

/// The objects of a kind, by logical index: those with PUs in `within`.
fn objects(topology: &Topology, kind: Kind, within: Option<&PuSet>) -> Vec<PuSet> {
    let caches = |level: u8| -> Vec<PuSet> {
        let caches = topology.caches.iter().filter(|cache| cache.level == level);
        caches.map(|cache| cache.pus.clone()).collect()
    };
    let mut sets: Vec<PuSet> = match kind {
        Kind::Package => topology.packages.iter().map(|p| p.pus.clone()).collect(),
        Kind::Numa => topology
            .numa_nodes
            .iter()
            .map(|node| node.pus.clone())
            .collect(),
        Kind::Llc => topology.llc_level().map(caches).unwrap_or_default(),
        Kind::Cache(level) => caches(level),
        Kind::Core => topology.cores.iter().map(|core| core.pus.clone()).collect(),
        // hwloc counts PUs core by core, whatever the operating system calls them.
        Kind::Pu => {
            let cores = topology.cores.iter();
            cores
                .flat_map(|core| core.pus.iter().map(PuSet::single))
                .collect()
        }
    };
    if let Some(within) = within {
        sets.retain(|set| !set.is_disjoint(within));
    }
    sets
}

impl Indexes {
    fn pick(self, kind: Kind, objects: &[PuSet]) -> Result<Vec<&PuSet>, String> {
        let count = objects.len();
        let name = KINDS
            .iter()
            .find(|(_, k)| *k == kind)
            .map_or("", |(name, _)| name);
        let missing = |index: usize| {
            Err(match count {
                0 => format!("there is no {name}"),
                1 => format!("there is no {name}:{index}; there is only {name}:0"),
                _ => format!(
                    "there is no {name}:{index}; there are {name}:0-{}",
                    count - 1
                ),
            })
        };
        let indexes: Vec<usize> = match self {
            Self::All => (0..count).collect(),
            Self::Odd => (1..count).step_by(2).collect(),
            Self::Even => (0..count).step_by(2).collect(),
            Self::Range(first, last) => match last.unwrap_or(count.saturating_sub(1).max(first)) {
                last if last >= count => return missing(last),
                last => (first..=last).collect(),
            },
            Self::Wrap(first, _) if first >= count => return missing(first),
            Self::Wrap(first, length) => (first..first + length.min(count))
                .map(|index| index % count)
                .collect(),
        };
        Ok(indexes.into_iter().map(|index| &objects[index]).collect())
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let mut terms = Vec::new();
        let mut at = 0;
        let mut within_domain = false;
        for part in text
            .split_inclusive([',', '@'])
            .chain(text.is_empty().then_some(""))
        {
            let chained = part.ends_with('@');
            let part = part.trim_end_matches([',', '@']);
            let start = at + part.len() - part.trim_start().len();
            at += part.len() + 1;
            let written = part.trim();
            match (terms.last_mut(), likwid::domain(written, start)) {
                (_, Some(domain)) => {
                    let (mut domain, numbers) = domain?;
                    domain.add(numbers, start)?;
                    terms.push(Term::Likwid(domain));
                    within_domain = true;
                }
                // In likwid's lists, a comma separates numbers of the same domain.
                (Some(Term::Likwid(domain)), None)
                    if within_domain && written.starts_with(|c: char| c.is_ascii_digit()) =>
                {
                    domain.add(written, start)?;
                }
                (_, None) => {
                    terms.push(term(written, start)?);
                    within_domain = false;
                }
            }
            within_domain &= !chained;
        }
        if text.ends_with([',', '@']) {
            terms.push(term("", at)?);
        }
        Ok(Self(terms))
    }
}

fn term(text: &str, at: usize) -> Result<Term, LocationError> {
    let wrong = |at: usize, what: String| Err(LocationError { what, at });
    if text.is_empty() {
        return wrong(
            at,
            "PUs are missing; write numbers such as 0-3,8, or core:1, numa:0, all".to_owned(),
        );
    }
    if text == "all" {
        return Ok(Term::All);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let bound = |text: &str| text.parse().ok().filter(|pu| *pu <= MAX_PU);
        return match (bound(first), bound(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Term::Numbers(first, last)),
            _ => wrong(
                at,
                format!("`{text}` is no PU number or range from 0 to {MAX_PU}; write 4 or 0-3"),
            ),
        };
    }
    let mut steps = Vec::new();
    let mut start = at;
    for part in text.split('.') {
        steps.push(step(part, start)?);
        start += part.len() + 1;
    }
    Ok(Term::Path(steps))
}

fn step(text: &str, at: usize) -> Result<Step, LocationError> {
    let wrong = |at: usize, what: String| Err(LocationError { what, at });
    let (name, indexes) = match text.split_once(':') {
        Some((name, indexes)) => (name, indexes),
        None => {
            return wrong(
                at,
                format!("`{text}` has no index; write {text}:0, or {text}:all"),
            );
        }
    };
    let lower = name.to_ascii_lowercase();
    let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == lower) else {
        let hint =
            did_you_mean(&lower, KINDS.iter().map(|(known, _)| *known)).unwrap_or_else(|| {
                "expected one of `package`, `numa`, `llc`, `l1` to `l4`, `core`, `pu`".to_owned()
            });
        let what = format!("no kind of object `{name}`; {hint}");
        return wrong(at, what);
    };
    match parse_indexes(indexes) {
        Some(indexes) => Ok(Step {
            kind: *kind,
            indexes,
        }),
        None => wrong(
            at + name.len() + 1,
            format!(
                "`{indexes}` are no indexes; write 2, 0-3, 2-, 2:4 (4 from 2 on), all, odd or even"
            ),
        ),
    }
}

fn parse_indexes(text: &str) -> Option<Indexes> {
    let number = |text: &str| text.parse().ok().filter(|n| *n <= MAX_PU as usize);
    match text {
        "all" => return Some(Indexes::All),
        "odd" => return Some(Indexes::Odd),
        "even" => return Some(Indexes::Even),
        _ => {}
    }
    if let Some((first, length)) = text.split_once(':') {
        let length = number(length).filter(|length| *length > 0)?;
        return Some(Indexes::Wrap(number(first)?, length));
    }
    match text.split_once('-') {
        Some((first, "")) => Some(Indexes::Range(number(first)?, None)),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Indexes::Range(first, Some(last)))
        }
        None => {
            let index = number(text)?;
            Some(Indexes::Range(index, Some(index)))
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.0.iter().enumerate() {
            // Numbers after a comma would belong to likwid's domain before them.
            let separator = match at.checked_sub(1).map(|before| &self.0[before]) {
                None => "",
                Some(Term::Likwid(_)) => "@",
                Some(_) => ",",
            };
            match term {
                Term::Likwid(domain) => write!(f, "{separator}{domain}")?,
                Term::All => write!(f, "{separator}all")?,
                Term::Numbers(first, last) if first == last => write!(f, "{separator}{first}")?,
                Term::Numbers(first, last) => write!(f, "{separator}{first}-{last}")?,
                Term::Path(steps) => {
                    let steps: Vec<String> = steps.iter().map(Step::to_string).collect();
                    write!(f, "{separator}{}", steps.join("."))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS
            .iter()
            .find(|(_, k)| *k == self.kind)
            .map_or("", |(name, _)| name);
        match self.indexes {
            Indexes::All => write!(f, "{name}:all"),
            Indexes::Odd => write!(f, "{name}:odd"),
            Indexes::Even => write!(f, "{name}:even"),
            Indexes::Range(first, None) => write!(f, "{name}:{first}-"),
            Indexes::Range(first, Some(last)) if first == last => write!(f, "{name}:{first}"),
            Indexes::Range(first, Some(last)) => write!(f, "{name}:{first}-{last}"),
            Indexes::Wrap(first, length) => write!(f, "{name}:{first}:{length}"),
        }
    }
}
