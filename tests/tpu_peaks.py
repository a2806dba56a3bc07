"""What libtpu says that a program needs, kept by the bytes of the program and of libtpu (`golden/tpu_peaks.json`).

A large program takes libtpu minutes of processor time. Our program is made anew in every run; only where it, JAX's program or libtpu
has changed does libtpu compile it again. With `FERROTUNE_KEEP_TPU_PEAKS=1` the answers of tests/test_tpu_memory.py and
tests/test_spread_memory.py take the place of those in the file.
"""

import functools
import hashlib
import json
import os
import pathlib

FILE = pathlib.Path(__file__).parent / "golden/tpu_peaks.json"
KEEPS = os.environ.get("FERROTUNE_KEEP_TPU_PEAKS") == "1"


@functools.cache
def digest(library):
    return hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()


def key(program, tpu, library):
    """The name of an answer: a digest of the program, the kind of TPU and libtpu."""
    return hashlib.sha256(f"{digest(library)} {tpu}\n".encode() + program).hexdigest()


def kept(program, tpu, library):
    """The bytes that libtpu says the program needs; None where that is not kept."""
    answer = json.loads(FILE.read_text()).get(key(program, tpu, library))
    return answer and answer["bytes"]


def keep(program, tpu, library, name, peak_bytes):
    """Notes what libtpu has said, if that is wanted."""
    if KEEPS:
        answers = json.loads(FILE.read_text())
        answers = {old: answer for old, answer in answers.items() if answer["program"] != name}
        answers[key(program, tpu, library)] = {"program": name, "bytes": peak_bytes}
        FILE.write_text(json.dumps(dict(sorted(answers.items(), key=lambda item: item[1]["program"])), indent=1) + "\n")
