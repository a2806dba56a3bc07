"""Optuna's samplers on the problems of `cargo xtask bench hpo`: one line of CSV for each finished search.

The problems are those of tuner/oracle/benches/hpo/problems.rs, all minimised; some are in bench_hpo_kinds.py. Refuses nothing; what to run is said by the
arguments: sampler, first seed, number of seeds, problems, and `--trials N` to end every search earlier; `--tried` adds a
line for each search with noise, the lowest loss without noise of the trials so far. One more problem, `digits`,
trains a model with the program that FERROTUNE_DIGITS names (`cargo xtask bench digits`).
"""

import json
import math
import os
import random
import subprocess
import sys
import time
import warnings

import optuna

from bench_hpo_kinds import KINDS, choices, table

TRIALS = 100
COUNTED = (10, 25, 50, 100)


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


def choices6(trial):
    c = choices(trial, [6] * 6)
    own = sum(table(1, i, c[i], 0) for i in range(6))
    return own / 6 + sum(table(2, i, c[i], c[i + 1]) for i in range(5)) / 5


def pairs5(trial):
    c = choices(trial, [4, 7, 3, 5, 8])
    return sum(table(5, 5 * i + j, c[i], c[j]) for i in range(5) for j in range(i)) / 10


def load(counts, values, weights, room, most):
    weight = sum(count * each for count, each in zip(counts, weights))
    value = sum(count * each for count, each in zip(counts, values))
    return 1 + (weight - room) / room if weight > room else 1 - value / most


def knapsack(trial):
    counts = [trial.suggest_int(f"n{item}", 0, 5) for item in range(1, 9)]
    return load(counts, [9, 14, 5, 22, 11, 3, 17, 8], [4, 7, 3, 12, 5, 2, 10, 3], 60, 140)


def lorry(trial):
    boxes = {"small": 30, "middle": 20, "large": 12, "flat": 24}
    counts = [trial.suggest_int(name, 0, high, step=2) for name, high in boxes.items()]
    speed = trial.suggest_int("speed", 40, 100)
    return load(counts, [2, 5, 9, 3], [1, 2, 4, 1.5], 60, 144) + ((speed - 72) / 40) ** 2


def quadratic(trial):
    kind = trial.suggest_categorical("kind", ["a", "b", "c", "d", "e"])
    x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)
    n = trial.suggest_int("n", 0, 10)
    offset = {"a": 2.0, "b": 0.8, "c": 0.0, "d": 1.4, "e": 3.0}[kind]
    return 0.25 * (x - 1.5) ** 2 + 0.25 * (y + 2) ** 2 + 0.1 * (n - 6) ** 2 + offset


def log_float(trial, name, low, high):
    return math.log10(trial.suggest_float(name, low, high, log=True))


def network(trial):
    layers = trial.suggest_int("layers", 1, 4)
    loss = 0.04 * (layers - 2) ** 2
    for layer in range(1, layers + 1):
        units = math.log2(trial.suggest_int(f"units{layer}", 8, 512, log=True))
        loss += 0.012 * (units - 8 + layer) ** 2
    loss += 0.4 * (trial.suggest_float("dropout", 0.0, 0.6) - 0.05 - 0.05 * layers) ** 2
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"])
    if optimizer == "sgd":
        lr, momentum = log_float(trial, "sgd_lr", 1e-4, 1.0), trial.suggest_float("momentum", 0.0, 0.99)
        return loss + 0.02 + 0.05 * (lr + 1.3 + momentum) ** 2 + 0.1 * (momentum - 0.8) ** 2
    if optimizer == "adam":
        lr, gap = log_float(trial, "adam_lr", 1e-5, 1e-1), log_float(trial, "beta2_gap", 1e-4, 1e-1)
        return loss + 0.06 * (lr + 2.8) ** 2 + 0.01 * (gap + 2.6) ** 2
    lr, rho = log_float(trial, "rms_lr", 1e-5, 1e-1), trial.suggest_float("rho", 0.5, 0.99)
    return loss + 0.03 + 0.06 * (lr + 3.3) ** 2 + 0.2 * (rho - 0.9) ** 2


