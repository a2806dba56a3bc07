"""The device process and one notebook: whatever ends a cell, the variables on the device are as they were before it.

The device is XLA:CPU; where the plugin itself must misbehave, it is the one of `tests/pjrt_plugin`.
"""

import json
import os
import re
import socket
import subprocess
import threading
import time

import pytest

from device_place import DEVICE, IMPORTS, Place, pid_of, report
from session import TARGET, wait_for
from test_devices import HELPER, PLUGIN, set_variable
from test_devices_xla import XLA_CPU
from test_doctor import temporary  # noqa: F401

# An interrupt ends a wait within a third of a second where nothing else computes.
INTERRUPT_S = 1.0
LOST = r"its device process has ended.*, and the values that were on the device are lost; compute them again"
# What a plugin writes before it dies; its device process has it in its log.
LAST_WORDS = "already in use by process 42"


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path, FERROTUNE_XLA_CPU=XLA_CPU, **HELPER)
    yield place
    place.end()


@pytest.fixture
def notebook(place):
    """A notebook with values on its device."""
    notebook = place.notebook()
    notebook.ok(f"{IMPORTS}\n{DEVICE}")
    notebook.ok(
        "let ready = Tensor::arange(0f32, 4., &device)?;\nlet onwards = (&ready * 2.)?;\ndevice.synchronize()?;\n"
        'let lazy = (&onwards + 1.)?;\nlet text = String::from("kept");\nlet on_cpu = Tensor::new(&[7f32], &Device::Cpu)?;'
    )
    return notebook


def check_values(notebook):
    read = "(ready.to_vec1::<f32>()?, lazy.to_vec1::<f32>()?, &text, on_cpu.to_vec1::<f32>()?)"
    assert notebook.ok(read).result == '([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0], "kept", [7.0])'


TRAIN = """
use candle_nn::Optimizer;
use ferrotune::optim::{AdamW, ParamsAdamW};
fn start(device: &Device) -> candle_core::Result<(Var, AdamW)> {
    let weights = Var::from_tensor(&Tensor::arange(0f32, 12., device)?.affine(0.1, -0.5)?.reshape((3, 4))?)?;
    let optimiser = AdamW::new(vec![weights.clone()], ParamsAdamW { lr: 0.05, weight_decay: 0.1, ..Default::default() })?;
    Ok((weights, optimiser))
}
fn step(weights: &Var, optimiser: &mut AdamW) -> candle_core::Result<f32> {
    let loss = weights.as_tensor().sin()?.sub(&weights.as_tensor().sqr()?)?.sqr()?.mean_all()?;
    optimiser.backward_step(&loss)?;
    loss.to_scalar::<f32>()
}
"""

# All that a cell can do to the variables before it ends in one way or another.
HARM = (
    "weights.set(&weights.as_tensor().zeros_like()?)?; optimiser.set_learning_rate(9.0); step(&weights, &mut optimiser)?; "
    "weights.set(&(weights.as_tensor() * 3.)?)?; drop(ready); let taken = (lazy, text); device.synchronize()?; "
)


class Trained:
    """A notebook whose optimiser has taken three steps, and the losses of the further steps of a run that nothing disturbs."""

    def __init__(self, notebook):
        notebook.ok(TRAIN)
        steps = "(0..40).map(|_| step(&weights, &mut optimiser)).collect::<candle_core::Result<Vec<f32>>>()?"
        run = notebook.ok(f"{{ let (weights, mut optimiser) = start(&device)?; {steps} }}")
        self.losses, self.seconds = run.result.strip("[]").split(", "), run.seconds
        assert len(set(self.losses)) == 40
        self.notebook, self.taken = notebook, 0
        notebook.ok("let (weights, mut optimiser) = start(&device)?;")
        for _ in range(3):
            self.step()

    def step(self):
        """Takes a step, whose loss is the one of the undisturbed run."""
        assert self.notebook.ok("step(&weights, &mut optimiser)?").result == self.losses[self.taken]
        self.taken += 1

    def check(self):
        check_values(self.notebook)
        self.step()


@pytest.fixture
def trained(notebook):
    return Trained(notebook)


DEATHS = {
    "abort": ("std::process::abort();", "SIGABRT"),
    "segfault": ("unsafe { core::arch::asm!(\"mov qword ptr [8], 1\") };", "SIGSEGV"),
    "exit": ("std::process::exit(3);", "exited with 3"),
    "stack": ("fn deep(n: u64) -> u64 { std::hint::black_box([n; 512])[0] + deep(n + 1) }\ndeep(0);", "SIG"),
}


