//! Mixes that were derived from a recording, and how near they come to it.

use super::{
    bytes,
    table::{Align, table},
};
use perch_lab::derived::{Behaviour, Found};

/// The mixes; of those that were compared, what the recorded thread and the mix did.
pub fn found(mixes: &[Found]) -> String {
    let mut text = String::new();
    for mix in mixes {
        text += &format!(
            "\nmix {}: {} of data, {} of code\n",
            mix.name,
            bytes(mix.data),
            bytes(mix.code)
        );
    }
    let checks = || {
        let all = mixes.iter();
        all.flat_map(|mix| mix.checks.iter().map(move |check| (&mix.name, check)))
    };
    if checks().next().is_none() {
        return text;
    }
    let columns = [
        ("mix", Align::Left),
        ("machine", Align::Left),
        ("", Align::Left),
        ("IPC", Align::Right),
        ("br", Align::Right),
        ("L1I", Align::Right),
        ("L1", Align::Right),
        ("L2", Align::Right),
        ("L3", Align::Right),
        ("TLB", Align::Right),
    ];
    let rows = checks().flat_map(|(name, check)| {
        let row = |name: &str, machine: &str, what: &str, did: &Behaviour| {
            let counts = [did.mispredicted, did.fetch_misses[0]];
            let counts = counts
                .iter()
                .chain(&did.data_misses)
                .chain([&did.tlb_misses]);
            let mut row = vec![name.to_owned(), machine.to_owned(), what.to_owned()];
            row.push(format!("{:.2}", did.ipc));
            row.extend(counts.map(|count| format!("{count:.2}")));
            row
        };
        [
            row(name, &check.machine, "recorded", &check.recording),
            row("", "", "mix", &check.mix),
        ]
    });
    text += "\n";
    text += &table(&columns, rows);
    text += "\n\nbr: mispredicted branches; L1I, L1 to L3, TLB: misses; in 1,000 operations\n";
    text
}
