"""Runs the program that calls candle, again where a case ends its process."""

import json
import os
import pathlib
import subprocess
import sysconfig
import tempfile

from differences.case import Outcome, read, write
from differences.place import TARGET

PROGRAM = TARGET / "release/ferrotune-numbers"
PACKAGED = pathlib.Path(sysconfig.get_path("purelib"), "fastatomstruct_xla_cpu/libpjrt_cpu.so")
PLUGIN = os.environ.get("FERROTUNE_XLA_CPU", str(PACKAGED))
# Programs of an earlier run are loaded: the values of a seed are arguments of a program, not part of it.
CACHE = TARGET / "numbers/xla"
TIMEOUT_S = 300
MODES = ("cpu", "lazy", "compiled")


def texts():
    """The Rust text of each operation of the program."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "texts.json")
        subprocess.run([PROGRAM, "texts", file], check=True)
        return json.loads(file.read_text())


def outcomes(cases, mode):
    """What becomes of each case on a device."""
    found = [None] * len(cases)
    left = list(range(len(cases)))
    while left:
        done, died, reason = run([cases[place] for place in left], mode)
        for number, outcome in done.items():
            found[left[number]] = outcome
        # A batch of the plugin begins all its cases; each of them then runs alone.
        for number in died if len(died) == 1 else ():
            found[left[number]] = Outcome(panic=f"the process ended: {reason}")
        if len(died) > 1:
            for number in died:
                alone, dead, reason = run([cases[left[number]]], mode)
                found[left[number]] = Outcome(panic=f"the process ended: {reason}") if dead else alone[0]
        assert done or died, reason
        left = [place for place in left if found[place] is None]
    return found


def run(cases, mode):
    """Outcomes of one process, the cases that it did not survive, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="numbers", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        write(folder, cases, mode)
        command = [PROGRAM, mode, folder]
        if mode != "cpu":
            CACHE.mkdir(parents=True, exist_ok=True)
            command += [PLUGIN, CACHE]
        # A backtrace of each error would take longer than the cases.
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "RUST_BACKTRACE": "0"}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
        if not pathlib.Path(folder, "results.json").exists():
            raise RuntimeError(ran.stderr)
        done, died = read(folder)
        # The values are in a file that is about to go.
        for outcome in done.values():
            for arrays in (outcome.results, outcome.gradients):
                if arrays is not None:
                    arrays[:] = [None if array is None else array.copy() for array in arrays]
        if ran.returncode == 0:
            died = set()
        elif not died:
            raise RuntimeError(ran.stderr)
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        return done, died, f"status {ran.returncode} {last}"
