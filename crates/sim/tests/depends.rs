//! Dependency distances that are drawn from a distribution.

use super::{
    interval::{both, endless, near},
    support::{machine, mix},
};
use perch_sim::{
    config::workload_from_text,
    model::{MachineModel, Multithreading, Op},
    stream::{MixStream, Random},
    workload::{Depends, Mix},
};
use std::path::Path;

const ALU: &[(Op, f64)] = &[(Op::Alu, 1.0)];

/// A core on which nothing but results limits one thread.
fn wide() -> MachineModel {
    let mut machine = machine(1, 1, Multithreading::Simultaneous);
    machine.kinds[0].window = 512;
    machine.kinds[0].in_order = false;
    machine
}

/// Instructions in a microsecond at the cycle level and at the interval level.
fn speeds(machine: &MachineModel, depends: Depends, ops: &[(Op, f64)], extra: u16) -> [f64; 2] {
    let mut mix = mix("m", ops, 4 << 10);
    (mix.depends, mix.extra) = (depends, extra);
    let workload = endless(vec![mix], &[0]);
    let counted = both(machine, &workload, &[0], 20_000_000, 200_000_000);
    counted.map(|counters| counters[0].instructions() as f64 / 200.0)
}

#[test]
fn the_mean_distance_limits_a_chain() {
    let machine = wide();
    let [exact, ours] = speeds(&machine, 2.into(), ALU, 9);
    near(ours, exact, 0.05, "each two back");
    for mean in [1.0, 2.5, 4.0] {
        let [drawn, ours] = speeds(&machine, Depends::geometric(mean), ALU, 9);
        // Going back from result to result takes one step of the mean distance for each latency, whatever its law.
        near(drawn, exact * mean / 2.0, 0.06, &format!("mean {mean}"));
        near(ours, drawn, 0.05, &format!("mean {mean}, interval level"));
    }
    let list = Depends::listed(&[(1, 0.5), (4, 0.5)]).unwrap();
    let [drawn, ours] = speeds(&machine, list, ALU, 9);
    near(drawn, exact * 2.5 / 2.0, 0.06, "one and four back");
    near(ours, drawn, 0.05, "one and four back, interval level");
}

#[test]
fn an_in_order_core_waits_for_the_nearest_results() {
    let mut machine = wide();
    machine.kinds[0].in_order = true;
    let far = speeds(&machine, 4.into(), ALU, 3);
    let drawn = speeds(&machine, Depends::geometric(4.0), ALU, 3);
    assert!(drawn[0] < 0.8 * far[0], "{drawn:?} {far:?}");
    for [exact, ours] in [far, drawn] {
        near(ours, exact, 0.05, "interval level");
    }
}

#[test]
fn loads_at_drawn_distances_agree_at_both_levels() {
    let ops = &[(Op::Alu, 0.5), (Op::Load, 0.3), (Op::Branch, 0.2)];
    for mean in [1.5, 3.0, 10.0] {
        let [exact, ours] = speeds(&wide(), Depends::geometric(mean), ops, 0);
        near(ours, exact, 0.08, &format!("mean {mean}"));
    }
}

/// What else a stream does stays as it is with a constant distance.
#[test]
fn only_distances_are_drawn_anew() {
    let stream = |depends: Depends| {
        let ops = &[(Op::Alu, 0.5), (Op::Load, 0.3), (Op::Branch, 0.2)];
        let mut mix = mix("m", ops, 64 << 10);
        (mix.depends, mix.mispredicted) = (depends, 0.3);
        let mut stream = MixStream::new(&mix, 0, &[1 << 20], Random::new(3));
        (0..10_000).map(move |_| stream.next())
    };
    let (mut sum, list) = (0.0, Depends::listed(&[(1, 3.0), (7, 1.0)]).unwrap());
    for (constant, drawn) in stream(2.into()).zip(stream(list)) {
        assert!([1, 7].contains(&drawn.depends));
        sum += f64::from(drawn.depends);
        let mut same = drawn;
        same.depends = constant.depends;
        assert_eq!(same, constant);
    }
    near(sum / 10_000.0, 2.5, 0.05, "mean");
}

/// A mix with this distance.
fn read(depends: &str) -> Result<Mix, String> {
    let text = format!(
        "about = \"One\"\n[mixes.a]\nshares = {{ alu = 1 }}\ndepends = {depends}\n[[programs]]\nname = \"p\"\n\
         [[programs.threads]]\nname = \"t\"\nsteps = [{{ compute = \"a\", instructions = 1 }}]\n"
    );
    let mut workload = workload_from_text(&text, Path::new("w.toml")).map_err(|e| e.to_string())?;
    Ok(workload.mixes.remove(0))
}

#[test]
fn a_file_gives_a_distance_a_mean_or_a_list() {
    let cases = [
        ("4", 4.into()),
        ("2.5", Depends::geometric(2.5)),
        ("{ mean = 4 }", Depends::geometric(4.0)),
        (
            "[[1, 0.5], [4, 0.5]]",
            Depends::listed(&[(4, 1.0), (1, 1.0)]).unwrap(),
        ),
    ];
    for (text, depends) in cases {
        assert_eq!(read(text).unwrap().depends, depends, "{text}");
    }
    let wrong = [
        "64",
        "-1",
        "0.5",
        "64.5",
        "4.0",
        "nan",
        "\"4\"",
        "{ median = 4 }",
        "{}",
        "[]",
        "[1, 4]",
        "[[1]]",
        "[[1, 0.5], [1, 0.5]]",
        "[[1, 0]]",
        "[[64, 1]]",
        "[[1.5, 1]]",
        "[[1, -1]]",
    ];
    let told: Vec<String> = wrong.iter().map(|text| read(text).unwrap_err()).collect();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("depends", told.join("\n\n")) });
}
