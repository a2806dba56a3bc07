"""A study that Optuna began is continued by a Rust program, and by Optuna again. Needs no kernel."""

import subprocess

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from session import TARGET

PROGRAM = TARGET / "release/examples/scenarios"


def storage(folder):
    return JournalStorage(JournalFileBackend(str(folder / "optuna/journal.log")))


def value(parameters):
    return parameters["x"] ** 2 + parameters["units"] / 64 + parameters["decay"] + len(parameters["kind"])


def objective(trial):
    trial.suggest_float("x", -4.0, 4.0)
    trial.suggest_int("units", 1, 64, log=True)
    trial.suggest_float("decay", 0.5, 0.999)
    trial.suggest_categorical("kind", ["plain", "wide"])
    trial.report(value(trial.params) + 1.0, 0)
    if trial.number == 3:
        raise optuna.TrialPruned
    if trial.number == 4:
        raise ValueError("broken")
    return value(trial.params)


def run(folder):
    done = subprocess.run([PROGRAM, "optuna", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_study_goes_from_optuna_to_rust_and_back(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (tmp_path / "optuna").mkdir()
    sampler = optuna.samplers.TPESampler(seed=1)
    begun = optuna.create_study(study_name="optuna", storage=storage(tmp_path), sampler=sampler)
    begun.optimize(objective, n_trials=10, catch=ValueError)
    assert run(tmp_path) == "MaxTrials 20\n"

    continued = optuna.load_study(study_name="optuna", storage=storage(tmp_path), sampler=sampler)
    assert continued.trials[:10] == begun.trials[:10]
    assert len(continued.trials) == 20
    for trial in continued.trials[10:]:
        assert trial.state == TrialState.COMPLETE and trial.value == pytest.approx(value(trial.params), abs=1e-12)

    continued.optimize(objective, n_trials=10)
    assert len(optuna.load_study(study_name="optuna", storage=storage(tmp_path)).trials) == 30
    # There are more than it was to run.
    assert run(tmp_path) == "MaxTrials 30\n"
