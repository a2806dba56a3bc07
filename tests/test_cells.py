"""Cells that fail in unusual ways: the cell has an error, and the notebook keeps its variables."""

import os
import pathlib
import tempfile

import pytest

from session import wait_for

# The compiler evaluates this for seconds; the cell itself runs at once.
SLOW_TO_COMPILE = """
#[allow(long_running_const_eval)]
const SLOW: u64 = { let mut n = 0u64; let mut i = 0u64; while i < 40_000_000 { n ^= i; i += 1; } n };
let kept = SLOW;
"""


def processes(words):
    """Process ids of running commands with all of these words."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(int(folder.name))
    return found


def runtime(pid):
    """The folder of the kernel to which a process belongs."""
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((variable for variable in variables if variable.startswith(b"FERROTUNE_RUNTIME=")), None)


def compiler(session):
    """Process ids of compilers that compile a cell of this session; other tests may run at the same time."""
    own = runtime(session.manager.provisioner.process.pid)
    return [pid for pid in processes(["--crate-name=ctx"]) if runtime(pid) == own]


def test_panic_that_the_cell_catches_is_no_error(kernel):
    outcome = kernel.ok('let caught = std::panic::catch_unwind(|| panic!("inside")).is_err();\ncaught')
    assert outcome.result == "true"


def test_panic_on_a_thread_of_a_pool_is_the_cells_error(kernel):
    # The cell's own thread is one of the pool's, and computes, too.
    cell = """use ferrotune::rayon::prelude::*;
