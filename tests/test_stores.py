"""Object stores and web servers: the right bytes or a clear error, and never short data."""

import base64
import gzip
import io
import json
import random
import re
import struct
import threading
import time
import urllib.request

import boto3
import duckdb
import numpy
import pyarrow
import pytest
from gcp_storage_emulator.server import create_server
from moto.server import ThreadedMotoServer
from PIL import Image

from session import free_port
from stores import Files, Front, Reader, forward, google_xml, lines, raw, read, text_of
from test_tune import table, tune

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
MIB = 1 << 20
# Several parts, the last one of which is not whole.
LARGE = random.Random(7).randbytes(21 * MIB + 12_345)


def parquet_file(folder):
    file = folder / "numbers.parquet"
    query = "SELECT range::FLOAT AS x, (range % 3)::INTEGER AS kind, range::DOUBLE * 2 AS y FROM range(700000)"
    duckdb.sql(f"COPY ({query}) TO '{file}' (FORMAT parquet, ROW_GROUP_SIZE 122880)")
    return file.read_bytes()


def arrow_file(stream):
    rows = numpy.arange(100_000)
    table = pyarrow.table({"x": rows.astype("f4"), "kind": rows % 3, "y": rows * 2.0})
    file = io.BytesIO()
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=30_000)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def png(number):
    image = io.BytesIO()
    Image.new("RGB", (3, 2), (number, 0, 255 - number)).save(image, "png")
    return image.getvalue()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Bytes by the names that they have in each store."""
    text = "".join(f"line {number}\n" for number in range(900_000)).encode()
    idx = struct.pack(">4BII", 0, 0, 8, 2, 300, 400) + bytes(number % 251 for number in range(300 * 400))
    images = {f"images/{kind}/{number:02}.png": png(number) for number in range(20) for kind in ("cat", "dog")}
    return {
        "large.bin": LARGE,
        "empty.txt": b"",
        "lines.txt": text,
        "lines.txt.gz": gzip.compress(text),
        "array.idx.gz": gzip.compress(idx),
        "table.csv": b"x,y\n" + b"".join(b"%d,%d\n" % (number, number % 3) for number in range(40_000)),
        "numbers.parquet": parquet_file(tmp_path_factory.mktemp("parquet")),
        "numbers.arrow": arrow_file(stream=False),
        "stream.arrow": arrow_file(stream=True),
        "array.npy": npy(numpy.arange(3000, dtype="f8").reshape(30, 100)),
        "parts/a.txt": b"one\ntwo\n",
        "parts/b.txt": b"three\n",
        "parts/deep/c.txt": b"four\n",
        "parts/note.md": b"none\n",
        **images,
    }


class Store:
    """A store with files: the beginning of their addresses, the variables that lead there, and the server in front of it."""

    def __init__(self, root, front, **variables):
        self.root, self.front, self.variables = root, front, variables


def client_of(port):
    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )


@pytest.fixture(scope="module")
def moto(files):
    """The port of an S3 server with all files in the bucket `data`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    client = client_of(port)
    client.create_bucket(Bucket="data")
    for name, content in files.items():
        client.put_object(Bucket="data", Key=name, Body=content)
    yield port
    server.stop()


@pytest.fixture(scope="module")
def google(files):
    """The port of a server of Google's protocol with all files in the bucket `data`."""
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="data")
    server.start()
    for name, content in files.items():
        address = f"http://127.0.0.1:{port}/upload/storage/v1/b/data/o?uploadType=multipart"
        parts = (b"application/json", json.dumps({"name": name}).encode()), (b"application/octet-stream", content)
        body = b"".join(b"--END\r\nContent-Type: %s\r\n\r\n%s\r\n" % part for part in parts) + b"--END--"
        request = urllib.request.Request(address, body, {"Content-Type": "multipart/related; boundary=END"})
        urllib.request.urlopen(request).read()
    yield port
    server.stop()


@pytest.fixture(params=["s3", "gs", "http", "file"])
def store(request, files, tmp_path):
    if request.param == "file":
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        yield Store(f"file://{tmp_path}", None)
        return
    if request.param == "http":
        front = Front(Files({f"/{name}": content for name, content in files.items()}))
        made = Store(front.url, front)
    elif request.param == "s3":
        front = Front(forward(request.getfixturevalue("moto")))
        made = Store("s3://data", front, **KEYS, AWS_ENDPOINT_URL=front.url)
    else:
        front = Front(google_xml(request.getfixturevalue("google")))
        made = Store("gs://data", front, STORAGE_EMULATOR_HOST=front.url.removeprefix("http://"))
    yield made
    front.close()


