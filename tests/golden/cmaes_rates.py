"""Constants of CMA-ES for 5 dimensions and a population of 8, as cmaes 0.13 (PyPI) has them."""

import numpy
from cmaes import CMA

optimizer = CMA(mean=numpy.zeros(5), sigma=1.0, population_size=8)
for name in ["_mu_eff", "_c1", "_cmu", "_cc", "_c_sigma", "_d_sigma", "_weights"]:
    print(name, repr(getattr(optimizer, name)))
