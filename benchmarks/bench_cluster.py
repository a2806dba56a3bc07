"""Several processes that train or search together: all-reduce beside OpenMPI's, and trials per second of searches of one study in
PostgreSQL beside Optuna's. `cargo xtask bench all-reduce` and `cargo xtask bench studies` prepare and call it."""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import optuna
import sqlalchemy

import debian
import postgresql
from session import TARGET
from session import free_port

PROGRAM = TARGET / "release/examples/scenarios"
MESH = TARGET / "release/examples/all_reduce"
ROUNDS = 3
LARGE = 100_000
THEIRS = """
import os, pathlib, sys, time, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="nothing", storage=sys.argv[1], sampler=optuna.samplers.RandomSampler())
folder = pathlib.Path(sys.argv[3])
(folder / f"ready-{os.getpid()}").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
callback = optuna.study.MaxTrialsCallback(int(sys.argv[2]), states=None)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), callbacks=[callback])
"""


# A program of ours starts in milliseconds.
OURS = 'touch "$2/ready-$$"; while [ ! -e "$2/go" ]; do sleep 0.02; done; exec "$0" nothing "$1"'


def trials_per_second(commands, environment, storage, folder):
    """From the first trial's beginning to the last one's end, of processes that begin when the last one is ready."""
    programs = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for command in commands]
    while len(list(folder.glob("ready-*"))) < len(programs):
        time.sleep(0.02)
    (folder / "go").touch()
    assert [program.wait() for program in programs] == [0] * len(programs)
    trials = optuna.load_study(study_name="nothing", storage=storage).trials
    assert all(trial.state == optuna.trial.TrialState.COMPLETE for trial in trials)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    began = min(trial.datetime_start for trial in trials)
    ended = max(trial.datetime_complete for trial in trials)
    return len(trials) / (ended - began).total_seconds()


def measure(home, trials, processes, is_ours):
    ours, theirs = postgresql.addresses(home, f"bench_{time.time_ns()}")
    optuna.create_study(study_name="nothing", storage=theirs)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "STORAGE": ours, "TRIALS": str(trials)}
        commands = [["sh", "-c", OURS, PROGRAM, f"{folder}/{process}", folder] for process in range(processes)]
        if not is_ours:
            commands = [[sys.executable, "-c", THEIRS, theirs, str(trials), folder]] * processes
        return trials_per_second(commands, environment, theirs, pathlib.Path(folder))


def large_study(home):
    """Seconds in which a program opens a study of many trials and adds one, of ours and of Optuna's."""
    ours, theirs = postgresql.addresses(home, "large")
    storage = optuna.storages.RDBStorage(theirs)
    optuna.create_study(study_name="nothing", storage=storage)
    distribution = optuna.distributions.distribution_to_json(optuna.distributions.FloatDistribution(0, 1))
    with storage.engine.begin() as connection:
        for statement in (
            f"INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete) SELECT n, 1, 'COMPLETE', now(), now() FROM generate_series(0, {LARGE - 1}) n",
            "INSERT INTO trial_values (trial_id, objective, value, value_type) SELECT trial_id, 0, random(), 'FINITE' FROM trials",
            f"INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) SELECT trial_id, name, random(), '{distribution}' FROM trials, (VALUES ('x'), ('y')) names(name)",
        ):
            connection.execute(sqlalchemy.text(statement))
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "go").touch()
        environment = {**os.environ, "STORAGE": ours}
        for round in range(ROUNDS):
            added = LARGE + 2 * round
            commands = ([PROGRAM, "nothing", f"{folder}/{round}"], [sys.executable, "-c", THEIRS, theirs, str(added + 2), folder])
            for command, trials in zip(commands, (added + 1, added + 2), strict=True):
                begin = time.monotonic()
                subprocess.run(command, env={**environment, "TRIALS": str(trials)}, stdout=subprocess.DEVNULL, check=True)
                seconds.append(time.monotonic() - begin)
                assert len(storage.get_all_trials(1, deepcopy=False)) == trials
    return statistics.median(seconds[::2]), statistics.median(seconds[1::2])


