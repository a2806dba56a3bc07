"""Studies that Optuna and a Rust program search, one after the other and at the same time. Needs no kernel."""

import json
import subprocess
import time

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
    # There are more trials than the program may run.
    assert run(tmp_path) == "MaxTrials 30\n"


def begun_by(journal):
    """The workers, `ferrotune` or Optuna's, that have written about each trial and that Optuna accepts. If two of them begin
    a waiting trial, the later one is refused and runs another trial."""
    workers, numbers = {}, 0
    for line in journal.read_text().splitlines():
        line = json.loads(line)
        worker = "ferrotune" if line["worker_id"].startswith("ferrotune-") else "optuna"
        if line["op_code"] == 4:
            # A separate line begins a waiting trial.
            workers[numbers] = set() if line.get("state") == 4 else {worker}
            numbers += 1
        elif line["op_code"] == 6 and line["state"] == 0 and workers[line["trial_id"]]:
            pass
        elif line["op_code"] in (5, 6, 7):
            workers[line["trial_id"]].add(worker)
    return workers


def test_optuna_enqueues_and_optimises_while_a_program_searches(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (tmp_path / "optuna").mkdir()
    journal = tmp_path / "optuna/journal.log"
    study = optuna.create_study(study_name="optuna", storage=storage(tmp_path), sampler=optuna.samplers.RandomSampler(seed=1))
    program = subprocess.Popen([PROGRAM, "beside", tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(study.trials) < 3:
        assert time.monotonic() < deadline and program.poll() is None, "no trial of the program"
    presets = [{"x": 0.125}, {"x": 0.25}, {"x": 0.375}, {"x": 0.5}]
    for preset in presets:
        study.enqueue_trial(preset)
        study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=5)
    assert program.poll() is None, "the program has ended before Optuna"
    out, err = program.communicate(timeout=120)
    assert (program.returncode, out) == (0, "MaxTrials\n"), err

    trials = optuna.load_study(study_name="optuna", storage=storage(tmp_path)).trials
    assert [trial.number for trial in trials] == list(range(150))
    for trial in trials:
        assert trial.state == TrialState.COMPLETE and trial.value == trial.params["x"], trial
    enqueued = [trial.params for trial in trials if "fixed_params" in trial.system_attrs]
    assert enqueued == presets
    workers = begun_by(journal)
    assert all(len(names) == 1 for names in workers.values()), workers
    theirs = [number for number, names in workers.items() if names == {"optuna"}]
    assert len(theirs) == 20, theirs
    assert not list(journal.parent.glob("journal.log.lock*")) and not (journal.parent / "journal.torn").exists()
