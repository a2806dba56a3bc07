"""Passes the comms of Rust's widgets on to the front end of the Python notebook, and its answers back."""


class Comms:
    """The comms that the Rust kernel has opened. Without a Jupyter front end, as in IPython's terminal, there are none."""

    def __init__(self, shell, send):
        self._has_front_end = hasattr(shell, "kernel")
        self._send = send
        self._open = {}

    def receive(self, message):
        """Does what the Rust kernel has done to one of its comms."""
        if not self._has_front_end:
            return
        content = message["content"]
        identity = content["comm_id"]
        if message["msg_type"] == "comm_open":
            self._open[identity] = self._opened(message)
        elif identity in self._open and message["msg_type"] == "comm_msg":
            self._open[identity].send(content["data"], message["metadata"], message["buffers"])
        elif identity in self._open:
            self._open.pop(identity).close(content["data"])

    def close(self):
        """Closes those that a kernel has left open."""
        while self._open:
            self._open.popitem()[1].close()

    def _opened(self, message):
        from ipykernel.comm import Comm

        content = message["content"]
        comm = Comm(
            target_name=content["target_name"],
            data=content["data"],
            metadata=message["metadata"],
            buffers=message["buffers"],
            comm_id=content["comm_id"],
        )
        comm.on_msg(lambda answer: self._pass_on("comm_msg", answer))
        comm.on_close(lambda answer: self._pass_on("comm_close", answer))
        return comm

    def _pass_on(self, msg_type, answer):
        content = {"comm_id": answer["content"]["comm_id"], "data": answer["content"].get("data", {})}
        self._send(msg_type, content, answer.get("metadata"), answer.get("buffers"))
