"""`%%tune --on` and `ferrotune worker --on`: workers of a study as processes of this machine, and as jobs of a real
Slurm, of a real Ray, and of what kubectl takes for Kubernetes."""

import os
import signal
import subprocess

import pytest
from optuna.trial import TrialState

from session import FERROTUNE, wait_for
from test_tune import study, tune
from test_workers import Team


@pytest.fixture(params=["local", "slurm", "kubernetes"])
def engine(request):
    """The text of a launcher, and the variables that it needs."""
    if request.param == "ray":
        return request.getfixturevalue("ray_head"), {"NO_PROXY": "127.0.0.1"}
    if request.param == "kubernetes":
        return "kubernetes:image=none", request.getfixturevalue("kubernetes")[0]
    return request.param, request.getfixturevalue("slurm_cluster") if request.param == "slurm" else {}


@pytest.fixture
def team(kernel, tmp_path, engine, request):
    kernel.ok("let factor = 0.25;")
    return Team(kernel, tmp_path, f"on-{engine[0].split(':')[0]}-{request.node.name[5:20]}")


def place(team, engine, *more):
    """Places workers; their files are in a folder of their own."""
    launcher, variables = engine
    folder = team.folder / "shared"
    folder.mkdir(exist_ok=True)
    command = [FERROTUNE, "worker", "--storage", team.url, "--study", team.name, "--directory", folder, "--on", launcher]
    command += more if "--token" in more else ["--token", team.token, *more]
    return subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)


def left_behind(team):
    return [path.name for path in (team.folder / "shared").iterdir() if path.name != "logs"]


def test_placed_workers_share_a_study_with_a_notebook(team, engine):
    cell = team.kernel.begin(team.cell(30, 8))
    wait_for(lambda: team.token.exists() and team.trials(), "trial of the notebook")
    placed = place(team, engine, "--workers", "2", "--cpus", "1")
    outcome = team.kernel.end_of(cell)
    _, said = placed.communicate(timeout=90)
    assert outcome.error is None and placed.returncode == 0, said
    assert said.count(": runs") == 2 and said.count(": done") == 2, said
    assert [trial.state for trial in team.trials()] == [TrialState.COMPLETE] * 8
    assert len({owner["id"] for owner in team.owners()}) == 3
    assert left_behind(team) == []
    # Kubernetes keeps them itself.
    logs = [path.read_text() for path in team.folder.glob("shared/logs/*")]
    assert len(logs) == (0 if engine[0].startswith("kubernetes") else 2) and all(log.endswith("done\n") for log in logs), logs


def test_workers_that_are_cancelled_leave_their_trials_to_others(team, engine):
    cell = team.kernel.begin(team.cell(60, 3))
    wait_for(lambda: team.token.exists() and len(team.trials()) == 1, "trial of the notebook")
    notebook = team.owners()[0]["id"]
    placed = place(team, engine, "--workers", "2")
    wait_for(lambda: team.of_workers(notebook, 5), "trial of a worker with some epochs")
    placed.send_signal(signal.SIGINT)
    _, said = placed.communicate(timeout=60)
    assert placed.returncode == 1 and "the workers are cancelled" in said, said
    assert team.kernel.end_of(cell).error is None
    trials = team.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    assert all(len(trial.intermediate_values) == 60 for trial in trials)
    assert {owner["id"] for owner in team.owners()} == {notebook}


def on(team, engine, cell, *more):
    """The cell with its trials on an engine."""
    launcher, variables = engine
    for name, value in variables.items():
        team.kernel.ok(f"%env {name}={value}")
    line, body = cell.split("\n", 1)
    return " ".join([line.replace("--publish", f"--on {launcher}"), *more]) + "\n" + body


def workers(team):
    return study(team.kernel, team.name) / "workers"


@pytest.mark.parametrize("engine", ["local", "slurm", "ray", "kubernetes"], indirect=True)
def test_a_cell_has_its_trials_run_on_an_engine(team, engine):
    cell = team.kernel.begin(on(team, engine, team.cell(20, 8), "--workers 3 --cpus 1 --memory 1GiB"))
    wait_for(lambda: team.token.exists() and len(team.of_workers(None, 1)) >= 2, "trials of two workers")
    outcome = team.kernel.end_of(cell)
    assert outcome.error is None, outcome.error
    assert "8/8 trials" in outcome.display and ", done" in outcome.display, outcome.display
    assert any("running" in display and "epoch" in display and "workers: " in display for display in outcome.displays)
    assert [trial.state for trial in team.trials()] == [TrialState.COMPLETE] * 8
    folders = {owner["folder"] for owner in team.owners()}
    assert len(folders) >= 2 and all(folder.startswith(f"{workers(team)}/ferrotune-worker-") for folder in folders), folders
    assert {path.name for path in workers(team).iterdir()} <= {"logs"}
    again = team.kernel.run(on(team, engine, team.cell(20, 8), "--workers 3"))
    assert again.error is None and "8/8 trials" in again.display, again
    # No trial is left, so no worker is placed.
    assert not any("workers: " in display for display in again.displays), again


def test_an_interrupted_cell_cancels_its_workers_and_goes_on_where_they_were(team, engine):
    cell = on(team, engine, team.cell(50, 2), "--workers 2")
    interrupted = team.kernel.interrupt_when(cell, lambda: team.token.exists() and team.of_workers(None, 10), "trial with some epochs")
    assert interrupted.error.startswith("Interrupted: "), interrupted.error
    assert list(workers(team).glob("ferrotune-worker-*")), "no checkpoint is kept"
    # The objective fails where its epochs are not those of the checkpoint.
    begun = max(len(trial.intermediate_values) for trial in team.trials())
    assert 10 < begun < 50 and team.kernel.run(cell).error is None
    trials = team.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2
    assert all(len(trial.intermediate_values) == 50 and not trial.user_attrs.get("ferrotune:retried") for trial in trials)


def test_a_cell_whose_workers_fail_says_why(team, engine):
    wrong = team.folder / "wrong"
    wrong.write_text("00" * 32)
    url = f"--objective loss:min --max-trials 9 --storage {team.url} --publish"
    failed = team.kernel.run(on(team, engine, tune('if x >= 0.0 { return Err("no data".into()); } Ok(x)', url, team.name)))
    assert "all workers have failed: worker " in failed.error and "no data" in failed.error, failed.error
    refused = team.kernel.run(on(team, ("slurm:partition=none", engine[1]), team.cell(1, 9)))
    assert "`sbatch`" in refused.error, refused.error
    for launcher, more, reason in [
        ("ray:http://127.0.0.1:1", [], "Ray does not answer at http://127.0.0.1:1"),
        ("local", ["--token", wrong], "is not signed with this token"),
    ]:
        placed = place(team, (launcher, {"NO_PROXY": "*"}), *more)
        _, said = placed.communicate(timeout=60)
        assert placed.returncode == 1 and reason in said, said


def test_no_worker_is_placed_by_a_launcher_or_for_a_study_that_is_not_there(tmp_path):
    token = tmp_path / "token"
    token.write_text("00" * 32)
    command = [FERROTUNE, "worker", "--storage", f"sqlite:///{tmp_path}/none", "--study", "it", "--token", token, "--directory", tmp_path]
    for launcher, reason in [
        ("pbs", "there is no launcher `pbs`; use local, slurm"),
        ("local", f"storage sqlite:///{tmp_path}/none: unable to open database file"),
    ]:
        ran = subprocess.run([*command, "--on", launcher], env={"PATH": "", "NO_PROXY": "*"}, capture_output=True, text=True)
        assert ran.returncode == 1 and reason in ran.stderr, ran.stderr
