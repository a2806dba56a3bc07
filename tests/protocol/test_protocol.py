"""The kernel's side of the Jupyter messaging protocol, message by message."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
import zmq
from jupyter_client.session import Session

from front_end import SLEEPING, TIMEOUT_S
from session import is_alive, wait_for

# Execution


def test_kernel_info_is_answered_before_the_engine_is_ready(start):
    front_end = start()
    cell = front_end.client.execute("1 + 1")
    info = front_end.reply(front_end.request("kernel_info_request", channel="control"), "control")["content"]
    assert not front_end.client.shell_channel.msg_ready()
    assert info["status"] == "ok"
    assert info["protocol_version"] == "5.4"
    assert info["implementation"] == "ferrotune"
    assert info["language_info"]["name"] == "rust"
    assert info["language_info"]["file_extension"] == ".rs"
    assert info["language_info"]["mimetype"] == "text/x-rust"
    assert info["debugger"] is False
    assert info["supported_features"] == ["kernel subshells"]
    assert front_end.reply(cell)["content"]["status"] == "ok"
    # IOPub was perhaps subscribed too late for some of these requests' messages.
    front_end.settle("shell")
    front_end.kept.clear()


def test_execution_counts_start_at_one_and_count_stored_cells(start):
    front_end = start().wait_for_ready()
    counts = [
        front_end.execute("1 + 1", silent=silent, store_history=store)[0]["execution_count"]
        for silent, store in [(False, True), (True, True), (False, False), (False, True)]
    ]
    assert (counts[0], counts[3]) == (1, 2)


def test_stdout_stderr_and_result_keep_their_order(kernel):
    reply, published = kernel.execute('println!("one"); eprintln!("two"); println!("three"); 1 + 2')
    count = reply["execution_count"]
    assert reply == {"status": "ok", "execution_count": count, "payload": [], "user_expressions": {}}
    # The two streams are separate pipes, so only the order within each is certain.
    text = {"stdout": "", "stderr": ""}
    for msg_type, content in published[:-1]:
        assert msg_type == "stream"
        text[content["name"]] += content["text"]
    assert text == {"stdout": "one\nthree\n", "stderr": "two\n"}
    msg_type, content = published[-1]
    assert (msg_type, content["execution_count"], content["data"]["text/plain"]) == ("execute_result", count, "3")
    assert content["metadata"] == {}


def test_fast_output_is_gathered_into_few_messages(kernel):
    reply, published = kernel.execute('for i in 0..5000 { println!("line {i}"); }')
    assert reply["status"] == "ok"
    text = "".join(content["text"] for _, content in published)
    assert text == "".join(f"line {i}\n" for i in range(5000))
    assert len(published) < 100


def test_error_has_the_same_fields_in_reply_and_output(kernel):
    reply, published = kernel.execute("let a: i32 = no_such_name;")
    assert reply["status"] == "error"
    assert reply["ename"] and "no_such_name" in reply["evalue"] + "".join(reply["traceback"])
    assert isinstance(reply["traceback"], list) and all(isinstance(line, str) for line in reply["traceback"])
    assert published == [("error", {key: reply[key] for key in ("ename", "evalue", "traceback")})]
    assert reply["user_expressions"] == {} and reply["payload"] == []
    after = kernel.execute("1 + 1")[0]
    assert after["status"] == "ok", after


def test_silent_cell_publishes_only_its_status(kernel):
    before = kernel.execute("1 + 1")[0]["execution_count"]
    reply, published = kernel.execute('println!("not shown"); 1 + 1', silent=True)
    assert (reply["status"], published) == ("ok", [])
    assert kernel.execute("1 + 1")[0]["execution_count"] == before + 1
    reply, published = kernel.execute("let a: i32 = no_such_name;", silent=True)
    assert (reply["status"], published) == ("error", [])


def test_user_expressions_are_evaluated_after_the_cell(kernel):
    expressions = {"sum": "1 + 2", "wrong": "no_such_name"}
    reply, published = kernel.execute("let a = 1;", user_expressions=expressions)
    assert published == []
    assert reply["user_expressions"]["sum"] == {"status": "ok", "data": {"text/plain": "3"}, "metadata": {}}
    wrong = reply["user_expressions"]["wrong"]
    assert wrong["status"] == "error" and wrong["ename"] and isinstance(wrong["traceback"], list)


def test_error_aborts_the_cells_that_are_queued(kernel):
    cells = ["let a: i32 = no_such_name;", "1 + 1", "1 + 2"]
    ids = [kernel.client.execute(cell) for cell in cells]
    replies = [kernel.reply(msg_id)["content"]["status"] for msg_id in ids]
    assert replies == ["error", "aborted", "aborted"]
    assert [msg_type for msg_type, _ in kernel.published(ids[0])] == ["execute_input", "error"]
    for msg_id in ids[1:]:
        assert kernel.published(msg_id) == []
    after = kernel.execute("1 + 1")[0]
    assert after["status"] == "ok", after


def test_error_without_stop_on_error_aborts_nothing(kernel):
    ids = [kernel.client.execute(cell, stop_on_error=False) for cell in ["let a: i32 = no_such_name;", "1 + 1"]]
    assert [kernel.reply(msg_id)["content"]["status"] for msg_id in ids] == ["error", "ok"]
    assert [kernel.published(msg_id)[-1][0] for msg_id in ids] == ["error", "execute_result"]


def test_interrupt_ends_a_sleeping_cell_and_aborts_the_queue(kernel):
    cell = kernel.client.execute(SLEEPING)
    queued = kernel.client.execute("1 + 1")
    kernel.wait_for_text(cell, "asleep\n")
    asked = time.monotonic()
    assert kernel.ask("interrupt_request", channel="control") == {"status": "ok"}
    assert time.monotonic() - asked < 1
    reply = kernel.reply(cell)["content"]
    assert (reply["status"], reply["ename"]) == ("error", "Interrupted")
    assert time.monotonic() - asked < 30
    assert [msg_type for msg_type, _ in kernel.rest_of(cell)] == ["error"]
    assert kernel.reply(queued)["content"]["status"] == "aborted"
    assert kernel.published(queued) == []
    after = kernel.execute("1 + 1")[0]
    assert after["status"] == "ok", after


def test_requests_are_answered_while_a_cell_runs(kernel):
    cell = kernel.client.execute(SLEEPING)
    kernel.wait_for_text(cell, "asleep\n")
    assert kernel.ask("kernel_info_request")["status"] == "ok"
    assert kernel.ask("is_complete_request", {"code": "1"}) == {"status": "complete"}
    assert kernel.ask("comm_info_request") == {"status": "ok", "comms": {}}
    tail = {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    assert kernel.ask("history_request", tail)["history"][0][2] == SLEEPING
    completion = kernel.request("complete_request", {"code": "printl", "cursor_pos": 6})
    kernel.ask("interrupt_request", channel="control")
    replies = [kernel.receive("shell") for _ in range(2)]
    assert {reply["parent_header"]["msg_id"] for reply in replies} == {cell, completion}
    assert [msg_type for msg_type, _ in kernel.rest_of(cell)] == ["error"]
    assert kernel.published(completion) == []


# Requests beside cells


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 + 1", {"status": "complete"}),
        ("let a = 1;", {"status": "complete"}),
        ("%lsmagic", {"status": "complete"}),
        ("", {"status": "complete"}),
        ("fn main() {", {"status": "incomplete", "indent": "    "}),
        ("fn main() {\n    if true {", {"status": "incomplete", "indent": "        "}),
        ("1 +", {"status": "incomplete", "indent": "    "}),
        ('let s = "abc', {"status": "incomplete", "indent": ""}),
        ("/* abc", {"status": "incomplete", "indent": ""}),
        ("%%tune\n|trial| {}", {"status": "incomplete", "indent": ""}),
        ("%%tune\n|trial| {}\n", {"status": "complete"}),
        ("foo(]", {"status": "invalid"}),
        ("let a = 1\nlet b = 2;", {"status": "invalid"}),
    ],
)
def test_is_complete(kernel, code, expected):
    assert kernel.ask("is_complete_request", {"code": code}) == expected


def test_history_finds_cells_of_this_and_earlier_sessions(start):
    marker = f"// {os.getpid()} {time.time()}"
    first = start().wait_for_ready()
    cells = [f"1 + 1 {marker}", f"1 + 2 {marker}"]
    for cell in cells:
        assert first.execute(cell)[0]["status"] == "ok"
    first.execute(f"1 + 3 {marker}", silent=True)
    first.execute(f"1 + 4 {marker}", store_history=False)

    search = {"hist_access_type": "search", "pattern": f"*{marker}", "raw": True, "output": False, "n": 10}
    found = first.ask("history_request", search)["history"]
    assert [[line, source] for _, line, source in found] == [[1, cells[0]], [2, cells[1]]]
    session = found[0][0]

    span = {"hist_access_type": "range", "session": 0, "start": 1, "stop": 2, "raw": True, "output": False}
    assert first.ask("history_request", span)["history"] == [[session, 1, cells[0]]]
    tail = {"hist_access_type": "tail", "n": 1, "raw": True, "output": True}
    assert first.ask("history_request", tail)["history"] == [[session, 2, [cells[1], None]]]

    second = start().wait_for_ready()
    assert second.ask("history_request", search)["history"] == found
    assert second.ask("history_request", {"hist_access_type": "nonsense"})["status"] == "error"


def test_history_of_a_session_is_not_disturbed_by_other_kernels(start):
    marker = f"// {os.getpid()} {time.time()}"
    first = start().wait_for_ready()
    assert first.execute(f"1 {marker}")[0]["status"] == "ok"
    second = start().wait_for_ready()
    assert second.execute(f"2 {marker}")[0]["status"] == "ok"
    assert first.execute(f"3 {marker}")[0]["status"] == "ok"

    def found(kernel, **fields):
        request = {"raw": True, "output": False, **fields}
        return [source.split()[0] for _, _, source in kernel.ask("history_request", request)["history"]]

    assert found(first, hist_access_type="tail", n=3) == ["2", "1", "3"]
    assert found(second, hist_access_type="tail", n=3) == ["1", "3", "2"]
    assert found(first, hist_access_type="search", pattern=f"*{marker}", n=2) == ["1", "3"]
    assert found(first, hist_access_type="range", session=0, start=1) == ["1", "3"]
    assert found(second, hist_access_type="range", session=-1, start=1) == ["1", "3"]


def test_comms_of_unknown_targets_are_closed(kernel):
    assert kernel.ask("comm_info_request", {"target_name": "jupyter.widget"}) == {"status": "ok", "comms": {}}
    content = {"comm_id": "c1", "target_name": "no_such_target", "data": {}}
    msg_id = kernel.request("comm_open", content)
    assert kernel.published(msg_id) == [("comm_close", {"comm_id": "c1", "data": {}})]
    for msg_type in ("comm_msg", "comm_close"):
        assert kernel.published(kernel.request(msg_type, {"comm_id": "c1", "data": {}})) == []


@pytest.fixture(scope="module")
def point(kernel):
    """A kernel with a variable of a type that no library has."""
    cell = """struct Punkt { breite: f64, bretter: u32 }
        impl Punkt { /// Its area.
            fn ausdehnung(&self) -> f64 { self.breite } }
        let punkt = Punkt { breite: 1.0, bretter: 2 };"""
    assert kernel.execute(cell)[0]["status"] == "ok"
    return kernel


@pytest.mark.parametrize(
    ("before", "typed", "after", "matches"),
    [
        ("punkt.", "bre", "", ["breite", "bretter"]),
        ("/* 😀ü */ punkt.", "bre", "", ["breite", "bretter"]),
        ('let text = "😀ü"; punkt.', "aus", " + 1.0", ["ausdehnung"]),
        ("// ü\n/* 😀 */ ", "Punk", " { breite: 2.0, bretter: 1 }", ["Punkt"]),
        ("// ü\n", "%tpu_con", "", ["%tpu_connect"]),
        ("punkt.", "no_such_field", "", []),
    ],
)
def test_completion_counts_in_code_points(point, before, typed, after, matches):
    start, end = len(before), len(before + typed)
    reply = point.complete(before + typed + after, end)
    types = reply["metadata"].pop("_jupyter_types_experimental")
    found = {"matches": matches, "cursor_start": start if matches else end, "cursor_end": end}
    assert reply == {"status": "ok", "metadata": {}, **found}
    assert [(it["start"], it["end"], it["text"]) for it in types] == [(start, end, match) for match in matches]


@pytest.mark.parametrize(
    ("before", "name", "text"),
    [
        ("/* 😀ü */ ", "punkt", "punkt: Punkt"),
        ("/* 😀ü */ ", "Punkt", "struct Punkt {\n    breite: f64,\n    bretter: u32,\n}"),
        ('let text = "😀ü"; punkt.', "ausdehnung", "Punkt\n\nfn ausdehnung(&self) -> f64\n\n\nIts area."),
        ("// ü\n", "%tpu_connect", "%tpu_connect [--tpu NAME|local] "),
    ],
)
def test_inspection_says_what_a_name_is(point, before, name, text):
    for cursor in (len(before) + 1, len(before + name)):
        reply = point.inspect(before + name + " ", cursor)
        assert (reply["status"], reply["found"], reply["metadata"]) == ("ok", True, {})
        assert reply["data"]["text/plain"].startswith(text)


def test_inspection_of_an_unknown_name_finds_nothing(point):
    assert point.inspect("/* 😀ü */ no_such_name", 12) == {"status": "ok", "found": False, "data": {}, "metadata": {}}


def test_connect_request_gives_the_ports(kernel):
    reply = kernel.ask("connect_request")
    for channel in ("shell", "iopub", "stdin", "control", "hb"):
        assert reply[f"{channel}_port"] == getattr(kernel.manager, f"{channel}_port")


def test_debug_request_is_refused_in_its_own_form(kernel):
    reply = kernel.ask("debug_request", {"type": "request", "seq": 7, "command": "initialize"}, channel="control")
    assert (reply["type"], reply["request_seq"], reply["command"]) == ("response", 7, "initialize")
    assert reply["success"] is False and reply["message"]


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_unknown_request_gets_an_error_and_unknown_message_nothing(kernel, channel):
    msg_id = kernel.request("frobnicate_request", channel=channel)
    message = kernel.reply(msg_id, channel)
    assert message["msg_type"] == "frobnicate_reply"
    assert (message["content"]["status"], message["content"]["ename"]) == ("error", "UnknownRequest")
    assert kernel.published(msg_id) == []
    assert kernel.published(kernel.request("frobnicate", channel=channel)) == []
    assert kernel.is_alive()


@pytest.mark.parametrize("msg_type", ["execute", "complete", "inspect", "is_complete", "history"])
def test_request_without_its_content_gets_an_error(kernel, msg_type):
    reply = kernel.ask(f"{msg_type}_request", {"code": 3})
    assert (reply["status"], reply["ename"]) == ("error", "InvalidRequest")
    after = kernel.execute("1 + 1")[0]
    assert after["status"] == "ok", after


# The wire


def dealer(front_end, channel="shell"):
    """A socket of our own on one of the kernel's channels."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.linger = 0
    dealer.connect(front_end.manager._make_url(channel))
    return dealer


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
def test_wrong_signature_is_ignored_and_the_kernel_lives(kernel, channel):
    forged = dealer(kernel, channel)
    Session(key=b"not the key").send(forged, "kernel_info_request", {})
    Session(key=b"not the key").send(forged, "shutdown_request", {"restart": False})
    assert kernel.is_alive()
    assert not forged.poll(200)
    forged.close()


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b""],
        [b"no", b"delimiter"],
        [b"<IDS|MSG>", b"00", b"{}", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"\xff\xfe", b"\xff", b"\xff", b"\xff", b"\xff"],
        [b"<IDS|MSG>", b"SIGN", b"not json", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"SIGN", b"[]", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"SIGN", b"{}", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"SIGN", b"[" * 100_000, b"{}", b"{}", b"{}"],
    ],
    ids=range(10),
)
def test_malformed_frames_are_ignored_and_the_kernel_lives(kernel, frames):
    session = kernel.client.session
    frames = [session.sign(frames[2:6]) if frame == b"SIGN" else frame for frame in frames]
    for channel in ("shell", "control", "stdin"):
        raw = dealer(kernel, channel)
        raw.send_multipart(frames)
        assert kernel.is_alive()
        assert not raw.poll(50)
        raw.close()