let here = std::thread::current().id();
(0..100).into_par_iter().for_each(|_| {
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(std::thread::current().id() == here, "another thread");
});"""
    outcome = kernel.fails(cell)
    assert outcome.error == "Panic: another thread"
    assert "another thread" in outcome.stderr
    outcome = kernel.fails("(0..10).into_par_iter().for_each(|i| assert!(i > 0));")
    assert outcome.error.startswith("Panic: assertion failed: i > 0")


def test_panic_names_its_line_and_keeps_the_variables(kernel):
    kernel.ok("let before = 7;")
    outcome = kernel.fails('let x = 1;\nlet y = 2;\npanic!("x is {x} and y is {y}");')
    assert outcome.error == "Panic: x is 1 and y is 2 (line 3 of the cell)"
    assert kernel.ok("before").result == "7"


def test_cell_that_cannot_be_loaded_costs_no_variable(kernel):
    kernel.ok("let before = 8;")
    outcome = kernel.fails('unsafe extern "C" { fn no_such_function(); }\nunsafe { no_such_function() }')
    assert "undefined symbol: no_such_function" in outcome.error
    assert kernel.ok("before").result == "8"


def test_cell_stopped_while_it_compiles_changes_nothing(kernel):
    kernel.ok("let kept = 9u64;")
    outcome = kernel.interrupt_when(SLOW_TO_COMPILE, lambda: compiler(kernel), "compiler")
    assert outcome.error == "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert kernel.ok("kept").result == "9"


def test_what_an_interrupted_cell_has_started_ends_with_it(kernel):
    length = str(100000 + os.getpid())
    cell = f'std::process::Command::new("sleep").arg("{length}").spawn()?; loop {{ std::hint::spin_loop() }}'
    outcome = kernel.interrupt_when(cell, lambda: processes(["sleep", length]), "program of the cell")
    assert outcome.error.startswith("Interrupted: ")
    assert kernel.ok("40 + 2").result == "42"
    wait_for(lambda: not processes(["sleep", length]), "end of what the cell has started")


@pytest.mark.parametrize(
    ("cell", "how"),
    [
        ("unsafe { *(8 as *mut i32) = 1; }", "was ended by SIGSEGV"),
        ("std::process::exit(3);", "exited with 3"),
        ("std::process::abort();", "was ended by SIGABRT"),
        ("fn deep(n: u64) -> u64 { std::hint::black_box([n; 64])[0] + deep(n + 1) }\ndeep(0)", "was ended by SIG"),
    ],
)
def test_cell_that_dies_names_the_reason_and_costs_no_variable(kernel, cell, how):
    kernel.ok("use candle_core::{Device, Tensor};\nlet mut number = 5; let square = Tensor::eye(300, candle_core::DType::F32, &Device::Cpu)?;")
    outcome = kernel.fails(f"number = 6; drop(square); let new = 1;\n{cell}")
    assert outcome.error.startswith("CellDied: the process of the cells " + how)
    assert "every variable is as it was before the cell" in outcome.error
    assert kernel.ok("number").result == "5"
    # Matrix products use a thread pool, which died with the process.
    assert kernel.ok("square.matmul(&square)?.sum_all()?.to_scalar::<f32>()?").result == "300.0"
    assert "cannot find value `new`" in kernel.fails("new").error


def test_cell_that_does_not_stop_is_ended_and_costs_no_variable(kernel):
    kernel.ok("let mut number = 5;")
    outcome = kernel.interrupt('number = 6; println!("running"); loop { std::hint::spin_loop() }')
    assert outcome.seconds < 20
    assert outcome.error.startswith("Interrupted: the cell did not stop when it was asked to, and was ended")
    assert kernel.ok("number").result == "5"


def test_threads_of_the_cell_compute_in_a_copy_of_the_process(kernel):
    # A copy has none of the threads that shared the work before.
    kernel.ok("use candle_core::{Device, Tensor};\nlet a = Tensor::ones((400, 400), candle_core::DType::F32, &Device::Cpu)?;")
    kernel.fails("std::process::abort();")
    work = """std::thread::spawn({
    let a = a.clone();
    move || -> candle_core::Result<f32> {
        let product = candle_nn::ops::softmax_last_dim(&a.matmul(&a)?.tanh()?)?;
        let images = product.reshape((10, 1, 100, 160))?;
        let kernel = Tensor::ones((1, 1, 3, 3), candle_core::DType::F32, &Device::Cpu)?;
        images.conv2d(&kernel, 0, 1, 1, 1)?.max_pool2d(2)?.max_all()?.to_scalar()
    }
}).join().unwrap()? - 9. / 400."""
    kernel.ok(f"let difference: f32 = {work};")
    assert kernel.ok("difference.abs() < 1e-6").result == "true"
    assert kernel.ok("(a.matmul(&a)?.max_all()?.to_scalar::<f32>()? - 400.).abs() < 1e-3").result == "true"


def test_thread_that_crashes_between_cells_costs_no_variable(kernel):
    kernel.ok("let mut number = 7;")
    pid = int(kernel.ok("number = 8; std::process::id()").result)
    go = kernel.folder / "go"
    outputs = ""
    cell = kernel.ok(
        f'std::thread::spawn(|| {{ while !std::path::Path::new("{go}").exists() '
        "{ std::thread::sleep(std::time::Duration::from_millis(5)) } std::process::abort() });"
    )
    go.touch()
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "end of the process of the cells")
    while "SIGABRT" not in outputs:
        outputs += kernel.next_published(cell.msg_id, timeout_s=20)["content"]["text"]
    assert "after the cell had ended, the process of the cells was ended by SIGABRT" in outputs
    assert kernel.ok("number").result == "8"


def test_lock_of_a_thread_that_is_gone_is_told_and_can_be_interrupted(kernel):
    kernel.ok(
        "use std::sync::{Arc, Mutex};\nlet guarded = Arc::new(Mutex::new(3));\n"
        "{ let guarded = Arc::clone(&guarded); let (sender, receiver) = std::sync::mpsc::channel();\n"
        'std::thread::Builder::new().name("holder".into()).spawn(move || { let _held = guarded.lock(); '
        "let _ = sender.send(()); loop { std::thread::park() } })?; receiver.recv()?; }"
    )
    outcome = kernel.fails("std::process::abort();")
    assert "these threads of earlier cells are gone: holder; a lock that one of them held stays locked" in outcome.error
    outcome = kernel.interrupt('println!("waits"); drop(guarded.lock());')
    assert outcome.error.startswith("Interrupted: the cell did not stop when it was asked to, and was ended")
    assert kernel.ok("let guarded = Arc::new(Mutex::new(4)); *guarded.lock().unwrap()").result == "4"


def test_output_without_a_line_end_comes_while_the_cell_runs(kernel):
    seen, heard = [], kernel.folder / "heard"

    def watch(message):
        if message["msg_type"] == "stream":
            seen.append(message["content"]["text"])
            heard.touch()

    kernel.run(
        f'print!("10%\\r"); while !std::path::Path::new("{heard}").exists() '
        '{ std::thread::sleep(std::time::Duration::from_millis(5)) } print!("20%\\r");',
        watch,
    )
    assert seen == ["10%\r", "20%\r"]


def test_panic_after_a_move_keeps_what_was_moved(kernel):
    kernel.ok("let moved = vec![1, 2]; let mut changed = 1;")
    assert kernel.fails('changed = 2; let taken = moved; panic!("{}", taken.len());').error.startswith("Panic: 2")
    assert kernel.ok("(&moved, changed)").result == "([1, 2], 1)"
    assert kernel.fails('let taken = moved; Err::<(), _>(format!("no {}", taken.len()))?;').error.startswith("Error: ")
    assert kernel.ok("&moved").result == "[1, 2]"


def test_panic_without_a_move_keeps_what_the_cell_has_changed(kernel):
    kernel.ok("let mut changed = 1;")
    kernel.fails('changed = 2; panic!("late");')
    assert kernel.ok("changed").result == "2"


def test_sleep_of_the_prelude_wakes_for_an_interrupt(kernel):
    pid = kernel.ok("std::process::id()").result
    outcome = kernel.interrupt('println!("running"); ferrotune::sleep(std::time::Duration::from_secs(60))?;')
    assert outcome.seconds < 20
    assert outcome.error == "Error: the cell was interrupted (line 1 of the cell)"
    assert kernel.ok("std::process::id()").result == pid, "it ended by itself"


def test_outputs_keep_their_order(kernel):
    seen = []

    def watch(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            seen.append(content["text"])
        elif message["msg_type"] == "display_data":
            seen.append(content["data"]["text/plain"])

    kernel.run('print!("one, E"); ferrotune::display::text("two"); print!("three");', watch)
    assert "".join(seen) == "one, Etwothree"


@pytest.mark.parametrize("line", [':dep candle = { package = "candle-core", version = "0.11" }', ':dep candle-transformers = "0.11"'])
def test_second_copy_of_candle_is_refused(kernel, line):
    outcome = kernel.fails(f"{line}\n1")
    assert "brings a second copy of candle" in outcome.error


def test_user_is_asked_for_a_line(kernel):
    cell = 'assert_eq!(ferrotune::input("Name: ")?, "Ada"); assert_eq!(ferrotune::input_password("Word: ")?, "secret");'
    msg_id = kernel.begin(cell, allow_stdin=True)
    for prompt, is_password, answer in [("Name: ", False, "Ada"), ("Word: ", True, "secret")]:
        assert kernel.receive("stdin")["content"] == {"prompt": prompt, "password": is_password}
        kernel.client.input(answer)
    assert kernel.end_of(msg_id).error is None


def test_builder_of_candle_can_be_a_variable(kernel):
    kernel.ok("use candle_core::{DType, Device}; let vars = candle_nn::VarMap::new();")
    kernel.ok("let builder = candle_nn::VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);")
    kernel.ok("let layer = candle_nn::linear(4, 2, builder.pp(\"layer\"))?;")
    assert kernel.ok("vars.all_vars().len()").result == "2"


def test_every_pattern_defines_its_names_anew(kernel):
    kernel.ok("let (first, second) = (1u8, 2u8);")
    kernel.ok('let [first, _] = ["a", "b"];')
    kernel.ok("let &second = &first;")
    assert kernel.ok("(first, second)").result == '("a", "a")'
    kernel.ok("let (Ok(first) | Err(first)) = Ok::<f64, f64>(2.5);")
    assert kernel.ok("(first, second)").result == '(2.5, "a")'


def test_variable_costs_little_code_in_a_cell(start):
    # The path of a socket in the kernel's folder may not be long.
    with tempfile.TemporaryDirectory() as folder:
        kernel = start(env={"TMPDIR": folder})
        kernel.ok("let x = 1;")
        kernel.ok("let _ = x + 2;")
        libraries = pathlib.Path(folder).glob("ferrotune-*/cells/target/libcode_*.so")
        newest = max(libraries, key=lambda file: file.stat().st_mtime_ns)
        # 22 kB, and 38 ms more to compile, where a cell has the code that drops a variable with its owners.
        assert newest.stat().st_size < 13_000
        kernel.close()
