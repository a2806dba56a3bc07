"""Variables that travel between a Python notebook and its Rust cells with `%%rust -i` and `-o`."""

import pathlib

import pytest

from session import descendants, wait_for
from test_python_extension import fresh, python, rust_pid, value  # noqa: F401 (fixtures)

# From this size on, a vector of Rust has pages of its own.
LARGE = 256 << 20


@pytest.mark.parametrize(
    "dtype", ["uint8", "uint32", "int16", "int32", "int64", "float16", "float32", "float64", "ml_dtypes.bfloat16"]
)
def test_an_array_of_every_type_travels_there_and_back(python, dtype):  # noqa: F811
    python.ok(f"import numpy as np, ml_dtypes\nx = np.arange(12).reshape(3, 4).astype({dtype if '.' in dtype else repr(dtype)})")
    python.ok("%%rust -i x -o y\nlet y = x.t()?;")
    assert value(python, "(x.T == y).all(), y.dtype == x.dtype, y.shape") == "True True (4, 3)"
    python.ok("y[0, 0] = 5")


@pytest.mark.parametrize(
    ("code", "rust"),
    [
        ("x = np.arange(12.)[::2]", "[0., 2., 4., 6., 8., 10.]"),
        ("x = np.asfortranarray([[1., 2.], [3., 4.]]).T", "[1., 3., 2., 4.]"),
        ("import array; x = array.array('d', [1, 2])", "[1., 2.]"),
        ("x = np.full((), 0.5)", "[0.5]"),
        ("x = np.zeros((2, 0))", "Vec::<f64>::new()"),
        ("x = np.zeros((2, 2))[1]; x.flags.writeable = False", "[0., 0.]"),
        ("class D:\n  __dlpack__ = lambda s, **k: np.ones(2).__dlpack__(**k)\n  __dlpack_device__ = lambda s: (1, 0)\nx = D()", "[1., 1.]"),
    ],
)
def test_strides_buffers_and_dlpack_travel(python, code, rust):  # noqa: F811
    python.ok("import numpy as np\n" + code)
    python.ok(f"%%rust -i x\nassert_eq!(x.flatten_all()?.to_vec1::<f64>()?, {rust});")


def test_what_python_calls_numbers_and_texts_travels(python):  # noqa: F811
    python.ok("import enum, numpy as np\nclass E(enum.IntEnum):\n  A = 5\nn, f = E.A, np.float64(0.5)\nt = 'ü' * 100_000 + '\\0\"'")
    python.ok("%%rust -i n,f,t -o m -o u\nlet (m, u) = (n as f64 + f, t.clone() + \".\");")
    assert value(python, "m, u == t + '.'") == "5.5 True"


def test_float8_travels_back_as_ml_dtypes_knows_it(python):  # noqa: F811
    python.ok("%%rust -o y\nlet y = candle_core::Tensor::new(&[0.5f32, -2.], &candle_core::Device::Cpu)?.to_dtype(candle_core::DType::F8E4M3)?;")
    assert value(python, "y.dtype.name, y.astype('float32').tolist()") == "float8_e4m3fn [0.5, -2.0]"


def test_an_array_that_a_forked_process_can_write_is_copied(python):  # noqa: F811
    python.ok(
        "import os, ferrotune\nx = ferrotune.empty(4, 'uint8')\nx[:] = 7\nread, write = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n  os.read(read, 1)\n  x[:] = 9\n  os._exit(0)"
    )
    python.ok("%%rust -i x\nlet before = x.to_vec1::<u8>()?;")
    python.ok("os.write(write, b'x')\nos.waitpid(pid, 0)")
    assert python.ok("%rust (before, x.to_vec1::<u8>()?)").result == "([7, 7, 7, 7], [7, 7, 7, 7])"


