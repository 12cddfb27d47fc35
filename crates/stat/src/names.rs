//! What events are called: names that mean the same, and how the machine may spell them.

use perch_core::diagnostic::did_you_mean;
use perch_profile::Profile;

/// Where events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Space {
    /// In user space and in the kernel, as far as that is permitted.
    #[default]
    All,
    /// In user space only.
    User,
    /// In the kernel only.
    Kernel,
}

/// Other names of events: PMCTrack's mnemonics, and what users of other tools write. First the name that is meant.
const OTHER_NAMES: [(&str, &[&str]); 6] = [
    (
        "instructions",
        &[
            "instr",
            "inst",
            "instr_retired",
            "instructions_retired",
            "retired_instructions",
        ],
    ),
    (
        "cycles",
        &["cpu_cycles", "cyc", "unhalted_core_cycles", "clk"],
    ),
    ("llc_misses", &["cache_misses", "l3_misses", "llc_miss"]),
    ("llc_references", &["cache_references", "llc_accesses"]),
    (
        "branch_misses",
        &["branch_mispredicts", "mispredicted_branches"],
    ),
    ("branches", &["branch_instructions"]),
];

/// A name as formulas have it, and profiles: `instr` is `instructions`, `llc-misses` is `llc_misses`.
pub fn canonical(name: &str) -> String {
    let plain = name.replace(['-', '.'], "_").to_ascii_lowercase();
    let meant = OTHER_NAMES
        .iter()
        .find(|(_, others)| others.contains(&plain.as_str()));
    meant.map_or(plain, |(meant, _)| (*meant).to_owned())
}

/// A formula with `_` for `-` in names of events: those of event sets as they were asked for, and those of `known`. There
/// `-` is no minus.
pub fn with_underscores(formula: &str, asked: &[String], known: &[String]) -> String {
    let asked = asked.iter().flat_map(|set| set.split([',', ':', '=']));
    let known = known.iter().map(String::as_str);
    let mut names: Vec<&str> = asked.chain(known).map(str::trim).collect();
    let is_plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    names.retain(|name| name.contains('-') && is_plain(name));
    // A name may begin with another one.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = formula.to_owned();
    for name in names {
        let is_inside = |c: char| c.is_alphanumeric() || "_-".contains(c);
        let at = text.match_indices(name).map(|(at, _)| at);
        let whole: Vec<usize> = at
            .filter(|at| {
                let before = text[..*at].chars().next_back();
                let behind = text[at + name.len()..].chars().next();
                !before.is_some_and(is_inside) && !behind.is_some_and(is_inside)
            })
            .collect();
        for at in whole {
            text.replace_range(at..at + name.len(), &name.replace('-', "_"));
        }
    }
    text
}

/// How the kernel may know an event that the profile has under no name: formulas have only the one that is meant.
pub(crate) fn other_spellings(meant: &str, space: Space) -> impl Iterator<Item = String> {
    let others = OTHER_NAMES.iter().find(|(known, _)| *known == meant);
    let others = others.into_iter().flat_map(|(_, others)| others.iter());
    others.map(move |other| in_space(&other.replace('_', "-"), space))
}

/// How the machine may know a name: the kernel's own, the PMU's, libpfm4's.
pub(crate) fn spellings(spelled: &str, space: Space) -> Vec<String> {
    let mut spellings = vec![in_space(spelled, space)];
    // As formulas write the kernel's names; tracepoints and libpfm4's names have a colon and their own `_`.
    if spelled.contains('_') && !without_modifier(spelled).contains(':') {
        spellings.push(in_space(&spelled.replace('_', "-"), space));
    }
    if spelled
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        spellings.push(in_space(&format!("cpu/{spelled}/"), space));
    }
    spellings
}

/// The spelling with a modifier, unless it has one already.
pub(crate) fn in_space(spelled: &str, space: Space) -> String {
    let letter = match space {
        Space::All => return spelled.to_owned(),
        Space::User => 'u',
        Space::Kernel => 'k',
    };
    match spelled.rsplit_once('/') {
        Some((_, "")) => format!("{spelled}{letter}"),
        Some(_) => spelled.to_owned(),
        None if without_modifier(spelled) != spelled => spelled.to_owned(),
        None => format!("{spelled}:{letter}"),
    }
}

/// The name without a modifier for user or kernel mode (`:u`, `:k`, or both).
pub fn without_modifier(spelled: &str) -> &str {
    match spelled.rsplit_once(':') {
        Some((name, "u" | "k" | "uk" | "ku")) => name,
        _ => spelled,
    }
}

/// What a name that the machine does not know may have meant.
pub fn suggestion(spelled: &str, profile: &Profile) -> Option<String> {
    let known = profile.events.iter().map(|event| &*event.name);
    did_you_mean(spelled, known.chain(perch_profile::spelling::GENERIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_added_where_none_is_given() {
        let user = |text: &str| in_space(text, Space::User);
        assert_eq!(user("cycles"), "cycles:u");
        assert_eq!(user("cycles:k"), "cycles:k");
        assert_eq!(user("cpu/event=1/"), "cpu/event=1/u");
        assert_eq!(user("cpu/event=1/k"), "cpu/event=1/k");
        assert_eq!(
            user("amd64_fam19h_zen4::LS_DISPATCH:LD_DISPATCH"),
            "amd64_fam19h_zen4::LS_DISPATCH:LD_DISPATCH:u"
        );
        assert_eq!(in_space("cycles", Space::All), "cycles");
    }

    #[test]
    fn a_hyphen_in_the_name_of_an_event_is_no_minus() {
        // The second one is an event of one processor only, by sysfs.
        let events = ["instructions,topdown-fe-bound:u".to_owned()];
        let known = ["page-faults", "LLC-load-misses"].map(str::to_owned);
        let read = |text: &str| with_underscores(text, &events, &known);
        for (text, expected) in [
            ("r=page-faults/cpu_seconds", "r=page_faults/cpu_seconds"),
            (
                "r=(page-faults + topdown-fe-bound)/2",
                "r=(page_faults + topdown_fe_bound)/2",
            ),
            (
                "r=LLC-load-misses-topdown-fe-bound",
                "r=LLC-load-misses-topdown-fe-bound",
            ),
            ("r=LLC-load-misses - 1", "r=LLC_load_misses - 1"),
            ("r=a-b", "r=a-b"),
            (
                "r=1e-3*page-faults*page-faults",
                "r=1e-3*page_faults*page_faults",
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }
}
