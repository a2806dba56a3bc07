"""The most downloaded libraries of crates.io over two cells: the first adds the crate and makes a variable, a later one uses both.

hundred_crates.txt has the cells. They need a network and build for half an hour, so that they run with FERROTUNE_TEST_CRATES=1 only.
"""

import dataclasses
import pathlib
import re

import pytest

from test_crates import heavy

LIST = pathlib.Path(__file__).parent / "hundred_crates.txt"
GROUP_TIMEOUT_S = 1800

# Variables of earlier crates may be dropped when another one asks for features that they were not built with.
_LOST = re.compile(r"^.* is not kept: .*$", re.M)


@dataclasses.dataclass
class Sample:
    """The cells that use a crate, and the result of the last one."""

    cells: list
    result: str

    @property
    def name(self):
        """The last crate that the first cell adds: those above it are there for its sake."""
        return re.findall(r"^:dep ([\w-]+)", self.cells[0], re.M)[-1]

    def fault(self, kernel):
        """What the kernel does otherwise than the list says, or None."""
        for number, cell in enumerate(self.cells, 1):
            outcome = kernel.run(cell)
            if outcome.error is not None:
                return f"cell {number}: {outcome.traceback}"
            if lost := _LOST.findall(outcome.stderr):
                return f"cell {number}: {lost[0]}"
        return None if outcome.result == self.result else f"{outcome.result} instead of {self.result}"


def groups():
    """The samples of each group by its name."""
    _, *texts = re.split(r"^== ", LIST.read_text(encoding="utf-8"), flags=re.M)
    named = (text.partition("\n") for text in texts)
    return {name: [sample(paragraph) for paragraph in rest.strip().split("\n\n")] for name, _, rest in named}


def sample(paragraph):
    cells, _, result = paragraph.rpartition("\n=> ")
    return Sample(cells.split("\n----\n"), result)


@heavy
@pytest.mark.timeout(GROUP_TIMEOUT_S)
@pytest.mark.parametrize("group", groups())
def test_crates_work_over_two_cells(group, start):
    kernel = start()
    faults = [(sample.name, sample.fault(kernel)) for sample in groups()[group]]
    failed = [f"{name}: {fault}" for name, fault in faults if fault is not None]
    assert failed == [], "\n".join(failed)


def test_list_has_a_hundred_crates_with_two_cells_each():
    samples = [sample for group in groups().values() for sample in group]
    assert len({sample.name for sample in samples}) >= 100
    assert [sample.name for sample in samples if len(sample.cells) < 2 or not sample.result] == []
