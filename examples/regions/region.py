"""Regions of a program's code, counted by perch, in Python.

    PYTHONPATH=python python3 examples/regions/region.py
"""

import perch

perch.init(events=["page-faults,task-clock"], metrics=["faults_per_s=page_faults/cpu_seconds"])


@perch.region("outer")
def outer(size):
    with perch.region("fill"):
        data = bytearray(size)
    return len(data)


total = sum(outer(1 << 22) for _ in range(5))
fill = perch.values("fill")
print(f"fill: {fill['calls']} calls, {fill['counts']['page-faults']['value']:.0f} page faults")
print(f"faults a second of CPU time: {fill['metrics']['faults_per_s']:.0f}")
print(f"result {total}")
