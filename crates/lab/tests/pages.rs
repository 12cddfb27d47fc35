//! The result pages are made from results that are kept, and these are what the experiments come to.

use perch_lab::{
    Tally, fingerprint, kept, load, names, overview,
    results::{Row, Value},
    run,
    validate::{self, Measurements},
};
use perch_sim::config;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn json(name: &str) -> String {
    let path = docs().join(format!("results/{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(name: &str) -> Vec<Row> {
    kept::rows(&load(name).unwrap(), &json(name)).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn pages_have_the_tables_that_their_results_make() {
    let mut shown = String::new();
    let page = |name: &str| {
        let text = std::fs::read_to_string(docs().join(format!("{name}.md"))).unwrap();
        let made = kept::page(&text, &docs().join("results")).unwrap_or_else(|why| panic!("{why}"));
        assert!(
            made == text,
            "docs/{name}.md is stale: cargo run -p perch-lab --example pages"
        );
        text
    };
    page("fidelity");
    let validated = page("validation");
    for machine in Measurements::machines() {
        assert!(
            validated.contains(&format!("<!-- validation {machine} -->")),
            "docs/validation.md lacks {machine}"
        );
    }
    for name in ["cmt", "masa", "workover"] {
        let text = page(name);
        assert!(text.contains(&format!("<!-- counts {name} -->")));
        assert!(text.contains(&format!("](results/{name}.svg)")));
        let path = docs().join(format!("results/{name}.svg"));
        let picture = std::fs::read_to_string(&path).unwrap_or_default();
        let made = overview::svg(name, &docs().join("results"));
        assert!(
            picture == made.unwrap_or_else(|why| panic!("{why}")),
            "docs/results/{name}.svg is stale: cargo run -p perch-lab --example pages"
        );
        shown.push_str(&text);
    }
    for name in names() {
        assert!(
            shown.contains(&format!("<!-- results {name} -->")),
            "{name} is on no page"
        );
    }
}

/// The quick ones: a change of the simulator that changes results is noticed.
#[test]
fn kept_results_are_what_comes_out() {
    for name in [
        "cmt/model",
        "cmt/figure3",
        "cmt/figure5",
        "workover/figure6",
    ] {
        let fresh = run(&load(name).unwrap(), &mut ()).unwrap().rows;
        for (fresh, kept) in fresh.iter().zip(read(name)) {
            let same = match (&fresh.ours, &kept.ours) {
                (Value::Number(a), Value::Number(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
                (a, b) => a == b,
            };
            assert!(
                same && fresh.holds == kept.holds,
                "docs/results/{name}.json is stale: {fresh:?} is no longer {kept:?}"
            );
        }
    }
}

/// The values that are cheap to simulate: of instructions, of loops, and of the first two levels.
#[test]
fn kept_validations_are_what_comes_out() {
    let kept = kept::validation(&docs().join("results")).unwrap_or_else(|why| panic!("{why}"));
    let machines: Vec<&str> = kept.machines.iter().map(|one| &*one.machine).collect();
    assert_eq!(machines, Measurements::machines());
    for one in &kept.machines {
        let machine = Arc::new(config::find_machine(&one.machine).unwrap());
        let measurements = Measurements::of(&one.machine).unwrap();
        let mut found = 0;
        for only in ["dependent", "alone", "level 1", "level 2"] {
            for fresh in validate::validate(&machine, &measurements, only, |_, _| ()).unwrap() {
                found += 1;
                let same = |kept: &validate::Row| {
                    let off = kept.simulated - fresh.simulated;
                    off.abs() <= 1e-9 * fresh.simulated
                        && (kept.cells(), &kept.source) == (fresh.cells(), &fresh.source)
                };
                assert!(
                    one.rows.iter().any(same),
                    "{}: docs/results/validation.json lacks {fresh:?}: `make validation`",
                    one.machine
                );
            }
        }
        assert!(found > 4, "{}: {found} values", one.machine);
    }
}

/// Pages whose tables take too long to be made again here.
#[test]
fn long_tables_are_those_of_this_simulator() {
    let levels = fingerprint::of_levels().unwrap();
    for name in ["fidelity", "fidelity-cold", "fidelity-full"] {
        let kept =
            kept::fidelity(name, &docs().join("results")).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            kept.fingerprint, levels.both,
            "{name} is stale: `make fidelity`"
        );
    }
    let kept = kept::validation(&docs().join("results")).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(
        kept.fingerprint, levels.cycle,
        "docs/validation.md is stale: `make validation`"
    );
    let tournament = fingerprint::of_tournament(&levels).unwrap();
    let experiments = kept::fingerprints(&docs().join("results")).unwrap();
    for name in names() {
        let group = name.split('/').next().unwrap();
        let page = std::fs::read_to_string(docs().join(format!("{group}.md"))).unwrap();
        // A table of an earlier simulator has a remark, and one of this one has none.
        let remark = page.contains(&format!("`{name}` is of an earlier simulator"));
        let experiment = load(&name).unwrap();
        let present = Some(tournament.of(&experiment));
        assert!(
            (experiments.get(&name).map(String::as_str) == present) != remark,
            "the results of {name} are stale: `make results`; or the page need not say that they are"
        );
    }
    let text = std::fs::read_to_string(docs().join("tournament.md")).unwrap();
    let says = format!("fingerprint `{}`", tournament.both);
    // A page with old tables has that as its first paragraph, and one with present tables has not.
    let head = text.split("```").next().unwrap();
    assert!(
        text.contains(&says) != head.contains("**We will repeat the tournament"),
        "docs/tournament.md is stale: make its tables again (perch lab run tournament), and say \"{says}\""
    );
}

#[test]
fn results_of_other_claims_are_stale() {
    let experiment = load("cmt/model").unwrap();
    let good = json("cmt/model");
    assert_eq!(kept::rows(&experiment, &good).unwrap().len(), 3);
    let told = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        kept::rows(&experiment, &good.replacen(from, to, 1)).unwrap_err()
    };
    assert!(told("An ALU", "A").contains("another name"));
    assert!(told("\"published\": 4.0", "\"published\": 5.0").contains("another published value"));
    assert!(told("\"holds\": true", "\"holds\": false").contains("another tolerance"));
    assert!(
        kept::rows(&experiment, "[]")
            .unwrap_err()
            .contains("0 claims instead of 3")
    );
}

#[test]
fn what_a_page_asks_for_is_known() {
    let made = |text: &str| kept::page(text, &docs().join("results"));
    assert_eq!(made("a\n\nb\n").unwrap(), "a\n\nb\n");
    let table = made("<!-- results cmt/model -->\nleft over\n<!-- end -->\nrest\n").unwrap();
    assert!(
        table.contains("| input |")
            && !table.contains("left over")
            && table.ends_with("<!-- end -->\nrest\n")
    );
    assert!(
        made("<!-- results cmt/modle -->\n<!-- end -->\n")
            .unwrap_err()
            .contains("did you mean")
    );
    assert!(
        made("<!-- results cmt/model -->\n")
            .unwrap_err()
            .contains("no `<!-- end -->`")
    );
    assert!(
        made("<!-- result cmt/model -->\n<!-- end -->\n")
            .unwrap_err()
            .contains("nothing that is known")
    );
    assert!(
        made("<!-- counts cm -->\n<!-- end -->\n")
            .unwrap_err()
            .contains("no experiment is below")
    );
}

/// That what was put in comes out again is no evidence, and is not counted as such.
#[test]
fn tables_that_were_inputs_are_counted_as_inputs() {
    let inputs = read("workover/table1");
    let tally = Tally::of(&inputs);
    assert_eq!(tally.inputs.claims, inputs.len());
    assert_eq!(tally.predictions.claims + tally.aims.claims, 0);
}