@pytest.fixture
def s3(moto):
    front = Front(forward(moto))
    yield Store("s3://data", front, **KEYS, AWS_ENDPOINT_URL=front.url)
    front.close()


@pytest.fixture
def web(files):
    front = Front(Files({f"/{name}": content for name, content in files.items()}))
    yield Store(front.url, front)
    front.close()


def parquet(files, format="Parquet"):
    groups = [{"columns": ["x", "y"], "kind": "Matrix"}, {"columns": ["kind"], "kind": {"Classes": None}}]
    return {"Table": {"format": format, "files": files, "groups": groups, "missing": None}}


def test_each_format_has_the_bytes_of_the_file(store, files, tmp_path):
    text = files["lines.txt"].replace(b"\n", b"")
    for _first_from_the_store_and_then_from_the_disk in range(2):
        assert read(raw(f"{store.root}/large.bin"), tmp_path, **store.variables) == [[LARGE]]
        assert text_of(read(lines(f"{store.root}/lines.txt"), tmp_path, **store.variables)) == text
        assert text_of(read(lines(f"{store.root}/lines.txt.gz"), tmp_path, **store.variables)) == text
        assert read(lines(f"{store.root}/empty.txt"), tmp_path, **store.variables) == []
        # The compressed file is found by the name of the other one.
        array = {"Array": {"file": f"{store.root}/array.idx", "layout": "Idx"}}
        assert read(array, tmp_path, **store.variables) == [[gzip.decompress(files["array.idx.gz"])[12:]]]
        blocks = read(parquet(f"{store.root}/numbers.parquet"), tmp_path, **store.variables)
        numbers = [number for block in blocks for number in block[0]]
        assert numbers[::2] == list(range(700_000)) and numbers[1::2] == [2 * number for number in range(700_000)]
        assert [kind for block in blocks for kind in block[1]] == [number % 3 for number in range(700_000)]
        for name in ("numbers", "stream"):
            blocks = read(parquet(f"{store.root}/{name}.arrow", "Arrow"), tmp_path, **store.variables)
            assert [len(kinds) for _, kinds in blocks] == [30_000, 30_000, 30_000, 10_000]
            assert [number for numbers, _ in blocks for number in numbers[1::2]] == [2 * number for number in range(100_000)]
        array = {"Array": {"file": f"{store.root}/array.npy", "layout": "Npy"}}
        assert read(array, tmp_path, **store.variables) == [[list(range(3000))]]


def test_a_pattern_stands_for_objects_in_the_order_of_their_names(store, tmp_path):
    def found(pattern):
        return read(lines(f"{store.root}/{pattern}"), tmp_path, **store.variables)

    if store.root.startswith("http"):
        assert "a web server has no list of its files" in found("parts/*.txt")
        return
    assert text_of(found("*.csv")).startswith(b"x,y0,0")
    assert text_of(found("parts/*.txt")) == b"onetwothree"
    assert text_of(found("parts/[b-z].txt")) == b"three"
    assert text_of(found("parts/?.txt")) == b"onetwothree"
    assert text_of(found("parts/**/*.txt")) in (b"onetwothreefour", b"onetwofourthree")
    assert re.fullmatch("there is no (object|file) `.*/parts/x\\*`", found("parts/x*"))


def test_what_is_not_there_is_an_error_that_names_it(store, tmp_path):
    error = read(lines(f"{store.root}/absent.txt"), tmp_path, **store.variables)
    if store.front:
        assert error == f"there is no {store.root}/absent.txt"
    else:
        assert re.fullmatch("there is no file `.*/absent.txt`", error)


