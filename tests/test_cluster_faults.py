"""Faults of a cluster, with a real server and real processes: whatever happens, no trial is lost, none counts twice, and what was
acknowledged is in the study. The hosts are processes of this machine; the network is that of a namespace."""

import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

import debian
import netns
import postgresql
from cluster import Team, children, faults_of, reports
from session import is_alive, wait_for

ROUNDS = int(os.environ.get("FERROTUNE_CLUSTER_ROUNDS", "12"))
SEED = int(os.environ.get("FERROTUNE_CLUSTER_SEED", "0"))
# From so many rounds on there is an outage of a whole minute, and the network is cut for longer.
LONG_RUN = 100

# A loopback address of this process alone, so that the server gets its usual port.
LOOPBACK = f"127.18.{os.getpid() % 256}.{os.getpid() // 256 % 254 + 1}"


@pytest.fixture(scope="module")
def network():
    """A network namespace, or why there is none."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(netns.namespace())
        except netns.NoNamespace as reason:
            made = str(reason)
        yield made


@pytest.fixture(scope="module")
def server(network):
    """A server on a socket, on a loopback address, and on the namespace's link, with a certificate."""
    try:
        with postgresql.initialised() as made:
            hosts = [LOOPBACK]
            if isinstance(network, netns.Namespace):
                hosts.append(network.outside)
                made.trust(network.network)
            made.trust(f"{LOOPBACK}/32")
            key, certificate = self_signed(pathlib.Path(made.home), hosts)
            made.own(key)
            settings = {"listen_addresses": ",".join(hosts), "ssl": "on", "ssl_key_file": key, "ssl_cert_file": certificate}
            made.options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
            made.start()
            yield made
    except postgresql.NoServer as reason:
        pytest.skip(str(reason))


