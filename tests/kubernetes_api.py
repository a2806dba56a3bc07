"""What a launcher uses of a Kubernetes server, for the real `kubectl`: Jobs, pods and Secrets of one namespace by the server's REST
interface. The containers are processes of this machine, and no image is looked at. No package registry has a real server."""

import contextlib
import http.server
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

import debian

CPUS = 2
NAMESPACE = "lab"
# Seconds from the signal TERM to the signal KILL, where a pod has more.
MOST_GRACE_S = 6


class NoCluster(Exception):
    """There is no kubectl, and none can be installed; says why."""


class Pod:
    """A Job with its one pod."""

    def __init__(self, manifest, folder):
        self.manifest, self.name = manifest, manifest["metadata"]["name"]
        self.container = manifest["spec"]["template"]["spec"]["containers"][0]
        limits = self.container["resources"]["limits"]
        self.cpus, self.can_run = int(limits.get("cpu", 0)), "nvidia.com/gpu" not in limits
        self.log = folder / self.name
        self.process = self.deleted = None

    def start(self, variables):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.container["command"],
                cwd=self.container["workingDir"],
                env={**environment, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def has_ended(self):
        return self.process is not None and self.process.poll() is not None

    def delete(self):
        self.deleted = time.monotonic()
        if self.process and not self.has_ended():
            self.process.send_signal(signal.SIGTERM)

    def is_gone(self):
        """Whether it was deleted and has ended; kills what does not end."""
        if self.deleted is None or self.process is None or self.has_ended():
            return self.deleted is not None
        grace = self.manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        if time.monotonic() - self.deleted > min(grace, MOST_GRACE_S):
            os.killpg(self.process.pid, signal.SIGKILL)
        return False

    def job(self):
        status = {"active": 1}
        if self.has_ended():
            failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
            status = {"succeeded": 1} if self.process.returncode == 0 else {"failed": 1, "conditions": failed}
        deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if self.deleted else {}
        return {**self.manifest, "metadata": {**self.manifest["metadata"], **deletion}, "status": status}

    def pod(self):
        labels = {**self.manifest["spec"]["template"]["metadata"]["labels"], "job-name": self.name}
        status = {"phase": "Running"}
        if self.process is None:
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
            status = {"phase": "Pending", "conditions": [unscheduled]}
        elif self.has_ended():
            code = self.process.returncode
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}
            status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]}
        metadata = {"name": f"{self.name}-pod", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
        return {"metadata": metadata, "status": status}


class Cluster:
    """The objects, and what the controllers do with them."""

    def __init__(self, folder):
        self.folder, self.lock = folder, threading.RLock()
        self.pods, self.secrets, self.uids = {}, {}, itertools.count()

    def turn(self):
        """What the scheduler, the controllers and the collector of garbage do."""
        with self.lock:
            for pod in [pod for pod in self.pods.values() if pod.is_gone()]:
                del self.pods[pod.name]
            living = {pod.manifest["metadata"]["uid"] for pod in self.pods.values()}
            for name, secret in list(self.secrets.items()):
                if not living & {owner["uid"] for owner in secret["metadata"]["ownerReferences"]}:
                    del self.secrets[name]
            used = sum(pod.cpus for pod in self.pods.values() if pod.process and not pod.has_ended())
            for pod in self.pods.values():
                secret = self.secrets.get(pod.container["envFrom"][0]["secretRef"]["name"])
                if pod.process or pod.deleted or not pod.can_run or not secret or used + pod.cpus > CPUS:
                    continue
                pod.start(secret["stringData"])
                used += pod.cpus

    def make(self, kind, manifest):
        manifest["metadata"]["uid"] = f"uid-{next(self.uids)}"
        with self.lock:
            if kind == "jobs":
                pod = Pod(manifest, self.folder)
                self.pods[pod.name] = pod
            else:
                self.secrets[manifest["metadata"]["name"]] = manifest
        return manifest

    def found(self, kind, selector):
        name, _, value = selector.partition("=")
        with self.lock:
            objects = [pod.job() if kind == "jobs" else pod.pod() for pod in self.pods.values()]
        return {"items": [it for it in objects if it["metadata"]["labels"].get(name) == value]}


def handler(cluster):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, code, body, kind="application/json"):
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def refuse(self, code, reason):
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code}
            self.answer(code, status)

        def body(self):
            """The request's body, which comes in chunks or with its length."""
            if length := self.headers["Content-Length"]:
                return self.rfile.read(int(length))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def parts(self):
            """The kind, the names behind it, and the selector."""
            url = urllib.parse.urlsplit(self.path)
            before, _, behind = url.path.partition(f"/namespaces/{NAMESPACE}/")
            kind, *names = behind.split("/")
            assert before == ("/apis/batch/v1" if kind == "jobs" else "/api/v1"), self.path
            return kind, names, urllib.parse.parse_qs(url.query).get("labelSelector", [""])[0]

        def do_POST(self):
            kind, _, _ = self.parts()
            self.answer(201, cluster.make(kind, json.loads(self.body())))

        def do_GET(self):
            if self.path.startswith("/version"):
                return self.answer(200, {"major": "1", "minor": "32", "gitVersion": "v1.32.0"})
            kind, names, selector = self.parts()
            if not names:
                return self.answer(200, cluster.found(kind, selector))
            pod = cluster.pods.get(names[0].removesuffix("-pod"))
            if pod is None:
                return self.refuse(404, "NotFound")
            if pod.process is None:
                return self.refuse(400, "BadRequest")
            return self.answer(200, pod.log.read_bytes(), "text/plain")

        def do_DELETE(self):
            kind, (name,), _ = self.parts()
            with cluster.lock:
                if kind != "jobs" or name not in cluster.pods:
                    return self.refuse(404, "NotFound")
                cluster.pods[name].delete()
                return self.answer(200, cluster.pods[name].job())

    return Handler


@contextlib.contextmanager
def cluster():
    """Runs a server; gives the variable that leads kubectl to it, and the cluster."""
    if not shutil.which("kubectl") and (reason := debian.install("kubernetes-client")):
        raise NoCluster(reason)
    if not shutil.which("kubectl"):
        raise NoCluster("kubectl is not installed; apt-get install kubernetes-client")
    with tempfile.TemporaryDirectory() as folder:
        objects = Cluster(pathlib.Path(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(objects))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stop = threading.Event()

        def turn():
            while not stop.wait(0.1):
                objects.turn()

        controllers = threading.Thread(target=turn)
        controllers.start()
        config = pathlib.Path(folder) / "config"
        context = {"cluster": "it", "user": "it", "namespace": NAMESPACE}
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "it",
                    "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                    "users": [{"name": "it", "user": {"token": "it"}}],
                    "contexts": [{"name": "it", "context": context}],
                }
            )
        )
        try:
            yield {"KUBECONFIG": str(config)}, objects
        finally:
            stop.set()
            controllers.join()
            server.shutdown()
            server.server_close()
            for pod in objects.pods.values():
                if pod.process and not pod.has_ended():
                    os.killpg(pod.process.pid, signal.SIGKILL)
                    pod.process.wait()
