#!/bin/sh
# The main job on real programs: perch run with its report; then the same threads placed for a machine whose PUs share
# floating-point units, in a dry run, with the reasons. Usage: demo.sh PERCH [SECONDS]
set -eu
perch=$1
seconds=${2:-12}
here=target/examples

show() {
  printf '\n\033[1m$ perch %s\033[0m\n' "$*"
  "$perch" "$@"
}

show topology
show run -- "$here/mixed" --threads 4 --duration "$seconds" --shuffle 7
show run -- "$here/scimark" --threads 4 --duration 2
show run --dry-run --explain --topology 'package:1 core:4 pu:2' -- \
  "$here/mixed" --threads 4 --duration "$seconds" --shuffle 7
