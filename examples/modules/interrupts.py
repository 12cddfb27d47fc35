#!/usr/bin/env python3
"""A monitoring module as a program: interrupts of the whole machine, and of each PU, from /proc/stat.

    perch stat --module ./interrupts.py -V interrupts -i 1s --for 5s

It reads one JSON object a line from standard input and answers `hello` and `sample` with one line each
(docs/modules.md). It ends when its input ends.
"""

import json
import sys


def read():
    """Interrupts since boot, and clock ticks that each PU has spent on interrupts since boot."""
    total, ticks = 0, {}
    with open("/proc/stat") as lines:
        for line in lines:
            words = line.split()
            if words[0] == "intr":
                total = int(words[1])
            elif words[0].startswith("cpu") and words[0] != "cpu":
                # irq and softirq (proc(5)).
                ticks[int(words[0][3:])] = int(words[6]) + int(words[7])
    return total, ticks


def answer(value):
    print(json.dumps(value), flush=True)


last = read()
for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "hello":
        answer({
            "protocol": 1,
            "name": "interrupts",
            "about": "interrupts, from /proc/stat",
            "metrics": [
                {"name": "interrupts", "scope": "machine", "kind": "amount",
                 "about": "interrupts of all devices and timers"},
                {"name": "interrupt_ticks", "scope": "pu", "kind": "amount",
                 "about": "clock ticks spent on interrupts"},
            ],
        })
    elif request["type"] == "sample":
        now = read()
        values = [{"name": "interrupts", "value": now[0] - last[0]}]
        for pu, ticks in now[1].items():
            # A PU that was switched on since begins with this interval.
            before = last[1].get(pu, ticks)
            values.append({"name": "interrupt_ticks", "pu": pu, "value": ticks - before})
        answer({"seq": request["seq"], "values": values})
        last = now
