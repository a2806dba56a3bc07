"""Functions of single elements."""

import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import ALL, FLOATS, INTEGERS
from differences.operation import TABLE, Operation
from differences.references import NUMPY

LARGE = 1_000_003


def one_tensor(name, dtypes, numbers=(), gradient=True, values=kinds.elements, axes="ab", types=ALL, whole_numbers=None):
    """Each type through each view; one element, none, and a million."""

    def cases(draw):
        for dtype in types:
            array = values(draw, dtype)
            with_gradient = gradient and kinds.is_float(dtype)
            for view in VIEWS if dtype in dtypes else VIEWS[:1]:
                yield dict(inputs=[array], view=view, axes=(axes,), gradient=with_gradient and view != "strided")
            if dtype in dtypes and "." in axes:
                yield dict(inputs=[array[:1, :2]], axes=(axes,), gradient=False)
            elif dtype in dtypes:
                yield dict(inputs=[array[3, 5]], axes=("",), gradient=with_gradient)
                yield dict(inputs=[array[:1, :1]], axes=("ab",), gradient=False)
                yield dict(inputs=[array[:0]], axes=("ab",), gradient=False)
        drawn = kinds.rounded(draw.normal(size=LARGE), "f32")
        drawn[:: LARGE // 300][: len(kinds.special("f32"))] = kinds.special("f32")
        if "f32" in dtypes and "." not in axes and values is kinds.elements:
            yield dict(inputs=[drawn], axes=("a",), gradient=False)

    def made(draw):
        for case in cases(draw):
            is_whole = whole_numbers is not None and not kinds.is_float(kinds.name_of(case["inputs"][0]))
            for given in (whole_numbers if is_whole else numbers) or [()]:
                yield Case(TABLE[name], numbers=list(given), **case)

    return made


def unary(name, reference, dtypes=FLOATS, numbers=(), **options):
    how = {option: options.pop(option) for option in ("gradient", "values", "axes", "types", "whole_numbers") if option in options}
    cases = one_tensor(name, dtypes, numbers, **how)
    Operation(name, reference, cases, dtypes=dtypes, **options)


def inverse(m, x):
    return 1.0 / x


def gelu(m, x):
    return 0.5 * x * (1.0 + m.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(m, x):
    return 0.5 * x * (1.0 + m.erf(x / np.sqrt(2.0)))


def silu(m, x):
    return x * m.expit(x)


def size(x, *numbers):
    return x


def gelu_size(x):
    # Beyond, what is multiplied by x is 0 or 1.
    return np.clip(np.abs(x), 0.0, 8.0)


def gaussian(x):
    return np.exp(-(x**2))


def gelu_derivative(x):
    bounded = np.clip(x, -50, 50)
    t = np.tanh(np.sqrt(2 / np.pi) * (bounded + 0.044715 * bounded**3))
    return 0.5 * (1 + t) + 0.5 * bounded * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * bounded**2)


def gelu_erf_derivative(x):
    bounded = np.clip(x, -50, 50)
    return 0.5 * (1 + NUMPY.erf(bounded / np.sqrt(2))) + bounded * np.exp(-bounded * bounded / 2) / np.sqrt(2 * np.pi)


def silu_derivative(x):
    s = NUMPY.expit(x)
    return s + np.clip(x, -1000, 1000) * s * (1 - s)


def silu_size(x):
    # What underflows on the way is multiplied by x.
    return np.abs(x) * 1e-37


unary("Tensor::recip", inverse, signed_zeros=True, derivative=lambda x: -1 / x / x)
unary("Tensor::neg", lambda m, x: -x, refuses=INTEGERS, dtypes=ALL, signed_zeros=True, derivative=lambda x: -np.ones_like(x))
unary("Tensor::exp", lambda m, x: m.exp(x), ulps=2, derivative=np.exp)
unary("Tensor::log", lambda m, x: m.log(x), ulps=2, derivative=lambda x: 1 / x)
unary("Tensor::sin", lambda m, x: m.sin(x), ulps=2, derivative=np.cos)
unary("Tensor::cos", lambda m, x: m.cos(x), ulps=2, derivative=lambda x: -np.sin(x))
unary("Tensor::tanh", lambda m, x: m.tanh(x), ulps=2, derivative=lambda x: 1 - np.tanh(x) ** 2, gradient_scale="incoming")
unary("Tensor::abs", lambda m, x: m.abs(x), dtypes=ALL, signed_zeros=True, derivative=np.sign)
unary("Tensor::sqr", lambda m, x: x * x, dtypes=ALL, refuses=INTEGERS, derivative=lambda x: 2 * x)
unary("Tensor::sqrt", lambda m, x: m.sqrt(x), signed_zeros=True, derivative=lambda x: 0.5 / np.sqrt(x))
unary("Tensor::gelu", gelu, ulps=3, scale=gelu_size, derivative=gelu_derivative, gradient_scale="incoming", gradient_ulps=128)
unary("Tensor::gelu_erf", gelu_erf, ulps=3, scale=gelu_size, derivative=gelu_erf_derivative, gradient_scale="incoming", gradient_ulps=32)
unary("Tensor::erf", lambda m, x: m.erf(x), ulps=2, derivative=lambda x: 2 / np.sqrt(np.pi) * gaussian(x), gradient_scale="incoming")
unary("Tensor::relu", lambda m, x: m.relu(x), dtypes=ALL, derivative=lambda x: (x > 0) * 1.0)
unary("Tensor::silu", silu, ulps=3, scale=silu_size, derivative=silu_derivative, gradient_scale="incoming")
unary("Tensor::ceil", lambda m, x: m.ceil(x) if x.dtype == np.float64 else x, dtypes=ALL, signed_zeros=True, refuses_gradient=True,
      derivative=np.zeros_like)
unary("Tensor::floor", lambda m, x: m.floor(x) if x.dtype == np.float64 else x, dtypes=ALL, signed_zeros=True, derivative=np.zeros_like)
unary("Tensor::round", lambda m, x: m.round(x) if x.dtype == np.float64 else x, dtypes=ALL, signed_zeros=True, derivative=np.zeros_like)
unary("Tensor::sign", lambda m, x: m.sign(x), dtypes=ALL, derivative=np.zeros_like)


def moderate(draw, dtype):
    """Numbers that stay finite when they are multiplied by a thousand."""
    array = kinds.elements(draw, dtype)
    return array if not kinds.is_float(dtype) else kinds.rounded(np.where(np.abs(array.astype(float)) > 60, 1.25, array.astype(float)), dtype)


def rounded_to(m, x, decimals):
    return m.round(x * 10.0**decimals) / 10.0**decimals if x.dtype == np.float64 else np.round(x, decimals)


def power(m, x, e):
    # With a number as exponent, NumPy takes a root for a half, which is another function at -inf.
    return m.power(x, m.full_like(x, e))


def quotient(m, x, y):
    """Rust's quotient of integers, which is rounded towards 0."""
    if m.is_jax or np.asarray(x).dtype == np.float64:
        return x / y
    x, y = np.broadcast_arrays(x, np.asarray(y, x.dtype))
    whole = x // y
    return whole + ((x % y != 0) & ((x < 0) != (y < 0))).astype(x.dtype)


def whole(function):
    """The same with a number of the type of an integer."""
    return lambda m, x, *numbers: function(m, x, *(x.dtype.type(number) if x.dtype.kind in "iu" else number for number in numbers))


BOUNDS = dict(dtypes=ALL, whole_numbers=[(2,)])
def apart_from_halves(draw, dtype):
    """Without numbers that a product with 100 rounds to a half."""
    array = moderate(draw, dtype)
    if not kinds.is_float(dtype):
        return array
    with np.errstate(all="ignore"):
        hundreds = array.astype(np.float64) * 100.0
        is_half = np.abs(hundreds - np.floor(hundreds) - 0.5) <= 1e-6 * np.abs(hundreds)
    return np.where(is_half, array.dtype.type(0.25), array)


unary("Tensor::round_to", rounded_to, numbers=[(2,), (-1,)], dtypes=ALL, refuses=INTEGERS, values=apart_from_halves, ulps=2, scale=size, gradient=False)
unary("Tensor::affine", whole(lambda m, x, a, b: x * a + b), numbers=[(2.5, -0.75)], dtypes=ALL, whole_numbers=[(3, 5)], ulps=1,
      scale=lambda x, a, b: np.abs(x * a) + abs(b), derivative=lambda x, a, b: np.full_like(x, a))
unary("Tensor::elu", lambda m, x, a: m.where(x > 0, x, a * m.expm1(m.where(x > 0, 0.0, x))), numbers=[(0.75,)], ulps=3,
      derivative=lambda x, a: np.where(x > 0, 1.0, a * np.exp(np.minimum(x, 0))), gradient_scale="incoming")
unary("Tensor::powf", power, numbers=[(2.0,), (0.0,), (-1.0,), (2.5,), (0.5,), (3.0,)], ulps=2,
      derivative=lambda x, e: e * np.power(x, np.full_like(x, e - 1)) if e else np.zeros_like(x))
unary("Tensor::clamp", lambda m, x, low, high: m.minimum(m.maximum(x, low), high), numbers=[(-1.5, 2.0)], dtypes=ALL, whole_numbers=[(2, 5)])
unary("Tensor::maximum (number)", lambda m, x, y: m.maximum(x, y), numbers=[(0.5,), (float("nan"),)], **BOUNDS)
unary("Tensor::minimum (number)", lambda m, x, y: m.minimum(x, y), numbers=[(0.5,), (float("nan"),)], **BOUNDS)
NUMBER = dict(numbers=[(1.5,)], dtypes=ALL, whole_numbers=[(2,)])
unary("Tensor + f64", whole(lambda m, x, y: x + y), derivative=lambda x, y: np.ones_like(x), **NUMBER)
unary("Tensor - f64", whole(lambda m, x, y: x - y), derivative=lambda x, y: np.ones_like(x), **NUMBER)
unary("Tensor * f64", whole(lambda m, x, y: x * y), derivative=lambda x, y: np.full_like(x, y), **NUMBER)
unary("Tensor / f64", quotient, ulps=1, derivative=lambda x, y: np.full_like(x, 1 / y), **{**NUMBER, "numbers": [(3.0,)]})
unary("f64 + Tensor", whole(lambda m, x, y: x + y), derivative=lambda x, y: np.ones_like(x), **NUMBER)
unary("f64 - Tensor", whole(lambda m, x, y: y - x), derivative=lambda x, y: -np.ones_like(x), refuses=INTEGERS, **NUMBER)
unary("f64 * Tensor", whole(lambda m, x, y: x * y), derivative=lambda x, y: np.full_like(x, y), **NUMBER)
unary("f64 / Tensor", lambda m, x, y: y / x, numbers=[(3.0,)], ulps=1, derivative=lambda x, y: -y / x / x)
for symbol, function in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}.items():
    name = f"Tensor::{symbol} (number)"
    unary(name, lambda m, x, y, function=function: function(x, y), numbers=[(1.0,)], dtypes=ALL, result="u8", gradient=False)


