"""A solver for kurobako, the program of Optuna's own benchmarks: a sampler of Optuna, or Ferrotune's for Optuna. Trials train to their end.

`kurobako solver --name NAME command python benchmarks/bench_kurobako.py NAME` describes one. NAME is `optuna-random`, `optuna-tpe`,
`optuna-gp`, `optuna-cmaes`, or one of Ferrotune's oracles.
"""

import pathlib
import sys

import optuna
from kurobako import problem, solver

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))

OPTUNAS = {
    "optuna-random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "optuna-cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
}


def sampler(name, seed):
    if name in OPTUNAS:
        return OPTUNAS[name](seed)
    from ferrotune.optuna import AutoSampler

    return AutoSampler(name, seed=seed)


def suggest(trial, variable):
    """The value of a variable as kurobako has it: a number, or the index of a choice."""
    known, is_log = variable.range, variable.distribution == problem.Distribution.LOG_UNIFORM
    if isinstance(known, problem.ContinuousRange):
        return trial.suggest_float(variable.name, known.low, known.high, log=is_log)
    if isinstance(known, problem.DiscreteRange):
        return trial.suggest_int(variable.name, known.low, known.high - 1, log=is_log)
    return known.choices.index(trial.suggest_categorical(variable.name, known.choices))


class Solver(solver.Solver):
    def __init__(self, study, specification):
        self.study, self.specification, self.trials = study, specification, {}

    def ask(self, idg):
        number, trial, values = idg.generate(), self.study.ask(), []
        for variable in self.specification.params:
            is_asked = variable.is_constraint_satisfied(self.specification.params, values)
            values.append(suggest(trial, variable) if is_asked else None)
        self.trials[number] = trial
        return solver.NextTrial(trial_id=number, params=values, next_step=self.specification.last_step)

    def tell(self, evaluated_trial):
        trial, values = self.trials.pop(evaluated_trial.trial_id), evaluated_trial.values
        if values:
            self.study.tell(trial, values)
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)


class Factory(solver.SolverFactory):
    def __init__(self, name):
        self.name = name

    def specification(self):
        return solver.SolverSpec(name=self.name)

    def create_solver(self, seed, problem):
        directions = ["minimize"] * len(problem.values)
        return Solver(optuna.create_study(sampler=sampler(self.name, seed), directions=directions), problem)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    solver.SolverRunner(Factory(sys.argv[1])).run()