@pytest.mark.parametrize("death", DEATHS)
def test_values_and_the_state_of_training_outlive_the_process_of_cells(trained, death):
    code, says = DEATHS[death]
    for _ in range(3):
        assert says in trained.notebook.run(HARM + code).error
        trained.check()
    # Several deaths in a row.
    for _ in range(4):
        assert says in trained.notebook.run(HARM + code).error
    trained.check()


def test_values_outlive_a_process_of_cells_that_is_killed(trained):
    notebook = trained.notebook
    for _ in range(3):
        pid = pid_of(notebook)
        harm = HARM + 'println!("begun"); loop { step(&weights, &mut optimiser)?; }'
        killed = []
        outcome = notebook.run(harm, lambda message: message["msg_type"] == "stream" and not killed and killed.append(os.kill(pid, 9)))
        assert "SIGKILL" in outcome.error
        trained.check()


def test_a_cell_that_fails_after_it_has_taken_a_variable_is_taken_back(trained):
    for ends in ('"x".parse::<i32>()?;', 'panic!("on purpose");'):
        assert trained.notebook.run(HARM + ends).errors
        trained.check()


def test_values_are_there_after_a_cell_that_does_not_stop_was_ended(trained):
    outcome = trained.notebook.interrupt(HARM + 'println!("begun"); loop { std::hint::spin_loop(); }')
    assert "interrupt" in outcome.error.lower(), outcome.error
    trained.check()


def test_undo_and_restore_bring_back_what_was_on_the_device(trained):
    notebook = trained.notebook
    for _ in range(2):
        notebook.ok(HARM)
        notebook.ok("%undo")
        trained.check()
    notebook.ok("%checkpoint trained")
    since = trained.taken
    for _ in range(2):
        notebook.ok(HARM)
        for _ in range(8):
            notebook.ok("step(&weights, &mut optimiser)?;")
        notebook.ok("%restore trained")
        trained.taken = since
        trained.check()
        trained.step()
    notebook.ok("%undo 2")
    trained.taken -= 2
    trained.check()


def test_a_compiled_step_and_its_variables_are_as_they_were(notebook):
    notebook.ok(
        "let total = Var::zeros(3, DType::F32, &device)?;\nlet inner = total.clone();\n"
        "let mut step: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| {\n"
        "    inner.set(&(inner.as_tensor() + &args[0])?)?;\n    Ok(vec![inner.as_tensor().sum_all()?])\n})?;"
    )
    run = "step.run(&[Tensor::ones(3, DType::F32, &device)?])?[0].to_scalar::<f32>()?"
    assert notebook.ok(run).result == "3.0"
    for _ in range(2):
        assert "SIGABRT" in notebook.run(f"for _ in 0..5 {{ {run}; }} std::process::abort();").error
    assert notebook.ok(run).result == "6.0"
    notebook.ok("%undo")
    assert notebook.ok(run).result == "6.0"
    assert notebook.ok("total.to_vec1::<f32>()?").result == "[2.0, 2.0, 2.0]"


LONG_RUNS = {
    "one run": "let mut a = Tensor::ones((1500, 1500), DType::F32, &device)?;\n"
    'println!("begun"); for _ in 0..500 { a = (a.matmul(&a)? * (1. / 1500.))?; }\na.sum_all()?.to_scalar::<f32>()?;',
    "many runs": "let mut a = Tensor::ones((1500, 1500), DType::F32, &device)?; let taken = text;\n"
    "let mut step = ferrotune::compile(|args: &[Tensor]| Ok(vec![(args[0].matmul(&args[0])? * (1. / 1500.))?]))?;\n"
    'println!("begun"); for _ in 0..500 { a = step.run(&[a])?.remove(0); }\na.sum_all()?.to_scalar::<f32>()?;',
}


def interrupted(notebook, code, after_s):
    """Interrupts a cell so many seconds after its first output; the process of cells goes on."""
    pid = pid_of(notebook)
    outcome = notebook.interrupt(code, lambda message: message["msg_type"] == "stream" and not time.sleep(after_s))
    assert "the wait for the device was interrupted; what was started there goes on" in outcome.error, outcome.error
    print(f"the reply to the interrupt took {outcome.seconds:.3f} s")
    assert outcome.seconds < INTERRUPT_S
    return pid


