"""Functions of rows: sums, extremes, norms, softmax, sorting, and products of matrices."""

import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import ALL, FLOATS, INTEGERS
from differences.operation import TABLE, Operation
from differences.references import NUMPY, Refused

LONG = 400_003
WIDE = 4_001


def of_rows(name, numbers, dtypes=ALL, long=("f32", "f16"), empty=True, gradient=True, values=kinds.rows, extra=()):
    """Rows of each kind, along the rows and across them; one element, none, and long rows. `numbers(dim)` are the case's."""

    def case(inputs, given, **options):
        return Case(TABLE[name], inputs, list(given), **options)

    def cases(draw):
        for dtype in dtypes:
            array = values(draw, dtype)
            with_gradient = gradient and kinds.is_float(dtype)
            for view in VIEWS:
                yield case([array], numbers(1), view=view, axes=("ab",), gradient=with_gradient and view in ("whole", "transposed"))
            across = np.ascontiguousarray(array.T)
            for view in VIEWS[:2]:
                yield case([across], numbers(0), view=view, axes=("ab",), gradient=with_gradient and view == "whole")
            yield case([array[:, 1:2].copy()], numbers(1), axes=("ab",), gradient=with_gradient)
            if empty:
                yield case([array[:, :0].copy()], numbers(1), axes=("ab",), gradient=False)
                yield case([array[:0].copy()], numbers(1), axes=("ab",), gradient=False)
        for dtype in long:
            if dtype in dtypes:
                yield case([kinds.ordinary(draw, (2, LONG), dtype, 0.0, 2.0)], numbers(1), axes=("ab",), gradient=False)

    return cases


def along(dim):
    return [(dim,)]


def axis(dims):
    return tuple(dims) if isinstance(dims, (list, tuple)) else dims


def exact_sum(m, x, dims, keepdims):
    """A sum of integers fits its type, or is refused."""
    if m.is_jax or x.dtype == np.float64:
        return m.sum(x, axis=axis(dims), keepdims=keepdims)
    to = {np.uint8: np.uint32, np.int16: np.int32}.get(x.dtype.type, x.dtype.type)
    whole = np.asarray(x.astype(object).sum(axis=axis(dims), keepdims=keepdims), dtype=object)
    info = np.iinfo(to)
    if any(not info.min <= int(number) <= info.max for number in whole.flat):
        raise Refused("")
    return whole.astype(to)


def type_of_sum(case):
    return {"u8": "u32", "i16": "i32"}.get(case.dtype, case.dtype)


def sizes(x, dims=None, *rest, keepdims=False):
    """The sum of the sizes of what is added up."""
    return np.sum(np.where(np.isfinite(x), np.abs(x), 0.0), axis=axis(dims), keepdims=keepdims)


SUM = dict(dtypes=ALL, ulps=8, half_ulps=1, gradient_ulps=2, result=type_of_sum)
Operation("Tensor::sum", lambda m, x, d: exact_sum(m, x, d, False), of_rows("Tensor::sum", along), scale=sizes, **SUM)
Operation("Tensor::sum_keepdim", lambda m, x, d: exact_sum(m, x, d, True), of_rows("Tensor::sum_keepdim", along),
          scale=lambda x, d: sizes(x, d, keepdims=True), **SUM)
Operation("Tensor::sum_all", lambda m, x: exact_sum(m, x, None, False), of_rows("Tensor::sum_all", lambda dim: []), scale=sizes, **SUM)


def mean(m, x, dims=None, keepdims=False):
    if x.dtype != np.float64:
        raise Refused("to_dtype(F32)")
    return m.mean(x, axis=axis(dims), keepdims=keepdims)


def mean_size(x, dims=None, keepdims=False):
    return np.mean(np.where(np.isfinite(x), np.abs(x), 0.0), axis=axis(dims), keepdims=keepdims)


MEAN = dict(dtypes=ALL, ulps=8, half_ulps=1, gradient_ulps=3)
Operation("Tensor::mean", lambda m, x, d: mean(m, x, d), of_rows("Tensor::mean", along), scale=mean_size, **MEAN)
Operation("Tensor::mean_keepdim", lambda m, x, d: mean(m, x, d, True), of_rows("Tensor::mean_keepdim", along),
          scale=lambda x, d: mean_size(x, d, True), **MEAN)
Operation("Tensor::mean_all", lambda m, x: mean(m, x), of_rows("Tensor::mean_all", lambda dim: []), scale=mean_size, **MEAN)


