#!/bin/sh
# What else runs on a server, until it is stopped: bursts as of cron, a daemon that wakes up often and starts a process
# each time, as sshd does under a scan, and a package index that is read anew every few seconds.
trap 'trap - TERM; kill 0' TERM INT
( while :; do sleep 1; head -c 8000000 /dev/urandom | gzip >/dev/null; done ) &
( while :; do sleep 0.02; done ) &
( while :; do apt-cache dumpavail 2>/dev/null | sort | md5sum >/dev/null; sleep 4; done ) &
wait
