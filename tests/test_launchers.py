"""What every launcher does, on this machine's processes, on real Slurm and Ray, and on what kubectl takes for Kubernetes. Needs no kernel."""

import contextlib
import json
import os
import subprocess
import time

import pytest

import kubernetes_api
import ray_cluster
from session import TARGET, is_alive, wait_for

PROGRAM = TARGET / "release/examples/place"
LAUNCHERS = ["local", "slurm", "ray", "kubernetes"]
CLUSTERS = ["slurm", "ray", "kubernetes"]
KUBERNETES = "kubernetes:image=none"
# Longer than the grace of `local`, which is 20 s.
TIMEOUT_S = 60


class Place:
    """A process with a launcher. `folder` is the working directory of its jobs."""

    def __init__(self, launcher, folder, **variables):
        self.folder = folder
        self.submitted = []
        environment = {**os.environ, "NO_PROXY": "127.0.0.1", **variables}
        self.process = subprocess.Popen(
            [PROGRAM, launcher], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, **request):
        # A launcher that does not exist has answered already.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def job(self, *command, **more):
        return {"name": "it", "command": command, "folder": str(self.folder), **more}

    def submit(self, *command, count=1, **more):
        job = self.job(*command, **more)
        ids = self.ask(submit=job, count=count)
        assert len(ids) == count and all(isinstance(one, str) for one in ids), ids
        self.submitted += ids
        return ids

    def status(self, ids):
        return self.ask(status=ids)

    def logs(self, one):
        return self.ask(logs=one, of=self.job())

    def ended(self, ids):
        """Waits until the commands have ended; gives their failures."""
        seen = [set() for _ in ids]
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            statuses = self.status(ids)
            for states, status in zip(seen, statuses, strict=True):
                assert not ("ended" in states and status["state"] != "ended"), "what has ended has started again"
                states.add(status["state"])
            if all(status["state"] == "ended" for status in statuses):
                assert set().union(*seen) <= {"waiting", "running", "ended"}
                return [status["failure"] for status in statuses]
            time.sleep(0.1)
        raise AssertionError(f"{statuses} after {TIMEOUT_S} s")

    def wait_for_line(self, one, line):
        """Waits for a whole line: Ray writes the command to the log."""
        end = time.monotonic() + TIMEOUT_S
        while line not in self.logs(one).splitlines():
            assert time.monotonic() < end, (self.status([one]), self.logs(one))
            time.sleep(0.1)

    def close(self):
        """Also cancels what a test that has failed has left."""
        if self.process.poll() is None and self.submitted:
            assert self.ask(cancel=self.submitted) is None
        self.process.stdin.close()
        assert self.process.wait() == 0
        self.process.stdout.close()


@pytest.fixture
def engine(request):
    """The text of a launcher, and what its processes have in their environment."""
    if request.param == "slurm":
        return "slurm", request.getfixturevalue("slurm_cluster")
    if request.param == "kubernetes":
        return KUBERNETES, request.getfixturevalue("kubernetes")[0]
    return request.getfixturevalue("ray_head") if request.param == "ray" else request.param, {}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "it's 50 %A"
    folder.mkdir()
    return folder


@pytest.fixture
def begin(engine, folder):
    """Starts processes with the launcher of a test."""
    places = []

    def begin_one(**variables):
        launcher, environment = engine
        places.append(Place(launcher, folder, **environment, **variables))
        return places[-1]

    yield begin_one
    for place in places:
        place.close()


@pytest.fixture
def place(begin):
    return begin(LEAK="leaked")


def every(launchers):
    return pytest.mark.parametrize("engine", launchers, indirect=True)


def cpus_of(place):
    """All processors of the place's cluster."""
    return {"slurm": os.cpu_count(), KUBERNETES: kubernetes_api.CPUS}.get(place.process.args[1], ray_cluster.CPUS)


def keeps_logs(place):
    """Whether the log of a command that was cancelled stays."""
    return place.process.args[1] != KUBERNETES


@every(LAUNCHERS)
def test_commands_run_in_their_folder_with_their_words_and_variables(place):
    words = ["a b", "it's", "$HOME", "x\ny", "", "a=b", "\\", "é"]
    script = 'printf "<%s>" "$@"; echo; echo "$WORD ${LEAK-}"; pwd >&2'
    value = "a, 'b' $c=\"d\"\nlast"
    ids = place.submit("sh", "-c", script, "sh", *words, count=3, environment={"WORD": value, "EMPTY": ""})
    assert len(set(ids)) == 3
    assert place.ended(ids) == [None] * 3
    expected = "".join(f"<{word}>" for word in words) + f"\n{value} \n{place.folder}\n"
    # Ray adds lines of its own.
    assert all(expected in place.logs(one) for one in ids), [place.logs(one) for one in ids]


