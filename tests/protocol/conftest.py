"""Kernels for the tests of this folder."""

import tempfile

import pytest

from front_end import FrontEnd


@pytest.fixture(scope="session")
def data():
    """A data folder, which holds the history, so that the user's own stays as it is."""
    with tempfile.TemporaryDirectory(prefix="ferrotune-data-") as folder:
        yield {"XDG_DATA_HOME": folder}


@pytest.fixture
def start(data):
    """Starts kernels that end with the test."""
    started = []

    def start_one(**options):
        started.append(FrontEnd(env=data, **options))
        return started[-1]

    yield start_one
    for front_end in started:
        front_end.close()


@pytest.fixture(scope="module")
def kernel(data):
    """A kernel that the tests of a module share."""
    front_end = FrontEnd(env=data).wait_for_ready()
    yield front_end
    front_end.close()
