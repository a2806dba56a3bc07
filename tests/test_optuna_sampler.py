"""`ferrotune.optuna.AutoSampler` in real studies of Optuna."""

import math
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

PACKAGE = pathlib.Path(__file__).parent.parent / "python"
sys.path.insert(0, str(PACKAGE))

from ferrotune.errors import FerrotuneError  # noqa: E402
from ferrotune.optuna import AutoSampler  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def mixed(trial):
    """Numbers, a choice of any objects, and a parameter that only one choice has; the least value is 0."""
    lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
    layers = trial.suggest_int("layers", 1, 9, step=2)
    width = trial.suggest_int("width", 8, 1024, log=True)
    norm = trial.suggest_categorical("norm", [None, "batch", 0.5])
    loss = (math.log10(lr) + 2) ** 2 + (layers - 5) ** 2 / 16 + (math.log2(width) - 7) ** 2 / 9
    if norm is None:
        return loss + 1 + trial.suggest_float("decay", 0.0, 1.0)
    return loss + (0.0 if norm == "batch" else 0.3)


def test_the_guides_example(capsys):
    text = (PACKAGE.parent / "docs/optuna.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(example, names)
    assert len(names["study"].trials) == 30 and names["study"].best_value < 0.1


def values(study):
    return [trial.params for trial in study.trials]


def searched(sampler, objective=mixed, trials=12, **options):
    study = optuna.create_study(sampler=sampler, **options)
    study.optimize(objective, n_trials=trials)
    return study


def test_it_comes_closer_than_optunas_own_sampler():
    ours = sorted(searched(AutoSampler(seed=seed), trials=40).best_value for seed in range(3))
    theirs = sorted(searched(optuna.samplers.TPESampler(seed=seed), trials=40).best_value for seed in range(3))
    assert ours[1] < 0.05 and ours[1] < theirs[1], (ours, theirs)


def test_values_keep_their_ranges_and_types():
    for trial in searched(AutoSampler(seed=1)).trials:
        parameters = trial.params
        assert isinstance(parameters["lr"], float) and 1e-5 <= parameters["lr"] <= 1
        assert type(parameters["layers"]) is int and parameters["layers"] in range(1, 10, 2)
        assert type(parameters["width"]) is int and 8 <= parameters["width"] <= 1024
        assert parameters["norm"] in [None, "batch", 0.5]
        assert ("decay" in parameters) == (parameters["norm"] is None)


def test_a_study_goes_on_as_if_it_had_not_ended(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    whole = searched(AutoSampler(seed=5))
    begun = searched(AutoSampler(seed=5), trials=7, storage=storage, study_name="parts")
    continued = optuna.load_study(study_name="parts", storage=storage, sampler=pickle.loads(pickle.dumps(begun.sampler)))
    continued.optimize(mixed, n_trials=5)
    assert values(continued) == values(whole)
    assert values(searched(AutoSampler(seed=6))) != values(whole)


def test_one_sampler_serves_two_studies():
    sampler = AutoSampler(seed=5)
    one, other = (optuna.create_study(sampler=sampler, direction=direction) for direction in ["minimize", "maximize"])
    for _ in range(8):
        one.optimize(mixed, n_trials=1)
        other.optimize(lambda trial: -mixed(trial), n_trials=1)
    assert values(one) == values(other) == values(searched(AutoSampler(seed=5), trials=8))


def test_several_objectives():
    def objective(trial):
        x, y = trial.suggest_float("x", -2, 2), trial.suggest_float("y", -2, 2)
        return x**2 + y**2, (x - 1) ** 2 + y**2

    study = searched(AutoSampler(seed=2), objective, 30, directions=["minimize", "minimize"])
    # All points of the front have y = 0 and x from 0 to 1.
    best = study.best_trials
    assert len(best) >= 5 and all(abs(trial.params["y"]) < 0.4 and -0.3 < trial.params["x"] < 1.3 for trial in best)


@pytest.mark.parametrize("way", ["function", "trial"])
def test_constraints(way):
    """The least value without the constraint is at 0, and with it at 1."""

    def objective(trial):
        x = trial.suggest_float("x", -4, 4)
        if way == "trial":
            trial.set_constraint("at least 1", 1 - x)
        return x**2

    with_function = {"constraints_func": lambda trial: [1 - trial.params["x"]]} if way == "function" else {}
    study = searched(AutoSampler(seed=3, **with_function), objective, 25)
    feasible = [trial for trial in study.trials if all(number <= 0 for number in trial.constraints.values())]
    assert len(feasible) > 5 and min(trial.value for trial in feasible) < 1.1
    assert all(len(trial.constraints) == 1 for trial in study.trials)
    assert study.best_trial.params["x"] >= 1


@pytest.mark.parametrize("way", ["function", "trial"])
def test_two_constraints_are_learned_each_by_itself(way):
    """The least value is -5.508, where both bounds meet (problem 24 of Liang et al. 2006). The second one is there from the fourth trial on."""

    def limits(x, y):
        return [y - 2 + x * x * (-8 + x * (8 - 2 * x)), y - 36 + x * (96 + x * (-88 + x * (32 - 4 * x)))]

    def objective(trial):
        x, y = trial.suggest_float("x", 0, 3), trial.suggest_float("y", 0, 4)
        if way == "trial":
            for name, limit in list(zip("ab", limits(x, y)))[: 1 if trial.number < 3 else 2]:
                trial.set_constraint(name, limit)
        return -x - y

    with_function = {"constraints_func": lambda trial: limits(**trial.params)} if way == "function" else {}
    study = searched(AutoSampler(seed=2, **with_function), objective, 40)
    kept = [trial.value for trial in study.trials if max(limits(**trial.params)) <= 0]
    assert -5.5081 < min(kept) < -5.5, min(kept)


def test_pruned_failed_and_infinite_trials():
    def objective(trial):
        loss = mixed(trial)
        if trial.number % 5 == 2:
            raise ValueError("boom")
        if trial.number % 5 == 3:
            return float("inf")
        for step in range(4):
            trial.report(float("nan") if trial.number % 5 == 4 else loss + 1 / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study = optuna.create_study(sampler=AutoSampler(seed=4), pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.optimize(objective, n_trials=30, catch=(ValueError,))
    states = {trial.state for trial in study.trials}
    assert states == {TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED} and study.best_value < 1


def test_hyperband_of_optuna():
    """It shows a sampler some of the study's trials, and this one sees all of them, so that a study goes on as if it had not ended."""

    def objective(trial):
        loss = mixed(trial)
        for step in range(9):
            trial.report(loss + 1 / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9)
    study = searched(AutoSampler(seed=4), objective, 24, study_name="whole", pruner=pruner)
    parts = searched(AutoSampler(seed=4), objective, 12, study_name="whole", pruner=pruner)
    parts.sampler = AutoSampler(seed=4)
    parts.optimize(objective, n_trials=12)
    assert values(parts) == values(study) and study.best_value < 2


def test_threads_that_search_together():
    study = optuna.create_study(sampler=AutoSampler(seed=7))
    study.optimize(mixed, n_trials=24, n_jobs=4)
    assert len(study.trials) == 24 and study.best_value < 1
    assert len({str(sorted(map(str, trial.params.items()))) for trial in study.trials}) == 24


def test_processes_that_search_together(tmp_path):
    journal = tmp_path / "journal.log"
    program = f"""
import sys; sys.path[:0] = [{str(PACKAGE)!r}, {str(pathlib.Path(__file__).parent)!r}]
import optuna; from ferrotune.optuna import AutoSampler; from test_optuna_sampler import mixed
storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend({str(journal)!r}))
study = optuna.create_study(study_name="both", storage=storage, sampler=AutoSampler(seed=1), load_if_exists=True)
study.optimize(mixed, n_trials=8)
"""
    both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    study = optuna.load_study(study_name="both", storage=JournalStorage(JournalFileBackend(str(journal))))
    assert len(study.trials) == 16 and study.best_value < 1.5
    # Both begin in the middle of the range if neither has seen the other's first trial.
    assert len({trial.params["lr"] for trial in study.trials}) >= 15


def test_ask_tell_and_enqueued_values():
    study = optuna.create_study(sampler=AutoSampler(seed=8))
    known = {"lr": 1e-2, "layers": 5, "width": 128, "norm": "batch"}
    study.enqueue_trial(known)
    study.enqueue_trial({"norm": None})
    trials = [study.ask() for _ in range(5)]
    for trial in reversed(trials):
        study.tell(trial, mixed(trial))
    assert study.trials[0].params == known and study.trials[0].value == pytest.approx(0)
    assert study.trials[1].params["norm"] is None and 0 <= study.trials[1].params["decay"] <= 1
    study.add_trial(optuna.trial.create_trial(params={"lr": 0.5}, distributions={"lr": trials[0].distributions["lr"]}, value=3.0))
    study.optimize(mixed, n_trials=3)
    assert len(study.trials) == 9


def test_a_range_may_change():
    def objective(trial):
        return trial.suggest_float("x", 0, 1 + trial.number % 3) + trial.suggest_int("n", 0, 2 + trial.number)

    study = searched(AutoSampler(seed=9), objective, 12)
    assert all(trial.params["x"] <= 1 + trial.number % 3 for trial in study.trials)


@pytest.mark.parametrize(
    "oracle, message",
    [
        ("autos", "there is no oracle `autos`, did you mean `auto`?"),
        ("hyperband", "hyperband decides how long each trial trains, which the program that runs the trials does here; use auto, gp"),
        ("gp:nosuch=1", "nosuch"),
    ],
)
def test_an_oracle_that_cannot_be_used(oracle, message):
    with pytest.raises(FerrotuneError, match=message.replace("?", r"\?")):
        searched(AutoSampler(oracle))


def test_ranges_that_cannot_be_stored():
    for ask in [lambda trial: trial.suggest_float("wide", 0, math.inf), lambda trial: trial.suggest_int("wide", 0, 2**63)]:
        with pytest.raises(ValueError, match="`wide`"):
            searched(AutoSampler(), ask, 1)


def test_the_process_is_replaced_after_its_end_and_ends_with_the_sampler():
    sampler = AutoSampler(seed=5)
    study = searched(sampler, trials=6)
    first = sampler._search._process
    first.kill()
    first.wait()
    study.optimize(mixed, n_trials=6)
    second = sampler._search._process
    assert second.pid != first.pid and values(study) == values(searched(AutoSampler(seed=5)))
    del study, sampler
    assert second.poll() is not None


def test_an_interrupt_leaves_no_answer_behind():
    """A stopped process does not answer, so the interrupt comes while the sampler waits."""
    sampler = AutoSampler(seed=5)
    study = searched(sampler, trials=4)
    stopped = sampler._search._process
    stopped.send_signal(signal.SIGSTOP)
    # A shell without job control has its background programs ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        study.optimize(mixed, n_trials=1)
    timer.join()
    assert stopped.poll() == -signal.SIGKILL
    assert study.trials[-1].state == TrialState.FAIL
    study.optimize(mixed, n_trials=3)
    assert len(study.trials) == 8


def test_a_fork_keeps_no_process_alive_and_no_lock_held():
    sampler = AutoSampler(seed=5)
    study = searched(sampler, trials=4)
    process = sampler._search._process
    with sampler._lock:
        child = os.fork()
        if child == 0:
            try:
                study.optimize(mixed, n_trials=1)
                time.sleep(60)
            finally:
                os._exit(0)
    # The fork has the pipes of the process too, and the end of its standard input would not come.
    begun = time.monotonic()
    sampler.close()
    assert time.monotonic() - begun < 10 and process.poll() is not None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_trial_without_its_constraints_does_not_keep_them():
    """The objective is lowest where the constraint cannot be computed."""

    def constraints(trial):
        return [float("nan") if trial.params["x"] < 0 else -1.0]

    study = optuna.create_study(sampler=AutoSampler(seed=3, constraints_func=constraints))
    for _ in range(30):
        try:
            study.optimize(lambda trial: trial.suggest_float("x", -4, 4), n_trials=1)
        except ValueError as error:
            assert "constraints_func is NaN" in str(error)
    assert sum(trial.params["x"] >= 0 for trial in study.trials[-10:]) >= 7


def test_a_trial_that_cannot_be_stored_is_left_out():
    study = optuna.create_study(sampler=AutoSampler(seed=3))
    wide = optuna.distributions.FloatDistribution(0, math.inf)
    known = optuna.distributions.FloatDistribution(1e-5, 1.0, log=True)
    stored = {"params": {"wide": 5.0, "lr": 0.5}, "distributions": {"wide": wide, "lr": known}, "value": 3.0}
    study.add_trial(optuna.trial.create_trial(**stored, intermediate_values={-1: 1.0, 2**64: 2.0, 0: 3.0}))
    study.optimize(mixed, n_trials=12)
    assert len(study.trials) == 13 and study.trials[-1].state == TrialState.COMPLETE


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused_at_once(seed):
    with pytest.raises(ValueError, match="give one from 0"):
        AutoSampler(seed=seed)


def test_a_fork_has_a_process_of_its_own():
    sampler = AutoSampler(seed=5)
    study = searched(sampler, trials=4)
    child = os.fork()
    if child == 0:
        try:
            study.optimize(mixed, n_trials=2)
            os._exit(0 if len(study.trials) == 6 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    study.optimize(mixed, n_trials=8)
    assert values(study) == values(searched(AutoSampler(seed=5)))
