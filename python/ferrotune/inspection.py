"""Completion and documentation inside Rust cells: the Rust kernel answers for the lines below `%%rust`.

Jupyter's requests go to a kernel's `do_complete` and `do_inspect`, which every version of ipykernel has; IPython's own hooks do not
see the whole cell in its older versions. IPython's terminal has no such kernel, and completes no Rust.
"""

import inspect


class Inspection:
    def __init__(self, shell, ask):
        self._kernel = getattr(shell, "kernel", None)
        self._ask = ask
        self._whole = set()

    def load(self, whole):
        """Answers for cells that begin with `%%rust`, and for those that begin with one of `whole`, their first line included."""
        self._whole = whole - {"%%rust"}
        if self._kernel:
            self._kernel.do_complete = self._completing(self._kernel.do_complete)
            self._kernel.do_inspect = self._inspecting(self._kernel.do_inspect)

    def unload(self):
        """Gives the kernel its own methods back."""
        if self._kernel:
            del self._kernel.do_complete, self._kernel.do_inspect

    def _completing(self, own):
        async def do_complete(code, cursor_pos):
            start = self._start(code, cursor_pos)
            content = {"code": code[start:], "cursor_pos": cursor_pos - (start or 0)}
            if start is None:
                return await _value(own(code, cursor_pos))
            reply = self._ask("complete_request", content)
            if reply is None or reply["status"] != "ok":
                # No names of Python in a Rust cell.
                return {"status": "ok", "matches": [], "cursor_start": cursor_pos, "cursor_end": cursor_pos, "metadata": {}}
            reply["cursor_start"] += start
            reply["cursor_end"] += start
            return reply

        return do_complete

    def _inspecting(self, own):
        async def do_inspect(code, cursor_pos, detail_level=0, *options):
            start = self._start(code, cursor_pos)
            content = {"code": code[start:], "cursor_pos": cursor_pos - (start or 0), "detail_level": detail_level}
            reply = None if start is None else self._ask("inspect_request", content)
            return reply or await _value(own(code, cursor_pos, detail_level, *options))

        return do_inspect

    def _start(self, code, cursor_pos):
        """Where the text of the Rust kernel begins in the cell; None if the cursor is not in it."""
        words = code.split(maxsplit=1)
        first = words[0] if words else ""
        if first in self._whole:
            return 0
        end = code.find("\n")
        return end if first == "%%rust" and 0 <= end < cursor_pos else None


async def _value(result):
    return await result if inspect.isawaitable(result) else result
