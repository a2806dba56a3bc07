"""Devices: what a machine has, PJRT plugins that work and plugins that do not, and programs compiled for TPUs that are
not there.

Two plugins are used: one of our own that runs on XLA:CPU through jaxlib (`tests/pjrt_plugin`), and Google's libtpu from
PyPI, which compiles on any machine. Where that wheel cannot be had, its tests are skipped.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess
import sys

import jax
import pytest

from session import TARGET, Session

TESTS = pathlib.Path(__file__).parent
PLUGIN = TARGET / "release/deps/libferrotune_pjrt_plugin.so"
CONTRACT = TARGET / "release/examples/contract"
THROUGHPUT = TARGET / "release/examples/throughput"
HELPER = {"FERROTUNE_PJRT_PYTHON": sys.executable, "FERROTUNE_PJRT_HELPER": str(TESTS / "xla_cpu_helper.py")}
TOPOLOGIES = {"v5e:1x1": 1, "v5e:2x2": 4, "v5e:2x4": 8, "v6e:2x4": 8, "v4:2x2x1": 8}

MATMUL = """
module @matmul {
  func.func public @main(%a: tensor<256x512xbf16>, %b: tensor<512x128xbf16>) -> tensor<256x128xf32> {
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<256x512xbf16>, tensor<512x128xbf16>) -> tensor<256x128xf32>
    return %c : tensor<256x128xf32>
  }
}
"""
# Two arguments and a result of 16 GiB each.
TOO_LARGE = """
module @too_large {
  func.func public @main(%a: tensor<65536x65536xf32>, %b: tensor<65536x65536xf32>) -> tensor<65536x65536xf32> {
    %c = stablehlo.add %a, %b : tensor<65536x65536xf32>
    return %c : tensor<65536x65536xf32>
  }
}
"""
# Each of four devices has a quarter of the rows; the sum over all makes the compiler add communication.
SPREAD = """
module @spread attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%a: tensor<4096x1024xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"})
      -> (tensor<1024xf32> {mhlo.sharding = "{replicated}"}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<4096x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    return %s : tensor<1024xf32>
  }
}
"""


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    """A kernel without environment variables for TPUs, in a folder with the programs to check."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HELPER.items():
            patch.setenv(name, value)
        for name in ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG", "TPU_LIBRARY_PATH"):
            patch.delenv(name, raising=False)
        session = Session(tmp_path_factory.mktemp("devices"))
    for name, text in {"matmul": MATMUL, "too_large": TOO_LARGE, "spread": SPREAD}.items():
        (session.folder / f"{name}.mlir").write_text(text)
    session.ok("let kept = vec![1, 2, 3];")
    yield session
    # No test has ended the process of the cells.
    assert session.ok("kept.len()").result == "3"
    session.close()


def set_variable(session, name, value):
    """Sets it in the process of the cells, which looks for devices and tries plugins."""
    session.ok(f"unsafe {{ std::env::set_var({quoted(name)}, {quoted(value)}) }};")


