"""A PostgreSQL server of a test's own: Debian's package, in a temporary folder, on a Unix socket there."""

import contextlib
import os
import pathlib
import shutil
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


class Server:
    """A server that can be stopped as in a crash, and started again. Its superuser is `ferrotune`, without a password."""

    def __init__(self, home):
        self.home = home
        self.folder = programs().parent
        self.options = []
        self.running = None
        # As root the server refuses to run.
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        self.own(home)
        init = [self.folder / "initdb", "-A", "trust", "-U", "ferrotune", "--no-sync", "-D", f"{home}/data"]
        subprocess.run(init, check=True, capture_output=True, cwd="/", **self.user)

    def own(self, path):
        """Gives the server's user a file or folder."""
        if self.user:
            shutil.chown(path, NOBODY, NOBODY)

    def trust(self, network):
        """Lets in whoever comes from this network; call it before the server starts."""
        with open(f"{self.home}/data/pg_hba.conf", "a") as rules:
            rules.write(f"host all all {network} trust\n")

    def start(self):
        """Starts the server with `options`, and waits until it answers."""
        command = [self.folder / "postgres", "-D", f"{self.home}/data", "-k", self.home, "-c", "listen_addresses=", *self.options]
        self.running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self.user)
        end = time.monotonic() + START_TIMEOUT_S
        while subprocess.run([self.folder / "pg_isready", "-q", "-h", self.home]).returncode != 0:
            assert time.monotonic() < end and self.running.poll() is None, "the server does not start"
            time.sleep(0.02)

    def ask(self, sql):
        """What a query gives, as text."""
        command = [self.folder / "psql", "-X", "-A", "-t", "-h", self.home, "-U", "ferrotune", "-d", "postgres", "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def crash(self):
        """Stops the server at once: it repeats its log when it starts again."""
        if self.running:
            self.running.send_signal(signal.SIGQUIT)
            self.running.wait()
            self.running = None


@contextlib.contextmanager
def initialised():
    """A server with an empty database, not started yet. It ends with the context."""
    programs()
    with tempfile.TemporaryDirectory() as home:
        server = Server(home)
        try:
            yield server
        finally:
            server.crash()


@contextlib.contextmanager
def server(*options):
    """Runs a server; gives the folder of its socket."""
    with initialised() as made:
        made.options = list(options)
        made.start()
        yield made.home


def addresses(home, database):
    """Makes a database; gives its address for Ferrotune and for SQLAlchemy."""
    psql = [programs().parent / "psql", "-X", "-q", "-h", home, "-U", "ferrotune", "-d", "postgres"]
    subprocess.run([*psql, "-c", f"CREATE DATABASE {database}"], check=True)
    ours = f"postgresql:///{database}?host={home}&user=ferrotune"
    return ours, f"postgresql+psycopg2://ferrotune@/{database}?host={home}"
