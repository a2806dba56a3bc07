"""Searches with three losses, and with constraints, in Optuna: its own samplers, and Ferrotune's oracles as samplers.

`bench_fronts.py SEED COUNT [SAMPLER…]` prints a row for each problem and sampler, of the trials that keep the constraints: after 25, 50 and
100 trials the median hypervolume, with a minus, so that low is good; or the median of the lowest loss, if there is one loss.
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


def gramacy(trial):
    """Gramacy et al. 2016: the lowest loss is 0.5998."""
    x, y = vector(trial, 2)
    trial.set_constraint("wave", 1.5 - x - 2 * y - 0.5 * math.sin(2 * math.pi * (x * x - 2 * y)))
    trial.set_constraint("disc", x * x + y * y - 1.5)
    return x + y


def spring(trial):
    """The weight of a spring (Arora 1989): wire, coil and number of coils, of which few combinations keep the constraints. At least 0.012665."""
    wire, coil = trial.suggest_float("wire", 0.05, 2), trial.suggest_float("coil", 0.25, 1.3)
    count = trial.suggest_float("count", 2, 15)
    bent = 12566 * (coil * wire**3 - wire**4)
    kept = [
        coil**3 * count / (71785 * wire**4) - 1,
        1 - 1 / (5108 * wire**2) - (4 * coil**2 - wire * coil) / bent if bent else -1e3,
        140.45 * wire / (coil**2 * count) - 1,
        1 - (wire + coil) / 1.5,
    ]
    for index, number in enumerate(kept):
        trial.set_constraint(str(index), -number)
    return (count + 2) * coil * wire**2


def vessel(trial):
    """The cost of a pressure vessel, in thousands (Kannan and Kramer 1994): two thicknesses are whole. At least 5.8504."""
    shell, head = trial.suggest_int("shell", 1, 99) / 16, trial.suggest_int("head", 1, 99) / 16
    radius, length = trial.suggest_float("radius", 10, 200), trial.suggest_float("length", 10, 240)
    trial.set_constraint("shell", 0.0193 * radius - shell)
    trial.set_constraint("head", 0.00954 * radius - head)
    trial.set_constraint("volume", 1 - math.pi * radius**2 * (length + 4 / 3 * radius) / 1296000)
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
    return (cost + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius) / 1000


# Each problem with the reference point of its hypervolume; none for a problem with one loss.
PROBLEMS = {
    "dtlz2": (dtlz2, (2, 2, 2)),
    "dtlz7": (dtlz7, (1.1, 1.1, 25)),
    "crash": (crash, (1.1, 1.1, 1.1)),
    "c2-dtlz2": (c2_dtlz2, (2, 2, 2)),
    "binh-korn": (binh_korn, (140, 50)),
    "osyczka": (osyczka, (0, 200)),
    "gramacy": (gramacy, None),
    "spring": (spring, None),
    "vessel": (vessel, None),
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


def score(trials, bound):
    kept = [trial.values for trial in trials if all(number <= 0 for number in trial.constraints.values())]
    if bound is None:
        return min((values[0] for values in kept), default=math.inf)
    inside = [values for values in kept if all(value < most for value, most in zip(values, bound))]
    return -compute_hypervolume(np.array(inside), np.array(bound, dtype=float)) if inside else 0.0


def main(first, count, *names):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for problem, (objective, bound) in PROBLEMS.items():
        for name in names or SAMPLERS:
            scores, begun = [], time.monotonic()
            for seed in range(first, first + count):
                study = optuna.create_study(sampler=SAMPLERS[name](seed), directions=["minimize"] * len(bound or [0]))
                study.optimize(objective, n_trials=COUNTED[-1])
                scores.append([score(study.trials[:trials], bound) for trials in COUNTED])
            milliseconds = (time.monotonic() - begun) / count / COUNTED[-1] * 1e3
            medians = [f"{statistics.median(column):.4g}" for column in zip(*scores)]
            print(problem, name, *medians, f"{milliseconds:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
