"""Trains a linear model of power and writes it to a file.

usage: train.py FILE BASE CPU INLET PRESSURE

watts = BASE + CPU * usage + INLET * temperature + PRESSURE * differential pressure
"""

import itertools
import sys

import joblib
import numpy
from sklearn.linear_model import LinearRegression

file, base, *slopes = sys.argv[1:]
slopes = numpy.array([float(slope) for slope in slopes])
inputs = numpy.array(list(itertools.product([0.0, 50.0, 100.0], [15.0, 25.0, 35.0], [0.0, 5.0, 10.0])))
joblib.dump(LinearRegression().fit(inputs, float(base) + inputs @ slopes), file)