def quoted(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def a_plugin_hangs():
    """Whether a process has loaded `PLUGIN`, which hangs there. Tests that run beside this one load it without this fault."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            hangs = b"FERROTUNE_PJRT_FAULT=client:hang" in (process / "environ").read_bytes().split(b"\0")
            if hangs and str(PLUGIN) in (process / "maps").read_text():
                return True
        except OSError:
            pass
    return False


def skip_with_a_tpu(session):
    if not re.match(r"tpu +none ", session.ok("%devices").display.splitlines()[-1]):
        pytest.skip("this machine has a TPU")


def test_a_plugin_does_all_that_the_contract_asks_for():
    ran = subprocess.run([CONTRACT, PLUGIN], env=os.environ | HELPER, capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(lines) == 16 and all(line.startswith("ok: ") for line in lines), ran.stdout
    assert not any("cannot be shown" in line for line in lines), "the test plugin has two devices"


def test_devices_are_listed_with_their_memory(devices):
    lines = devices.ok("%devices").display.splitlines()
    assert re.fullmatch(r"Device +Name +Memory +Detail", lines[0])
    assert re.fullmatch(r"cpu  .*  (limited to )?\d[\d.]* [GT]iB.*  \d+ cores?, .*", lines[1]), lines[1]
    assert any(line.startswith("cuda") for line in lines) and lines[-1].startswith("tpu"), lines


def test_the_self_test_gives_a_report_to_paste(devices):
    shown = devices.ok(f"%tpu_connect --selftest --plugin {PLUGIN}").display
    lines = shown.splitlines()
    assert re.fullmatch(r"ferrotune \S+ self-test on cpu", lines[0])
    assert lines[1].startswith("  devices   2 × XLA:CPU with 16 GiB each (PJRT 0.69, StableHLO 1.10.10; jaxlib ")
    assert re.fullmatch(r"  matmul    f32 256×256: right, off by \S+; compiled in .* s, a run takes .* ms", lines[2])
    assert re.fullmatch(r"  training  20 steps, loss 0.34\d+ → 0.05\d+: right, off by \S+; .*", lines[3])
    assert re.fullmatch(r"  candle    the same 20 steps on the CPU: right, off by \S+", lines[4])
    assert lines[5:] == ["passed"]


def test_without_a_plugin_the_self_test_is_of_what_candle_computes_on(devices):
    skip_with_a_tpu(devices)
    lines = devices.ok("%tpu_connect --selftest").display.splitlines()
    assert re.fullmatch(r"ferrotune \S+ self-test on cpu", lines[0])
    assert re.fullmatch(r"  matmul    f32 256×256: right, off by \S+; a run takes .* ms", lines[2])
    assert re.fullmatch(r"  training  20 steps, loss 0.34\d+ → 0.05\d+: right, off by \S+; .*", lines[3])
    assert lines[-1] == "passed"
    assert "/nowhere.so" in devices.fails("%tpu_connect --selftest --plugin /nowhere.so").error


def test_the_speed_of_a_plugin_is_measured():
    ran = subprocess.run([THROUGHPUT, PLUGIN, "1", "100"], env=os.environ | HELPER, capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lines[0].startswith("device    XLA:CPU (PJRT 0.69; ")
    assert re.fullmatch(r"matmul    bf16 (\d+)×\1: [\d.]+ ms, [\d.]+ TFLOP/s, \d+ % of 1", lines[1]), lines[1]
    assert re.fullmatch(r"memory    \d+ MiB read and written: [\d.]+ ms, [\d.]+ GB/s, \d+ % of 100", lines[2]), lines[2]
    assert re.fullmatch(r"transfer  64 MiB: [\d.]+ GB/s to the device, [\d.]+ GB/s back", lines[3]), lines[3]


def test_a_device_that_was_open_is_refused_to_a_copy_of_its_process(start, monkeypatch):
    for name, value in HELPER.items():
        monkeypatch.setenv(name, value)
    session = start()
    session.ok("use ferrotune::devices::pjrt::{Client, Plugin}; let kept = 7;")
    session.ok("%checkpoint closed")
    opening = f"let client: Client = Plugin::load({quoted(PLUGIN)}.as_ref())?.client(&[])?;"
    session.ok(opening)
    assert session.ok("client.devices()?.len()").result == "2"
    assert "SIGABRT" in session.fails("std::process::abort();").error
    # The snapshot has the variables, but neither the plugin's threads nor its connection.
    refusal = r"this process forked from process \d+, which had opened an accelerator"
    assert re.search(refusal, session.fails("client.devices()?;").error)
    assert re.search(refusal, session.fails(opening.replace("client:", "again:")).error)
    assert session.ok("kept").result == "7"
    # A snapshot from before it was open can open it.
    session.ok("%restore closed")
    assert session.ok("kept").result == "7"
    session.ok(opening)
    assert session.ok("client.devices()?.len()").result == "2"


@pytest.mark.parametrize("place", ["load", "initialize", "client"])
def test_a_plugin_that_aborts_costs_the_cell_alone(start, place, monkeypatch):
    for name, value in HELPER.items():
        monkeypatch.setenv(name, value)
    session = start()
    set_variable(session, "FERROTUNE_PJRT_FAULT", f"{place}:abort")
    error = session.fails(f"%tpu_connect --selftest --plugin {PLUGIN}").error
    assert "the plugin has ended its device process" in error and "already in use by process 42" in error


def test_an_interrupt_ends_a_plugin_that_hangs(start, monkeypatch):
    for name, value in (HELPER | {"FERROTUNE_PJRT_FAULT": "client:hang"}).items():
        monkeypatch.setenv(name, value)
    session = start()
    outcome = session.interrupt_when(f"%tpu_connect --plugin {PLUGIN}", a_plugin_hangs, "process in which the plugin hangs")
    assert "interrupted" in outcome.error.lower(), outcome.error
    assert outcome.seconds < 20


def test_without_libtpu_the_check_says_how_to_get_it(devices):
    outcome = devices.run("%tpu_check --tpu v5e:2x2 matmul.mlir")
    if outcome.error is None:
        pytest.skip("this machine has libtpu")
    assert "pip install libtpu" in outcome.error


TRAIN = """
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, SGD};
use ferrotune::strategy::{self, Precision, Replica, Strategy};

