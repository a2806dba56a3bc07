"""Optuna's samplers on the problems of `cargo xtask bench hpo`: one line of CSV for each finished search.

The problems are those of tuner/benches/hpo/problems.rs, all minimised and without noise. Refuses nothing; what to run
is said by the arguments: sampler, first seed, number of seeds, problems. One more, `digits`, trains a model with the
program that FERROTUNE_DIGITS names (`cargo xtask bench digits`).
"""

import json
import math
import os
import subprocess
import sys
import time
import warnings

import optuna

TRIALS = 100
COUNTED = (25, 50, 100)


def branin(x):
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x[1] - b * x[0] ** 2 + c * x[0] - 6) ** 2 + 10 * (1 - t) * math.cos(x[0]) + 10


HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [
    [1312, 1696, 5569, 124, 8283, 5886],
    [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650],
    [4047, 8828, 8732, 5743, 1091, 381],
]


def hartmann6(x):
    rows = zip([1.0, 1.2, 3.0, 3.2], HARTMANN_A, HARTMANN_P)
    return -sum(w * math.exp(-sum(a * (v - 1e-4 * p) ** 2 for v, a, p in zip(x, a, p))) for w, a, p in rows)


def ackley(x):
    d = len(x)
    distance = math.sqrt(sum(v * v for v in x) / d)
    return 20 + math.e - 20 * math.exp(-0.2 * distance) - math.exp(sum(math.cos(2 * math.pi * v) for v in x) / d)


def rosenbrock(x):
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def levy(x):
    w = [1 + (v - 1) / 4 for v in x]
    inner = sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    return math.sin(math.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)


def mixed(trial):
    lr = math.log10(trial.suggest_float("lr", 1e-5, 1e-1, log=True))
    decay = math.log10(trial.suggest_float("wd", 1e-6, 1e-2, log=True))
    layers = trial.suggest_int("layers", 1, 6)
    act = trial.suggest_categorical("act", ["relu", "gelu", "tanh", "silu"])
    depth = {"relu": 3, "gelu": 4, "tanh": 2, "silu": 5}[act]
    offset = {"relu": 0.10, "gelu": 0.0, "tanh": 0.40, "silu": 0.05}[act]
    loss = 0.15 * (decay + 3.2 - 0.3 * (layers - 3)) ** 2 + 0.10 * (layers - depth) ** 2 + offset
    if trial.suggest_categorical("opt", ["sgd", "adam"]) == "sgd":
        momentum = trial.suggest_float("momentum", 0.0, 0.99)
        loss += 0.15 + 0.5 * (lr + 1.5) ** 2 + 3.0 * (momentum - 0.9) ** 2
    else:
        omb2 = math.log10(trial.suggest_float("omb2", 1e-4, 1e-1, log=True))
        loss += 0.5 * (lr + 3.4) ** 2 + 0.3 * (omb2 + 1.8) ** 2
    return loss + 0.05 * (1 - math.cos(4 * math.pi * (lr + 3.4)))


def griewank(x):
    return 1 + sum(v * v for v in x) / 4000 - math.prod(math.cos(v / math.sqrt(i + 1)) for i, v in enumerate(x))


def michalewicz(x):
    return -sum(math.sin(v) * math.sin((i + 1) * v * v / math.pi) ** 20 for i, v in enumerate(x))


def rastrigin(x):
    return sum(v * v - 10 * math.cos(2 * math.pi * v) + 10 for v in x)


SHEKEL_C = [[4, 4, 4, 4], [1, 1, 1, 1], [8, 8, 8, 8], [6, 6, 6, 6], [3, 7, 3, 7]] + [
    [2, 9, 2, 9], [5, 3, 5, 3], [8, 1, 8, 1], [6, 2, 6, 2], [7, 3.6, 7, 3.6],
]
SHEKEL_B = [0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5]


def shekel(x):
    return -sum(1 / (b + sum((v - c) ** 2 for v, c in zip(x, row))) for b, row in zip(SHEKEL_B, SHEKEL_C))


def styblinski_tang(x):
    return sum(v**4 - 16 * v * v + 5 * v for v in x) / 2


