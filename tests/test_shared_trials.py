"""Trials that share a card or a TPU through the device process, with a notebook and without one. The test plugin stands in for the
card's and the TPU's: it writes down each process that opens it, and lets in one at a time.
"""

import os
import re
import subprocess

import pytest

from device_place import Place
from session import TARGET, is_alive, wait_for
from test_devices import PLUGIN
from test_devices_cards import beside, install

SEARCH = """%%tune --objective loss:min --oracle random --project shared --directory studies --max-trials {} {}
|trial| {{
    let rate = trial.float("rate", 0.0..=1.0).get()?;
    let x = candle_core::Tensor::ones(1000, candle_core::DType::F32, &trial.device()?)?.affine(rate, 0.0)?;
    println!("trial {{}}", trial.number());
    {}
    Ok((x.sum_all()?.to_scalar::<f32>()? as f64 / 1000.0 - rate).abs())
}}"""
# Kills the process that has opened the device.
KILL = """if trial.number() == 1 {
        let log = std::fs::read_to_string(std::env::var("FERROTUNE_TPU_LOCKFILE")?)?;
        let process = log.lines().last().and_then(|line| line.strip_prefix("opened by ")).unwrap_or_default().to_owned();
        std::process::Command::new("sh").args(["-c", &format!("kill -9 {process}")]).status()?;
    }"""


class Shared:
    """A place with a device of one name, which the process of the notebook's plugin has at a time."""

    def __init__(self, folder, device):
        self.device, self.log = device, folder / "opened"
        library = folder / "libtpu.so"
        library.symlink_to(PLUGIN)
        install(folder / "python", "xla_cuda13")
        environment = beside(folder / "python")
        self.place = Place(folder, **environment, TPU_LIBRARY_PATH=str(library), FERROTUNE_TPU_LOCKFILE=str(self.log))
        self.notebook = self.place.notebook(plugin=device)

    def openings(self):
        """The processes that have opened the device, in order."""
        return [int(line.removeprefix("opened by ")) for line in self.log.read_text().splitlines()]

    def close(self):
        """Ends the notebook's device process, which has another environment than a search with a fault."""
        self.notebook.ok("%device close")
        wait_for(lambda: not self.place.processes(), "end of the device process", 20)

    def resume(self, *options):
        folder = self.notebook.folder / "studies/shared"
        command = [TARGET / "release/ferrotune", "resume", folder, *options]
        return subprocess.run(command, env=os.environ | self.place.env, capture_output=True, text=True, timeout=120)


@pytest.fixture(params=["cuda", "tpu"])
def shared(request, tmp_path):
    shared = Shared(tmp_path, request.param)
    yield shared
    shared.place.end()


def test_trials_share_the_device_with_their_notebook_and_go_on_without_it(shared):
    notebook = shared.notebook
    notebook.ok("let kept = candle_core::Tensor::ones(3, candle_core::DType::F32, &ferrotune::device::current()?)?.affine(2.0, 0.0)?;")
    notebook.ok("kept.sum_all()?;")
    assert "3/3 trials" in notebook.ok(SEARCH.format(3, "--concurrency 2", "")).display
    (process,) = shared.openings()
    assert notebook.ok("kept.sum_all()?.to_scalar::<f32>()?").result == "6.0"
    # Without a notebook the search starts the process, once for all trials.
    shared.place.notebooks.remove(notebook)
    notebook.close()
    wait_for(lambda: not is_alive(process), "end of the device process", 20)
    done = shared.resume("--max-trials", "8")
    assert done.returncode == 0, done.stderr
    first, second = shared.openings()
    assert first == process
    wait_for(lambda: not is_alive(second), "end of the device process", 20)


def test_a_search_opens_the_device_that_its_notebook_has_closed(shared):
    notebook = shared.notebook
    notebook.ok("%device close")
    before = len(shared.openings())
    # It takes a moment to give the device back.
    wait_for(lambda: not is_alive(shared.openings()[-1]), "end of the device process", 20)
    assert "4/4 trials" in notebook.ok(SEARCH.format(4, "", "")).display
    assert len(shared.openings()) == before + 1


