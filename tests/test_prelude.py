"""Building the prelude: what was compiled before a build ended early is not compiled again."""

import os
import re
import signal
import subprocess

from session import TARGET

# How many crates cargo compiles at once.
JOBS = 2
# Crates after which a build is killed: the first ones take a second each.
ENOUGH = 16
# The last crates of those may be unfinished.
UNFINISHED = 3 * JOBS


def compiled_before_the_kill(cache, prefix):
    """Begins to build the prelude, kills the build early, and gives the crates that it compiled, in order."""
    environment = {name: value for name, value in os.environ.items() if name != "FERROTUNE_PRELUDE_TARGET"}
    environment |= {"XDG_CACHE_HOME": str(cache), "CARGO_BUILD_JOBS": str(JOBS)}
    install = subprocess.Popen(
        [TARGET / "release/ferrotune", "install", "--prefix", prefix],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    crates = []
    try:
        for line in install.stderr:
            name = re.match(r"Compiling (\S+ \S+)", line)
            if name and name[1] not in crates:
                crates.append(name[1])
            if len(crates) >= ENOUGH:
                return crates
    finally:
        os.killpg(install.pid, signal.SIGKILL)
        install.wait()
        install.stderr.close()
    raise AssertionError(f"the build ended by itself after {crates}")


def test_build_that_was_killed_goes_on_where_it_was(tmp_path):
    cache, prefix = tmp_path / "cache", tmp_path / "jupyter"
    first = compiled_before_the_kill(cache, prefix)
    assert not prefix.exists(), "a kernel is registered whose cells cannot be compiled"
    second = compiled_before_the_kill(cache, prefix)
    # A crate may have been begun for its build script alone.
    built = {path.name for ending in ("rlib", "rmeta") for path in cache.rglob(f"*.target/**/lib*.{ending}")}
    named = {crate: f"lib{crate.split()[0].replace('-', '_')}-" for crate in first[:-UNFINISHED]}
    finished = {crate for crate, name in named.items() if any(file.startswith(name) for file in built)}
    assert len(finished) > 3, (first, built)
    assert not finished & set(second), (first, second)
