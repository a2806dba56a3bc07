"""Fixtures for tests of the installed kernel. `cargo xtask test` installs it under target/ and sets the environment."""

import collections
import fcntl
import os
import subprocess
import sys
import zipfile

import pytest

import kubernetes_api
import ray_cluster
import slurm
from front_end import OPEN
from session import TARGET, Session

DOWNLOAD_TIMEOUT_S = 150
# The first version that compiles for v6e without a TPU, and the newest version at the first run of the tests.
LIBTPUS = {"old": "libtpu==0.0.17", "newest": "libtpu"}

# The seconds from which on a test is named when it ends.
SLOW_S = 30
# The number of files that are named with their time at the end of a run.
FILES_SHOWN = 30

# MLflow reports its use to its makers, when it is imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


class Progress:
    """Says at once what has failed or was slow, since a run that takes too long has no summary, and at the end which files took longest."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed or report.duration > SLOW_S:
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.when} of {report.nodeid} {report.outcome} after {report.duration:.0f} s")
            for line in [line for line in report.longreprtext.splitlines() if line.startswith("E ")][:3]:
                terminal.write_line(line[:500])

    def pytest_terminal_summary(self, terminalreporter):
        seconds = collections.Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    seconds[report.nodeid.partition("::")[0]] += report.duration
        terminalreporter.section("slowest files")
        for file, duration in seconds.most_common(FILES_SHOWN):
            terminalreporter.write_line(f"{duration:.0f} s {file}")


@pytest.fixture
def start(tmp_path):
    """Starts kernels that end with the test."""
    sessions = []

    def start_one(folder=tmp_path, **options):
        sessions.append(Session(folder, **options))
        return sessions[-1]

    yield start_one
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel that the tests of a module share; its working folder is `kernel.folder`."""
    session = Session(tmp_path_factory.mktemp("kernel"))
    yield session
    session.close()


@pytest.fixture
def emptied(kernel):
    """The kernel of the module without variables and definitions: a new kernel reads the standard library for three seconds."""
    kernel.ok("%reset")
    return kernel


@pytest.fixture(autouse=True)
def every_message_is_claimed(start):
    """Fails a test that leaves a message of a running kernel unclaimed; looks before `start` closes the test's kernels."""
    yield
    left = [message for front_end in OPEN for message in front_end.unclaimed()]
    assert left == []


@pytest.fixture(scope="session")
def slurm_cluster():
    """The variables by which Slurm's commands find a real cluster."""
    try:
        with slurm.cluster() as configuration:
            yield {"SLURM_CONF": str(configuration)}
    except slurm.NoCluster as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def ray_head():
    """The text of the launcher of a real Ray cluster, whose processes go when its tests are over."""
    try:
        with ray_cluster.cluster() as address:
            yield f"ray:{address}"
    except ray_cluster.NoCluster as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kubernetes():
    """The variable that leads kubectl to what takes the place of a cluster, and that."""
    try:
        with kubernetes_api.cluster() as found:
            yield found
    except kubernetes_api.NoCluster as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=LIBTPUS)
def libtpu(request):
    """The library of a version of libtpu, by the version's name in `LIBTPUS`."""
    folder = TARGET / "libtpu" / request.param
    folder.mkdir(parents=True, exist_ok=True)
    # Another run of tests may download it at the same time.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return request.param, library_in(folder, LIBTPUS[request.param])


def library_in(folder, requirement):
    """The library in this folder, downloaded if it is not there."""
    library = folder / "libtpu/libtpu.so"
    if not library.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        try:
            ran = subprocess.run(
                [*pip, "--disable-pip-version-check", "--dest", folder, requirement],
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{requirement} was not downloaded within {DOWNLOAD_TIMEOUT_S} s")
        if ran.returncode != 0:
            reason = ran.stderr.strip().splitlines()[-1:]
            pytest.skip(f"{requirement} cannot be installed here: {reason}")
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("libtpu/libtpu.so", folder / "partial")
        wheel.unlink()
        (folder / "partial/libtpu").rename(folder / "libtpu")
        (folder / "partial").rmdir()
    return library
