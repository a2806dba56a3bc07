"""The notebook on the device of a PJRT plugin, as a user has it: XLA:CPU from PyPI (`fastatomstruct-xla-cpu`), which computes and
compiles like a TPU's driver, and plugins that are missing, are none, hang or die.
"""

import os
import pathlib
import re
import sysconfig
import time

import jax
import nbformat
import notebook_run
import pytest

from session import TARGET, Session, is_alive
from test_devices import HELPER, PLUGIN, quoted, set_variable

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
PACKAGED = pathlib.Path(sysconfig.get_path("purelib"), "fastatomstruct_xla_cpu/libpjrt_cpu.so")
XLA_CPU = os.environ.get("FERROTUNE_XLA_CPU", str(PACKAGED))


@pytest.fixture(autouse=True, scope="module")
def xla_cpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FERROTUNE_XLA_CPU", XLA_CPU)
        for name, value in HELPER.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def connected(tmp_path_factory, xla_cpu):
    """A kernel that has XLA:CPU as its device."""
    session = Session(tmp_path_factory.mktemp("xla"))
    outcome = session.ok("%tpu_connect --plugin cpu")
    assert re.match(r"xla:cpu opens: \d+ × cpu.* \(PJRT 0\.106, StableHLO ", outcome.displays[0]), outcome.displays
    assert outcome.displays[1:] == ["connected to xla:cpu: chosen by --plugin"] and outcome.stderr == ""
    outcome = session.ok("use candle_core::{D, DType, Device, Tensor, Var};\nlet device = ferrotune::device::current()?;")
    # XLA reports on the processor and on its settings, which is nobody's business.
    assert outcome.stderr == "" and outcome.stdout == ""
    yield session
    session.close()


def test_cells_compute_on_the_plugin_and_a_second_device_is_the_same(connected):
    connected.ok("let x = Tensor::arange(0f32, 6., &device)?.reshape((2, 3))?;")
    assert connected.ok("x.matmul(&x.t()?)?.to_vec2::<f32>()?").result == "[[5.0, 14.0], [14.0, 50.0]]"
    assert connected.ok("ferrotune::device::current()?.same_device(&device)").result == "true"
    assert connected.ok("(&x + x.to_device(&ferrotune::device::current()?)?)?.sum_all()?.to_scalar::<f32>()?").result == "30.0"
    assert connected.ok("%device").displays[-1] == "connected to xla:cpu"
    assert connected.ok("%tpu_connect --plugin cpu").displays == ["connected to xla:cpu: chosen by --plugin"]
    shown = connected.ok("x").result
    assert shown == "Tensor [2, 3] f32 on xla:cpu\n0.0  1.0  2.0\n3.0  4.0  5.0"


def test_the_report_says_what_was_compiled_and_what_crossed(connected):
    def report():
        lines = connected.ok("%device --report").displays[-1].splitlines()
        assert lines[0] == "connected to xla:cpu"
        return int(lines[1].removeprefix("programs compiled: ")), lines[2:]

    connected.ok("let seven = Tensor::ones((7, 11), DType::F32, &device)?; device.synchronize()?;")
    compiled, before = report()
    assert not any("[77]" in line for line in before), before
    connected.ok("for _ in 0..3 { seven.to_vec2::<f32>()?; }")
    compiled_later, lines = report()
    assert "copied to the host: f32 [77], 3 times, 924 bytes" in lines, lines
    assert compiled_later - compiled <= 1
    assert connected.ok("%lsmagic device").display.startswith("%device [close] [--report]")


MODEL = """
use candle_nn::{Linear, Module, Optimizer};
use ferrotune::optim::{AdamW, Lion, ParamsAdamW, ParamsLion, ParamsSGD, SGD, Schedule, clip_grad_norm};

/// The weights and losses of twelve steps with clipping and a schedule, from the same start on each device.
fn train<O: Optimizer>(device: &Device, config: O::Config, compiled: bool) -> ferrotune::Result<(Vec<f32>, Vec<f32>)> {
    let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let tensor = |rows: usize, columns: usize, step: f32| Tensor::from_vec(wave(rows * columns, step), (rows, columns), device);
    let (x, y) = (tensor(16, 6, 0.7)?, tensor(16, 1, 1.3)?);
    let vars = [Var::from_tensor(&tensor(8, 6, 2.1)?)?, Var::from_tensor(&tensor(1, 8, 2.9)?)?];
    let layers = [Linear::new(vars[0].as_tensor().clone(), None), Linear::new(vars[1].as_tensor().clone(), None)];
    let optimiser = std::cell::RefCell::new(O::new(vars.to_vec(), config)?);
    let mut step = |args: &[Tensor]| -> candle_core::Result<Vec<Tensor>> {
        let loss = layers[1].forward(&layers[0].forward(&args[0])?.tanh()?)?.sub(&args[1])?.sqr()?.mean_all()?;
        let mut grads = loss.backward()?;
        let norm = clip_grad_norm(&mut grads, &vars, 0.5)?;
        optimiser.borrow_mut().step(&grads)?;
        Ok(vec![loss, norm.to_dtype(DType::F32)?])
    };
    let mut losses = Vec::new();
    let schedule = Schedule::cosine(0.05, 12).warm_up(3);
    if compiled {
        let mut step = ferrotune::compile(&mut step)?;
        for at in 0..12 {
            optimiser.borrow_mut().set_learning_rate(schedule.at(at));
            losses.push(step.run(&[x.clone(), y.clone()])?[0].to_scalar::<f32>()?);
        }
    } else {
        for at in 0..12 {
            optimiser.borrow_mut().set_learning_rate(schedule.at(at));
            losses.push(step(&[x.clone(), y.clone()])?[0].to_scalar::<f32>()?);
        }
    }
    Ok((losses, Tensor::cat(&[vars[0].flatten_all()?, vars[1].flatten_all()?], 0)?.to_vec1()?))
}
fn furthest(a: &[f32], b: &[f32]) -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0., f32::max) }
"""


