//! What a wrong name may have meant.

/// Words for the same thing, of which users write the one and files know the other. Each row is one thing.
const SYNONYMS: &[&[&str]] = &[
    &["package", "socket", "cpu-socket", "chip", "processor"],
    &["packages", "sockets", "chips", "processors"],
    &[
        "contexts",
        "threads",
        "smt",
        "hyperthreads",
        "hardware-threads",
        "pus",
    ],
    &["context", "thread", "hyperthread", "hardware-thread", "pu"],
    &[
        "node",
        "numa",
        "numa-node",
        "numa-nodes",
        "numanode",
        "nodes",
    ],
    &[
        "stride",
        "sequential",
        "linear",
        "streaming",
        "stream",
        "strided",
    ],
    &["random", "irregular", "pointer-chasing", "chase"],
    &[
        "clock",
        "frequency",
        "freq",
        "hz",
        "ghz",
        "mhz",
        "cpu-frequency",
    ],
    &["size", "capacity", "bytes", "length"],
    &["ways", "associativity", "assoc"],
    &["line", "line-size", "block", "block-size"],
    &["latency", "delay", "hit-latency", "access-time"],
    &["shared-by", "shared", "sharing", "scope", "share"],
    &["holds", "contents", "caches", "type"],
    &["window", "rob", "reorder-buffer", "retire-queue"],
    &["width", "issue-width", "issue"],
    &["multithreading", "smt-kind", "multi-threading"],
    &["simultaneous", "smt"],
    &["fine-grained", "barrel", "interleaved"],
    &["mispredict", "mispredict-penalty", "branch-mispredict"],
    &["llc", "l3", "last-level"],
    &["fp", "float", "floating-point", "fpu"],
    &["count", "number", "copies", "instances"],
    &["working-sets", "data", "memory", "working-set"],
    &["instructions", "length", "ops", "operations"],
    &["period", "interval", "every"],
    &["sampling-rate", "frequency", "rate", "hz"],
    &["pus", "cpus", "cores"],
    &["pin", "bind", "affinity"],
    &["weight", "nice", "priority"],
    &["pmu", "hardware", "perf"],
    &["observe", "none", "off", "watch"],
    &["default", "kernel", "linux", "cfs", "eevdf"],
    &["about", "description", "title"],
    &["title", "description", "about"],
    &["source", "reference", "origin"],
    &["sources", "references"],
    &["warm-up", "warmup"],
    &["tolerance", "margin", "error"],
    &["lock", "mutex", "acquire"],
    &["unlock", "release"],
    &["sleep", "wait", "pause"],
    &["join", "wait"],
    &["io", "read", "write", "disk"],
    &["spawn", "fork", "clone", "create", "start"],
    &["compute", "run", "execute"],
];

/// How much a candidate must look like the wrong name, by Jaro and Winkler's measure.
const ALIKE: f64 = 0.75;

/// A name without what does not tell names apart: case, hyphens, underscores and spaces.
pub(crate) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}

/// The same for one and many.
fn singular(plain: &str) -> &str {
    match plain.strip_suffix('s') {
        Some(one) if one.len() > 1 && !one.ends_with('s') => one,
        _ => plain,
    }
}

/// The candidate that `wrong` most likely means, if any: the same name in other case or with other separators, in the
/// singular or plural; a word for the same thing; else the one that looks most like it.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let given = plain(wrong);
    let same = |candidate: &&&str| plain(candidate) == given;
    let one = |candidate: &&&str| singular(&plain(candidate)) == singular(&given);
    let found = candidates
        .iter()
        .find(same)
        .or_else(|| candidates.iter().find(one));
    if let Some(found) = found.filter(|_| !given.is_empty()) {
        return Some(found);
    }
    // A slip of the finger goes before a synonym, a mere likeness comes after it.
    let best = most_alike(wrong, &candidates);
    match best {
        Some((likeness, slip)) if likeness >= 1.0 => Some(slip),
        _ => synonym(&given, &candidates).or(best.map(|(_, candidate)| candidate)),
    }
}

/// A candidate that is another word for the same thing.
fn synonym<'a>(given: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let is = |word: &str, name: &str| singular(&plain(word)) == singular(&plain(name));
    let rows = SYNONYMS
        .iter()
        .filter(|row| row.iter().any(|word| is(word, given)));
    let words: Vec<&str> = rows.flat_map(|row| row.iter().copied()).collect();
    let exact = |word: &&str| candidates.iter().find(|name| plain(name) == plain(word));
    let near = |word: &&str| candidates.iter().find(|name| is(word, name));
    let found = words.iter().find_map(exact);
    found.or_else(|| words.iter().find_map(near)).copied()
}

