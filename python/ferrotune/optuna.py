"""Ferrotune's oracles as a sampler of Optuna: `optuna.create_study(sampler=ferrotune.optuna.AutoSampler())`."""

import json
import math
import operator
import os
import subprocess
import sys
import threading
import weakref

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from . import program
from .errors import FerrotuneError

# Where Optuna's own samplers store a trial's constraints.
_CONSTRAINTS = "constraints"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
}

_samplers = weakref.WeakSet()


def _forget_processes():
    """In a fork: the processes belong to the parent, and another thread of the parent may have held a lock."""
    for sampler in _samplers:
        sampler._lock, sampler._search = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_processes)


class AutoSampler(BaseSampler):
    """Chooses the values of a study's trials by one of Ferrotune's oracles, in a process of Ferrotune's program.

    Each value follows from the study's trials and the seed: a study that goes on with the same seed gets the values that it would have got
    without the break. Trials that run at the same time count as begun. An objective may ask for parameters in any order and under
    conditions, and a study may have several objectives.

    Args:
        oracle: `auto`, or another of the oracles that train each trial to its end: `gp`, `tpe`, `cmaes`, `nsga2`, `nsga3`, `qmc`, `random`,
            `grid`, with settings as in `--oracle`.
        seed: A number from 0 to 2**64 - 1; without one, each sampler draws its own.
        constraints_func: A function from a finished trial to a list of numbers, each at most 0 if the trial keeps that constraint, as in
            Optuna's own samplers. `trial.set_constraint` of Optuna 5 needs no such function.

    Raises:
        ValueError: The seed is out of its range; or, when a trial asks for a value, its range has a bound that the program cannot store,
            such as infinity or a whole number of more than 64 bits.
        FerrotuneError: When a trial asks for a value: Ferrotune's program is missing, or does not know this oracle.
    """

    def __init__(self, oracle="auto", *, seed=None, constraints_func=None):
        seed = seed if seed is None else operator.index(seed)
        if seed is not None and not 0 <= seed < 2**64:
            raise ValueError(f"the seed is {seed}; give one from 0 to 2**64 - 1")
        self._oracle, self._seed, self._constraints_func = str(oracle), seed, constraints_func
        self._lock = threading.Lock()
        self._search = None
        _samplers.add(self)

    def __getstate__(self):
        return {"_oracle": self._oracle, "_seed": self._seed, "_constraints_func": self._constraints_func}

    def __setstate__(self, state):
        self.__init__(state["_oracle"], seed=state["_seed"], constraints_func=state["_constraints_func"])

    def infer_relative_search_space(self, study, trial):
        # All values are asked for one by one: the oracle itself finds out which parameters belong together.
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        question = {"trial": trial.number, "name": param_name, "distribution": _distribution(param_name, param_distribution)}
        with self._lock:
            if self._search is None or not self._search.is_of(study):
                self._end_search()
                self._search = _Search(study, self._oracle, self._seed, self._constraints_func is not None)
            value = self._search.suggest(study, trial, question)
        if isinstance(param_distribution, CategoricalDistribution):
            return param_distribution.choices[int(value)]
        return float(value) if isinstance(param_distribution, FloatDistribution) else value

    def after_trial(self, study, trial, state, values):
        if self._constraints_func is None or state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return
        numbers = [float(number) for number in self._constraints_func(trial)]
        if any(math.isnan(number) for number in numbers):
            raise ValueError("a number of constraints_func is NaN; return one that is at most 0 if the trial keeps the constraint")
        study._storage.set_trial_system_attr(trial._trial_id, _CONSTRAINTS, numbers)

    def reseed_rng(self):
        """Does nothing: values depend on the trial's number, so that processes with one seed do not draw the same ones."""

    def close(self):
        """Ends the program's process. The next value starts another one."""
        with self._lock:
            self._end_search()

    def _end_search(self):
        if self._search is not None:
            self._search.close()
            self._search = None