@pytest.fixture(scope="module")
def trained(connected):
    connected.ok(MODEL)
    return connected


@pytest.mark.parametrize(
    "optimiser",
    [
        "AdamW>(DEVICE, ParamsAdamW { weight_decay: 0.1, ..Default::default() }",
        "SGD>(DEVICE, ParamsSGD { momentum: 0.9, nesterov: true, weight_decay: 0.01, ..Default::default() }",
        "SGD>(DEVICE, ParamsSGD::default()",
        "Lion>(DEVICE, ParamsLion { weight_decay: 0.1, ..Default::default() }",
    ],
    ids=["adamw", "nesterov", "sgd", "lion"],
)
def test_an_optimiser_takes_the_steps_of_the_cpu_lazily_and_compiled(trained, optimiser):
    trained.ok(f"let expected = train::<{optimiser.replace('DEVICE', '&Device::Cpu')}, false)?;")
    assert trained.ok("expected.0[11] < expected.0[0]").result == "true"
    for compiled in ("false", "true"):
        trained.ok(f"let got = train::<{optimiser.replace('DEVICE', '&device')}, {compiled})?;")
        off = trained.ok("(furthest(&got.0, &expected.0), furthest(&got.1, &expected.1))").result
        assert all(float(number) < 1e-6 for number in re.findall(r"[-\de.]+", off)), (compiled, off)


def test_a_compiled_step_is_compiled_once_for_each_shape_and_stays_in_a_variable(connected):
    connected.ok(
        "let total = Var::zeros(3, DType::F32, &device)?;\n"
        "let inner = total.clone();\n"
        "let mut step: ferrotune::Step<'static> = ferrotune::compile(move |args: &[Tensor]| {\n"
        "    inner.set(&(inner.as_tensor() + args[0].sum(0)?)?)?;\n"
        "    Ok(vec![inner.as_tensor().sum_all()?])\n"
        "})?;"
    )
    connected.ok("for _ in 0..5 { step.run(&[Tensor::ones((2, 3), DType::F32, &device)?])?; }")
    compiled = connected.ok("ferrotune::xla::backend_of(&device).unwrap().compilations()").result
    run = "step.run(&[Tensor::ones((2, 3), DType::F32, &device)?])?[0].to_scalar::<f32>()?"
    assert connected.ok(run).result == "36.0"
    later = connected.ok("ferrotune::xla::backend_of(&device).unwrap().compilations()").result
    assert int(later) - int(compiled) <= 1, "the ones are made by a program"
    assert connected.ok(run.replace("(2, 3)", "(4, 3)")).result == "48.0"
    assert connected.ok("total.to_vec1::<f32>()?").result == "[16.0, 16.0, 16.0]"


def test_what_a_compiled_step_may_not_do_is_an_error_with_the_cure(connected):
    make = "{{ {} let mut step = ferrotune::compile(|args: &[Tensor]| {{ {} }})?; step.run(&[Tensor::ones(2, DType::F32, &device)?])?; }}"
    error = connected.fails(make.format("", "if args[0].sum_all()?.to_scalar::<f32>()? > 0. { Ok(vec![]) } else { Ok(vec![args[0].clone()]) }")).error
    assert "reads a value that it computes" in error and "where_cond" in error, error
    counting = make.format("let mut count = 0.;", "count += 1.; Ok(vec![(&args[0] * count)?])")
    assert "changes from call to call" in connected.fails(counting).error
    assert "move it with `to_device`" in connected.fails(
        "ferrotune::compile(|args: &[Tensor]| Ok(vec![args[0].sqr()?]))?.run(&[Tensor::ones(2, DType::F32, &Device::Cpu)?])?;"
    ).error


