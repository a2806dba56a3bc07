"""Searches on a device that takes one process at a time, as a TPU does: the test plugin by the name of libtpu, which locks a file
while a process has it open, fills up, hangs and dies on request.
"""

import re
import shutil

import pytest

from session import is_alive, wait_for
from test_devices import HELPER, PLUGIN

# What a body does in a trial, by its number; `{}` is a match's arms.
SEARCH = """
%%tune --oracle random --objective loss:min --seed 3 {options}
|trial| {{
    let lr = trial.float("lr", 1e-2..=1e-1).get()?;
    let device = trial.device()?;
    println!("trial {{}} in {{}}", trial.number(), std::process::id());
    let fault = |text: &str| unsafe {{ std::env::set_var("FERROTUNE_PJRT_FAULT", text) }};
    fault("");
    let x = Tensor::ones(1000, DType::F32, &device)?;
    match trial.number() {{ {deeds} _ => {{}} }}
    let loss = (x.sum_all()?.to_scalar::<f32>()? as f64 - 1000.0).abs() + lr;
    trial.report(0, [("loss", loss)])?;
    trial.best("loss")
}}
"""


@pytest.fixture
def tpu(start, tmp_path, monkeypatch):
    """A kernel whose device is the plugin, and the file that the plugin locks."""
    library, lock_file = tmp_path / "libtpu.so", tmp_path / "lockfile"
    shutil.copy(PLUGIN, library)
    monkeypatch.setenv("FERROTUNE_TPU_LOCKFILE", str(lock_file))
    for name, value in HELPER.items():
        monkeypatch.setenv(name, value)
    session = start()
    assert session.ok(f"%tpu_connect --plugin {library}").displays[-1] == f"connected to xla:{library}: chosen by --plugin"
    session.ok("use candle_core::{DType, Tensor};")
    lock_file.unlink()
    return session, lock_file


def search(options, deeds=""):
    return SEARCH.format(options=options, deeds=deeds).strip()


def trial(session, number, project):
    """What a trial's record and its output say, and the process that has run it."""
    text = session.ok(f"%trials {number} --project {project}").display
    return text, [int(pid) for pid in re.findall(rf"trial {number} in (\d+)", text)]


def openings(lock_file):
    """The processes that have opened the device, in order."""
    return [int(line.removeprefix("opened by ")) for line in lock_file.read_text().splitlines()]


def test_trials_share_one_process_that_opens_the_device_once(tpu):
    session, lock_file = tpu
    deeds = """
        1 => return Err("injected error".into()),
        2 => fault("execute:full"),
        4 => std::mem::forget(Tensor::zeros((1 << 20, 20), DType::F32, &device)?.affine(1.0, lr)?.sum(1)?.to_vec1::<f32>()?.len()),
    """
    outcome = session.ok(search("--max-trials 6 --project shared", deeds))
    assert "6/6 trials" in outcome.display, outcome.display
    texts, pids = zip(*(trial(session, number, "shared") for number in range(6)))
    assert re.fullmatch(r"trial 1 of shared: injected error \(line \d+ of the cell\)", texts[1].splitlines()[0]), texts[1]
    first = texts[2].splitlines()[0]
    assert re.match(r"trial 2 of shared: out of memory on xla:.*/libtpu\.so: .*RESOURCE_EXHAUSTED: Attempting to allocate 20\.00G\..*; "
                    "choose a smaller model or batch$", first), first
    # An error costs nothing, a full device a new process.
    (before,), (after,) = set(sum(pids[:3], [])), set(sum(pids[3:], []))
    assert before != after and openings(lock_file) == [before, after]
    for text in texts:
        assert re.search(r"^device: xla:.*/libtpu\.so \(XLA:CPU, jaxlib [\d.]+\), memory in use: 1\.0 GiB before it, 1\.0 GiB after it$",
                         text, re.M), text
    wait_for(lambda: not is_alive(after), "end of the worker")


