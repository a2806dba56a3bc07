"""Kernels for the tests of this folder."""

import pytest

from front_end import FrontEnd


@pytest.fixture
def start():
    """Starts kernels that end with the test."""
    started = []

    def start_one(**options):
        started.append(FrontEnd(**options))
        return started[-1]

    yield start_one
    for front_end in started:
        front_end.close()


@pytest.fixture(scope="module")
def shared_kernel():
    front_end = FrontEnd().wait_for_ready()
    yield front_end
    front_end.close()


@pytest.fixture
def kernel(shared_kernel):
    """A kernel that other tests have used too, with its channels read empty."""
    for channel in ("shell", "control", "iopub", "stdin"):
        channel = getattr(shared_kernel.client, f"{channel}_channel")
        while channel.msg_ready():
            channel.get_msg(timeout=1)
    return shared_kernel
