"""The kernel under the servers that Colab runs, with ZeroMQ over ipc: cells over a browser's WebSocket, interrupt and restart.
Runs only in the environment of tests/requirements-colab.txt."""

import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid

import pytest
import websocket

from front_end import SLEEPING

TOKEN = "token-of-the-test"
TIMEOUT_S = 120


class Server:
    """A running server with one kernel, and a browser's connection to that."""

    def __init__(self, module, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # A socket's path has at most 107 bytes.
        self.short = tempfile.TemporaryDirectory(prefix="ft")
        self.runtime = pathlib.Path(self.short.name)
        content = folder / "content"
        content.mkdir()
        app = "NotebookApp" if module == "notebook" else "ServerApp"
        options = ["--KernelManager.transport=ipc", "--allow-root", "--no-browser", f"--port={self.port}", f"--{app}.token={TOKEN}"]
        self.log = open(folder / "server.log", "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *options],
            cwd=content,
            env={**os.environ, "JUPYTER_RUNTIME_DIR": str(self.runtime)},
            stdout=self.log,
            stderr=self.log,
        )
        self.wait_until_it_answers()
        self.kernel = self.post("kernels", {"name": "ferrotune"})["id"]
        self.connect()

    def post(self, path, content=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            method="POST",
            data=json.dumps(content or {}).encode(),
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def wait_until_it_answers(self):
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, pathlib.Path(self.log.name).read_text()
                time.sleep(0.05)
        raise AssertionError(f"no answer from the server within {TIMEOUT_S} s")

    def connect(self):
        url = f"ws://127.0.0.1:{self.port}/api/kernels/{self.kernel}/channels?token={TOKEN}"
        self.socket = websocket.create_connection(url, timeout=TIMEOUT_S)

    def run(self, code, on_output=lambda message: None):
        """What a cell publishes, as (type, content), and its reply."""
        message = {
            "header": {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"},
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True},
            "channel": "shell",
            "buffers": [],
        }
        self.socket.send(json.dumps(message))
        published, reply, is_idle = [], None, False
        while not (reply and is_idle):
            received = json.loads(self.socket.recv())
            if received["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            kind, content = received["msg_type"], received["content"]
            if kind == "execute_reply":
                reply = content
            elif kind == "status":
                is_idle = content["execution_state"] == "idle"
            else:
                published.append((kind, content))
                on_output(kind)
        return published, reply

    def result(self, code):
        published, reply = self.run(code)
        assert reply["status"] == "ok", reply
        return next(content["data"]["text/plain"] for kind, content in published if kind == "execute_result")

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_S)
        self.log.close()
        self.short.cleanup()


@pytest.fixture(params=["jupyter_server", "notebook"])
def server(request, tmp_path):
    server = Server(request.param, tmp_path)
    yield server
    server.close()


def test_the_versions_are_colabs():
    versions = {name: importlib.metadata.version(name) for name in ("jupyter_client", "notebook", "jupyter_server")}
    assert versions["jupyter_client"] == "7.4.9"
    assert versions["notebook"].startswith("6.5.") and versions["jupyter_server"].startswith("2.")


def test_cells_run_are_interrupted_and_start_again_over_ipc(server):
    (connection,) = server.runtime.glob("kernel-*.json")
    assert json.loads(connection.read_text())["transport"] == "ipc"
    server.run("let kept = 41;")
    assert server.result("kept + 1") == "42"
    assert server.result("std::env::current_dir()?.ends_with(\"content\")") == "true"

    asked = []

    def interrupt(kind):
        if kind == "stream" and not asked:
            asked.append(1)
            server.post(f"kernels/{server.kernel}/interrupt")

    _, reply = server.run(SLEEPING, interrupt)
    assert asked and (reply["status"], reply["ename"]) == ("error", "Interrupted"), reply
    assert server.result("kept") == "41"

    server.post(f"kernels/{server.kernel}/restart")
    server.socket.close()
    server.connect()
    _, reply = server.run("kept")
    assert "cannot find value `kept`" in reply["evalue"]
