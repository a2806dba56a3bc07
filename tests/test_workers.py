"""`ferrotune worker`: hosts without a notebook, a toolchain or a prelude work on the study of one that has published it."""

import os
import signal
import sqlite3
import subprocess

import optuna
import pytest
from optuna.trial import TrialState

from session import FERROTUNE, wait_for
from test_tune import study, tune

# Epochs that can be told apart from those of a search that begins again; slow, so that others get some of the trials.
BODY = """let vars = candle_nn::VarMap::new();
    let start = candle_nn::Init::Const(0.0);
    vars.get(1, "count", start, candle_core::DType::F32, &candle_core::Device::Cpu)?;
    let mut seen: Vec<u64> = Vec::new();
    trial.restore((&vars, &mut seen))?;
    for epoch in trial.epochs(EPOCHS) {
        if seen.len() != epoch { return Err(format!("{} epochs seen at epoch {epoch}", seen.len()).into()); }
        seen.push(epoch as u64);
        std::thread::sleep(std::time::Duration::from_millis(100));
        trial.report(epoch, [("loss", x + factor / (epoch + 1) as f64)])?;
        trial.checkpoint((&vars, &seen))?;
    }
    trial.best("loss")"""


class Team:
    """A study in a database, the notebook that has begun it, and hosts that know nothing but the address and the token."""

    def __init__(self, kernel, folder, name):
        self.kernel, self.folder, self.name = kernel, folder, name
        self.url = f"sqlite:///{folder}/studies.db"
        self.token = study(kernel, name) / "token"

    def cell(self, epochs, most, *more, to=""):
        options = f"--objective loss:min --max-trials {most} --seed 6 --storage {self.url} --heartbeat 1s --publish {to}"
        return tune(BODY.replace("EPOCHS", str(epochs)), options, self.name, " ".join(more))

    def worker(self, *more, token=None, **variables):
        """Starts a worker with an empty home, and nothing of the toolchain on its path."""
        host = self.folder / "host"
        for name in ("home", "tmp"):
            (host / name).mkdir(parents=True, exist_ok=True)
        environment = {"HOME": str(host / "home"), "TMPDIR": str(host / "tmp"), "PATH": "/usr/bin:/bin", **variables}
        command = [FERROTUNE, "worker", "--storage", self.url, "--study", self.name, "--token", token or self.token, *more]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def left_behind(self):
        return [path.name for name in ("home", "tmp") for path in (self.folder / "host" / name).iterdir()]

    def trials(self):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return optuna.load_study(study_name=self.name, storage=self.url).trials

    def owners(self):
        return [trial.user_attrs["ferrotune:supervisor"] for trial in self.trials()]

    def of_workers(self, notebook, epochs):
        """Trials that run elsewhere than in the notebook, and have come so far."""
        running = [trial for trial in self.trials() if trial.state == TrialState.RUNNING]
        elsewhere = [trial for trial in running if trial.user_attrs["ferrotune:supervisor"]["id"] != notebook]
        return [trial for trial in elsewhere if len(trial.intermediate_values) > epochs]


@pytest.fixture
def team(kernel, tmp_path, request):
    kernel.ok("let factor = 0.25;")
    return Team(kernel, tmp_path, f"team-{request.node.name.split('[')[0][-24:]}")


def refused(worker):
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 1
    (line,) = said.splitlines()
    return line


def test_a_worker_without_anything_else_shares_a_study_with_a_notebook(team):
    cell = team.kernel.begin(team.cell(3, 20))
    wait_for(lambda: team.token.exists() and team.trials(), "trial of the notebook")
    assert team.token.stat().st_mode & 0o777 == 0o600
    worker = team.worker("--concurrency", "2")
    outcome = team.kernel.end_of(cell)
    _, said = worker.communicate(timeout=60)
    assert outcome.error is None and worker.returncode == 0, said
    assert said.splitlines()[-1] == "done"
    trials = team.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 20
    assert all(len(trial.intermediate_values) == 3 for trial in trials)
    ids = [owner["id"] for owner in team.owners()]
    assert len(set(ids)) == 2 and min(map(ids.count, set(ids))) >= 3
    assert "team" in outcome.display and "20/20 trials" in outcome.display
    assert team.left_behind() == []


def test_a_worker_that_is_told_to_stop_leaves_its_trials_and_their_checkpoints_to_others(team):
    cell = team.kernel.begin(team.cell(40, 3))
    wait_for(lambda: team.token.exists() and len(team.trials()) == 1, "trial of the notebook")
    notebook = team.owners()[0]["id"]
    worker = team.worker()
    wait_for(lambda: team.of_workers(notebook, 5), "trial of the worker with some epochs")
    number = team.of_workers(notebook, 5)[0].number
    worker.send_signal(signal.SIGTERM)
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "has the checkpoints of 1 trials that others go on with" in said, said
    outcome = team.kernel.end_of(cell)
    assert outcome.error is None
    trials = team.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    # Nothing was tried again: no retry was allowed, and the objective fails where its epochs are not those of the checkpoint.
    assert team.owners()[number]["id"] == notebook
    assert len(trials[number].intermediate_values) == 40
    assert not trials[number].user_attrs.get("ferrotune:retried")