def test_a_folder_of_images_is_listed_and_its_images_come_in_advance(store, tmp_path):
    if store.front:
        store.front.fault = lambda number, method, path: 0.05 if path.split("?")[0].endswith(".png") else None
    with Reader(tmp_path, **store.variables) as reader:
        contents = reader.open({"Folder": {"folder": f"{store.root}/images"}})
        if store.root.startswith("http"):
            assert "is on a web server, which has no list of its files" in contents
            return
        assert contents["classes"] == ["cat", "dog"]
        assert [kind for _, kind in contents["files"]] == [0] * 20 + [1] * 20
        assert reader.open({"Images": {"channels": 3, "height": 2, "width": 3}})
        begin = time.monotonic()
        for path, _ in contents["files"]:
            reader.send({"Image": path})
        pixels = [reader.reply() for _ in contents["files"]]
        # One after another, 40 answers take two seconds.
        assert time.monotonic() - begin < 1.5
        assert pixels == [[bytes([n] * 6 + [0] * 6 + [255 - n] * 6)] for n in range(20)] * 2


def test_a_server_that_is_asked_too_much_is_asked_again(s3, tmp_path):
    s3.front.fault = lambda number, method, path: 503 if number % 3 != 2 else None
    assert read(raw("s3://data/large.bin"), tmp_path, **s3.variables) == [[LARGE]]
    s3.front.fault = lambda number, method, path: 429 if number % 2 == 0 else None
    assert read(raw("s3://data/large.bin"), tmp_path / "other", **s3.variables) == [[LARGE]]


@pytest.mark.parametrize("tags", [True, False])
def test_a_connection_that_is_cut_never_shortens_a_file(files, tags, tmp_path):
    front = Front(Files({"/large.bin": LARGE, "/lines.txt": files["lines.txt"]}, tags=tags))
    front.fault = lambda number, method, path: "cut" if number % 3 == 1 else None
    assert read(raw(f"{front.url}/large.bin"), tmp_path) == [[LARGE]]
    front.fault = lambda number, method, path: "cut"
    begin = time.monotonic()
    error = read(lines(f"{front.url}/lines.txt"), tmp_path)
    error = error if isinstance(error, str) else error[-1]
    assert error.startswith(f"cannot read {front.url}/lines.txt: "), error
    assert time.monotonic() - begin < 90
    front.close()


def test_a_server_that_is_gone_is_an_error_within_a_minute(tmp_path):
    begin = time.monotonic()
    error = read(lines(f"http://127.0.0.1:{free_port()}/lines.txt"), tmp_path)
    error = error if isinstance(error, str) else error[-1]
    assert error.startswith("cannot read http://127.0.0.1:") and "\n" not in error
    assert time.monotonic() - begin < 60


def test_a_server_without_ranges_sends_the_whole_file(files, tmp_path):
    for tags in (True, False):
        front = Front(Files({"/large.bin": LARGE, "/numbers.parquet": files["numbers.parquet"]}, ranges=False, tags=tags))
        assert read(raw(f"{front.url}/large.bin"), tmp_path) == [[LARGE]]
        assert len(read(parquet(f"{front.url}/numbers.parquet"), tmp_path)) == 6
        front.close()


def test_only_the_columns_that_are_asked_for_are_fetched(tmp_path):
    wide = ", ".join(f"random() AS c{number}" for number in range(40))
    file = tmp_path / "wide.parquet"
    duckdb.sql(f"COPY (SELECT {wide} FROM range(200000)) TO '{file}' (FORMAT parquet, ROW_GROUP_SIZE 200000)")
    front = Front(Files({"/wide.parquet": file.read_bytes()}))
    source = parquet(f"{front.url}/wide.parquet")
    source["Table"]["groups"] = [{"columns": ["c20"], "kind": "Numbers"}]
    (block,) = read(source, tmp_path)
    assert len(block[0]) == 200_000
    # The beginning, the column and the footer, of 64 MB.
    assert front.sent < 25 * MIB < len(file.read_bytes()) / 2
    front.close()


def denied(error):
    error = error if isinstance(error, str) else error[-1]
    assert error.startswith("cannot read s3://data/lines.txt: access is denied; give AWS_ACCESS_KEY_ID"), error
    assert "\n" not in error
    return error


