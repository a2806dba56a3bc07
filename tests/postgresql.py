"""A PostgreSQL server of a test's own: Debian's package, in a temporary folder, on a Unix socket there."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import debian

START_TIMEOUT_S = 60
NOBODY = 65534


class NoServer(Exception):
    """There is no PostgreSQL, and none can be installed; says why."""


def programs():
    """The folder of the server's programs, which are installed if that is possible."""
    if not (found := _installed()):
        if reason := debian.install("postgresql"):
            raise NoServer(reason)
        found = _installed()
    if not found:
        raise NoServer("PostgreSQL is not installed; apt-get install postgresql")
    return found


def _installed():
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)


@contextlib.contextmanager
def server(*options):
    """Runs a server; gives the folder of its socket. Its superuser is `ferrotune`, without a password."""
    folder = programs().parent
    # As root the server refuses to run.
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as home:
        if user:
            os.chown(home, NOBODY, NOBODY)
        init = [folder / "initdb", "-A", "trust", "-U", "ferrotune", "--no-sync", "-D", f"{home}/data"]
        subprocess.run(init, check=True, capture_output=True, cwd="/", **user)
        command = [folder / "postgres", "-D", f"{home}/data", "-k", home, "-c", "listen_addresses=", *options]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **user)
        try:
            end = time.monotonic() + START_TIMEOUT_S
            while subprocess.run([folder / "pg_isready", "-q", "-h", home]).returncode != 0:
                assert time.monotonic() < end and running.poll() is None, "the server does not start"
                time.sleep(0.02)
            yield home
        finally:
            running.send_signal(signal.SIGQUIT)
            running.wait()


def addresses(home, database):
    """Makes a database; gives its address for Ferrotune and for SQLAlchemy."""
    psql = [programs().parent / "psql", "-X", "-q", "-h", home, "-U", "ferrotune", "-d", "postgres"]
    subprocess.run([*psql, "-c", f"CREATE DATABASE {database}"], check=True)
    ours = f"postgresql:///{database}?host={home}&user=ferrotune"
    return ours, f"postgresql+psycopg2://ferrotune@/{database}?host={home}"
