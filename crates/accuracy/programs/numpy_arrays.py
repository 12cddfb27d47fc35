"""Array computations by NumPy. Usage: numpy_arrays.py matmul|fft|elementwise SECONDS"""

import sys
import time

import numpy as np

random = np.random.default_rng(1)
square = random.random((300, 300))
line = random.random(1 << 15)

computations = {
    "matmul": lambda: square @ square,
    "fft": lambda: np.fft.fft(line),
    "elementwise": lambda: np.sqrt(line * 2.5 + 1.0) / (line + 0.5),
}
compute = computations[sys.argv[1]]
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    compute()
