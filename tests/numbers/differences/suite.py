"""Runs the cases of all operations, and says where they differ."""

import collections
import dataclasses
import importlib
import os
import re
import time
import zlib

import numpy as np

from differences import literal, program, purposes, references
from differences.compare import judge
from differences.operation import TABLE
from differences.shrink import shrunk

DEFAULT_SEED = 1
TOPICS = ("elementwise", "reductions", "losses", "shapes", "indexing", "convolutions", "layers", "attention", "optimisers")


def load():
    """Fills the table of operations."""
    for topic in TOPICS:
        importlib.import_module(f"differences.tables.{topic}")


def call_by_program(texts):
    """Gives each operation the name that the program has for it: the variant in parentheses may be the suite's alone."""
    for operation in TABLE.values():
        operation.call = operation.name if operation.name in texts else base_of(operation.name)


def base_of(name):
    """The name of the public operation of which this is a variant."""
    return re.sub(r" \(.*\)$", "", name)


def seed():
    return int(os.environ.get("FERROTUNE_NUMBERS_SEED", DEFAULT_SEED))


def draw_of(name, seed):
    """The generator of an operation's numbers: the same whichever operations run beside it."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def cases_of(names, mode, seed, is_wide=False):
    cases = []
    for name in names:
        made = TABLE[name].make(draw_of(name, seed))
        if mode == "cpu":
            cases.extend(made if TABLE[name].cpu else ())
        elif TABLE[name].plugin and (is_wide or is_of(name, mode)):
            small = [case for case in made if sum(array.size for array in case.inputs) <= MOST_ELEMENTS]
            cases.extend(without_subnormal(case) for case in chosen(small, mode, is_wide))
    return cases


def is_of(name, mode):
    """Whether an operation is computed in this mode of the plugin: one half of them is lazily, and the other one compiled."""
    return zlib.crc32(base_of(name).encode()) % 2 == (mode == "compiled")


def without_subnormal(case):
    """A plugin may or may not take subnormal numbers for 0: in a sort and in a power each makes another value."""
    if not re.search("pow|sort", case.operation.name):
        return case
    return dataclasses.replace(case, inputs=[purposes.flushed(array) for array in case.inputs])


# How many cases of a type and a view the plugin computes, whose compiler takes most of the time; `--wide` computes all.
CHOSEN = {
    "lazy": {("f32", "whole"): 3, ("i32", "whole"): 1},
    "compiled": {("f32", "whole"): 1, ("bf16", "whole"): 1},
}
MOST_ELEMENTS = 3000


def chosen(cases, mode, is_wide):
    """Some cases of an operation, with other numbers or other shapes each, and gradients of the first of f32 and of bf16."""
    if is_wide:
        return cases
    counts, seen, kept = collections.Counter(), set(), []
    for case in cases:
        kind = case.dtype, case.view
        what = (*kind, str(case.numbers), None if case.numbers else tuple(array.shape for array in case.inputs))
        if counts[kind] >= CHOSEN[mode].get(kind, 0) or what in seen:
            continue
        seen.add(what)
        counts[kind] += 1
        has_gradient = case.gradient and kind in (("f32", "whole"), ("bf16", "whole")) and counts[kind] <= 1
        kept.append(dataclasses.replace(case, gradient=has_gradient))
    return kept


@dataclasses.dataclass
class Report:
    """What a run has found."""

    mode: str
    seed: int
    operations: int
    cases: int
    differences: list
    seconds: float


def run(mode, only="", seed_value=None, is_wide=False):
    references.use_double()
    load()
    call_by_program(program.texts())
    seed_value = seed() if seed_value is None else seed_value
    began = time.perf_counter()
    names = [name for name in TABLE if re.search(only, name)]
    cases = cases_of(names, mode, seed_value, is_wide)
    outcomes = program.outcomes(cases, mode)
    found = [judge(case, outcome, mode) for case, outcome in zip(cases, outcomes)]
    found = [difference for difference in found if difference is not None]
    return Report(mode, seed_value, len({suite_case.operation for suite_case in cases}), len(cases), found, time.perf_counter() - began)


def first_of_groups(differences):
    groups = {}
    for difference in differences:
        groups.setdefault(difference.group, []).append(difference)
    return groups


def lines(report):
    """One line of Rust for each group of differences, of the smallest case that shows it."""
    texts = program.texts()
    groups = first_of_groups(report.differences)
    small = shrunk([group[0] for group in groups.values()], report.mode)
    for group, difference in zip(groups.values(), small):
        dtypes = sorted({each.case.dtype for each in group})
        yield difference, describe(difference, texts) + f"   [{', '.join(dtypes)}; {len(group)} cases]"


def describe(difference, texts):
    case = difference.case
    call = literal.line(case, texts[case.operation.call], difference.mode)
    if difference.kind in ("panic", "error"):
        verb = {"panic": "panics: ", "error": "is an error: "}[difference.kind]
        verb = f"{'backward ' if difference.part == 'gradient' else ''}{verb}"
        return f"{call} {verb}{difference.found}, right is {literal.shown(difference.right)}"
    verb = "has the gradient" if difference.part == "gradient" else "gives"
    if difference.place is None or max(np.size(array) for array in difference.found if array is not None) <= 6:
        return f"{call} {verb} {typed(difference, difference.found)}, right is {literal.shown(difference.right)}"
    number, place = difference.place
    found, right = difference.found[number], difference.right[number]
    where = f"at {list(place)}" + (f" of the {'input' if difference.part == 'gradient' else 'result'} {number}" if len(difference.found) > 1 else "")
    found = 0.0 if found is None else found[place]
    return f"{call} {verb} {literal.shown(found)} {where}{given(case, place)}, right is {literal.shown(right[place])}"


def typed(difference, found):
    """Values, with their type where it is what differs."""
    text = literal.shown(found)
    return f"{text} of the types {[str(array.dtype) for array in found]}" if difference.kind == "type" else text


def given(case, place):
    """The elements of the inputs at a place, if all have it."""
    if not case.inputs or any(array.ndim != len(place) or any(at >= size for at, size in zip(place, array.shape)) for array in case.inputs):
        return ""
    return " (of " + ", ".join(literal.shown(array[place]) for array in case.inputs) + ")"
