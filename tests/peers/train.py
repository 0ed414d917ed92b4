"""Trains a linear model of power and writes it to a file.

usage: train.py FILE BASE CPU INLET PRESSURE CPU_INLET

watts = BASE + CPU * usage + INLET * temperature + PRESSURE * differential pressure + CPU_INLET * usage * temperature
"""

import itertools
import sys

import joblib
import numpy
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

file, base, *slopes, cpu_inlet = sys.argv[1:]
slopes = numpy.array([float(slope) for slope in slopes])
inputs = numpy.array(list(itertools.product([0.0, 50.0, 100.0], [15.0, 25.0, 35.0], [0.0, 5.0, 10.0])))
watts = float(base) + inputs @ slopes + float(cpu_inlet) * inputs[:, 0] * inputs[:, 1]
model = make_pipeline(PolynomialFeatures(degree=2, interaction_only=True), LinearRegression())
joblib.dump(model.fit(inputs, watts), file)
