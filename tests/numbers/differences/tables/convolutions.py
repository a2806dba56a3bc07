"""Convolutions, pools and resizing."""

import jax
import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import FLOATS
from differences.operation import TABLE, Operation
from differences.references import Refused

SHORT = dict(refuses_on_cpu=("bf16",), ulps=8, half_ulps=1, gradient_ulps=16, gradient_scale="all")


def convolution(x, kernel, stride, padding, dilation, groups, dilated=1):
    """JAX's convolution: the right value of NumPy, too, which has none."""
    rank = x.ndim - 2
    return jax.lax.conv_general_dilated(
        x, kernel, (stride,) * rank, padding, lhs_dilation=(dilated,) * rank, rhs_dilation=(dilation,) * rank, feature_group_count=groups,
        precision=jax.lax.Precision.HIGHEST)


def out(m, array):
    return array if m.is_jax else np.asarray(array)


def forward(m, x, kernel, padding, stride, dilation, groups):
    return out(m, convolution(x, kernel, stride, [(padding, padding)] * (x.ndim - 2), dilation, groups))


def backward(m, x, kernel, padding, output_padding, stride, dilation, groups=1):
    """A transposed convolution: zeros between the elements, and the kernel turned around."""
    size = kernel.shape[2:]
    turned = kernel[:, :, ::-1] if len(size) == 1 else kernel[:, :, ::-1, ::-1]
    # (in, out / groups, …) becomes (out, in / groups, …).
    parts = [part.swapaxes(0, 1) for part in m.split(turned, groups, axis=0)]
    turned = m.concatenate(parts, axis=0)
    reach = [dilation * (each - 1) for each in size]
    pads = [(each - padding, each - padding + output_padding) for each in reach]
    return out(m, convolution(x, turned, 1, pads, dilation, groups, dilated=stride))


def kernels(name, shapes, numbers, strange=True):
    def cases(draw):
        for place, (left, right) in enumerate(shapes):
            for dtype in FLOATS if place == 0 else ("f32",):
                pair = [kinds.ordinary(draw, left, dtype), kinds.ordinary(draw, right, dtype)]
                for given in numbers[place] if dtype in ("f32", "bf16") else numbers[place][:1]:
                    for view in VIEWS if given == numbers[place][0] else VIEWS[:1]:
                        yield Case(TABLE[name], pair, list(given), view, gradient=view in ("whole", "transposed"))
                if strange and place == 0:
                    odd = [array.copy() for array in pair]
                    odd[0].flat[3], odd[0].flat[17] = np.nan, np.inf
                    yield Case(TABLE[name], odd, list(numbers[0][0]), gradient=False)

    return cases


def reach(x, kernel, *numbers):
    """The sum of the sizes of what is added up, at most."""
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    return finite.max() * np.abs(kernel).reshape(len(kernel), -1).sum(axis=1).max()


ONE = [((2, 4, 9), (6, 4, 3)), ((2, 4, 9), (6, 2, 3)), ((1, 1, 3), (1, 1, 3))]
TWO = [((2, 4, 7, 6), (6, 4, 3, 2)), ((2, 4, 7, 6), (4, 1, 3, 3)), ((1, 2, 1, 1), (3, 2, 1, 1))]
# Padding, stride, dilation, groups.
ONE_NUMBERS = [[(1, 1, 1, 1), (0, 2, 1, 1), (2, 3, 2, 1), (3, 1, 3, 1)], [(1, 2, 1, 2)], [(0, 1, 1, 1), (4, 2, 1, 1)]]
TWO_NUMBERS = [[(1, 1, 1, 1), (0, 2, 1, 1), (2, 3, 2, 1)], [(1, 2, 1, 4)], [(0, 1, 1, 1), (1, 3, 1, 1)]]
for algo in ("", "_with_algo"):
    for rank, shapes, numbers in ((1, ONE, ONE_NUMBERS), (2, TWO, TWO_NUMBERS)):
        name = f"Tensor::conv{rank}d{algo}"
        cut = (lambda given: given) if not algo else (lambda given: given[:1])
        Operation(name, forward, kernels(name, cut(shapes), cut(numbers)), scale=reach, **SHORT)
TRANSPOSED = [((2, 4, 5), (4, 3, 3)), ((2, 4, 5), (4, 3, 3))]
Operation("Tensor::conv_transpose1d", backward,
          kernels("Tensor::conv_transpose1d", TRANSPOSED,
                  [[(1, 0, 1, 1, 1), (0, 0, 2, 1, 1), (1, 1, 3, 2, 1), (4, 0, 2, 1, 1)], [(1, 0, 2, 1, 2)]]), scale=reach, **SHORT)