def pipeline(trial):
    raw = 0.12 if trial.suggest_categorical("scaler", ["none", "standard", "rank"]) == "none" else 0.0
    reducer = trial.suggest_categorical("reducer", ["none", "pca", "select"])
    if reducer == "pca":
        kept = 0.02 + 0.3 * (trial.suggest_float("kept_variance", 0.5, 0.999) - 0.93) ** 2
    elif reducer == "select":
        kept = 0.004 * (math.log2(trial.suggest_int("features", 2, 60, log=True)) - 4.3) ** 2
    else:
        kept = 0.05
    classifier = trial.suggest_categorical("classifier", ["knn", "logistic", "boosting", "mlp"])
    if classifier == "knn":
        neighbours = math.log2(trial.suggest_int("neighbours", 1, 100, log=True))
        uniform = trial.suggest_categorical("weights", ["uniform", "distance"]) == "uniform"
        return kept + 0.16 + raw + 0.01 * (neighbours - 3) ** 2 + (0.02 if uniform else 0.0)
    if classifier == "logistic":
        return kept + 0.12 + 0.5 * raw + 0.02 * (log_float(trial, "c", 1e-4, 1e3) + 0.4) ** 2
    if classifier == "boosting":
        lr = log_float(trial, "shrinkage", 1e-3, 1.0)
        rounds = math.log10(trial.suggest_int("rounds", 20, 2000, log=True))
        depth, share = trial.suggest_int("depth", 1, 12), trial.suggest_float("share", 0.1, 1.0)
        kept += 0.04 + 0.08 * (lr + rounds - 1.2) ** 2 + 0.02 * (lr + 1.6) ** 2
        return kept + 0.003 * (depth - 4) ** 2 + 0.08 * (share - 0.6) ** 2
    lr, units = log_float(trial, "lr", 1e-5, 1e-1), math.log2(trial.suggest_int("units", 8, 1024, log=True))
    return kept + 0.05 + raw + 0.05 * (lr + 2.6 + 0.1 * (units - 7)) ** 2 + 0.004 * (units - 7.5) ** 2


HARTMANN3_P = [[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]


def hartmann3(x):
    rows = zip([1.0, 1.2, 3.0, 3.2], [[3, 10, 30], [0.1, 10, 35]] * 2, HARTMANN3_P)
    return -sum(w * math.exp(-sum(a * (v - 1e-4 * p) ** 2 for v, a, p in zip(x, a, p))) for w, a, p in rows)


def dixon_price(x):
    return (x[0] - 1) ** 2 + sum((i + 2) * (2 * b * b - a) ** 2 for i, (a, b) in enumerate(zip(x, x[1:])))


def zdt1(trial):
    x = [trial.suggest_float(f"x{i + 1}", 0, 1) for i in range(6)]
    g = 1 + 9 * sum(x[1:]) / 5
    return x[0], g * (1 - math.sqrt(x[0] / g))


def size(trial):
    kind = trial.suggest_categorical("kind", ["dense", "sparse", "shared"])
    layers, units = trial.suggest_int("layers", 1, 8), math.log2(trial.suggest_int("units", 4, 512, log=True))
    rate, dropout = trial.suggest_float("rate", -5, -1), trial.suggest_float("dropout", 0.0, 0.8)
    cost, gain = {"dense": (1.0, 1.0), "sparse": (0.6, 0.85), "shared": (0.3, 0.6)}[kind]
    capacity = gain * (0.5 * math.log(layers) + 0.35 * units)
    error = 0.05 + math.exp(-0.8 * capacity) + 0.08 * (rate + 3) ** 2 + 0.5 * (dropout - 0.2) ** 2
    return min(error, 1.0), min(cost * math.log(layers * 2**units) / 8.5, 1.0)


def dtlz2(trial):
    x = [trial.suggest_float(f"x{i + 1}", 0, 1) for i in range(5)]
    radius, angle = 1 + sum((v - 0.5) ** 2 for v in x[1:]), x[0] * math.pi / 2
    return radius * math.cos(angle), radius * math.sin(angle)


def schaffer(trial):
    x = [trial.suggest_float(f"x{i + 1}", -4, 6) for i in range(4)]
    return sum(v * v for v in x) / 2, sum((v - 2) ** 2 for v in x) / 2


def hypervolume(points, bound):
    """The area between the points and the bound, of two losses."""
    area, lowest = 0.0, bound[1]
    for first, second in sorted(points):
        if first < bound[0] and second < lowest:
            area += (bound[0] - first) * (lowest - second)
            lowest = second
    return area


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
    "choices6": choices6,
    "knapsack": knapsack,
    "quadratic": quadratic,
    "network": network,
    "hartmann3n": box(hartmann3, [(0, 1)] * 3),
    "pairs5": pairs5,
    "lorry": lorry,
    "pipeline": pipeline,
    "dixonprice5": box(dixon_price, [(-10, 10)] * 5),
    "branin_n": box(branin, [(-5, 10), (0, 15)]),
    **KINDS,
}
# Problems with two losses, and the bounds of their hypervolumes.
FRONTS = {
    "zdt1": (zdt1, (1.1, 6)),
    "size": (size, (1, 1)),
    "dtlz2": (dtlz2, (2, 2)),
    "schaffer": (schaffer, (20, 20)),
}
# Standard deviations of the noise that is added to losses.
NOISY = {"hartmann3n": 0.1, "branin_n": 2.0, "bowl4n": 0.5, "recipe5n": 0.02, "dials3n": 0.1, "teams4n": 0.1}

