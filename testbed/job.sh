#!/bin/sh
# Runs a test program that queue.sh has noted, and shows what it printed.
#
# As root, each has a /run of its own: there perch looks for which PUs others place threads on.
job=$1
. "$job"
# A test may start cargo.
for runner in $(env | sed -n 's/^\(CARGO_TARGET_[A-Z0-9_]*_RUNNER\)=.*/\1/p'); do unset "$runner"; done
if unshare --mount mount -t tmpfs tmpfs /run 2>/dev/null; then
  set -- unshare --mount sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' sh "$@"
fi
printf '     Running %s\n' "$(basename "$job" .job)" >"$job.output"
"$@" >>"$job.output" 2>&1 </dev/null
status=$?
flock "$PERCH_TEST_QUEUE" cat "$job.output"
[ $status = 0 ] || basename "$job" .job | sed 's/^/  /' >"$job.failed"
# xargs ends at once if a command exits with 255.
[ $status = 0 ]