@pytest.mark.parametrize("runs", LONG_RUNS)
def test_an_interrupt_ends_the_wait_for_a_long_execution(notebook, runs):
    pid = interrupted(notebook, LONG_RUNS[runs], 1.5)
    if runs == "one run":
        assert pid_of(notebook) == pid, "a cell that has taken no variable is not taken back"
    check_values(notebook)
    assert notebook.ok("(&ready + &onwards)?.sum_all()?.to_scalar::<f32>()?").result == "18.0"


def test_values_outlive_a_process_of_cells_that_has_started_runs_for_long(place, notebook):
    notebook.ok(
        "let mut by = Tensor::eye(1000, DType::F32, &device)?;\n"
        "let mut step = ferrotune::compile(|args: &[Tensor]| Ok(vec![args[0].matmul(&args[1])?]))?;\n"
        "step.run(&[by.clone(), by.clone()])?[0].to_vec2::<f32>()?;"
    )
    one = "by = step.run(&[by.clone(), by.clone()])?.remove(0);"
    ten = f"{{ let begun = std::time::Instant::now(); for _ in 0..10 {{ {one} }} by.to_vec2::<f32>()?; begun.elapsed().as_secs_f64() }}"
    # The runs of this cell are not read, and take six seconds; so do those of the next cell.
    runs = f"for _ in 0..{int(60 / float(notebook.ok(ten).result)) + 1} {{ {one} }}"
    notebook.ok(runs)
    assert "SIGABRT" in notebook.run(f"{runs} std::process::abort();").error
    assert notebook.ok("by.sum_all()?.to_scalar::<f32>()?").result == "1000.0"
    check_values(notebook)
    notebook.ok(runs)
    begun = time.monotonic()
    place.end()
    assert time.monotonic() - begun < 4, "runs of a client that has gone are still started"


LONG_PROGRAM = """
let first = Tensor::from_vec(vec![0.3f32; 8 * ROWS], (ROWS, 8), &device)?;
let by = first.narrow(0, 0, 8)?;
let mut sum = first.clone();
println!("begun");
for chain in 0..4 {
    let mut link = first.clone();
    for index in 0..100 { link = ((link.matmul(&by)? * ((chain * 100 + index) as f64 * 1e-6))?.sin()? + &first)?; }
    sum = (sum + link)?;
}
sum.sum_all()?.to_scalar::<f32>()?;
"""


def test_a_program_is_compiled_though_its_cell_was_interrupted(place, notebook):
    # Numbers are inputs of a lazy program, and no cache of programs has one with these dimensions.
    rows = 8 + time.time_ns() // 1000 % 10000
    whole = notebook.ok(LONG_PROGRAM.replace("ROWS", str(rows))).seconds
    code = LONG_PROGRAM.replace("ROWS", str(rows + 1))
    pid = interrupted(notebook, code, 1)
    assert pid_of(notebook) == pid
    # The compilation goes on beside this.
    assert notebook.ok("ready.to_vec1::<f32>()?").result == "[0.0, 1.0, 2.0, 3.0]"
    wait_for(lambda: is_idle(place.process), "end of the compilation", 120)
    again = notebook.ok(code).seconds
    print(f"a cell that compiled took {whole:.1f} s, and the interrupted one {again:.1f} s when it ran again")
    assert again < whole / 2
    check_values(notebook)


def is_idle(process):
    """Whether a process uses almost no processor for a fifth of a second."""
    def used():
        with open(f"/proc/{process}/stat") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))

    before = used()
    time.sleep(0.2)
    return used() - before < 2


def test_a_device_process_that_is_killed_costs_its_values_alone(place, notebook):
    before = Trained(notebook)
    pid, first = pid_of(notebook), place.process
    place.kill()
    for lost in ("ready.to_vec1::<f32>()?;", "lazy.to_vec1::<f32>()?;", "(&lazy + 1.)?.sum_all()?.to_scalar::<f32>()?;", "step(&weights, &mut optimiser)?;"):
        error = notebook.run(lost).error
        assert re.search("xla:cpu: " + LOST, error), (lost, error)
    assert notebook.ok("(&text, on_cpu.to_vec1::<f32>()?)").result == '("kept", [7.0])'
    assert notebook.ok("Tensor::ones(2, DType::F32, &device)?.to_vec1::<f32>()?").result == "[1.0, 1.0]"
    assert notebook.ok("on_cpu.to_device(&ferrotune::device::current()?)?.sqr()?.to_vec1::<f32>()?").result == "[49.0]"
    assert place.process != first
    notebook.ok("let ready = Tensor::arange(0f32, 4., &device)?; let lazy = ((&ready * 2.)? + 1.)?;")
    notebook.ok("let mut twice = ferrotune::compile(|args: &[Tensor]| Ok(vec![(&args[0] * 2.)?]))?;")
    assert notebook.ok("twice.run(&[ready.clone()])?[0].to_vec1::<f32>()?").result == "[0.0, 2.0, 4.0, 6.0]"
    # The variables that are lost are not in the programs of the others.
    assert Trained(notebook).seconds < 3 * before.seconds + 2
    assert pid_of(notebook) == pid, "the notebook goes on in the same process"
    # Values of the new process outlive the process of cells like those of the first.
    assert "SIGABRT" in notebook.run(HARM + "std::process::abort();").error
    check_values(notebook)


