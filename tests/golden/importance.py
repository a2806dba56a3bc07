"""Importances of the parameters of 120 trials by the PED-ANOVA of Optuna 5.0, which a test of tuner/oracle/src/importance.rs makes alike."""

import math

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

optuna.logging.set_verbosity(optuna.logging.ERROR)


def unit(k, root):
    return (k + 1) * math.sqrt(root) % 1


def trial(k):
    x, lr = -5 + 10 * unit(k, 2), math.exp(math.log(1e-4) * (1 - unit(k, 3)))
    units, depth = 16 + 16 * int(unit(k, 5) * 8), 1 + int(unit(k, 7) * 30)
    kind = "abc"[int(unit(k, 11) * 3)]
    drop = int(unit(k, 13) * 6) / 10
    offset = {"a": 1, "b": 4 * drop, "c": 5}[kind]
    value = x * x / 4 + (math.log(lr) + 4) ** 2 / 2 + abs(units - 64) / 64 + depth / 30 + offset
    params = {"x": x, "lr": lr, "units": units, "depth": depth, "kind": kind}
    distributions = {
        "x": FloatDistribution(-5, 5),
        "lr": FloatDistribution(1e-4, 1, log=True),
        "units": IntDistribution(16, 128, step=16),
        "depth": IntDistribution(1, 30, log=True),
        "kind": CategoricalDistribution(["a", "b", "c"]),
    }
    if kind == "b":
        params["drop"] = drop
        distributions["drop"] = FloatDistribution(0, 0.5, step=0.1)
    return optuna.trial.create_trial(params=params, distributions=distributions, value=value)


study = optuna.create_study()
study.add_trials([trial(k) for k in range(120)])
evaluator = optuna.importance.PedAnovaImportanceEvaluator()
for name, share in optuna.importance.get_param_importances(study, evaluator=evaluator).items():
    print(name, repr(share))
