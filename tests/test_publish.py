"""`%%tune --publish URL`: what workers run is in an object store, here a real server of S3 and a folder."""

import hashlib
import json
import sqlite3
import urllib.request

import boto3
import pytest
from moto.server import ThreadedMotoServer
from optuna.trial import TrialState

from session import free_port, wait_for
from test_tune import tune
from test_workers import Team, refused

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


class Bucket:
    """A bucket that remembers each upload."""

    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}"
        self.variables = KEYS | {"AWS_ENDPOINT_URL": self.address}
        self.client = self.client_of("s3")
        self.client.create_bucket(Bucket="work")
        self.client.put_bucket_versioning(Bucket="work", VersioningConfiguration={"Status": "Enabled"})

    def client_of(self, service):
        return boto3.client(
            service, endpoint_url=self.address, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )

    def uploads(self, prefix):
        """The names of the objects, one for each time that one was put there."""
        return [each["Key"] for each in self.client.list_object_versions(Bucket="work", Prefix=prefix).get("Versions", [])]

    def bytes_of(self, key):
        return self.client.get_object(Bucket="work", Key=key)["Body"].read()

    def put(self, key, content):
        self.client.put_object(Bucket="work", Key=key, Body=content)

    def protect(self, requests):
        """Checks who asks, after so many requests."""
        body = str(requests).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/moto-api/reset-auth", body, {"Content-Type": "text/plain"})).read()


@pytest.fixture(scope="module")
def bucket():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield Bucket(server.get_host_and_port()[1])
    server.stop()


@pytest.fixture
def team(kernel, tmp_path, bucket):
    kernel.ok("\n".join(f"%env {name}={value}" for name, value in bucket.variables.items()))
    kernel.ok("let factor = 0.25;")
    return Team(kernel, tmp_path, f"store-{tmp_path.name}")


def in_database(team):
    """How many parts of files the database has."""
    return sqlite3.connect(team.folder / "studies.db").execute("SELECT COUNT(*) FROM ferrotune_content").fetchone()[0]


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_a_worker_fetches_from_a_store_what_a_notebook_has_put_there(team, bucket, kind):
    folder = team.folder / "a store"
    to = "s3://work/both/" if kind == "s3" else f"file://{team.folder}/a%20store"
    cell = team.kernel.begin(team.cell(3, 20, to=to))
    wait_for(lambda: team.token.exists() and team.trials(), "trial of the notebook")
    worker = team.worker(**bucket.variables)
    outcome = team.kernel.end_of(cell)
    _, said = worker.communicate(timeout=60)
    assert outcome.error is None and worker.returncode == 0, said
    assert [trial.state for trial in team.trials()] == [TrialState.COMPLETE] * 20
    ids = [owner["id"] for owner in team.owners()]
    assert len(set(ids)) == 2 and min(map(ids.count, set(ids))) >= 3
    if kind == "s3":
        content = {key: bucket.bytes_of(key) for key in bucket.uploads("both/")}
    else:
        content = {f"both/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # The objective, Rust's library, the prelude, and what was captured.
    assert len(content) == 4 and sum(map(len, content.values())) > 10e6
    assert all(key == f"both/sha256/{hashlib.sha256(of).hexdigest()}" for key, of in content.items())
    assert in_database(team) == 0
    assert team.left_behind() == []


def test_another_study_sends_only_what_is_not_there(team, bucket):
    to = "s3://work/shared"
    team.kernel.ok(team.cell(1, 1, to=to))
    first = bucket.uploads("shared/")
    assert len(first) == len(set(first)) == 4
    team.kernel.ok(team.cell(1, 2, to=to))
    # Its objective alone, which is compiled again.
    again = bucket.uploads("shared/")
    assert len(again) == 5 and set(first) < set(again)
    other = Team(team.kernel, team.folder, f"{team.name}-2")
    team.kernel.ok(other.cell(2, 1, to=to))
    # Its objective; what it has captured has the same bytes.
    assert len(set(bucket.uploads("shared/")) - set(again)) == 1 and len(bucket.uploads("shared/")) == 6
    for study in (team, other):
        assert study.worker(**bucket.variables).wait(timeout=60) == 0
    # Objects stay when no study of this database names them: those of another one may.
    team.kernel.ok(tune("Ok(x)", f"--objective loss:min --max-trials 1 --storage {team.url} --overwrite", team.name))
    assert len(bucket.uploads("shared/")) == 6


def test_a_worker_runs_no_object_that_was_changed_and_says_which_one_is_missing(team, bucket):
    team.kernel.ok(team.cell(1, 1, to="s3://work/changed"))
    sizes = {key: len(bucket.bytes_of(key)) for key in bucket.uploads("changed/")}
    # The prelude; the objective is compiled again by each cell.
    key = max(sizes, key=sizes.get)
    content = bucket.bytes_of(key)
    bucket.put(key, content[:-1] + bytes([content[-1] ^ 1]))
    line = refused(team.worker(**bucket.variables))
    assert f"s3://work/{key}, which study {team.name} has for workers, has other bytes than were signed; remove that object" in line
    bucket.client.delete_object(Bucket="work", Key=key)
    line = refused(team.worker(**bucket.variables))
    assert line.endswith(f"there is no s3://work/{key}, which study {team.name} has for workers; start the study's search again with --publish")
    bucket.put(key, content[:-1])
    assert "has other bytes than were signed" in refused(team.worker(**bucket.variables))
    # An object of another length is no reason to send nothing.
    team.kernel.ok(team.cell(1, 2, to="s3://work/changed"))
    assert bucket.bytes_of(key) == content
    assert team.worker(**bucket.variables).wait(timeout=60) == 0
    assert team.left_behind() == []


def test_what_keeps_a_store_from_being_read_or_written_is_one_line(team, bucket):
    team.kernel.ok(team.cell(1, 1, to="s3://work/denied"))
    line = refused(team.worker(**bucket.variables | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}))
    assert "cannot read s3://work/denied/sha256/" in line
    iam = bucket.client_of("iam")
    iam.create_user(UserName="worker")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="worker", PolicyName="s3", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName="worker")["AccessKey"]
    right = bucket.variables | {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    bucket.protect(0)
    try:
        for wrong in (right | {"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ENDPOINT_URL": bucket.address, "AWS_REGION": "us-east-1"}):
            line = refused(team.worker(**wrong))
            assert "cannot read s3://work/denied/sha256/" in line and "access is denied; give AWS_ACCESS_KEY_ID" in line
        assert team.worker(**right).wait(timeout=60) == 0
        error = team.kernel.fails(team.cell(1, 2, to="s3://work/other")).error
        assert "cannot write s3://work/other/sha256/" in error and "of somebody who may write it" in error
    finally:
        bucket.protect(10_000_000)
    error = team.kernel.fails(team.cell(1, 2, to="s3://absent")).error
    assert "cannot write s3://absent/sha256/" in error and "there is no such bucket" in error
    assert "write s3://BUCKET/PREFIX" in team.kernel.fails(team.cell(1, 2, to="https://host/folder")).error
    # A study whose search could not publish has for workers what it had before.
    assert team.worker(**bucket.variables).wait(timeout=60) == 0
    assert team.left_behind() == []
