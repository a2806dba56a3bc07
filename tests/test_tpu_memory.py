"""A training step's peak of memory on a TPU against that of the same step in JAX (`jax_twins/`), as libtpu reports both.

Compiling takes minutes. Except for the MLP, libtpu compiles a program only for `tpu_peaks.py`. ResNet-18
is compiled for v5e alone, and GPT-2 for v5e with two of its layers. `FERROTUNE_TPU_MEMORY=whole` compiles all models whole for both
generations; benchmarks/steps.md has those figures.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import tpu_peaks
from session import Session
from test_devices import set_variable
from test_devices_xla import xla_cpu  # noqa: F401 (a fixture)

TWINS = pathlib.Path(__file__).parent / "jax_twins"
# Layers or stages of the whole model, how many are compiled for a generation that has not the whole, and the batch.
MODELS = {"mlp": (3, 3, 1024), "resnet18": (4, None, 32), "gpt2": (12, 2, 2)}
WHOLE = {"v5e": ("mlp", "resnet18"), "v6e": ("mlp", "gpt2")}
STEPS = {
    "mlp": ("mlp(&device)?", "({batch}, 784), DType::F32", "{batch}, DType::U32"),
    "resnet18": ("resnet18(&device, {depth})?", "({batch}, 3, 224, 224), DType::F32", "{batch}, DType::U32"),
    "gpt2": ("gpt2(&device, {depth})?", "({batch}, 1024), DType::U32", "1024 * {batch}, DType::U32"),
}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# The model that libtpu compiles in every run.
ALWAYS = "mlp"
MOST = 1.10
LEAST = 0.80


def depth_of(model, generation):
    whole, part, _ = MODELS[model]
    return whole if model in WHOLE[generation] or os.environ.get("FERROTUNE_TPU_MEMORY") == "whole" else part


def peak(outcome):
    assert outcome.errors == [], outcome.traceback
    value, unit = re.search(r"^  peak +([\d.]+) (\w+)$", outcome.display, re.MULTILINE).groups()
    return float(value) * UNITS[unit]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory, xla_cpu):  # noqa: F811
    """One that makes our steps on XLA:CPU, and one that checks JAX's at the same time."""
    ours, theirs = Session(tmp_path_factory.mktemp("ours")), Session(tmp_path_factory.mktemp("theirs"))
    ours.ok("%tpu_connect --plugin cpu")
    # A cell cannot begin with the line that says what the file is for.
    ours.ok((TWINS / "models.rs").read_text().partition("\n")[2])
    ours.ok("let device = ferrotune::device::current()?;")
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("libtpu", ["newest"], indirect=True)
@pytest.mark.parametrize("generation", WHOLE)
@pytest.mark.parametrize("model", MODELS)
def test_a_training_step_needs_no_more_memory_than_in_jax(kernels, libtpu, model, generation):
    depth, batch = depth_of(model, generation), MODELS[model][2]
    if depth is None:
        pytest.skip("takes minutes; FERROTUNE_TPU_MEMORY=whole compiles it")
    for kernel in kernels:
        set_variable(kernel, "TPU_LIBRARY_PATH", libtpu[1])
        kernel.cell_timeout_s = 1500
    ours, theirs = kernels
    made, *arguments = (text.format(depth=depth, batch=batch) for text in STEPS[model])
    ours.ok(f"let mut step: ferrotune::Step<'static> = ferrotune::compile({made})?;")
    x, y = (f"Tensor::zeros({argument}, &device)?" for argument in arguments)
    ours.ok(f'std::fs::write("step.mlir", step.stablehlo(&[{x}, {y}])?)?;')
    command = [sys.executable, TWINS / "twins.py", model, str(depth), str(batch), theirs.folder / "twin.mlir"]
    subprocess.run(command, check=True, timeout=120)
    programs = {(ours, "step"): ours.folder / "step.mlir", (theirs, "twin.mlir"): theirs.folder / "twin.mlir"}
    own, jax = peaks(programs, model, depth, f"{generation}:1x1", libtpu[1])
    ours.ok("drop(step);")
    line = f"{model} of depth {depth}, {generation}: {own / 2**20:.1f} MiB, JAX {jax / 2**20:.1f} MiB, ratio {own / jax:.3f}"
    print(line)
    # A step that forgets a part of the work needs less.
    assert LEAST * jax <= own <= MOST * jax, line


def peaks(programs, model, depth, tpu, library):
    """The peak of each program, which a kernel knows by a name."""
    found, begun = {}, {}
    for (kernel, name), path in programs.items():
        program = (path.read_bytes(), tpu, library, f"{model} of depth {depth}, {name}, {tpu}")
        found[name] = None if model == ALWAYS else tpu_peaks.kept(*program, is_ours=name == "step")
        if found[name] is None:
            begun[name] = kernel, kernel.begin(f"%tpu_check --tpu {tpu} {name}"), program
    for name, (kernel, cell, program) in begun.items():
        found[name] = peak(kernel.end_of(cell))
        if model != ALWAYS:
            tpu_peaks.keep(*program, found[name])
    return found.values()