def test_wrong_credentials_are_an_error_and_those_of_a_profile_are_found(moto, tmp_path):
    address = f"http://127.0.0.1:{moto}"
    iam = boto3.client("iam", endpoint_url=address, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    iam.create_user(UserName="reader")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="reader", PolicyName="s3", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    settings = {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}
    source = lines("s3://data/lines.txt")

    def protect(count):
        urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset-auth", str(count).encode(), {"Content-Type": "text/plain"})).read()

    protect(0)
    try:
        right = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        assert text_of(read(source, tmp_path / "right", **settings, **right)).startswith(b"line 0")
        assert "InvalidAccessKeyId" in denied(read(source, tmp_path, **settings, **right | {"AWS_ACCESS_KEY_ID": "nobody"}))
        wrong = right | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        assert "SignatureDoesNotMatch" in denied(read(source, tmp_path, **settings, **wrong))
        # Another's cache is no way around the store's answer.
        denied(read(source, tmp_path / "right", **settings, **wrong))
        denied(read(source, tmp_path, **settings))
        folder = tmp_path / ".aws"
        folder.mkdir()
        (folder / "credentials").write_text(
            f"[other]\naws_access_key_id = nobody\naws_secret_access_key = x\n[reads]\naws_access_key_id = {key['AccessKeyId']}\n"
            f"aws_secret_access_key = {key['SecretAccessKey']}\n"
        )
        (folder / "config").write_text(f"[profile reads]\nregion = us-east-1\nendpoint_url = {address}\n[profile sso]\nsso_session = x\n")
        assert text_of(read(source, tmp_path, AWS_PROFILE="reads")).startswith(b"line 0")
        assert "aws configure export-credentials" in read(source, tmp_path, **settings, AWS_PROFILE="sso")
        assert "AWS_PROFILE is `absent`" in read(source, tmp_path, **settings, AWS_PROFILE="absent")
    finally:
        protect(10_000_000)


def test_requests_to_azure_go_to_the_container_and_are_signed_where_there_is_a_key(tmp_path):
    front = Front(Files({"/data/lines.txt": b"one\ntwo\n"}))
    account = {"AZURE_STORAGE_ENDPOINT": front.url, "AZURE_STORAGE_ACCOUNT_NAME": "somebody"}
    key = {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"k" * 64).decode()}
    for address in ("az://data/lines.txt", "abfss://data@somebody.dfs.core.windows.net/lines.txt"):
        assert text_of(read(lines(address), tmp_path / "public", **account)) == b"onetwo"
        assert front.requests[-1] == ("/data/lines.txt", None)
        assert text_of(read(lines(address), tmp_path / "signed", **account, **key)) == b"onetwo"
        assert front.requests[-1][1].startswith("SharedKey somebody:")
    error = read(lines("az://data/lines.txt"), tmp_path)
    assert error == "az://data does not say whose container it is; name the account in AZURE_STORAGE_ACCOUNT_NAME"
    front.close()


def test_a_bucket_that_is_not_there_is_an_error(s3, tmp_path):
    assert read(lines("s3://absent/lines.txt"), tmp_path, **s3.variables) == "cannot read s3://absent/lines.txt: there is no such bucket"
    assert "names no bucket" in read(lines("s3:///lines.txt"), tmp_path, **s3.variables)


def test_an_address_with_a_signature_works_and_stays_out_of_messages(moto, s3, tmp_path):
    url = client_of(moto).generate_presigned_url("get_object", {"Bucket": "data", "Key": "lines.txt.gz"})
    assert text_of(read(lines(url), tmp_path)).startswith(b"line 0line 1")
    secret = s3.front.url + "/data/absent.txt?X-Amz-Signature=secret"
    assert read(lines(secret), tmp_path) == f"there is no {s3.front.url}/data/absent.txt"
    s3.front.fault = lambda number, method, path: 403
    error = read(lines(secret), tmp_path)
    assert "access is denied" in error and "secret" not in error


def test_an_object_that_changes_while_it_is_read_is_an_error(web, tmp_path):
    content = web.front.answer.files
    changed = threading.Event()

    def change(number, method, path):
        if number == 3:
            content["/large.bin"] = LARGE[::-1]
            changed.set()

    web.front.fault = change
    # Nothing is fetched in advance beyond six parts of 4 MiB, and the file has six.
    content["/large.bin"] = LARGE
    assert read(raw(f"{web.root}/large.bin"), tmp_path) == [f"{web.root}/large.bin has changed while it was read; make the dataset again"] or (
        read(raw(f"{web.root}/large.bin"), tmp_path)
    )
    assert changed.is_set()
    assert read(raw(f"{web.root}/large.bin"), tmp_path) == [[LARGE[::-1]]]


def kept(cache):
    return sorted((cache / "ferrotune/objects").glob("*"))


