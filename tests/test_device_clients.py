"""The device process and many clients: each has its own values alone, and none that misbehaves or dies disturbs another."""

import json
import os
import pathlib
import random
import re
import socket
import subprocess
import time

import pytest

from device_place import DEVICE, IMPORTS, Place, pid_of, report
from session import FERROTUNE, is_alive, wait_for
from test_devices import CONTRACT
from test_devices_xla import XLA_CPU

PROTOCOL = pathlib.Path(__file__).parent.parent / "devices/src/process/protocol.rs"
# Clients that are killed; each at another moment of what it does.
KILLED = int(os.environ.get("FERROTUNE_TORTURE_CLIENTS", "60"))
KILLED_NOTEBOOKS = 20


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path, FERROTUNE_XLA_CPU=XLA_CPU)
    yield place
    place.end()


def with_values(notebook, scale):
    """A notebook with eight numbers on its device."""
    notebook.ok(f"{IMPORTS}\n{DEVICE}")
    notebook.ok(f"let x = Tensor::arange(0f32, 8., &device)?.affine({scale}., 0.)?; device.synchronize()?;")
    return notebook


def check_values(notebook, scale):
    assert notebook.ok("(&x + &x)?.to_vec1::<f32>()?").result == str([2.0 * scale * number for number in range(8)])


def bytes_by_client(notebook):
    """The bytes of each client. A value that was read is freed with the next request."""
    notebook.ok("device.synchronize()?;")
    return {name: now for name, (now, _) in report(notebook)[1].items()}


def own_name(notebook):
    """The name of a notebook in reports; its first process of cells gives it."""
    (name,) = report(notebook)[1]
    return name


