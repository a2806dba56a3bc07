"""Studies in SQLite and PostgreSQL that Optuna and Rust programs search, one after the other and at the same time. Needs no
kernel."""

import json
import os
import subprocess
import time
from wsgiref.util import setup_testing_defaults

import optuna
import optuna_dashboard
import pytest
from optuna.trial import TrialState

import postgresql
from session import TARGET
from test_study import value

PROGRAM = TARGET / "release/examples/scenarios"
DATABASES = ["sqlite", "postgresql"]


@pytest.fixture(scope="module")
def home():
    try:
        with postgresql.server() as home:
            yield home
    except postgresql.NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=DATABASES)
def urls(request, tmp_path):
    """The address of an empty database, for us and for Optuna."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if request.param == "sqlite":
        return (f"sqlite:///{tmp_path}/studies.db",) * 2
    return postgresql.addresses(request.getfixturevalue("home"), f"it_{time.time_ns()}")


def start(scenario, folder, url, **variables):
    environment = {**os.environ, "STORAGE": url, **variables}
    return subprocess.Popen([PROGRAM, scenario, folder], env=environment, stdout=subprocess.PIPE, text=True)


def run(scenario, folder, url, **variables):
    program = start(scenario, folder, url, **variables)
    output, _ = program.communicate()
    assert program.returncode == 0
    return output


def objective(trial):
    trial.suggest_float("x", -4.0, 4.0)
    trial.suggest_int("units", 1, 64, log=True)
    trial.suggest_float("decay", 0.5, 0.999)
    trial.suggest_categorical("kind", ["plain", "wide"])
    trial.report(value(trial.params) + 1.0, 0)
    trial.report(float("nan"), 1)
    if trial.number == 3:
        raise optuna.TrialPruned
    if trial.number == 4:
        raise ValueError("broken")
    return value(trial.params)


def test_study_goes_from_optuna_to_rust_and_back(tmp_path, urls):
    ours, theirs = urls
    sampler = optuna.samplers.TPESampler(seed=1)
    begun = optuna.create_study(study_name="optuna", storage=theirs, sampler=sampler)
    begun.optimize(objective, n_trials=10, catch=ValueError)
    begun.enqueue_trial({"x": 0.125, "units": 7, "decay": 0.75, "kind": "wide"})
    assert run("optuna", tmp_path, ours) == "MaxTrials 20\n"

    continued = optuna.load_study(study_name="optuna", storage=theirs, sampler=sampler)
    assert [trial.params for trial in continued.trials[:10]] == [trial.params for trial in begun.trials[:10]]
    assert len(continued.trials) == 20
    assert continued.trials[10].params == {"x": 0.125, "units": 7, "decay": 0.75, "kind": "wide"}
    for trial in continued.trials[10:]:
        assert trial.state == TrialState.COMPLETE and trial.value == pytest.approx(value(trial.params), abs=1e-12)
        assert trial.datetime_start <= trial.datetime_complete
    continued.optimize(objective, n_trials=10)
    assert len(optuna.load_study(study_name="optuna", storage=theirs).trials) == 30


def test_tables_that_we_make_are_those_of_optuna(tmp_path, urls):
    ours, theirs = urls
    run("optuna", tmp_path, ours)
    # Checks the version of the tables, and its newest migration.
    storage = optuna.storages.RDBStorage(theirs)
    assert storage.get_current_version() == storage.get_head_version()
    study = optuna.load_study(study_name="optuna", storage=storage)
    assert len(study.trials) == 20 and study.best_value == min(trial.value for trial in study.trials)
    for trial in study.trials:
        assert trial.params.keys() == {"x", "units", "decay", "kind"} and trial.value == pytest.approx(value(trial.params))


def test_dashboard_serves_our_study(tmp_path, urls):
    ours, theirs = urls
    run("optuna", tmp_path, ours)
    app = optuna_dashboard.wsgi(optuna.storages.RDBStorage(theirs))
    answers = []
    environment = {"PATH_INFO": "/api/studies"}
    setup_testing_defaults(environment)
    body = b"".join(app(environment, lambda status, headers, error=None: answers.append(status)))
    assert answers == ["200 OK"]
    assert [summary["study_name"] for summary in json.loads(body)["study_summaries"]] == ["optuna"]


def test_optuna_and_rust_share_a_study_while_both_search(tmp_path, urls):
    ours, theirs = urls
    study = optuna.create_study(study_name="optuna", storage=theirs)
    programs = [start("beside", tmp_path / name, ours) for name in ("one", "other")]
    while not study.trials:
        time.sleep(0.01)
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=20)
    assert [program.communicate()[0] for program in programs] == ["MaxTrials\n"] * 2
    trials = optuna.load_study(study_name="optuna", storage=theirs).trials
    # Optuna knows no limit of ours, and may be the slower one.
    assert 150 <= len(trials) <= 170
    assert all("ferrotune:supervisor" not in trial.user_attrs for trial in trials[150:])
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert all(trial.state == TrialState.COMPLETE and trial.value == trial.params["x"] for trial in trials)
    supervisors = {trial.user_attrs.get("ferrotune:supervisor", {}).get("id") for trial in trials}
    assert len(supervisors) == 3
    assert sum("ferrotune:supervisor" not in trial.user_attrs for trial in trials) == 20


def test_a_trial_that_optuna_ends_keeps_that_end(tmp_path, urls):
    ours, theirs = urls
    study = optuna.create_study(study_name="shared", storage=theirs)
    program = start("shared", tmp_path, ours)
    while not any(trial.intermediate_values for trial in study.trials):
        time.sleep(0.05)
    study.tell(0, state=TrialState.PRUNED)
    assert program.communicate()[0] == "MaxTrials\n"
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.PRUNED] + [TrialState.COMPLETE] * 11
    assert len(study.trials[0].intermediate_values) < 20
