# `perch stat` in a guest with the stand-in PMU, beside the kernel's own perf. Each result is printed as lines that begin
# with its name.
PROFILE="--profile /root/any.toml"
RULES=/sys/module/fakepmu/parameters/rules
FP="cpu-cycles=2000000000 instructions=1500000000 wibble=700000000 branch-instructions=90000000"
INT="cpu-cycles=2000000000 instructions=3000000000 wibble=123 branch-instructions=400000000"
PERF="perf stat -x, -e instructions,cycles,cpu/wibble/,branch-instructions -o /tmp/perf"

# emit NAME FILE
emit() {
    sed "s/^/$1 /" "$2"
}

# await FILE LINES: until the file has so many lines.
await() {
    tries=0
    until [ -f "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; do
        [ $((tries += 1)) -lt 3000 ] || { echo "$1 never had $2 lines" >&2; exit 1; }
        sleep 0.1
    done
}

insmod /testbed/fakepmu.ko events=wibble:0x1c3 || exit 1

# perf is counted as a part of the program, but no rule says that it does anything.
# One set: exact.
perch stat --json $PROFILE -o /tmp/one -e instructions,cycles,wibble,branch-instructions -- \
    $PERF guest-load --threads fp:1,int:1 --seconds 3 --seed 5 --rates "fp=$FP" --rates "int=$INT" >/tmp/lines
emit one /tmp/one
emit one-perf /tmp/perf
emit one-lines /tmp/lines

# Two sets in rotation: each is counted for half of the time.
perch stat --json $PROFILE -o /tmp/two -i 100ms -e instructions,cycles -e wibble,branch-instructions -- \
    $PERF guest-load --threads fp:1,int:1 --seconds 6 --seed 6 --rates "fp=$FP" --rates "int=$INT" >/tmp/lines
emit two /tmp/two
emit two-perf /tmp/perf

# Programs of a few milliseconds, each its own process.
echo "name:true $FP" >$RULES
perch stat --json $PROFILE -o /tmp/short -e instructions,cycles,wibble,branch-instructions -- \
    $PERF sh -c 'i=0; while [ $((i += 1)) -le 60 ]; do /bin/true; done'
emit short /tmp/short
emit short-perf /tmp/perf
echo clear >$RULES

# A change of phase in mid-run: the threads' rates change from one moment to the next.
guest-load --threads fp:1,int:1 --seconds 900 --seed 7 --rates "fp=$FP" --rates "int=$INT" >/tmp/lines &
load=$!
await /tmp/lines 2
tids=$(sed 's/.*"tid":\([0-9]*\).*/\1/' /tmp/lines)
perch stat --json $PROFILE -o /tmp/phases -i 200ms -e instructions,cycles,wibble -e instructions,cycles,branch-instructions \
    --complete-rounds -p $load &
perch=$!
await /tmp/phases 40
for tid in $tids; do echo "tid:$tid cpu-cycles=2000000000 instructions=500000000 wibble=1000000" >$RULES; done
await /tmp/phases 80
kill -INT $perch
wait $perch
echo "phases-status $?"
emit phases /tmp/phases
emit phases-lines /tmp/lines

# A PU goes offline in mid-run, and comes back.
perch stat --json $PROFILE -o /tmp/offline -i 200ms -e instructions,cycles --by pu &
perch=$!
await /tmp/offline 20
echo 0 >/sys/devices/system/cpu/cpu3/online
await /tmp/offline 40
echo 1 >/sys/devices/system/cpu/cpu3/online
await /tmp/offline 60
kill -INT $perch
wait $perch
echo "offline-status $?"
emit offline /tmp/offline

# Counters that lie, as those of some virtual machines do.
echo Y >/sys/module/fakepmu/parameters/lie
perch stat --json $PROFILE -o /tmp/lied -n 6 -i 500ms -e instructions,cycles -p $load
emit lied /tmp/lied
kill $load
exit 0
