"""`%load_ext ferrotune`: the magics that run Rust in a kernel beside the notebook."""

import atexit
import os
import shlex

from IPython.core.magic import no_var_expand

from . import arrays, program
from .comms import Comms
from .companion import Companion
from .errors import FerrotuneError, RustError
from .inspection import Inspection
from .outputs import Outputs, show

HELP = """%rust [--restart] [CODE]
%%rust [-i NAME]... [-o NAME]...

Run Rust in the Ferrotune kernel beside this notebook. The first use starts it; it ends with this Python.

  -i NAME, --input NAME    give Rust this variable of Python: an array becomes a tensor, a number, text or bool itself
  -o NAME, --output NAME   give Python this variable of Rust, once the cell has run
  --restart                start the Rust kernel again, without variables

Example
  %%rust -i x -o y
  let y = (&x * 2.0)?;
"""


# What cannot be a variable of Rust: its keywords, and `_`.
RESERVED = frozenset(
    "_ Self abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if impl in let "
    "loop macro match mod move mut override priv pub ref return self static struct super trait true try type typeof unsafe unsized use "
    "virtual where while yield".split()
)


class Extension:
    """The magics of one IPython, and the kernel that they share."""

    def __init__(self, shell):
        self._shell = shell
        self._companion = None
        self._comms = Comms(shell, self._send)
        self._registered = []
        self._inspection = Inspection(shell, self._ask)
        self._pid = os.getpid()

    def load(self):
        """Registers `%rust`, and Ferrotune's magics whose names IPython does not have."""
        magics = program.magics()
        taken = {name for names in self._shell.magics_manager.magics.values() for name in names}
        for magic in magics:
            forms = [form for form in magic["forms"] if form.lstrip("%") not in taken]
            for form in forms:
                self._register(form, magic["help"], self._forwarding(form))
        self._register("%rust", HELP, lambda line: self._rust_line(line))
        self._register("%%rust", HELP, lambda line, cell: self._rust_cell(line, cell))
        self._inspection.load({"%%" + name for kind, name in self._registered if kind == "cell"})
        atexit.register(self.close)

    def unload(self):
        """Removes the magics and ends the kernel."""
        for kind, name in self._registered:
            self._shell.magics_manager.magics[kind].pop(name, None)
        self._inspection.unload()
        atexit.unregister(self.close)
        self.close()

    def close(self):
        """Ends the kernel, unless this process is a child of the one that has started it."""
        if self._companion and os.getpid() == self._pid:
            self._companion.close()
            self._comms.close()
        self._companion = None

    def _register(self, form, text, function):
        kind = "cell" if form.startswith("%%") else "line"
        name = form.lstrip("%")
        # IPython shows it for `%name?`.
        function.__doc__, function.__name__ = text, name
        self._shell.register_magic_function(no_var_expand(function), magic_kind=kind, magic_name=name)
        self._registered.append((kind, name))

    def _forwarding(self, form):
        if form.startswith("%%"):
            return lambda line, cell: self._run(f"{form} {line}\n{cell}")
        return lambda line: self._run(f"{form} {line}".rstrip())

    def _rust_line(self, line):
        if line.split() == ["--restart"]:
            self.close()
            self._started()
            return None
        return self._run(line)

    def _rust_cell(self, line, cell):
        options = Options(line)
        values = [(name, self._variable(name)) for name in options.inputs]
        inputs = [arrays.declaration(name, value) for name, value in values]
        with arrays.Results(options.outputs) as results:
            # The declarations stand in the place of `%%rust`, so that the cell's lines keep their numbers.
            code = " ".join(code for code, _ in inputs) + "\n" + cell
            value = self._run(code, results)
            self._shell.push(results.variables())
        return value

    def _variable(self, name):
        try:
            return self._shell.user_ns[name]
        except KeyError:
            raise FerrotuneError(f"-i {name}: Python has no variable `{name}`; define it first") from None

    def _run(self, code, results=None):
        companion = self._started()
        outputs = Outputs(self._shell, companion, self._comms)
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": results.expressions() if results else {},
            "allow_stdin": getattr(getattr(self._shell, "kernel", None), "_allow_stdin", True),
            "stop_on_error": False,
        }
        reply = companion.ask("execute_request", content, outputs.show)
        if reply["status"] != "ok":
            raise RustError(reply["ename"], reply["evalue"], reply["traceback"])
        outputs.take_payload(reply["payload"])
        if results:
            results.check(reply["user_expressions"])
        return outputs.value

    def _started(self):
        if self._companion is None:
            self._companion = Companion(lambda message: show(self._shell, self._comms, message))
        return self._companion

    def _ask(self, msg_type, content):
        """The reply to a question; starts no kernel, and waits for no cell."""
        try:
            return self._companion.ask_if_free(msg_type, content) if self._companion else None
        except FerrotuneError:
            # The kernel has ended, which the next cell says.
            return None

    def _send(self, *message):
        if self._companion:
            self._companion.send(*message)


class Options:
    """The options behind `%%rust`."""

    def __init__(self, line):
        self.inputs, self.outputs = [], []
        try:
            words = iter(shlex.split(line))
        except ValueError as error:
            raise FerrotuneError(f"%%rust {line}: {error}; a quote needs its end") from None
        for word in words:
            name, has_value, value = word.partition("=")
            names = {"-i": self.inputs, "--input": self.inputs, "-o": self.outputs, "--output": self.outputs}.get(name)
            if names is None:
                raise FerrotuneError(f"%%rust has no option {word}; it has -i NAME and -o NAME")
            value = value if has_value else next(words, "")
            found = [each for each in value.split(",") if each]
            if not found or not all(each.isidentifier() for each in found):
                raise FerrotuneError(f"%%rust {name} needs the name of a variable, as in {name} x")
            reserved = next((each for each in found if each in RESERVED), None)
            if reserved:
                raise FerrotuneError(f"%%rust {name} {reserved}: `{reserved}` cannot be a variable of Rust; give it another name in Python")
            names.extend(found)
