#!/bin/sh
# Cargo runs test programs through this, one after the other: it starts one as soon as one of the slots of tests.sh is
# free, and does not wait for its end.
#
# As root, each has a /run of its own: there perch looks for which PUs others place threads on.
own_run() {
  if unshare --mount mount -t tmpfs tmpfs /run 2>/dev/null; then
    unshare --mount sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' sh "$@"
  else
    "$@"
  fi
}

# This job, with its slot's lock on descriptor 9. A job in the background would ignore Ctrl-C, and pass that on.
job() {
  name=$(basename "$1")
  output=$PERCH_TEST_QUEUE/$name
  # A test may start cargo.
  for runner in $(env | sed -n 's/^\(CARGO_TARGET_[A-Z0-9_]*_RUNNER\)=.*/\1/p'); do unset "$runner"; done
  own_run env --default-signal=INT,QUIT "$@" >"$output" 2>&1 9>&- </dev/null ||
    printf '  %s\n' "$name" >"$output.failed"
  flock "$PERCH_TEST_QUEUE" cat "$output"
}

# Examples of the documentation are quick, and rustdoc removes them when this ends.
case $1 in */rust_out) exec "$@" ;; esac

while :; do
  for slot in "$PERCH_TEST_QUEUE"/*.slot; do
    exec 9<"$slot"
    if flock --nonblock 9; then
      job "$@" &
      exit 0
    fi
  done
  sleep 0.1
done
