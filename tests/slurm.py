"""A Slurm cluster of a test's own: Debian's packages, in a temporary folder, with this machine as its one node."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import debian
from session import free_port

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
# Seconds from the signal TERM to the signal KILL.
KILL_WAIT_S = 3
PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch"]
PACKAGES = ["munge", "slurmctld", "slurmd", "slurm-client"]

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
# What starts again waits for the life of a credential, which is 5 s at least.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
KillWait={kill_wait}
MailProg=/bin/true
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2048
PartitionName=debug Nodes={host} Default=YES
"""


class NoCluster(Exception):
    """There is no Slurm, and none can be installed or started; says why."""


@contextlib.contextmanager
def cluster():
    """Runs a cluster; gives the path of its slurm.conf, which the variable SLURM_CONF names to its commands."""
    if os.geteuid() != 0:
        raise NoCluster("Slurm's daemons need root")
    if not all(map(shutil.which, PROGRAMS)) and (reason := debian.install(*PACKAGES)):
        raise NoCluster(reason)
    if not all(map(shutil.which, PROGRAMS)):
        raise NoCluster("Slurm is not installed; apt-get install " + " ".join(PACKAGES))
    with tempfile.TemporaryDirectory(prefix="slurm") as home, contextlib.ExitStack() as stack:
        folder = pathlib.Path(home)
        folder.chmod(0o755)
        configuration = configure(folder)
        environment = {**os.environ, "SLURM_CONF": str(configuration)}
        daemons = []
        # Entered first, so that it runs last.
        stack.callback(stop, daemons)
        for name, command in daemon_commands(folder).items():
            with open(folder / f"{name}.log", "wb") as log:
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True))
            if name == "munged":
                wait_for((folder / "munge.socket").exists, folder, daemons)
        wait_for(lambda: node_state(environment).startswith("idle"), folder, daemons)
        stack.callback(cancel_all, environment)
        yield configuration


def configure(folder):
    """Writes the key and slurm.conf."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    configuration = folder / "slurm.conf"
    text = CONFIGURATION.format(
        host=socket.gethostname().split(".")[0],
        controller_port=free_port(),
        node_port=free_port(),
        folder=folder,
        kill_wait=KILL_WAIT_S,
        cpus=os.cpu_count(),
    )
    configuration.write_text(text)
    return configuration


def daemon_commands(folder):
    """Foreground commands by name, in the order in which they start."""
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    return {
        # A temporary folder is in one that everybody may write to, which munged takes for a mistake.
        "munged": ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
        "slurmctld": ["slurmctld", "-D", "-i"],
        "slurmd": ["slurmd", "-D"],
    }


def node_state(environment):
    command = ["sinfo", "--noheader", "--format", "%T"]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()


def wait_for(ready, folder, daemons):
    end = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
            lines = [f"{log.stem}: {line}" for log in folder.glob("*.log") for line in log.read_text().splitlines()[-2:]]
            raise NoCluster("Slurm does not start here: " + "; ".join(lines))
        time.sleep(0.05)


def cancel_all(environment):
    """Ends all jobs: what runs a job outlives the daemons."""
    subprocess.run(["scancel", "--user", "root"], env=environment)
    end = time.monotonic() + STOP_TIMEOUT_S
    command = ["squeue", "--noheader"]
    while subprocess.run(command, env=environment, capture_output=True).stdout and time.monotonic() < end:
        time.sleep(0.1)


def stop(daemons):
    for daemon in reversed(daemons):
        daemon.terminate()
        try:
            daemon.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