def variance(m, x, dim, keepdims):
    if x.dtype != np.float64:
        raise Refused("to_dtype(F32)")
    return m.var(x, axis=dim, ddof=1, keepdims=keepdims)


def variance_size(keepdims):
    def size(x, dim):
        # The deviations are rounded with the size of the numbers.
        deviation = np.abs(x - x.mean(axis=dim, keepdims=True))
        rounded = deviation + 2 * np.abs(x).max(axis=dim, keepdims=True, initial=0.0) * 1e-7
        return np.sum(deviation * rounded, axis=dim, keepdims=keepdims) / max(x.shape[dim] - 1, 1) + 1e-300

    return size


# Of what is cancelled by the mean, nothing is left where all numbers are the same.
VAR = dict(dtypes=ALL, ulps=16, half_ulps=2, gradient_ulps=16, gradient_scale="rows")
for name, keep in (("Tensor::var", False), ("Tensor::var_keepdim", True)):
    Operation(name, lambda m, x, d, keep=keep: variance(m, x, d, keep), of_rows(name, lambda dim: [dim], values=kinds.rows_to_square), **VAR,
              scale=variance_size(keep))
Operation("Tensor::norm", lambda m, x: m.sqrt(m.sum(x * x)), of_rows("Tensor::norm", lambda dim: [], dtypes=FLOATS, values=kinds.rows_to_square), ulps=4, half_ulps=1,
          gradient_ulps=8)


def log_sum_exp(m, x, dims):
    return m.logsumexp(x, axis=axis(dims))


Operation("Tensor::log_sum_exp", log_sum_exp, of_rows("Tensor::log_sum_exp", along, dtypes=FLOATS, empty=False), ulps=6, half_ulps=1,
          scale=lambda x, d: np.maximum(np.abs(x.max(axis=axis(d), initial=0.0)), 1.0), gradient_ulps=64, gradient_scale="incoming")


def cumsum(m, x, dim):
    if m.is_jax or x.dtype == np.float64:
        return m.cumsum(x, axis=dim)
    to = {np.uint8: np.uint32, np.int16: np.int32}.get(x.dtype.type, x.dtype.type)
    whole = np.cumsum(x.astype(object), axis=dim)
    info = np.iinfo(to)
    if any(not info.min <= int(number) <= info.max for number in whole.flat):
        raise Refused("")
    return whole.astype(to)


Operation("Tensor::cumsum", cumsum, of_rows("Tensor::cumsum", lambda dim: [dim], long=(), empty=True), dtypes=ALL, ulps=8, half_ulps=1,
          scale=lambda x, d: np.cumsum(np.where(np.isfinite(x), np.abs(x), 0.0), axis=d), result=type_of_sum, gradient_ulps=8,
          gradient_scale="all")


def extreme(function):
    def reference(m, x, dim=None, keepdims=False):
        if x.size == 0 and (dim is None or x.shape[dim] == 0):
            raise Refused("")
        return getattr(m, function)(x, axis=dim, keepdims=keepdims)

    return reference


def place(function):
    def reference(m, x, dim, keepdims=False):
        if x.shape[dim] == 0:
            raise Refused("")
        return getattr(np, function)(x, axis=dim, keepdims=keepdims).astype(np.uint32)

    return reference


for function in ("max", "min"):
    for name, numbers, keep in (("", lambda dim: [dim], False), ("_keepdim", lambda dim: [dim], True), ("_all", lambda dim: [], False)):
        name = f"Tensor::{function}{name}"
        reference = extreme(function)
        Operation(name, lambda m, x, d=None, reference=reference, keep=keep: reference(m, x, d, keep),
                  of_rows(name, numbers, long=("f32",)), dtypes=ALL, gradient_ulps=2)
    for name, keep in (("", False), ("_keepdim", True)):
        name = f"Tensor::arg{function}{name}"
        reference = place(f"arg{function}")
        Operation(name, lambda m, x, d, reference=reference, keep=keep: reference(m, x, d, keep),
                  of_rows(name, lambda dim: [dim], long=("f32",), gradient=False), dtypes=ALL, result="u32")
Operation("candle_nn::sampling::gumbel_softmax", place("argmax"),
          of_rows("candle_nn::sampling::gumbel_softmax", lambda dim: [dim], dtypes=FLOATS, long=(), gradient=False), result="u32")


SOFTMAX = dict(ulps=16, half_ulps=1, gradient_ulps=32, gradient_scale="incoming")
def none_is_none(function):
    """SciPy refuses a row without elements, whose softmax has none."""

    def reference(m, x, dim):
        return getattr(m, function)(x, axis=dim) if x.size else x

    return reference