def test_readable_header_gets_an_answer_whatever_follows_it(kernel):
    session = kernel.client.session
    raw = dealer(kernel)
    header = session.msg_header("execute_request")
    parts = [session.pack(header), b"{}", b"{}", b"not json"]
    raw.send_multipart([b"<IDS|MSG>", session.sign(parts), *parts])
    assert raw.poll(TIMEOUT_S * 1000)
    _, frames = session.feed_identities(raw.recv_multipart())
    message = session.deserialize(frames)
    assert message["parent_header"]["msg_id"] == header["msg_id"]
    assert (message["msg_type"], message["content"]["status"]) == ("execute_reply", "error")
    assert kernel.published(header["msg_id"]) == []
    raw.close()


def test_parent_header_keeps_fields_that_are_not_known(kernel):
    session = kernel.client.session
    raw = dealer(kernel)
    header = {**session.msg_header("kernel_info_request"), "subshell_id": None, "x_extra": {"nested": [1, 2.5]}}
    session.send(raw, session.msg("kernel_info_request", header=header))
    assert raw.poll(TIMEOUT_S * 1000)
    _, frames = session.feed_identities(raw.recv_multipart())
    assert session.unpack(frames[2])["x_extra"] == {"nested": [1, 2.5]}
    assert kernel.published(header["msg_id"]) == []
    raw.close()


