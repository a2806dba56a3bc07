"""Types that are defined anew: a variable of the old type is dropped by name, and never read as the new type.

Plain evcxr takes a struct for the same one as long as its fields have the same names, since all its cells are crates of
one name. The first case below ends it with a segmentation fault: a number is used as the address of a string.
"""

import pytest


def redefine(kernel, before, make, after):
    """Makes the variables of a cell, defines something anew, and gives what the next cell says."""
    kernel.ok(before)
    kernel.ok(make)
    kernel.ok(after)
    return kernel.ok("1 + 1")


def dropped(outcome):
    """Names of the variables that were dropped."""
    lines = [line for line in outcome.stderr.splitlines() if "was dropped: its type has been defined anew" in line]
    return sorted(line.split()[2] for line in lines)


def test_variable_is_not_read_as_another_type(start):
    kernel = start()
    kernel.ok("struct P { x: u64, y: u64, z: u64 }\nlet p = P { x: 8, y: 8, z: 8 }; let kept = 7;")
    outcome = kernel.run("struct P { x: String, y: u64, z: u64 }")
    assert outcome.error is None
    outcome_of_use = kernel.fails("p.x.len()")
    assert "cannot find value `p`" in outcome_of_use.error
    assert dropped(outcome) + dropped(outcome_of_use) == ["p"]
    assert kernel.ok("kept").result == "7"
    kernel.ok('let p = P { x: "new".into(), y: 1, z: 2 };')
    assert kernel.ok("p.x.len()").result == "3"
