"""A network namespace of a test's own, joined to this one by a pair of veth devices whose link can be cut. Its packets reach no
other device."""

import contextlib
import os
import shutil
import subprocess

import debian


class NoNamespace(Exception):
    """This machine allows no network namespace; says why."""


class Namespace:
    """The namespace, and the addresses of the two ends."""

    def __init__(self, name):
        self.name = name
        # Addresses that no network has: they are for benchmarks (RFC 2544). One block of four for each process.
        block = f"198.18.{os.getpid() % 256}.{os.getpid() // 256 % 64 * 4}"
        stem, last = block.rsplit(".", 1)
        self.network = f"{block}/30"
        self.outside, self.inside = f"{stem}.{int(last) + 1}", f"{stem}.{int(last) + 2}"

    def command(self):
        """What stands before a command that runs in the namespace; `ip netns exec` would mount another /sys."""
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def cut(self):
        """Drops all packets, as a cable that is pulled out does. The end here stays up: else its packets would take the way to the
        machine's own network."""
        _ip("-n", self.name, "link", "set", f"{self.name}i", "down")

    def mend(self):
        _ip("-n", self.name, "link", "set", f"{self.name}i", "up")


@contextlib.contextmanager
def namespace():
    """Makes a namespace, which ends with the context."""
    if os.geteuid() != 0:
        raise NoNamespace("a network namespace needs root")
    if not shutil.which("ip") and (reason := debian.install("iproute2")):
        raise NoNamespace(reason)
    if not shutil.which("ip"):
        raise NoNamespace("the program ip is not installed; apt-get install iproute2")
    made = Namespace(f"ft{os.getpid()}")
    try:
        try:
            _ip("netns", "add", made.name)
            _ip("link", "add", f"{made.name}o", "type", "veth", "peer", "name", f"{made.name}i", "netns", made.name)
            _ip("address", "add", f"{made.outside}/30", "dev", f"{made.name}o")
            _ip("link", "set", f"{made.name}o", "up")
            _ip("-n", made.name, "address", "add", f"{made.inside}/30", "dev", f"{made.name}i")
            _ip("-n", made.name, "link", "set", "lo", "up")
            made.mend()
        except subprocess.CalledProcessError as error:
            raise NoNamespace(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        yield made
    finally:
        # The devices go with the first one of them, also where a process holds the namespace.
        for command in (["link", "delete", f"{made.name}o"], ["netns", "delete", made.name]):
            subprocess.run(["ip", *command], capture_output=True)


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
