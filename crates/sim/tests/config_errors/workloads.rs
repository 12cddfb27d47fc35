//! Mistakes in workloads.

use super::{WORKLOAD, all, snapshot};

#[test]
fn of_mixes() {
    snapshot(
        "of_mixes",
        &all(
            WORKLOAD,
            &[
                ("shares = { alu = 0.7, load = 0.3 }", "shares = { alu = 0 }"),
                (
                    "shares = { alu = 0.7, load = 0.3 }",
                    "shares = { alu = -1, load = 2 }",
                ),
                (
                    "shares = { alu = 0.7, load = 0.3 }",
                    "shares = { alu = 0.7, laod = 0.3 }",
                ),
                (
                    "shares = { alu = 0.7, load = 0.3 }",
                    "shares = { alu = 0.9999, load = 0.0001 }",
                ),
                (
                    "shares = { load = 1 }",
                    "shares = { load = 1 }\ndepends = 64",
                ),
                (
                    "shares = { load = 1 }",
                    "shares = { load = 1 }\nmispredicted = 3",
                ),
                ("\"stride\",", "\"random\","),
                ("\"stride\",", "\"strides\","),
                ("\"4 KiB\"", "4"),
                ("\"stride\",", "\"stride\", region = \"table\","),
                ("\"stride\",", "\"stride\", share = 0,"),
            ],
        ),
    );
}

#[test]
fn of_programs() {
    snapshot(
        "of_programs",
        &all(
            WORKLOAD,
            &[
                ("compute = \"waiting\"", "compute = \"wating\""),
                (", instructions = 1_000", ""),
                ("1_000", "0"),
                ("1_000", "\"for ever\""),
                (
                    "{ sleep = \"1 ms\" }",
                    "{ sleep = \"1 ms\", barrier = \"b\" }",
                ),
                (
                    "{ sleep = \"1 ms\" }",
                    "{ sleep = \"1 ms\", instructions = 5 }",
                ),
                ("{ sleep = \"1 ms\" }", "{}"),
                ("{ unlock = \"l\" },", ""),
                ("{ unlock = \"l\" },", "{ unlock = \"ll\" },"),
                ("{ unlock = \"l\" },", "{ lock = \"l\" },"),
                ("10M", "forever"),
                (
                    "[{ sleep = \"1 ms\" }, { compute = \"busy\", instructions = \"forever\" }]",
                    "[{ barrier = \"b\" }]\nrepeat = 2",
                ),
                (
                    "[{ sleep = \"1 ms\" }, { compute = \"busy\", instructions = \"forever\" }]",
                    "[]",
                ),
                ("name = \"main\"", "name = \"main\"\nrestart = true"),
                ("name = \"b\"", "name = \"a\""),
                ("count = 4", "count = 65536"),
                ("name = \"main\"", ""),
                (
                    "size = \"1 MiB\",",
                    "size = \"1 TiB\" }, { size = \"1 TiB\" }, { size = \"1 TiB\" }, { size = \"1 TiB\" }, { size = \"1 TiB\",",
                ),
                ("[[programs]]", "[[program]]"),
            ],
        ),
    );
}