fn train(replica: &Replica<'_>) -> ferrotune::Result<Vec<f32>> {
    let device = strategy::device(replica)?;
    let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let share = 32 / replica.count();
    let x = Tensor::from_vec(wave(32 * 6, 0.7), (32, 6), &device)?.narrow(0, replica.index() * share, share)?;
    let y = Tensor::from_vec(wave(32, 1.3), (32, 1), &device)?.narrow(0, replica.index() * share, share)?;
    let w1 = Var::from_tensor(&Tensor::from_vec(wave(6 * 8, 2.1), (6, 8), &device)?)?;
    let w2 = Var::from_tensor(&Tensor::from_vec(wave(8, 2.9), (8, 1), &device)?)?;
    let bias = Var::zeros(1, DType::F64, &device)?;
    let unused = Var::zeros(3, DType::F32, &device)?;
    let vars = [w1.clone(), bias.clone(), w2.clone(), unused];
    let mut optimizer = SGD::new(vars.to_vec(), 0.05)?;
    let cast = |tensor: &Tensor| strategy::cast(replica, tensor);
    for _ in 0..50 {
        let made = cast(&x)?.matmul(&cast(&w1)?)?.tanh()?.matmul(&cast(&w2)?)?;
        let made = made.to_dtype(DType::F32)?.broadcast_add(&bias.to_dtype(DType::F32)?)?;
        let mut gradients = made.sub(&y)?.sqr()?.mean_all()?.backward()?;
        strategy::average(replica, &mut gradients, &vars)?;
        optimizer.step(&gradients)?;
    }
    let bias = bias.to_dtype(DType::F32)?;
    Ok(Tensor::cat(&[w1.flatten_all()?, w2.flatten_all()?, bias], 0)?.to_vec1()?)
}
fn alike(strategy: &Strategy) -> ferrotune::Result<Vec<f32>> {
    let mut all = strategy.scope(train).into_iter().collect::<ferrotune::Result<Vec<_>>>()?;
    assert!(all.iter().all(|weights| weights == &all[0]));
    Ok(all.swap_remove(0))
}
fn furthest(a: &[f32], b: &[f32]) -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0., f32::max) }
"""


@pytest.fixture(scope="module")
def strategies(devices):
    devices.ok(TRAIN)
    return devices


def test_two_replicas_train_as_one_on_the_global_batch(strategies):
    compare = """