def test_a_trial_of_a_worker_that_is_killed_goes_on_elsewhere(team):
    cell = team.kernel.begin(team.cell(30, 3, "--retries 1"))
    wait_for(lambda: team.token.exists() and len(team.trials()) == 1, "trial of the notebook")
    notebook = team.owners()[0]["id"]
    worker = team.worker()
    wait_for(lambda: team.of_workers(notebook, 3), "trial of the worker with some epochs")
    number = team.of_workers(notebook, 3)[0].number
    worker.kill()
    worker.wait()
    assert team.kernel.end_of(cell).error is None
    trial = team.trials()[number]
    assert [other.state for other in team.trials()] == [TrialState.COMPLETE] * 3
    assert len(trial.intermediate_values) == 30 and len(trial.user_attrs["ferrotune:retried"]) == 1
    assert team.owners()[number]["id"] == notebook
    # The next worker there removes what the dead one has left.
    assert len(team.left_behind()) == 1
    assert team.worker().wait(timeout=60) == 0
    assert team.left_behind() == []


def test_the_folder_of_a_dead_worker_stays_as_long_as_others_go_on_from_its_checkpoints(team):
    # Nobody takes the trial over meanwhile.
    cell = team.kernel.begin(team.cell(60, 2).replace("--heartbeat 1s", "--heartbeat 60s"))
    wait_for(lambda: team.token.exists() and len(team.trials()) == 1, "trial of the notebook")
    notebook = team.owners()[0]["id"]
    worker = team.worker()
    wait_for(lambda: team.of_workers(notebook, 5), "trial of the worker with some epochs")
    worker.kill()
    worker.wait()
    other = team.worker()
    said = other.stderr.readline()
    assert "stays: it has the checkpoints of 1 trials that others go on with" in said, said
    assert len(team.left_behind()) == 2
    other.kill()
    other.communicate()
    team.kernel.ask("interrupt_request", channel="control")
    team.kernel.end_of(cell)


def test_nothing_runs_that_the_studys_token_has_not_signed(team):
    team.kernel.ok(team.cell(1, 1))
    other = team.folder / "other"
    other.write_text("00" * 32)
    assert "is not signed with this token" in refused(team.worker(token=other))
    other.write_text("00" * 31)
    assert "has no token, which is 64 hexadecimal digits" in refused(team.worker(token=other))
    assert "cannot read" in refused(team.worker(token=team.folder / "none"))

    database = sqlite3.connect(team.folder / "studies.db")
    key = "SELECT value_json FROM study_user_attributes WHERE key = 'ferrotune:content'"
    ((signed,),) = database.execute(key).fetchall()

    def publish(text):
        with database:
            database.execute("UPDATE study_user_attributes SET value_json = ? WHERE key = 'ferrotune:content'", (text,))

    # A stranger who can write to the database names another entry point.
    assert "cpu" in signed
    publish(signed.replace("cpu", "cuda:0"))
    assert "is not signed with this token" in refused(team.worker())
    publish("17")
    assert "is not signed with this token" in refused(team.worker())
    publish(signed)
    with database:
        database.execute("UPDATE ferrotune_content SET bytes = zeroblob(length(bytes)) WHERE part = 0 AND length(bytes) < 4194304")
    assert "is damaged in its database; start its search again with --publish" in refused(team.worker())
    with database:
        database.execute("DELETE FROM ferrotune_content")
    assert "has nothing for workers, or not yet all of it" in refused(team.worker())
    assert team.left_behind() == []
    # The search that is started again mends all of it.
    team.kernel.ok(team.cell(1, 2))
    assert team.worker().wait(timeout=60) == 0


def test_a_study_that_nobody_has_published_and_one_without_a_database_say_so(team):
    line = refused(team.worker(token=write_token(team.folder)))
    assert "studies.db" in line
    options = "--objective loss:min --max-trials 1"
    team.kernel.ok(tune("Ok(x * factor)", f"{options} --storage {team.url}", team.name))
    line = refused(team.worker(token=write_token(team.folder)))
    assert line.endswith("has nothing for workers, or not yet all of it; start its search with --publish")
    error = team.kernel.fails(tune("Ok(x)", f"{options} --publish", "alone"))
    assert "--publish needs --storage URL" in error.error


def write_token(folder):
    token = folder / "token"
    token.write_text(os.urandom(32).hex())
    return token


def test_what_no_study_names_is_removed_from_the_database(team):
    team.kernel.ok(team.cell(1, 1))
    database = sqlite3.connect(team.folder / "studies.db")
    count = lambda: database.execute("SELECT COUNT(DISTINCT hash), SUM(LENGTH(bytes)) FROM ferrotune_content").fetchone()
    files, size = count()
    # The objective, Rust's library, the prelude, and what was captured.
    assert files == 4 and size > 10e6
    team.kernel.ok("let factor = 0.5;")
    team.kernel.ok(team.cell(2, 2).replace("--publish", "--publish --continue"))
    assert count()[0] == 4
    team.kernel.ok(tune("Ok(x)", f"--objective loss:min --max-trials 1 --storage {team.url} --overwrite", team.name))
    assert count()[0] == 0
