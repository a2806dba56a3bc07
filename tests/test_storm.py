"""All faults of a machine and its users at the same time as a search: foreign files in /dev/shm and beside the mirror,
Optuna's trials in its journal, read errors on checkpoints, a full disk, kills. The search touches no foreign file
and loses nothing that it has recorded.

The objective writes what it has reported into files outside the study, and the study must have the same.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from session import is_alive, wait_for
from test_resume import program, supervisor_of
from test_tune import tune

# Number of kills of the supervisor or of one of its workers, each at a random time.
ROUNDS = int(os.environ.get("FERROTUNE_STORM_ROUNDS", "4"))
# Several runs of this test may share a machine.
PROJECT = f"storm-{os.getpid()}"
SEED = os.environ.get("FERROTUNE_STORM_SEED", str(time.time_ns()))
TRIALS = max(20, 3 * ROUNDS)
EPOCHS = 6
ENQUEUED = [0.125, 0.375, 0.625]
# Input and output error.
EIO = 5
# Enough for the study's copy of the prelude and for some checkpoints.
DISK_BYTES = 192 << 20
FAULTS = pathlib.Path(__file__).parent / "faulty_files.c"

# The trial writes each line after the call that the line describes has returned.
BODY = """let told = format!("{TOLD}/{}", trial.number());
    let tell = |line: String| -> std::io::Result<()> {
        use std::io::Write;
        writeln!(std::fs::OpenOptions::new().create(true).append(true).open(&told)?, "{line}")
    };
    let vars = candle_nn::VarMap::new();
    let start = candle_nn::Init::Const(0.0);
    vars.get(16, "weights", start, candle_core::DType::F32, &candle_core::Device::Cpu)?;
    let mut seen: Vec<u64> = Vec::new();
    trial.restore((&vars, &mut seen))?;
    tell(format!("begins {} {x}", seen.len()))?;
    for epoch in trial.epochs(EPOCHS) {
        if seen.len() != epoch { return Err(format!("{} epochs seen at epoch {epoch}", seen.len()).into()); }
        seen.push(epoch as u64);
        std::thread::sleep(std::time::Duration::from_millis(60));
        trial.report(epoch, [("loss", x + 1.0 / (epoch + 1) as f64)])?;
        tell(format!("reported {epoch} {}", x + 1.0 / (epoch + 1) as f64))?;
        trial.checkpoint((&vars, &seen))?;
        tell(format!("kept {}", epoch + 1))?;
    }
    trial.best("loss")"""


class Foreign:
    """Foreign files: created while the search runs, and compared after its end."""

    def __init__(self, drive):
        self.files = {}
        self.ended = threading.Event()
        chapters = ["thesis/chapter-1.tex", "thesis/figures/plot.svg", "notes.txt", "other-study/journal.log"]
        for name in chapters:
            (drive / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(drive / name)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def write(self, path):
        path.write_bytes(random.randbytes(2000))
        self.files[path] = hashlib.sha256(path.read_bytes()).digest()

    def run(self):
        number = 0
        while not self.ended.wait(0.02):
            number += 1
            self.write(pathlib.Path(f"/dev/shm/foreign-{os.getpid()}-{number}"))

    def end(self):
        """Stops, and returns the files that are missing or changed."""
        self.ended.set()
        self.thread.join()
        digests = {path: hashlib.sha256(path.read_bytes()).digest() if path.exists() else None for path in self.files}
        for path in self.files:
            if path.parent == pathlib.Path("/dev/shm"):
                path.unlink(missing_ok=True)
        return [path for path, digest in self.files.items() if digests[path] != digest]


@pytest.fixture
def disk(tmp_path):
    """A small disk; if this user may not mount one, a folder of the large disk, which is never full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True).returncode == 0
    yield folder, mounted
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """One in 29 reads of checkpoints fails, in all processes that the test starts; a file counts the failures."""
    library = tmp_path / "faulty_files.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, FAULTS, "-ldl"], check=True)
    faults = {"PATH": ".safetensors", "CALLS": "open,read", "ERRNO": str(EIO), "EVERY": "29", "SPREAD": "1"}
    faults["LOG"] = str(tmp_path / "failed-reads")
    for name, value in faults.items():
        monkeypatch.setenv(f"FAULTY_{name}", value)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return tmp_path / "failed-reads"


def storage(folder):
    return JournalStorage(JournalFileBackend(str(folder / "journal.log")))


