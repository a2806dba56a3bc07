"""What libtpu says that a program needs, kept by the bytes of the program and of libtpu (`golden/tpu_peaks.json`).

A large program takes libtpu minutes of processor time. Our program is made anew in every run, and a test whose program has changed
fails: `cargo xtask test --peaks` lets libtpu compile what has changed, compares the needs, and keeps the
answers. A test is skipped where it is JAX's program or libtpu that is another one than at that time.
"""

import fcntl
import functools
import hashlib
import json
import os
import pathlib

import pytest

FILE = pathlib.Path(__file__).parent / "golden/tpu_peaks.json"
# `cargo xtask test --peaks` sets it.
VARIABLE = "FERROTUNE_KEEP_TPU_PEAKS"


@functools.cache
def digest(library):
    """The SHA-256 of a library's bytes."""
    return hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()


def key(program, tpu, library):
    """The name of an answer: a digest of the program, the kind of TPU and libtpu."""
    return hashlib.sha256(f"{digest(library)} {tpu}\n".encode() + program).hexdigest()


def kept(program, tpu, library, name, is_ours=True):
    """The bytes that libtpu says the program needs; none where that is not kept, and libtpu is to compile it."""
    answers = json.loads(FILE.read_text())
    answer = answers.get(key(program, tpu, library))
    if answer is not None:
        return answer["bytes"]
    if os.environ.get(VARIABLE) == "1":
        return None
    if not is_ours or all(answer["libtpu"] != digest(library) for answer in answers.values()):
        pytest.skip(f"{'libtpu' if is_ours else name} is another than in {FILE.name}; cargo xtask test --peaks compiles for minutes")
    pytest.fail(f"{name} has changed: run cargo xtask test --peaks and commit {FILE.name}", pytrace=False)


def keep(program, tpu, library, name, peak_bytes):
    """Notes what libtpu has said, if that is wanted."""
    if os.environ.get(VARIABLE) != "1":
        return
    with open(FILE, "r+") as file:
        # The other file of tests may keep an answer at the same time.
        fcntl.flock(file, fcntl.LOCK_EX)
        answers = {old: answer for old, answer in json.load(file).items() if answer["program"] != name}
        answers[key(program, tpu, library)] = {"program": name, "bytes": peak_bytes, "libtpu": digest(library)}
        file.seek(0)
        file.truncate()
        json.dump(dict(sorted(answers.items(), key=lambda item: item[1]["program"])), file, indent=1)
        file.write("\n")
