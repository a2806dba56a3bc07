"""XLA over several processes: the test plugin is opened in two at a time, whose XLA:CPU (jaxlib) find each other with our store of
keys and values, and compute together with Gloo.
"""

import json
import os
import socket
import subprocess

import pytest

from session import TARGET
from test_devices import HELPER, PLUGIN
from test_strategy_cores import TRAIN

JOINT = TARGET / "release/examples/joint"
TRAINING = TARGET / "release/examples/joint_training"


def cluster(count=2):
    """Addresses of workers, at ports that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def sum_in(workers, index, runs=1, plugin=PLUGIN):
    return run(workers, index, JOINT, plugin, runs)


def run(workers, index, *command):
    config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*map(str, command)], env=os.environ | HELPER | {"TF_CONFIG": config}, **pipes)


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out.splitlines(), err


def test_a_sum_goes_over_the_devices_of_two_processes():
    workers = cluster()
    pair = [sum_in(workers, index, runs=3) for index in range(2)]
    for index, (code, lines, err) in enumerate(map(ended, pair)):
        own = [0, 1] if index == 0 else [2048, 2049]
        assert code == 0, err
        assert lines[0] == f"process {index} has {own} of [0, 1, 2048, 2049]"
        assert lines[1:] == ["sum [4098.0, 4.0]", "sum [4102.0, 4.0]", "sum [4106.0, 4.0]"]


def test_a_plugin_that_is_alone_in_each_process_is_refused():
    plugins = list(TARGET.glob("venv/lib/python3*/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so"))
    if not plugins:
        pytest.skip("fastatomstruct-xla-cpu is not installed")
    workers = cluster()
    pair = [sum_in(workers, index, plugin=plugins[0]) for index in range(2)]
    for code, _, err in map(ended, pair):
        assert code == 1 and "has opened devices of 1 processes for a cluster of 2" in err, err


def test_training_in_two_processes_is_that_of_one_on_the_whole_batch():
    workers = cluster()
    pair = [run(workers, index, TRAINING, PLUGIN, 4, 100) for index in range(2)]
    (_, one, _), *both = [ended(run(workers, 0, TRAINING, "cpu", 1, 100)), *map(ended, pair)]
    loss, weights = map(json.loads, one)
    for code, lines, err in both:
        assert code == 0, err
        assert lines == both[0][1], "all processes have the same bits"
        there, values = map(json.loads, lines)
        assert abs(there - loss) < 1e-5 and max(abs(a - b) for a, b in zip(values, weights)) < 1e-5, (there, loss)


def test_processes_that_compute_different_programs_learn_it():
    workers = cluster()
    pair = [run(workers, index, TRAINING, PLUGIN, devices, 1) for index, devices in enumerate([4, 2])]
    for index, (code, _, err) in enumerate(map(ended, pair)):
        assert code == 1 and f"worker {index} and worker {1 - index} differ in program 1; all workers" in err, err


def test_a_cell_in_each_of_two_notebooks_trains_on_the_cores_of_both(start, tmp_path):
    pair, cells = [], []
    workers = json.dumps(cluster())
    for index in range(2):
        (tmp_path / str(index)).mkdir()
        pair.append(start(tmp_path / str(index), env=os.environ | HELPER))
        pair[index].ok(TRAIN)
    for index, session in enumerate(pair):
        cores = f'Strategy::cores("xla:{PLUGIN}", 2)?.across(ferrotune::devices::Cluster::new({workers}, {index})?)'
        cells.append(session.begin(f"let joint = trained(&{cores})?;"))
    for session, cell in zip(pair, cells):
        outcome = session.end_of(cell)
        assert outcome.error is None, outcome.error
    weights = []
    for session in pair:
        session.ok('let alone = trained(&Strategy::on("cpu"))?;')
        session.ok("assert!(furthest(&joint, &alone) < 1e-5);")
        weights.append(session.ok("println!(\"{:?}\", joint);").stdout)
    assert weights[0] == weights[1] and "," in weights[0]