def test_a_device_process_that_is_killed_while_it_computes_is_an_error_at_once(place, notebook):
    killed = []

    def watch(message):
        if message["msg_type"] == "stream" and not killed:
            killed.append(place.kill())

    outcome = notebook.run(LONG_RUNS["many runs"], watch)
    assert re.search("its device process has ended", outcome.error), outcome.error
    assert outcome.seconds < 30
    assert notebook.ok("(&text, Tensor::ones(2, DType::F32, &device)?.to_vec1::<f32>()?)").result == '("kept", [1.0, 1.0])'


def test_values_that_went_with_the_device_process_are_named_after_a_crash(place, notebook):
    place.kill()
    assert "SIGABRT" in notebook.run("std::process::abort();").error
    assert re.search(LOST, notebook.run("ready.to_vec1::<f32>()?;").error)
    assert notebook.ok("(&text, Tensor::ones(2, DType::F32, &device)?.to_vec1::<f32>()?)").result == '("kept", [1.0, 1.0])'


def test_a_deep_program_does_not_end_the_device_process(place, notebook):
    first = place.process
    deep = "let mut a = ready.clone(); for i in 0..1500 { a = (a.affine(0.5, i as f64)?.cos()? + &ready)?; } a.to_vec1::<f32>()?;"
    notebook.ok(deep)
    assert place.process == first
    check_values(notebook)


@pytest.fixture
def faulty(place):
    """A notebook, and its device, which can be made to misbehave."""
    def connect(fault):
        notebook = place.notebook(plugin=None)
        set_variable(notebook, "FERROTUNE_PJRT_FAULT", fault)
        notebook.ok(f"{IMPORTS} let on_cpu = 7;")
        notebook.ok(f"%tpu_connect --plugin {PLUGIN}")
        set_variable(notebook, "FERROTUNE_PJRT_FAULT", "")
        return notebook

    return connect


COMPUTE = "(Tensor::ones(2, DType::F32, &ferrotune::device::current()?)? * 3.)?.to_vec1::<f32>()?"


@pytest.mark.parametrize("deed", ["abort", "exit"])
def test_a_plugin_that_dies_costs_a_cell_and_its_last_words_are_shown(place, faulty, deed):
    notebook = faulty(f"execute:{deed}")
    pid, first = pid_of(notebook), place.process
    error = notebook.run(COMPUTE + ";").error
    assert "its device process has ended" in error and (LAST_WORDS in error or deed == "exit"), error
    assert notebook.ok("on_cpu").result == "7"
    assert notebook.ok(COMPUTE).result == "[3.0, 3.0]"
    assert place.process != first and pid_of(notebook) == pid
    place.was_killed = True


def test_a_plugin_that_hangs_is_left_by_an_interrupt_and_ended_by_close(place, faulty):
    notebook = faulty("execute:hang")
    interrupted(notebook, f'println!("begun"); {COMPUTE};', 0.5)
    assert notebook.ok("on_cpu").result == "7"
    assert notebook.ok("%device close").displays[-1].startswith("closed ")
    assert notebook.ok(COMPUTE).result == "[3.0, 3.0]"