class _Search:
    """A process of Ferrotune's program that chooses the values of one study."""

    def __init__(self, study, oracle, seed, has_constraints):
        # Optuna's samplers know a study by these two. The reference keeps another storage from getting the same address.
        self._storage, self._study = study._storage, study._study_id
        # The numbers of the trials that have ended and were sent, and the values of those that have asked here: another thread may ask
        # before Optuna has stored them.
        self._ended, self._own = set(), {}
        # The names of the constraints, in the order in which the process knows them.
        self._constraints = {}
        self._program, self._has_constraints = program.path(), has_constraints
        try:
            # An interrupt of this program is not one of the process, which ends with its standard input.
            self._process = subprocess.Popen(
                [self._program, "oracle"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        except OSError as error:
            raise program.cannot_run(self._program, error) from None
        self.close = weakref.finalize(self, _end, self._process, os.getpid())
        directions = ["max" if direction == StudyDirection.MAXIMIZE else "min" for direction in study.directions]
        self._ask({"oracle": oracle, "directions": directions, "seed": seed})

    def is_of(self, study):
        """Whether the process is for this study, and runs."""
        is_same = self._storage is study._storage and self._study == study._study_id
        return is_same and self._process.poll() is None

    def suggest(self, study, trial, question):
        own = self._own.setdefault(trial.number, {})
        # HyperbandPruner shows samplers some of a study's trials, and others to the next trial; the oracle needs all of them.
        known = self._storage.get_all_trials(self._study, deepcopy=False)
        changed = [other for other in known if other.number not in self._ended]
        value = self._ask({"trials": [self._record(other) for other in changed], **question})["value"]
        own[question["name"]] = {"distribution": question["distribution"], "value": value}
        for number in [other.number for other in changed if other.state.is_finished()]:
            self._ended.add(number)
            self._own.pop(number, None)
        return value

    def _record(self, trial):
        """A trial as the program reads it, without the parameters and reports that it cannot store."""
        state = _STATES[trial.state]
        if state == "running" and trial.number not in self._own:
            state = "running_elsewhere"
        given = self._own.get(trial.number, {}) if state == "running" else {}
        parameters = {name: _parameter(name, trial.distributions[name], value) for name, value in trial.params.items()}
        reports = trial.intermediate_values.items()
        return {
            "number": trial.number,
            "state": state,
            "parameters": {**given, **{name: known for name, known in parameters.items() if known is not None}},
            "reports": [[step, _finite(value)] for step, value in reports if 0 <= step < 2**64],
            "values": [_finite(value) for value in trial.values or []],
            "constraints": self._constraints_of(trial),
        }

    def _constraints_of(self, trial):
        """The number of each constraint, at most 0 if the trial keeps it; None if they should be known, and are not."""
        stored = trial.constraints if hasattr(trial, "constraints") else dict(enumerate(trial.system_attrs.get(_CONSTRAINTS) or []))
        if self._has_constraints and not stored:
            return None
        self._constraints.update(dict.fromkeys(stored))
        return [_finite(max(stored.get(name, 0.0), -sys.float_info.max)) for name in self._constraints]

    def _ask(self, question):
        try:
            self._process.stdin.write(json.dumps(question, allow_nan=False) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        except BaseException:
            # After an interrupt the answer to this question would be read as that to the next one.
            self.close()
            raise
        if not answer.endswith("\n"):
            self.close()
            raise FerrotuneError(
                f"the process {self._program} oracle, which chooses the values, has ended; optimize continues the study with another one"
            )
        answer = json.loads(answer)
        if answer is not None and "error" in answer:
            raise FerrotuneError(answer["error"])
        return answer


def _end(process, owner):
    """Ends a process, unless this is a fork of the program that started it. The process has nothing that it would have to store."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
        process.stdout.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            # A part of a question was not read.
            pass


def _finite(number):
    """A number as JSON has it: none that is infinite or NaN."""
    return number if number is not None and math.isfinite(number) else None


def _distribution(name, distribution):
    """A distribution of Optuna as the program reads it. A choice stands for its index, because Optuna's choices may be any objects."""
    if isinstance(distribution, CategoricalDistribution):
        return {"kind": "choice", "values": [str(index) for index in range(len(distribution.choices))]}
    numbers = {"low": distribution.low, "high": distribution.high, "step": distribution.step, "log": distribution.log}
    if isinstance(distribution, FloatDistribution):
        if not (math.isfinite(distribution.low) and math.isfinite(distribution.high)):
            raise ValueError(f"the range of `{name}` has an infinite bound; give a finite one")
        return {"kind": "float", **numbers}
    if isinstance(distribution, IntDistribution):
        if not -(2**63) <= distribution.low <= distribution.high < 2**63:
            raise ValueError(f"the range of `{name}` does not fit into 64 bits; give a smaller one")
        return {"kind": "int", **numbers}
    raise ValueError(f"`{name}` is a {type(distribution).__name__}, which Ferrotune does not know")


def _parameter(name, distribution, value):
    """A parameter of a trial as the program reads it; none if the program cannot store it."""
    try:
        known = _distribution(name, distribution)
    except ValueError:
        return None
    number = distribution.to_internal_repr(value)
    stored = {"choice": lambda: str(int(number)), "int": lambda: int(value), "float": lambda: number}
    return {"distribution": known, "value": stored[known["kind"]]()}
