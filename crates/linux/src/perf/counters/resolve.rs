//! From a plan's spellings to groups that this machine's PMUs take.

use super::group::{Group, Target};
use crate::capability;
use crate::perf::{
    encode::{Encoded, Encoder, Mode},
    privilege::{paranoid, paranoid_text, refusal},
};
use perch_core::{EventChoice, EventPlan, MachineError, Remark};
use perf_event::events::Software;
use perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

/// Events that happen in the kernel only: what is counted in user space of them is 0.
const IN_KERNEL_ONLY: [Software; 2] = [Software::CONTEXT_SWITCHES, Software::CPU_MIGRATIONS];

/// Groups that count at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetPlan {
    /// Its place in the plan: sets of which nothing can be counted are left out.
    pub number: u32,
    pub groups: Vec<GroupPlan>,
}

/// Events that are on one PMU together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupPlan {
    /// Under the profile's names.
    pub events: Vec<(Arc<str>, Encoded)>,
    /// If set, the first event makes a record of the group each time that it has happened so often.
    pub every: Option<u64>,
}

/// Resolves a plan; also returns remarks about events that cannot be counted.
pub(super) fn resolve(
    plan: &EventPlan,
    encoder: &Encoder,
    user_only: bool,
) -> Result<(Vec<SetPlan>, Vec<Remark>), MachineError> {
    let mut missing = BTreeMap::new();
    let mut unknown: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut sets = Vec::new();
    for (number, set) in (0u32..).zip(&plan.sets) {
        let mut by_pmu: BTreeMap<Option<String>, Vec<(Arc<str>, Encoded)>> = BTreeMap::new();
        for event in &set.events {
            for pmu in kinds(event, encoder) {
                match first_that_counts(event, pmu.as_deref(), encoder, user_only)? {
                    Ok(encoded) => {
                        let named = (event.alias.clone(), encoded);
                        by_pmu.entry(pmu).or_default().push(named);
                    }
                    Err(why) => {
                        let means_nothing =
                            |spelling: &String| encoder.encode(spelling, pmu.as_deref()).is_err();
                        if event.spellings.iter().all(means_nothing) {
                            unknown.insert(event.alias.clone());
                        }
                        missing.insert(event.alias.clone(), why);
                    }
                }
            }
        }
        let groups = by_pmu.into_values().flat_map(|mut events| {
            let leads = |(alias, _): &(Arc<str>, Encoded)| {
                set.every
                    .as_ref()
                    .is_some_and(|(leader, _)| leads(leader, alias))
            };
            events.sort_by_key(|event| !leads(event));
            let makes_records = events.first().is_some_and(leads);
            let mut groups = split(events, user_only);
            if makes_records && let Some(first) = groups.first_mut() {
                first.every = set.every.as_ref().map(|(_, count)| *count);
            }
            groups
        });
        let groups: Vec<GroupPlan> = groups.collect();
        if !groups.is_empty() {
            sets.push(SetPlan { number, groups });
        }
    }
    let text =
        |(alias, why): (&Arc<str>, &String)| format!("event `{alias}` cannot be counted: {why}");
    let missing: Vec<String> = missing.iter().map(text).collect();
    if sets.is_empty() {
        let text = match &missing[..] {
            [] => "the profile names no events to count".to_owned(),
            [only] => format!("nothing can be counted: {only}"),
            [first, others @ ..] => format!(
                "nothing can be counted: {first}; nor can {} (`perch profiles check` tells what becomes of each event \
                 of the profile)",
                match others.len() {
                    1 => "another event".to_owned(),
                    number => format!("{number} other events"),
                }
            ),
        };
        return Err(match unknown.is_empty() {
            true => MachineError::Other(text),
            false => MachineError::UnknownEvents {
                aliases: unknown.into_iter().collect(),
                text,
            },
        });
    }
    let remarks = missing
        .into_iter()
        .map(|text| Remark::warning("event-not-counted", text))
        .collect();
    Ok((sets, remarks))
}

