#!/bin/sh
# All tests. Most test programs wait most of the time, so some of them run side by side (PERCH_TEST_JOBS, 3 by default);
# what one prints is shown when it has ended. Those in virtual machines come last: emulated processors take all that there
# is, and the other tests would starve.
set -u
# In the background a shell starts commands with SIGINT and SIGQUIT ignored, and tests send these.
[ "${1-}" = caught ] || exec env --default-signal=INT,QUIT,HUP sh "$0" caught
cargo=${CARGO:-cargo}
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
$cargo test --workspace --no-run && $cargo test --workspace --test guests --no-run || exit

PERCH_TEST_QUEUE=$(mktemp -d) || exit
export PERCH_TEST_QUEUE
trap 'rm -rf "$PERCH_TEST_QUEUE"' EXIT
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
env "CARGO_TARGET_${host}_RUNNER=sh $here/queue.sh" "$cargo" test --workspace --no-fail-fast
status=$?
# Those that take longest come first: the short form of the torture, whole crates, and what the documents promise.
(cd "$PERCH_TEST_QUEUE" && printf '%s\n' *-quick-*.job *-all-*.job *-project-*.job *.job) |
  awk '!seen[$0]++' | sed "s:^:$PERCH_TEST_QUEUE/:" |
  xargs -P "${PERCH_TEST_JOBS:-3}" -n 1 sh "$here/job.sh" || status=1
"$cargo" test --workspace --test guests || status=$?
if failed=$(cat "$PERCH_TEST_QUEUE"/*.failed 2>/dev/null); then
  printf '\nfailed:\n%s\n' "$failed"
fi
exit $status