def test_memory_that_a_trial_leaves_on_the_device_costs_its_worker(tpu):
    session, lock_file = tpu
    deeds = """
        1 => {
            let leak = Tensor::zeros((1 << 20, 20), DType::F32, &device)?.affine(1.0, lr)?;
            device.synchronize()?;
            std::mem::forget(leak);
        }
    """
    session.ok(search("--max-trials 4 --project leaky", deeds))
    left = [re.search("left behind: (.*)", trial(session, number, "leaky")[0]).group(1) for number in range(4)]
    assert re.fullmatch(r"(8\d\.\d MiB|1\d\d\.\d MiB) of the memory of xla:.*/libtpu\.so, whose worker is replaced", left[1]), left
    assert left[0] == left[2] == left[3] == "nothing", left
    pids = [trial(session, number, "leaky")[1] for number in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3] and len(openings(lock_file)) == 2, pids


def test_a_worker_that_aborts_or_hangs_costs_its_trial_and_a_new_worker_follows(tpu):
    session, lock_file = tpu
    deeds = """
        1 => fault("execute:abort"),
        3 => fault("execute:hang"),
    """
    outcome = session.ok(search("--max-trials 5 --project faulty --trial-timeout 30s --grace 1s --worker-trials 9", deeds))
    assert "5/5 trials" in outcome.display, outcome.display
    texts, pids = zip(*(trial(session, number, "faulty") for number in range(5)))
    endings = [text.splitlines()[0].partition(": ")[2] for text in texts]
    assert endings == ["finished", "killed by SIGABRT", "finished", "timed out after 30 s", "finished"], endings
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert openings(lock_file) == [pids[0][0], pids[2][0], pids[4][0]]
    assert re.search("already in use by process 42", texts[1]), texts[1]


def test_a_crash_is_tried_again_and_a_worker_is_replaced_after_its_trials(tpu):
    session, lock_file = tpu
    deeds = """
        0 => if !trial.folder().join("seen").exists() {
            std::fs::write(trial.folder().join("seen"), "")?;
            fault("execute:abort")
        },
    """
    session.ok(search("--max-trials 4 --project again --retries 1 --worker-trials 2", deeds))
    text, pids = trial(session, 0, "again")
    assert "tried again after: killed by SIGABRT" in text and len(set(pids)) == 2, text
    later = [trial(session, number, "again")[1] for number in range(1, 4)]
    assert later[0] == pids[1:] and later[1] == later[2] != later[0], (pids, later)


def test_a_device_that_another_process_has_is_named_and_left_alone(tpu):
    session, lock_file = tpu
    session.ok("%device close")
    session.ok("let mine = Tensor::ones(3, DType::F32, &ferrotune::device::current()?)?; mine.to_vec1::<f32>()?;")
    holder = re.search(r"the device process (\d+)", session.ok("%device --report").display)[1]
    error = session.fails(search("--max-trials 2 --project held --device-wait 1s")).error
    assert re.search(rf"libtpu\.so takes one process at a time, and process {holder} \(.*\) has {lock_file} open, also after 1 s; "
                     "end that process or restart its notebook", error), error
    assert session.ok("mine.to_vec1::<f32>()?").result == "[1.0, 1.0, 1.0]"
    error = session.fails(search("--max-trials 2 --project held --concurrency 2")).error
    assert error.endswith("use --concurrency 1 instead of 2"), error


def test_an_interrupt_loses_no_trial_and_gives_the_device_back(tpu, tmp_path):
    session, lock_file = tpu
    waits = '_ if !std::path::Path::new("go").exists() => std::thread::sleep(std::time::Duration::from_secs(60)),'
    code = search("--max-trials 2 --project stopped --grace 1s", waits)
    outcome = session.interrupt_when(code, lambda: lock_file.exists() and openings(lock_file), "opened device")
    assert outcome.errors and "nterrupt" in outcome.error, outcome
    (first,) = openings(lock_file)
    assert not is_alive(first)
    (tmp_path / "go").touch()
    assert "2/2 trials" in session.ok(code).display
    assert openings(lock_file)[0] == first and len(openings(lock_file)) == 2