def softmax_size(x, dim=-1):
    # The difference from the largest number is rounded, and then its exponential is taken.
    shifted = x - x.max(axis=dim, keepdims=True, initial=-np.inf)
    return NUMPY.softmax(x, axis=dim) * (1 + np.abs(shifted)) if x.size else x


Operation("candle_nn::ops::softmax", none_is_none("softmax"),
          of_rows("candle_nn::ops::softmax", lambda dim: [dim], dtypes=FLOATS), scale=softmax_size, **SOFTMAX)
Operation("candle_nn::ops::log_softmax", none_is_none("log_softmax"),
          of_rows("candle_nn::ops::log_softmax", lambda dim: [dim], dtypes=FLOATS, long=("f32", "bf16")),
          scale=lambda x, d: np.abs(x) + np.abs(np.max(x, axis=d, keepdims=True, initial=1.0)), **SOFTMAX)


def last_dim(name, parameters, numbers, long=("f32", "f16")):
    """Rows and parameters for each column, through each view that the operation takes."""

    def cases(draw):
        for dtype in FLOATS:
            array = kinds.rows_to_square(draw, dtype) if parameters else kinds.rows(draw, dtype)
            given = [kinds.ordinary(draw, (array.shape[1],), dtype) for _ in range(parameters)]
            axes = ("ab",) + ("b",) * parameters
            for view in ("whole", "offset"):
                yield Case(TABLE[name], [array, *given], list(numbers), view, axes, gradient=True)
            yield Case(TABLE[name], [array[:, :1].copy(), *(each[:1].copy() for each in given)], list(numbers), axes=axes, gradient=True)
            yield Case(TABLE[name], [array[:0].copy(), *given], list(numbers), axes=axes, gradient=False)
        for dtype in long:
            wide = [kinds.ordinary(draw, (2, WIDE), dtype, 0.0, 2.0), *(kinds.ordinary(draw, (WIDE,), dtype) for _ in range(parameters))]
            yield Case(TABLE[name], wide, list(numbers), axes=axes, gradient=False)

    return cases


