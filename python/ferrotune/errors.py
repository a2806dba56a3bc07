"""The errors of the extension. IPython prints them without the lines of this package."""


class FerrotuneError(Exception):
    """Something that the user can mend, in one line."""

    def _render_traceback_(self):
        return [f"\x1b[31mFerrotuneError\x1b[39m: {self}"]


class RustError(Exception):
    """A Rust cell has failed. IPython prints the kernel's own message, with the cell's lines, and nothing else."""

    def __init__(self, name, value, traceback):
        super().__init__(f"{name}: {value}" if value else name)
        self.name, self.value, self.traceback = name, value, traceback

    def _render_traceback_(self):
        return self.traceback
