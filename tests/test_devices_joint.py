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

JOINT = TARGET / "release/examples/joint"


def cluster(count=2):
    """Addresses of workers, at ports that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start(workers, index, runs=1, plugin=PLUGIN):
    config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([JOINT, plugin, str(runs)], env=os.environ | HELPER | {"TF_CONFIG": config}, **pipes)


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out.splitlines(), err


def test_a_sum_goes_over_the_devices_of_two_processes():
    workers = cluster()
    pair = [start(workers, index, runs=3) for index in range(2)]
    for index, (code, lines, err) in enumerate(map(ended, pair)):
        own = [0, 1] if index == 0 else [2048, 2049]
        assert code == 0, err
        assert lines[0] == f"process {index} has {own} of [0, 1, 2048, 2049]"
        assert lines[1:] == ["sum [4098.0, 4.0]", "sum [4102.0, 4.0]", "sum [4106.0, 4.0]"]


def test_a_plugin_that_is_alone_in_each_process_is_refused():
    plugins = list(TARGET.glob("venv/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"))
    if not plugins:
        pytest.skip("xla_cpu_pjrt is not installed")
    workers = cluster()
    pair = [start(workers, index, plugin=plugins[0]) for index in range(2)]
    for code, _, err in map(ended, pair):
        assert code == 1 and "has opened devices of 1 processes for a cluster of 2" in err, err
