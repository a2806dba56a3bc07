"""A front end that keeps everything the kernel says, so that a test which asserts its outputs asserts all of them.

The tests use the installed kernelspec `ferrotune`; whoever runs them sets JUPYTER_PATH or JUPYTER_DATA_DIR.
"""

import os
import queue
import tempfile
import time

import pytest
from jupyter_client.manager import KernelManager

KERNEL = "ferrotune"
TIMEOUT_S = float(os.environ.get("FERROTUNE_TEST_TIMEOUT", "180"))

SLEEPING = 'println!("asleep"); std::thread::sleep(std::time::Duration::from_secs(60));'

# History belongs to the data folder; the user's own stays as it is.
DATA = tempfile.TemporaryDirectory(prefix="ferrotune-data-")


class FrontEnd:
    """A started kernel and a client on all of its channels."""

    def __init__(self, **options):
        self.manager = KernelManager(kernel_name=KERNEL, **options)
        self.manager.start_kernel(env={**os.environ, "XDG_DATA_HOME": DATA.name})
        self.connect()

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()

    def wait_for_ready(self):
        """Until IOPub is subscribed and a first cell can run."""
        self.client.wait_for_ready(timeout=TIMEOUT_S)
        return self

    def request(self, msg_type, content=None, channel="shell"):
        """Sends a request as it is; returns its id."""
        channel = getattr(self.client, f"{channel}_channel")
        message = self.client.session.msg(msg_type, content or {})
        channel.send(message)
        return message["header"]["msg_id"]

    def reply(self, msg_id, channel="shell"):
        """The reply to one request; replies to others are a failure."""
        message = getattr(self.client, f"{channel}_channel").get_msg(timeout=TIMEOUT_S)
        assert message["parent_header"]["msg_id"] == msg_id, message
        return message

    def ask(self, msg_type, content=None, channel="shell"):
        return self.reply(self.request(msg_type, content, channel), channel)["content"]

    def published(self, msg_id):
        """All of IOPub from `busy` to `idle` of one request, as (type, content); other parents are passed over."""
        messages = []
        deadline = time.monotonic() + TIMEOUT_S
        while not messages or messages[-1] != ("status", {"execution_state": "idle"}):
            message = self.next_published(deadline)
            if message["parent_header"].get("msg_id") == msg_id:
                messages.append((message["msg_type"], message["content"]))
        assert messages[0] == ("status", {"execution_state": "busy"}), messages
        return messages[1:-1]

    def next_published(self, deadline):
        return self.client.iopub_channel.get_msg(timeout=max(0.0, deadline - time.monotonic()))

    def wait_for_text(self, msg_id, text):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self.next_published(deadline)
            if message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "stream":
                assert message["content"] == {"name": "stdout", "text": text}
                return

    def execute(self, code, **options):
        """The reply to a cell and all that it published, `execute_input` left out where it is right."""
        msg_id = self.client.execute(code, **options)
        reply = self.reply(msg_id)["content"]
        published = self.published(msg_id)
        if not options.get("silent"):
            expected = {"code": code, "execution_count": reply["execution_count"]}
            assert published.pop(0) == ("execute_input", expected)
        return reply, published

    def is_alive(self):
        return self.ask("kernel_info_request")["status"] == "ok" and self.manager.is_alive()

    def wait_for_exit(self):
        process = self.manager.provisioner.process
        return process.wait(timeout=TIMEOUT_S)

    def no_more_replies(self):
        with pytest.raises(queue.Empty):
            self.client.shell_channel.get_msg(timeout=0.2)

    def close(self):
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