def converted(m, x, dtype):
    """Rust's `as`: floats saturate, NaN is 0, and integers lose their high bits."""
    to = kinds.DTYPES[dtype]
    if kinds.is_float(dtype):
        return x.astype(np.float64) if m.is_jax is False else x
    if x.dtype != np.float64:
        return x.astype(to)
    info = np.iinfo(to)
    whole = np.nan_to_num(np.trunc(x), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # The largest i64 is no f64: beyond it, the comparison decides and not the conversion.
    inside = np.clip(whole, float(info.min), np.nextafter(float(info.max) + 1, 0)).astype(to)
    return np.where(whole >= float(info.max), to.type(info.max), np.where(whole <= float(info.min), to.type(info.min), inside))


unary("Tensor::to_dtype", converted, numbers=[(dtype,) for dtype in ALL], dtypes=ALL, result=lambda case: case.numbers[0], gradient=False,
      signed_zeros=True)


def two_tensors(name, dtypes, broadcast, gradient, values=None):
    """Pairs of special numbers through each view; one element, none, and a million."""

    def cases(draw):
        for dtype in ALL:
            pair = kinds.pairs(draw, dtype) if values is None else values(draw, dtype)
            if not broadcast:
                pair = [np.array(array) for array in np.broadcast_arrays(*pair)]
            axes = ("ab", "ab")
            with_gradient = gradient and kinds.is_float(dtype)
            for view in VIEWS if dtype in dtypes else VIEWS[:1]:
                yield Case(TABLE[name], list(pair), view=view, axes=axes, gradient=with_gradient and view in ("whole", "transposed"))
            if dtype in dtypes:
                yield Case(TABLE[name], [array[:1, :1] for array in pair], axes=axes, gradient=False)
                yield Case(TABLE[name], [array[:0] if len(array) > 1 else array for array in pair], axes=axes, gradient=False)
        if "f32" in dtypes and not broadcast:
            large = [kinds.rounded(draw.normal(size=LARGE), "f32") for _ in range(2)]
            yield Case(TABLE[name], large, axes=("a", "a"), gradient=False)

    return cases


def binary(names, reference, dtypes=ALL, gradient=True, values=None, **options):
    for name in names:
        Operation(name, reference, two_tensors(name, dtypes, "broadcast" in name, gradient, values), dtypes=dtypes, **options)


def without_zero(draw, dtype):
    """A divisor of integers that is not 0, and no quotient that does not fit."""
    column, row = kinds.pairs(draw, dtype)
    if kinds.is_float(dtype):
        return column, row
    info = np.iinfo(row.dtype)
    row = np.where(row == 0, 3, row).astype(row.dtype)
    return np.where(column == info.min, 2, column).astype(column.dtype), row


binary(["Tensor::add", "Tensor + Tensor", "Tensor::broadcast_add"], lambda m, x, y: x + y)
binary(["Tensor::sub", "Tensor - Tensor", "Tensor::broadcast_sub"], lambda m, x, y: x - y)
binary(["Tensor::mul", "Tensor * Tensor", "Tensor::broadcast_mul"], lambda m, x, y: x * y, signed_zeros=True)
binary(["Tensor::div", "Tensor / Tensor", "Tensor::broadcast_div"], quotient, values=without_zero)
binary(["Tensor::maximum", "Tensor::broadcast_maximum"], lambda m, x, y: m.maximum(x, y))
binary(["Tensor::minimum", "Tensor::broadcast_minimum"], lambda m, x, y: m.minimum(x, y))
binary(["Tensor::pow", "Tensor::broadcast_pow"], lambda m, x, y: m.power(x, y), dtypes=FLOATS, ulps=3, gradient_ulps=64)
for symbol, function in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}.items():
    names = [f"Tensor::{symbol}", f"Tensor::broadcast_{symbol}"] + (["Tensor::cmp"] if symbol == "lt" else [])
    binary(names, lambda m, x, y, function=function: function(x, y), result="u8", gradient=False)


