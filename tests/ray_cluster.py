"""A Ray cluster of a test's own, on this machine. Ray is installed into a virtual environment under target/."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from session import TARGET, free_port

VENV = TARGET / "ray-venv"
INSTALL_TIMEOUT_S = 400
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20
CPUS = 2
# A proxy would not find this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoCluster(Exception):
    """There is no Ray, and none can be installed or started; says why."""


def program():
    """The program `ray`, which is installed if that is possible."""
    VENV.mkdir(parents=True, exist_ok=True)
    # Another run of tests may install it at the same time.
    with open(VENV / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (VENV / "bin/ray").exists():
            pip = [VENV / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "ray[default]"]
            for command in ([sys.executable, "-m", "venv", VENV], pip):
                try:
                    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    raise NoCluster(f"Ray was not installed within {INSTALL_TIMEOUT_S} s") from None
                if ran.returncode != 0:
                    reason = (ran.stderr.strip().splitlines() or ["failed"])[-1]
                    raise NoCluster(f"Ray cannot be installed here: {reason}")
    return VENV / "bin/ray"


@contextlib.contextmanager
def cluster():
    """Runs a cluster of one host with `CPUS` processors; gives the address of its dashboard."""
    ray = program()
    port = free_port()
    # The paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        options = {
            "dashboard-host": "127.0.0.1",
            "dashboard-port": port,
            "dashboard-agent-listen-port": free_port(),
            "max-worker-port": 0,
            "min-worker-port": 0,
            "node-ip-address": "127.0.0.1",
            "num-cpus": CPUS,
            "port": 0,
            "ray-client-server-port": free_port(),
            "temp-dir": folder,
        }
        command = [ray, "start", "--head", "--block", *(f"--{name}={value}" for name, value in options.items())]
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        with open(f"{folder}/start.log", "w+") as log:
            head = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            try:
                end = time.monotonic() + START_TIMEOUT_S
                while not answers(address := f"http://127.0.0.1:{port}"):
                    if time.monotonic() > end or head.poll() is not None:
                        log.seek(0)
                        raise NoCluster(f"Ray does not start here: {(log.read().strip().splitlines() or ['silent'])[-1]}")
                    time.sleep(0.1)
                yield address
            finally:
                stop(head)


def answers(address):
    try:
        return OPENER.open(f"{address}/api/version", timeout=5).status == 200
    except (urllib.error.URLError, OSError):
        return False


def stop(head):
    head.terminate()
    try:
        head.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    head.wait()
