"""A front end that keeps each message of the kernel until a test claims it; conftest.py fails a test that leaves one.

The tests use the installed kernelspec `ferrotune`; whoever runs them sets JUPYTER_PATH or JUPYTER_DATA_DIR.
"""

import contextlib
import inspect
import os
import random
import socket
import time

import zmq
from jupyter_client.manager import KernelManager
from jupyter_client.utils import run_sync

KERNEL = "ferrotune"
TIMEOUT_S = float(os.environ.get("FERROTUNE_TEST_TIMEOUT", "300"))

SLEEPING = 'println!("asleep"); std::thread::sleep(std::time::Duration::from_secs(60));'
BUSY, IDLE = [("status", {"execution_state": state}) for state in ("busy", "idle")]

# Those that are not closed yet.
OPEN = []


CHANNELS = ["shell_port", "iopub_port", "stdin_port", "hb_port", "control_port"]


def free_ports(count):
    """Ports that nobody listens on, below those that the system gives to connections: one of these could be taken until the kernel listens."""
    with contextlib.ExitStack() as held:
        ports = []
        while len(ports) < count:
            tried = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                tried.bind(("127.0.0.1", random.randrange(15000, 32000)))
                ports.append(tried.getsockname()[1])
        return ports


class FrontEnd:
    """A started kernel and a client on all of its channels."""

    def __init__(self, kernel=KERNEL, folder=None, env=None, **options):
        ports = dict(zip(CHANNELS, free_ports(len(CHANNELS))))
        self.manager = KernelManager(kernel_name=kernel, **({"cache_ports": False} | ports | options))
        self.manager.start_kernel(cwd=folder, env={**os.environ, **(env or {})})
        self.connect()
        OPEN.append(self)

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        # Messages of IOPub that were read before somebody asked for them.
        self.kept = []
        # Cells whose display goes on changing after they have ended.
        self.live = set()

    def wait_for_ready(self):
        """Waits until IOPub is subscribed and a first cell can run."""
        try:
            self.client.wait_for_ready(timeout=TIMEOUT_S)
            # The client has asked more than once if the kernel was slow.
            self.settle("shell")
        except BaseException:
            # No later test waits for the messages of a kernel that does not answer.
            self.close()
            raise
        self.kept.clear()
        return self

    def receive(self, channel, timeout_s=TIMEOUT_S):
        """The next message of a channel, whatever it is."""
        get = getattr(self.client, f"{channel}_channel").get_msg
        # The control channel of a blocking client in jupyter_client 7 does not block.
        return (run_sync(get) if inspect.iscoroutinefunction(get) else get)(timeout=timeout_s)

    def request(self, msg_type, content=None, channel="shell"):
        """Sends a request as it is; returns its id."""
        message = self.client.session.msg(msg_type, content or {})
        getattr(self.client, f"{channel}_channel").send(message)
        return message["header"]["msg_id"]

    def reply(self, msg_id, channel="shell"):
        """The reply to one request; any other message before it is a failure."""
        message = self.receive(channel)
        assert message["parent_header"]["msg_id"] == msg_id, message
        return message

    def ask(self, msg_type, content=None, channel="shell"):
        """The reply to a request that publishes nothing but its status."""
        msg_id = self.request(msg_type, content, channel)
        content = self.reply(msg_id, channel)["content"]
        assert self.published(msg_id) == []
        return content

    def next_published(self, msg_id, timeout_s=TIMEOUT_S):
        """The next message of IOPub that belongs to a request; those of other requests are kept."""
        for index, message in enumerate(self.kept):
            if message["parent_header"].get("msg_id") == msg_id:
                return self.kept.pop(index)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self.receive("iopub", max(0.0, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == msg_id:
                return message
            self.kept.append(message)

    def rest_of(self, msg_id):
        """All that a request still publishes before its `idle`, as (type, content)."""
        messages = []
        while not messages or messages[-1] != IDLE:
            message = self.next_published(msg_id)
            messages.append((message["msg_type"], message["content"]))
        return messages[:-1]

    def published(self, msg_id):
        """All that a request publishes between `busy` and `idle`, as (type, content)."""
        busy, *messages = self.rest_of(msg_id)
        assert busy == BUSY, busy
        return messages

    def wait_for_text(self, msg_id, text):
        """Waits until a cell has printed `text`, its first output."""
        messages = [self.next_published(msg_id) for _ in range(3)]
        assert [message["msg_type"] for message in messages] == ["status", "execute_input", "stream"], messages
        assert messages[-1]["content"] == {"name": "stdout", "text": text}

    def execute(self, code, **options):
        """The reply to a cell and all that it publishes, without its `execute_input` if that is right."""
        msg_id = self.client.execute(code, **options)
        reply, published = self.reply(msg_id)["content"], self.published(msg_id)
        if not options.get("silent"):
            assert published.pop(0) == ("execute_input", {"code": code, "execution_count": reply["execution_count"]})
        return reply, published

    def complete(self, code, cursor=None):
        """The reply to a request for completions at a position, which is the end of the code unless it is given."""
        return self.ask("complete_request", {"code": code, "cursor_pos": len(code) if cursor is None else cursor})

    def inspect(self, code, cursor):
        """The reply to a request for what is known of the name at a position."""
        return self.ask("inspect_request", {"code": code, "cursor_pos": cursor, "detail_level": 0})

    def is_alive(self):
        return self.ask("kernel_info_request")["status"] == "ok" and self.manager.is_alive()

    def wait_for_exit(self):
        return self.manager.provisioner.process.wait(timeout=TIMEOUT_S)

    def settle(self, channel):
        """Reads a channel and IOPub up to the answer to a request sent now; returns the channel's other messages."""
        msg_id = self.request("kernel_info_request", channel=channel)
        left = []
        while (message := self.receive(channel))["parent_header"].get("msg_id") != msg_id:
            left.append(message)
        self.published(msg_id)
        return left

    def unclaimed(self):
        """All messages that no call has claimed. A kernel that has ended may have been cut short, and has none."""
        if not self.manager.is_alive():
            return []
        left = self.settle("shell") + self.settle("control") + self.kept
        self.kept = []
        is_live = lambda message: message["parent_header"].get("msg_id") in self.live
        updates = ("update_display_data", "comm_msg")
        left = [message for message in left if message["msg_type"] not in updates or not is_live(message)]
        # Shadowed, because jupyter_client 7 asks this socket in an event loop.
        questions = zmq.Socket.shadow(self.client.stdin_channel.socket.underlying)
        while questions.poll(0):
            left.append(self.receive("stdin"))
        return [(message["msg_type"], message["content"]) for message in left]

    def close(self):
        """Ends the kernel, if it has not ended yet."""
        if self not in OPEN:
            return
        OPEN.remove(self)
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel()