def test_bytes_that_are_not_zeromq_are_ignored(kernel):
    if kernel.manager.transport != "tcp":
        pytest.skip("tcp only")
    for port in (kernel.manager.shell_port, kernel.manager.iopub_port, kernel.manager.hb_port):
        with socket.create_connection((kernel.manager.ip, port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    assert kernel.is_alive()


def test_heartbeat_echoes(kernel):
    heart = zmq.Context.instance().socket(zmq.REQ)
    heart.linger = 0
    heart.connect(kernel.manager._make_url("hb"))
    for beat in (b"ping", b"", b"x" * 10_000):
        heart.send(beat)
        assert heart.poll(5_000)
        assert heart.recv() == beat
    heart.close()


# Processes


@pytest.mark.skipif(sys.platform == "win32", reason="no ipc")
def test_ipc_transport_works_and_stale_sockets_are_replaced(start):
    # Socket paths are limited to about 100 bytes, which pytest's folders may exceed.
    front_end = start(transport="ipc", ip=f"/tmp/ferrotune-test-{os.getpid()}")
    front_end.wait_for_ready()
    path = f"{front_end.manager.ip}-{front_end.manager.shell_port}"
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    assert front_end.execute('println!("over ipc");')[1] == [("stream", {"name": "stdout", "text": "over ipc\n"})]
    os.kill(front_end.manager.provisioner.pid, signal.SIGKILL)
    front_end.wait_for_exit()
    front_end.client.stop_channels()
    assert os.path.exists(path)
    front_end.manager.restart_kernel(now=True)
    front_end.connect()
    front_end.wait_for_ready()
    assert front_end.execute("1 + 1")[0]["execution_count"] == 1


def assert_shut_down(front_end, channel, restart):
    """Asks a kernel to shut down, which it answers and publishes."""
    msg_id = front_end.request("shutdown_request", {"restart": restart}, channel)
    expected = {"status": "ok", "restart": restart}
    assert front_end.reply(msg_id, channel)["content"] == expected
    assert front_end.published(msg_id) == [("shutdown_reply", expected)]


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_shutdown_is_answered_and_the_kernel_exits_with_zero(start, channel):
    front_end = start().wait_for_ready()
    assert_shut_down(front_end, channel, restart=False)
    assert front_end.wait_for_exit() == 0


def test_shutdown_ends_a_kernel_whose_cell_sleeps(start):
    front_end = start().wait_for_ready()
    cell = front_end.client.execute(SLEEPING)
    front_end.wait_for_text(cell, "asleep\n")
    asked = time.monotonic()
    assert_shut_down(front_end, "control", restart=True)
    assert front_end.wait_for_exit() == 0
    assert time.monotonic() - asked < 5


def test_restart_gives_a_new_session_that_counts_from_one(start):
    front_end = start().wait_for_ready()
    front_end.execute("1 + 1")
    assert front_end.execute("1 + 1")[0]["execution_count"] == 2
    front_end.manager.restart_kernel()
    front_end.client.stop_channels()
    front_end.connect()
    front_end.wait_for_ready()
    assert front_end.execute("1 + 1")[0]["execution_count"] == 1


def test_sigterm_ends_the_kernel_cleanly_and_sigint_interrupts_the_cell(start):
    front_end = start().wait_for_ready()
    cell = front_end.client.execute(SLEEPING)
    front_end.wait_for_text(cell, "asleep\n")
    os.kill(front_end.manager.provisioner.pid, signal.SIGINT)
    assert front_end.reply(cell)["content"]["ename"] == "Interrupted"
    assert front_end.is_alive()
    os.kill(front_end.manager.provisioner.pid, signal.SIGTERM)
    assert front_end.wait_for_exit() == 0


def test_kernel_exits_when_its_front_end_is_killed():
    script = (
        "import sys, time; from jupyter_client.manager import KernelManager\n"
        "m = KernelManager(kernel_name='ferrotune'); m.start_kernel(); print(m.provisioner.pid, flush=True)\n"
        "time.sleep(600)"
    )
    front_end = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(front_end.stdout.readline())
    front_end.kill()
    front_end.wait()
    wait_for(lambda: not is_alive(pid), "end of the kernel", seconds=20)


def test_two_kernels_do_not_disturb_each_other(start):
    first, second = start(), start()
    first.wait_for_ready()
    second.wait_for_ready()
    first.execute("1 + 1")
    assert first.execute('println!("first");')[1] == [("stream", {"name": "stdout", "text": "first\n"})]
    reply, published = second.execute('println!("second");')
    assert published == [("stream", {"name": "stdout", "text": "second\n"})]
    assert reply["execution_count"] == 1
    first.manager.shutdown_kernel(now=True)
    assert second.execute("1 + 1")[0]["execution_count"] == 2
