"""Studies that continue: after their kernel has died, without a kernel, in the background, and from a mirror."""

import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import termios
import time

import pytest

from session import is_alive, wait_for
from test_tune import study, tune

# Counts epochs in a model of one number, and fails if a checkpoint has another number. It is slow until a certain file
# exists.
COUNTING = """std::fs::copy("/proc/self/maps", trial.folder().join("maps"))?;
    let vars = candle_nn::VarMap::new();
    let start = candle_nn::Init::Const(0.0);
    vars.get(1, "count", start, candle_core::DType::F32, &candle_core::Device::Cpu)?;
    let mut seen: Vec<u64> = Vec::new();
    trial.restore((&vars, &mut seen))?;
    for epoch in trial.epochs(8) {
        if seen.len() != epoch { return Err(format!("{} epochs seen at epoch {epoch}", seen.len()).into()); }
        seen.push(epoch as u64);
        let wait = if std::path::Path::new(GATE).exists() { 1 } else { 1500 };
        std::thread::sleep(std::time::Duration::from_millis(wait));
        trial.report(epoch, [("loss", x + factor / (epoch + 1) as f64)])?;
        trial.checkpoint((&vars, &seen))?;
    }
    trial.best("loss")"""

# Number of kills of a kernel at random times of a search.
ROUNDS = int(os.environ.get("FERROTUNE_TORTURE_ROUNDS", "3"))
SEED = os.environ.get("FERROTUNE_TORTURE_SEED", str(time.time_ns()))

OPTIONS = "--objective loss:min --max-trials 3 --seed 6"


def cell(kernel, project, more=""):
    gate = kernel.folder / "go-on"
    return tune(COUNTING.replace("GATE", json.dumps(str(gate))), OPTIONS, project, more)


def has_checkpoint(folder, trial=0):
    return any((folder / f"trials/{trial}").glob("checkpoint-*.safetensors"))


def facts(folder):
    """The reported epochs and the final states of each trial in the journal."""
    reports, states = {}, {}
    for line in (folder / "journal.log").read_text().splitlines():
        line = json.loads(line)
        if line["op_code"] == 7:
            reports.setdefault(line["trial_id"], []).append(line["step"])
        if line["op_code"] == 6:
            states.setdefault(line["trial_id"], []).append(line["state"])
    return reports, states


def check_whole(folder):
    """Every trial has finished once and reported every epoch; an interrupted epoch may be reported twice."""
    reports, states = facts(folder)
    assert states == {number: [1] for number in range(3)}, states
    assert all(sorted(set(steps)) == list(range(8)) for steps in reports.values()), reports


def supervisor_of(folder):
    """The process that has the lock of the study, or had it last. It writes its process id after it gets the lock."""
    lock = folder / "lock"
    wait_for(lambda: lock.read_text(), "process in the lock file", seconds=10)
    return int(lock.read_text().split()[1])


@pytest.fixture
def begun(start):
    """A kernel with a search in the background, which has a checkpoint."""
    kernel = start()
    kernel.ok("let factor = 0.5f64;")
    outcome = kernel.ok_in_background(cell(kernel, "background", "--background"))
    assert "runs in the background as process" in outcome.stdout, outcome
    assert outcome.seconds < 30
    folder = study(kernel, "background")
    wait_for(lambda: has_checkpoint(folder), "checkpoint")
    yield kernel, folder
    if folder.exists() and is_alive(supervisor_of(folder)):
        os.kill(supervisor_of(folder), signal.SIGKILL)


def test_background_search_outlives_its_kernel_and_is_picked_up_again(begun, start):
    kernel, folder = begun
    pid = supervisor_of(folder)
    kernel.manager.shutdown_kernel(now=True)
    kernel.client.stop_channels()
    assert is_alive(pid)
    later = start(folder=kernel.folder)
    status = later.ok("%tune status --project background").display
    assert f"runs as process {pid} on " in status, status
    outcome = later.fails(cell(later, "background").replace("factor", "0.5"))
    assert f"in use by process {pid} on {os.uname().nodename}" in outcome.error, outcome.error
    later.ok("let kept = 5;")
    outcome = later.interrupt("%tune wait", lambda message: message["msg_type"] == "display_data")
    assert outcome.error.startswith("Interrupted: no longer waited for; the search goes on"), outcome.error
    assert is_alive(pid) and later.ok("kept").result == "5"
    (kernel.folder / "go-on").touch()
    assert "3/3 trials" in later.ok("%tune wait").display
    check_whole(folder)
    wait_for(lambda: not is_alive(pid), "end of the process of the search")