def models(trial):
    model = trial.suggest_categorical("model", ["linear", "svm", "forest"])
    scaled = trial.suggest_categorical("scaled", [False, True])
    if model == "linear":
        alpha = math.log10(trial.suggest_float("alpha", 1e-6, 1e1, log=True))
        return 0.30 + 0.05 * (alpha + 2) ** 2 + (0.0 if scaled else 0.05)
    if model == "svm":
        c = math.log10(trial.suggest_float("c", 1e-3, 1e3, log=True))
        gamma = math.log10(trial.suggest_float("gamma", 1e-5, 1e1, log=True))
        kernel = trial.suggest_categorical("kernel", ["poly", "rbf"])
        valley = 0.08 * (c - 1.2 + 0.4 * (gamma + 1.7)) ** 2 + 0.05 * (gamma + 1.7) ** 2
        return valley + (0.12 if kernel == "poly" else 0.0) + (0.0 if scaled else 0.1)
    trees = math.log10(trial.suggest_int("trees", 10, 1000, log=True))
    depth = trial.suggest_int("depth", 1, 32)
    features = trial.suggest_float("features", 0.05, 1.0, step=0.05)
    return 0.06 + 0.1 * (trees - 2.5) ** 2 + 0.0015 * (depth - 14) ** 2 + 0.5 * (features - 0.35) ** 2


class Digits:
    """Real training, with the same program as for our oracles; one process for each search."""

    def __init__(self, seed):
        command = [os.environ["FERROTUNE_DIGITS"], "train", str(seed)]
        self.trainer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, trial):
        setting = {
            "units": trial.suggest_int("units", 8, 128, log=True),
            "layers": trial.suggest_int("layers", 1, 3),
            "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
            "batch": trial.suggest_categorical("batch", [16, 32, 64, 128]),
        }
        if trial.suggest_categorical("optimizer", ["adamw", "sgd"]) == "adamw":
            setting["decay"] = trial.suggest_float("decay", 1e-4, 1.0, log=True)
        print(json.dumps(setting), file=self.trainer.stdin, flush=True)
        return float(self.trainer.stdout.readline())


def digits(sampler, seed):
    """A search of the digits; its lines have the best loss after 10, 20 and 40 trials."""
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
    study.optimize(Digits(seed), n_trials=40)
    values = [trial.value for trial in study.trials]
    print(f"{sampler},digits,{seed},{','.join(repr(min(values[:count])) for count in (10, 20, 40))}", flush=True)


def box(function, bounds):
    def objective(trial):
        return function([trial.suggest_float(f"x{i + 1}", *bound) for i, bound in enumerate(bounds)])

    return objective


PROBLEMS = {
    "branin": box(branin, [(-5, 10), (0, 15)]),
    "hartmann6": box(hartmann6, [(0, 1)] * 6),
    "ackley5": box(ackley, [(-15, 30)] * 5),
    "rosenbrock4": box(rosenbrock, [(-5, 10)] * 4),
    "levy8": box(levy, [(-10, 10)] * 8),
    "mixed": mixed,
    "griewank5": box(griewank, [(-300, 600)] * 5),
    "michalewicz5": box(michalewicz, [(0, math.pi)] * 5),
    "rastrigin4": box(rastrigin, [(-4, 6)] * 4),
    "shekel4": box(shekel, [(0, 10)] * 4),
    "styblinski6": box(styblinski_tang, [(-5, 5)] * 6),
    "models": models,
}

SAMPLERS = {
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "optuna-cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
}


def search(sampler, problem, seed):
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
    started = time.perf_counter()
    study.optimize(PROBLEMS[problem], n_trials=TRIALS)
    milliseconds = (time.perf_counter() - started) * 1000 / TRIALS
    values = [trial.value for trial in study.trials]
    best = ",".join(repr(min(values[:count])) for count in COUNTED)
    print(f"{sampler},{problem},{seed},{best},{milliseconds:.3f}", flush=True)


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    sampler, first, count, *problems = sys.argv[1:]
    for seed in range(int(first), int(first) + int(count)):
        for problem in problems or PROBLEMS:
            digits(sampler, seed) if problem == "digits" else search(sampler, problem, seed)


if __name__ == "__main__":
    main()
