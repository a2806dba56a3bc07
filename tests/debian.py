"""Debian's packages, which tests and benches install where they may."""

import fcntl
import os
import shutil
import subprocess
import tempfile


def install(*packages):
    """Installs packages, as root; gives the reason where apt-get fails, and nothing where it is not there or may not run."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Another process of the tests may install some at the same time; `update` does not wait for it.
    with open(os.path.join(tempfile.gettempdir(), "ferrotune-apt.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            ran = subprocess.run([*apt, *command], capture_output=True, text=True, env=environment)
            if ran.returncode != 0:
                return f"apt-get {command[0]}: {(ran.stderr.strip().splitlines() or ['failed'])[-1]}"
    return None
