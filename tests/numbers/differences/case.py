"""Cases, and what became of them, as the program's files have them."""

import dataclasses
import json
import pathlib

import numpy as np

from differences import references
from differences.kinds import DTYPES, name_of

VIEWS = ("whole", "transposed", "offset", "strided")


@dataclasses.dataclass
class Case:
    """One call of an operation."""

    operation: object
    inputs: list
    numbers: list = dataclasses.field(default_factory=list)
    view: str = "whole"
    # A letter for each dimension of each input: dimensions with the same letter lose the same elements when a case shrinks.
    axes: tuple = ()
    gradient: bool = True

    @property
    def dtype(self):
        """The type of the first input that is a float, or of the first one."""
        names = [name_of(array) for array in self.inputs]
        return next((name for name in names if name in ("bf16", "f16", "f32", "f64")), names[0] if names else "f32")


@dataclasses.dataclass
class Outcome:
    """Results and gradients, or why there are none."""

    results: list = None
    gradients: list = None
    error: str = None
    panic: str = None
    gradient_error: str = None
    gradient_panic: str = None


def is_refused(case):
    """Whether the right answer is an error. On the plugin, such a case has a program of its own."""
    try:
        references.values(case)
    except references.Refused:
        return True
    return False


def text_of(number):
    """A number as JSON, which has neither NaN nor infinity."""
    if isinstance(number, float) and not np.isfinite(number):
        return {"inf": "inf", "-inf": "-inf"}.get(str(number), "NaN")
    if isinstance(number, (tuple, list)):
        return [int(size) for size in number]
    return number


def write(folder, cases, mode):
    """Writes cases for the program. Inputs that several cases share are written once."""
    folder = pathlib.Path(folder)
    places, described, written = {}, [], 0
    with open(folder / "inputs.bin", "wb") as file:
        for number, case in enumerate(cases):
            inputs = []
            for array in case.inputs:
                if id(array) not in places:
                    data = np.ascontiguousarray(array).tobytes()
                    file.write(data)
                    places[id(array)] = written, len(data)
                    written += len(data)
                offset, size = places[id(array)]
                view = case.view if array.ndim else "whole"
                inputs.append({"dtype": name_of(array), "shape": array.shape, "offset": offset, "bytes": size, "view": view})
            described.append({
                "id": number, "operation": case.operation.call, "inputs": inputs,
                "numbers": [text_of(number) for number in case.numbers], "gradient": case.gradient, "alone": mode != "cpu" and is_refused(case),
            })
    (folder / "cases.json").write_text(json.dumps(described))


def read(folder):
    """Outcomes by the number of their case, and the number of the case in which the program ended, if it did."""
    folder = pathlib.Path(folder)
    values = np.memmap(folder / "results.bin", np.uint8, "r") if (folder / "results.bin").stat().st_size else np.empty(0, np.uint8)
    outcomes, begun = {}, set()
    for line in (folder / "results.json").read_text().splitlines():
        line = json.loads(line)
        if "begin" in line:
            begun.add(line["begin"])
            continue
        begun.discard(line["id"])
        outcomes[line["id"]] = outcome_of(line, values)
    return outcomes, begun


def outcome_of(line, values):
    def array(place):
        if place is None:
            return None
        dtype = DTYPES[place["dtype"]]
        size = int(np.prod(place["shape"], dtype=np.int64)) * dtype.itemsize
        return values[place["offset"] : place["offset"] + size].view(dtype).reshape(place["shape"])

    failure, gradient_failure = line.get("failure", {}), line.get("gradient_failure", {})
    return Outcome(
        results=[array(place) for place in line["results"]] if "results" in line else None,
        gradients=[array(place) for place in line["gradients"]] if "gradients" in line else None,
        error=failure.get("error"), panic=failure.get("panic"),
        gradient_error=gradient_failure.get("error"), gradient_panic=gradient_failure.get("panic"),
    )
