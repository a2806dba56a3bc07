"""The package of `cargo xtask wheel`, alone in a new virtual environment: what `pip install ferrotune` gives a user."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import nbformat
import pytest

import dist_server
import notebook_run
from bare_machine import RUN_CELLS, TOOLS, VERSION, dist, served  # noqa: F401
from session import TARGET

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
CANDLE = "let x = candle_core::Tensor::arange(0f32, 4., &candle_core::Device::Cpu)?;\nx.sum_all()?.to_scalar::<f32>()?"

DOCKERFILE = pathlib.Path(__file__).parent.parent / "container/colab/Dockerfile"
SHELL = "import subprocess, sys; subprocess.run(sys.argv[1], shell=True, check=True)"


class Installed:
    """An environment with the wheel and nothing else of Ferrotune, a home of its own, and a search path with few tools."""

    def __init__(self, folder, wheel):
        self.home, self.venv, self.bin, temporary = (folder / name for name in ("home", "venv", "bin", "tmp"))
        for made in (self.home, self.bin, temporary):
            made.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(os.path.realpath(shutil.which(tool)))
        # pip's settings of the user say where PyPI is.
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_", "LANG"))}
        # `uninstall --all` refuses while kernels run, of which it knows by their folders.
        kept["TMPDIR"] = str(temporary)
        self.environment = kept | {"HOME": str(self.home), "PATH": f"{self.venv}/bin:{self.bin}"}
        subprocess.run([sys.executable, "-m", "venv", self.venv], check=True)
        pip = [self.venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "nbclient", "ipykernel", "numpy"], check=True)
        self.before = self.files()
        started = time.monotonic()
        subprocess.run([*pip, wheel], check=True)
        self.install_seconds = time.monotonic() - started

    def files(self):
        return {path for path in self.venv.rglob("*") if "__pycache__" not in path.parts}

    def run(self, program, *arguments, stdin="", rust=True, **variables):
        """Runs a program of the environment, with Rust on the search path or without; returns how it ended."""
        environment = self.environment | variables
        if rust:
            environment["PATH"] += f":{dist_server.installed()[2]}/bin"
        command = [self.venv / "bin" / program, *arguments]
        return subprocess.run(command, input=stdin, env=environment, cwd=self.home, capture_output=True, text=True, timeout=500)

    def cells(self, *cells, **options):
        """Runs cells in a kernel; returns what each shows, and the seconds since the kernel was started."""
        ran = self.run("python", "-c", RUN_CELLS, stdin=json.dumps(cells), **options)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    wheels = list((TARGET / "wheel/dist").glob("*.whl"))
    assert len(wheels) == 1, "`cargo xtask wheel` builds the wheel"
    return Installed(tmp_path_factory.mktemp("installed"), wheels[0])


def test_pip_alone_registers_a_kernel_whose_first_candle_result_comes_in_seconds(installed):
    ((result, seconds),) = installed.cells(CANDLE)
    assert result == "6.0"
    print(f"pip install: {installed.install_seconds:.1f} s; kernel start to first candle result: {seconds:.1f} s")
    # benchmarks/README.md has the times of a quiet machine. A prelude that must be built first takes minutes.
    assert installed.install_seconds + seconds < 60
    assert not list(installed.home.glob(".cache/ferrotune/prelude-*/library"))


def test_doctor_finds_the_prelude_of_the_package(installed):
    ran = installed.run("ferrotune", "doctor")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"shipped, in {installed.venv}/lib/ferrotune" in ran.stdout


def test_cells_use_crates_of_their_own_beside_the_shipped_prelude(installed, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "doubling"\nversion = "0.1.0"\nedition = "2024"\n')
    (tmp_path / "src/lib.rs").write_text("pub fn double(x: f32) -> f32 { 2. * x }\n")
    shown = installed.cells(f":dep doubling = {{ path = {json.dumps(str(tmp_path))} }}", "doubling::double(21.)")
    assert shown[-1][0] == "42.0", shown


def test_a_panic_passes_through_the_shipped_prelude(installed):
    """Its frames are cleaned up by an unwinder that must be the one that libstd has started."""
    operation = """
        use candle_core::{CpuStorage, CustomOp1, Layout, Shape};
        struct Panics;
        impl CustomOp1 for Panics {
            fn name(&self) -> &'static str { "panics" }
            fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> { panic!("in the operation") }
        }
        let kept = 7;"""
    cells = [CANDLE, operation, "x.apply_op1(Panics)?;", "std::process::id()", "x.apply_op1(Panics)?;", "std::process::id()", "kept"]
    shown = [text for text, _ in installed.cells(*cells)]
    assert "in the operation" in shown[2] and "in the operation" in shown[4], shown
    # The process of the cells has not ended.
    assert shown[3] == shown[5] and shown[6] == "7", shown


def test_the_quickstart_runs_to_its_end(installed, tmp_path):
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path)
    ran = installed.run("jupyter-execute", "--inplace", folder / "01_quickstart.ipynb")
    assert ran.returncode == 0, ran.stderr
    cells = nbformat.read(folder / "01_quickstart.ipynb", as_version=4).cells
    assert [cell.source for cell in cells if cell.cell_type == "code" and cell.execution_count is None] == []


def test_a_python_notebook_of_the_environment_runs_rust(installed, tmp_path):
    sources = [
        "%load_ext ferrotune",
        'import numpy as np\nx = np.arange(4, dtype="float32")',
        "%%rust -i x -o y\nlet y = (x * 2.0)?;",
        "print(y.tolist())",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    path = tmp_path / "python.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    ran = installed.run("jupyter-execute", "--kernel_name=python3", "--inplace", path)
    assert ran.returncode == 0, ran.stderr
    assert nbformat.read(path, as_version=4).cells[-1].outputs[0].text == "[0.0, 2.0, 4.0, 6.0]\n"


def test_without_rust_the_first_cell_installs_it_and_needs_no_sources(installed, dist):
    ((shown, _),) = installed.cells(CANDLE, rust=False, **dist.environment)
    assert shown.startswith(f"installing Rust {VERSION} from {dist.address}") and shown.endswith("6.0"), shown
    assert "/dist/rustc.tar.gz" in dist.requests and "/dist/rust-src.tar.gz" not in dist.requests


def test_commands_of_the_dockerfile_prepare_a_machine(installed, dist, tmp_path):
    commands = [line.removeprefix("RUN ") for line in DOCKERFILE.read_text().splitlines() if line.startswith("RUN ferrotune")]
    assert commands == ["ferrotune setup && ferrotune doctor"]
    data = {"XDG_DATA_HOME": str(tmp_path)}
    ran = installed.run("python", "-c", SHELL, *commands, rust=False, **dist.environment, **data)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ((result, _),) = installed.cells(CANDLE, rust=False, **data)
    assert result == "6.0"


def test_what_was_written_goes_with_uninstall_and_the_package_with_pip(installed):
    kernelspec = installed.venv / "share/jupyter/kernels/ferrotune"
    ran = installed.run("ferrotune", "uninstall", "--all", "--yes")
    assert ran.returncode == 0, ran.stderr
    assert f"{kernelspec}: it starts another program, is a link, or is part of a package" in ran.stderr and kernelspec.exists()
    left = {path.relative_to(installed.home) for path in installed.home.rglob("*ferrotune*")}
    assert left == set()
    ran = installed.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "ferrotune")
    assert ran.returncode == 0, ran.stderr
    assert installed.files() - installed.before == set()
