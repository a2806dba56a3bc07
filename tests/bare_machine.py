"""A machine without Rust: an empty home, a search path with few tools, and a server of toolchains on 127.0.0.1."""

import contextlib
import os
import shutil
import subprocess

import pytest

import dist_server
from session import TARGET

VERSION = dist_server.installed()[0]
PROGRAM = TARGET / "release/ferrotune"
# What the installed toolchain and the tests' own shell need, without any Rust.
TOOLS = ("sh", "cc", "ld", "as", "curl", "wget", "env")

# Runs the cells that it is given in a kernel of its environment, with nothing but jupyter_client, and prints what each shows and when.
RUN_CELLS = """
import json, sys, time
from jupyter_client.manager import start_new_kernel
started = time.monotonic()
manager, client = start_new_kernel(kernel_name="ferrotune")
cells = []
def show(message):
    content = message["content"]
    shown.append(content.get("text") or content.get("data", {}).get("text/plain") or content.get("evalue") or "")
for code in json.load(sys.stdin):
    shown = []
    client.execute_interactive(code, output_hook=show, timeout=300)
    cells.append(["".join(shown), time.monotonic() - started])
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(cells))
"""


def small_toolchain():
    """A toolchain that is unpacked in no time: its programs call those of the installed toolchain."""
    _, host, sysroot = dist_server.installed()
    programs = {name: f'#!/bin/sh\nexec {sysroot}/bin/{name} "$@"\n'.encode() for name in ("rustc", "cargo")}
    return {
        "rustc": {"bin/rustc": programs["rustc"]},
        "cargo": {"bin/cargo": programs["cargo"]},
        "rust-std": {f"lib/rustlib/{host}/lib/libstd-small.so": b"small"},
        "rust-src": {"lib/rustlib/src/rust/library/std/src/lib.rs": b"//! std\n"},
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with dist_server.serve(tmp_path_factory.mktemp("dist") / "served", VERSION, small_toolchain()) as dist:
        yield dist


@pytest.fixture
def dist(served):
    served.answers.clear()
    served.requests.clear()
    return served


class Machine:
    """A home without any Rust, and a search path with the tools that are named."""

    def __init__(self, folder, dist, rustup=True, tools=TOOLS):
        self.data, self.home, self.bin = folder / "data", folder / "home", folder / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        for tool in tools + (("rustup",) if rustup else ()):
            (self.bin / tool).symlink_to(os.path.realpath(shutil.which(tool)))
        kept = ("CARGO_TARGET_DIR", "JUPYTER", "XDG_CACHE")
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        self.environment |= {"PATH": str(self.bin), "HOME": str(self.home), "XDG_DATA_HOME": str(self.data)}
        self.environment |= dist.environment | {"RUSTUP_MAX_RETRIES": "0"}
        self.toolchain = self.data / f"ferrotune/toolchain-{VERSION}"

    def popen(self, *arguments, **variables):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([PROGRAM, *arguments], env=self.environment | variables, text=True, **pipes)

    def output(self, *arguments, **variables):
        """Runs the program; returns its exit status, its messages, and what it prints."""
        ran = self.popen(*arguments, **variables)
        printed, errors = ran.communicate(timeout=60)
        return ran.returncode, errors, printed

    def run(self, *arguments, **variables):
        """Runs the program; returns its exit status and its messages."""
        code, errors, printed = self.output(*arguments, **variables)
        assert printed == ""
        return code, errors

    def fails(self, *arguments, **environment):
        """Runs the program, which must fail with one line that it returns, and leave nothing."""
        code, errors = self.run(*arguments, **environment)
        last = errors.strip().splitlines()[-1]
        assert code == 1 and last.startswith("ferrotune: "), errors
        assert self.left() in ([], [f"toolchain-{VERSION}.lock"]), self.left()
        return last

    def left(self):
        """What is in Ferrotune's folder."""
        return sorted(os.listdir(self.toolchain.parent)) if self.toolchain.parent.exists() else []


@contextlib.contextmanager
def mounted(*arguments):
    """While the block runs, a file system is mounted; `arguments` are those of `mount`, the last one the place."""
    ran = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if ran.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {ran.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)


@pytest.fixture
def machine(tmp_path, dist):
    return Machine(tmp_path, dist)
