"""A Ferrotune kernel of the kit, which prints what its cells show. Needs jupyter_client alone."""

import re
import signal
import sys
import time

from jupyter_client.manager import KernelManager

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Kernel:
    """A kernel that is connected to a plugin. It ends with its `with` block, also where the time of a check is over."""

    def __init__(self, plugin):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("the time of this check is over"))
        self.connect = f"%tpu_connect --plugin {plugin}"
        self.manager = KernelManager(kernel_name="ferrotune")

    def __enter__(self):
        self.manager.start_kernel()
        try:
            self.client = self.manager.blocking_client()
            self.client.start_channels()
            self.client.wait_for_ready(timeout=120)
            self.run(self.connect)
        except BaseException:
            self.manager.shutdown_kernel(now=True)
            raise
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, timeout_s=300):
        """Runs a cell and prints its output. A cell that fails ends the program."""
        began = time.monotonic()
        print(f">>> {code.strip().splitlines()[0]}")
        reply = self.client.execute_interactive(code, allow_stdin=False, timeout=timeout_s, output_hook=_show)
        print(f"    {time.monotonic() - began:.2f} s")
        if reply["content"]["status"] != "ok":
            sys.exit("the cell failed")


def _show(message):
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        text = content["text"]
    elif kind in ("display_data", "execute_result"):
        text = content["data"].get("text/plain", f"a display of {', '.join(content['data'])}")
    elif kind == "error":
        text = "\n".join(content["traceback"])
    else:
        return
    print(_COLOUR.sub("", text).rstrip("\n"))