/// The candidate that looks most like a name, and how much; from 1 up if only one letter is wrong.
fn most_alike<'a>(wrong: &str, candidates: &[&'a str]) -> Option<(f64, &'a str)> {
    let given = plain(wrong);
    let likeness = |candidate: &str| {
        let as_written = strsim::jaro_winkler(wrong, candidate);
        let candidate = plain(candidate);
        let like = strsim::jaro_winkler(&given, &candidate).max(as_written);
        // Two letters swapped, one too few or too many: short names are not alike by the other measure then.
        let slip = given.len() > 2 && strsim::damerau_levenshtein(&given, &candidate) == 1;
        if slip { 1.0 + like } else { like }
    };
    let rated = candidates.iter().map(|name| (likeness(name), *name));
    let near = rated.filter(|(likeness, _)| *likeness > ALIKE);
    near.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// "did you mean `x`?", if there is a candidate near enough.
pub fn did_you_mean<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(wrong, candidates).map(|near| format!("did you mean `{near}`?"))
}

/// "did you mean `x`?", or which names there are.
pub fn did_you_mean_one_of<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    did_you_mean(wrong, candidates.clone()).unwrap_or_else(|| {
        let all: Vec<&str> = candidates.into_iter().collect();
        one_of(&all)
    })
}

/// "expected one of `a`, `b`", or what that is for less.
pub fn one_of(names: &[&str]) -> String {
    match names {
        [] => "none is known".to_owned(),
        [one] => format!("expected `{one}`"),
        more => format!("expected one of `{}`", more.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 7] = [
        "symbiosis",
        "workover",
        "masa",
        "cpi",
        "sos",
        "observe",
        "fixed",
    ];

    proptest! {
        #[test]
        fn two_letters_swapped_are_found(name in 0..NAMES.len(), at in 0..8usize) {
            let mut letters: Vec<char> = NAMES[name].chars().collect();
            let at = at % (letters.len() - 1);
            letters.swap(at, at + 1);
            let wrong: String = letters.into_iter().collect();
            prop_assert_eq!(nearest(&wrong, NAMES), Some(NAMES[name]));
        }
    }

    #[test]
    fn what_looks_like_none_finds_none() {
        for wrong in ["", "x", "zzz", "policy"] {
            assert_eq!(nearest(wrong, NAMES), None, "{wrong}");
        }
    }

    #[test]
    fn case_separators_plurals_and_synonyms_are_seen_through() {
        let cache = ["size", "ways", "line", "latency", "shared-by", "holds"];
        let core = ["clock", "contexts", "multithreading", "width", "window"];
        let place = ["packages", "numa-nodes", "nodes", "cores", "kind"];
        let level = ["context", "core", "node", "package", "machine"];
        let profile = ["name", "kind", "unit", "event", "set", "limits"];
        for (wrong, names, meant) in [
            ("Shared_By", &cache[..], "shared-by"),
            ("associativity", &cache, "ways"),
            ("threads", &core, "contexts"),
            ("frequency", &core, "clock"),
            ("sockets", &place, "packages"),
            ("numa_nodes", &place, "numa-nodes"),
            ("socket", &level, "package"),
            ("numa", &level, "node"),
            ("cores", &level, "core"),
            ("sequential", &["random", "stride"], "stride"),
            ("sets", &profile, "set"),
            ("familiy", &["vendor", "family", "models"], "family"),
            ("defualt", &["default", "best", "worst"], "default"),
            ("CPI", &NAMES, "cpi"),
            ("windwo", &core, "window"),
        ] {
            assert_eq!(
                nearest(wrong, names.iter().copied()),
                Some(meant),
                "{wrong}"
            );
        }
    }

    #[test]
    fn where_nothing_is_near_all_are_named() {
        assert_eq!(
            did_you_mean_one_of("zzz", ["a", "b"]),
            "expected one of `a`, `b`"
        );
        assert_eq!(did_you_mean_one_of("zzz", ["only"]), "expected `only`");
        assert_eq!(
            did_you_mean_one_of("onyl", ["only"]),
            "did you mean `only`?"
        );
    }
}
