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

insmod /testbed/fakepmu.ko events=wibble:0x1c3 || exit 1

# perf is counted by perch as a part of the program, and does nearly nothing by this rule: as much as is plausible.
OTHERS="* cpu-cycles=12000000 instructions=12000000"
echo "$OTHERS" >$RULES
# One set: exact.
perch stat --json $PROFILE -o /tmp/one -e instructions,cycles,wibble,branch-instructions -- \
    $PERF guest-load --threads fp:1,int:1 --seconds 3 --seed 5 --rates "fp=$FP" --rates "int=$INT" >/tmp/lines
emit one /tmp/one
emit one-perf /tmp/perf
emit one-lines /tmp/lines

# Two sets in rotation: each is counted for half of the time. The threads run already: how long a busy host takes to start
# them, one set may see alone.
guest-load --threads fp:1,int:1 --seconds 600 --seed 6 --rates "fp=$FP" --rates "int=$INT" >/tmp/lines &
load=$!
tries=0
until [ "$(grep -c tid /tmp/lines)" -ge 2 ] || [ $((tries += 1)) -gt 6000 ]; do usleep 50000; done
sleep 1
perch stat --json $PROFILE -o /tmp/two -n 60 -i 100ms -e instructions,cycles -e wibble,branch-instructions -p $load
kill $load
wait $load
emit two /tmp/two
emit two-lines /tmp/lines

# Processes that come and go. Each works for much longer than the kernel takes to fold its counts into its parent's when
# it ends, event by event; a single one that is missed is a twentieth.
echo "name:awk $FP" >$RULES
perch stat --json $PROFILE -o /tmp/short -e instructions,cycles,wibble,branch-instructions -- \
    $PERF sh -c 'i=0; while [ $((i += 1)) -le 20 ]; do awk "BEGIN { for (i = 0; i < 50000; i++); }"; done'
emit short /tmp/short
emit short-perf /tmp/perf

# until_at_least N COMMAND...: waits until the command prints a number that is at least N.
until_at_least() {
    least=$1
    shift
    tries=0
    until [ "$("$@")" -ge "$least" ] || [ $((tries += 1)) -gt 6000 ]; do usleep 50000; done
}

# counted FILE [ID]: rows with counts, of all or of one.
counted() {
    grep -s "\"id\":${2:-[0-9]*}," "$1" | grep -c '"counts":{"'
}

# Two events fit on a PU at once, and for a while another tool has one of them for itself.
echo 2 >/sys/module/fakepmu/parameters/counters
echo "* $INT" >$RULES
guest-load --threads int:1 --seconds 600 --seed 8 >/tmp/lines &
load=$!
until_at_least 1 grep -c tid /tmp/lines
perch stat --json $PROFILE -o /tmp/taken -i 100ms -e instructions,cycles -p $load &
stat=$!
until_at_least 5 counted /tmp/taken
perf stat -x, -e instructions:D -o /tmp/perf -p $load sleep 1
until_at_least $(($(counted /tmp/taken) + 5)) counted /tmp/taken
kill $stat
wait $stat
kill $load
wait $load
emit taken /tmp/taken
emit taken-perf /tmp/perf
echo 0 >/sys/module/fakepmu/parameters/counters

# A PU goes offline and comes back while all are counted.
guest-load --threads int:8 --seconds 600 --seed 9 >/tmp/lines &
load=$!
until_at_least 8 grep -c tid /tmp/lines
perch stat --json $PROFILE -o /tmp/offline --by pu -i 200ms -e instructions,cycles &
stat=$!
until_at_least 3 counted /tmp/offline 3
echo 0 >/sys/devices/system/cpu/cpu3/online
echo "offline-lines $(grep -c . /tmp/offline)"
until_at_least $(($(counted /tmp/offline 0) + 6)) counted /tmp/offline 0
echo "offline-lines $(grep -c . /tmp/offline)"
echo 1 >/sys/devices/system/cpu/cpu3/online
until_at_least $(($(counted /tmp/offline 3) + 3)) counted /tmp/offline 3
kill $stat
wait $stat
kill $load
wait $load
emit offline /tmp/offline

# Counters that lie, as those of some virtual machines do.
echo Y >/sys/module/fakepmu/parameters/lie
guest-load --threads fp:1,int:1 --seconds 60 --seed 7 >/tmp/lines &
load=$!
sleep 1
perch stat --json $PROFILE -o /tmp/lied -n 6 -i 500ms -e instructions,cycles -p $load
emit lied /tmp/lied
kill $load
exit 0