def test_a_tensor_of_the_cpu_is_refused_with_the_cure(connected):
    error = connected.fails("(Tensor::ones(2, DType::F32, &device)? + Tensor::ones(2, DType::F32, &Device::Cpu)?)?;").error
    assert "device" in error.lower(), error


def test_a_cell_that_leaves_work_undone_has_its_snapshot_and_a_device_that_works(connected):
    """Arrays are computed when they are read, and executions go on when a cell has ended: neither disturbs the fork."""
    connected.ok("let mut big = Tensor::ones((600, 600), DType::F32, &device)?;")
    for _ in range(5):
        connected.ok("for _ in 0..5 { big = (big.matmul(&big)? * (1. / 600.))?; }\nlet reading = big.narrow(0, 0, 1)?.contiguous()?;")
    assert connected.ok("big.mean_all()?.to_scalar::<f32>()?").result == "1.0"


def test_an_interrupt_ends_a_long_execution(start):
    session = start()
    session.ok("%tpu_connect --plugin cpu")
    session.ok("use candle_core::{DType, Tensor};\nlet kept = 7;")
    outcome = session.interrupt(
        'println!("begun");\nlet mut x = Tensor::ones((2000, 2000), DType::F32, &ferrotune::device::current()?)?;\n'
        "for _ in 0..10000 { x = (x.matmul(&x)? * (1. / 2000.))?; }\nx.sum_all()?.to_scalar::<f32>()?;"
    )
    assert outcome.seconds < 30 and "interrupt" in outcome.error.lower(), outcome.error
    assert session.ok("kept").result == "7"
    # The device was opened in the cell that was ended, so that nothing is lost with it.
    assert session.ok("Tensor::ones(2, DType::F32, &ferrotune::device::current()?)?.to_vec1::<f32>()?").result == "[1.0, 1.0]"


TUNE = """
%%tune --oracle random --objective loss:min --max-trials 4 --concurrency 2 --seed 3 --project on-xla
|trial| {
    let lr = trial.float("lr", 1e-2..=1e-1).get()?;
    let device = trial.device()?;
    assert!(device.same_device(&ferrotune::device::current()?) && !device.is_cpu());
    let data = data.to_device(&device)?;
    let var = Var::zeros(3, DType::F32, &device)?;
    let mut optimiser = ferrotune::AdamW::new(vec![var.clone()], ParamsAdamW { lr, ..Default::default() })?;
    trial.restore((&mut optimiser,))?;
    let inner = var.clone();
    let mut losses = Vec::new();
    for epoch in trial.epochs(3) {
        let mut step = ferrotune::compile(|args: &[Tensor]| {
            let loss = args[0].broadcast_sub(inner.as_tensor())?.sqr()?.mean_all()?;
            optimiser.backward_step(&loss)?;
            Ok(vec![loss])
        })?;
        for _ in 0..5 { losses.push(step.run(&[data.clone()])?[0].to_scalar::<f32>()?); }
        drop(step);
        trial.report(epoch, [("loss", *losses.last().unwrap())])?;
        trial.checkpoint((&optimiser,))?;
    }
    assert!(losses[14] < losses[0], "{losses:?}");
    trial.best("loss")
}
"""


def test_two_trials_at_a_time_open_the_device_each_for_itself(trained):
    trained.ok("let data = Tensor::new(&[[1f32, 2., 3.], [3., 2., 1.]], &Device::Cpu)?;")
    outcome = trained.ok(TUNE.strip())
    assert outcome.stderr == ""
    assert "4/4 trials" in outcome.display and "failed" not in outcome.display, outcome.display
    rows = trained.ok("%trials").display.splitlines()[1:]
    assert len(rows) == 4 and all("finished" in row or "complete" in row.lower() for row in rows), rows