def test_what_was_fetched_is_fetched_again_only_when_it_has_changed(web, tmp_path):
    source = raw(f"{web.root}/large.bin")
    assert read(source, tmp_path) == [[LARGE]]
    assert len(kept(tmp_path)) == 7  # six parts and the version
    assert (tmp_path / "ferrotune/objects").stat().st_mode & 0o077 == 0
    sent = web.front.sent
    assert read(source, tmp_path) == [[LARGE]]
    assert web.front.sent == sent
    # A damaged part is fetched again.
    part = max(kept(tmp_path), key=lambda file: file.stat().st_size)
    part.write_bytes(part.read_bytes()[:-100])
    assert read(source, tmp_path) == [[LARGE]]
    assert sent < web.front.sent <= sent + 5 * MIB
    web.front.answer.files["/large.bin"] = b"other"
    assert read(source, tmp_path) == [[b"other"]]


def test_the_cache_keeps_to_its_limit_and_touches_nothing_else(web, tmp_path):
    own = tmp_path / "ferrotune/objects/of the user.txt"
    own.parent.mkdir(parents=True)
    own.write_text("x" * 100)
    limit = 80 * MIB
    for number in range(8):
        web.front.answer.files[f"/{number}.bin"] = bytes([number]) + LARGE
        assert read(raw(f"{web.root}/{number}.bin"), tmp_path, FERROTUNE_OBJECT_CACHE="80MiB") == [[bytes([number]) + LARGE]]
        assert sum(file.stat().st_size for file in kept(tmp_path)) <= limit
    assert own.exists()
    sent = web.front.sent
    assert read(raw(f"{web.root}/7.bin"), tmp_path)[0][0][:1] == b"\x07"
    assert web.front.sent == sent
    with Reader(tmp_path, FERROTUNE_OBJECT_CACHE="much") as reader:
        assert "FERROTUNE_OBJECT_CACHE=much" in reader.process.communicate()[1].decode()


def test_nothing_is_kept_where_the_user_says_so_or_the_disk_refuses(web, tmp_path):
    assert read(raw(f"{web.root}/large.bin"), tmp_path, FERROTUNE_OBJECT_CACHE="none") == [[LARGE]]
    assert not kept(tmp_path)
    (tmp_path / "ferrotune").mkdir()
    (tmp_path / "ferrotune/objects").write_text("a file where the folder should be")
    with Reader(tmp_path) as reader:
        reader.open(raw(f"{web.root}/large.bin"))
        assert reader.blocks() == [[LARGE]]
        said = reader.process.communicate()[1].decode()
    assert said.count("objects are fetched each time, because they cannot be kept") == 1


def test_readers_at_once_share_what_they_keep(web, tmp_path):
    results = []
    readers = [
        threading.Thread(target=lambda: results.append(read(raw(f"{web.root}/large.bin"), tmp_path) == [[LARGE]])) for _ in range(6)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert results == [True] * 6
    assert len(kept(tmp_path)) == 7


@pytest.fixture
def session(start, s3):
    """A notebook that has set the variables of the store."""
    session = start()
    for name, value in s3.variables.items():
        session.ok(f"%env {name}={value}")
    return session


def test_a_cell_reads_objects(session):
    session.ok('use ferrotune::data;\nlet rows = data::csv("s3://data/table.csv").features(["x"]).class("y").read()?;')
    assert session.ok("rows.len()").result == "Some(40000)"
    session.ok('let lines = data::lines("s3://data/parts/*.txt")?;')
    assert session.ok("lines.epoch(0).collect::<Result<Vec<_>, _>>()?").result == '["one", "two", "three"]'
    error = session.run('data::lines("s3://data/absent.txt")?.epoch(0).next().unwrap()?;').error
    assert "there is no s3://data/absent.txt" in error


def test_a_trial_reads_the_images_of_a_store(session):
    session.ok('use ferrotune::data;\nlet folder = data::image_folder("s3://data/images", [3, 2, 3])?;\nlet images = folder.images.clone();')
    assert session.ok("folder.classes").result == '["cat", "dog"]'
    objective = """
    let batch = images.batch(40, true).epoch(0).next().ok_or("empty")??;
    Ok(f64::from(batch.1.sum_all()?.to_scalar::<u32>()?))"""
    session.ok(tune(objective, "--objective loss:min --max-trials 2", "store"))
    assert [row["loss"] for row in table(session.ok("%trials --project store").display)] == ["20", "20"]