@every(LAUNCHERS)
def test_failure_of_a_command_is_told_in_words(place):
    good = place.submit("true")
    failed = place.submit("sh", "-c", "exit 3")
    killed = place.submit("sh", "-c", "kill -9 $$")
    assert place.ended(good + failed + killed) == [None, "exit status 3", "signal 9"]


@every(LAUNCHERS)
def test_cancelled_command_gets_term_and_has_time(place):
    # Ray's own grace is 3 s.
    script = "trap 'sleep 4; echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    # Slurm runs two at the same time on the smallest machines.
    ids = place.submit("sh", "-c", script)
    other = place.submit("sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done")
    for one in ids + other:
        place.wait_for_line(one, "ready")
    assert [status["state"] for status in place.status(ids + other)] == ["running"] * 2
    assert place.ask(cancel=ids) is None
    assert place.ended(ids) == ["cancelled"]
    assert not keeps_logs(place) or {"ready", "bye"} <= set(place.logs(ids[0]).splitlines())
    assert place.status(other)[0]["state"] == "running"
    assert place.ask(cancel=ids + other) is None
    assert place.ended(ids + other) == ["cancelled"] * 2


@every(LAUNCHERS)
def test_command_that_ignores_term_is_gone_in_the_end(place):
    script = "trap '' TERM; echo $$ > pid; echo ready; while :; do sleep 0.1; done"
    ids = place.submit("sh", "-c", script, environment={"RAY_JOB_STOP_WAIT_TIME_S": "2"})
    place.wait_for_line(ids[0], "ready")
    pid = int((place.folder / "pid").read_text())
    assert place.ask(cancel=ids) is None and is_alive(pid)
    assert place.ended(ids) == ["cancelled"]
    # Ray says so before its SIGKILL has ended the process.
    wait_for(lambda: not is_alive(pid), "end of the process")


@every(CLUSTERS)
def test_commands_wait_for_the_processors_that_they_need(place):
    cpus = cpus_of(place)
    # A status says that a command runs for a moment after its end: the commands themselves see whether they are alone.
    script = "echo cpus ${SLURM_CPUS_PER_TASK-}; mkdir alone || exit 1; sleep 1; rmdir alone"
    ids = place.submit("sh", "-c", script, count=2, cpus=cpus)
    seen = []

    def have_ended():
        seen.append(sorted(status["state"] for status in place.status(ids)))
        return seen[-1] == ["ended"] * 2

    wait_for(have_ended, "end of the commands", TIMEOUT_S)
    assert ["running", "waiting"] in seen
    assert place.ended(ids) == [None] * 2
    if place.process.args[1] == "slurm":
        assert place.logs(ids[0]) == f"cpus {cpus}\n"


@every(CLUSTERS)
def test_command_that_waits_can_be_cancelled(place):
    """Slurm ends it at once, Ray when it gets its place."""
    cpus = cpus_of(place)
    first = place.submit("sh", "-c", "echo ready; until [ -e over ]; do sleep 0.1; done", cpus=cpus)
    place.wait_for_line(first[0], "ready")
    second = place.submit("sh", "-c", "sleep 5; touch ran", count=2, cpus=cpus)
    assert place.status(first + second)[0] == {"state": "running"}
    # Slurm has a reason after its next look at the queue.
    while not (status := place.status(second)[0]).get("reason"):
        assert status["state"] == "waiting"
        time.sleep(0.05)
    assert place.ask(cancel=second) is None
    (place.folder / "over").touch()
    assert place.ended(first + second) == [None, "cancelled", "cancelled"]
    assert not (place.folder / "ran").exists()


@every(LAUNCHERS)
def test_command_waits_for_what_no_host_has_or_is_refused(place):
    """Slurm knows at once, Ray and Kubernetes wait for a host that has it, and this machine shares out no GPUs."""
    answer = place.ask(submit=place.job("true", gpus=1), count=1)
    if place.process.args[1].startswith(("ray:", "kubernetes:")):
        assert place.status(answer)[0]["state"] == "waiting"
        assert place.ask(cancel=answer) is None
    else:
        assert "CUDA_VISIBLE_DEVICES" in answer["error"] or answer["error"].startswith("`sbatch` has failed: ")


