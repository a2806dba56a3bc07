"""Optuna's samplers and pruners on the problems of tuner/benches/curves: one line of CSV for each finished search.

The budget is counted in epochs, as there: after the epochs of 10, 25, 50 and 100 whole trainings, the true final loss of
the best finished trial, or of that which has trained longest. Refuses nothing; the arguments say what to run: a sampler
and a pruner with `+` between them, the first seed, the number of seeds, the problems (all if none is named).
"""

import math
import pathlib
import random
import sys
import time
import warnings

import optuna

EPOCHS = 27
COUNTED = (10, 25, 50, 100)
TABLES = sorted(path.stem for path in (pathlib.Path(__file__).parent / "curves").glob("*.csv"))


def last_of(lr, width, decay, dropout, is_adam):
    optimum = 0.35 if is_adam else 0.6
    valley = 1.2 * (lr - optimum) ** 2 + 0.5 * (width - 0.7) ** 2
    rest = 0.4 * (decay - 0.3 - 0.4 * lr) ** 2 + 0.3 * (dropout - 0.25) ** 2
    ripples = sum(0.03 * (1 - math.cos(18 * distance)) for distance in (lr - optimum, width - 0.7))
    return 0.05 + valley + rest + ripples + (0.0 if is_adam else 0.03)


def crossing(lr, width, last, share):
    speed = math.exp(0.3 + 3.5 * lr - 1.2 * width)
    return last + max(1 - last, 0.05) * (1 - (1 - math.exp(-speed * share)) / (1 - math.exp(-speed)))


def alike(lr, width, last, share):
    speed = 3 + lr
    return last + max(1 - last, 0.05) * (math.exp(-speed * share) - math.exp(-speed))


def late(lr, width, last, share):
    wakes = 0.1 + 0.45 * width + 0.2 * (1 - lr)

    def fallen(share):
        return 1 / (1 + math.exp(-(share - wakes) / 0.05))

    return last + max(1 - last, 0.05) * (fallen(1) - fallen(share))


MADE = {"crossing": (crossing, 0.0), "noisy": (alike, 0.03), "late": (late, 0.0)}


def made(name):
    curve, noise = MADE[name]

    def curve_of(trial):
        lr, width, decay, dropout = (trial.suggest_float(name, 0, 1) for name in ("lr", "width", "decay", "dropout"))
        is_adam = trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "adam"
        last = last_of(lr, width, decay, dropout, is_adam)
        return [curve(lr, width, last, (epoch + 1) / EPOCHS) for epoch in range(EPOCHS)]

    return curve_of, noise


def table(name):
    header, *lines = (pathlib.Path(__file__).parent / "curves" / f"{name}.csv").read_text().splitlines()
    levels = {parameter: int(count) for parameter, count in (word.split(":") for word in header.split(","))}
    curves = [[float(value) for value in line.split(",")[len(levels) :]] for line in lines]

    def curve_of(trial):
        index = 0
        for parameter, count in levels.items():
            index = index * count + trial.suggest_int(parameter, 0, count - 1)
        return curves[index]

    return curve_of, 0.0


SAMPLERS = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}
PRUNERS = {
    "none": lambda: optuna.pruners.NopPruner(),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3),
    "median": lambda: optuna.pruners.MedianPruner(),
    "wilcoxon": lambda: optuna.pruners.WilcoxonPruner(),
}


class Spent(Exception):
    """The epochs of the last count are spent."""


class Search:
    def __init__(self, problem, seed):
        self.curve_of, self.noise = made(problem) if problem in MADE else table(problem)
        self.random = random.Random(seed)
        self.epochs, self.losses, self.runs = 0, [], []

    def __call__(self, trial):
        curve = self.curve_of(trial)
        # Epochs, last value, and true final loss; and whether it has finished.
        run = {"epochs": 0, "value": math.inf, "last": curve[-1]}
        self.runs.append(run)
        for epoch, loss in enumerate(curve):
            run["value"], run["epochs"] = loss + self.random.gauss(0, self.noise) if self.noise else loss, epoch + 1
            trial.report(run["value"], epoch)
            self.epochs += 1
            if self.epochs >= COUNTED[len(self.losses)] * EPOCHS:
                self.losses.append(self.incumbent())
                if len(self.losses) == len(COUNTED):
                    raise Spent
            if epoch + 1 < EPOCHS and trial.should_prune():
                raise optuna.TrialPruned
        return run["value"]

    def incumbent(self):
        return min(self.runs, key=lambda run: (-run["epochs"], run["value"]))["last"]


def search(name, problem, seed):
    sampler, pruner = name.split("+")
    search = Search(problem, seed)
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), pruner=PRUNERS[pruner]())
    started = time.perf_counter()
    try:
        study.optimize(search)
    except Spent:
        pass
    milliseconds = (time.perf_counter() - started) * 1000 / len(search.runs)
    losses = ",".join(map(repr, search.losses))
    print(f"optuna-{name},{problem},{seed},{losses},0,{milliseconds:.3f},{len(search.runs)}", flush=True)


def main():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    warnings.simplefilter("ignore")
    name, first, count, *problems = sys.argv[1:]
    for problem in problems or [*MADE, *TABLES]:
        for seed in range(int(first), int(first) + int(count)):
            search(name, problem, seed)


if __name__ == "__main__":
    main()
