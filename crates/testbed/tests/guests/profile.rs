//! What the profiles of all stand-in PMUs have in common.

/// The two events that every PMU has, what follows from them, and what no processor exceeds: the end of a profile.
pub const FIXED: &str = r#"[[event]]
alias = "cycles"
spellings = ["cycles"]
source = "perf_event_open(2)"
[[event]]
alias = "instructions"
spellings = ["instructions"]
source = "perf_event_open(2)"
[[metric]]
name = "ipc"
formula = "instructions / cycles"
unit = "instructions / cycle"
range = [0, 16]
description = "instructions per cycle"
source = "definition"
[limits]
cycles_per_second = [10e6, 8e9]
min_instructions_per_second = 1e6
max_instructions_per_cycle = 16
judge_after_ms = 10
source = "no processor runs above 8 GHz"
"#;