let one = alike(&Strategy::on("cpu"))?;
let two = alike(&Strategy::mirrored(["cpu", "cpu"])?)?;
println!("{} {:e}", one.len(), furthest(&one, &two));
"""
    length, worst = strategies.ok(compare).stdout.split()
    assert length == "57" and float(worst) < 1e-6, worst


def test_precision_decides_what_is_computed_with(strategies):
    compare = """
let single = alike(&Strategy::on("cpu"))?;
let bf16 = alike(&Strategy::mirrored(["cpu", "cpu"])?.with_precision(Precision::Bf16))?;
println!("{:e}", furthest(&single, &bf16));
"""
    # bf16 has eight bits, and the variables stay in single precision.
    assert 1e-4 < float(strategies.ok(compare).stdout) < 0.05


WORKER = """
let strategy = Strategy::on("cpu").across(ferrotune::strategy::Cluster::from_environment()?.with_timeouts(60, 60));
println!("{:?}", alike(&strategy)?.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>());
"""


def test_two_notebooks_train_as_one_on_the_global_batch(strategies, start):
    # Each run has its own address, so that no other program listens there or connects from there.
    pid = os.getpid()
    addresses = [f"127.{2 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}:{port}" for port in (4000, 4001)]
    other = start()
    for index, session in enumerate((strategies, other)):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        set_variable(session, "TF_CONFIG", json.dumps(config))
    other.ok(TRAIN)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda session: session.ok(WORKER).stdout, (strategies, other))
    assert first == second, "not the same bit for bit"
    one = 'println!("{:?}", alike(&Strategy::on("cpu"))?);'
    weights = struct.unpack("57f", struct.pack("57I", *json.loads(first)))
    alone = json.loads(strategies.ok(one).stdout)
    assert max(abs(a - b) for a, b in zip(weights, alone)) < 1e-6


def test_the_current_strategy_is_the_connected_device(strategies):
    strategies.ok("%tpu_connect")
    assert strategies.ok("strategy::current() == Strategy::on(ferrotune::device::name())").result == "true"
    skip_with_a_tpu(strategies)
    assert "no TPU is attached" in strategies.fails("strategy::tpu()?;").error


REPLICAS = """%%tune --objective loss:min --max-trials 2 --seed 1 --project replicas
|trial| {
    let rate = trial.float("rate", 0.1..=0.4).get()?;
    let device = trial.device()?;
    assert_eq!(trial.strategy(), Strategy::on("cpu"));
    let weights: Vec<Var> = pair.devices().iter().map(|_| Var::zeros(1, DType::F32, &device)).collect::<Result<_, _>>()?;
    for epoch in trial.epochs(3) {
        let step = |replica: &Replica<'_>| -> ferrotune::Result<f32> {
            let weight = &weights[replica.index()];
            let target = Tensor::new(&[replica.index() as f32], &strategy::device(replica)?)?;
            let mut gradients = weight.sub(&target)?.sqr()?.sum_all()?.backward()?;
            strategy::average(replica, &mut gradients, std::slice::from_ref(weight))?;
            SGD::new(vec![weight.clone()], rate)?.step(&gradients)?;
            Ok(weight.to_vec1::<f32>()?[0])
        };
        let now = pair.scope(step).into_iter().collect::<ferrotune::Result<Vec<f32>>>()?;
        assert_eq!(now[0], now[1]);
        trial.report(epoch, [("loss", (0.5 - now[0]).abs())])?;
    }
    trial.best("loss")
}"""


def test_a_trial_trains_on_two_replicas_of_a_strategy_from_the_notebook(strategies):
    strategies.ok('let pair = Strategy::mirrored(["cpu", "cpu"])?;')
    outcome = strategies.ok(REPLICAS)
    assert outcome.display.startswith("replicas: 2/2 trials"), outcome.display
    loss, rate = map(float, re.search(r"best: loss = (\S+) in trial \d \(rate=(\S+)\)", outcome.display).groups())
    rows = strategies.ok("%trials --project replicas").display
    assert "failed" not in rows and rows.count("finished") == 2, rows
    # Gradients of both halves pull to their middle, by 2 × rate of the way each step.
    assert abs(loss - 0.5 * (1 - 2 * rate) ** 3) < 1e-3, outcome.display


@pytest.fixture
def checked(devices, libtpu):
    """What `%tpu_check` shows of a program, compiled with that version."""
    _, library = libtpu
    set_variable(devices, "TPU_LIBRARY_PATH", library)
    return lambda tpu, name: devices.ok(f"%tpu_check --tpu {tpu} {name}.mlir").display


@pytest.mark.parametrize("tpu", TOPOLOGIES)
def test_a_program_is_compiled_for_a_tpu_that_is_not_there(checked, libtpu, tpu):
    lines = checked(tpu, "matmul").splitlines()
    assert lines[0].startswith(f"{tpu}: {TOPOLOGIES[tpu]} × TPU v"), lines
    assert re.match(r"compiled in \S+ s with PJRT 0\.\d+, TFRT TPU v", lines[1]), lines
    figures = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[2:-1]}
    assert figures["arguments"] == "384 KiB" and figures["outputs"] == "128 KiB"
    assert figures["flops"] == "3.355e7 a run"  # 2 × 256 × 512 × 128
    assert lines[-1].startswith("fits"), lines
    if libtpu[0] == "newest":
        memory = {"v5e": "15.75 GiB", "v6e": "31.24 GiB", "v4": "15.25 GiB"}[tpu.split(":")[0]]
        assert lines[0].endswith(f"with {memory} each") and lines[-1].endswith(f"of {memory}"), lines


def test_a_program_that_is_too_large_does_not_fit(checked, libtpu):
    # The old version counts only the arguments; the newest version counts all three arrays.
    needed = {"old": "32", "newest": "48"}[libtpu[0]]
    assert checked("v5e:2x2", "too_large").splitlines()[-1] == f"does not fit: needs {needed} GiB of 15.75 GiB"


def test_a_program_over_four_devices_needs_a_quarter_on_each(checked):
    lines = checked("v5e:2x2", "spread").splitlines()
    assert "  replicas    1, of 4 partitions" in lines
    assert "  arguments   4 MiB" in lines


def test_what_is_no_program_or_no_tpu_is_an_error(devices, libtpu):
    set_variable(devices, "TPU_LIBRARY_PATH", libtpu[1])
    (devices.folder / "garbage.mlir").write_text("nothing of the kind")
    assert "PJRT_Compile" in devices.fails("%tpu_check --tpu v5e:2x2 garbage.mlir").error
    assert "PJRT_TopologyDescriptionCreate" in devices.fails("%tpu_check --tpu v99:2x2 matmul.mlir").error
    assert "cannot read nowhere.mlir" in devices.fails("%tpu_check --tpu v5e:2x2 nowhere.mlir").error


def test_opening_libtpu_without_a_tpu_is_an_error_and_no_wait(devices, libtpu):
    skip_with_a_tpu(devices)
    set_variable(devices, "TPU_SKIP_MDS_QUERY", "1")
    outcome = devices.fails(f"%tpu_connect --selftest --plugin {libtpu[1]}")
    assert "PJRT_ClientCreate" in outcome.error and outcome.seconds < 60


def test_libtpu_has_a_profiler(start, libtpu, tmp_path):
    session = start()
    set_variable(session, "TPU_SKIP_MDS_QUERY", "1")
    session.ok(f"let plugin = ferrotune::devices::pjrt::Plugin::load({quoted(libtpu[1])}.as_ref())?;")
    file = tmp_path / "host.xplane.pb"
    session.ok(f"std::fs::write({quoted(file)}, plugin.profile()?.finish()?)?;")
    planes = [plane.name for plane in jax.profiler.ProfileData.from_file(str(file)).planes]
    assert "/device:CUSTOM:Megascale Trace" in planes, planes
