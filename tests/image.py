"""The image of container/Dockerfile, built and run by podman in a storage of its own and without a registry: debootstrap makes the
Debian that it begins with, and the wheel is the one of `cargo xtask wheel`. podman executes the Dockerfile itself, with runc, which
is Docker's runtime, and with a seccomp profile that was made from Docker's."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import subprocess

import debian
from session import TARGET

REPOSITORY = pathlib.Path(__file__).parent.parent
DOCKERFILE = REPOSITORY / "container/Dockerfile"
NAME = "ferrotune"
# What podman returns if it has failed itself, before anything runs in the container.
PODMAN_FAILED = 125

# The limits of processes are lower than podman's own, which only a process with CAP_SYS_RESOURCE may ask for.
MOST_FILES, MOST_PROCESSES = 20_000, 4096


class NoImage(Exception):
    """This machine can build or run no image; says why."""


class Image:
    """The built image, and the containers that run it."""

    def __init__(self, folder):
        self.folder = folder
        self.podman = ["podman", f"--root={folder}/storage", f"--runroot={folder}/run", "--cgroup-manager=cgroupfs", "--runtime=runc"]
        limits = {"nofile": (resource.RLIMIT_NOFILE, MOST_FILES), "nproc": (resource.RLIMIT_NPROC, MOST_PROCESSES)}
        self.limits = [f"--ulimit={name}={lowest(*limit)}" for name, limit in limits.items()]
        # Health checks are run by the test; podman would ask systemd to run them. The tests read what is on standard error.
        self.environment = os.environ | {"DISABLE_HC_SYSTEMD": "true", "PODMAN_IGNORE_CGROUPSV1_WARNING": "true"}

    def call(self, *arguments, **options):
        """Runs a command of podman; returns how it ended."""
        options = {"capture_output": True, "text": True, "env": self.environment, "timeout": 1500} | options
        return subprocess.run([*self.podman, *arguments], **options)

    def import_debian(self):
        """Gives this storage the image with which the Dockerfile begins."""
        name, suite = re.search(r"^FROM (debian:(\w+)-slim)$", DOCKERFILE.read_text(), re.MULTILINE).groups()
        root, archive = self.folder / "debian", self.folder / "debian.tar"
        made = subprocess.run(["debootstrap", "--variant=minbase", suite, root], capture_output=True, text=True)
        if made.returncode != 0:
            raise NoImage(f"debootstrap: {last_line(made.stderr or made.stdout)}")
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        shutil.rmtree(root)
        imported = self.call("import", archive, f"docker.io/library/{name}")
        archive.unlink()
        if imported.returncode != 0:
            raise NoImage(f"podman import: {last_line(imported.stderr)}")
        if (tried := self.call("run", "--rm", "--network=none", *self.limits, name, "true")).returncode != 0:
            raise NoImage(f"podman run: {last_line(tried.stderr)}")

    def build(self, wheel, rust):
        """Builds the image with this wheel; `rust` are the variables that lead `ferrotune setup` to a server of toolchains."""
        context = self.folder / "context"
        shutil.copytree(REPOSITORY / "notebooks", context / "notebooks")
        shutil.copy(REPOSITORY / ".dockerignore", context)
        (context / "target/wheel/dist").mkdir(parents=True)
        shutil.copy(wheel, context / "target/wheel/dist")
        # pip's settings of the user say where PyPI is, and which certificates it has.
        variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and name != "PIP_CERT"} | rust
        options = [f"--env={name}={value}" for name, value in variables.items()]
        if certificates := os.environ.get("PIP_CERT"):
            options += [f"--volume={certificates}:/run/pip.crt:ro", "--env=PIP_CERT=/run/pip.crt"]
        options += ["--format=docker", "--network=host", "--build-arg=WHEEL=given", *self.limits]
        built = self.call("build", *options, f"--file={DOCKERFILE}", f"--tag={NAME}", context)
        assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]

    def run(self, options, *command, stdin=""):
        """Runs a command in a new container without a network; returns how it ended."""
        return self.call("run", "--rm", "--interactive", "--network=none", *self.limits, *options, NAME, *command, input=stdin)

    @contextlib.contextmanager
    def server(self):
        """Runs what the image runs by itself while the block runs. Yields the container's name."""
        started = self.call("run", "--detach", "--network=none", *self.limits, NAME)
        assert started.returncode == 0, started.stderr
        try:
            yield started.stdout.strip()
        finally:
            self.call("rm", "--force", started.stdout.strip())

    def remove(self):
        self.call("rmi", "--all", "--force")
        # podman has mounted it on itself.
        subprocess.run(["umount", self.folder / "storage/overlay"], capture_output=True)
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def built(folder, rust):
    """Builds the image, which is there while the block runs."""
    wheels = list((TARGET / "wheel/dist").glob("*.whl"))
    assert len(wheels) == 1, "`cargo xtask wheel` builds the wheel"
    if os.geteuid() != 0:
        raise NoImage("a container without a daemon needs root")
    programs = ("podman", "runc", "debootstrap")
    if not all(map(shutil.which, programs)) and (reason := debian.install(*programs)):
        raise NoImage(reason)
    if missing := [program for program in programs if not shutil.which(program)]:
        raise NoImage(f"{missing[0]} is not installed; apt-get install {' '.join(programs)}")
    image = Image(folder)
    try:
        image.import_debian()
        image.build(wheels[0], rust)
        yield image
    finally:
        image.remove()


def lowest(kind, most):
    """The lower one of `most` and what this process may have."""
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(own, most)


def last_line(text):
    return (text.strip().splitlines() or ["it failed"])[-1]
