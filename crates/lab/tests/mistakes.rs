//! Files with mistakes are refused with the place and what to do.

use perch_lab::experiment::parse;
use std::path::Path;

const GOOD: &str = r#"title = "An experiment"
seeds = [1, 2]
time = { warm-up = "10 cycles", length = "1000 cycles" }

[[run]]
name = "a"
machine = "cmt-b"
workload = "cmt-cpu-bound"

[[run]]
name = "b"
machine = "cmt-b"
workload = "cmt-cpu-bound"
pus = [0, 1, 2, 3]

[measure]
x = { of = "throughput", run = "a" }
y = { of = "throughput", run = "b" }

[[claim]]
name = "Both do the same"
published = "fedorova04-fig3-cpu-b"
ours = "x / y"
tolerance = 0.1
"#;

fn refusal(text: &str) -> String {
    let sibling = |_: &str| Err("not here".to_owned());
    match parse("test", text, Path::new("test.toml"), &sibling) {
        Ok(_) => panic!("not refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_good_file_is_read() {
    let sibling = |_: &str| Err("not here".to_owned());
    let experiment = parse("test", GOOD, Path::new("test.toml"), &sibling).unwrap();
    assert_eq!(experiment.runs.len(), 2);
    assert_eq!(experiment.claims[0].place, "Fedorova04, figures 1 and 3");
}

/// Each line of the good file that is changed, and into what.
#[test]
fn mistakes_are_told_with_their_place() {
    let changes = [
        ("seeds = [1, 2]", "seed = [1, 2]"),
        ("seeds = [1, 2]", "seeds = []"),
        ("\"1000 cycles\"", "\"1000 rounds\""),
        ("\"1000 cycles\"", "\"0 cycles\""),
        (
            "{ warm-up = \"10 cycles\", length = \"1000 cycles\" }",
            "\"1s\"",
        ),
        ("length = \"1000 cycles\"", "lenght = \"1000 cycles\""),
        ("warm-up = \"10 cycles\"", "warm-up = 10"),
        ("name = \"b\"", "name = \"a\""),
        ("machine = \"cmt-b\"", "machine = \"cmt-bb\""),
        ("machine = \"cmt-b\"", "machine = \"./mine.toml\""),
        ("pus = [0, 1, 2, 3]", "pus = [0, 1, 2]"),
        ("pus = [0, 1, 2, 3]", "pus = [0, 1, 2, 4]"),
        ("pus = [0, 1, 2, 3]", "pus = [0, 1, 2, 3]\nrandom = 3"),
        ("pus = [0, 1, 2, 3]", "policy = \"cpy\""),
        (
            "pus = [0, 1, 2, 3]",
            "policy = \"cpi\"\noptions = { gian = 1 }",
        ),
        ("pus = [0, 1, 2, 3]", "options = { gain = 1 }"),
        ("pus = [0, 1, 2, 3]", "search = \"bets\""),
        (
            "pus = [0, 1, 2, 3]",
            "cores = [[\"worker\", \"worker\", \"wroker\"]]",
        ),
        (
            "pus = [0, 1, 2, 3]",
            "cores = [[\"worker\", \"worker\", \"worker\"]]",
        ),
        ("run = \"a\"", "run = \"c\""),
        ("of = \"throughput\"", "of = \"thruput\""),
        ("x = {", "max = {"),
        ("\"x / y\"", "\"x / z\""),
        ("\"x / y\"", "\"x / \""),
        ("fedorova04-fig3-cpu-b", "fedorova04-fig3-cpu-d"),
        ("fedorova04-fig3-cpu-b", "fedorova04-fig4-middle"),
        ("tolerance = 0.1", ""),
        ("tolerance = 0.1", "tolerance = -0.1"),
        ("tolerance = 0.1", "between = [2, 1]"),
        ("ours = \"x / y\"", "rising = [\"x\"]"),
        ("tolerance = 0.1", "tolerance = 0.1\nkind = \"at-lest\""),
        ("[[claim]]", "[sweep]\nworking-set = [\"8 B\"]\n\n[[claim]]"),
        ("[[claim]]", "[figure]\nx = \"x\"\ny = \"y\"\n\n[[claim]]"),
        (
            "[[claim]]",
            "[variation]\ndraws = 1000000000\n\n[[variation.parameter]]\nname = \"a\"\nsource = \"b\"\nvalues = [{ name = \"c\" }]\n\n[[claim]]",
        ),
        ("pus = [0, 1, 2, 3]", "random = 1000000000"),
    ];
    let told: Vec<String> = changes
        .iter()
        .map(|(from, to)| {
            assert!(GOOD.contains(from), "{from}");
            format!("{from} -> {to}\n{}\n", refusal(&GOOD.replacen(from, to, 1)))
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}

/// The changed file is nowhere to be seen: the change is shown, whichever of several it is.
#[test]
fn a_change_that_makes_a_file_wrong_is_told_at_its_own_place() {
    let with =
        |lines: &str| refusal(&GOOD.replacen("[measure]", &format!("{lines}\n[measure]"), 1));
    let told = with(
        "[set.machine]\n\"kinds.simple.window\" = 2\n\"kinds.simple.contexts\" = \"many\"\n\"kinds.simple.width\" = 1\n",
    );
    assert!(told.starts_with("test.toml:18:1: in `cmt-b`: "), "{told}");
    assert!(
        told.contains("18 | \"kinds.simple.contexts\" = \"many\""),
        "{told}"
    );
    let told = with("[set.workload]\n\"mixes.*.alu\" = -1\n");
    assert!(
        told.starts_with("test.toml:17:1: in `cmt-cpu-bound`: "),
        "{told}"
    );
    let told = with(
        "[variation]\n[[variation.parameter]]\nname = \"a\"\nsource = \"b\"\nvalues = [\n  { name = \"c\", machine = { \"kinds.simple.clock\" = \"1 Hx\" } },\n]\n",
    );
    assert!(told.starts_with("test.toml:21:29: in `cmt-b`: "), "{told}");
}

#[test]
fn a_period_that_is_longer_than_its_run_is_told() {
    let sibling = |_: &str| Err("not here".to_owned());
    let text = GOOD.replacen(
        "pus = [0, 1, 2, 3]",
        "policy = \"cpi\"\nperiod = \"10s\"",
        1,
    );
    let experiment = parse("test", &text, Path::new("test.toml"), &sibling).unwrap();
    let error = perch_lab::run(&experiment, &mut ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`b`") && error.contains("a shorter `period`"),
        "{error}"
    );
}

/// What is published is no aim, what was put in is no prediction, and nothing else is a published value.
#[test]
fn claims_of_a_wrong_class_are_refused() {
    let with = |line: &str| {
        refusal(&GOOD.replacen("tolerance = 0.1", &format!("tolerance = 0.1\n{line}"), 1))
    };
    let told = with("class = \"aim\"");
    assert!(
        told.starts_with("test.toml:25:9: what is published is no `aim`"),
        "{told}"
    );
    let told = with("class = \"predicton\"");
    assert!(
        told.contains("unknown class of claims `predicton`")
            && told.contains("did you mean `prediction`"),
        "{told}"
    );
    let input = GOOD.replacen("fedorova04-fig3-cpu-b", "workover-table1-perl-usage", 1);
    let told = refusal(&format!("{input}class = \"prediction\"\n"));
    assert!(told.contains("published.tsv has it as an input"), "{told}");
    let aim = GOOD.replacen(
        "published = \"fedorova04-fig3-cpu-b\"",
        "aim = 1\nplace = \"here\"",
        1,
    );
    let told = refusal(&format!("{aim}class = \"prediction\"\n"));
    assert!(told.contains("what nobody published is an `aim`"), "{told}");
    assert!(with("null = nan").contains("test.toml:25:8: no number"));
    let order = GOOD.replacen("ours = \"x / y\"", "rising = [\"x\", \"y\"]", 1);
    let told = refusal(&format!("{order}null = 1\n"));
    assert!(told.contains("leave `null` out"), "{told}");
}

/// Without a word, what is published is a prediction unless it was an input, and the rest are aims.
#[test]
fn the_class_of_a_claim_follows_from_what_it_is_about() {
    let class = |text: &str| {
        let sibling = |_: &str| Err("not here".to_owned());
        let experiment = parse("test", text, Path::new("test.toml"), &sibling).unwrap();
        experiment.claims[0].class.name()
    };
    assert_eq!(class(GOOD), "prediction");
    assert_eq!(
        class(&GOOD.replacen("fedorova04-fig3-cpu-b", "workover-table1-perl-usage", 1)),
        "input"
    );
    let aim = GOOD.replacen(
        "published = \"fedorova04-fig3-cpu-b\"",
        "aim = 1\nplace = \"here\"",
        1,
    );
    assert_eq!(class(&aim), "aim");
    // What follows from something that was put in is an input though nobody calls the published value so.
    assert_eq!(class(&format!("{GOOD}class = \"input\"\n")), "input");
}

#[test]
fn published_values_that_cannot_be_drawn_are_refused() {
    let figure = |bar: &str| {
        let head = "[figure]\nx = \"x\"\ny = \"y\"\n[[figure.bar]]\ngroup = \"a\"\nseries = \"b\"\nvalue = \"x\"\n";
        refusal(&format!("{GOOD}\n{head}{bar}"))
    };
    let told = figure("published = \"fedorova04-fig4-middle\"\n");
    assert!(told.contains("no number: it cannot be drawn"), "{told}");
    let told = figure("published = \"fedorova04-fig5-a-d\"\ntimes = \"x\"\ndivides = \"y\"\n");
    assert!(told.contains("`divides` beside `times`"), "{told}");
}

#[test]
fn keys_may_have_underscores_and_units_any_case() {
    let text = GOOD
        .replace("warm-up", "warm_up")
        .replace("10 cycles", "10 Cycles");
    let sibling = |_: &str| Err("not here".to_owned());
    let experiment = parse("test", &text, Path::new("test.toml"), &sibling).unwrap();
    let good = parse("test", GOOD, Path::new("test.toml"), &sibling).unwrap();
    assert_eq!(experiment.runs[0].times, good.runs[0].times);
}

#[test]
fn an_unknown_experiment_is_told_with_a_suggestion() {
    let error = perch_lab::load("cmt/figure33").unwrap_err().to_string();
    assert_eq!(
        error,
        "no experiment `cmt/figure33`; did you mean `cmt/figure3`?; `perch lab list` lists them, and a path to a file \
         works too"
    );
    let error = perch_lab::load("nowhere/mine.toml")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("nowhere/mine.toml: cannot be read: "),
        "{error}"
    );
}

/// A placement cannot put a thread where its workload does not allow it.
#[test]
fn a_placement_against_pins_is_refused() {
    let text = GOOD.replacen(
        "workload = \"cmt-cpu-bound\"\npus",
        "workload = \"./w.toml\"\npus",
        1,
    );
    let sibling = |_: &str| {
        Ok(
            "about = \"pinned\"\n[mixes.m]\nshares = { alu = 1 }\n[[programs]]\nname = \"p\"\n\
            [[programs.threads]]\nname = \"t\"\ncount = 4\npus = [0, 1]\n\
            steps = [{ compute = \"m\", instructions = \"forever\" }]\n"
                .to_owned(),
        )
    };
    let read = |text: &str| parse("test", text, Path::new("test.toml"), &sibling);
    let error = read(&text).unwrap_err().to_string();
    assert!(
        error.contains("PU 2 for `t`, which its file pins to others"),
        "{error}"
    );
    assert!(error.contains("its `pus` are [0, 1]"), "{error}");
    assert!(read(&text.replace("[0, 1, 2, 3]", "[0, 1, 1, 0]")).is_ok());
}
