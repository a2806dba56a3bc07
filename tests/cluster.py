"""A study in PostgreSQL with a notebook and workers, whose trials write down what they report, and the check of what the study has at
the end against what was acknowledged."""

import collections
import dataclasses
import itertools
import os
import pathlib
import queue
import re
import signal
import subprocess
import time

import optuna
from optuna.trial import TrialState

from front_end import IDLE
from session import FERROTUNE, Outcome, is_alive, wait_for
from test_tune import study, tune

# Every process of a trial reports values of its own. Some trials go on from their checkpoints, the others begin again. A process
# writes down that it asks before each report. Once its report has returned, and its checkpoint if it keeps any, it writes down that the
# value is acknowledged: a process whose trial is another one's by then does not come so far.
BODY = """use std::io::Write as _;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let process = u64::from(std::process::id()) * 1_000_000 + u64::from(now.subsec_micros());
    let note = |what: &str, epoch: usize, value: f64| -> std::io::Result<()> {
        let line = format!("{what} {} {epoch} {value} {process}\\n", trial.number());
        std::fs::OpenOptions::new().append(true).create(true).open("LOG")?.write_all(line.as_bytes())
    };
    let vars = candle_nn::VarMap::new();
    vars.get(1, "count", candle_nn::Init::Const(0.0), candle_core::DType::F32, &candle_core::Device::Cpu)?;
    let keeps = KEEPS;
    let mut seen: Vec<u64> = Vec::new();
    if keeps { trial.restore((&vars, &mut seen))?; }
    while seen.len() < EPOCHS {
        let epoch = seen.len();
        seen.push(process);
        let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
        if !std::path::Path::new("HURRY").exists() { pause(); }
        while std::path::Path::new("HOLD").exists() { pause(); }
        let value = (process * 100 + epoch as u64) as f64;
        note("asked", epoch, value)?;
        trial.report(epoch, [("loss", value)])?;
        if keeps { trial.checkpoint((&vars, &seen))?; }
        note("acknowledged", epoch, value)?;
    }
    trial.best("loss")"""


@dataclasses.dataclass
class Report:
    """A call of `trial.report`. Its place is that of the line which was written before it."""

    place: int
    trial: int
    epoch: int
    value: float
    process: int
    is_acknowledged: bool = False

    @property
    def pid(self):
        return self.process // 1_000_000


def reports(text):
    """The reports that trials have written down, in the order in which they have begun. A last line may be half written."""
    found, asked = [], {}
    for place, line in enumerate(text.split("\n")[:-1]):
        what, trial, epoch, value, process = line.split()
        if what == "asked":
            found.append(Report(place, int(trial), int(epoch), float(value), int(process)))
            asked[process, epoch] = found[-1]
        else:
            asked[process, epoch].is_acknowledged = True
    return found


def faults_of(reported, values, epochs):
    """What is wrong with a study whose trials have these values by epoch; an empty list where nothing is.

    A trial has one owner after the other. So the reports that were acknowledged, in the order in which they have begun, are those of
    one process after the other: a process that has lost its trial has none that began after the next one's first. The order of the
    answers would be another one: an answer may be on its way for as long as the network is cut, and the value is in the database."""
    wrong = []
    of_trial = collections.defaultdict(list)
    for report in reported:
        of_trial[report.trial].append(report)
    for trial, held in enumerate(values):
        owners = [process for process, _ in itertools.groupby(r.process for r in of_trial[trial] if r.is_acknowledged)]
        if len(owners) != len(set(owners)):
            wrong.append(f"trial {trial} was another process's in between: {owners}")
        if set(held) != set(range(epochs)):
            wrong.append(f"trial {trial} has the epochs {sorted(held)}")
        for epoch, value in held.items():
            known = [report for report in of_trial[trial] if report.epoch == epoch]
            last = max((report.place for report in known if report.is_acknowledged), default=0)
            # One that began later may be in the study, though its process was killed before it heard of it.
            if value not in [report.value for report in known if report.place >= last]:
                wrong.append(f"epoch {epoch} of trial {trial} is not what was acknowledged last: {value}, {known}")
    return wrong


class Cell:
    """A cell whose messages are read while others wait, so that there are never too many of them."""

    def __init__(self, team, code):
        self.team, self.kernel = team, team.kernel
        self.is_over, self.is_claimed = False, False
        self.msg_id = self.kernel.begin(code)
        self.outcome = Outcome(self.msg_id)

    def read(self, seconds):
        """Reads for so long, or to the cell's end."""
        end = time.monotonic() + seconds
        while not self.is_over and (left := end - time.monotonic()) > 0:
            try:
                message = self.kernel.next_published(self.msg_id, left)
            except queue.Empty:
                return
            said = (message["msg_type"], message["content"])
            self.outcome.add(*said)
            self.is_over = said == IDLE

    def end(self, seconds=300):
        self.read(seconds)
        assert self.is_over, f"the cell has not ended after {seconds} s: {self.outcome.display}"
        if not self.is_claimed:
            self.kernel.reply(self.msg_id)
            self.is_claimed = True
        return self.outcome

    def kill(self):
        """Ends the search, if it has not ended yet. It may be about to begin."""
        while not self.is_over:
            for pid in self.team.notebook():
                os.kill(pid, signal.SIGKILL)
            self.read(0.2)
        self.end()