def test_display_of_a_background_search_changes_after_its_cell_has_ended(begun):
    kernel, folder = begun
    (cell_id,) = kernel.live
    assert kernel.ok("1 + 1").result == "2"
    (kernel.folder / "go-on").touch()
    shown = []
    while not shown or ", done" not in shown[-1]["data"]["text/plain"]:
        message = kernel.next_published(cell_id)
        assert message["msg_type"] == "update_display_data", message
        shown.append(message["content"])
    assert len({content["transient"]["display_id"] for content in shown}) == 1
    first, last = (content["data"]["text/plain"] for content in (shown[0], shown[-1]))
    assert "0/3 trials" in first and "3/3 trials" in last and "best: loss = " in last, (first, last)
    assert "trial " not in last.splitlines()[-1].split(":")[0], last
    check_whole(folder)


def test_background_search_is_stopped_with_its_checkpoints_and_resumed(begun, start):
    kernel, folder = begun
    assert "has stopped" in kernel.ok("%tune stop").stdout
    # The study has no search now.
    assert kernel.ok("%tune stop").stdout == "no search of this study runs\n"
    kernel.ok("%tune wait")
    reports, states = facts(folder)
    assert states == {} and len(reports[0]) < 8, (reports, states)
    assert "does not run any more" in kernel.ok("%tune status").display
    assert kernel.ok("%tune stop").stdout == "no search of this study runs\n"
    (kernel.folder / "go-on").touch()
    # A notebook without definitions.
    later = start(folder=kernel.folder)
    assert "3/3 trials" in later.ok("%resume background").display
    check_whole(folder)
    # The search finished the interrupted step before it stopped.
    assert len(facts(folder)[0][0]) == 8


