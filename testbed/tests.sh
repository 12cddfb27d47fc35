#!/bin/sh
# All tests. Most test programs wait most of the time, so some of them run side by side (PERCH_TEST_JOBS, 3 by default),
# and those in virtual machines beside them. What a program prints is shown when it has ended.
set -u
cargo=${CARGO:-cargo}
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
$cargo test --workspace --no-run && $cargo test --workspace --test guests --no-run || exit

PERCH_TEST_QUEUE=$(mktemp -d) || exit
export PERCH_TEST_QUEUE
trap 'rm -rf "$PERCH_TEST_QUEUE"' EXIT
slots=${PERCH_TEST_JOBS:-3}
for slot in $(seq "$slots"); do : >"$PERCH_TEST_QUEUE/$slot.slot"; done
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
runner=CARGO_TARGET_${host}_RUNNER

# A shell has its background jobs ignore Ctrl-C, and they would pass that on.
env --default-signal=INT,QUIT "$cargo" test --workspace --test guests >"$PERCH_TEST_QUEUE/guests" 2>&1 &
guests=$!
env "$runner=sh $here/queue.sh" "$cargo" test --workspace --no-fail-fast
status=$?
for slot in "$PERCH_TEST_QUEUE"/*.slot; do flock "$slot" true; done
wait $guests || status=$?
cat "$PERCH_TEST_QUEUE/guests"
if failed=$(cat "$PERCH_TEST_QUEUE"/*.failed 2>/dev/null); then
  printf '\nfailed:\n%s\n' "$failed"
  status=1
fi
exit $status
