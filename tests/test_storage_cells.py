"""A notebook's study in a database, which Optuna searches, too, and which may be away for a while."""

import json
import os
import pathlib
import signal
import time

import optuna
import pytest

import postgresql
from session import is_alive, wait_for

CELL = """%%tune --oracle random --objective loss:min --max-trials {trials} --project shared --storage {url}
|trial| {{
    let x = trial.float("x", -4.0..=4.0).get()?;
    trial.report(0, [("loss", x * x)])?;
    trial.best("loss")
}}"""


def test_a_notebook_and_optuna_share_a_study(start, tmp_path):
    url = f"sqlite:///{tmp_path}/studies.db"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    session = start()
    session.ok(CELL.format(trials=4, url=url))
    study = optuna.load_study(study_name="shared", storage=url)
    assert len(study.trials) == 4
    study.enqueue_trial({"x": 0.25})
    assert "5/5 trials, 4 of them earlier" in session.ok(CELL.format(trials=5, url=url)).display
    assert study.trials[4].params == {"x": 0.25} and study.best_value <= 0.0625
    table = session.ok("%trials").display
    assert "0.0625" in table and len(table.splitlines()) == 6, table
    assert 'let best = ferrotune::Trial::of([("x", ' in session.ok("%best").display
    session.ok("%plot history")
    study.optimize(lambda trial: trial.suggest_float("x", -4.0, 4.0) ** 2, n_trials=1)
    # Another kernel finds it by its folder.
    again = start()
    assert len(again.ok("%trials --project shared").display.splitlines()) == 7
    assert "8/8 trials, 6 of them earlier" in again.ok("%resume shared --max-trials 8").display
    assert len(study.trials) == 8
    assert "shared" in again.ok("%studies").display


# Reports until a file exists, and tells its process.
ENDLESS = """%%tune --oracle random --objective loss:min --max-trials 2 --project away --storage {url} {options}
|trial| {{
    let x = trial.float("x", 0.0..=1.0).get()?;
    std::fs::write({folder}.to_owned() + "/worker", std::process::id().to_string())?;
    for step in 0.. {{
        trial.report(step, [("loss", x)])?;
        if std::path::Path::new({folder}).join("go-on").exists() {{ break; }}
        std::thread::sleep(std::time::Duration::from_millis(50));
    }}
    trial.best("loss")
}}"""


@pytest.fixture
def server():
    try:
        with postgresql.initialised() as made:
            made.start()
            yield made
    except postgresql.NoServer as reason:
        pytest.skip(str(reason))


def processes_of(server):
    pid = server.running.pid
    return [pid, *map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


class Away:
    """A server that crashes, or that stands still and answers nothing."""

    def __init__(self, server, how):
        self.server, self.how, self.stopped = server, how, []

    def __enter__(self):
        if self.how == "crashed":
            self.server.crash()
        else:
            self.stopped = processes_of(self.server)
            for pid in self.stopped:
                os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_):
        if self.how == "crashed":
            self.server.start()
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["crashed", "frozen"])
def test_deadlines_and_stops_do_not_wait_for_a_database_that_is_away(start, server, tmp_path, how):
    url = postgresql.addresses(server.home, "away")[0]
    kernel = start()
    worker = tmp_path / "worker"

    def begin(options=""):
        worker.unlink(missing_ok=True)
        msg_id = kernel.begin(ENDLESS.format(url=url, options=options, folder=json.dumps(str(tmp_path))))
        wait_for(lambda: worker.exists() and worker.read_text(), "worker")
        time.sleep(0.5)
        return msg_id, int(worker.read_text())

    msg_id, pid = begin("--trial-timeout 4s")
    with Away(server, how):
        wait_for(lambda: not is_alive(pid), "end of a trial that is beyond its limit", seconds=15)
        (tmp_path / "go-on").touch()
    outcome = kernel.end_of(msg_id)
    assert outcome.error is None, outcome
    assert "timed out after 4 s" in kernel.ok("%trials --project away").display
    (tmp_path / "go-on").unlink()

    msg_id, pid = begin("--overwrite")
    with Away(server, how):
        kernel.ask("interrupt_request", channel="control")
        time.sleep(1)
        assert is_alive(pid)
        kernel.ask("interrupt_request", channel="control")
        asked = time.monotonic()
        wait_for(lambda: not is_alive(pid), "end of a trial whose search is to stop at once", seconds=5)
        outcome = kernel.end_of(msg_id)
        assert time.monotonic() - asked < 40, outcome
    assert "postgresql:///away" in outcome.error, outcome
    # What was recorded is there, and the search goes on.
    (tmp_path / "go-on").touch()
    assert "2/2 trials" in kernel.ok("%resume away").display