def rms_norm(m, x, weight, epsilon):
    return x / m.sqrt(m.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def layer_norm(m, x, weight, bias, epsilon):
    centred = x - m.mean(x, axis=-1, keepdims=True)
    return centred / m.sqrt(m.mean(centred * centred, axis=-1, keepdims=True) + epsilon) * weight + bias


def layer_norm_size(x, weight, bias, epsilon):
    # The mean is cancelled, whose rounding the deviation enlarges.
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return (np.abs(centred) + np.abs(x).mean(axis=-1, keepdims=True)) / deviation * np.abs(weight) + np.abs(bias) + 1e-32


EPSILON = 2.0**-17
NORM = dict(ulps=32, half_ulps=2, gradient_ulps=64, gradient_scale="all")
Operation("candle_nn::ops::softmax_last_dim", lambda m, x: m.softmax(x, axis=-1), last_dim("candle_nn::ops::softmax_last_dim", 0, []), scale=softmax_size,
          **SOFTMAX)
for name in ("rms_norm", "rms_norm_slow"):
    name = f"candle_nn::ops::{name}"
    Operation(name, rms_norm, last_dim(name, 1, [EPSILON]), **NORM)
for name in ("layer_norm", "layer_norm_slow"):
    name = f"candle_nn::ops::{name}"
    Operation(name, layer_norm, last_dim(name, 2, [EPSILON]), scale=layer_norm_size, **NORM)


def ordered(m, x, ascending):
    if m.is_jax or x.dtype == np.float64:
        order = m.argsort(x if ascending else -x, axis=-1, stable=True)
        if not ascending:
            # NaN is the greatest number, and so the first one.
            keys = m.where(m.isnan(x), -np.inf, -x)
            order = m.lexsort((keys, m.where(m.isnan(x), 0, 1)), axis=-1)
    else:
        keys = x.astype(object)
        order = np.argsort(np.array(keys if ascending else -keys, dtype=object), axis=-1, kind="stable") if x.size else np.zeros(x.shape, int)
    return order


def sort(m, x, ascending):
    order = ordered(m, x, ascending)
    return [m.take_along_axis(x, order, axis=-1), order.astype(np.uint32)]


def sort_cases(name):
    def cases(draw):
        for dtype in ALL:
            array = kinds.rows(draw, dtype)
            for ascending in (True, False):
                for view in ("whole", "offset"):
                    yield Case(TABLE[name], [array], [ascending], view, ("ab",),
                               gradient=kinds.is_float(dtype) and "arg" not in name and view == "whole")
                yield Case(TABLE[name], [array[:, :1].copy()], [ascending], axes=("ab",), gradient=False)
                yield Case(TABLE[name], [array[:0].copy()], [ascending], axes=("ab",), gradient=False)
                yield Case(TABLE[name], [array[:, :0].copy()], [ascending], axes=("ab",), gradient=False)
        yield Case(TABLE[name], [draw.permutation(LONG).astype(np.float32)], [True], axes=("a",), gradient=False)

    return cases


Operation("Tensor::sort_last_dim", sort, sort_cases("Tensor::sort_last_dim"), dtypes=ALL, result=lambda case: [case.dtype, "u32"])
Operation("Tensor::arg_sort_last_dim", lambda m, x, a: ordered(m, x, a).astype(np.uint32), sort_cases("Tensor::arg_sort_last_dim"), dtypes=ALL,
          result="u32")


def products(name, shapes, long=None):
    """Products of ordinary numbers, and of those with NaN and infinity."""

    def cases(draw):
        for dtype in ALL:
            for left, right, axes in shapes if dtype in FLOATS else shapes[:1]:
                pair = [kinds.ordinary(draw, left, dtype), kinds.ordinary(draw, right, dtype)]
                for view in VIEWS if dtype in FLOATS else VIEWS[:1]:
                    yield Case(TABLE[name], pair, view=view, axes=axes, gradient=kinds.is_float(dtype) and view != "strided")
            if dtype in FLOATS:
                pair = [kinds.ordinary(draw, shapes[0][0], dtype), kinds.ordinary(draw, shapes[0][1], dtype)]
                pair[0].flat[1] = np.nan
                pair[1].flat[2] = np.inf
                pair[1].flat[0] = 0
                yield Case(TABLE[name], pair, axes=shapes[0][2], gradient=True)
        for dtype in ("f32", "bf16", "f16"):
            left, right = long or (shapes[0][0], shapes[0][1])
            yield Case(TABLE[name], [kinds.ordinary(draw, left, dtype, 0.0, 1.0), kinds.ordinary(draw, right, dtype, 0.0, 1.0)],
                       axes=shapes[0][2], gradient=False)

    return cases


def product_size(x, y):
    return np.matmul(np.where(np.isfinite(x), np.abs(x), 0.0), np.where(np.isfinite(y), np.abs(y), 0.0))


# candle's product of matrices has neither bf16 nor integers on the CPU.
PRODUCT = dict(dtypes=ALL, refuses_on_cpu=("bf16", *INTEGERS), ulps=8, half_ulps=1, gradient_ulps=16, gradient_scale="all")
Operation("Tensor::dot", lambda m, x, y: m.sum(x * y), products("Tensor::dot", [((33,), (33,), ("a", "a"))], ((3000,), (3000,))),
          scale=lambda x, y: np.sum(np.where(np.isfinite(x * y), np.abs(x * y), 0.0)), **{**PRODUCT, "refuses_on_cpu": ()},
          result=lambda case: {"u8": "u32", "i16": "i32"}.get(case.dtype, case.dtype))
Operation("Tensor::mv", lambda m, x, y: m.matmul(x, y), products("Tensor::mv", [((5, 33), (33,), ("ab", "b"))], ((3, 3000), (3000,))),
          scale=product_size, **PRODUCT)
Operation("Tensor::matmul", lambda m, x, y: m.matmul(x, y),
          products("Tensor::matmul", [((5, 33), (33, 7), ("ab", "bc")), ((2, 3, 4), (2, 4, 5), ("dab", "dbc")),
                                      ((1, 1), (1, 1), ("ab", "bc")), ((0, 3), (3, 2), ("..", "..")), ((2, 0), (0, 3), ("..", "..")),
                                      ((3, 17), (17, 1), ("ab", "bc"))], ((3, 3000), (3000, 5))), scale=product_size, **PRODUCT)
Operation("Tensor::broadcast_matmul", lambda m, x, y: m.matmul(x, y),
          products("Tensor::broadcast_matmul", [((5, 33), (33, 7), ("ab", "bc")), ((2, 3, 4), (4, 5), ("dab", "bc")),
                                                ((3, 4), (2, 4, 5), ("ab", "dbc")), ((2, 1, 3, 4), (1, 3, 4, 2), ("....", "...."))]),
          scale=product_size, **PRODUCT)
