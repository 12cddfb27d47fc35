//! perch's own cost; see `--help`.

fn main() -> anyhow::Result<()> {
    perch_bench::main()
}