def resume(folder):
    """Starts `ferrotune resume`."""
    command = [program(), "resume", str(folder), "--max-trials", str(TRIALS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def workers(folder):
    """Process ids of the trials of the study."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"FERROTUNE_TRIAL={folder.name}/".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            pass  # It has left.
    return found


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has left.


def has_checkpoint(told):
    """Whether a trial has saved a checkpoint and still has more than half of its epochs to run."""
    last = [file.read_text().splitlines()[-1:] for file in told.iterdir()]
    return any(line == [f"kept {epochs}"] for line in last for epochs in range(1, EPOCHS // 2))


def check_told(told, folder):
    """The study has all that its trials have recorded, and no trial resumed from before a saved checkpoint."""
    reports = {}
    for line in (folder / "journal.log").read_text().splitlines():
        line = json.loads(line)
        if line["op_code"] == 7:
            reports.setdefault(line["trial_id"], {})[line["step"]] = line["intermediate_value"]
    resumed = 0
    for file in told.iterdir():
        number, kept, drawn = int(file.name), 0, set()
        for line in file.read_text().splitlines():
            match line.split():
                case ["begins", epochs, x]:
                    assert int(epochs) >= kept, (number, file.read_text())
                    resumed += int(epochs) > 0
                    drawn.add(x)
                case ["reported", step, value]:
                    assert reports[number][int(step)] == float(value), (number, line)
                case ["kept", epochs]:
                    kept = int(epochs)
        assert len(drawn) == 1, f"trial {number} had more than one x: {drawn}"
    assert resumed, "no trial has gone on from a checkpoint: the test has not tested it"


def test_nothing_is_lost_or_touched_when_everything_happens_at_once(tmp_path, disk, faulty, start):
    print(f"FERROTUNE_STORM_SEED={SEED}")
    random.seed(SEED)
    (disk, is_small), drive, told = disk, tmp_path / "drive", tmp_path / "told"
    told.mkdir()
    drive.mkdir()
    foreign, kills = Foreign(drive), 0
    folder = disk / PROJECT
    body = BODY.replace("{TOLD}", str(told)).replace("EPOCHS", str(EPOCHS))
    options = f"--objective loss:min --max-trials {TRIALS} --seed 4 --concurrency 2 --retries 20 --keep-best 100"
    places = f"--background --directory {disk} --mirror {drive} --max-consecutive-failures 100"
    session = start()
    try:
        session.ok_in_background(tune(body, options, PROJECT, places))
        wait_for(lambda: any(told.iterdir()), "trial that was told something")
        study = optuna.load_study(study_name=None, storage=storage(folder))
        for x in ENQUEUED:
            study.enqueue_trial({"x": x}, user_attrs={"enqueued": x})
        for round in range(ROUNDS):
            time.sleep(random.uniform(0.2, 1.0))
            filler = disk / "filler"
            if is_small and round % 2 == 1:
                fill(filler)
                time.sleep(0.3)
            if round == 0:
                wait_for(lambda: has_checkpoint(told), "trial that can go on from a checkpoint")
            supervisor = supervisor_of(folder)
            running = workers(folder)
            kills += is_alive(supervisor) if round % 2 == 0 else len(running[:1])
            kill([supervisor] if round % 2 == 0 else running[:1])
            filler.unlink(missing_ok=True)
            wait_for(lambda: not is_alive(supervisor) or workers(folder), "supervisor's end")
            if not is_alive(supervisor):
                search = resume(folder)
                wait_for(lambda: search.poll() is not None or supervisor_of(folder) == search.pid, "search")
        wait_for(lambda: not is_alive(supervisor_of(folder)), "end of the search", seconds=120)
        for attempt in range(10):
            last = resume(folder)
            words, _ = last.communicate(timeout=120)
            if last.returncode == 0:
                break
        assert last.returncode == 0, words
    finally:
        touched = foreign.end()
        kill([supervisor_of(folder)] if workers(folder) else [])
    assert touched == []
    assert faulty.exists(), "no read has failed: the test has not tested it"
    assert kills >= ROUNDS // 2, f"{kills} kills of {ROUNDS} met a process"
    check_told(told, folder)
    study = optuna.load_study(study_name=None, storage=storage(folder))
    for x in ENQUEUED:
        trials = [trial for trial in study.trials if trial.user_attrs.get("enqueued") == x]
        assert [trial.params.get("x") for trial in trials] == [x], trials
    assert workers(folder) == []
    finished = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert len(finished) == len(study.trials) >= TRIALS, [trial.state for trial in study.trials]


def fill(path):
    """Fills a disk."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
