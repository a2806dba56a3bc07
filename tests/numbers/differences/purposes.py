"""What is deliberately otherwise than the right values say: the rows of the table in `docs/candle.md`, which a test compares."""

import dataclasses

import numpy as np

from differences.kinds import is_float, limits, name_of


@dataclasses.dataclass(frozen=True)
class Purpose:
    """A row of the table, and the cases that it excuses."""

    operation: str
    what: str
    reason: str
    # Whether an error or values in place of an error are right: of a case, its mode and whether there was an error.
    excuses: object


def is_sum(case):
    return case.operation.name.split(" ")[0] in ("Tensor::sum", "Tensor::sum_keepdim", "Tensor::sum_all", "Tensor::cumsum")


PURPOSES = [
    Purpose(
        "`index_select`, `gather`, `embedding`, `scatter`, `scatter_add`, `index_add`",
        "take the greatest index of its type, such as `u32::MAX`, for padding: it reads 0 and writes nothing",
        "candle's models are written so; a label of a loss is an error",
        None,
    ),
    Purpose(
        "`slice_set`, `scatter_set`, `scatter_add_set`",
        "refuse to change a view that is not contiguous",
        "a change in place has no copy to make first",
        None,
    ),
    Purpose(
        "all, on XLA:CPU",
        "takes a number of f32, f64 or bf16 that is subnormal (below 1.2e-38, in f64 below 2.2e-308) for 0, also on the way to a result",
        "XLA:CPU sets its processors so, which is faster",
        None,
    ),
    Purpose(
        "`sum`, `sum_keepdim`, `sum_all`, `cumsum` of integers, on a plugin",
        "wraps around where the sum does not fit its type",
        "a program cannot raise an error; the CPU does",
        lambda case, mode, is_error: mode != "cpu" and not is_error and is_sum(case) and not is_float(case.dtype),
    ),
]


def excused(case, mode, is_error):
    """Whether a row says that a case gives an error in place of values, or values in place of an error."""
    return any(purpose.excuses is not None and purpose.excuses(case, mode, is_error) for purpose in PURPOSES)


def flushed(array):
    """The same with 0 for subnormal numbers."""
    name = name_of(array)
    if not is_float(name):
        return array
    with np.errstate(all="ignore"):
        is_subnormal = np.abs(array.astype(np.float64)) < float(limits(name).tiny)
    return np.where(is_subnormal, np.copysign(np.zeros_like(array), array), array)


def without_subnormal(values, dtype):
    """The same right values with 0 for those that are subnormal."""
    if not is_float(dtype):
        return values
    values = np.asarray(values, np.float64)
    return np.where(np.abs(values) < float(limits(dtype).tiny), np.copysign(0.0, values), values)


def table():
    """The rows as Markdown."""
    rows = "".join(f"| {purpose.operation} | {purpose.what} | {purpose.reason} |\n" for purpose in PURPOSES)
    return "| operation | what it does | why |\n|---|---|---|\n" + rows
