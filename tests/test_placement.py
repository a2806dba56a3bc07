"""`ferrotune worker --on LAUNCHER`: workers of a study as processes of this machine, and as jobs of a real Slurm."""

import os
import signal
import subprocess

import pytest
from optuna.trial import TrialState

from session import FERROTUNE, wait_for
from test_workers import Team


@pytest.fixture(params=["local", "slurm"])
def engine(request):
    return request.param, request.getfixturevalue("slurm_cluster") if request.param == "slurm" else {}


@pytest.fixture
def team(kernel, tmp_path, engine, request):
    kernel.ok("let factor = 0.25;")
    return Team(kernel, tmp_path, f"on-{engine[0]}-{request.node.name[5:20]}")


def place(team, engine, *more):
    """Places workers; their files are in a folder of their own."""
    launcher, variables = engine
    folder = team.folder / "shared"
    folder.mkdir(exist_ok=True)
    command = [FERROTUNE, "worker", "--storage", team.url, "--study", team.name, "--token", team.token]
    command += ["--directory", folder, "--on", launcher, *more]
    return subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)


def left_behind(team):
    return [path.name for path in (team.folder / "shared").iterdir() if path.name != "logs"]


def test_placed_workers_share_a_study_with_a_notebook(team, engine):
    cell = team.kernel.begin(team.cell(30, 8))
    wait_for(team.token.exists, "token of the study")
    placed = place(team, engine, "--workers", "2", "--cpus", "1")
    outcome = team.kernel.end_of(cell)
    _, said = placed.communicate(timeout=90)
    assert outcome.error is None and placed.returncode == 0, said
    assert said.count(": runs") == 2 and said.count(": done") == 2, said
    assert [trial.state for trial in team.trials()] == [TrialState.COMPLETE] * 8
    assert len({owner["id"] for owner in team.owners()}) == 3
    assert left_behind(team) == []
    logs = [path.read_text() for path in (team.folder / "shared/logs").iterdir()]
    assert len(logs) == 2 and all(log.endswith("done\n") for log in logs), logs


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


def test_a_launcher_that_is_not_there_says_so(tmp_path):
    token = tmp_path / "token"
    token.write_text("00" * 32)
    command = [FERROTUNE, "worker", "--storage", "sqlite:///none", "--study", "it", "--token", token, "--directory", tmp_path]
    for launcher, reason in [
        ("pbs", "there is no launcher `pbs`; use local, slurm"),
        ("slurm", "`sbatch` is not on PATH"),
        ("ray:http://127.0.0.1:1", "Ray does not answer at http://127.0.0.1:1"),
    ]:
        ran = subprocess.run([*command, "--on", launcher], env={"PATH": "", "NO_PROXY": "*"}, capture_output=True, text=True)
        assert ran.returncode == 1 and reason in ran.stderr, ran.stderr
