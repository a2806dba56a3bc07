"""Fixtures for tests of the installed kernel. `cargo xtask test` installs it under target/ and sets the environment."""

import pytest

from front_end import OPEN
from session import Session


@pytest.fixture
def start(tmp_path):
    """Starts kernels that end with the test."""
    sessions = []

    def start_one(folder=tmp_path, **options):
        sessions.append(Session(folder, **options))
        return sessions[-1]

    yield start_one
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel that the tests of a module share; its working folder is `kernel.folder`."""
    session = Session(tmp_path_factory.mktemp("kernel"))
    yield session
    session.close()


@pytest.fixture(autouse=True)
def every_message_is_claimed(start):
    """Fails a test that leaves a message of a running kernel unclaimed; looks before `start` closes the test's kernels."""
    yield
    left = [message for front_end in OPEN for message in front_end.unclaimed()]
    assert left == []