SAMPLERS = {
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "optuna-cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "optuna-nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
}


def search(sampler, problem, seed, trials, tells_tried):
    """Writes the best loss after some numbers of trials: that without noise of the trial that looks best."""
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
    noise, losses = random.Random(seed), []

    def objective(trial):
        losses.append(PROBLEMS[problem](trial))
        return losses[-1] + (noise.gauss(0, NOISY[problem]) if problem in NOISY else 0.0)

    started = time.perf_counter()
    study.optimize(objective, n_trials=trials)
    milliseconds = (time.perf_counter() - started) * 1000 / trials
    values = [trial.value for trial in study.trials]
    best = [losses[min(range(count), key=values.__getitem__)] for count in COUNTED if count <= trials]
    print(f"{sampler},{problem},{seed},{','.join(map(repr, best))},{milliseconds:.3f}", flush=True)
    if tells_tried and problem in NOISY:
        tried = [min(losses[:count]) for count in COUNTED if count <= trials]
        print(f"{sampler},{problem} tried,{seed},{','.join(map(repr, tried))},{milliseconds:.3f}", flush=True)


def search_front(sampler, problem, seed, trials):
    """Writes the hypervolume after some numbers of trials, with a minus, so that low is good."""
    objective, bound = FRONTS[problem]
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), directions=["minimize"] * 2)
    started = time.perf_counter()
    study.optimize(objective, n_trials=trials)
    milliseconds = (time.perf_counter() - started) * 1000 / trials
    points = [tuple(trial.values) for trial in study.trials]
    areas = [-hypervolume(points[:count], bound) for count in COUNTED if count <= trials]
    print(f"{sampler},{problem},{seed},{','.join(map(repr, areas))},{milliseconds:.3f}", flush=True)


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    words, trials = sys.argv[1:], TRIALS
    if "--trials" in words:
        place = words.index("--trials")
        trials = int(words[place + 1])
        del words[place : place + 2]
    tells_tried = "--tried" in words
    sampler, first, count, *problems = (word for word in words if word != "--tried")
    for seed in range(int(first), int(first) + int(count)):
        for problem in problems or PROBLEMS:
            if problem == "digits":
                digits(sampler, seed)
            elif problem in FRONTS:
                search_front(sampler, problem, seed, trials)
            else:
                search(sampler, problem, seed, trials, tells_tried)


if __name__ == "__main__":
    main()
