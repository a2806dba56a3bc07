"""Types of elements, the distance of their numbers, and inputs drawn by kind. Computes nothing with them."""

import ml_dtypes
import numpy as np

FLOATS = ("bf16", "f16", "f32", "f64")
INTEGERS = ("u8", "u32", "i16", "i32", "i64")
ALL = FLOATS + INTEGERS
DTYPES = {
    "u8": np.dtype(np.uint8), "u32": np.dtype(np.uint32), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def name_of(array):
    return NAMES[array.dtype]


def is_float(dtype):
    return dtype in FLOATS


def limits(dtype):
    return ml_dtypes.finfo(DTYPES[dtype]) if is_float(dtype) else np.iinfo(DTYPES[dtype])


def rounded(values, dtype):
    """The nearest numbers of a float type, or the same integers."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(DTYPES[dtype])


def wide(array):
    """Floats in f64, in which the right values are computed; integers as they are."""
    return array.astype(np.float64) if is_float(name_of(array)) else array


def spacing(magnitudes, dtype):
    """One ulp: the distance of the numbers of a float type near these magnitudes."""
    info = limits(dtype)
    with np.errstate(all="ignore"):
        bounded = np.clip(np.abs(magnitudes), float(info.tiny), float(info.max))
    _, exponents = np.frexp(bounded)
    return np.ldexp(1.0, exponents - 1 - int(info.nmant))


def special(dtype):
    """Each kind of number that arithmetic treats differently from its neighbours."""
    info = limits(dtype)
    if not is_float(dtype):
        lowest = [info.min, info.min + 1, -7, -3, -2, -1] if info.min < 0 else []
        return np.array([*lowest, 0, 1, 2, 3, 5, 7, 100, info.max // 2, info.max - 1, info.max], DTYPES[dtype])
    tiny, smallest, largest, epsilon = (float(number) for number in (info.tiny, info.smallest_subnormal, info.max, info.eps))
    positive = [0.0, smallest, tiny - smallest, tiny, epsilon, 1e-3, 0.5, 1 - epsilon / 2, 1.0, 1 + epsilon, 1.5, 2.0, 2.5, 3.0,
                float(np.pi), 11.0, 30.0, 88.5, 104.0, 1 / epsilon - 0.5, 2 / epsilon + 3, largest / 2, largest, np.inf]
    return rounded([*positive, *(-number for number in positive), np.nan], dtype)


def ordinary(draw, shape, dtype, low=-3.0, high=3.0):
    """Numbers without surprises."""
    if is_float(dtype):
        return rounded(draw.uniform(low, high, shape), dtype)
    low = max(int(low * 4), limits(dtype).min)
    return draw.integers(low, int(high * 4) + 1, shape).astype(DTYPES[dtype])


def elements(draw, dtype, shape=(8, 24)):
    """Every special number, and ordinary ones of several sizes, in an order that depends on the seed."""
    count = int(np.prod(shape))
    values = special(dtype)[:count]
    left = count - len(values)
    if is_float(dtype):
        exponents = draw.uniform(-6.0, 3.0 if dtype == "f16" else 6.0, left)
        drawn = rounded(draw.normal(size=left) * 10.0**exponents, dtype)
        drawn[: left // 2] = rounded(draw.uniform(-10, 10, left // 2), dtype)
    else:
        info = limits(dtype)
        drawn = draw.integers(info.min, info.max, left, endpoint=True, dtype=DTYPES[dtype])
    return draw.permutation(np.concatenate([values, drawn])).reshape(shape)


def pairs(draw, dtype, count=14):
    """A column and a row of numbers, so that each special number meets each other one."""
    chosen = special(dtype)
    if is_float(dtype):
        info = limits(dtype)
        kept = [np.nan, np.inf, -np.inf, 0.0, -0.0, float(info.smallest_subnormal), float(info.tiny), 1.0, -1.0, 2.5, -3.0, 0.5,
                float(info.max), -float(info.max)]
        if dtype == "f64":
            # XLA, which gives the right gradients, takes subnormal numbers for 0.
            kept[5:7] = 1e-150, 1e-140
        chosen = rounded(kept, dtype)
    chosen = chosen[:count]
    fill = ordinary(draw, (2, 20 - len(chosen)), dtype)
    column, row = (np.concatenate([chosen, part]) for part in fill)
    return draw.permutation(column)[:, None], draw.permutation(row)[None, :]


def rows(draw, dtype, width=33):
    """Rows of several kinds, whose length is no multiple of a vector register's."""
    if not is_float(dtype):
        info = limits(dtype)
        drawn = ordinary(draw, (6, width), dtype)
        drawn[1] = 3
        drawn[2, ::4] = info.max // width
        drawn[3, 5] = drawn[3, 11] = info.max // 2
        drawn[4, 7] = info.min
        drawn[5, [3, 9]] = drawn[5].max()
        return drawn
    info = limits(dtype)
    drawn = draw.uniform(-3, 3, (14, width))
    drawn[1] = 2.5  # equal numbers
    drawn[2, [4, 20]] = np.nan
    drawn[3, 7] = np.inf
    drawn[4, 9] = -np.inf
    drawn[5, [3, 12]] = np.inf, -np.inf
    drawn[6] = -np.inf
    drawn[7] = np.where(np.arange(width) % 2, 0.0, -0.0)
    drawn[8] = float(info.smallest_subnormal) * draw.integers(-3, 9, width)
    drawn[9, 5] = float(info.max)
    drawn[10] += 300.0  # a mean that is much larger than the deviation
    drawn[11] = draw.permutation(np.repeat([5.0, -1.0, 3.0], width // 3))[:width]  # ties
    drawn[12, [0, 32]] = np.inf, np.nan
    drawn[13] *= 20.0
    return rounded(drawn, dtype)


def rows_to_square(draw, dtype, width=33):
    """Rows whose squares have a finite sum."""
    array = rows(draw, dtype, width)
    if is_float(dtype) and dtype != "f16":
        array[9, 5] = 2.0**500 if dtype == "f64" else 2.0**60
    return array