def self_signed(folder, hosts):
    """A key and a certificate for these addresses, signed with that key."""
    key, certificate = folder / "server.key", folder / "server.crt"
    names = ",".join(f"IP:{host}" for host in hosts)
    extensions = ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ferrotune-test"]
    subprocess.run([*command, *extensions, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@pytest.fixture
def team(kernel, server, tmp_path, request):
    name = request.node.name.removeprefix("test_")[:32]
    with Team(kernel, tmp_path, name, postgresql.addresses(server.home, f"it_{time.time_ns()}")) as team:
        yield team
    # A worker that was killed leaves what it has fetched.
    shutil.rmtree(tmp_path)


def needs(namespace):
    if not isinstance(namespace, netns.Namespace):
        pytest.skip(namespace)


def database(team):
    return re.search("///([^?]+)", team.url).group(1)


def over_network(team, network, name, **options):
    """A worker in the namespace."""
    url = f"postgresql://ferrotune@{network.outside}/{database(team)}"
    return team.worker(name, url, before=network.command(), **options)


# Processes


def test_trial_of_a_worker_that_is_killed_is_finished_by_another(team):
    cell = team.begin(20, 6)
    worker, _ = team.worker("one"), team.worker("other")
    trial, process = team.wait_for_epochs(worker.pid)
    worker.kill()
    team.wait_for_others(trial, process)
    assert cell.end().error is None
    team.workers[1].end()
    team.check()
    assert team.retried(trial) >= 1


def test_process_of_a_trial_that_is_killed_is_replaced(team):
    cell = team.begin(20, 4)
    worker = team.worker("one")
    trial, process = team.wait_for_epochs(worker.pid)
    os.kill(process // 1_000_000, signal.SIGKILL)
    assert cell.end().error is None
    worker.end()
    team.check()
    assert team.retried(trial) >= 1


def test_search_of_a_notebook_that_is_killed_goes_on_when_its_cell_runs_again(team):
    cell = team.begin(20, 6)
    worker = team.worker("one")
    team.wait_for_epochs(worker.pid)
    (supervisor,) = team.notebook()
    team.wait_for_epochs(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    assert "SIGKILL" in cell.end().error
    code = team.code(20, 6)
    assert team.run(code).end().error is None
    worker.end()
    team.check()


def test_search_that_is_suspended_does_not_write_to_a_trial_that_it_has_lost(team):
    cell = team.begin(30, 4)
    worker = team.worker("one")
    trial, process = team.wait_for_epochs(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    team.wait_for_others(trial, process)
    os.kill(worker.pid, signal.SIGCONT)
    assert cell.end().error is None
    worker.end()
    team.check()
    assert team.retried(trial) >= 1


# The server


def test_server_that_crashes_and_comes_back_ends_no_trial(team, server):
    # An outage of a second more than the grace. Who is slow to reach the server again is not taken for dead so soon.
    cell = team.begin(25, 4, heartbeat="3s")
    worker = team.worker("one")
    team.wait_for_epochs(worker.pid)
    server.crash()
    try:
        cell.read(7)
    finally:
        server.start()
    assert cell.end().error is None
    worker.end()
    team.check()
    assert [team.retried(trial) for trial in range(4)] == [0] * 4
    assert "the search waits for it" in worker.said() and "answers again after" in worker.said()


# The network


def test_search_that_is_cut_off_does_not_write_to_a_trial_that_it_has_lost(team, network):
    needs(network)
    cell = team.begin(30, 4)
    worker = over_network(team, network, "far")
    trial, process = team.wait_for_epochs(worker.pid)
    network.cut()
    try:
        team.wait_for_others(trial, process)
        # Its supervisor does not know of it.
        assert is_alive(process // 1_000_000)
    finally:
        network.mend()
    assert cell.end().error is None
    worker.end()
    team.check()
    assert team.retried(trial) >= 1


def test_trial_that_comes_back_to_a_search_whose_process_still_runs_it_has_no_second_process(team, server, network):
    needs(network)
    cell = team.begin(20, 2)
    # It has a place free for a second process.
    first = over_network(team, network, "far", more=["--concurrency", "2"])
    trial, process = team.wait_for_epochs(first.pid)
    second = team.worker("near")
    team.hold_file.touch()
    network.cut()
    try:
        team.wait_for_owner(trial, second)
    finally:
        network.mend()
    recent = f"client_addr = '{network.inside}' AND state_change > now() - interval '1s'"
    wait_for(lambda: server.ask(f"SELECT count(*) FROM pg_stat_activity WHERE {recent}") == "1", "search that is back")
    # Its next beats tell it that the trial is another one's.
    cell.read(2)
    second.kill()
    team.wait_for_owner(trial, first)
    cell.read(1)
    team.hold_file.unlink()
    assert cell.end().error is None
    first.end()
    team.check()
    assert {report.process for report in team.reports() if report.trial == trial and report.is_acknowledged} == {process}


def test_connection_that_is_encrypted_and_checked_takes_no_other_certificate(team, server, tmp_path):
    cell = team.begin(10, 6)
    url = f"postgresql://ferrotune@{LOOPBACK}/{database(team)}?sslmode=verify-full"
    (tmp_path / "other").mkdir()
    _, other = self_signed(tmp_path / "other", [LOOPBACK])
    refused = team.worker("refused", f"{url}&sslrootcert={other}")
    assert refused.process.wait(timeout=60) == 1
    (line,) = refused.said().splitlines()
    assert "invalid peer certificate" in line and "as sslrootcert=FILE" in line, line
    admitted = team.worker("admitted", f"{url}&sslrootcert={server.home}/server.crt")
    team.wait_for_epochs(admitted.pid)
    ours = "pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'ferrotune'"
    assert server.ask(f"SELECT count(*) FROM {ours}") == "1"
    assert cell.end().error is None
    admitted.end()
    team.check()


# Clocks


def test_clocks_that_are_an_hour_apart_kill_nobody_and_hide_no_death(team):
    early, late = skewed("-1h"), skewed("+1h")
    # Nobody that lives is that slow.
    cell = team.begin(30, 9, heartbeat="3s")
    workers = [team.worker("early", environment=early), team.worker("late", environment=late)]
    for worker in workers:
        team.wait_for_epochs(worker.pid)
    assert sum(team.retried(trial.number) for trial in team.trials()) == 0
    trial, process = team.wait_for_epochs(workers[1].pid)
    workers[1].kill()
    team.wait_for_others(trial, process)
    assert cell.end().error is None
    workers[0].end()
    team.check()
    retried = [team.retried(trial) for trial in range(9)]
    assert retried == [int(number == trial) for number in range(9)]


def skewed(by):
    """The variables under which a process has another time."""
    find = lambda: next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if not find() and (reason := debian.install("faketime")):
        pytest.skip(reason)
    if not find():
        pytest.skip("libfaketime is not installed; apt-get install faketime")
    environment = {"LD_PRELOAD": str(find()), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    said = subprocess.run(["date", "+%s"], env={**environment, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert abs(abs(int(said.stdout) - time.time()) - 3600) < 60, said
    return environment


# Disks


def test_trials_of_a_worker_whose_disk_is_full_are_finished_by_others(team, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        cell = team.begin(30, 4, keeps="true")
        worker = team.worker("full", directory=disk)
        team.wait_for_epochs(worker.pid)
        with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
            while True:
                filler.write(bytes(1 << 16))
        assert worker.process.wait(timeout=60) == 1
        assert "free some space" in worker.said().splitlines()[-1], worker.said()
        assert cell.end().error is None
        team.check()
    finally:
        for worker in team.workers:
            worker.kill()
        wait_for(lambda: subprocess.run(["umount", str(disk)], capture_output=True).returncode == 0, "unmounted disk")


# All of them


class Storm:
    """A study with workers on both sides of a link, and one fault after the other."""

    def __init__(self, team, server, network, draw):
        self.team, self.server, self.draw = team, server, draw
        self.network = network if isinstance(network, netns.Namespace) else None
        self.starts = 0
        self.faults = [self.kill_worker, self.kill_trial, self.kill_search, self.stop_worker, self.suspend, self.crash]
        if self.network:
            self.faults.append(self.cut)
        self.cell = team.begin(30, 5 * ROUNDS + 10)
        self.workers = [self.start_worker(place) for place in range(3)]

    def start_worker(self, place):
        """The last one of them works over the network."""
        self.starts += 1
        name = f"worker-{self.starts}"
        return over_network(self.team, self.network, name) if place == 2 and self.network else self.team.worker(name)

    def pass_time(self, seconds):
        """Keeps the cell and the workers going. One that has begun waits for a server that is gone; one that begins does not."""
        self.cell.read(seconds)
        if self.cell.is_over:
            outcome = self.cell.end()
            is_new = "earlier trials" not in outcome.stdout and "storage postgresql:" in (outcome.error or "")
            assert is_new or "SIGKILL" in outcome.error, outcome
            self.cell = self.team.run(self.team.code(30, self.team.most))
        for place, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                said = worker.said()
                # It may also begin while a cell that runs again publishes what it has compiled anew.
                is_early = "storage postgresql:" in said or "not yet all of it" in said
                assert "earlier trials" not in said and is_early, said
                self.workers[place] = self.start_worker(place)

    def supervisors(self):
        return [worker.pid for worker in self.workers if worker.process.poll() is None] + self.team.notebook()

    def replace(self, end):
        place = self.draw.randrange(3)
        end(self.workers[place])
        self.workers[place] = self.start_worker(place)

    def kill_worker(self):
        self.replace(lambda worker: worker.kill())

    def stop_worker(self):
        """In good order: its trials are others' at once."""

        def stop(worker):
            worker.process.terminate()
            # One that has not begun yet ends as any process does.
            assert worker.process.wait(timeout=60) in (1, -signal.SIGTERM), worker.said()

        self.replace(stop)

    def kill_trial(self):
        trials = [pid for supervisor in self.supervisors() for pid in children(supervisor)]
        if trials:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.draw.choice(trials), signal.SIGKILL)

    def kill_search(self):
        for pid in self.team.notebook():
            os.kill(pid, signal.SIGKILL)
            # The cell runs again.
            self.pass_time(30)

    def suspend(self):
        pid = self.draw.choice(self.supervisors())
        os.kill(pid, signal.SIGSTOP)
        self.pass_time(self.draw.uniform(1, 4))
        os.kill(pid, signal.SIGCONT)

    def crash(self, seconds=None):
        self.server.crash()
        try:
            self.pass_time(self.draw.uniform(0, 3) if seconds is None else seconds)
        finally:
            self.server.start()

    def cut(self):
        self.network.cut()
        try:
            # From 20 s on a search gives its connection up.
            is_long = ROUNDS >= LONG_RUN and self.draw.random() < 0.2
            self.pass_time(25 if is_long else self.draw.uniform(1, 4))
        finally:
            self.network.mend()

    def end(self):
        """The trials that are left need no time."""
        self.team.hurry_file.touch()
        assert self.cell.end(600).error is None
        for worker in self.workers:
            worker.end()
        self.team.check()


@pytest.mark.timeout(600 + 20 * ROUNDS)
def test_any_fault_at_any_time_loses_no_trial_and_counts_none_twice(team, server, network):
    seed = SEED or random.randrange(1, 1 << 32)
    print(f"FERROTUNE_CLUSTER_SEED={seed} FERROTUNE_CLUSTER_ROUNDS={ROUNDS}")
    storm = Storm(team, server, network, random.Random(seed))
    begun, kinds = time.monotonic(), collections.Counter()
    for number in range(ROUNDS):
        storm.pass_time(storm.draw.uniform(0.2, 2.0))
        # Each of them comes in its turn, then any of them.
        fault = storm.faults[number] if number < len(storm.faults) else storm.draw.choice(storm.faults)
        print(f"{time.monotonic() - begun:7.1f} s: {fault.__name__}", flush=True)
        kinds[fault.__name__] += 1
        fault()
        if ROUNDS >= LONG_RUN and number == ROUNDS // 2:
            storm.crash(60)
    ended = len([trial for trial in team.trials() if trial.state.is_finished()])
    assert ended < team.most, "the study was over before its faults were"
    storm.end()
    retried = [len(trial.user_attrs.get("ferrotune:retried") or []) for trial in team.trials()]
    print(f"{dict(kinds)} in {time.monotonic() - begun:.0f} s: {team.most} trials, {sum(map(bool, retried))} tried again, {sum(retried)} times")


# The check


HISTORY = """asked 0 0 10 1
acknowledged 0 0 10 1
asked 0 1 11 1
asked 0 0 20 2
acknowledged 0 0 20 2
asked 0 1 21 2
acknowledged 0 1 21 2
"""


@pytest.mark.parametrize(
    ("more", "values", "words"),
    [
        ("", {0: 20, 1: 21}, None),
        # An answer that the network has held back, to a report that was written in time.
        ("acknowledged 0 1 11 1", {0: 20, 1: 21}, None),
        # A report whose process was killed before it heard of it.
        ("asked 0 1 31 3", {0: 20, 1: 31}, None),
        ("", {0: 10, 1: 21}, "epoch 0 of trial 0 is not what was acknowledged last"),
        ("", {0: 20, 1: 11}, "epoch 1 of trial 0 is not what was acknowledged last"),
        ("", {0: 20}, "trial 0 has the epochs [0]"),
        ("asked 0 0 12 1\nacknowledged 0 0 12 1", {0: 12, 1: 21}, "trial 0 was another process's in between: [1, 2, 1]"),
        ("", {0: 20, 1: 40}, "epoch 1 of trial 0 is not what was acknowledged last"),
    ],
)
def test_the_check_finds_what_is_lost_and_what_is_written_by_two(more, values, words):
    found = faults_of(reports(f"{HISTORY}{more}\n" if more else HISTORY), [values], 2)
    assert found == [] if words is None else words in "\n".join(found)
