"""The image of container/Dockerfile under the limits that containers have. A build takes minutes, so that `cargo xtask torture` runs
it, or FERROTUNE_TEST_IMAGE=1; the wheel has to be there."""

import json
import os
import re

import nbformat
import pytest

import dist_server
import image as images
import notebook_run
from bare_machine import RUN_CELLS
from image import DOCKERFILE, PODMAN_FAILED, REPOSITORY, last_line

# A build takes minutes, and pytest.ini has the limit of a short test.
pytestmark = pytest.mark.timeout(1800)
heavy = pytest.mark.skipif("FERROTUNE_TEST_IMAGE" not in os.environ, reason="FERROTUNE_TEST_IMAGE=1 builds the image")

QUICKSTART = "jupyter execute --inplace 01_quickstart.ipynb >&2 && cat 01_quickstart.ipynb"

READ_ONLY = ("--read-only", "--read-only-tmpfs=false")
HOME = "--mount=type=volume,target=/notebooks"
# A user id of OpenShift's: in group 0, and without a line in /etc/passwd.
NAMELESS = ("--user=1000650000:0", "--passwd=false")
MEMORY = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null"

# The options of podman, and a command that succeeds only if they are in force.
LIMITS = {
    "Docker's own": (["--shm-size=64m"], '[ "$(df --output=size -k /dev/shm | tail -1)" -eq 65536 ] && [ "$(id -u)" -eq 1000 ]'),
    "1 GiB of memory": (["--memory=1g", "--memory-swap=1g"], f'[ "$({MEMORY})" = 1073741824 ]'),
    "no /dev/shm": (["--ipc=none"], "[ ! -e /dev/shm ]"),
    "a read-only root": ([*READ_ONLY, HOME, "--tmpfs=/tmp:exec"], "! touch /opt/jupyter/x"),
    "a user without a name": (NAMELESS, '! getent passwd "$(id -u)" && [ "$(id -g)" -eq 0 ]'),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    with dist_server.serve(
        tmp_path_factory.mktemp("dist") / "served", dist_server.installed()[0], dist_server.whole_toolchain()
    ) as dist:
        try:
            with images.built(tmp_path_factory.mktemp("image"), dist.environment) as built:
                yield built
        except images.NoImage as reason:
            pytest.fail(str(reason))


def limited(image, name):
    """The options of a limit that is in force here."""
    options, probe = LIMITS[name]
    tried = image.run(options, "sh", "-c", probe)
    if tried.returncode == PODMAN_FAILED:
        pytest.skip(f"{name}: {last_line(tried.stderr)}")
    assert tried.returncode == 0, f"{name} is not in force: {tried.stdout}{tried.stderr}"
    return options


def cells(image, options, *codes):
    """Runs cells in a container; returns what each shows, and the container's standard error."""
    ran = image.run(options, "python", "-c", RUN_CELLS, stdin=json.dumps(codes))
    assert ran.returncode == 0, ran.stderr
    return [shown for shown, _ in json.loads(ran.stdout)], ran.stderr


@heavy
@pytest.mark.parametrize("limit", LIMITS)
def test_the_quickstart_runs_to_its_end(image, limit):
    ran = image.run(limited(image, limit), "sh", "-c", QUICKSTART)
    assert ran.returncode == 0, ran.stderr
    # The lines of jupyter execute; a warning of the kernel or of a search would be another one.
    assert all(line.startswith("[NbClientApp]") for line in ran.stderr.splitlines()), ran.stderr
    notebook = nbformat.reads(ran.stdout, as_version=4)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in codes if cell.execution_count is None] == []
    assert [output for cell in codes for output in cell.outputs if output.get("name") == "stderr"] == []
    best = notebook_run.text_of(notebook_run.cell_of(notebook, "%best").outputs[0])
    assert 0.95 < float(best.splitlines()[1].split()[1]) <= 1.0, best


@heavy
def test_the_seccomp_profile_is_in_force(image):
    shown = image.run([], "sh", "-c", "grep Seccomp: /proc/self/status; unshare --user echo escaped").stdout
    assert shown == "Seccomp:\t2\n"


@heavy
def test_a_cell_that_takes_the_containers_memory_ends_alone(image):
    greedy = "let mut held = Vec::new(); loop { held.push(vec![1u8; 10 << 20]); }"
    shown, _ = cells(image, limited(image, "1 GiB of memory"), "let kept = 7;", greedy, "kept")
    assert shown[1].startswith("the cell held ") and shown[2] == "7", shown


@heavy
def test_a_home_that_cannot_be_written_costs_only_what_is_kept_there(image):
    shown, errors = cells(image, [*READ_ONLY, "--tmpfs=/tmp:exec"], "40 + 2")
    assert shown == ["42"] and "history of other sessions is not available" in errors, (shown, errors)


