"""`%tpu_check` of what is in the notebook: compiled steps in variables, for TPUs that are not there."""

import re

import pytest

from session import Session
from test_devices import PLUGIN, set_variable
from test_devices_xla import xla_cpu  # noqa: F401 (a fixture)

STEP = """
let weights = [Var::ones((64, 32), DType::F32, &device)?, Var::ones((32, 1), DType::F32, &device)?];
let mut optimiser = <ferrotune::AdamW as candle_nn::Optimizer>::new(weights.to_vec(), Default::default())?;
let inner = weights.clone();
let mut step: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| {
    let loss = args[0].matmul(&inner[0])?.gelu()?.matmul(&inner[1])?.sqr()?.mean_all()?;
    candle_nn::Optimizer::backward_step(&mut optimiser, &loss)?;
    Ok(vec![loss])
})?;
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory, xla_cpu):  # noqa: F811
    """A kernel with a compiled step on XLA:CPU in its variable `step`."""
    session = Session(tmp_path_factory.mktemp("check"))
    session.ok("use candle_core::{DType, Device, Tensor, Var};")
    session.ok("%tpu_connect --plugin cpu")
    session.ok("let device = ferrotune::device::current()?;")
    session.ok(STEP)
    session.ok("step.stablehlo(&[Tensor::ones((128, 64), DType::F32, &device)?])?;")
    yield session
    session.close()


def figures(text):
    """The lines of a check's table, by their first words."""
    lines = [line.strip().partition(" ") for line in text.splitlines() if line.startswith("  ")]
    return {name: value.strip() for name, _, value in lines}


def test_a_step_is_checked_for_all_shapes_with_which_it_has_run(notebook, libtpu):
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    notebook.ok("step.run(&[Tensor::ones((128, 64), DType::F32, &device)?])?;")
    before = notebook.ok("weights[0].flatten_all()?.to_vec1::<f32>()?[..9].to_vec()").result
    # Writing a program counts as well, and runs nothing.
    notebook.ok("step.stablehlo(&[Tensor::ones((512, 64), DType::F32, &device)?])?;")
    shown = notebook.ok("%tpu_check --tpu v5e:1x1 step").displays
    assert len(shown) == 2, shown
    for text, batch in zip(shown, (128, 512)):
        lines = text.splitlines()
        assert lines[0] == f"step(f32[{batch}, 64])"
        assert lines[1].startswith("v5e:1x1: 1 × TPU v5 lite"), lines
        assert lines[-1].startswith("fits"), lines
        assert "in donated arguments" in figures(text)["outputs"]
        time = figures(text)["time"]
        source = "as the compiler estimates|an estimate from the (flops|traffic) and the chip's peak"
        assert re.fullmatch(rf"at least [\d.]+ µs a run, ({source})", time), time
    flops = [float(figures(text)["flops"].split()[0]) for text in shown]
    assert 3 < flops[1] / flops[0] < 4.1, flops
    assert notebook.ok("weights[0].flatten_all()?.to_vec1::<f32>()?[..9].to_vec()").result == before


def test_a_variable_goes_before_a_file_of_its_name(notebook, libtpu):
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    (notebook.folder / "step").write_text("nothing of the kind")
    assert notebook.ok("%tpu_check --tpu v6e:2x2 step").displays[0].startswith("step(f32[")
    assert "PJRT_Compile" in notebook.fails("%tpu_check --tpu v6e:2x2 ./step").error
    notebook.ok('std::fs::write("same.mlir", step.stablehlo(&[Tensor::ones((128, 64), DType::F32, &device)?])?)?;')
    of_file = figures(notebook.ok("%tpu_check --tpu v5e:1x1 same.mlir").display)
    assert of_file == figures(notebook.ok("%tpu_check --tpu v5e:1x1 step").displays[0])


def test_what_cannot_be_checked_is_an_error_with_the_cure(notebook, libtpu):
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    make = "let mut {}: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| {})?;"
    notebook.ok(make.format("fresh", "Ok(vec![args[0].sqr()?])"))
    assert "run it once, or call fresh.stablehlo" in notebook.fails("%tpu_check --tpu v5e:1x1 fresh").error
    notebook.ok(make.format("fresh", "Ok(vec![args[0].sqr()?])").replace("let mut", "let"))
    assert "fresh is made with `let`" in notebook.fails("%tpu_check --tpu v5e:1x1 fresh").error
    notebook.ok("let mut number = 3;")
    error = notebook.fails("%tpu_check --tpu v5e:1x1 number").error
    assert "number is of the type i32 and no compiled step" in error, error
    assert "neither a variable nowhere" in notebook.fails("%tpu_check --tpu v5e:1x1 nowhere").error
    assert "PJRT_TopologyDescriptionCreate" in notebook.fails("%tpu_check --tpu v99:2x2 step").error
    # Both name an operation that has no lowering.
    notebook.ok(make.format("unknown", "Ok(vec![candle_nn::ops::sigmoid(&args[0].to_dtype(DType::U32)?)?])"))
    run = notebook.fails("unknown.run(&[Tensor::ones(4, DType::F32, &device)?])?;").error
    check = notebook.fails("%tpu_check --tpu v5e:1x1 unknown").error
    assert "sigmoid of u32 elements has no lowering" in run, run
    assert check.startswith("Error: unknown(f32[4]) cannot be lowered: sigmoid of u32 elements has no lowering"), check


def test_a_step_of_the_cpu_is_no_program(start):
    session = start()
    session.ok("use candle_core::Tensor;")
    session.ok("let mut step: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| Ok(vec![args[0].sqr()?]))?;")
    error = session.fails("%tpu_check --tpu v5e:1x1 step").error
    assert "without a compiler" in error and "%tpu_connect --plugin cpu" in error, error


