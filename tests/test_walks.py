"""Random walks through a notebook: its messages and variables after each cell equal those of a model of docs/cells.md.

A walk that fails prints its seed and its cells. `FERROTUNE_WALK_SEED`, `FERROTUNE_WALKS` and `FERROTUNE_WALK_STEPS` choose
others: `cargo xtask torture` walks far, with another seed each time.
"""

import copy
import dataclasses
import os
import random

import pytest

from device_place import Place
from test_dependencies import crate
from test_devices_xla import XLA_CPU

SEED = int(os.environ.get("FERROTUNE_WALK_SEED", "1"))
WALKS = int(os.environ.get("FERROTUNE_WALKS", "1"))
STEPS = int(os.environ.get("FERROTUNE_WALK_STEPS", "25"))

# How many cells can be undone.
UNDO_CELLS = 5

NAMES = ["a", "b", "c", "d", "e"]
TYPES = ["P", "Q"]
CHECKPOINTS = ["here", "there"]

# Kinds of variables whose values are on a device, with the value for a number.
ON_A_DEVICE = {"tensor": "Tensor::new({}f32, {})?.affine(1.0, 0.0)?", "var": "Var::new({}f32, {})?"}
DEVICE = "&ferrotune::device::current()?"


@dataclasses.dataclass
class Variable:
    """A variable's kind (`number`, `text`, `list`, `Shape`, one of TYPES or one of ON_A_DEVICE), its content, and its type's definition."""

    kind: str
    content: object
    definition: int = 0


@dataclasses.dataclass
class State:
    """The state of a notebook."""

    variables: dict = dataclasses.field(default_factory=dict)
    # Number of the field of each type that is defined.
    types: dict = dataclasses.field(default_factory=dict)
    # Types with a method from another cell.
    methods: set = dataclasses.field(default_factory=set)
    functions: dict = dataclasses.field(default_factory=dict)
    has_crate: bool = False