def test_a_device_process_that_is_killed_costs_its_trial_and_the_next_trial_has_a_new_one(shared):
    shared.place.was_killed = True
    outcome = shared.notebook.ok(SEARCH.format(4, "--seed 1", KILL))
    assert "4/4 trials" in outcome.display, outcome.display
    first, second = shared.openings()
    assert not is_alive(first)
    # What a search has started, it has not left running.
    done = shared.resume("--max-trials", "6")
    assert done.returncode == 0, done.stderr
    for number in range(6):
        assert "left behind: nothing" in shared.notebook.ok(f"%trials {number} --project shared --directory studies").display
    text = shared.notebook.ok("%trials 1 --project shared --directory studies").display
    assert re.search(rf"trial 1 of shared: {shared.device}: its device process has ended", text), text


def test_a_tpu_that_a_process_of_another_environment_has_is_waited_for(tmp_path):
    shared = Shared(tmp_path, "tpu")
    shared.notebook.ok(SEARCH.format(1, "--device-wait 1s", ""))
    shared.place.env["LIBTPU_INIT_ARGS"] = "--another"
    failed = shared.resume("--max-trials", "2")
    expected = f"tpu takes one process at a time, and process {shared.place.process} (exe) has {shared.log} open, also after 1 s"
    assert failed.returncode != 0 and expected in failed.stderr, failed.stderr
    del shared.place.env["LIBTPU_INIT_ARGS"]
    assert shared.resume("--max-trials", "2").returncode == 0
    assert shared.openings() == [shared.place.process]
    shared.place.end()


def test_a_device_that_does_not_open_ends_the_search_before_a_trial(shared):
    notebook = shared.notebook
    assert "1/1 trials" in notebook.ok(SEARCH.format(1, "", "")).display
    shared.close()
    shared.place.env["FERROTUNE_PJRT_FAULT"] = "client:abort"
    failed = shared.resume("--max-trials", "2")
    assert failed.returncode != 0
    expected = rf"{shared.device} does not open: .*already in use by process 42.*; when that is solved, run the search again: it goes on where it is"
    assert re.search(expected, failed.stderr), failed.stderr
    del shared.place.env["FERROTUNE_PJRT_FAULT"]
    done = shared.resume("--max-trials", "2")
    assert done.returncode == 0 and "trial 1" in done.stderr, done.stderr


def test_a_search_that_is_stopped_leaves_no_plugin_that_hangs(shared):
    notebook = shared.notebook
    assert "1/1 trials" in notebook.ok(SEARCH.format(1, "", "")).display
    shared.close()
    shared.place.env["FERROTUNE_PJRT_FAULT"] = "client:hang"
    command = [TARGET / "release/ferrotune", "resume", notebook.folder / "studies/shared", "--max-trials", "2"]
    search = subprocess.Popen(command, env=os.environ | shared.place.env, stderr=subprocess.PIPE, text=True)
    wait_for(shared.place.processes, "device process of the search")
    hanging = shared.place.process
    search.terminate()
    error = search.communicate(timeout=30)[1]
    assert search.returncode != 0 and "stopped" in error, error
    wait_for(lambda: not is_alive(hanging), "end of the device process that hangs", 10)
    # So does a search that is killed.
    search = subprocess.Popen(command, env=os.environ | shared.place.env, stderr=subprocess.DEVNULL)
    wait_for(shared.place.processes, "device process of the search")
    hanging = shared.place.process
    search.kill()
    search.wait()
    wait_for(lambda: not is_alive(hanging), "end of the device process that hangs", 10)
    del shared.place.env["FERROTUNE_PJRT_FAULT"]
    assert shared.resume("--max-trials", "2").returncode == 0


def test_a_device_process_of_a_search_ends_by_a_signal(shared):
    notebook = shared.notebook
    notebook.ok(SEARCH.format(1, "", ""))
    shared.place.notebooks.remove(notebook)
    notebook.close()
    wait_for(lambda: not shared.place.processes(), "end of the device process", 20)
    shared.place.env["FERROTUNE_DEVICE_LINGER"] = "300"
    assert shared.resume("--max-trials", "2").returncode == 0
    (process,) = shared.place.processes()
    assert os.getpriority(os.PRIO_PROCESS, process) == os.getpriority(os.PRIO_PROCESS, 0)
    os.kill(process, 15)
    wait_for(lambda: not is_alive(process), "end of the device process", 10)
    shared.place.was_killed = True
