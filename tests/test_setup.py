"""Which toolchain compiles cells, and the installation of one: a real rustup installs it from a server on 127.0.0.1."""

import contextlib
import hashlib
import pathlib
import shutil
import subprocess
import threading
import time

import pytest

import dist_server
from bare_machine import VERSION, Machine, dist, machine, mounted, served  # noqa: F401
from session import is_alive, wait_for

pytestmark = pytest.mark.skipif(not shutil.which("rustup"), reason="there is no rustup to install with")


def digest_of(folder):
    """The hash of all files and names below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def test_setup_installs_beside_the_users_own_toolchains(machine):
    users = {"RUSTUP_HOME": machine.home / ".rustup", "CARGO_HOME": machine.home / ".cargo"}
    for folder in users.values():
        folder.mkdir()
        (folder / "settings.toml").write_text('version = "12"\ndefault_toolchain = "none"\n')
    before = digest_of(machine.home)
    code, errors = machine.run("setup", RUSTUP_TOOLCHAIN="nightly", **{name: str(path) for name, path in users.items()})
    assert code == 0, errors
    assert digest_of(machine.home) == before
    assert machine.left() == [f"toolchain-{VERSION}", f"toolchain-{VERSION}.lock"]
    assert (machine.toolchain / "bin/rustc").exists()
    first, last = errors.splitlines()[0], errors.splitlines()[-1]
    server = machine.environment["RUSTUP_DIST_SERVER"]
    sizes = "130 MiB to download, 570 MiB on disk"
    assert first == f"installing Rust {VERSION} from {server} ({sizes}) into {machine.toolchain}, for Ferrotune alone"
    assert last == f"installed Rust {VERSION} in {machine.toolchain}"
    assert machine.run("setup") == (0, f"Rust {VERSION} is in {machine.toolchain} already\n")


@pytest.mark.parametrize("downloader", ["curl", "wget"])
def test_rustup_is_fetched_where_there_is_none(tmp_path, dist, downloader):
    machine = Machine(tmp_path, dist, rustup=False, tools=("sh", "cc", downloader))
    code, errors = machine.run("setup")
    assert code == 0, errors
    host = dist_server.installed()[1]
    program = f"/rustup/dist/{host}/rustup-init"
    assert dist.requests[:2] == [f"{program}.sha256", program]
    assert (machine.toolchain / "bin/rustc").exists() and list(machine.home.iterdir()) == []


def test_a_fetched_rustup_with_another_hash_is_not_run(tmp_path, dist):
    machine = Machine(tmp_path, dist, rustup=False)
    program = f"/rustup/dist/{dist_server.installed()[1]}/rustup-init"
    dist.answers[program] = lambda handler: send(handler, b"#!/bin/sh\ntouch $HOME/ran\n")
    assert f"{program} has the SHA-256 " in machine.fails("setup")
    assert list(machine.home.iterdir()) == []


def test_without_anything_to_fetch_rustup_the_error_names_its_address(tmp_path, dist):
    machine = Machine(tmp_path, dist, rustup=False, tools=("sh", "cc"))
    address = f"{dist.address}/rustup/dist/{dist_server.installed()[1]}/rustup-init"
    error = machine.fails("setup")
    assert error.startswith(f"ferrotune: there is neither rustup nor curl nor wget to fetch {address}"), error
    assert dist.requests == []


def test_without_a_linker_nothing_is_installed(tmp_path, dist):
    machine = Machine(tmp_path, dist, tools=("sh", "curl"))
    error = machine.fails("setup")
    assert error.startswith("ferrotune: there is no linker `cc`, which Rust needs; install gcc"), error
    assert dist.requests == []


def send(handler, body, length=None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(length or len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def cut(handler):
    """Answers with a part of what it has promised, and closes the connection."""
    send(handler, b"x" * 1000, 100_000)
    handler.wfile.flush()
    handler.connection.close()


@pytest.mark.parametrize("rustup", [True, False], ids=["rustup", "rustup-init"])
@pytest.mark.parametrize("fault", ["cut", "missing", "wrong"])
def test_a_faulty_server_leaves_nothing(tmp_path, dist, rustup, fault):
    machine = Machine(tmp_path, dist, rustup=rustup)
    path = "/dist/rustc.tar.gz" if rustup else f"/rustup/dist/{dist_server.installed()[1]}/rustup-init"
    answers = {"cut": cut, "missing": lambda handler: handler.send_error(404), "wrong": lambda handler: send(handler, b"x")}
    dist.answers[path] = answers[fault]
    error = machine.fails("setup")
    assert dist.address in error, error
    assert path in dist.requests
    dist.answers.clear()
    assert machine.run("setup")[0] == 0


@pytest.mark.parametrize("rustup", [True, False], ids=["rustup", "rustup-init"])
def test_without_a_network_the_error_names_what_to_fetch(tmp_path, dist, rustup):
    machine = Machine(tmp_path, dist, rustup=rustup)
    nowhere = "http://127.0.0.1:9"
    error = machine.fails("setup", RUSTUP_DIST_SERVER=nowhere, RUSTUP_UPDATE_ROOT=f"{nowhere}/rustup")
    wanted = f"dist/channel-rust-{VERSION}.toml" if rustup else f"rustup/dist/{dist_server.installed()[1]}/rustup-init"
    assert f"{nowhere}/{wanted}" in error and "connect this machine to the network" in error, error


@contextlib.contextmanager
def held(dist, path):
    """While the block runs, the server does not answer this request. Yields whether it was asked."""
    asked, go_on = threading.Event(), threading.Event()

    def wait(handler):
        asked.set()
        go_on.wait(60)
        dist.answers.pop(path, None)
        with contextlib.suppress(ConnectionError):
            type(handler).do_GET(handler)

    dist.answers[path] = wait
    try:
        yield asked
    finally:
        go_on.set()


def test_a_killed_setup_leaves_nothing_that_is_used_and_the_next_one_installs(machine, dist):
    with held(dist, "/dist/rustc.tar.gz") as asked:
        killed = machine.popen("setup")
        assert asked.wait(30)
        (child,) = children_of(killed.pid)
        killed.kill()
        killed.wait()
        wait_for(lambda: not is_alive(child), "end of rustup")
        assert f"toolchain-{VERSION}.installing" in machine.left() and not machine.toolchain.exists()
    code, errors = machine.run("setup")
    assert code == 0, errors
    assert machine.left() == [f"toolchain-{VERSION}", f"toolchain-{VERSION}.lock"]


def test_a_setup_that_is_killed_at_any_time_is_followed_by_one_that_installs(machine, dist):
    started = time.monotonic()
    assert machine.run("setup")[0] == 0
    whole_s = time.monotonic() - started
    for part in range(10):
        shutil.rmtree(machine.toolchain, ignore_errors=True)
        killed = machine.popen("setup")
        with contextlib.suppress(subprocess.TimeoutExpired):
            killed.wait(whole_s * part / 10)
        killed.kill()
        killed.wait()
        code, errors = machine.run("setup")
        assert code == 0 and machine.left() == [f"toolchain-{VERSION}", f"toolchain-{VERSION}.lock"], (part, errors)
        assert dist_server.output_of(machine.toolchain / "bin/rustc", "--version").startswith(f"rustc {VERSION}")


def test_what_setup_has_not_made_is_named_and_stays(machine):
    for ending in ("", ".installing"):
        folder = machine.toolchain.with_name(machine.toolchain.name + ending)
        (folder / "cargo").mkdir(parents=True)
        (folder / "cargo/notes.txt").write_text("of the user")
        code, errors = machine.run("setup")
        assert code == 1 and f"{folder} is in the way, and Ferrotune has not made it; move it away" in errors
        assert (folder / "cargo/notes.txt").read_text() == "of the user"
        shutil.rmtree(folder)
    assert machine.run("setup")[0] == 0


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_second_setup_waits_for_the_first_one(machine, dist):
    with held(dist, "/dist/rustc.tar.gz") as asked:
        first = machine.popen("setup")
        assert asked.wait(30)
        second = machine.popen("setup")
        second.stderr.readline()
        assert second.stderr.readline() == f"waiting for another process, which installs Rust {VERSION}\n"
    assert first.wait(60) == 0 and second.wait(60) == 0
    assert dist.requests.count(f"/dist/channel-rust-{VERSION}.toml") == 1


def test_a_folder_that_cannot_be_written_is_named(machine):
    machine.data.write_text("")
    error = machine.fails("setup")
    assert error.startswith(f"ferrotune: cannot write in {machine.data}/ferrotune; set XDG_DATA_HOME to a folder"), error


@pytest.mark.parametrize("size", ["8k", "32k", "64k"])
def test_a_full_disk_leaves_nothing_and_with_more_room_setup_installs(machine, dist, size):
    machine.data.mkdir()
    with mounted("-t", "tmpfs", "-o", f"size={size}", "none", machine.data):
        error = machine.fails("setup")
        assert "No space left on device" in error or "os error 28" in error, error
        subprocess.run(["mount", "-o", "remount,size=64m", machine.data], check=True)
        assert machine.run("setup")[0] == 0


def test_a_version_is_no_path(machine):
    error = machine.fails("setup", "--toolchain", "../x")
    assert error == 'ferrotune: "../x" is no version of Rust; name one like 1.95.0'


def test_the_whole_toolchain_compiles(tmp_path):
    with dist_server.serve(tmp_path / "served", VERSION, dist_server.whole_toolchain()) as dist:
        machine = Machine(tmp_path, dist)
        code, errors = machine.run("setup")
        assert code == 0, errors
    assert "of about 130 MiB downloaded" in errors
    (tmp_path / "main.rs").write_text('fn main() { println!("{}", 6 * 7) }')
    environment = {"PATH": str(machine.bin), "HOME": str(machine.home)}
    rustc = [machine.toolchain / "bin/rustc", "-Cprefer-dynamic", f"-Clink-arg=-Wl,-rpath,{library_folder(machine)}"]
    subprocess.run([*rustc, "main.rs"], cwd=tmp_path, env=environment, check=True)
    assert dist_server.output_of(tmp_path / "main") == "42"
    assert (machine.toolchain / "lib/rustlib/src/rust/library/std/src/lib.rs").exists()


def library_folder(machine):
    return machine.toolchain / "lib/rustlib" / dist_server.installed()[1] / "lib"


SENTENCE = "installing Rust"


def first_cell(start, machine, **environment):
    """A kernel on a machine without Rust."""
    return start(env=machine.environment | {"RUSTUP_TOOLCHAIN": "nightly", "CARGO_HOME": str(machine.home)} | environment)


def test_the_first_cell_that_needs_rust_installs_it(machine, dist, start):
    session = first_cell(start, machine)
    assert "%lsmagic" in session.ok("%lsmagic").display and dist.requests == []
    cell = session.ok("6 * 7")
    assert cell.result == "42"
    assert cell.displays[0].startswith(f"{SENTENCE} {VERSION} from {dist.address} (130 MiB to download")
    assert cell.display == f"installed Rust {VERSION} in {machine.toolchain}"
    assert session.ok("let tensor = candle_core::Tensor::ones(3, candle_core::DType::F32, &candle_core::Device::Cpu)?; tensor.dims().len()").result == "1"
    session.close()
    again = first_cell(start, machine).ok("1 + 1")
    assert again.result == "2" and again.displays == []


@pytest.mark.parametrize("code", ["", "\n", "// a note\n/* and another */"])
def test_a_first_cell_without_code_installs_nothing(machine, dist, start, code):
    session = first_cell(start, machine)
    assert session.ok(code).displays == [] and dist.requests == []


def test_two_kernels_whose_first_cells_need_rust_install_it_once(machine, dist, start):
    first, second = (first_cell(start, machine) for _ in range(2))
    with held(dist, "/dist/rustc.tar.gz") as asked:
        begun = first.begin("6 * 7")
        assert asked.wait(30)
        other = second.begin("6 * 7")
        waits = f": waiting for another process, which installs Rust {VERSION}"
        message = second.next_published(other)
        while not message["content"].get("data", {}).get("text/plain", "").endswith(waits):
            message = second.next_published(other)
    assert first.end_of(begun).result == second.end_of(other).result == "42"
    assert dist.requests.count(f"/dist/channel-rust-{VERSION}.toml") == 1


def test_an_interrupt_stops_the_installation_and_the_next_cell_begins_it_again(machine, dist, start):
    session = first_cell(start, machine)
    with held(dist, "/dist/rustc.tar.gz") as asked:
        cell = session.interrupt_when("1 + 1", asked.is_set, "request")
    assert cell.error.startswith("Interrupted: the installation of Rust was stopped; nothing of it is used"), cell
    assert cell.seconds < 5
    assert [name for name in machine.left() if name.startswith("toolchain")] == [f"toolchain-{VERSION}.lock"]
    assert session.ok("1 + 1").result == "2"


def test_a_cell_without_network_fails_and_the_next_one_tries_again(machine, dist, start):
    session = first_cell(start, machine)
    dist.answers[f"/dist/channel-rust-{VERSION}.toml.sha256"] = lambda handler: handler.send_error(404)
    dist.answers[f"/dist/channel-rust-{VERSION}.toml"] = lambda handler: handler.send_error(404)
    error = session.run("1 + 1").error
    assert error.startswith(f"EngineError: rustup cannot install Rust {VERSION}, which {dist.address}/dist/channel"), error
    dist.answers.clear()
    assert session.ok("1 + 1").result == "2"


@pytest.mark.parametrize("named", ["folder", "own", "rustup"])
def test_the_named_toolchain_is_used_or_its_name_is_in_the_error(machine, start, named):
    sysroot = dist_server.installed()[2]
    if named == "own":
        assert machine.run("setup", "--toolchain", VERSION)[0] == 0
    wrong = {"folder": "/nowhere/toolchain", "own": "1.2.3", "rustup": "no-such"}[named]
    right = {"folder": str(sysroot), "own": VERSION, "rustup": sysroot.name}[named]
    users = {"RUSTUP_HOME": str(sysroot.parent.parent)}
    error = first_cell(start, machine, FERROTUNE_TOOLCHAIN=wrong, **users).run("1 + 1").error
    assert error.startswith(f"EngineError: FERROTUNE_TOOLCHAIN={wrong} cannot be used: "), error
    assert first_cell(start, machine, FERROTUNE_TOOLCHAIN=right, **users).ok("1 + 1").result == "2"
