"""Object stores and web servers on 127.0.0.1 with faults, and a client of `ferrotune reader`."""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time
import tomllib
import urllib.parse
import urllib.request

from session import FERROTUNE, TARGET

VERSION = tomllib.loads((TARGET.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
DTYPES = {"u8": "B", "u32": "I", "i64": "q", "f32": "f", "f64": "d"}


class Reader:
    """A process `ferrotune reader`, with these variables and no others of a cloud."""

    def __init__(self, cache, **variables):
        clouds = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_", "CLOUDSDK_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(clouds)}
        environment |= {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)} | variables
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([FERROTUNE, "reader"], stdin=pipe, stdout=pipe, stderr=pipe, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def send(self, request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def reply(self):
        """What an answer says: contents, arrays as bytes or numbers, None at the end, or a str that is an error."""
        header = json.loads(self._bytes(struct.unpack("<I", self._bytes(4))[0]))
        if header == "End":
            return None
        ((kind, value),) = header.items()
        if kind != "Block":
            return value
        arrays = []
        for shape in value:
            code, count = DTYPES[shape["dtype"]], 1
            for length in shape["dims"]:
                count *= length
            content = self._bytes(count * struct.calcsize(code))
            arrays.append(content if code == "B" else list(struct.unpack(f"<{count}{code}", content)))
        return arrays

    def _bytes(self, count):
        content = self.process.stdout.read(count)
        assert len(content) == count, self.process.stderr.read().decode()
        return content

    def open(self, source):
        self.send({"Open": {"version": VERSION, "source": source}})
        return self.reply()

    def blocks(self):
        """All blocks; the last one may be an error."""
        blocks = []
        while not blocks or not isinstance(blocks[-1], str):
            self.send({"Block": len(blocks)})
            block = self.reply()
            if block is None:
                break
            blocks.append(block)
        return blocks


def read(source, cache, **variables):
    """What a reader gives of a source: its blocks, or an error."""
    with Reader(cache, **variables) as reader:
        opened = reader.open(source)
        return opened if isinstance(opened, str) else reader.blocks()


def lines(files):
    return {"Records": {"framing": "Lines", "files": files}}


def raw(file):
    return {"Array": {"file": file, "layout": "Bytes"}}


def text_of(blocks):
    """The lines of blocks, without their ends."""
    assert isinstance(blocks, list), blocks
    assert not any(isinstance(block, str) for block in blocks), blocks
    return b"".join(block[0] for block in blocks)


class Front:
    """A server in front of files or of another server, which counts requests and spoils answers.

    `fault(number, method, path)` says what happens to a request: None, a status, "cut" within the answer's body, or a time in
    seconds to wait.
    """

    def __init__(self, answer):
        self.answer, self.fault = answer, lambda number, method, path: None
        self.requests, self.sent = [], 0
        self.lock = threading.Lock()
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                front.serve(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def serve(self, handler):
        with self.lock:
            number = len(self.requests)
            self.requests.append((handler.path, handler.headers.get("Authorization")))
        fault = self.fault(number, handler.command, handler.path)
        if isinstance(fault, float):
            time.sleep(fault)
        if isinstance(fault, int):
            status, headers, body = fault, {}, b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"
        else:
            status, headers, body = self.answer(handler)
        with contextlib.suppress(OSError):
            handler.send_response(status)
            length = headers.pop("Content-Length", str(len(body)))
            if length is not None:
                handler.send_header("Content-Length", length)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            if handler.command != "HEAD":
                part = body[: len(body) // 2] if fault == "cut" else body
                handler.wfile.write(part)
                with self.lock:
                    self.sent += len(part)
            if fault == "cut":
                handler.wfile.flush()
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Files:
    """Files of a web server by their paths, which knows ranges and versions, or does not."""

    def __init__(self, files, ranges=True, tags=True):
        self.files, self.ranges, self.tags = files, ranges, tags

    def __call__(self, handler):
        path = handler.path.split("?")[0]
        if path not in self.files:
            return 404, {}, b"not here"
        body = self.files[path]
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        headers = {"Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"} | ({"ETag": tag} if self.tags else {})
        if self.tags and handler.headers.get("If-None-Match") == tag:
            return 304, headers, b""
        if self.tags and handler.headers.get("If-Match", tag) != tag:
            return 412, headers, b""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if not (self.ranges and asked):
            return 200, headers, body
        begin, end = int(asked[1]), min(int(asked[2]) + 1, len(body))
        if begin >= len(body):
            return 416, headers | {"Content-Range": f"bytes */{len(body)}"}, b""
        return 206, headers | {"Content-Range": f"bytes {begin}-{end - 1}/{len(body)}"}, body[begin:end]


def forward(port, without=()):
    """Asks the server at this port, without these headers."""

    def answer(handler):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in ("connection", *without)}
        connection.request(handler.command, handler.path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        hop = {"connection", "server", "date", "transfer-encoding"}
        kept = {name.title(): value for name, value in response.getheaders() if name.lower() not in hop}
        kept["Content-Length"] = kept.get("Content-Length", str(len(body)))
        return response.status, kept, body

    return answer


def google_xml(port):
    """Asks the emulator of Google's store, which has neither ranges nor the listing of Google's XML interface."""
    plain = forward(port, without=("range", "if-match", "if-none-match"))

    def answer(handler):
        path, _, query = handler.path.partition("?")
        asked = urllib.parse.parse_qs(query)
        if "list-type" in asked:
            prefix = urllib.parse.urlencode({"prefix": asked.get("prefix", [""])[0]})
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b{path}/o?{prefix}") as listed:
                objects = json.load(listed).get("items", [])
            entries = "".join(
                f"<Contents><Key>{each['name']}</Key><LastModified>2026-11-02T10:00:00.000Z</LastModified>"
                f"<Size>{each['size']}</Size><ETag>x</ETag></Contents>"
                for each in objects
            )
            listing = f"<ListBucketResult><Name>data</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
            return 200, {"Content-Type": "application/xml"}, listing.encode()
        status, headers, body = plain(handler)
        if status == 200:
            return Files({path: body})(handler)
        return status, headers, body

    return answer
