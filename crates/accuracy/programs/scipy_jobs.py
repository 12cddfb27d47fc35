"""SciPy at work until it is stopped. usage: scipy_jobs.py ode|filter"""

import sys

import numpy
from scipy import integrate, signal


def ode():
    def slope(t, y):
        return [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]

    while True:
        integrate.solve_ivp(slope, (0, 20), [1.0, 1.0, 1.0], rtol=1e-8)


def filter_noise():
    noise = numpy.random.default_rng(1).normal(size=200_000)
    sections = signal.butter(8, 0.2, output="sos")
    while True:
        signal.sosfilt(sections, noise)
        signal.medfilt(noise[:20_000], 5)


{"ode": ode, "filter": filter_noise}[sys.argv[1]]()
