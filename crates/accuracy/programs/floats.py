"""Horner's scheme on floats in an interpreter. Usage: floats.py TIMES"""

import sys

coefficients = [1.0 / n for n in range(1, 20)]
total = 0.0
for i in range(int(sys.argv[1])):
    x = i * 1e-7
    value = 0.0
    for c in coefficients:
        value = value * x + c
    total += value
print(total)