def three(name, conditions):
    def cases(draw):
        for dtype in ALL:
            shape = (8, 24)
            first, second, third = (kinds.elements(draw, dtype, shape) for _ in range(3))
            if conditions:
                for condition in ("u8", "u32", "i64") if dtype == "f32" else ("u8",):
                    mask = draw.integers(0, 3, shape).astype(kinds.DTYPES[condition])
                    for view in VIEWS:
                        yield Case(TABLE[name], [mask, second, third], view=view, axes=("ab",) * 3, gradient=kinds.is_float(dtype))
            else:
                yield Case(TABLE[name], [first, second, third], axes=("ab",) * 3, gradient=kinds.is_float(dtype))

    return cases


def result_of_second(case):
    return kinds.name_of(case.inputs[1])


Operation("Tensor::where_cond", lambda m, c, x, y: m.where(c != 0, x, y), three("Tensor::where_cond", True), dtypes=(), signed_zeros=True,
          result=result_of_second)
Operation("Tensor::clamp (tensors)", lambda m, x, low, high: m.minimum(m.maximum(x, low), high), three("Tensor::clamp (tensors)", False),
          dtypes=ALL)


def hard_sigmoid(m, x):
    return m.minimum(m.maximum((x + 3.0) / 6.0, 0.0), 1.0)


