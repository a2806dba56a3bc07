"""Hypervolumes of points that the test of tuner/oracle/src/analysis/hypervolume.rs makes by the same rule, by Optuna 5.0."""

import numpy
from optuna._hypervolume import compute_hypervolume

for dimensions in [2, 3, 4]:
    points = [[(k + 1) * factor % 101 / 101 for factor in [37, 53, 71, 29][:dimensions]] for k in range(60)]
    inside = numpy.array([point for point in points if all(x < 0.9 for x in point)])
    print(dimensions, repr(compute_hypervolume(inside, numpy.full(dimensions, 0.9))))