def mpi():
    """The program that sums with OpenMPI, compiled; Debian's packages are installed if that is possible."""
    if not shutil.which("mpicc"):
        if reason := debian.install("openmpi-bin", "libopenmpi-dev", "gcc"):
            raise RuntimeError(reason)
    program = TARGET / "tmp/all_reduce"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["mpicc", "-O2", pathlib.Path(__file__).with_name("all_reduce.c"), "-o", program], check=True)
    return program


def all_reduce(program, processes, size, rounds, transport):
    """The median seconds in which processes reduce so many bytes; `transport` is OpenMPI's, or none for Ferrotune's mesh."""
    if transport:
        options = ["--allow-run-as-root", "--oversubscribe", "--mca", "btl", f"self,{transport}", "-n", str(processes)]
        ran = subprocess.run(["mpirun", *options, program, str(size), str(rounds)], capture_output=True, text=True, check=True)
        return statistics.median(map(float, ran.stdout.split()))
    workers = [f"127.0.0.1:{free_port()}" for _ in range(processes)]
    commands = [[MESH, str(index), str(size), str(rounds), *workers] for index in range(processes)]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    printed = [program.communicate()[0] for program in programs]
    assert all(program.returncode == 0 for program in programs)
    return statistics.median(map(float, printed[0].split()))


def reductions(program):
    for size, rounds in ((1_000_000, 300), (100_000_000, 11)):
        for processes in (2, 4):
            turns = [[all_reduce(program, processes, size, rounds, transport) for transport in (None, "tcp", "vader")] for _ in range(ROUNDS)]
            ours, tcp, shared = (1e3 * statistics.median(column) for column in zip(*turns))
            row = f"| {size // 1_000_000} MB | {processes} | {ours:.2f} ms | {tcp:.2f} ms | {shared:.2f} ms | {tcp / ours:.2f} | {shared / ours:.2f} |"
            print(row, flush=True)
            yield row


def searches():
    with postgresql.server("-c", "max_connections=300") as home:
        for count, trials in ((1, 300), (8, 320), (64, 320)):
            found = [[measure(home, trials, count, is_ours) for is_ours in (True, False)] for _ in range(ROUNDS)]
            ours, theirs = (statistics.median(column) for column in zip(*found))
            row = f"| {count} | {trials} | {ours:.0f} | {theirs:.1f} | {ours / theirs:.1f} |"
            print(row, flush=True)
            yield row
        ours, theirs = large_study(home)
        yield f"""
A study of {LARGE:,} trials with two parameters: a program opens it, adds a trial and ends in {ours:.1f} s with Ferrotune, and in {theirs:.1f} s
with Optuna, {theirs / ours:.1f} times as long. The median of {ROUNDS} programs each."""


def all_reduce_table():
    program = mpi()
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0].split()[-1]
    return f"""`Replica::all_reduce_mean` of f32, the median of 300 rounds of 1 MB and of 11 of 100 MB, beside `MPI_Allreduce` of OpenMPI {version} over TCP and
over shared memory, which only processes of one machine have. The programs take turns; a figure is the median of {ROUNDS} turns. A ratio above 1 is how
many times as fast the mesh is. It sums in double precision and in one order, so that the result is the same in every bit on all workers.

| values | processes | mesh | OpenMPI, TCP | OpenMPI, shared memory | ratio to TCP | ratio to shared memory |
|---|---|---|---|---|---|---|
{chr(10).join(reductions(program))}
"""


def studies_table():
    return f"""Trials per second of all processes together, from the first one's beginning to the last one's end, with two parameters drawn at random; PostgreSQL on
the same machine, Optuna {optuna.__version__}. The programs take turns; a figure is the median of {ROUNDS} turns. The goal with 64 processes is a ratio of 5.

| processes | trials | ferrotune, trials/s | Optuna, trials/s | ratio |
|---|---|---|---|---|
{chr(10).join(searches())}
"""


TABLES = {"all-reduce": all_reduce_table, "studies": studies_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    text = TABLES[arguments.table]()
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)


main()
