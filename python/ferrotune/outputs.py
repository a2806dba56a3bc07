"""Shows in IPython what the Rust kernel publishes for a cell."""

import getpass
import sys

from IPython.core.page import page


class RustValue:
    """The value of a Rust cell, with its representations as the kernel sent them."""

    def __init__(self, data, metadata):
        self.data, self.metadata = data, metadata

    def __repr__(self):
        return self.data.get("text/plain", "")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata


class Outputs:
    """Shows the messages of one cell in IPython's own thread, and keeps the cell's value."""

    def __init__(self, shell, companion, comms):
        self._shell, self._companion, self._comms = shell, companion, comms
        self.value = None

    def show(self, message):
        content = message["content"]
        if message["msg_type"] == "execute_result":
            self.value = RustValue(content["data"], content["metadata"])
        elif message["msg_type"] == "input_request":
            self._companion.answer(ask(content["prompt"], content["password"]))
        else:
            show(self._shell, self._comms, message)

    def take_payload(self, payload):
        """Does what the cell asks of the front end: `%load` fills a cell, help opens the pager."""
        for item in payload:
            if item["source"] == "set_next_input":
                self._shell.set_next_input(f"%%rust\n{item['text']}", replace=item.get("replace", False))
            elif item["source"] == "page":
                page(item["data"], start=item.get("start", 0))


def show(shell, comms, message):
    """Shows an output that needs neither an answer nor a cell."""
    content = message["content"]
    kind = message["msg_type"]
    if kind == "stream":
        stream = getattr(sys, content["name"])
        stream.write(content["text"])
        stream.flush()
    elif kind in ("display_data", "update_display_data"):
        shell.display_pub.publish(
            data=content["data"],
            metadata=content["metadata"],
            transient=content.get("transient", {}),
            update=kind == "update_display_data",
        )
    elif kind == "clear_output":
        shell.display_pub.clear_output(wait=content["wait"])
    elif kind.startswith("comm_"):
        comms.receive(message)


def ask(prompt, is_password):
    return getpass.getpass(prompt) if is_password else input(prompt)
