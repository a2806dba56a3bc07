"""`ferrotune doctor`, `ferrotune uninstall --all`, and the removal of old preludes."""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import time

import pytest

import dist_server
from bare_machine import PROGRAM, VERSION, Machine, dist, machine, mounted, served  # noqa: F401
from session import TARGET

DAY_S = 24 * 60 * 60


def everything(*folders):
    """All paths below some folders, with the time of the last change of each."""
    return {path: path.lstat().st_mtime_ns for folder in folders for path in folder.rglob("*")}


def report(machine, **environment):
    """The exit status of `doctor` and its rows by name."""
    code, errors, text = machine.output("doctor", "--json", **environment)
    assert errors == ""
    return code, {row["what"]: row for row in json.loads(text)["rows"]}


def test_the_doctor_of_a_bare_machine_names_each_cure_and_changes_nothing(tmp_path, dist):
    machine = Machine(tmp_path, dist, tools=("sh",))
    before = everything(tmp_path)
    code, rows = report(machine)
    assert code == 1 and everything(tmp_path) == before and dist.requests == []
    cures = {name: row.get("cure", "") for name, row in rows.items() if row.get("stops_cells")}
    assert list(cures) == ["Rust", "linker"]
    assert cures["Rust"] == f"ferrotune setup installs Rust {VERSION}; the first cell does so, too"
    assert cures["linker"].startswith("install gcc")
    assert rows["network"]["found"] == "needed before the first cell runs"
    assert rows["Python"]["found"] == "no python3 on the PATH"


