"""Starting kernels: nothing is built twice, and one kernel does not disturb another."""

import os
import pathlib
import sys

MATMUL = "let a = candle_core::Tensor::ones((2, 3), candle_core::DType::F32, &candle_core::Device::Cpu)?;\na.matmul(&a.t()?)?.sum_all()?.to_scalar::<f32>()?"


def cache():
    """Every file and folder of what cells are linked with, with its time of change. Left out are the cells that a kernel starts with,
    which the kernel before may not have finished; kernels of other tests write to the rest of the cache at the same time."""
    folder = pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "ferrotune"
    made = [path for path in folder.glob("prelude-*") if path.suffix != ".starting"]
    return {path: path.lstat().st_mtime_ns for one in made for path in [one, *one.rglob("*")]}


def test_second_start_compiles_no_dependency(start):
    first = start()
    first.ok("1")
    first.close()
    before = cache()
    assert any(path.name == "libferrotune.so" for path in before)
    session = start()
    first = session.ok(MATMUL)
    assert first.result == "12.0"
    assert session.start_seconds + first.seconds < 10
    assert cache() == before, "the cache was written to"


def test_two_kernels_at_once_keep_their_own_variables(start, tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = [start(folder=folder) for folder in folders]
    one.ok("let mut x = vec![1];")
    two.ok('let mut x = String::from("two");')
    one.ok("x.push(2);")
    two.ok('x.push(\'!\');')
    assert one.ok("x").result == "[1, 2]"
    assert two.ok("x").result == '"two!"'
    one.close()
    assert two.ok("x.len()").result == "4"


# A front end of its own, which prints the value of a cell.
INNER = """
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="ferrotune")
try:
    client.execute_interactive("6 * 7", output_hook=lambda message: print(message["content"].get("data", {}).get("text/plain", ""), end=""))
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""


def test_a_kernel_that_a_cell_starts_is_one_of_its_own(start, tmp_path):
    (tmp_path / "inner.py").write_text(INNER)
    outer = start()
    outer.ok("let kept = 1;")
    assert outer.ok(f"!{sys.executable} inner.py").stdout == "42"
    inner = f'std::process::Command::new("{sys.executable}").arg("inner.py").status()?.success()'
    cell = outer.ok(inner)
    assert (cell.stdout, cell.result) == ("42", "true")
    assert outer.ok("kept + 1").result == "2"