def test_killed_search_is_resumed_elsewhere_without_a_notebook(begun, tmp_path):
    kernel, folder = begun
    os.kill(supervisor_of(folder), signal.SIGKILL)
    wait_for(lambda: not is_alive(supervisor_of(folder)), "end of the supervisor")
    assert "was killed; %resume goes on with it" in kernel.ok("%tune status").display
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    elsewhere = tmp_path / "elsewhere/renamed"
    elsewhere.parent.mkdir()
    shutil.move(folder, elsewhere)
    (kernel.folder / "go-on").touch()
    # A machine that has neither the prelude nor Rust.
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [program(), "resume", str(elsewhere), "--max-trials", "3"]
    before = (elsewhere / "journal.log").read_bytes()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "neither compiled nor trusted" in done.stderr, done.stderr
    assert (elsewhere / "journal.log").read_bytes() == before
    done = subprocess.run([*command, "--trust"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "continuing" in done.stderr and done.stderr.rstrip().endswith("done"), done.stderr
    check_whole(elsewhere)
    # It ran only with the libraries of its folder: the trusted bytes, in memory.
    maps = (elsewhere / "trials/2/maps").read_text()
    libraries = {name for name in ["libferrotune.so", "libstd-", "objective.so"] if f"/memfd:{name}" in maps}
    assert len(libraries) == 3 and maps.count("libstd-") == maps.count("/memfd:libstd-"), maps
    # The second search does not ask.
    command[-1] = "4"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_study_from_somebody_else_is_resumed_only_when_it_is_trusted(start, tmp_path):
    kernel = start()
    code = """%%tune --objective loss:min --max-trials 1 --seed 3 --project PROJECT
|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    Ok(x + OFFSET)
}"""
    kernel.ok(code.replace("PROJECT", "mine").replace("OFFSET", "1.0"))
    kernel.ok(code.replace("PROJECT", "theirs").replace("OFFSET", "2.0"))
    mine, theirs = study(kernel, "mine"), study(kernel, "theirs")
    # This user has compiled both.
    (mine / "objective.so").write_bytes((theirs / "objective.so").read_bytes())
    assert "2/2 trials" in kernel.ok("%resume mine --max-trials 2").display
    objective = bytearray((mine / "objective.so").read_bytes())
    objective[-1] ^= 1
    (mine / "objective.so").write_bytes(objective)
    refused = kernel.fails("%resume mine --max-trials 3").error
    assert refused.startswith("TuneError: the study ") and "neither compiled nor trusted" in refused, refused
    assert "3/3 trials" in kernel.ok("%resume mine --max-trials 3 --trust").display
    assert "4/4 trials" in kernel.ok("%resume mine --max-trials 4").display
    # A cell runs its own objective and not that of the folder.
    objective[-1] ^= 2
    (theirs / "objective.so").write_bytes(objective)
    kernel.ok(code.replace("PROJECT", "theirs").replace("OFFSET", "3.0").replace("--max-trials 1", "--max-trials 2 --continue"))
    assert "3/3 trials" in kernel.ok("%resume theirs --max-trials 3").display
    # Magics do not follow a link in the folder either.
    (tmp_path / "secret").write_text("of the user")
    output = theirs / "trials/0/output.log"
    output.unlink(missing_ok=True)
    output.symlink_to(tmp_path / "secret")
    shown = kernel.ok("%trials 0").display
    assert "output.log is a symbolic link" in shown and "of the user" not in shown, shown
    (theirs / "status.json").unlink()
    (theirs / "status.json").symlink_to(tmp_path / "secret")
    assert "status.json is a symbolic link" in kernel.fails("%trials").error


def program():
    """The installed kernel's program."""
    from jupyter_client.kernelspec import get_kernel_spec

    return get_kernel_spec("ferrotune").argv[0]


def in_a_terminal(command):
    """A shell with job control in a new terminal, which runs the command, and the other end of that terminal."""
    ours, terminal = os.openpty()

    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    os.write(ours, f"{command}\n".encode())
    return shell, ours


def test_search_in_the_background_of_a_terminal_survives_its_hangup(begun):
    kernel, folder = begun
    killed = supervisor_of(folder)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not is_alive(killed), "end of the supervisor")
    shell, terminal = in_a_terminal(f"{program()} resume {folder} --background")
    heard = bytearray()

    def has_begun():
        if select.select([terminal], [], [], 0)[0]:
            heard.extend(os.read(terminal, 1 << 16))
        return re.search(rb"kill -INT \d+ stops it\r\n", heard)

    wait_for(has_begun, "search that gives the terminal back")
    supervisor = supervisor_of(folder)
    # It is in another session than the terminal, so signals of the terminal do not reach it.
    assert os.getsid(supervisor) == supervisor
    assert f"runs in the background as process {supervisor};".encode() in heard, heard
    assert f"kill -INT {supervisor} stops it".encode() in heard, heard
    os.killpg(shell.pid, signal.SIGHUP)
    os.close(terminal)
    shell.wait(timeout=60)
    assert is_alive(supervisor)
    (kernel.folder / "go-on").touch()
    wait_for(lambda: not is_alive(supervisor), "end of the search")
    check_whole(folder)


def test_verbs_that_name_no_study_are_about_all_searches_of_the_notebook(start):
    kernel = start()
    kernel.ok("let factor = 0.5f64;")
    folders = [study(kernel, project) for project in ("first", "second")]
    for folder in folders:
        kernel.ok_in_background(cell(kernel, folder.name, "--background"))
    wait_for(lambda: all(has_checkpoint(folder) for folder in folders), "checkpoint of each")
    shown = kernel.ok("%tune status").displays
    assert len(shown) == 2 and all(folder.name in text for folder, text in zip(folders, shown)), shown
    for verb in ["stop", "wait"]:
        error = kernel.run(f"%tune {verb}").error
        assert error == "MagicError: 2 searches of this notebook run: first, second; name one with --project"
    # A trial that runs has the best of its reports, and no time yet.
    table = kernel.ok("%trials --project first --columns trial,loss,seconds").display
    assert re.search(r"^\s*0\s+\d\S* so far\s*$", table, re.MULTILINE), table
    assert "has stopped" in kernel.ok("%tune stop --project second").stdout
    # The one that is left is meant, although it is not the last.
    (kernel.folder / "go-on").touch()
    kernel.ok("%tune wait")
    check_whole(folders[0])


def test_killed_kernel_leaves_a_search_that_the_same_cell_goes_on_with(start):
    kernel = start()
    kernel.ok("let factor = 0.5f64;")
    folder = study(kernel, "killed")
    code = cell(kernel, "killed")
    kernel.client.execute(code)
    wait_for(lambda: has_checkpoint(folder), "checkpoint")
    pid = supervisor_of(folder)
    os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "end of the search that nobody follows")
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    (kernel.folder / "go-on").touch()
    later = start(folder=kernel.folder)
    later.ok("let factor = 0.5f64;")
    later.ok(code)
    check_whole(folder)


