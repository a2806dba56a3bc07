"""`ferrotune doctor`, `ferrotune uninstall --all`, and the removal of old preludes."""

import fcntl
import json
import os
import pathlib
import shutil
import tempfile
import time

import pytest

import dist_server
from bare_machine import PROGRAM, VERSION, Machine, dist, machine, served  # noqa: F401

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
    candle = next(prelude.parent.glob("candle-core-*"))
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
    session = write_everywhere(machine, environment, tmp_path, start)
    written = {path.name.split("-")[0] for folder in (cache, machine.toolchain.parent) for path in folder.iterdir()}
    assert written == {"prelude", "candle", "dependencies", "xla", "notes.txt", "history.jsonl", "history.lock", "toolchain", "trusted"}
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

    assert f"{cache}/notes.txt: Ferrotune has not made it" in errors
    assert f"{spec.parent}/other: it starts another program" in errors
    (cache / "notes.txt").unlink()
    shutil.rmtree(machine.data / "jupyter")
    code, errors, _ = uninstall("--yes")
    assert code == 0, errors
    left = [path for folder in (cache.parent, machine.data, machine.home, config, temporary) for path in folder.rglob("*")]
    assert left == []
    assert list((tmp_path / "studies/study").glob("*")), "a study was removed"
    assert PROGRAM.exists()


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
    with open(kept[1] / "used") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
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
