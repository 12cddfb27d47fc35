//! The shipped experiments.

use perch_lab::{
    Results,
    experiment::{Place, Shape},
    load, published, run, run_on,
};
use std::collections::BTreeSet;

#[test]
fn every_shipped_experiment_is_read() {
    let all = perch_lab::list().unwrap();
    let names: Vec<&str> = all.iter().map(|summary| summary.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "cmt/figure3",
            "cmt/figure4",
            "cmt/figure5",
            "cmt/hundred",
            "cmt/model",
            "cmt/schedulers",
            "cmt/solo",
            "cmt/wide",
            "masa/binding",
            "masa/constants",
            "masa/table1",
            "masa/table2",
            "masa/table4",
            "masa/table6",
            "masa/test-case-1",
            "masa/test-case-2",
            "workover/figure11",
            "workover/figure12a",
            "workover/figure12b",
            "workover/figure13",
            "workover/figure14",
            "workover/figure6",
            "workover/overhead",
            "workover/table1",
            "workover/table2",
            "workover/wall-time"
        ]
    );
    assert!(
        all.iter()
            .all(|summary| summary.claims > 0 && !summary.title.is_empty())
    );
}

/// What a claim is worth is written down, not left to what follows from where it comes from; of a ratio that holds it is
/// known whether it would hold anyway.
#[test]
fn every_claim_says_of_which_class_it_is() {
    for name in perch_lab::names() {
        let path = format!(
            "{}/../../experiments/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).unwrap();
        let claims = text.matches("\n[[claim]]\n").count();
        assert_eq!(text.matches("\nclass = \"").count(), claims, "{name}");
        for claim in load(&name).unwrap().claims {
            let ratio = claim.unit.starts_with("times ") && !claim.unit.ends_with("the bound");
            let ordering = claim.ours.len() > 1;
            assert!(
                !ratio || ordering || claim.null == Some(1.0),
                "{name}: {}",
                claim.name
            );
        }
    }
}

/// Every number and ordering of the paper is checked by some experiment.
#[test]
fn every_published_value_is_claimed() {
    let experiments: Vec<_> = perch_lab::list()
        .unwrap()
        .iter()
        .map(|summary| load(&summary.name).unwrap())
        .collect();
    let claims = experiments.iter().flat_map(|experiment| &experiment.claims);
    let mut claimed: BTreeSet<&str> = claims.filter_map(|claim| claim.id.as_deref()).collect();
    // Or the experiment gives a reason why it cannot be checked here. Then no other experiment checks it.
    let left_out = experiments
        .iter()
        .flat_map(|experiment| &experiment.left_out);
    for id in left_out.flat_map(|left_out| &left_out.ids) {
        assert!(claimed.insert(id), "{id} is checked and left out");
    }
    for row in published::all()
        .iter()
        .filter(|row| row.kind != published::Kind::Input)
    {
        assert!(
            claimed.contains(row.id.as_str()),
            "nobody checks {}",
            row.id
        );
    }
}

/// The schedules of figure 5 are those of the paper's table 1.
#[test]
fn schedules_are_those_of_table_1() {
    let experiment = load("cmt/figure5").unwrap();
    for run in &experiment.runs {
        let Place::Listed(placement) = &run.place else {
            panic!("{} is not listed", run.name)
        };
        let slots = perch_lab::placement::slots(&run.workloads[0]);
        let mut by_pu = vec![""; placement.len()];
        for (slot, pu) in slots.iter().zip(placement) {
            by_pu[*pu as usize] = slot.kind.strip_prefix("cpi-").unwrap();
        }
        let cores: Vec<String> = by_pu.chunks(4).map(|core| core.join(" ")).collect();
        let published = published::find(&format!("fedorova04-table1-{}", run.name)).unwrap();
        assert_eq!(cores.join(" | "), published.value);
    }
}

fn misses(results: &Results) -> Vec<String> {
    let missed = results.rows.iter().filter(|row| !row.holds);
    missed
        .map(|row| format!("{}: {} instead of {}", row.name, row.ours, row.published))
        .collect()
}

#[test]
fn the_pipeline_has_the_papers_delays() {
    let results = run(&load("cmt/model").unwrap(), &mut ()).unwrap();
    assert_eq!(misses(&results), Vec::<String>::new());
}

#[test]
fn figures_3_and_5_hold() {
    for name in ["cmt/figure3", "cmt/figure5"] {
        let results = run(&load(name).unwrap(), &mut ()).unwrap();
        assert_eq!(misses(&results), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn host_threads_make_no_difference() {
    let mut experiment = load("cmt/schedulers").unwrap();
    experiment.seeds = vec![1, 2];
    let short = |cycles| perch_lab::experiment::Span::Cycles(cycles);
    for run in &mut experiment.runs {
        run.times = perch_lab::experiment::Times {
            warm_up: short(2_000),
            length: short(300_000),
        };
        match &mut run.place {
            Place::Search { most, .. } => *most = 5,
            Place::Random(draws) => *draws = 2,
            _ => {}
        }
    }
    let one = run_on(&experiment, 1, &mut ()).unwrap();
    let four = run_on(&experiment, 4, &mut ()).unwrap();
    assert_eq!(one, four);
    // Another seed is another run: else nothing was seeded at all.
    experiment.seeds = vec![3, 4];
    assert_ne!(
        run_on(&experiment, 4, &mut ()).unwrap().measured,
        one.measured
    );
}

#[test]
fn progress_is_told_once_for_each_simulation() {
    #[derive(Default)]
    struct Told(Vec<String>);
    impl perch_lab::Progress for Told {
        fn start(&mut self, experiment: &str, simulations: usize) {
            self.0.push(format!("{experiment} {simulations}"));
        }
        fn done(&mut self, finished: usize) {
            self.0.push(finished.to_string());
        }
        fn end(&mut self) {
            self.0.push("end".to_owned());
        }
    }
    let mut told = Told::default();
    run(&load("cmt/model").unwrap(), &mut told).unwrap();
    assert_eq!(told.0, ["cmt/model 3", "1", "2", "3", "end"]);
}

#[test]
fn a_page_needs_nothing_else_and_shows_what_misses() {
    let mut experiment = load("cmt/model").unwrap();
    experiment.claims[0].published = perch_lab::experiment::Against::Number(7.0);
    let results = [run(&experiment, &mut ()).unwrap()];
    let page = perch_lab::report(&results).unwrap();
    assert!(page.contains("inputs: 2 of 3 hold"));
    assert_eq!(page.matches("<tr class=\"misses\">").count(), 1);
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    // Names of namespaces are no addresses that a browser opens.
    let links = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http://") && !links.contains("https://") && !links.contains("src="));
    assert!(
        perch_lab::table::text(&results[0])
            .lines()
            .all(|line| line.chars().count() <= 80)
    );
}

/// A picture shows what is published beside ours, and its legend covers nothing: it is above the chart.
#[test]
fn pictures_show_what_is_published() {
    let rings = |name: &str| {
        let results = run(&load(name).unwrap(), &mut ()).unwrap();
        let svg = perch_lab::figure::svg(&results.picture.unwrap()).unwrap();
        assert!(svg.contains(">\npublished\n<"), "{name}");
        let radii = svg.matches("r=\"5\" opacity=\"1\" fill=\"none\"");
        // One of them is in the legend.
        radii.count() - 1
    };
    assert_eq!(rings("cmt/figure5"), 3);
    assert_eq!(rings("cmt/figure3"), 4);
    for name in ["cmt/figure4", "workover/figure12a"] {
        let published = match load(name).unwrap().figure.unwrap().shape {
            Shape::Bars(bars) => bars.iter().filter(|bar| bar.published.is_some()).count(),
            Shape::Lines { marks, .. } => marks.len(),
        };
        assert!(published >= 2, "{name}");
    }
}

#[test]
fn a_table_tells_what_holds_and_what_misses() {
    let mut experiment = load("cmt/model").unwrap();
    experiment.claims[0].published = perch_lab::experiment::Against::Number(7.0);
    let results = run(&experiment, &mut ()).unwrap();
    insta::assert_snapshot!(perch_lab::table::text(&results));
}

/// The example that the documentation gives is an experiment.
#[test]
fn the_documented_experiment_is_read() {
    let page = include_str!("../../../docs/lab.md");
    let text = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let path = std::path::Path::new("docs/lab.md");
    let sibling = |_: &str| Err("not here".to_owned());
    let experiment = perch_lab::experiment::parse("mine", text, path, &sibling).unwrap();
    assert_eq!(experiment.claims.len(), 1);
    // What can be measured and how it is taken is described, all of it.
    for (name, _) in perch_lab::experiment::Quantity::all() {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for (name, _) in perch_lab::experiment::Take::ALL {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