def contract(place, **env):
    """Starts a client that computes all that a plugin must be able to."""
    env = {**os.environ, **place.env, **env}
    return subprocess.Popen([CONTRACT, XLA_CPU, FERROTUNE], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def read_by_plugins(notebook):
    """The variables of a notebook's cells that plugins read. Clients with other ones have another device process."""
    variables = pathlib.Path(f"/proc/{pid_of(notebook)}/environ").read_text().split("\0")
    return dict(variable.split("=", 1) for variable in variables if variable.startswith(("TPU_", "XLA_")))


def test_twenty_clients_at_once_start_one_device_process(place):
    clients, seen = [contract(place) for _ in range(20)], set()
    while any(client.poll() is None for client in clients):
        seen.update(place.processes())
        time.sleep(0.005)
    for client in clients:
        lines = client.communicate()[0].splitlines()
        assert client.returncode == 0 and len(lines) == 16 and all(line.startswith("ok: ") for line in lines), lines
    assert len(seen) == 1


def test_clients_that_are_killed_leave_nothing_behind(place):
    notebook = with_values(place.notebook(), 3)
    name, process, seconds, env = own_name(notebook), place.process, [], read_by_plugins(notebook)
    for _ in range(3):
        begun = time.monotonic()
        assert contract(place, **env).wait() == 0
        seconds.append(time.monotonic() - begun)
    choice = random.Random(7)
    for number in range(KILLED):
        client = contract(place, **env)
        time.sleep(choice.uniform(0, max(seconds)))
        client.kill()
        client.communicate()
        if number % 40 == 0:
            check_values(notebook, 3)
    wait_for(lambda: bytes_by_client(notebook).keys() == {name}, "end of the killed clients' connections")
    held, clients, kept = report(notebook)
    assert clients[name][0] <= 64 and held - kept <= 64 and kept <= 6 * 64, (held, clients, kept)
    assert place.process == process
    check_values(notebook, 3)


def test_a_notebook_whose_cells_are_killed_while_they_compute_disturbs_no_other(place):
    steady, shaken = with_values(place.notebook(), 3), with_values(place.notebook(), 5)
    names, choice = bytes_by_client(steady), random.Random(11)
    busy = (
        'println!("begun"); for n in 0.. { let y = Tensor::from_vec(vec![n as f32; 1 << 16], (256, 256), &device)?; '
        "let z = (y.matmul(&y)? + 1.)?; assert!(z.mean_all()?.to_scalar::<f32>()? > 0.); }"
    )
    for _ in range(KILLED_NOTEBOOKS):
        pid, killed = pid_of(shaken), []

        def watch(message):
            if message["msg_type"] == "stream" and not killed:
                time.sleep(choice.uniform(0, 0.1))
                killed.append(os.kill(pid, 9))

        assert "SIGKILL" in shaken.run(busy, watch).error
    check_values(steady, 3)
    check_values(shaken, 5)
    wait_for(lambda: bytes_by_client(steady).keys() == names.keys(), "end of the killed cells' connections")
    assert all(now <= 64 for now in bytes_by_client(steady).values())
    held, _, kept = report(steady)
    assert held <= 14 * 64, (held, kept)


def test_two_notebooks_share_a_device_and_neither_can_close_it(place):
    one, two = with_values(place.notebook(), 3), with_values(place.notebook(), 5)
    names = bytes_by_client(one)
    assert len(names) == 2 and bytes_by_client(two) == names and set(names.values()) == {32}
    (process,) = place.processes()
    check_values(one, 3)
    check_values(two, 5)
    error = one.fails("%device close").error
    other = re.search(r"xla:cpu is also used by (notebook \d+); stop these first", error)[1]
    assert other in names and other != re.search(r"used by (notebook \d+)", two.fails("%device close").error)[1]
    assert "SIGABRT" in one.run("std::process::abort();").error
    check_values(one, 3)
    check_values(two, 5)
    assert place.processes() == [process]
    place.notebooks.remove(two)
    two.close()
    wait_for(lambda: bytes_by_client(one).keys() == names.keys() - {other}, "end of the other notebook's connection")
    check_values(one, 3)
    assert one.ok("%device close").displays[-1].startswith("closed xla:cpu; ")
    wait_for(lambda: not is_alive(process), "end of the device process")


def test_a_device_that_was_closed_is_opened_again_by_the_next_use(place):
    notebook = with_values(place.notebook(), 3)
    for _ in range(3):
        process = place.process
        assert notebook.ok("%device close").displays[-1].startswith("closed xla:cpu; the values that were there are gone")
        wait_for(lambda: not is_alive(process), "end of the device process")
        assert re.search("its device process has ended.*values.*are lost", notebook.run("x.to_vec1::<f32>()?;").error)
        notebook.ok("let x = Tensor::arange(0f32, 8., &ferrotune::device::current()?)?.affine(3., 0.)?;")
        check_values(notebook, 3)
        assert place.process != process
    process = place.process
    notebook.ok("%device close")
    wait_for(lambda: not is_alive(process), "end of the device process")
    assert notebook.ok("%device close").displays[-1] .startswith("nothing of xla:cpu is open")


class Raw:
    """A client that speaks the protocol by hand."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        # The path may be longer than an address can be.
        folder = os.open(path.parent, os.O_PATH)
        self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)

    def hello(self, version, **more):
        self.socket.send(json.dumps({"version": version, "name": "by hand", "resume": None, **more}).encode())
        return json.loads(self.socket.recv(1 << 20))

    def is_closed(self):
        try:
            return self.socket.recv(1 << 16) == b""
        except ConnectionResetError:
            return True


def version():
    return int(re.search(r"VERSION: u32 = (\d+);", PROTOCOL.read_text())[1])


def test_a_client_of_another_version_is_refused_with_the_cure(place):
    notebook = with_values(place.notebook(), 3)
    assert "Ready" in Raw(place.socket).hello(version(), memory="Free")
    for other in (0, version() + 1, 4294967295):
        # Another version may lack what this one adds.
        client = Raw(place.socket)
        reason = client.hello(other)["Refused"]["reason"]
        assert f"its device process {place.process} is of another version of Ferrotune" in reason and "`%device close`" in reason, reason
        assert client.is_closed()
    check_values(notebook, 3)


def test_garbage_ends_the_connection_it_came_from_alone(place):
    notebook = with_values(place.notebook(), 3)
    name, process, choice = own_name(notebook), place.process, random.Random(13)
    for first in (b"\xff" * 100, b"{}", b'{"version": 1', b"0" * 60000, json.dumps({"version": version(), "name": 7, "resume": None}).encode()):
        client = Raw(place.socket)
        client.socket.send(first)
        assert client.is_closed(), first
    for number in range(300):
        client = Raw(place.socket)
        assert "Ready" in client.hello(version(), memory="Free")
        # Most begin like a packet with a request.
        begin = bytes([0, choice.randrange(8)]) if number % 3 else b""
        try:
            for _ in range(5):
                # By chance it could ask the process to end, which a client of the same user may: `Question::Close` has the number 14.
                client.socket.send(begin + choice.randbytes(choice.randrange(1, 400)).replace(b"\x0e", b"\xff"))
        except (BrokenPipeError, ConnectionResetError):
            pass
        client.socket.close()
    # A memory file that its maker can cut, one that is shorter than it says, and none at all. The message is an upload of a gibibyte.
    file = os.memfd_create("cut", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 8)
    upload = b"\x00" + b"\x00\x63\x00\x0b\x01\x80\x80\x80\x80\x08\x01\x80\x80\x80\x80\x04"
    for files in ([file], [], [file] * 40):
        client = Raw(place.socket)
        assert "Ready" in client.hello(version(), memory="Free")
        socket.send_fds(client.socket, [upload], files)
        assert client.is_closed(), files
    os.close(file)
    wait_for(lambda: bytes_by_client(notebook).keys() == {name}, "end of the connections with garbage")
    assert place.process == process
    check_values(notebook, 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_refused(place):
    notebook = with_values(place.notebook(), 3)
    path, folder = place.socket, os.open(place.sockets, os.O_PATH)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    # The folder's mode already keeps others away.
    path.parent.chmod(0o711)
    path.chmod(0o777)
    script = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "client.settimeout(20)\n"
        "client.connect(sys.argv[1])\n"
        "print(client.recv(65536).decode(), client.recv(65536))\n"
    )
    try:
        ran = subprocess.run(
            ["/usr/bin/python3", "-c", script, f"/proc/self/fd/{folder}/{path.name}"],
            pass_fds=[folder], capture_output=True, text=True, timeout=60, cwd="/",
        )
        assert ran.returncode == 0, ran.stderr
        assert "its device process belongs to another user" in ran.stdout and ran.stdout.strip().endswith("b''"), ran.stdout
    finally:
        path.parent.chmod(0o700)
        os.close(folder)
    check_values(notebook, 3)