def test_memory_is_freed_with_its_variables_and_states(notebook):
    mib = 1 << 20
    held, clients, _ = report(notebook)
    assert held < 1000 and len(clients) == 1
    notebook.ok("for _ in 0..100 { Tensor::ones((1024, 1024), DType::F32, &device)?.contiguous()?; device.synchronize()?; }")
    notebook.ok("for i in 0..100 { Tensor::from_vec(vec![i as f32; 1 << 20], 1 << 20, &device)?; device.synchronize()?; }")
    notebook.ok("let mut big = Tensor::from_vec(vec![1f32; 1 << 20], 1 << 20, &device)?; device.synchronize()?;")
    held, clients, kept = report(notebook)
    ((now, most),) = clients.values()
    assert 4 * mib <= now <= 4.1 * mib and most <= 13 * mib, clients
    for _ in range(12):
        notebook.ok("big = (&big + 1.)?; device.synchronize()?;")
    held, clients, kept = report(notebook)
    ((now, _),) = clients.values()
    # The present state and the five that %undo goes back to, and one that is being made.
    assert now <= 4.1 * mib and held <= 7 * 4.1 * mib and kept >= 3 * 4 * mib, (held, clients, kept)
    assert notebook.ok("big.mean_all()?.to_scalar::<f32>()?").result == "13.0"
    notebook.ok("drop(big);")
    for number in range(7):
        notebook.ok(f"let small = {number};")
    held, clients, kept = report(notebook)
    assert held < 1000, (held, clients, kept)
    # A crash in between leaves nothing behind either.
    for _ in range(4):
        notebook.run("let big = Tensor::from_vec(vec![1f32; 1 << 20], 1 << 20, &device)?; device.synchronize()?; std::process::abort();")
    held, clients, kept = report(notebook)
    assert held < 1000, (held, clients, kept)
    check_values(notebook)


def test_the_doctor_the_memory_table_and_the_removal_know_the_process(tmp_path, temporary):
    place = Place(tmp_path, FERROTUNE_XLA_CPU=XLA_CPU, FERROTUNE_DEVICE_LINGER="300")
    notebook = place.notebook()
    notebook.ok(f"{IMPORTS}\n{DEVICE}\nlet kept = Tensor::ones((1024, 256), DType::F32, &device)?.affine(2.0, 0.0)?; kept.sum_all()?;")
    notebook.ok("assert_eq!(kept.sum_all()?.to_scalar::<f32>()?, 524288.0);")
    process, homes = place.process, {name: str(tmp_path / name) for name in ("config", "data", "state")}
    (tmp_path / "jupyter").mkdir()
    environment = os.environ | place.env | {f"XDG_{name.upper()}_HOME": path for name, path in homes.items()}
    environment |= {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(tmp_path / "cache"), "JUPYTER_PATH": "", "JUPYTER_DATA_DIR": str(tmp_path / "jupyter")}

    def ferrotune(*arguments):
        return subprocess.run([TARGET / "release/ferrotune", *arguments], env=environment, capture_output=True, text=True, timeout=60)

    def rows():
        report = json.loads(ferrotune("doctor", "--json").stdout)["rows"]
        return [row["found"] for row in report if row["what"] == "device process"]

    (row,) = rows()
    name = re.fullmatch(rf"process {process} of xla:cpu holds [\d.]+ MiB.*: (notebook \d+) [\d.]+ MiB \([\d.]+ MiB at most\).*", row)
    assert name, row
    table = notebook.ok("%memory").display
    assert re.search(rf"device process {process} of xla:cpu .*[\d.]+ [MG]iB; on the device 1\.\d MiB, 1\.\d MiB of these this notebook's", table), table
    removal = ferrotune("uninstall", "--all", "--yes")
    refusal = f"nothing was removed, since {name[1]} use the device process {process} of xla:cpu"
    assert removal.returncode != 0 and refusal in removal.stderr, removal.stderr
    assert place.process == process
    assert f"ends  the device process {process} of xla:cpu" in removal.stderr, removal.stderr
    place.notebooks.remove(notebook)
    notebook.close()
    wait_for(lambda: ": notebook" not in rows()[0], "end of the notebook's connection")
    removal = ferrotune("uninstall", "--all", "--yes")
    assert removal.returncode == 0, removal.stderr
    wait_for(lambda: not place.processes(), "end of the device process", 5)
    assert rows() == []


def test_a_process_of_another_version_is_a_row_with_a_cure(place, notebook):
    # What listens there says what another version says.
    process, socket_path = place.process, place.socket
    place.kill()
    socket_path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # The path of a socket has at most 107 characters.
        folder = os.open(socket_path.parent, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/{socket_path.name}")
        os.close(folder)
        listener.listen()

        def refuse():
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.send(json.dumps({"Refused": {"reason": f"its device process {process} is of another version"}}).encode())
                client.recv(65536)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        report = subprocess.run([TARGET / "release/ferrotune", "doctor", "--json"], env=os.environ | place.env, capture_output=True, text=True, timeout=60)
        thread.join(20)
    (row,) = (row for row in json.loads(report.stdout)["rows"] if row["what"] == "device process")
    assert f"{process} is of another version" in row["found"] and "shut down the notebooks" in row["cure"], row
    socket_path.unlink()
