"""Losses."""

import numpy as np

from differences import kinds
from differences.case import Case
from differences.kinds import FLOATS
from differences.operation import TABLE, Operation


def picked(m, x, classes):
    return -m.mean(m.take_along_axis(x, classes.astype(np.int64)[:, None], axis=1))


def finite_rows(draw, dtype, shape=(6, 9)):
    """Numbers of which no loss is NaN, some of them large."""
    array = kinds.ordinary(draw, shape, dtype)
    array[0, :3] = 60, -60, 20
    return array


def classes(name):
    def cases(draw):
        for dtype in FLOATS:
            array = finite_rows(draw, dtype)
            for index in ("u32", "i64", "u8") if dtype == "f32" else ("u32",):
                target = draw.integers(0, array.shape[1], len(array)).astype(kinds.DTYPES[index])
                for view in ("whole", "transposed"):
                    yield Case(TABLE[name], [array, target], view=view, axes=("a.", "a"))
            for number in (np.nan, np.inf, -np.inf):
                strange = array.copy()
                strange[2, 3] = number
                yield Case(TABLE[name], [strange, target], axes=("a.", "a"))
            many = kinds.ordinary(draw, (3000, 5), dtype)
            yield Case(TABLE[name], [many, draw.integers(0, 5, 3000).astype(np.uint32)], axes=("a.", "a"), gradient=False)

    return cases


def pairs(name, target, numbers=()):
    def cases(draw):
        for dtype in FLOATS:
            array, goal = finite_rows(draw, dtype), target(draw, dtype)
            for view in ("whole", "transposed"):
                yield Case(TABLE[name], [array, goal], list(numbers), view, ("ab", "ab"))
            for number in (np.nan, np.inf, -np.inf, 200.0, -200.0):
                strange = array.copy()
                strange[2, 3] = number
                yield Case(TABLE[name], [strange, goal], list(numbers), axes=("ab", "ab"))
            many = [kinds.ordinary(draw, (3000, 5), dtype), np.resize(goal, (3000, 5))]
            yield Case(TABLE[name], many, list(numbers), axes=("ab", "ab"), gradient=False)

    return cases


def halves(draw, dtype):
    return kinds.rounded(draw.integers(0, 3, (6, 9)) / 2, dtype)


def near(draw, dtype):
    return kinds.ordinary(draw, (6, 9), dtype)


def cross_entropy(m, x, target):
    return picked(m, m.log_softmax(x, axis=-1), target)


def with_logit(m, x, target):
    # log(1 + e^x) is the loss where the target is 0, as in Optax.
    return m.mean(target * m.logaddexp(-x, 0.0) + (1 - target) * m.logaddexp(x, 0.0))


def huber(m, x, target, delta):
    size = m.abs(x - target)
    return m.mean(m.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)))


LOSS = dict(ulps=64, half_ulps=1, gradient_ulps=16, gradient_scale="all")
Operation("candle_nn::loss::nll", picked, classes("candle_nn::loss::nll"), scale=lambda x, t: np.abs(x).max(), **LOSS)
Operation("candle_nn::loss::cross_entropy", cross_entropy, classes("candle_nn::loss::cross_entropy"),
          scale=lambda x, t: np.abs(np.where(np.isfinite(x), x, 0.0)).max(axis=1).mean(), **LOSS)
Operation("candle_nn::loss::mse", lambda m, x, y: m.mean((x - y) ** 2), pairs("candle_nn::loss::mse", near), **LOSS)
Operation("candle_nn::loss::binary_cross_entropy_with_logit", with_logit, pairs("candle_nn::loss::binary_cross_entropy_with_logit", halves),
          scale=lambda x, t: np.maximum(np.abs(np.where(np.isfinite(x), x, 0.0)).mean(), 1.0), **LOSS)
Operation("candle_nn::loss::huber", huber, pairs("candle_nn::loss::huber", near, [1.25]), **LOSS)