def test_the_doctor_of_a_machine_that_runs_cells(machine, tmp_path):
    assert machine.run("setup")[0] == 0
    code, rows = report(machine)
    assert code == 0, rows
    assert rows["Rust"]["found"].startswith(f"{VERSION} in ")
    assert rows["Rust"]["found"].endswith(": installed by `ferrotune setup`")
    assert rows["prelude"]["found"].startswith("built, in ")
    assert rows["network"]["found"] == "not needed, except for crates of `:dep`"
    assert rows["kernelspec"]["found"] == str(pathlib.Path(os.environ["JUPYTER_DATA_DIR"]).resolve() / "kernels/ferrotune")
    code, rows = report(machine, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert code == 1 and rows["prelude"]["cure"].startswith("ferrotune install builds it")
    assert not (tmp_path / "cache").exists()


def test_the_report_is_a_markdown_table_without_the_home_folder(machine):
    spec = machine.home / "jupyter/kernels/rust"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": [str(machine.home / "gone/ferrotune"), "kernel"]}))
    _, _, text = machine.output("doctor", JUPYTER_PATH=str(machine.home / "jupyter"))
    lines = text.splitlines()
    assert lines[0].startswith("| What ") and set(lines[1]) == {"|", "-"}
    assert {len(line) for line in lines} == {len(lines[0])}
    assert str(machine.home) not in text
    (line,) = [line for line in lines if "~/jupyter/kernels/rust" in line]
    assert "~/gone/ferrotune is gone; ferrotune install writes it anew" in line


def prelude_in_use():
    """The folder of the prelude that the tests' kernels use."""
    rows = json.loads(dist_server.output_of(PROGRAM, "doctor", "--json"))["rows"]
    (found,) = [row["found"] for row in rows if row["what"] == "prelude"]
    return pathlib.Path(found.removeprefix("built, in ")).expanduser()


@pytest.fixture
def cache(tmp_path):
    """A cache with a copy of the prelude and of candle's sources."""
    prelude = prelude_in_use()
    folder = tmp_path / "cache/ferrotune"
    folder.mkdir(parents=True)
    shutil.copytree(prelude, folder / prelude.name, symlinks=True, ignore=shutil.ignore_patterns("used"))
    (folder / f"{prelude.name}.lock").touch()
    # `cargo xtask` lets the prelude be built there.
    candle = next((TARGET / "prelude").glob("candle-*"))
    shutil.copytree(candle, folder / candle.name)
    return folder


@pytest.fixture
def temporary():
    """A folder for temporary files in which no other kernel runs; the path of a kernel's socket is short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield pathlib.Path(folder)


def write_everywhere(machine, environment, folder, start):
    """Runs a kernel and does all that writes outside of its folder."""
    crate = folder / "own"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "own"\nversion = "0.1.0"\nedition = "2024"\n')
    (crate / "src/lib.rs").write_text("pub fn value() -> i32 { 7 }\n")
    session = start(env=environment)
    assert session.ok(f':dep own = {{ path = "{crate}" }}\nown::value()').result == "7"
    session.ok('%%tune --objective loss:min --max-trials 1 --project study\n|trial| { Ok(trial.float("x", 0.0..=1.0).get()?) }')
    return session


def test_uninstall_removes_all_that_was_written_and_no_study(machine, cache, tmp_path, temporary, start):
    config = tmp_path / "config"
    environment = machine.environment | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(config)}
    environment |= {"CARGO_HOME": str(tmp_path / "cargo"), "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "cargo").mkdir()
    environment["TMPDIR"] = str(temporary)
    machine.environment = {name: value for name, value in environment.items() if not name.startswith("JUPYTER")}
    assert machine.run("setup")[0] == 0
    code, errors = machine.run("install", "--user")
    assert code == 0, errors
    spec = machine.data / "jupyter/kernels/ferrotune"
    assert (spec / "kernel.json").exists()
    (spec.parent / "other").mkdir()
    (spec.parent / "other/kernel.json").write_text('{"argv": ["/opt/other/ferrotune", "kernel"]}')
    (cache / "notes.txt").write_text("of the user")
    (cache / "xla").mkdir()
    (cache / f"xla/{'0' * 64}.executable").write_bytes(b"0")
    (cache / "objects").mkdir()
    (cache / f"objects/{'0' * 32}.12").write_bytes(b"0")
    own, foreign = abandoned(temporary, "own"), abandoned(temporary, "foreign")
    (foreign / "bin/cargo").unlink()
    session = write_everywhere(machine, environment, tmp_path, start)
    written = {path.name.split("-")[0] for folder in (cache, machine.toolchain.parent) for path in folder.iterdir()}
    assert written == {"prelude", "candle", "dependencies", "xla", "objects", "notes.txt", "history.jsonl", "history.lock", "toolchain", "trusted"}
    before = everything(cache, machine.data)

    def uninstall(*options):
        code, errors = machine.run("uninstall", "--all", *options)
        return code, errors, errors.splitlines()[-1]

    code, _, last = uninstall("--yes")
    assert (code, last) == (1, "ferrotune: nothing was removed, since a kernel runs; shut it down, then try again")
    session.close()
    code, _, last = uninstall()
    nobody = "nothing was removed, since nobody can be asked here; --yes removes what is listed"
    assert (code, last) == (1, f"ferrotune: {nobody}")
    assert everything(cache, machine.data) == before
    code, errors, _ = uninstall("--yes")
    assert code == 0, errors
    assert [path.name for path in cache.iterdir()] == ["notes.txt"]

    assert not own.exists() and (foreign / "lock").exists()
    shutil.rmtree(foreign)
    assert f"{cache}/notes.txt: Ferrotune has not made it" in errors
    assert f"{spec.parent}/other: it starts another program" in errors
    (cache / "notes.txt").unlink()
    shutil.rmtree(machine.data / "jupyter")
    code, errors, _ = uninstall("--yes")
    assert code == 0, errors
    left = [path for folder in (cache.parent, machine.data, machine.home, config, temporary) for path in folder.rglob("*")]
    assert left == []
    assert PROGRAM.exists()
    # The study was not removed, and needs neither prelude nor toolchain.
    code, errors = machine.run("resume", str(tmp_path / "studies/study"), "--max-trials", "2", "--trust")
    assert code == 0 and errors.splitlines()[-1] == "done", errors


def abandoned(temporary, name):
    """The folder of a kernel that was killed two minutes ago."""
    folder = temporary / f"ferrotune-{name}"
    (folder / "bin").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "bin/cargo").symlink_to("/proc/4194305/exe")
    os.utime(folder, (time.time() - 120,) * 2)
    return folder


def registered(machine, temporary):
    """A kernelspec of this program on Jupyter's path, on a machine without caches and running kernels."""
    machine.environment |= {"XDG_CACHE_HOME": str(machine.home / "cache"), "TMPDIR": str(temporary)}
    folder = machine.home / "jupyter/kernels/ferrotune"
    folder.mkdir(parents=True, exist_ok=True)
    argv = [str(PROGRAM), "kernel", "--connection-file", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv}))
    (folder / "logo-svg.svg").write_text("<svg/>")
    machine.environment |= {"JUPYTER_PATH": str(machine.home / "jupyter"), "JUPYTER_DATA_DIR": str(machine.home / "none")}
    return folder


