"""A front end that runs cells one after the other and returns all that each one publishes."""

import dataclasses
import os
import pathlib
import re
import socket
import time

from front_end import IDLE, KERNEL, TIMEOUT_S, FrontEnd

# Where cargo puts what it builds.
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).parent.parent / "target"))
FERROTUNE = TARGET / "release/ferrotune"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Outcome:
    """All that one cell has published."""

    msg_id: str
    stdout: str = ""
    stderr: str = ""
    result: str = None
    displays: list = dataclasses.field(default_factory=list)
    errors: list = dataclasses.field(default_factory=list)
    payload: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, msg_type, content):
        match msg_type:
            case "stream":
                name = content["name"]
                setattr(self, name, getattr(self, name) + content["text"])
            case "execute_result":
                self.result = content["data"].get("text/plain")
            case "display_data" | "update_display_data":
                self.displays.append(content["data"].get("text/plain", ""))
            # The display of a search, where the client has asked for widgets, and what it shows next.
            case "comm_open" if content["data"]["state"]["_model_name"] in ("LayoutModel", "HTMLStyleModel", "HTMLModel"):
                pass
            case "comm_msg" if str(content["data"].get("state", {}).get("value")).startswith("<div"):
                self.displays.append(content["data"]["state"]["value"])
            case "error":
                self.errors.append(content)
            case _:
                assert msg_type in ("status", "execute_input", "clear_output"), msg_type

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


def free_port():
    """A port of this machine where nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def wait_for(condition, what, seconds=60):
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.01)


def descendants(pid):
    """The processes that a process has started, and theirs."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(path.parent.name), *descendants(int(path.parent.name))]
    return found


def is_alive(pid):
    """Whether a process runs; one that has ended and that nobody has waited for yet does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Session(FrontEnd):
    """A started kernel with `folder` as its working folder, in which cells run one after the other."""

    cell_timeout_s = TIMEOUT_S

    def __init__(self, folder, kernel=KERNEL, env=None):
        self.folder = pathlib.Path(folder)
        # The names of the errors after which a cell has run.
        self.failed = set()
        started = time.monotonic()
        super().__init__(kernel, str(folder), env)
        self.wait_for_ready()
        self.start_seconds = time.monotonic() - started

    def run(self, code, watch=None):
        """Runs a cell to its end, however it ends; `watch` gets each message when it comes."""
        started = time.monotonic()
        outcome = self.end_of(self.begin(code), watch)
        outcome.seconds = time.monotonic() - started
        return outcome

    def begin(self, code, **options):
        """Sends a cell; returns its id."""
        return self.client.execute(code, **{"allow_stdin": False, "stop_on_error": False, **options})

    def end_of(self, msg_id, watch=None):
        """Waits for a cell that was sent; returns all that it has published."""
        outcome, said = Outcome(msg_id), None
        deadline = time.monotonic() + self.cell_timeout_s
        while said != IDLE:
            message = self.next_published(msg_id, max(0.0, deadline - time.monotonic()))
            said = (message["msg_type"], message["content"])
            outcome.add(*said)
            if watch:
                watch(message)
        reply = self.reply(msg_id)
        outcome.payload = reply["content"].get("payload", [])
        assert (reply["content"]["status"] == "error") == bool(outcome.errors), (reply["content"], outcome)
        return outcome

    def interrupt(self, code, event=lambda message: message["msg_type"] == "stream"):
        """Runs a cell and interrupts it at its first message for which `event` holds; its seconds count from there."""
        asked = []

        def watch(message):
            # A second interrupt would be for the next cell.
            if not asked and event(message):
                asked.append(time.monotonic())
                self.ask("interrupt_request", channel="control")

        outcome = self.run(code, watch)
        assert asked, f"the cell was not interrupted: {outcome}"
        outcome.seconds = time.monotonic() - asked[0]
        return outcome

    def interrupt_when(self, code, condition, what):
        """Runs a cell and interrupts it once a condition holds; its seconds count from there."""
        msg_id = self.begin(code)
        wait_for(condition, what)
        asked = time.monotonic()
        self.ask("interrupt_request", channel="control")
        outcome = self.end_of(msg_id)
        outcome.seconds = time.monotonic() - asked
        return outcome

    def ok(self, code):
        """Runs a cell that must not fail."""
        outcome = self.run(code)
        assert outcome.error is None, f"{outcome.error}\n{outcome.traceback}\n{outcome.stderr}"
        return outcome

    def ok_in_background(self, code):
        """Runs the cell of a search that goes on, and whose display changes, after the cell has ended."""
        outcome = self.ok(code)
        self.live.add(outcome.msg_id)
        return outcome

    def read_sources(self):
        """Makes rust-analyzer read its sources, and waits until the kernel has returned the memory that this frees."""
        assert self.complete("std::process::ex")["matches"]
        time.sleep(3)

    def fails(self, code):
        """Runs a cell that must fail with one error, and after the first error of its name a second cell that must not."""
        outcome = self.run(code)
        assert len(outcome.errors) == 1, outcome
        assert "\n" not in outcome.errors[0]["evalue"].strip(), outcome.errors[0]["evalue"]
        name = outcome.errors[0]["ename"]
        if name not in self.failed:
            self.failed.add(name)
            assert self.ok("40 + 2").result == "42"
        return outcome