@every(CLUSTERS)
def test_commands_outlive_the_launcher_and_another_finds_them(begin):
    first = begin()
    script = "echo ready; trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done"
    ids = first.submit("sh", "-c", script)
    first.wait_for_line(ids[0], "ready")
    first.process.kill()
    first.process.wait()
    first.close = lambda: None
    second = begin()
    assert second.status(ids) == [{"state": "running"}]
    assert second.ask(cancel=ids) is None
    assert second.ended(ids) == ["cancelled"]
    assert not keeps_logs(second) or "bye" in second.logs(ids[0]).splitlines()


@every(LAUNCHERS)
def test_command_that_the_engine_does_not_know_is_gone(place):
    unknown = ["77777_0", "77777_1"]
    assert place.status(unknown) == [{"state": "gone"}] * 2
    known = place.submit("true")
    assert place.ended(known) == [None]
    assert [status["state"] for status in place.status([unknown[0], *known])] == ["gone", "ended"]
    assert place.ask(cancel=unknown) is None
    assert place.logs(unknown[0]) == ""


@every(["slurm"])
def test_command_that_starts_again_keeps_its_id_and_its_log(place, engine):
    script = "trap 'echo bye; exit 0' TERM; echo ready ${SLURM_RESTART_COUNT:-0}; while :; do sleep 0.1; done"
    ids = place.submit("sh", "-c", script)
    place.wait_for_line(ids[0], "ready 0")
    subprocess.run(["scontrol", "requeue", ids[0]], check=True, env={**os.environ, **engine[1]})
    place.wait_for_line(ids[0], "ready 1")
    assert place.logs(ids[0]).count("bye") == 1 and place.status(ids) == [{"state": "running"}]
    assert place.ask(cancel=ids) is None
    assert place.ended(ids) == ["cancelled"]


@every(["slurm"])
def test_secrets_are_not_in_the_script(place, engine):
    ids = place.submit("sh", "-c", "echo $TOKEN; sleep 1", environment={"TOKEN": "hush"})
    command = ["scontrol", "write", "batch_script", ids[0], "-"]
    script = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **engine[1]}).stdout
    assert "echo $TOKEN" in script and "hush" not in script
    assert place.ended(ids) == [None] and place.logs(ids[0]) == "hush\n"


def test_slurm_says_what_is_wrong(slurm_cluster, folder):
    place = Place("slurm:partition=nowhere", folder, **slurm_cluster)
    answer = place.ask(submit=place.job("true"), count=1)
    place.close()
    assert answer["error"].startswith("`sbatch` has failed: ") and "invalid partition" in answer["error"]


def test_slurm_needs_its_commands(folder):
    place = Place("slurm", folder, PATH="/nowhere")
    answer = place.ask(submit=place.job("true"), count=1)
    place.close()
    cure = "install Slurm's commands (slurm-client) here, or submit from a host that has it"
    assert answer == {"error": f"`sbatch` is not on PATH; {cure}"}


def test_kubernetes_gets_secrets_that_go_with_their_jobs(kubernetes, folder):
    variables, cluster = kubernetes
    place = Place(KUBERNETES, folder, **variables)
    ids = place.submit("sh", "-c", "echo $TOKEN; sleep 100", environment={"TOKEN": "hush"}, count=2)
    place.wait_for_line(ids[1], "hush")
    assert "hush" not in json.dumps([pod.manifest for pod in cluster.pods.values()])
    run = ids[0].removesuffix("-0")
    assert {owner["name"] for owner in cluster.secrets[run]["metadata"]["ownerReferences"]} == set(ids)
    assert place.ask(cancel=ids[:1]) is None
    assert place.ended(ids[:1]) == ["cancelled"] and run in cluster.secrets
    assert place.ask(cancel=ids[1:]) is None
    assert place.ended(ids) == ["cancelled"] * 2
    wait_for(lambda: run not in cluster.secrets, "end of the secret")
    place.close()


def test_kubernetes_says_what_is_wrong(folder, tmp_path):
    config = tmp_path / "none"
    config.write_text("")
    place = Place(KUBERNETES, folder, KUBECONFIG=str(config))
    answer = place.ask(submit=place.job("true"), count=1)
    place.close()
    assert answer["error"].startswith("`kubectl` has failed: "), answer
    place = Place(KUBERNETES, folder, PATH="/nowhere")
    assert place.ask(submit=place.job("true"), count=1)["error"].startswith("`kubectl` is not on PATH; install it (kubernetes-client")
    place.close()


@pytest.mark.parametrize("text", ["kubernetes", "pbs", "local:x", "slurm:array=1", "ray:head"])
def test_launcher_that_does_not_exist_is_an_error(text, folder):
    place = Place(text, folder)
    answer = place.ask(status=[])
    with contextlib.suppress(BrokenPipeError):
        place.close()
    assert list(answer) == ["error"]
