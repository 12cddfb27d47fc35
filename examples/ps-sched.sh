#!/bin/sh
# A program with barriers under the kernel's own scheduler, PS-Sched-1 and PS-Sched-2, alternately, with and without noise.
#
#   sudo sh examples/ps-sched.sh PERCH [ROUNDS]
#
# PS-Sched-1 gets a thread fewer, as in the paper (R. E. Grant, A. Afsahi, 2009, table I): one PU is the operating
# system's. Medians of the rounds, and the lowest and highest, go to standard output as a table.
set -eu
here=$(dirname "$0")
perch=${1:?which perch? for example target/release/perch}
rounds=${2:-7}
barrier=${BARRIER:-$here/../target/examples/barrier}
threads=$(nproc)
lines=$(mktemp)
noise=
stop_noise() {
    if [ -n "$noise" ]; then
        kill "$noise" 2>/dev/null || :
        wait "$noise" 2>/dev/null || :
        noise=
    fi
}
trap 'stop_noise; rm -f "$lines"' EXIT
trap 'exit 130' INT TERM

# one NOISE POLICY THREADS
one() {
    case $2 in
        kernel) said=$(OMP_NUM_THREADS=$3 "$barrier") ;;
        *) said=$("$perch" run -q -p "$2" -- env OMP_NUM_THREADS="$3" "$barrier") ;;
    esac
    echo "$said" | sed "s/[{}\"]//g;s/[a-z0-9_]*://g;s/,/ /g;s/^/$1 $2 /" >>"$lines"
}

round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    for load in quiet noise; do
        if [ $load = noise ]; then
            setsid sh "$here/os-noise.sh" &
            noise=$!
        fi
        one $load kernel "$threads"
        if [ "$threads" -gt 1 ]; then
            one $load ps-sched-1 $((threads - 1))
        fi
        one $load ps-sched-2 "$threads"
        stop_noise
    done
    echo "round $round of $rounds" >&2
done
# Columns: load, policy, threads, seconds, median, 99th percentile and worst iteration in ms.
sort -k1,1r -k2,2 "$lines" | awk '
    function median(text,    a, n, i, j, t) {
        n = split(text, a, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        low = a[1]; high = a[n]
        return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    {
        key = $1 " " $2
        if (!(key in threads)) { order[++count] = key; threads[key] = $3 }
        seconds[key] = seconds[key] " " $4; mid[key] = mid[key] " " $5
        p99[key] = p99[key] " " $6; worst[key] = worst[key] " " $7
    }
    END {
        print "load   policy      threads  seconds (range)         iteration in ms: median    99 %   worst (range)"
        for (i = 1; i <= count; i++) {
            key = order[i]
            split(key, part, " ")
            s = median(seconds[key]); range = sprintf("(%.2f to %.2f)", low, high)
            m = median(mid[key]); q = median(p99[key]); w = median(worst[key])
            printf "%-6s %-11s %7d  %7.2f %-20s %21.2f %7.2f %7.1f (%.1f to %.1f)\n",
                part[1], part[2], threads[key], s, range, m, q, w, low, high
        }
    }'
