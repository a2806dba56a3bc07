"""Faults of every kind, one after the other in one notebook: each one costs only its own cell. `cargo xtask torture` has more of them
one after the other."""

import os
import pathlib
import random
import time

import pytest

from session import Session

PREPARE = """
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Optimizer;
fn train() -> candle_core::Result<f32> {
    let device = Device::Cpu;
    let inputs = Tensor::arange(0f32, 512., &device)?.reshape((128, 4))?.affine(1. / 512., 0.)?;
    let targets = inputs.sum_keepdim(1)?;
    let weights = Var::zeros((4, 1), DType::F32, &device)?;
    let mut sgd = candle_nn::SGD::new(vec![weights.clone()], 0.2)?;
    for _ in 0..200 {
        let loss = inputs.matmul(&weights)?.sub(&targets)?.sqr()?.mean_all()?;
        sgd.backward_step(&loss)?;
    }
    inputs.matmul(&weights)?.sub(&targets)?.sqr()?.mean_all()?.to_scalar::<f32>()
}
unsafe extern "C" {
    fn fork() -> i32;
    fn close(fd: i32) -> i32;
}
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) { panic!("in a drop, while another panic unwinds") }
}
#[allow(unconditional_recursion)]
fn deep(n: u64) -> u64 { std::hint::black_box([n; 64])[0] + deep(n + 1) }
fn fault(kind: u32) {
    match kind {
        0 => unsafe { *(8 as *mut i32) = 1 },
        1 => std::process::abort(),
        2 => std::process::exit(0),
        3 => std::process::exit(1),
        4 => { deep(0); }
        5 => { let _bomb = Bomb; panic!("first"); }
        6 => panic!("plain"),
        7 => { std::thread::spawn(|| std::process::abort()); loop { std::hint::spin_loop() } }
        _ => unsafe { close(0); close(1); close(2); },
    }
}
let text = String::from("kept"); let numbers = vec![1.5, 2.5]; let mut count = 0;
let tensor = Tensor::arange(0f32, 4096., &Device::Cpu)?;
"""

CHECK = "(text.as_str(), &numbers, count, tensor.sum_all()?.to_scalar::<f32>()?)"
KEPT = '("kept", [1.5, 2.5], 0, 8386560.0)'

SLEEP_FOR_EVER = "loop { std::thread::sleep(std::time::Duration::from_secs(1)) }"

# The code of the cell, whether the test interrupts it after its first output, and the beginning of its error.
FAULTS = {
    "SIGSEGV": ("fault(0);", False, "CellDied: the process of the cells was ended by SIGSEGV"),
    "SIGABRT": ("fault(1);", False, "CellDied: the process of the cells was ended by SIGABRT"),
    "exit(0)": ("fault(2);", False, "CellDied: the process of the cells exited with 0"),
    "exit(1)": ("fault(3);", False, "CellDied: the process of the cells exited with 1"),
    "stack overflow": ("fault(4);", False, "CellDied: the process of the cells was ended by SIG"),
    "double panic": ("fault(5);", False, "CellDied: the process of the cells was ended by SIGABRT"),
    "SIGKILL": (
        'std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?; ' + SLEEP_FOR_EVER,
        False,
        "CellDied: the process of the cells was ended by SIGKILL",
    ),
    "1 GB/s": (
        "let mut held = Vec::new(); loop { held.push(vec![1u8; 10 << 20]); std::thread::sleep(std::time::Duration::from_millis(10)); }",
        False,
        "OutOfMemory: the cell held ",
    ),
    "loop": ('println!("on"); loop { std::hint::spin_loop() }', True, "Interrupted: the cell did not stop"),
    "blocked read": (
        'let (mut end, _other) = std::io::pipe()?; println!("on"); std::io::Read::read(&mut end, &mut [0])?;',
        True,
        "Interrupted: the cell did not stop",
    ),
    "deadlock": (
        '{ let lock = std::sync::Mutex::new(0); let _held = lock.lock().unwrap(); println!("on"); drop(lock.lock()); }',
        True,
        "Interrupted: the cell did not stop",
    ),
    "flood": (
        'let line = "x".repeat(1 << 20); for _ in 0..1024 { println!("{line}"); }',
        True,
        "Interrupted: the cell did not stop",
    ),
    "fork": ("if unsafe { fork() } < 0 { panic!() }", False, None),
    "fork that goes on": ("if unsafe { fork() } == 0 { count = 5; " + SLEEP_FOR_EVER + " }", False, None),
    "closed descriptors": ("fault(8);", False, None),
    "ten thousand threads": (
        "for _ in 0..10_000 { std::thread::Builder::new().stack_size(16 << 10).spawn(|| " + SLEEP_FOR_EVER + ")?; }",
        False,
        None,
    ),
    "crash with threads": ("fault(0);", False, "CellDied: the process of the cells was ended by SIGSEGV"),
}


def resident_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


def assert_memory_comes_back(notebook):
    """The kernel returns in a pause what rust-analyzer has freed."""
    deadline = time.monotonic() + 5
    while resident_kib(notebook.pid) - notebook.resident_kib >= 20 << 10:
        assert time.monotonic() < deadline, (resident_kib(notebook.pid), notebook.resident_kib)
        time.sleep(0.1)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    session = Session(tmp_path_factory.mktemp("faults"))
    session.ok("%memory limit 1GiB")
    session.read_sources()
    session.ok(PREPARE)
    session.pid = session.manager.provisioner.pid
    # Runs each kind of cell once before the memory of the kernel is measured.
    session.ok(CHECK)
    session.ok("train()?")
    session.fails("fault(1);")
    session.resident_kib = resident_kib(session.pid)
    yield session
    session.close()


@pytest.mark.parametrize("name", FAULTS)
def test_fault_costs_its_own_cell_alone(notebook, name):
    cell, interrupt, error = FAULTS[name]
    outcome = notebook.interrupt(cell) if interrupt else notebook.run(cell)
    if error is None:
        assert outcome.error is None or outcome.error.startswith("Error: Resource temporarily unavailable"), outcome.error
    else:
        assert outcome.error.startswith(error), outcome.error
        assert "every variable is as it was before the cell" in outcome.error
    assert notebook.ok(CHECK).result == KEPT
    assert float(notebook.ok("train()?").result) < 1e-4
    assert notebook.ok('println!("heard");').stdout == "heard\n"
    assert_memory_comes_back(notebook)


def test_system_takes_the_cell_before_the_kernel(notebook):
    pid = notebook.ok("std::process::id()").result
    scores = [int(pathlib.Path(f"/proc/{which}/oom_score_adj").read_text()) for which in (pid, notebook.pid)]
    assert scores[0] == 900 and scores[1] < 900, scores


def test_programs_that_a_cell_starts_print_into_it(notebook):
    cell = 'std::process::Command::new("sh").args(["-c", "echo out; echo err >&2"]).status()?;'
    outcome = notebook.ok(cell)
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")


@pytest.mark.timeout(1800)
def test_a_hundred_faults_lose_nothing(notebook):
    random_faults = random.Random(7)
    for count in range(int(os.environ.get("FERROTUNE_TORTURE_FAULTS", 100))):
        assert notebook.run(f"fault({random_faults.randrange(8)});").errors
        if count % 25 == 24:
            assert notebook.ok(CHECK).result == KEPT, count
    assert float(notebook.ok("train()?").result) < 1e-4
    assert_memory_comes_back(notebook)