def test_uninstall_leaves_files_of_others_in_a_kernelspec_and_folders_of_jupyter(machine, temporary):
    spec = registered(machine, temporary)
    (spec / "notes.txt").write_text("of the user")
    code, errors = machine.run("uninstall", "--all", "--yes")
    assert code == 0 and [path.name for path in spec.iterdir()] == ["notes.txt"], errors
    assert f"{spec}/notes.txt stays: install has not written it" in errors
    (spec / "notes.txt").unlink()
    registered(machine, temporary)
    code, errors = machine.run("uninstall", "--all", "--yes")
    assert code == 0 and list(spec.parent.parent.rglob("*")) == [spec.parent], errors


def test_uninstall_goes_on_after_a_failure_and_names_it(machine, temporary):
    folder = machine.toolchain.parent
    (folder / "trusted").mkdir(parents=True)
    (folder / "trusted" / ("0" * 64)).touch()
    history, spec = folder / "history.jsonl", registered(machine, temporary)
    history.write_text('{"version":1}\n')
    with mounted("--bind", history, history):
        code, errors = machine.run("uninstall", "--all", "--yes")
    assert code == 1 and not spec.exists() and [path.name for path in folder.iterdir()] == ["history.jsonl"], errors
    last = errors.splitlines()[-1]
    assert last.startswith(f"ferrotune: cannot remove {history}: ") and last.endswith("; all else was removed"), last


def test_a_kernel_that_starts_while_uninstall_asks_stops_it(machine, temporary, start):
    spec = registered(machine, temporary)
    terminal, theirs = pty.openpty()
    asking = subprocess.Popen(
        [PROGRAM, "uninstall", "--all"], env=machine.environment, stdin=theirs, stderr=subprocess.PIPE, text=True
    )
    said = ""
    while not said.endswith("remove all of this? [y/N] "):
        said += asking.stderr.read(1)
    session = start(env={"TMPDIR": str(temporary)})
    os.write(terminal, b"y\n")
    assert asking.stderr.read().endswith("nothing was removed, since a kernel runs; shut it down, then try again\n")
    assert asking.wait(30) == 1 and (spec / "kernel.json").exists()
    os.close(terminal)
    os.close(theirs)
    assert session.ok("6 * 7").result == "42"
    session.close()


def own_toolchain(machine):
    """A toolchain of Ferrotune's own that compiles as the installed one does."""
    _, host, sysroot = dist_server.installed()
    (machine.toolchain / "bin").mkdir(parents=True)
    (machine.toolchain / "lib").symlink_to(sysroot / "lib")
    answer = f'[ "$1" = --print=sysroot ] && printf "%s\\n" {machine.toolchain} {host} && exit\n'
    for name, first in (("rustc", answer), ("cargo", "")):
        program = machine.toolchain / "bin" / name
        program.write_text(f'#!/bin/sh\n{first}exec {sysroot}/bin/{name} "$@"\n')
        program.chmod(0o755)
    (machine.toolchain / "ready.json").write_text(json.dumps({"version": VERSION, "from": "a test"}))
    code, rows = report(machine)
    assert code == 0 and rows["Rust"]["found"] == f"{VERSION} in {machine.toolchain}: installed by `ferrotune setup`", rows


def test_a_kernel_that_uninstall_does_not_see_keeps_its_prelude_and_toolchain(machine, cache, temporary, start):
    nowhere = {"JUPYTER_PATH": str(temporary), "JUPYTER_DATA_DIR": str(temporary)}
    machine.environment |= {"XDG_CACHE_HOME": str(cache.parent), "TMPDIR": str(temporary)} | nowhere
    own_toolchain(machine)
    jupyter = {name: os.environ[name] for name in nowhere}
    session = start(env=machine.environment | jupyter | {"TMPDIR": "/tmp"})
    assert session.ok("6 * 7").result == "42"
    assert is_locked(machine.toolchain / "ready.json") and is_locked(next(cache.glob("prelude-*/ready.json")))
    before = everything(cache, machine.data)
    code, errors = machine.run("uninstall", "--all", "--yes")
    assert code == 1 and "nothing was removed, since another process uses or makes" in errors.splitlines()[-1]
    assert everything(cache, machine.data) == before and session.ok("1 + 1").result == "2"
    session.close()
    code, errors = machine.run("uninstall", "--all", "--yes")
    assert code == 0 and not cache.exists() and not machine.toolchain.parent.exists(), errors


