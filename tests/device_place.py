"""A folder of device processes of its own, notebooks that use it, and a check that nothing is left of them."""

import os
import pathlib
import re

from session import Session, descendants, is_alive, wait_for

LINGER_S = 1

# `device` is the connected one; the rest is what the disturbances of these tests must not change.
IMPORTS = "use candle_core::{DType, Device, Tensor, Var};"
DEVICE = "let device = ferrotune::device::current()?;"


class Place:
    """A folder in which device processes have their sockets, and the notebooks that find them there."""

    def __init__(self, folder, **env):
        self.folder = pathlib.Path(folder)
        (self.folder / "run").mkdir(mode=0o700)
        self.sockets = self.folder / "run/ferrotune"
        self.env = {"XDG_RUNTIME_DIR": str(self.folder / "run"), "FERROTUNE_DEVICE_LINGER": str(LINGER_S), **env}
        self.notebooks, self.was_killed = [], False
        self.count = 0

    def notebook(self, plugin="cpu", **env):
        """A notebook that is connected to a plugin's device."""
        self.count += 1
        folder = self.folder / f"notebook{self.count}"
        folder.mkdir()
        notebook = Session(folder, env=self.env | env)
        self.notebooks.append(notebook)
        if plugin:
            notebook.ok(f"%tpu_connect --plugin {plugin}")
        return notebook

    def processes(self):
        """The ids of the device processes of this folder, those that only start one not counted."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if arguments[1:2] == [b"device"] and b"--detached" in arguments and str(self.sockets).encode() in arguments[4]:
                found.append(int(process.name))
        return found

    @property
    def process(self):
        """The id of the one device process."""
        (process,) = self.processes()
        return process

    @property
    def socket(self):
        """The path of the one socket."""
        (socket,) = (path for path in self.sockets.iterdir() if path.is_socket())
        return socket

    def end(self):
        """Ends the notebooks, and waits for the end of what they have started."""
        kernels = [notebook.manager.provisioner.process.pid for notebook in self.notebooks]
        # The supervisor of cells waits for what has ended when the next cell has run.
        for notebook in self.notebooks:
            notebook.ok("0;")
        wait_for(lambda: not any(is_ended_device_process(child) for kernel in kernels for child in descendants(kernel)), "end of the zombies", 5)
        left = [message for notebook in self.notebooks for message in notebook.unclaimed()]
        assert left == [], left
        while self.notebooks:
            self.notebooks.pop().close()
        wait_for(lambda: not self.processes(), "end of the device processes", LINGER_S + 20)
        left = [path for path in self.sockets.glob("*") if path.is_socket()]
        # A process that was killed leaves its socket, which the next one replaces.
        assert left == [] or self.was_killed, left

    def kill(self):
        """Kills the one device process, and waits for its end."""
        process = self.process
        kill(process)
        self.was_killed = True
        wait_for(lambda: process not in self.processes(), "end of the device process")


def is_ended_device_process(pid):
    """Whether a device process has ended, and its parent has not waited for it. It leads a session; the snapshots of cells do not."""
    try:
        state, _, _, session = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return False
    return state == "Z" and int(session) == pid


def pid_of(notebook):
    """The process of a notebook's cells."""
    return int(notebook.ok("std::process::id()").result)


def report(notebook):
    """What the device process holds in all, the bytes and greatest bytes of each client, and what earlier states keep beside that."""
    line = notebook.ok("%device --report").displays[-1].splitlines()[-1]
    size = r"([\d.]+ [KMGT]?i?B)"
    held, _, clients, kept = re.fullmatch(rf"the device process \d+ of \S+ holds {size}(?:, and {size} are free)?: (.*?)(?:; .* states? of (?:a )?notebooks? {size} more)?", line).groups()
    found = re.findall(rf"(notebook \d+|\w+) {size} \({size} at most\)", clients)
    return bytes_of(held), {name: (bytes_of(now), bytes_of(most)) for name, now, most in found}, bytes_of(kept or "0 B")


def bytes_of(text):
    number, unit = text.split()
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)


def kill(pid):
    os.kill(pid, 9)