Operation("Tensor::conv_transpose2d", backward,
          kernels("Tensor::conv_transpose2d", [((2, 4, 5, 3), (4, 3, 3, 2))], [[(1, 0, 1, 1), (0, 0, 2, 1), (1, 1, 3, 2)]]), scale=reach,
          **SHORT)


def layer(name, function, left, right, biases, numbers):
    def cases(draw):
        for dtype in FLOATS:
            tensors = [kinds.ordinary(draw, shape, dtype) for shape in (left, right, (biases,))]
            for given in numbers:
                yield Case(TABLE[name], tensors, list(given), gradient=dtype in ("f32", "bf16"))

    def reference(m, x, kernel, bias, padding, stride):
        return function(m, x, kernel, padding, stride) + bias.reshape((1, -1) + (1,) * (x.ndim - 2))

    Operation(name, reference, cases, scale=lambda x, k, b, *n: reach(x, k) + 3, refuses_on_cpu=("bf16",), ulps=8, half_ulps=2, gradient_ulps=16, gradient_scale="all")


PLAIN = lambda m, x, k, p, s: forward(m, x, k, p, s, 1, 1)
TURNED = lambda m, x, k, p, s: backward(m, x, k, p, 0, s, 1)
layer("candle_nn::conv::Conv1d::forward", PLAIN, (2, 4, 9), (6, 4, 3), 6, [(1, 2)])
layer("candle_nn::conv::Conv2d::forward", PLAIN, (2, 4, 7, 6), (6, 4, 3, 2), 6, [(1, 2)])
layer("candle_nn::conv::ConvTranspose1d::forward", TURNED, (2, 4, 5), (4, 3, 3), 3, [(1, 2)])
layer("candle_nn::conv::ConvTranspose2d::forward", TURNED, (2, 4, 5, 3), (4, 3, 3, 2), 3, [(1, 2)])


def absorbed(m, x, kernel, bias, mean, variance, weight, shift, epsilon):
    def channel(array):
        return array.reshape((1, -1, 1, 1))

    plain = PLAIN(m, x, kernel, 0, 1) + channel(bias)
    right = (plain - channel(mean)) / m.sqrt(channel(variance) + epsilon) * channel(weight) + channel(shift)
    return [right, right]


def absorbed_cases(draw):
    for dtype in ("f32", "f64"):
        tensors = [kinds.ordinary(draw, shape, dtype) for shape in ((2, 3, 5, 4), (6, 3, 2, 2), *[(6,)] * 5)]
        tensors[4] = np.abs(tensors[4]) + 0.5
        yield Case(TABLE["candle_nn::conv::Conv2d::absorb_bn"], tensors, [2.0**-17], gradient=False)


Operation("candle_nn::conv::Conv2d::absorb_bn", absorbed, absorbed_cases, ulps=16, scale=lambda x, *rest: 50.0)


def pooled(kind):
    def reference(m, x, kernel_h, kernel_w, stride_h=None, stride_w=None):
        stride_h, stride_w = stride_h or kernel_h, stride_w or kernel_w
        height, width = x.shape[2:]
        if height < kernel_h or width < kernel_w:
            raise Refused("")
        rows, columns = (height - kernel_h) // stride_h + 1, (width - kernel_w) // stride_w + 1
        window, strides = (1, 1, kernel_h, kernel_w), (1, 1, stride_h, stride_w)
        if m.is_jax and kind == "max":
            return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, "VALID")
        parts = [x[:, :, i : i + stride_h * (rows - 1) + 1 : stride_h, j : j + stride_w * (columns - 1) + 1 : stride_w]
                 for i in range(kernel_h) for j in range(kernel_w)]
        stacked = m.stack(parts)
        return m.max(stacked, axis=0) if kind == "max" else m.mean(stacked, axis=0)

    return reference


def images(draw, dtype, shape=(2, 3, 7, 6)):
    """Ordinary numbers, ties, and in one channel what is not finite."""
    array = kinds.ordinary(draw, shape, dtype)
    if kinds.is_float(dtype):
        array[1, 1] = 1.5
        array[1, 2] = -np.inf
        array[1, 0, 2, 3], array[0, 1, 2, 3], array[0, 2, 0, 0] = np.nan, np.inf, -np.inf
    return array


def over_images(name, reference, numbers, dtypes=FLOATS, shape=(2, 3, 7, 6), gradient=True, **options):
    def cases(draw):
        for dtype in dtypes:
            array = images(draw, dtype, shape)
            # Which element of a window is the greatest beside a NaN, and so has the gradient, JAX leaves open.
            differentiable = np.where(np.isnan(array), array.dtype.type(0.25), array) if "max_pool" in name else array
            for given in numbers:
                for view in VIEWS[:3] if given == numbers[0] else VIEWS[:1]:
                    with_gradient = gradient and kinds.is_float(dtype) and view == "whole"
                    yield Case(TABLE[name], [differentiable if with_gradient else array], list(given), view, gradient=with_gradient)

    Operation(name, reference, cases, dtypes=dtypes, **options)