def test_a_step_that_is_too_large_does_not_fit(notebook, libtpu):
    if libtpu[0] != "newest":
        pytest.skip("the old version does not know a chip's memory")
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    notebook.ok(
        "let mut large: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| Ok(vec![args[0].matmul(&args[1])?]))?;\n"
        "// Without values: a broadcast number needs no memory.\n"
        "let wide = Tensor::zeros((1, 1), DType::F32, &device)?.broadcast_as((65536, 65536))?;\n"
        "large.stablehlo(&[wide.clone(), wide])?;"
    )
    assert notebook.ok("%tpu_check --tpu v5e:1x1 large").display.splitlines()[-1] == "does not fit: needs 48 GiB of 15.75 GiB"


SIZED = """%%tune --objective loss:min --max-trials 3 --seed 1 --project sized --memory 1GiB --concurrency 1 --enqueue rows=4;rows=1500
|trial| {
    let rows = trial.int("rows", 1..=1500).get()? as usize;
    let device = trial.device()?;
    let mut step = ferrotune::compile(|args: &[Tensor]| Ok(vec![(args[0].broadcast_as((rows, 1 << 20))? * 2.)?]))?;
    let wide = step.run(&[Tensor::ones(1, DType::F32, &device)?])?;
    Ok(wide[0].narrow(1, 0, 1)?.sum_all()?.to_scalar::<f32>()? as f64)
}"""


def test_a_trial_whose_step_needs_more_than_its_budget_is_refused_before_it_runs(notebook):
    shown = notebook.ok(SIZED)
    rows = [line for line in notebook.ok("%trials --project sized").display.splitlines() if re.match(r" *[012] ", line)]
    assert "finished" in rows[0], (rows, shown.displays)
    assert "refused: a program needs 5.9 GiB of 1.0 GiB on xla:cpu; make the batch or the model smaller" in rows[1], rows


def test_a_step_that_a_plugins_device_cannot_hold_is_an_error_before_it_runs(start):
    """The test plugin says that its device has 16 GiB, and does what it can on a machine with fewer."""
    session = start()
    session.ok("use candle_core::{DType, Tensor};")
    session.ok(f"%tpu_connect --plugin {PLUGIN}")
    session.ok(
        "let device = ferrotune::device::current()?;\n"
        "let mut step: ferrotune::Step<'static> = ferrotune::compile(|args: &[Tensor]| {\n"
        "    Ok(vec![(args[0].broadcast_as((5 << 10, 1 << 20))? * 2.)?])\n"
        "})?;"
    )
    error = session.fails("step.run(&[Tensor::ones(1, DType::F32, &device)?])?;").error
    assert f"this program needs 20 GiB of 16 GiB on xla:{PLUGIN} and was not run" in error, error
    assert session.ok("Tensor::ones(4, DType::F32, &device)?.sum_all()?.to_scalar::<f32>()?").result == "4.0"


OBJECTIVE = """%%tune --objective loss:min --oracle random --max-trials 2 --project checked --enqueue "units=16; units=64"
|trial| {
    let units = trial.int("units", 16..=64).step(16).get()?;
    let device = trial.device()?;
    let weights = [Var::ones((64, units), DType::F32, &device)?, Var::ones((units, 1), DType::F32, &device)?];
    let mut optimiser = <ferrotune::AdamW as candle_nn::Optimizer>::new(weights.to_vec(), Default::default())?;
    let mut step = ferrotune::compile(move |args: &[Tensor]| {
        let loss = args[0].matmul(&weights[0])?.gelu()?.matmul(&weights[1])?.sqr()?.mean_all()?;
        candle_nn::Optimizer::backward_step(&mut optimiser, &loss)?;
        Ok(vec![loss])
    })?;
    let loss = step.run(&[Tensor::ones((128, 64), DType::F32, &device)?])?[0].to_scalar::<f32>()?;
    trial.report(0, [("loss", loss)])?;
    Ok(loss)
}
"""


def test_an_objective_is_checked_by_the_first_step_of_a_trial(notebook, libtpu):
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    notebook.ok(OBJECTIVE)
    before = notebook.ok("%trials --project checked").display
    flops = []
    for trial, units in enumerate((16, 64)):
        *_, what, check = notebook.ok(f"%tpu_check --tpu v5e:1x1 --project checked --trial {trial}").displays
        assert what == f"the first compiled step of trial {trial} of checked (units = {units})"
        assert check.splitlines()[-1].startswith("fits"), check
        flops.append(float(figures(check)["flops"].split()[0]))
    assert 3 < flops[1] / flops[0] < 4.5, flops
    best = notebook.ok("%tpu_check --tpu v5e:1x1 --project checked").displays[-2]
    assert best == "the first compiled step of trial 0 of checked (units = 16)"
    assert notebook.ok("%trials --project checked").display == before
    assert "has no trial 9; it has 2" in notebook.fails("%tpu_check --tpu v5e:1x1 --project checked --trial 9").error


def test_an_objective_without_a_compiled_step_has_no_program(notebook, libtpu):
    set_variable(notebook, "TPU_LIBRARY_PATH", libtpu[1])
    notebook.ok("""%%tune --objective loss:min --max-trials 1 --project eager
|trial| { trial.report(0, [("loss", trial.float("lr", 0.1..=1.0).get()?)])?; Ok(0.5) }
""")
    error = notebook.fails("%tpu_check --tpu v5e:1x1 --project eager").error
    assert "has run no compiled step: the trial reports before a compiled step has run" in error, error
    assert "there is no study" in notebook.fails("%tpu_check --tpu v5e:1x1 --project nowhere").error
