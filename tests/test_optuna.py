"""A study is an Optuna journal: Optuna reads the same as `%trials` shows, and can continue the study."""

import collections
import json
import shutil
import threading

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from session import wait_for
from test_tune import study, table

TRIALS = 8
PANICS = 3
SEARCH = f"""%%tune --objective loss:min --max-trials {TRIALS} --seed 6 --project optuna
|trial| {{
    let rate: f64 = trial.float("rate", 1e-4..=1.0).log().get()?;
    let units: usize = trial.int("units", 16..=64).step(16).get()?;
    let kind = trial.choice("kind", ["plain", "wide"]).get()?;
    let loss = rate + units as f64 / 64.0 + kind.len() as f64;
    trial.report(0, [("loss", loss + 1.0)])?;
    if trial.number() == {PANICS} {{
        panic!("boom");
    }}
    trial.report(1, [("loss", loss + 0.5)])?;
    Ok(loss)
}}"""


@pytest.fixture(scope="module")
def journal(kernel):
    kernel.ok(SEARCH)
    return study(kernel, "optuna") / "journal.log"


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def load(journal):
    return optuna.load_study(study_name="optuna", storage=JournalStorage(JournalFileBackend(str(journal))))


def expected(parameters):
    return parameters["rate"] + parameters["units"] / 64 + len(parameters["kind"])


def test_optuna_sees_what_trials_and_best_show(kernel, journal):
    rows = table(kernel.ok("%trials --project optuna").display)
    loaded = load(journal)
    assert loaded.direction == optuna.study.StudyDirection.MINIMIZE
    assert len(rows) == len(loaded.trials) == TRIALS
    for row, trial in zip(rows, loaded.trials):
        assert row["trial"] == str(trial.number)
        assert row["kind"] == trial.params["kind"] and row["units"] == str(trial.params["units"])
        # Tables are rounded; the journal is not.
        assert float(row["rate"]) == pytest.approx(trial.params["rate"], rel=1e-3)
        if trial.number == PANICS:
            assert row["ending"] == "panicked: boom (line 9 of the cell)"
        else:
            assert float(row["loss"]) == pytest.approx(trial.value, rel=1e-3)
    (best,) = table(kernel.ok("%best --project optuna").display)
    assert best["trial"] == str(loaded.best_trial.number)


def test_values_and_parameters_are_exact(journal):
    loaded = load(journal)
    states = collections.Counter(trial.state for trial in loaded.trials)
    assert states == {TrialState.COMPLETE: TRIALS - 1, TrialState.FAIL: 1}
    for trial in loaded.trials:
        loss = expected(trial.params)
        assert trial.datetime_start <= trial.datetime_complete
        if trial.number == PANICS:
            assert trial.state == TrialState.FAIL and trial.intermediate_values == {0: loss + 1.0}
        else:
            assert trial.value == loss and trial.intermediate_values == {0: loss + 1.0, 1: loss + 0.5}
    complete = [trial for trial in loaded.trials if trial.state == TrialState.COMPLETE]
    assert loaded.best_value == min(expected(trial.params) for trial in complete)
    assert loaded.best_params == min(complete, key=lambda trial: trial.value).params


def test_distributions_are_the_search_space(journal):
    space = {
        "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "units": optuna.distributions.IntDistribution(16, 64, step=16),
        "kind": optuna.distributions.CategoricalDistribution(("plain", "wide")),
    }
    for trial in load(journal).trials:
        assert trial.distributions == space
        for name, value in trial.params.items():
            assert space[name]._contains(space[name].to_internal_repr(value)), (name, value)


def test_every_line_is_strict_json_with_a_checksum(journal):
    def refuse(constant):
        raise AssertionError(f"bare {constant}")

    for line in journal.read_text().splitlines():
        entry = json.loads(line, parse_constant=refuse)
        assert entry["worker_id"].startswith("ferrotune-") and "crc" in entry, line


TRADE = """%%tune --objective score:max,size:min:last --constraint "latency<=0.6" --enqueue "x=0.25; x=0.75" --oracle nsga2 \
--max-trials 6 --seed 3 --project trade
|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    trial.report(0, [("latency", x), ("size", 9.0)])?;
    trial.report(1, [("size", x * x)])?;
    Ok((x, trial.best("size")?))
}"""


