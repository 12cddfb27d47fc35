#!/bin/sh
# Cargo runs test programs through this, one after the other: it notes the program with its folder and its environment, for
# tests.sh.

# Examples of the documentation are quick, and rustdoc removes them when this ends.
case $1 in */rust_out) exec "$@" ;; esac

quoted() {
  printf " '%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}

number=$(ls "$PERCH_TEST_QUEUE" | wc -l)
{
  export -p
  printf 'cd'
  quoted "$PWD"
  printf '\nset --'
  for word; do quoted "$word"; done
  echo
} >"$PERCH_TEST_QUEUE/$(printf %03d "$number")-$(basename "$1").job"
