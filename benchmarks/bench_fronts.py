"""Searches with three losses, and with constraints, in Optuna: its own samplers, and Ferrotune's oracles as samplers.

`bench_fronts.py SEED COUNT [SAMPLER…]` prints a row for each problem and sampler: the median hypervolume of the trials that keep the
constraints, after 25, 50 and 100 trials, with a minus, so that low is good.
"""

import math
import pathlib
import statistics
import sys
import time

import numpy as np
import optuna
from optuna._hypervolume import compute_hypervolume

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
from ferrotune.optuna import AutoSampler  # noqa: E402

COUNTED = (25, 50, 100)


def vector(trial, size, low=0.0, high=1.0):
    return [trial.suggest_float(f"x{index}", low, high) for index in range(size)]


def on_sphere(x, losses):
    """The first losses of DTLZ2 (Deb et al. 2002)."""
    radius = 1 + sum((v - 0.5) ** 2 for v in x[losses - 1 :])
    angles = [v * math.pi / 2 for v in x[: losses - 1]]
    values = [radius * math.prod(map(math.cos, angles[: losses - 1 - index])) for index in range(losses)]
    return [value * (math.sin(angles[losses - 1 - index]) if index else 1) for index, value in enumerate(values)]


def dtlz2(trial):
    return on_sphere(vector(trial, 7), 3)


def dtlz7(trial):
    """Deb et al. 2002: four separate parts of a front."""
    x = vector(trial, 6)
    g = 1 + 9 / 4 * sum(x[2:])
    return [x[0], x[1], (1 + g) * (3 - sum(v / (1 + g) * (1 + math.sin(3 * math.pi * v)) for v in x[:2]))]


def crash(trial):
    """The design of a car's front for mass, acceleration and intrusion (Liao et al. 2008), each loss from about 0 to 1."""
    a, b, c, d, e = vector(trial, 5, 1.0, 3.0)
    mass = 1640.2823 + 2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e
    acceleration = (
        6.5856 + 1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d - 0.3695 * a * d + 0.0861 * a * e + 0.3628 * b * d
        - 0.1106 * a**2 - 0.3437 * c**2 + 0.1764 * d**2
    )
    intrusion = (
        -0.0551 + 0.0181 * a + 0.1024 * b + 0.0421 * c - 0.0073 * a * b + 0.024 * b * c - 0.0118 * b * d - 0.0204 * c * d
        - 0.008 * c * e - 0.0241 * b**2 + 0.0109 * d**2
    )
    return [(mass - 1661) / 40, (acceleration - 6) / 6, intrusion / 0.27]


def c2_dtlz2(trial):
    """Jain and Deb 2014: DTLZ2, of whose front only small parts around its corners and its middle keep the constraint."""
    losses, r = on_sphere(vector(trial, 7), 3), 0.4
    corners = min((f - 1) ** 2 + sum(o * o for o in losses) - f * f - r * r for f in losses)
    middle = sum((f - 1 / math.sqrt(3)) ** 2 for f in losses) - r * r
    trial.set_constraint("part", min(corners, middle))
    return losses


def binh_korn(trial):
    """Binh and Korn 1997: two losses and two constraints."""
    x, y = trial.suggest_float("x", 0, 5), trial.suggest_float("y", 0, 3)
    trial.set_constraint("inside", (x - 5) ** 2 + y * y - 25)
    trial.set_constraint("outside", 7.7 - (x - 8) ** 2 - (y + 3) ** 2)
    return [4 * x * x + 4 * y * y, (x - 5) ** 2 + (y - 5) ** 2]


def osyczka(trial):
    """Osyczka and Kundu 1995: two losses and six constraints in six dimensions."""
    a, b = trial.suggest_float("a", 0, 10), trial.suggest_float("b", 0, 10)
    c, d = trial.suggest_float("c", 1, 5), trial.suggest_float("d", 0, 6)
    e, f = trial.suggest_float("e", 1, 5), trial.suggest_float("f", 0, 10)
    kept = [a + b - 2, 6 - a - b, 2 - b + a, 2 - a + 3 * b, 4 - (c - 3) ** 2 - d, (e - 3) ** 2 + f - 4]
    for index, number in enumerate(kept):
        trial.set_constraint(str(index), -number)
    return [-25 * (a - 2) ** 2 - (b - 2) ** 2 - (c - 1) ** 2 - (d - 4) ** 2 - (e - 1) ** 2, sum(v * v for v in (a, b, c, d, e, f))]


# Each problem with its number of losses, and the reference point of its hypervolume.
PROBLEMS = {
    "dtlz2": (dtlz2, (2, 2, 2)),
    "dtlz7": (dtlz7, (1.1, 1.1, 25)),
    "crash": (crash, (1.1, 1.1, 1.1)),
    "c2-dtlz2": (c2_dtlz2, (2, 2, 2)),
    "binh-korn": (binh_korn, (140, 50)),
    "osyczka": (osyczka, (0, 200)),
}
SAMPLERS = {
    "auto": lambda seed: AutoSampler(seed=seed),
    "nsga2": lambda seed: AutoSampler("nsga2", seed=seed),
    "nsga3": lambda seed: AutoSampler("nsga3", seed=seed),
    "optuna-nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "optuna-nsga3": lambda seed: optuna.samplers.NSGAIIISampler(seed=seed),
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "optuna-random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def volume(trials, bound):
    kept = [trial.values for trial in trials if all(number <= 0 for number in trial.constraints.values())]
    inside = [values for values in kept if all(value < most for value, most in zip(values, bound))]
    return compute_hypervolume(np.array(inside), np.array(bound, dtype=float)) if inside else 0.0


def main(first, count, *names):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for problem, (objective, bound) in PROBLEMS.items():
        for name in names or SAMPLERS:
            volumes, begun = [], time.monotonic()
            for seed in range(first, first + count):
                study = optuna.create_study(sampler=SAMPLERS[name](seed), directions=["minimize"] * len(bound))
                study.optimize(objective, n_trials=COUNTED[-1])
                volumes.append([-volume(study.trials[:trials], bound) for trials in COUNTED])
            milliseconds = (time.monotonic() - begun) / count / COUNTED[-1] * 1e3
            medians = [f"{statistics.median(column):.4g}" for column in zip(*volumes)]
            print(problem, name, *medians, f"{milliseconds:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
