"""Optuna's samplers and pruners, DEHB, and SMAC's multi-fidelity facade on the problems of tuner/oracle/benches/curves: one line of
CSV for each finished search.

The budget is counted in epochs, as there: after the epochs of 10, 25, 50 and 100 whole trainings, the true final loss of
the best finished trial, or of that which has trained longest. Refuses nothing; the arguments say what to run: a sampler
and a pruner of Optuna with `+` between them, `dehb` or `smac`; the first seed, the number of seeds, how many of these
counts, and the problems (all if none is named).

`dehb` and `smac` need the packages of these names, which nothing else here does. Both name a configuration and a number of
epochs; a configuration that was trained before goes on from there, as from a checkpoint.
"""

import math
import pathlib
import random
import sys
import tempfile
import time
import types
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
    def __init__(self, problem, seed, counts):
        self.counts = counts
        self.curve_of, self.noise = made(problem) if problem in MADE else table(problem)
        self.random = random.Random(seed)
        self.epochs, self.losses, self.runs = 0, [], []

    def __call__(self, trial):
        curve = self.curve_of(trial)
        # Epochs, last value, and true final loss; and whether it has finished.
        run = {"epochs": 0, "value": math.inf, "last": curve[-1]}
        self.runs.append(run)
        for epoch in range(EPOCHS):
            self.train(run, curve, epoch)
            trial.report(run["value"], epoch)
            if epoch + 1 < EPOCHS and trial.should_prune():
                raise optuna.TrialPruned
        return run["value"]

    def train(self, run, curve, epoch):
        """One epoch of a run."""
        run["value"], run["epochs"] = curve[epoch] + self.random.gauss(0, self.noise), epoch + 1
        self.spend(1)

    def spend(self, epochs):
        self.epochs += epochs
        while self.epochs >= COUNTED[len(self.losses)] * EPOCHS:
            self.losses.append(self.incumbent())
            if len(self.losses) == self.counts:
                raise Spent

    def incumbent(self):
        return min(self.runs, key=lambda run: (-run["epochs"], run["value"]))["last"]


class Fidelities:
    """A search whose runs are asked for with their number of epochs."""

    def __init__(self, problem, seed, counts):
        self.search, self.seed = Search(problem, seed, counts), seed
        # Each configuration that was tried, with its curve and its run.
        self.known = {}

    def space(self):
        from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

        space = ConfigurationSpace(seed=self.seed)

        def add(parameter, first):
            space.add(parameter)
            return first

        # Asking for the parameters says which there are.
        self.search.curve_of(types.SimpleNamespace(
            suggest_float=lambda name, low, high: add(Float(name, (low, high)), low),
            suggest_int=lambda name, low, high: add(Integer(name, (low, high)), low),
            suggest_categorical=lambda name, values: add(Categorical(name, values), values[0]),
        ))
        return space

    def run(self, configuration, epochs):
        """The loss of a configuration after so many epochs."""
        values, search = dict(configuration), self.search

        def answer(name, *_):
            return values[name]

        key = tuple(sorted(values.items()))
        if key not in self.known:
            asked = types.SimpleNamespace(suggest_float=answer, suggest_int=answer, suggest_categorical=answer)
            curve = search.curve_of(asked)
            self.known[key] = curve, {"epochs": 0, "value": math.inf, "last": curve[-1]}
            search.runs.append(self.known[key][1])
        curve, run = self.known[key]
        # A rung may ask for 8.999 of 9 epochs.
        epochs = min(max(round(epochs), 1), EPOCHS)
        if epochs <= run["epochs"]:
            # The same training once more.
            search.spend(epochs)
        for epoch in range(run["epochs"], epochs):
            search.train(run, curve, epoch)
        return run["value"]


def dehb(problem, seed, counts):
    from dehb import DEHB

    runs = Fidelities(problem, seed, counts)
    space = runs.space()
    with tempfile.TemporaryDirectory() as folder:
        oracle = DEHB(
            cs=space, dimensions=len(space), min_fidelity=1, max_fidelity=EPOCHS, eta=3, n_workers=1, seed=seed,
            output_path=folder, log_level="ERROR", save_freq=None,
        )
        try:
            while True:
                job = oracle.ask()
                loss = runs.run(job["config"], job["fidelity"])
                oracle.tell(job, {"fitness": float(loss), "cost": float(job["fidelity"])})
        except Spent:
            return runs.search


def smac(problem, seed, counts):
    from smac import MultiFidelityFacade, Scenario
    from smac.main.exceptions import ConfigurationSpaceExhaustedException
    from smac.runhistory import TrialValue

    runs = Fidelities(problem, seed, counts)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            runs.space(), n_trials=1_000_000, min_budget=1, max_budget=EPOCHS, seed=seed, deterministic=True,
            output_directory=pathlib.Path(folder),
        )
        intensifier = MultiFidelityFacade.get_intensifier(scenario, eta=3)
        oracle = MultiFidelityFacade(
            scenario, lambda config, seed, budget: 0.0, intensifier=intensifier, overwrite=True, logging_level=50
        )
        try:
            while True:
                info = oracle.ask()
                oracle.tell(info, TrialValue(cost=float(runs.run(info.config, info.budget))), save=False)
        except (Spent, ConfigurationSpaceExhaustedException):
            return runs.search


OTHERS = {"dehb": dehb, "smac": smac}


def optuna_search(name, problem, seed, counts):
    sampler, pruner = name.split("+")
    search = Search(problem, seed, counts)
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), pruner=PRUNERS[pruner]())
    try:
        study.optimize(search)
    except Spent:
        pass
    return search


def search(name, problem, seed, counts):
    started = time.perf_counter()
    if name in OTHERS:
        label, search = name, OTHERS[name](problem, seed, counts)
    else:
        label, search = f"optuna-{name}", optuna_search(name, problem, seed, counts)
    milliseconds = (time.perf_counter() - started) * 1000 / len(search.runs)
    # A search that has nothing left to try keeps what it has.
    losses = [*search.losses, *[search.incumbent()] * (counts - len(search.losses))]
    losses = ",".join(map(repr, losses))
    print(f"{label},{problem},{seed},{losses},0,{milliseconds:.3f},{len(search.runs)}", flush=True)


def main():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    warnings.simplefilter("ignore")
    name, first, count, counts, *problems = sys.argv[1:]
    for problem in problems or [*MADE, *TABLES]:
        for seed in range(int(first), int(first) + int(count)):
            search(name, problem, seed, int(counts))


if __name__ == "__main__":
    main()