def mish(m, x):
    return x * m.tanh(m.logaddexp(x, 0.0))


def leaky(m, x, slope):
    return m.where(x >= 0, x, slope * x)


def swiglu(m, x):
    left, right = m.split(x, 2, axis=-1)
    return silu(m, left) * right


def relu6(m, x):
    return m.minimum(m.maximum(x, 0.0), 6.0)


ACTIVATIONS = {
    "Gelu": gelu_erf, "NewGelu": gelu, "Relu": lambda m, x: m.relu(x), "Relu2": lambda m, x: m.relu(x) ** 2, "Relu6": relu6,
    "Silu": silu, "Sigmoid": lambda m, x: m.expit(x), "HardSigmoid": hard_sigmoid, "Swiglu": swiglu, "Swish": silu, "Mish": mish,
    "HardSwish": lambda m, x: x * hard_sigmoid(m, x), "Elu": lambda m, x: m.where(x > 0, x, m.expm1(m.where(x > 0, 0.0, x))),
    "LeakyRelu": lambda m, x: leaky(m, x, 0.01), "GeluPytorchTanh": gelu,
}


unary("candle_nn::ops::silu", silu, ulps=3, scale=silu_size, derivative=silu_derivative, gradient_scale="incoming")
unary("candle_nn::ops::swiglu", swiglu, axes="a.", ulps=4, half_ulps=2, gradient_scale="all")
unary("candle_nn::ops::sigmoid", lambda m, x: m.expit(x), ulps=2, derivative=lambda x: NUMPY.expit(x) * NUMPY.expit(-x), gradient_scale="incoming")
unary("candle_nn::ops::hard_sigmoid", hard_sigmoid, ulps=1, scale=lambda x: np.clip(np.abs(x), 3.0, 6.0) / 6.0)
unary("candle_nn::ops::softplus", lambda m, x: m.logaddexp(x, 0.0), ulps=4, half_ulps=1, derivative=lambda x: NUMPY.expit(x), gradient_scale="incoming")
unary("candle_nn::ops::mish", mish, ulps=4, half_ulps=2, gradient_ulps=32, gradient_scale="incoming")
unary("candle_nn::ops::leaky_relu", leaky, numbers=[(0.125,)], ulps=1, derivative=lambda x, slope: np.where(x >= 0, 1.0, slope))
unary("candle_nn::ops::selu", lambda m, x, a, g: g * m.where(x > 0, x, a * m.expm1(m.where(x > 0, 0.0, x))), numbers=[(1.625, 1.0625)], ulps=4,
      derivative=lambda x, a, g: g * np.where(x > 0, 1.0, a * np.exp(np.minimum(x, 0))))
unary("candle_nn::activation::Activation::forward", lambda m, x, kind: ACTIVATIONS[kind](m, x), numbers=[(kind,) for kind in ACTIVATIONS], axes="a.", types=FLOATS,
      ulps=4, half_ulps=2, scale=lambda x, kind: np.clip(np.abs(x), 0.0, 8.0) if "elu" in kind.lower() or kind.startswith("Hard") else None if kind == "Swiglu" else silu_size(x),
      gradient_ulps=256, gradient_scale="all")


def prelu(m, x, weight, is_scalar):
    shape = () if is_scalar else (1, -1)
    return m.where(x >= 0, x, x * weight.reshape(shape))


def prelu_cases(draw):
    for dtype in FLOATS:
        array = kinds.elements(draw, dtype)
        for view in VIEWS:
            yield Case(TABLE["candle_nn::activation::PReLU::forward"], [array, kinds.rounded([0.25], dtype)], [True], view, ("ab", "."))
        slopes = kinds.ordinary(draw, (24,), dtype)
        yield Case(TABLE["candle_nn::activation::PReLU::forward"], [array, slopes], [False], axes=("ab", "b"))


Operation("candle_nn::activation::PReLU::forward", prelu, prelu_cases, ulps=1, gradient_scale="all")