@heavy
def test_a_folder_for_cells_that_runs_no_program_is_named_with_its_cure(image):
    shown, _ = cells(image, [*READ_ONLY, HOME, "--tmpfs=/tmp:noexec"], "40 + 2")
    assert shown == ["/tmp is mounted with noexec, and cells run from there; mount it with exec, or set TMPDIR to another folder"]
    shown, _ = cells(image, [*READ_ONLY, HOME, "--tmpfs=/tmp:noexec", "--env=TMPDIR=/notebooks"], "40 + 2")
    assert shown == ["42"]


@heavy
def test_without_a_folder_for_cells_the_kernel_says_what_to_set(image):
    ran = image.run([*READ_ONLY, HOME], "python", "-c", RUN_CELLS, stdin="[]")
    wanted = r"ferrotune: cannot create a folder for the kernel; set TMPDIR to a folder that can be written: Read-only file system.*"
    assert re.fullmatch(wanted, ran.stderr.splitlines()[0]), ran.stderr


@heavy
def test_the_server_is_healthy_offers_the_kernel_and_ends_when_it_is_told_to(image):
    with image.server() as name:
        curl = 'curl --fail --silent --retry 30 --retry-connrefused --retry-delay 1 "http://127.0.0.1:8888'
        assert image.call("exec", name, "sh", "-c", f'{curl}/api"').returncode == 0
        assert image.call("healthcheck", "run", name).returncode == 0
        (token,) = re.findall(r"http://127\.0\.0\.1:8888/lab\?token=(\w+)", image.call("logs", name).stderr)[:1]
        offered = image.call("exec", name, "sh", "-c", f'{curl}/api/kernelspecs?token={token}"').stdout
        assert json.loads(offered)["kernelspecs"]["ferrotune"]["spec"]["display_name"] == "Rust (Ferrotune)"
        assert image.call("stop", "--time=10", name).returncode == 0
        assert image.call("inspect", "--format={{.State.ExitCode}}", name).stdout.strip() == "0"


# Two users of one machine, each with a kernel, at the same time. CELLS are run in both.
TWO_USERS = """
for user in ann bob; do useradd --create-home --home-dir /srv/$user $user; done
touch /tmp/before
for user in ann bob; do
    (cd /srv/$user && exec setpriv --reuid $user --regid $user --init-groups env HOME=/srv/$user python -c "$RUN_CELLS") <<< "$CELLS" > /tmp/$user &
done
wait
cat /tmp/ann /tmp/bob
find /opt -newer /tmp/before
"""
# Both look before either goes on.
LOOK = """%%bash
meet() { touch /tmp/$1-$(id -un); until [ -e /tmp/$1-ann ] && [ -e /tmp/$1-bob ]; do sleep 0.1; done; }
meet before
echo $(ls -d /tmp/ferrotune-*) $(ls -d /tmp/ferrotune-*/cells) | wc -w
meet after"""


@heavy
def test_two_users_share_what_is_installed_and_cannot_read_each_others_cells(image):
    variables = {"RUN_CELLS": RUN_CELLS, "CELLS": json.dumps(["let secret = 41;", LOOK, "secret + 1"])}
    options = ["--user=0", *(f"--env={name}={value}" for name, value in variables.items())]
    ran = image.run(options, "bash", "-c", TWO_USERS)
    assert ran.returncode == 0, ran.stderr
    # Each sees two folders of kernels and looks into its own; and neither has written where the program is.
    shown = [[text for text, _ in json.loads(line)] for line in ran.stdout.splitlines()]
    assert shown == [["", "3\n", "42"]] * 2, ran.stderr


def instructions(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def test_no_instruction_is_for_one_architecture():
    for path in (DOCKERFILE, REPOSITORY / "container/colab/Dockerfile"):
        named = [line for line in instructions(path) if re.search("x86|amd64|aarch64|arm64", line)]
        assert named == [], path


def test_the_wheel_is_compiled_with_the_version_that_setup_installs():
    own = (REPOSITORY / "kernel/src/toolchain/own.rs").read_text()
    (version,) = re.findall(r'VERSION: &str = "([\d.]+)"', own)
    assert re.findall(r"^FROM rust:([\d.]+)-slim-\w+ AS built$", DOCKERFILE.read_text(), re.MULTILINE) == [version]


def test_codespaces_and_binder_build_the_same_image():
    folder = REPOSITORY / ".devcontainer"
    build = json.loads((folder / "devcontainer.json").read_text())["build"]
    assert (folder / build["dockerfile"]).samefile(DOCKERFILE) and (folder / build["context"]).samefile(REPOSITORY)
    # Binder's user has this number; its own build takes the folder .binder before a Dockerfile elsewhere.
    assert (REPOSITORY / ".binder/Dockerfile").samefile(DOCKERFILE) and "USER 1000" in instructions(DOCKERFILE)
