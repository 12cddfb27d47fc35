#!/bin/sh
# Fuzzes every target for SECONDS (default 10) each, on stable Rust. Findings end the run with libFuzzer's report.
set -eu
cd "$(dirname "$0")"
seconds=${1:-10}
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions"
export RUSTFLAGS
cargo build --release --quiet --target "$host"
for target in targets/*.rs; do
  name=$(basename "$target" .rs)
  mkdir -p "corpus/$name"
  echo "fuzzing $name for $seconds s"
  "target/$host/release/$name" -max_total_time="$seconds" -verbosity=0 -print_final_stats=1 -rss_limit_mb=2048 "corpus/$name" 2>&1 |
    grep -E "number_of_executed_units|ERROR|panicked|SUMMARY|Test unit" || true
  [ -z "$(ls crash-* oom-* timeout-* 2>/dev/null)" ] || { echo "$name: see the crash file in fuzz/"; exit 1; }
done