/// Whether an event is the one that makes records; on hybrid processors, the one of some kind of core.
fn leads(leader: &str, alias: &str) -> bool {
    let rest = alias.strip_prefix(leader);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

/// The kinds of cores on which an event is counted: its own, or all of a hybrid processor.
fn kinds(event: &EventChoice, encoder: &Encoder) -> Vec<Option<String>> {
    let cores = encoder.pmus().of_cores();
    match (&event.pmu, cores.len()) {
        (Some(pmu), _) => vec![Some(pmu.clone())],
        (None, 2..) => {
            let code = |core: &String| {
                let texts = event.spellings.iter();
                let mut codes = texts.filter_map(|text| encoder.encode(text, Some(core)).ok());
                codes.next().map(|of| of.code)
            };
            let first = code(&cores[0]);
            // One that is the same for every kind says itself where it counts, or counts wherever a thread runs: several of
            // it would be added up.
            match first.is_some() && cores.iter().all(|core| code(core) == first) {
                true => vec![None],
                false => cores.into_iter().map(Some).collect(),
            }
        }
        (None, _) => vec![None],
    }
}

/// The first spelling that means something here and that the kernel counts for a thread. The inner error lists what
/// was wrong with each.
fn first_that_counts(
    event: &EventChoice,
    pmu: Option<&str>,
    encoder: &Encoder,
    user_only: bool,
) -> Result<Result<Encoded, String>, MachineError> {
    let mut reasons = Vec::new();
    // The only spelling is named already if it is the event's name.
    let is_named = matches!(&event.spellings[..], [only] if **only == *event.alias);
    let named = |spelling: &str, why: &str| match is_named {
        true => why.to_owned(),
        false => format!("event `{spelling}`: {why}"),
    };
    for spelling in &event.spellings {
        let encoded = match encoder.encode(spelling, pmu) {
            Ok(encoded) => encoded,
            Err(error) => {
                reasons.push(named(spelling, &error.why));
                continue;
            }
        };
        if let Some(why) = uncountable(&encoded, user_only) {
            // Another spelling would be the same event.
            return Ok(Err(why));
        }
        let alone = GroupPlan {
            events: vec![(event.alias.clone(), encoded.clone())],
            every: None,
        };
        match Group::open(&alone, Target::Own, user_only) {
            Ok(_) => return Ok(Ok(encoded)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                return Err(refusal("counting events of one's own thread", error));
            }
            Err(error) => reasons.push(named(spelling, &words(&error))),
        }
    }
    if reasons.is_empty() {
        reasons.push("the profile gives no spelling of it".to_owned());
    }
    Ok(Err(reasons.join("; ")))
}

/// Why the kernel would count nothing, although it takes the event: it does not say so.
fn uncountable(event: &Encoded, user_only: bool) -> Option<String> {
    let in_kernel_only = event.code.kind == PERF_TYPE_SOFTWARE
        && IN_KERNEL_ONLY.iter().any(|of| of.0 == event.code.config[0]);
    let not_permitted = || {
        format!(
            "it happens in the kernel, where you may not count ({}): `sysctl kernel.perf_event_paranoid=1` allows it; or {}",
            paranoid_text(paranoid()),
            capability::advice("CAP_PERFMON")
        )
    };
    match event.mode {
        Mode::User if in_kernel_only => Some("it happens in the kernel only".to_owned()),
        Mode::Kernel if user_only => Some(not_permitted()),
        Mode::All if user_only && in_kernel_only => Some(not_permitted()),
        Mode::All | Mode::User | Mode::Kernel => None,
    }
}

fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this processor, or virtual machine, does not count it".to_owned()
        }
        Some(libc::EINVAL) => "the PMU does not take it for a thread".to_owned(),
        Some(libc::EBUSY) => "its counter is taken".to_owned(),
        _ => error.to_string(),
    }
}

/// Splits events into as few groups, in order, as the PMU takes.
fn split(events: Vec<(Arc<str>, Encoded)>, user_only: bool) -> Vec<GroupPlan> {
    let mut groups: Vec<GroupPlan> = Vec::new();
    for event in events {
        if let Some(last) = groups.last_mut() {
            last.events.push(event.clone());
            if Group::open(last, Target::Own, user_only).is_ok() {
                continue;
            }
            last.events.pop();
        }
        groups.push(GroupPlan {
            events: vec![event],
            every: None,
        });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::encode::tests::machine;

    #[test]
    fn what_happens_in_the_kernel_is_not_counted_in_user_space() {
        let encoder = Encoder::new();
        let why = |spelling: &str, user_only: bool| {
            uncountable(&encoder.encode(spelling, None).unwrap(), user_only)
        };
        for spelling in ["context-switches", "cpu-migrations", "page-faults:k"] {
            assert_eq!(why(spelling, false), None);
            let said = why(spelling, true).unwrap();
            assert!(said.contains("CAP_PERFMON"), "{said}");
        }
        assert!(why("cs:u", false).is_some());
        for spelling in ["page-faults", "page-faults:u", "task-clock"] {
            assert_eq!(why(spelling, true), None);
        }
    }

    #[test]
    fn what_is_the_same_on_every_kind_of_core_is_counted_once() {
        let (_root, alder) = machine("alder-lake");
        let of = |spelling: &str| {
            let event = EventChoice {
                alias: "event".into(),
                spellings: vec![spelling.to_owned()],
                pmu: None,
            };
            kinds(&event, &alder)
        };
        let both = ["cpu_atom", "cpu_core"].map(|name| Some(name.to_owned()));
        assert_eq!(of("instructions"), both);
        assert_eq!(of("r1c0"), both);
        assert_eq!(of("page-faults"), [None]);
        assert_eq!(of("cpu_atom/event=0xc0/"), [None]);
    }
}