class Worker:
    """A process `ferrotune worker` with a home and a directory of its own."""

    def __init__(self, team, name, url, before=(), more=(), directory=None, environment={}):
        self.name, folder = name, team.folder / name
        self.directory = directory or folder / "directory"
        for path in (folder / "home", folder / "tmp", self.directory):
            path.mkdir(parents=True, exist_ok=True)
        variables = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "PATH": "/usr/bin:/bin", **environment}
        command = [FERROTUNE, "worker", "--storage", url, "--study", team.name, "--token", team.token, "--directory", self.directory]
        self.errors = folder / "errors"
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen([*before, *command, *more], env=variables, stderr=errors)
        self.pid = self.process.pid

    def said(self):
        return self.errors.read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, seconds=120):
        """Waits for its end, which is that of the study."""
        assert self.process.wait(timeout=seconds) == 0, self.said()
        assert self.said().splitlines()[-1] == "done", self.said()


class Team:
    """The study, the notebook that has begun it, and its workers, which end with the context."""

    def __init__(self, kernel, folder, name, addresses):
        self.kernel, self.folder, self.name = kernel, folder, name
        self.url, self.theirs = addresses
        self.token = study(kernel, name) / "token"
        # Trials take no time while the one file is there, and all the time while the other one is.
        self.log, self.hurry_file, self.hold_file = folder / "log", folder / "hurry", folder / "hold"
        self.log.touch()
        self.workers, self.cells = [], []

    def __enter__(self):
        return self

    def __exit__(self, *failed):
        for worker in self.workers:
            worker.kill()
        for cell in self.cells:
            cell.kill()

    def code(self, epochs, most, heartbeat="1s", keeps="trial.number() % 2 == 0"):
        """The cell; no trial ends because it was tried too often."""
        self.epochs, self.most = epochs, most
        words = {"EPOCHS": epochs, "KEEPS": keeps, "LOG": self.log, "HURRY": self.hurry_file, "HOLD": self.hold_file}
        body = re.sub("|".join(words), lambda word: str(words[word[0]]), BODY)
        options = f"--objective loss:min --oracle random --max-trials {most} --seed 6 --retries 10000 --storage {self.url}"
        return tune(body, f"{options} --publish --heartbeat {heartbeat}", self.name)

    def run(self, code):
        """Begins a cell."""
        self.cells.append(Cell(self, code))
        return self.cells[-1]

    def begin(self, epochs, most, **options):
        """Begins the cell; returns it once its study is published and a trial has an epoch."""
        cell = self.run(self.code(epochs, most, **options))
        deadline = time.monotonic() + 120
        while not (self.token.exists() and self.log.read_text()):
            cell.read(0.1)
            assert not cell.is_over and time.monotonic() < deadline, cell.outcome
        return cell

    def worker(self, name, url=None, **options):
        worker = Worker(self, name, url or self.url, **options)
        self.workers.append(worker)
        return worker

    def notebook(self):
        """The supervisor of the notebook's search, in a list; an empty one where it does not run."""
        return [pid for pid in children(self.kernel.manager.provisioner.pid) if is_supervisor(pid)]

    def reports(self):
        return reports(self.log.read_text())

    def running(self, pid, epochs=2):
        """The reports of the trial that a supervisor runs now, once so many of them are acknowledged; else an empty list."""
        running = set(children(pid))
        found = [report for report in self.reports() if report.pid in running and report.is_acknowledged]
        # One that is about to end would be no victim of a fault.
        return found if epochs <= len(found) < self.epochs - 2 else []

    def wait_for_epochs(self, pid, epochs=2):
        """Waits until a supervisor is in the middle of a trial; returns the trial's number and its process."""
        found = []

        def is_there():
            found[:] = self.running(pid, epochs)
            return found

        wait_for(is_there, "trial with some epochs", 120)
        return found[-1].trial, found[-1].process

    def owner(self, trial):
        """The folder of the supervisor that has a trial, as the study says."""
        return pathlib.Path(self.trials()[trial].user_attrs["ferrotune:supervisor"]["folder"])

    def wait_for_owner(self, trial, worker):
        wait_for(lambda: self.owner(trial).is_relative_to(worker.directory), f"trial {trial} of {worker.name}", 120)

    def wait_for_others(self, trial, process):
        """Waits until another process has an acknowledged epoch of this trial."""
        others = lambda: any(r.trial == trial and r.process != process and r.is_acknowledged for r in self.reports())
        wait_for(others, f"process that goes on with trial {trial}", 120)

    def trials(self):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return optuna.load_study(study_name=self.name, storage=self.theirs).trials

    def retried(self, trial):
        return len(self.trials()[trial].user_attrs.get("ferrotune:retried") or [])

    def check(self):
        """Exactly the trials that were asked for have ended well, and each has what was acknowledged."""
        trials = self.trials()
        numbers = [trial.number for trial in trials]
        assert numbers == list(range(self.most)), numbers
        assert [trial.state for trial in trials] == [TrialState.COMPLETE] * self.most, [trial.user_attrs for trial in trials]
        wrong = faults_of(self.reports(), [trial.intermediate_values for trial in trials], self.epochs)
        assert wrong == [], "\n".join([*wrong, self.log.read_text()])
        assert [trial.value for trial in trials] == [min(trial.intermediate_values.values()) for trial in trials]


def children(pid):
    """The processes below one."""
    found, wanted = [], [pid]
    while wanted:
        parent = wanted.pop()
        for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                wanted += map(int, path.read_text().split())
            except OSError:
                pass  # It has ended.
        found.append(parent)
    return [child for child in found[1:] if is_alive(child)]


def is_supervisor(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"supervise"]
    except OSError:
        return False
