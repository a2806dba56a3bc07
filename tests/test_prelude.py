"""Building the prelude: after an interrupted build, the next build does not compile finished crates again."""

import os
import signal
import subprocess

from session import TARGET

# How many crates cargo compiles at once.
JOBS = 2
# Lines of progress after which a build is killed: the first crates take a second each.
ENOUGH = 30


def libraries_before_the_kill(cache, prefix):
    """Kills a build of the prelude early; returns its libraries and their times."""
    environment = {name: value for name, value in os.environ.items() if name != "FERROTUNE_PRELUDE_TARGET"}
    environment |= {"XDG_CACHE_HOME": str(cache), "CARGO_BUILD_JOBS": str(JOBS)}
    install = subprocess.Popen(
        [TARGET / "release/ferrotune", "install", "--prefix", prefix],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        lines = [line for line, _ in zip(install.stderr, range(ENOUGH))]
        assert len(lines) == ENOUGH, f"the build ended by itself: {lines}"
    finally:
        os.killpg(install.pid, signal.SIGKILL)
        install.wait()
        install.stderr.close()
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.rlib")}


def test_build_that_was_killed_goes_on_where_it_was(tmp_path):
    cache, prefix = tmp_path / "cache", tmp_path / "jupyter"
    first = libraries_before_the_kill(cache, prefix)
    assert not prefix.exists(), "a kernel is registered whose cells cannot be compiled"
    second = libraries_before_the_kill(cache, prefix)
    assert len(first) > 3 * JOBS and len(second) > len(first), (first, second)
    # Cargo may have died before it recorded that these crates are finished.
    again = [path for path, made in first.items() if second.get(path) != made]
    assert len(again) <= JOBS, again
