#!/bin/sh
# All tests but those in virtual machines. Most of them wait most of the time, so three groups of test programs run side by
# side. The programs of a group run one after the other, as cargo runs them. Each group has a /run of its own: there a
# perch finds which PUs others place threads on.
set -u
cargo=${CARGO:-cargo}
$cargo test --workspace --no-run || exit
if ! unshare --mount mount -t tmpfs tmpfs /run 2>/dev/null; then
  # Without root: one after the other, on the machine's own /run.
  exec "$cargo" test --workspace --no-fail-fast
fi
outputs=$(mktemp -d) || exit
trap 'rm -rf "$outputs"' EXIT

# Runs a part of the tests, and keeps what they print.
part() {
  output=$outputs/$1
  shift
  # A shell has its background jobs ignore Ctrl-C, and they would pass that on.
  env --default-signal=INT,QUIT unshare --mount sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' sh \
    "$cargo" test --workspace --no-fail-fast "$@" >"$output" 2>&1 || echo failed >"$output.failed"
}

# `guests` has no turn here; crates/perch/tests/project knows these letters.
part 1 --test '[a-c]*' &
part 2 --test '[d-f]*' --test '[h-p]*' &
part 3 --lib --bins --examples --test '[q-z]*' &
wait
part 4 --doc
cat "$outputs"/[1-4]
! cat "$outputs"/*.failed >/dev/null 2>&1