class Walk:
    """A kernel and its model, side by side."""

    def __init__(self, seed, kernel):
        self.random = random.Random(seed)
        self.folder = kernel.folder
        self.kernel = kernel
        self.state = State()
        self.before = []
        self.named = {}
        self.cells = []
        self.count = 0
        self.version = 0
        self.write_crate()

    # Expectations.

    def definition(self, kind):
        """The present definition of a kind's type."""
        return {"Shape": self.version, **self.state.types}.get(kind, 0)

    def stale(self):
        """Variables whose types were redefined, or whose crate has changed."""
        return {name for name, it in self.state.variables.items() if it.definition != self.definition(it.kind)}

    def live(self, *kinds):
        """Names of variables that a cell may use, of some kinds or of all."""
        stale = self.stale()
        known = self.state.variables.items()
        return [name for name, it in known if name not in stale and (not kinds or it.kind in kinds)]

    def can_be_undone(self):
        """Stores the state before a cell that can be undone."""
        self.before = [*self.before, copy.deepcopy(self.state)][-UNDO_CELLS:]

    def lose_stale(self):
        """Drops stale variables, and returns their sorted names."""
        stale = self.stale()
        for name in stale:
            del self.state.variables[name]
        return sorted(stale)

    def look(self):
        """An expression over all variables and functions, and its value."""
        parts = {}
        for name, it in sorted(self.state.variables.items()):
            match it.kind:
                case "number" | "text":
                    parts[f'format!("{name}={{}}", {name})'] = f"{name}={it.content}"
                case "list":
                    parts[f'format!("{name}={{:?}}", {name})'] = f"{name}={it.content}"
                case "tensor" | "var":
                    parts[f'format!("{name}={{}}", {name}.to_scalar::<f32>()?)'] = f"{name}={it.content}"
                case "Shape":
                    parts[f'format!("{name}={{}}", {name}.size)'] = f"{name}={it.content}"
                case kind:
                    parts[f'format!("{name}={{}}", {name}.f{it.definition})'] = f"{name}={it.content}"
                    if kind in self.state.methods:
                        parts[f'format!("{name}.tag={{}}", {name}.tag())'] = f"{name}.tag={kind}"
        for name, value in sorted(self.state.functions.items()):
            parts[f'format!("{name}={{}}", {name}())'] = f"{name}={value}"
        if self.state.has_crate:
            parts['format!("shape={}", shape::version())'] = f"shape={self.version}"
        return f"[{', '.join(['String::new()', *parts])}].join(\" \")", '"' + "".join(f" {it}" for it in parts.values()) + '"'

    # Single steps.

    def run(self, cell, error=None, dropped=(), result=None, shown=None):
        """Runs a cell, and compares its messages with the expected ones."""
        self.cells.append(cell)
        outcome = self.kernel.run(cell)
        said = sorted(line.split()[2] for line in outcome.stderr.splitlines() if line.startswith("the variable "))
        actual = (outcome.error if error is None or outcome.error is None else outcome.error[: len(error)], said)
        assert actual == (error, list(dropped)), (outcome, error, dropped)
        if result is not None:
            assert outcome.result == result, outcome
        if shown is not None:
            assert outcome.display == shown, outcome

    def execute(self, statements, change):
        """Runs statements, which change the state like `change`, and compares the whole state."""
        self.can_be_undone()
        dropped = self.lose_stale()
        change()
        look, result = self.look()
        self.run(f"{statements}\n{look}", dropped=dropped, result=result)

    def define(self, items, change):
        """Runs items, with statements below or without; without statements no variable is dropped yet."""
        self.can_be_undone()
        change()
        if self.random.random() < 0.5:
            return self.run(items)
        dropped = self.lose_stale()
        look, result = self.look()
        return self.run(f"{items}\n{look}", dropped=dropped, result=result)

    def variables_are(self):
        names = sorted(self.state.variables)
        return f"the variables are {', '.join(names)}" if names else "there are no variables"

    def kinds(self):
        """The kinds of variables that a cell can make."""
        return ["number", "text", "list", *self.state.types, *(["Shape"] if self.state.has_crate else [])]

    def step_let(self):
        name = self.random.choice(NAMES)
        kind = self.random.choice(self.kinds())
        self.count += 1
        definition = self.definition(kind)
        content, value = {
            "number": (self.count, f"{self.count}i64"),
            "text": (f"t{self.count}", f'String::from("t{self.count}")'),
            "list": ([self.count], f"vec![{self.count}i64]"),
            "Shape": (self.count, f"shape::Shape {{ size: {self.count} }}"),
            **{kind: (self.count, "candle_core::" + value.format(self.count, DEVICE)) for kind, value in ON_A_DEVICE.items()},
        }.get(kind, (self.count, f"{kind} {{ f{definition}: {self.count} }}"))
        made = Variable(kind, content, definition)
        self.execute(f"let mut {name} = {value};", lambda: self.state.variables.update({name: made}))

    def changed(self, name):
        """A statement that changes a variable in place, and the new value."""
        it = self.state.variables[name]
        match it.kind:
            case "number":
                return f"{name} += 1;", it.content + 1
            case "text":
                return f'{name}.push(\'x\');', it.content + "x"
            case "list":
                return f"{name}.push(7);", [*it.content, 7]
            case "Shape":
                return f"{name}.size += 1;", it.content + 1
            case "tensor":
                return f"{name} = (&{name} + 1.0)?;", it.content + 1
            case "var":
                return f"{name}.set(&({name}.as_tensor() + 1.0)?)?;", it.content + 1
            case _:
                return f"{name}.f{it.definition} += 1;", it.content + 1

    def set(self, name, content):
        self.state.variables[name] = dataclasses.replace(self.state.variables[name], content=content)

    def step_change(self):
        if names := self.live():
            name = self.random.choice(names)
            statement, content = self.changed(name)
            self.execute(statement, lambda: self.set(name, content))

    def step_move(self):
        names = self.live("text", "list", "Shape", *TYPES, *ON_A_DEVICE)
        if not names:
            return
        name, to = self.random.choice(names), self.random.choice(NAMES)
        if self.random.random() < 0.5 or to == name:
            return self.execute(f"drop({name});", lambda: self.state.variables.pop(name))
        return self.execute(
            f"let mut {to} = {name};",
            lambda: self.state.variables.update({to: self.state.variables.pop(name)}),
        )

    def step_type(self):
        kind = self.random.choice(TYPES)
        self.count += 1
        # Sometimes an earlier field.
        field = self.random.choice([self.count, self.random.randint(1, 3)])
        self.define(f"struct {kind} {{ f{field}: i64 }}", lambda: self.state.types.update({kind: field}))

    def step_method(self):
        if kinds := [kind for kind in self.state.types if kind not in self.state.methods]:
            kind = self.random.choice(kinds)
            items = f"impl {kind} {{ fn tag(&self) -> &'static str {{ \"{kind}\" }} }}"
            self.define(items, lambda: self.state.methods.add(kind))

    def step_function(self):
        name = self.random.choice(["f", "g"])
        self.count += 1
        value = self.count
        self.define(f"fn {name}() -> i64 {{ {value} }}", lambda: self.state.functions.update({name: value}))

    def step_dep(self):
        def change():
            self.state.has_crate = True

        command = f':dep shape = {{ path = "{self.folder}/shape" }}'
        if self.random.random() < 0.5:
            return self.execute(command, change)
        if not self.state.has_crate:
            self.can_be_undone()
        change()
        return self.run(command)

    def write_crate(self):
        self.version += 1
        source = f"pub struct Shape {{ pub size: i64 }}\npub fn version() -> i64 {{ {self.version} }}"
        crate(self.folder, "shape", source)

    def step_edit_crate(self):
        if self.state.has_crate:
            self.cells.append("// the crate's source changes")
            self.write_crate()

    def fail(self, statements, error, stays):
        """Runs a cell that fails; `stays` makes the changes that remain, and is None if none remain."""
        is_kept = bool(self.stale())
        if is_kept or stays:
            self.can_be_undone()
        dropped = self.lose_stale()
        if stays:
            stays()
        self.run(statements, error=error, dropped=dropped)

    def step_panic(self):
        if names := self.live("number", *ON_A_DEVICE):
            name = self.random.choice(names)
            statement, content = self.changed(name)
            self.fail(f'{statement} let fresh = 1; panic!("on purpose");', "Panic: on purpose", lambda: self.set(name, content))

    def step_panic_after_move(self):
        if names := self.live("text", "list", *TYPES, *ON_A_DEVICE):
            name = self.random.choice(names)
            self.fail(f'drop({name}); panic!("on purpose");', "Panic: on purpose", None)

    def step_crash(self):
        changes = [self.changed(name)[0] for name in self.live()]
        self.fail("".join(changes) + "let fresh = 1; std::process::abort();", "CellDied: ", None)

    def step_wrong(self):
        self.run('let fresh: i64 = "no number";', error="CompilationError: error[E0308]")

    def step_clear(self):
        self.can_be_undone()
        self.state = State()
        self.run(self.anew(":clear"))

    def step_restart(self):
        self.can_be_undone()
        self.state.variables = {}
        self.run(self.anew(":restart"))

    def anew(self, command):
        """The cell of a command after which nothing is as it was."""
        return command

    def step_checkpoint(self):
        name = self.random.choice(CHECKPOINTS)
        self.named[name] = copy.deepcopy(self.state)
        self.run(f"%checkpoint {name}", shown=f"kept as {name}; %restore {name} brings it back")

    def back(self, magic, said, look_is_kept):
        """Goes back, and sometimes compares the state in the same cell."""
        dropped = self.lose_stale()
        shown = f"{said}; {self.variables_are()}"
        if self.random.random() < 0.5:
            return self.run(magic, dropped=dropped, shown=shown)
        if look_is_kept:
            self.can_be_undone()
        look, result = self.look()
        return self.run(f"{magic}\n{look}", dropped=dropped, shown=shown, result=result)

    def step_undo(self):
        count = self.random.choice([1, 1, 1, 2, 3, 6])
        magic = "%undo" if count == 1 else f"%undo {count}"
        if count > len(self.before):
            few = {0: "there is no cell that can be undone", 1: "only the last cell can be undone"}
            text = few.get(len(self.before), f"only the last {len(self.before)} cells can be undone")
            return self.run(magic, error=f"MagicError: {text}")
        self.state = self.before[-count]
        self.before = self.before[:-count]
        return self.back(magic, f"undone: the last {'cell' if count == 1 else f'{count} cells'}", True)

    def step_restore(self):
        name = self.random.choice(CHECKPOINTS)
        if name not in self.named:
            return self.run(f"%restore {name}", error=f"MagicError: there is no checkpoint {name}")
        self.can_be_undone()
        self.state = copy.deepcopy(self.named[name])
        return self.back(f"%restore {name}", f"restored {name}", False)

    WEIGHTS = {
        step_let: 6,
        step_change: 5,
        step_move: 3,
        step_type: 3,
        step_method: 1,
        step_function: 1,
        step_dep: 1,
        step_edit_crate: 1,
        step_panic: 1,
        step_panic_after_move: 1,
        step_crash: 2,
        step_wrong: 1,
        step_clear: 0.3,
        step_restart: 0.3,
        step_checkpoint: 2,
        step_undo: 5,
        step_restore: 2.5,
    }

    def step(self):
        (step,) = self.random.choices(list(self.WEIGHTS), self.WEIGHTS.values())
        step(self)


class DeviceWalk(Walk):
    """A walk in which most variables have their values on a device."""

    def __init__(self, seed, kernel):
        super().__init__(seed, kernel)
        # The cell that has connected the device.
        self.can_be_undone()

    def kinds(self):
        return [*super().kinds(), *2 * list(ON_A_DEVICE)]

    def anew(self, command):
        return f"{command}\n%tpu_connect --plugin cpu"


@pytest.mark.parametrize("seed", range(SEED, SEED + WALKS))
def test_notebook_does_what_its_document_says(seed, start):
    follow(Walk(seed, start()), seed)


@pytest.mark.parametrize("seed", range(SEED, SEED + WALKS))
def test_variables_on_a_device_do_what_those_of_the_cpu_do(seed, tmp_path):
    place = Place(tmp_path, FERROTUNE_XLA_CPU=XLA_CPU)
    notebook = place.notebook()
    try:
        follow(DeviceWalk(seed, notebook), seed)
    finally:
        place.end()


def follow(walk, seed):
    try:
        for _ in range(STEPS):
            walk.step()
        walk.execute("", lambda: None)
    except Exception:
        print(f"FERROTUNE_WALK_SEED={seed}: after these cells")
        print("\n---\n".join(walk.cells))
        raise