def test_a_plugin_that_is_not_there_or_is_none_is_said_with_the_cure(start, tmp_path, monkeypatch):
    monkeypatch.setenv("FERROTUNE_XLA_CPU", str(tmp_path / "nothing.so"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    monkeypatch.setenv("FERROTUNE_PYTHON", str(tmp_path))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    session = start()
    error = session.fails("%tpu_connect --plugin cpu").error
    assert "XLA:CPU is not installed" in error and "pip install fastatomstruct-xla-cpu" in error
    assert "nowhere.so is not a file; name cuda, rocm, oneapi, cpu, or the library of a PJRT plugin" in session.fails("%tpu_connect --plugin nowhere.so").error
    (tmp_path / "text.so").write_text("not a library")
    assert "cannot load the plugin" in session.fails("%tpu_connect --plugin text.so").error
    no_plugin = next(pathlib.Path("/usr/lib").glob("**/libgcc_s.so.1"), None) or next(pathlib.Path("/lib").glob("**/libc.so.6"))
    assert "is not a PJRT plugin: it does not export GetPjrtApi" in session.fails(f"%tpu_connect --plugin {no_plugin}").error
    assert "cannot be used with --tpu" in session.fails("%tpu_connect --plugin cpu --tpu local").error
    assert session.ok("%device").displays[-1] == "connected to cpu"
    # An environment's own package is found without a variable.
    place = tmp_path / "lib/python3.12/site-packages/fastatomstruct_xla_cpu"
    place.mkdir(parents=True)
    (place / "libpjrt_cpu.so").symlink_to(XLA_CPU)
    assert session.ok("%tpu_connect --plugin cpu").displays[-1] == "connected to xla:cpu: chosen by --plugin"


@pytest.mark.parametrize("place", ["load", "initialize", "client"])
def test_a_plugin_that_dies_when_it_is_opened_costs_one_error(start, place, monkeypatch):
    session = start()
    session.ok("let kept = 1;")
    set_variable(session, "FERROTUNE_PJRT_FAULT", f"{place}:abort")
    error = session.fails(f"%tpu_connect --plugin {PLUGIN}").error
    assert "the plugin has ended its device process" in error and "already in use by process 42" in error
    assert session.ok("%device").displays[-1] == "connected to cpu"
    set_variable(session, "FERROTUNE_PJRT_FAULT", "")
    assert session.ok(f"%tpu_connect --plugin {PLUGIN}").displays[-1] == f"connected to xla:{PLUGIN}: chosen by --plugin"
    assert session.ok("kept").result == "1"


def test_a_device_is_profiled_for_tensorboard(start):
    session = start()
    cell = "%%profile --tensorboard logs\nfor _ in 0..4 { ferrotune::profile::step(); x = x.sqr()?.affine(0.5, 0.25)?; x.sum_all()?.to_scalar::<f32>()?; }"
    session.ok("use candle_core::Tensor;\nlet mut x = Tensor::arange(0f32, 8f32, &candle_core::Device::Cpu)?;")
    reason = "only devices of PJRT plugins have a profiler of their own; leave out --tensorboard"
    assert f"the device cpu cannot be profiled for TensorBoard: {reason}" in session.fails(cell).error
    def opens(fault):
        """The device process of a plugin with another fault is another one."""
        session.run("%device close")
        set_variable(session, "FERROTUNE_PJRT_FAULT", fault)
        session.ok(f"%tpu_connect --plugin {PLUGIN}")
        session.ok("let mut x = Tensor::arange(0f32, 8f32, &ferrotune::device::current()?)?;")

    opens("profile:refuse")
    assert "PLUGIN_Profiler_Start: FAILED_PRECONDITION: Another profiling session is active.; leave out" in session.fails(cell).error
    # The plugin gives a buffer of its own, or wants one.
    for index, fault in enumerate(["", "profile:copy"]):
        opens(fault)
        displays = session.ok(cell).displays
        wrote = re.fullmatch(r"wrote (.*/logs/plugins/profile/(.*)/.*\.xplane\.pb); tensorboard --logdir logs shows it", displays[-1])
        assert "2 steps after a first one" in displays[0], displays
        (plane,) = jax.profiler.ProfileData.from_file(wrote[1]).planes
        assert plane.name == "/device:EMULATED:0"
        (line,) = plane.lines
        events = list(line.events)
        assert line.name == "XLA Modules" and len(events) >= 3 and all(event.name == "a program" and event.duration_ns > 0 for event in events)
        assert len(list((session.folder / "logs/plugins/profile").iterdir())) == index + 1
        time.sleep(1)
    session.ok("%tpu_connect --plugin cpu")
    error = session.fails(cell).error
    assert "the device xla:cpu cannot be profiled for TensorBoard: the plugin has no profiler of its own, as libtpu has one; leave out --tensorboard" in error


def test_the_quickstart_runs_on_the_plugin_with_another_device_line_alone(tmp_path):
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path)
    path = folder / "01_quickstart.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook_run.cell_of(notebook, "%tpu_connect").source += " --plugin cpu"
    # Each trial compiles its programs, which are what takes the time.
    search = notebook_run.cell_of(notebook, "%%tune")
    search.source = search.source.replace("--max-trials 20", "--max-trials 8")
    nbformat.write(notebook, path)
    notebook, error = notebook_run.run(path, folder)
    assert error is None, error
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert "connected to xla:cpu" in notebook_run.text_of(notebook_run.cell_of(notebook, "%tpu_connect").outputs[-1])
    (best,) = notebook_run.cell_of(notebook, "%best").outputs
    assert 0.95 < float(best.data["text/plain"].splitlines()[1].split()[1]) <= 1.0
