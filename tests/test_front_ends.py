"""Programs that run notebooks without a browser: papermill with parameters, nbconvert, nbval and `jupyter execute`."""

import os
import pathlib
import shutil
import subprocess
import sys

import nbformat
import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "python"
TIMEOUT_S = 120


def write_notebook(path, *sources):
    kernel = {"name": "ferrotune", "display_name": "Rust (Ferrotune)", "language": "rust"}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


def run(*arguments, path=None):
    """Runs a Python module as a program; returns how it ended."""
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )


def printed(path):
    """What the cells of a notebook have printed."""
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.text for cell in cells for output in cell.outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder in which papermill's translator is installed."""
    folder = tmp_path_factory.mktemp("package")
    # pip builds in the folder of the sources.
    sources = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("sources") / "python")
    installed = run("pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", folder, sources)
    assert installed.returncode == 0, installed.stderr
    return folder


def test_papermill_injects_parameters_as_rust(package, tmp_path):
    notebook = tmp_path / "in.ipynb"
    write_notebook(
        notebook,
        'let lr = 0.1;\nlet name = "none";',
        'let rate: f64 = lr; let sizes: Vec<i32> = sizes; let far: i64 = far; let none: Option<f64> = none;\n'
        'println!("{rate} {name:?} {sizes:?} {far} {deep} {none:?} {mixed:?}");',
    )
    (tmp_path / "parameters.yaml").write_text(
        'lr: 0.01\nname: "a \\"b\\" \\\\ ü\\n\\u0007{x}"\nsizes: [1, -2]\nfar: 3000000000\ndeep: true\nnone: null\nmixed: [1, 2.5]\n'
    )
    ran = run("papermill", notebook, tmp_path / "out.ipynb", "-f", tmp_path / "parameters.yaml", path=package)
    assert ran.returncode == 0, ran.stderr
    assert printed(tmp_path / "out.ipynb") == '0.01 "a \\"b\\" \\\\ ü\\n\\u{7}{x}" [1, -2] 3000000000 true None [1.0, 2.5]\n'


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sizes", "[]", "the list [] has no Rust type"),
        ("sizes", "[1, a]", "has no Rust type"),
        ("sizes", "{a: 1}", "the dictionary {'a': 1} has no Rust type"),
        ("a-b", "1", "'a-b' is not the name of a Rust variable"),
    ],
)
def test_papermill_refuses_what_rust_has_not(package, tmp_path, name, value, reason):
    write_notebook(tmp_path / "in.ipynb", "let sizes = 1;")
    ran = run("papermill", tmp_path / "in.ipynb", tmp_path / "out.ipynb", "-y", f"{name}: {value}", path=package)
    assert ran.returncode != 0
    assert reason in ran.stderr, ran.stderr


def test_nbconvert_executes_a_notebook(tmp_path):
    write_notebook(tmp_path / "in.ipynb", "let sum = 1 + 2;", 'println!("{sum}");')
    ran = run("nbconvert", "--execute", "--to", "notebook", "--output", "out.ipynb", tmp_path / "in.ipynb")
    assert ran.returncode == 0, ran.stderr
    assert printed(tmp_path / "out.ipynb") == "3\n"


def test_jupyter_execute_runs_a_notebook(tmp_path):
    write_notebook(tmp_path / "in.ipynb", 'println!("run");')
    ran = run("jupyter", "execute", "--inplace", tmp_path / "in.ipynb")
    assert ran.returncode == 0, ran.stderr
    assert printed(tmp_path / "in.ipynb") == "run\n"


def test_nbval_compares_outputs(tmp_path):
    write_notebook(tmp_path / "in.ipynb", "1 + 2")
    ran = run("nbconvert", "--execute", "--to", "notebook", "--inplace", tmp_path / "in.ipynb")
    assert ran.returncode == 0, ran.stderr
    nbval = ("pytest", "--nbval", "-p", "no:cacheprovider", "-q", tmp_path / "in.ipynb")
    same = run(*nbval)
    assert same.returncode == 0, same.stdout
    text = (tmp_path / "in.ipynb").read_text()
    (tmp_path / "in.ipynb").write_text(text.replace('"1 + 2"', '"1 + 3"'))
    other = run(*nbval)
    assert other.returncode == 1 and "mismatch" in other.stdout, other.stdout
