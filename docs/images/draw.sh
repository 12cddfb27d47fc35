#!/bin/sh
# Draws the pictures of this folder: draw.sh PERCH FOLDER. `make pictures` does that, and a test compares them with what
# is committed. All are of described or simulated machines, so they come out the same everywhere.
set -eu
perch=$(realpath "$1")
into=$(realpath "$2")
cd "$(dirname "$0")"

# Two packages of eight cores: two PUs share the FP units of each core.
"$perch" topology --topology 'package:2 numanode:1 l3:2 l2:4 core:1 pu:2' --profile zen4 --svg "$into/shared-units.svg"
# Bulldozer: the two cores of a module share theirs.
"$perch" topology --topology 'package:1 l3:1 l2:4 core:2 pu:1' --profile bulldozer --svg "$into/modules.svg"

# The same threads under the kernel's scheduler and under a policy: where they are in the end, and when they were where.
"$perch" sim -m amd-bulldozer -w fp-int-8 --compare default,workover --time 6s --fidelity interval \
    --placement "$into/before-after.svg" --timeline "$into/timeline.svg" >/dev/null
"$perch" sim -m cmt-4x4 -w cmt-table1 --compare default,cpi --time 6s --fidelity interval \
    --placement "$into/cpi.svg" >/dev/null

# Counts over time: two threads, one of which has phases.
"$perch" stat --sim smt2-zen -w two-phases.toml --fidelity interval --for 6s -i 100ms \
    -e BRANCHES -e L2_MISSES -m ipc --plot "$into/series.svg" >/dev/null

# What co-running kernels cost each other.
"$perch" calibrate -m smt2-zen --quick --svg "$into/calibration.svg" >/dev/null
