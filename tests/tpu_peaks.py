"""What libtpu says that a program needs, kept by the bytes of the program and of libtpu (`golden/tpu_peaks.json`).

A large program takes libtpu minutes of processor time. Our program is made anew in every run; only where it, JAX's program or libtpu
has changed does libtpu compile it again. With `FERROTUNE_KEEP_TPU_PEAKS=1` the answers of tests/test_tpu_memory.py and
tests/test_spread_memory.py take the place of those in the file.
"""

import fcntl
import functools
import hashlib
import json
import os
import pathlib
import warnings

FILE = pathlib.Path(__file__).parent / "golden/tpu_peaks.json"
VARIABLE = "FERROTUNE_KEEP_TPU_PEAKS"


@functools.cache
def digest(library):
    """The SHA-256 of a library's bytes."""
    return hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()


def key(program, tpu, library):
    """The name of an answer: a digest of the program, the kind of TPU and libtpu."""
    return hashlib.sha256(f"{digest(library)} {tpu}\n".encode() + program).hexdigest()


def kept(program, tpu, library, name):
    """The bytes that libtpu says the program needs; none where that is not kept, and libtpu has to compile it."""
    answer = json.loads(FILE.read_text()).get(key(program, tpu, library))
    if answer is None:
        warnings.warn(f"libtpu compiles {name}, which takes minutes: it or libtpu has changed; {VARIABLE}=1 keeps the answer", stacklevel=2)
    return answer and answer["bytes"]


def keep(program, tpu, library, name, peak_bytes):
    """Notes what libtpu has said, if that is wanted."""
    if os.environ.get(VARIABLE) != "1":
        return
    with open(FILE, "r+") as file:
        # The other file of tests may keep an answer at the same time.
        fcntl.flock(file, fcntl.LOCK_EX)
        answers = {old: answer for old, answer in json.load(file).items() if answer["program"] != name}
        answers[key(program, tpu, library)] = {"program": name, "bytes": peak_bytes}
        file.seek(0)
        file.truncate()
        json.dump(dict(sorted(answers.items(), key=lambda item: item[1]["program"])), file, indent=1)
        file.write("\n")
