"""A kernel and a client that runs cells in it, one after the other, and gives back all that each one says."""

import dataclasses
import os
import pathlib
import re
import time

from jupyter_client.manager import KernelManager

KERNEL = "ferrotune"
# Where cargo puts what it builds.
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).parent.parent / "target"))
START_TIMEOUT_S = 120
CELL_TIMEOUT_S = 300

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Outcome:
    """All that one cell gave."""

    stdout: str = ""
    stderr: str = ""
    result: str = None
    displays: list = dataclasses.field(default_factory=list)
    errors: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def error(self):
        """The cell's one error as `NAME: value`, or None."""
        if not self.errors:
            return None
        (error,) = self.errors
        return f"{error['ename']}: {error['evalue']}"

    @property
    def traceback(self):
        """The error as a user reads it, without its colours."""
        (error,) = self.errors
        return _COLOUR.sub("", "\n".join(error["traceback"]))

    @property
    def display(self):
        """The last thing shown, as text."""
        return self.displays[-1] if self.displays else None


def resident_bytes(pid):
    """Resident memory of a process, less what it shares."""
    resident, shared = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


class Session:
    """A started kernel with `folder` as its working folder."""

    cell_timeout_s = CELL_TIMEOUT_S

    def __init__(self, folder, kernel=KERNEL):
        self.folder = pathlib.Path(folder)
        self.manager = KernelManager(kernel_name=kernel)
        started = time.monotonic()
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_TIMEOUT_S)
        self.start_seconds = time.monotonic() - started

    def run(self, code, watch=None):
        """Runs a cell to its end, whatever that is; `watch` is given each message as it comes."""
        outcome = Outcome()

        def take(message):
            self._take(outcome, message)
            if watch:
                watch(message)

        started = time.monotonic()
        reply = self.client.execute_interactive(
            code,
            allow_stdin=False,
            stop_on_error=False,
            timeout=self.cell_timeout_s,
            output_hook=take,
        )
        outcome.seconds = time.monotonic() - started
        assert (reply["content"]["status"] == "error") == bool(outcome.errors), (reply["content"], outcome)
        return outcome

    def ok(self, code):
        """Runs a cell that must not fail."""
        outcome = self.run(code)
        assert outcome.error is None, f"{outcome.error}\n{outcome.traceback}\n{outcome.stderr}"
        return outcome

    def fails(self, code):
        """Runs a cell that must fail, with one error, and leave a kernel that goes on."""
        outcome = self.run(code)
        assert len(outcome.errors) == 1, outcome
        assert "\n" not in outcome.errors[0]["evalue"].strip(), outcome.errors[0]["evalue"]
        assert self.ok("40 + 2").result == "42"
        return outcome

    def close(self):
        """Ends the kernel, if it has not ended yet."""
        if self.manager.has_kernel:
            self.client.stop_channels()
            self.manager.shutdown_kernel()

    def _take(self, outcome, message):
        content = message["content"]
        match message["msg_type"]:
            case "stream" if content["name"] == "stdout":
                outcome.stdout += content["text"]
            case "stream":
                outcome.stderr += content["text"]
            case "execute_result":
                outcome.result = content["data"].get("text/plain")
            case "display_data" | "update_display_data":
                outcome.displays.append(content["data"].get("text/plain", ""))
            case "error":
                outcome.errors.append(content)