def test_study_whose_disk_is_gone_comes_back_from_its_mirror(start, tmp_path):
    kernel = start()
    kernel.ok("let factor = 0.5f64;")
    mirror = tmp_path / "drive"
    kernel.ok_in_background(cell(kernel, "mirrored", f"--background --mirror {mirror}"))
    folder = study(kernel, "mirrored")
    wait_for(lambda: any(mirror.glob("mirrored/trials/0/checkpoint-*")), "mirrored checkpoint")
    wait_for(lambda: any(mirror.glob("mirrored/start-*/whole")), "mirrored objective")
    kernel.ok("%tune stop")
    kernel.ok("%tune wait")
    shutil.rmtree(folder)
    (kernel.folder / "go-on").touch()
    kernel.ok(cell(kernel, "mirrored", f"--mirror {mirror}"))
    check_whole(folder)
    names = [path.name for path in mirror.rglob("*") if path.is_file()]
    assert not any(name.endswith(".partial") for name in names), names


def test_interrupt_waits_for_the_step_that_is_under_way(start):
    kernel = start()
    # A step takes longer than any fixed grace period.
    body = """let vars = candle_nn::VarMap::new();
    vars.get(1, "w", candle_nn::Init::Const(0.0), candle_core::DType::F32, &candle_core::Device::Cpu)?;
    trial.restore(&vars)?;
    for epoch in trial.epochs(3) {
        std::fs::write(trial.folder().join(format!("began-{epoch}")), "")?;
        std::thread::sleep(std::time::Duration::from_secs(4));
        trial.report(epoch, [("loss", x)])?;
        trial.checkpoint(&vars)?;
    }
    trial.best("loss")"""
    began = study(kernel, "steps") / "trials/0/began-1"
    cell = tune(body, "--objective loss:min --max-trials 1 --seed 1", "steps")
    outcome = kernel.interrupt(cell, lambda _: began.exists())
    assert outcome.error.startswith("Interrupted: "), outcome
    assert any("stopping after the current step" in display for display in outcome.displays), outcome.displays
    reports, states = facts(study(kernel, "steps"))
    assert reports == {0: [0, 1]} and states == {}
    assert len(list((study(kernel, "steps") / "trials/0").glob("checkpoint-*"))) == 2


def test_kernels_killed_at_random_instants_cost_no_finished_trial(start, tmp_path):
    """Each trial writes its value to a file before it returns; the journal must have the same values."""
    body = """let told = trial.folder().join("told");
    for epoch in trial.epochs(3) {
        std::thread::sleep(std::time::Duration::from_millis(30));
        trial.report(epoch, [("loss", x)])?;
    }
    let earlier = std::fs::read_to_string(&told).unwrap_or_default();
    std::fs::write(&told, format!("{earlier}{x}\\n"))?;
    Ok(x)"""
    print(f"FERROTUNE_TORTURE_SEED={SEED}")
    delays = random.Random(SEED)
    folder, trials = tmp_path / "studies/killed", 0
    for round in range(ROUNDS + 1):
        kernel = start()
        trials += 12
        code = tune(body, f"--objective loss:min --max-trials {trials} --seed 6 --concurrency 2", "killed")
        if round == ROUNDS:
            kernel.ok(code)
            break
        kernel.client.execute(code)
        begun = count_ended(folder)
        wait_for(lambda: count_ended(folder) > begun, "trial")
        time.sleep(delays.uniform(0, 0.5))
        supervisor = supervisor_of(folder)
        os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(supervisor), "end of the search")
    ended = [number for number, states in facts(folder)[1].items() for _ in states]
    assert sorted(ended) == list(range(trials)), "a trial is lost, or has ended twice"
    for number in range(trials):
        # A trial that is killed after writing its file, and before its end, runs again; a trial that has ended never does.
        values = (folder / f"trials/{number}/told").read_text().split()
        assert 1 <= len(values) <= 1 + ROUNDS and len(set(values)) == 1, (number, values)


def count_ended(folder):
    return len(facts(folder)[1]) if (folder / "journal.log").exists() else 0