def test_optuna_sees_trade_offs_constraints_and_enqueued_trials(kernel):
    outcome = kernel.ok(TRADE)
    journal = study(kernel, "trade") / "journal.log"
    loaded = optuna.load_study(study_name="trade", storage=JournalStorage(JournalFileBackend(str(journal))))
    assert [direction.name for direction in loaded.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert loaded.metric_names == ["score", "size"]
    assert [trial.params["x"] for trial in loaded.trials[:2]] == [0.25, 0.75]
    assert loaded.trials[0].system_attrs["fixed_params"] == {"x": 0.25}
    for trial in loaded.trials:
        x = trial.params["x"]
        assert trial.state == TrialState.COMPLETE and trial.values == [x, x * x]
        assert trial.system_attrs["constraints"] == [pytest.approx(x - 0.6)]
    # All trials that keep the constraint are trade-offs.
    kept = [trial.number for trial in loaded.trials if trial.params["x"] <= 0.6]
    assert 0 < len(kept) < 6
    assert sorted(trial.number for trial in loaded.best_trials) == kept
    assert f"best trade-offs: {len(kept)} trial" in outcome.display, outcome.display
    assert f", {6 - len(kept)} that break a constraint" in outcome.display, outcome.display
    assert {row["trial"] for row in table(kernel.ok(f"%best {len(kept)} --project trade").display)} == set(map(str, kept))


def test_trials_that_optuna_enqueues_are_run(kernel):
    kernel.ok("""%%tune --objective loss:min --max-trials 1 --seed 3 --project queue
|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    Ok(x)
}""")
    journal = study(kernel, "queue") / "journal.log"
    optuna.load_study(study_name="queue", storage=JournalStorage(JournalFileBackend(str(journal)))).enqueue_trial({"x": 0.125})
    kernel.ok("%resume queue --max-trials 3")
    loaded = optuna.load_study(study_name="queue", storage=JournalStorage(JournalFileBackend(str(journal))))
    assert [trial.state for trial in loaded.trials] == [TrialState.COMPLETE] * 3
    assert loaded.trials[1].value == 0.125 and loaded.trials[1].datetime_start is not None


BESIDE = """%%tune --objective loss:min --max-trials 40 --seed 3 --oracle random --project beside
|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    std::thread::sleep(std::time::Duration::from_millis(100));
    Ok(x)
}"""


def test_optuna_enqueues_and_optimises_during_the_search(kernel):
    journal = study(kernel, "beside") / "journal.log"
    outcomes = []
    search = threading.Thread(target=lambda: outcomes.append(kernel.ok(BESIDE)))
    search.start()
    # The cell is compiled first.
    begun = lambda: journal.exists() and b"ferrotune:spec" in journal.read_bytes()
    wait_for(lambda: begun() or not search.is_alive(), "search", seconds=120)
    assert begun(), outcomes
    other = optuna.load_study(study_name="beside", storage=JournalStorage(JournalFileBackend(str(journal))))
    for value in (0.125, 0.25, 0.375):
        other.enqueue_trial({"x": value})
        other.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=2)
    assert search.is_alive(), "the search has ended before Optuna"
    search.join()
    (outcome,) = outcomes
    assert "beside: 40/40 trials" in outcome.display, outcome.display
    loaded = optuna.load_study(study_name="beside", storage=JournalStorage(JournalFileBackend(str(journal))))
    assert [trial.number for trial in loaded.trials] == list(range(40))
    assert {trial.state for trial in loaded.trials} == {TrialState.COMPLETE}
    assert [trial.value for trial in loaded.trials if "fixed_params" in trial.system_attrs] == [0.125, 0.25, 0.375]
    rows = table(kernel.ok("%trials --project beside").display)
    assert [row["trial"] for row in rows] == [str(number) for number in range(40)]
    for row, trial in zip(rows, loaded.trials):
        assert trial.value == trial.params["x"] and float(row["loss"]) == pytest.approx(trial.value, rel=1e-3)


def test_optuna_loads_running_and_torn_studies(journal, tmp_path):
    """Each beginning of a journal is the journal of a running study; if it ends within a line, it is torn."""
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    copy, seen = tmp_path / "journal.log", set()
    for count in range(1, len(lines), 5):
        begun = sum(json.loads(line)["op_code"] == 4 for line in lines[:count])
        for torn in (b"", lines[count][: len(lines[count]) // 2]):
            copy.write_bytes(b"".join(lines[:count]) + torn)
            trials = load(copy).trials
            assert len(trials) == begun
            seen |= {trial.state for trial in trials}
    assert seen == {TrialState.RUNNING, TrialState.COMPLETE, TrialState.FAIL}


def test_optuna_goes_on_with_a_copy(journal, tmp_path):
    before = journal.read_bytes()
    copy = tmp_path / "journal.log"
    shutil.copy(journal, copy)
    loaded = load(copy)
    asked = loaded.ask(loaded.trials[0].distributions)
    assert asked.number == TRIALS
    loaded.tell(asked, 0.25)
    again = load(copy)
    assert again.best_trial.number == TRIALS and again.best_value == 0.25
    assert again.trials[:TRIALS] == load(journal).trials
    assert journal.read_bytes() == before