for kind in ("avg", "max"):
    ulps = dict(ulps=4, half_ulps=1, scale=lambda x, *n: 3.0) if kind == "avg" else {}
    over_images(f"Tensor::{kind}_pool2d", pooled(kind), [(2, 2), (3, 2), (7, 6), (8, 6)], gradient_ulps=4, **ulps)
    over_images(f"Tensor::{kind}_pool2d_with_stride", pooled(kind), [(3, 2, 2, 1), (2, 2, 3, 3), (1, 1, 2, 2)], gradient_ulps=4,
                gradient_scale="all", **ulps)


def nearest(m, x, *target):
    """The element in the middle of what a new one covers, rounded down: i * size / target."""
    for dim, size in enumerate(target, start=2):
        x = m.take(x, np.array([i * x.shape[dim] // size for i in range(size)], int), axis=dim)
    return x


for name in ("interpolate", "upsample_nearest"):
    over_images(f"Tensor::{name}2d", nearest, [(14, 12), (5, 9), (7, 6), (3, 2), (1, 1)], gradient_ulps=4, gradient_scale="all")

    def lines(draw, name=f"Tensor::{name}1d"):
        for dtype in FLOATS:
            array = images(draw, dtype).reshape(2, 3, 42)[:, :, :11].copy()
            for given in (22, 7, 11, 1, 33):
                yield Case(TABLE[name], [array], [given], gradient=True)

    Operation(f"Tensor::{name}1d", nearest, lines, gradient_ulps=4, gradient_scale="all")


def positions(size, target, align, scale=None):
    """Where each new element lies among the old ones, as in PyTorch."""
    if align:
        return np.arange(target) * ((size - 1) / (target - 1) if target > 1 else 0.0)
    ratio = 1 / scale if scale else size / target
    return np.maximum((np.arange(target) + 0.5) * ratio - 0.5, 0.0)


def bilinear(m, x, target, align, scales=(None, None)):
    for dim, (size, scale) in enumerate(zip(target, scales), start=2):
        place = positions(x.shape[dim], size, align, scale)
        low = np.minimum(np.floor(place).astype(int), x.shape[dim] - 1)
        high = np.minimum(low + 1, x.shape[dim] - 1)
        share = (place - low).reshape((-1,) + (1,) * (x.ndim - 1 - dim))
        x = m.take(x, low, axis=dim) * (1 - share) + m.take(x, high, axis=dim) * share
    return x


def smooth(draw, dtype, shape):
    return kinds.ordinary(draw, shape, dtype)


def bilinear_cases(name, numbers):
    def cases(draw):
        for dtype in FLOATS:
            for given in numbers:
                yield Case(TABLE[name], [smooth(draw, dtype, (2, 3, 4, 5))], list(given), gradient=True)

    return cases


BILINEAR = dict(ulps=16, half_ulps=2, scale=lambda x, *n: 3.0, refuses_gradient=True)
Operation("Tensor::upsample_bilinear2d", lambda m, x, h, w, a: bilinear(m, x, (h, w), a),
          bilinear_cases("Tensor::upsample_bilinear2d", [(8, 10, False), (7, 3, False), (7, 9, True), (1, 1, True), (4, 5, False)]), **BILINEAR)
Operation("Tensor::upsample_bilinear2d_with_scale",
          lambda m, x, h, w, a: bilinear(m, x, (int(x.shape[2] * h), int(x.shape[3] * w)), a, (h, w)),
          bilinear_cases("Tensor::upsample_bilinear2d_with_scale", [(2.0, 2.0, False), (1.5, 2.5, False), (2.0, 1.5, True)]), **BILINEAR)


def shuffle(m, x, factor):
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels // factor**2, factor, factor, height, width)
    return m.transpose(x, (0, 1, 4, 2, 5, 3)).reshape(batch, channels // factor**2, height * factor, width * factor)


def unshuffle(m, x, factor):
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // factor, factor, width // factor, factor)
    return m.transpose(x, (0, 1, 3, 5, 2, 4)).reshape(batch, channels * factor**2, height // factor, width // factor)


over_images("candle_nn::ops::pixel_shuffle", shuffle, [(2,)], shape=(2, 8, 3, 5), dtypes=(*FLOATS, "u8", "i64"), gradient_ulps=2)
over_images("candle_nn::ops::pixel_unshuffle", unshuffle, [(2,)], shape=(2, 3, 6, 4), dtypes=(*FLOATS, "u8", "i64"), gradient_ulps=2)


def replicated(m, x, pad):
    return m.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], mode="edge")


over_images("candle_nn::ops::replication_pad2d", replicated, [(0,), (1,)], gradient_ulps=4, gradient_scale="all")
