"""Collatz sequences: integers in an interpreter. Usage: integers.py LIMIT"""

import sys

longest = 0
for start in range(1, int(sys.argv[1])):
    n, steps = start, 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    longest = max(longest, steps)
print(longest)