def is_locked(path):
    """Whether a process has a file locked."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_kernel_runs_with_a_cache_that_cannot_be_written(cache, start):
    with mounted("--bind", cache, cache):
        subprocess.run(["mount", "-o", "remount,bind,ro", cache], check=True)
        session = start(env={"XDG_CACHE_HOME": str(cache.parent)})
        assert session.ok("6 * 7").result == "42"
        assert is_locked(next(cache.glob("prelude-*/ready.json")))
        session.close()


def test_an_old_prelude_that_cannot_be_removed_stays_with_a_warning(machine, tmp_path):
    cache = tmp_path / "cache/ferrotune"
    stuck, gone = old_prelude(cache, "0.0.8", 1), old_prelude(cache, "0.0.9", 1)
    with mounted("--bind", stuck / "library", stuck / "library"):
        code, errors = machine.run("setup", XDG_CACHE_HOME=str(cache.parent))
    assert code == 0 and not gone.exists() and (stuck / "library").exists(), errors
    assert f"an old prelude stays: cannot remove {stuck}" in errors


def old_prelude(cache, version, days, used=True):
    """A prelude of this version that was used so many days ago, with the rest of a build of it."""
    folder = cache / f"prelude-{version}-{days:016x}"
    folder.mkdir(parents=True)
    (folder / "ready.json").write_text('{"externs": {}}')
    (folder / "library").write_bytes(b"0" * 1024)
    (cache / f"{folder.name}.lock").touch()
    if used:
        (folder / "used").touch()
    at = time.time() - days * DAY_S
    for path in [folder / "ready.json", *([folder / "used"] if used else []), cache / f"{folder.name}.lock", folder]:
        os.utime(path, (at, at))
    return folder


def test_setup_removes_old_preludes_that_nobody_uses(machine, tmp_path):
    cache = tmp_path / "cache/ferrotune"
    gone = [old_prelude(cache, "0.1.0", 31), old_prelude(cache, "0.0.9", 1), old_prelude(cache, "0.1.0", 40, used=False)]
    kept = [old_prelude(cache, "0.1.0", 29), old_prelude(cache, "0.1.0", 50), old_prelude(cache, "9.0.0", 2)]
    strange = cache / f"prelude-0.0.1-{'0' * 16}"
    strange.mkdir()
    (strange / "notes.txt").write_text("of the user")
    with open(kept[1] / "ready.json") as ready:
        fcntl.flock(ready, fcntl.LOCK_SH)
        code, errors = machine.run("setup", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert code == 0, errors
    last = errors.splitlines()[-1]
    assert last.startswith("removed 3 old preludes (") and last.endswith("no kernel has used for 30 days"), errors
    left = {*kept, *(cache / f"{folder.name}.lock" for folder in kept), strange}
    assert set(cache.iterdir()) == left and not any(folder.exists() for folder in gone)


def test_a_running_kernel_keeps_its_prelude_however_old(machine, cache, tmp_path, start):
    environment = {"XDG_CACHE_HOME": str(cache.parent)}
    session = start(env=environment)
    session.ok("1")
    (prelude,) = [path for path in cache.iterdir() if (path / "ready.json").exists()]
    long_ago = time.time() - 100 * DAY_S
    for path in [prelude / "used", prelude, cache / f"{prelude.name}.lock"]:
        os.utime(path, (long_ago, long_ago))
    assert machine.run("setup", **environment)[0] == 0
    assert session.ok("1 + 1").result == "2" and prelude.exists()
    session.close()
    for path in [prelude / "used", prelude, cache / f"{prelude.name}.lock"]:
        os.utime(path, (long_ago, long_ago))
    assert machine.run("setup", **environment)[0] == 0
    assert not prelude.exists()
