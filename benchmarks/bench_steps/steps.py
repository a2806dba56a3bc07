"""What the training programs of `cargo xtask bench steps` in Python share: first weights from a file, batches, and the
protocol. A program reads lines `MODEL STEPS`, and answers each with the losses of the first and last step and the
milliseconds of all."""

import os
import re
import sys
import time

import numpy as np

HEADS, WIDTH, TIME, VOCABULARY = 4, 128, 64, 64
THREADS = int(os.environ["RAYON_NUM_THREADS"])


class Weights:
    """Uniform numbers in [-1, 1), in the order in which they are asked for."""

    def __init__(self, path):
        self.numbers = np.fromfile(path, dtype="<f4")
        self.used = 0

    def inputs(self, shape):
        return self.numbers[: np.prod(shape)].reshape(shape).copy()

    def next(self, shape, fan_in):
        count = int(np.prod(shape))
        numbers = self.numbers[self.used : self.used + count]
        self.used += count
        return numbers.reshape(shape) * np.float32(1 / np.sqrt(np.float32(fan_in)))


def labels(batch):
    return np.arange(batch) * 7 % 10


def tokens(batch):
    """Ids, and for each place the id of the next one, the last of a row being followed by its first."""
    row, place = np.arange(batch)[:, None], np.arange(TIME)[None, :]
    ids = (row * 31 + place * place * 7 + place) % VOCABULARY
    return ids, np.roll(ids, -1, axis=1).reshape(-1)


def serve(mode, weights, make):
    """`make(mode, kind, batch, weights)` returns a function that makes one step and returns its loss."""
    current, step = None, None
    for line in sys.stdin:
        name, count = line.split()
        if name != current:
            kind, batch = re.fullmatch(r"([a-z]+)(\d+)", name).groups()
            current, step = name, None
            step = make(mode, kind, int(batch), Weights(weights))
        losses, times = [], []
        for _ in range(int(count)):
            begun = time.perf_counter()
            losses.append(step())
            times.append(f"{(time.perf_counter() - begun) * 1e3:.4f}")
        print(losses[0], losses[-1], *times, flush=True)
