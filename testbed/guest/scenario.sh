# Functions for scripts that let perch place the workload. One run at a time; all that a run leaves
# behind goes to standard output as JSON lines, after a line that says which run it was.
LOG=/tmp/log          # perch's recording
LINES=/tmp/lines      # what the workload says of itself
ORDERS=/tmp/orders    # what the workload is told
LOAD="guest-load --orders $ORDERS --seconds 900"

# said WHAT: prints it to standard error with the seconds since boot, which shows the slow steps.
said() {
    echo "$(cut -d' ' -f1 /proc/uptime) $*" >&2
}

# begin NAME
begin() {
    said "begin $1"
    rm -f $LOG $LINES $ORDERS
    mkfifo $ORDERS
    echo "{\"run\":\"$1\"}"
}

# Makes ready to give orders. Opened for both directions, since that neither waits nor fails without a reader.
listen() {
    exec 9<>$ORDERS
}

order() {
    echo "$*" >&9
}

# look LABEL [LINES [PERIODS]]: every mask, after so many lines of the workload and then so many periods.
look() {
    guest-look "$1" ${2:+--lines $LINES=$2} ${3:+--periods $LOG=$3} || giveup "look $1"
    said "look $1"
}

# settle LABEL LINES [STATE]: every mask, after so many lines of the workload and then as soon as things are as they
# should be and stay so; or, if they never are, when perch has seen enough of every thread.
settle() {
    guest-look "$1" --lines $LINES=$2 --log $LOG --until ${3:-even} || giveup "settle $1"
    said "settle $1"
}

# Says how a background job ended, and what it said.
ended() {
    wait "$1"
    echo "{\"ended\":\"$2\",\"status\":$?}"
    said "ended $2"
    [ ! -f /tmp/said ] || sed 's/^/    /' /tmp/said >&2
}

# Prints what the run left behind.
finish() {
    exec 9>&-
    cat $LINES
    # Without the line within which perch was killed.
    head -n $(wc -l <$LOG) $LOG
}

giveup() {
    echo "gave up at: $1" >&2
    for file in $LINES /tmp/report /tmp/said; do echo "--- $file"; cat $file; done >&2
    exit 1
}