def test_numbers_texts_and_bools_travel(python):  # noqa: F811
    python.ok("n, f, t, b = -3, float('inf'), 'a\"\\\\ ü\\n', True")
    python.ok("%%rust -i n,f -i t --input=b -o m -o g -o u -o c -o v\nlet (m, g, u, c, v) = (n * 2, -f, format!(\"{t}.\"), !b, vec![1u8]);")
    assert value(python, "m, g, u == t + '.', c, v.tolist()") == "-6 -inf True False [1]"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = np.zeros(2, bool)", "-i x: the array is of bool, which candle has not; convert it with .astype('uint8')"),
        ("x = np.zeros(2, '>f4')", "-i x: the array has the bytes of another machine's order; convert it with .astype('float32')"),
        ("x = [1]", "-i x: a list cannot travel to Rust; pass an array, a number, a str or a bool; numpy.asarray makes an array of a list"),
        ("x = 2**63", "-i x: 9223372036854775808 is larger than a Rust i64; pass it as a float or a str"),
        ("x = '\\ud800'", "-i x: the text has half of a surrogate pair, which Rust's String cannot hold; "
         "x.encode(errors='replace').decode() replaces it"),
        ("x = np.ma.masked_array([1., 2.], [0, 1])",
         "-i x: the masked elements of an array have no value for Rust; x.filled(VALUE) gives them one"),
        ("del x", "-i x: Python has no variable `x`; define it first"),
    ],
)
def test_what_cannot_travel_is_named_before_the_cell_runs(python, code, error):  # noqa: F811
    python.ok("import numpy as np\nx = 1")
    python.ok(code)
    outcome = python.run('%%rust -i x\nprintln!("has run");')
    assert (outcome.error, outcome.stdout) == (f"FerrotuneError: {error}", "")


def test_a_rust_variable_without_a_counterpart_is_named(python):  # noqa: F811
    error = python.run("%%rust -o pair\nlet pair = (1, 2);").error
    assert "-o pair" in error and "the variable of type `(i32, i32)` has no counterpart in Python" in error
    assert "-o missing" in python.run("%%rust -o missing\nlet other = 1;").error


def test_a_large_array_is_mapped_and_survives_undo_and_python(fresh):  # noqa: F811
    fresh.ok(f"import numpy as np, ferrotune\nx = ferrotune.empty({LARGE}, 'uint8')\nx[:] = 7")
    fresh.ok("%rust 0")
    fresh.ok("%%rust -i x\nlet before = 1;")
    assert len(mapped(fresh)) == 1
    fresh.ok("x[:] = 8")
    sum_of = "%rust x.to_dtype(candle_core::DType::F64)?.sum_all()?.to_scalar::<f64>()? as usize"
    assert fresh.ok(sum_of).result == str(7 * LARGE)
    fresh.ok("del x; import gc; gc.collect()")
    fresh.ok("%%rust\nx.slice_set(&x.zeros_like()?, 0, 0)?;")
    assert fresh.ok(sum_of).result == "0"
    fresh.ok("%undo 2")
    assert fresh.ok(sum_of).result == str(7 * LARGE)


def test_a_mapped_array_ends_with_its_tensor(fresh):  # noqa: F811
    fresh.ok(f"import numpy as np\nx = np.ones({LARGE}, 'uint8')")
    fresh.ok("%rust 0")
    for _ in range(3):
        fresh.ok("%%rust -i x\nlet sum = x.get(0)?.to_scalar::<u8>()?;")
        assert len(mapped(fresh)) == 1
    fresh.ok("%rust drop(x);")
    wait_for(lambda: not mapped(fresh), "end of the mapping")


def mapped(session):
    """The mappings of arrays in the process that runs the Rust cells, which is older than its snapshots."""
    processes = sorted(descendants(rust_pid(session)), key=started)
    cells = [pid for pid in processes if "cell-process" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
    lines = pathlib.Path(f"/proc/{cells[0]}/maps").read_text().splitlines()
    return [line for line in lines if "ferrotune-array" in line]


def started(pid):
    """When a process began. Process ids begin anew after the largest one."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
