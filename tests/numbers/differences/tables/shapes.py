"""Tensors from numbers, views, and what only moves elements."""

import math

import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import ALL, FLOATS
from differences.operation import TABLE, Operation
from differences.references import Refused



def made(name, reference, numbers, **options):
    """A tensor that is made from numbers alone."""

    def cases(draw):
        for given in numbers:
            yield Case(TABLE[name], [], list(given), gradient=False)

    # Loops over numbers run on the host, whatever the device.
    Operation(name, reference, cases, dtypes=(), plugin="arange" not in name, **options)


def dtype_at(place):
    return lambda case: case.numbers[place]


KINDS = [((2, 3), dtype) for dtype in ALL] + [((), "f32"), ((0, 4), "f32"), ((3,), "i64")]
made("Tensor::ones", lambda m, s, d: np.ones(s), KINDS, result=dtype_at(1), signed_zeros=True)
made("Tensor::zeros", lambda m, s, d: np.zeros(s), KINDS, result=dtype_at(1), signed_zeros=True)
made("Tensor::full", lambda m, v, s: np.full(s, v), [(2.5, (2, 3)), (-0.0, (4,)), (float("nan"), (2, 2)), (float("inf"), (1,)), (1.5, (0, 3))],
     result="f32", signed_zeros=True)
made("Tensor::full (i64)", lambda m, v, s: np.full(s, v), [(2**62 + 1, (2, 3)), (-(2**63), (4,))], result="i64")


def counted(dtype):
    """ceil((end - start) / step) elements, each start + i step, computed in f64."""

    def reference(m, start, end, step=1):
        to = kinds.DTYPES[dtype]
        if kinds.is_float(dtype):
            start, end, step = (float(to.type(number)) for number in (start, end, step))
            if step == 0 or not all(map(math.isfinite, (start, end, step))):
                raise Refused("")
            return start + np.arange(max(0, math.ceil((end - start) / step))) * step
        if step == 0:
            raise Refused("")
        return np.array(range(start, end, step), to)

    return reference


WHOLE = [(0, 10), (3, 3), (5, 2), (250, 255)]
made("Tensor::arange", counted("f32"), [(0.0, 5.0), (0.5, 4.25), (3.0, 3.0), (4.0, 1.0), (16777210.0, 16777220.0), (-1e-3, 2.0),
                                        (float("-inf"), 0.0)], result="f32", ulps=1)
made("Tensor::arange (f64)", counted("f64"), [(0.0, 5.0), (0.1, 4.25)], result="f64")
made("Tensor::arange (u8)", counted("u8"), WHOLE, result="u8")
made("Tensor::arange (i64)", counted("i64"), [*WHOLE, (-5, 5), (2**63 - 4, 2**63 - 1)], result="i64")
STEPS = [(0.0, 1.0, 0.1), (0.0, 10.0, 0.3), (1.0, 0.0, -0.1), (0.0, 1.0, -0.5), (0.0, 1.0, 0.0), (0.0, 100.0, 0.01), (1.0, 2.0, 0.25),
         (16777216.0, 16777220.0, 0.5)]
made("Tensor::arange_step", counted("f32"), STEPS, result="f32", ulps=1)
made("Tensor::arange_step (f64)", counted("f64"), STEPS, result="f64", ulps=1)
made("Tensor::arange_step (f16)", counted("f16"), [(0.0, 1.0, 0.125), (0.0, 10.0, 0.3), (2048.0, 2052.0, 0.5)], result="f16", ulps=1)
made("Tensor::arange_step (u8)", counted("u8"), [(0, 250, 100), (0, 255, 2), (5, 0, 3), (0, 5, 0)], result="u8")
made("Tensor::arange_step (i64)", counted("i64"), [(0, 10, 3), (10, 0, -3), (2**63 - 5, 2**63 - 1, 3), (-(2**63) + 4, -(2**63), -3), (0, 5, 0)],
     result="i64")
SQUARES = [(size, dtype) for dtype in ALL for size in (4,)] + [(0, "f32"), (1, "f32")]
made("Tensor::eye", lambda m, n, d: np.eye(n), SQUARES, result=dtype_at(1), signed_zeros=True)
made("Tensor::tril2", lambda m, n, d: np.tril(np.ones((n, n))), SQUARES, result=dtype_at(1), signed_zeros=True)
made("Tensor::triu2", lambda m, n, d: np.triu(np.ones((n, n))), SQUARES, result=dtype_at(1), signed_zeros=True)
made("Tensor::new", lambda m: np.array([[1, np.nan, -0.0], [np.inf, 1e-45, -kinds.limits("f32").max]]), [()], result="f32", signed_zeros=True)
made("Tensor::from_vec", lambda m: np.array([[1, np.nan], [-0.0, kinds.limits("f64").max]]), [()], result="f64", signed_zeros=True)
made("Tensor::from_slice", lambda m: np.array([-(2**63), 0, 2**63 - 1]), [()], result="i64")
made("Tensor::from_iter", lambda m: np.array([0, 1, 255]), [()], result="u8")


def cube(draw, dtype, shape=(4, 3, 5)):
    """The special numbers first, so that no bit of them may change."""
    return kinds.elements(draw, dtype, shape)


def moved(name, reference, numbers, *, shapes=((4, 3, 5),), dtypes=ALL, gradient=True, draw_shape=cube, views=VIEWS, **options):
    """What moves elements: bits stay the same, of each type and through each view."""

    def cases(draw):
        for dtype in dtypes:
            arrays = [draw_shape(draw, dtype, shape) for shape in shapes]
            for given in numbers:
                for view in views:
                    yield Case(TABLE[name], arrays, list(given), view, gradient=gradient and kinds.is_float(dtype) and view != "strided")

    Operation(name, reference, cases, dtypes=(), signed_zeros=True, gradient_ulps=2, **options)


def slices(array, dim, start, size):
    place = [slice(None)] * array.ndim
    place[dim] = slice(start, start + size)
    return tuple(place)


def chunks(m, x, count, dim):
    size = x.shape[dim]
    parts = np.array_split(np.arange(size), min(count, size))
    return [m.take(x, part, axis=dim) for part in parts]


moved("Tensor::reshape", lambda m, x, s: m.reshape(x, tuple(s)), [((5, 12),), ((60,),), ((2, 2, 3, 5),)])
moved("Tensor::flatten", lambda m, x, a, b: m.reshape(x, (12, 5)), [(0, 1)])
moved("Tensor::flatten_to", lambda m, x, a: m.reshape(x, (12, 5)), [(1,)])
moved("Tensor::flatten_from", lambda m, x, a: m.reshape(x, (4, 15)), [(1,)])
moved("Tensor::flatten_all", lambda m, x: m.reshape(x, (-1,)), [()])
moved("Tensor::squeeze", lambda m, x, d: m.squeeze(x, axis=d), [(1,)], shapes=((4, 1, 5),))
moved("Tensor::unsqueeze", lambda m, x, d: m.expand_dims(x, d), [(0,), (1,), (3,)])
moved("Tensor::t", lambda m, x: m.swapaxes(x, -1, -2), [()])
moved("Tensor::transpose", lambda m, x, a, b: m.swapaxes(x, a, b), [(0, 2), (0, 1), (1, 1)])
moved("Tensor::permute", lambda m, x, d: m.transpose(x, tuple(d)), [((2, 0, 1),)])
moved("Tensor::narrow", lambda m, x, d, start, size: x[slices(x, d, start, size)], [(0, 1, 2), (1, 2, 1), (2, 0, 5), (2, 4, 0)])
moved("Tensor::chunk", chunks, [(2, 0), (3, 2), (7, 2)])
moved("Tensor::get", lambda m, x, i: x[i], [(2,)])
moved("Tensor::get_on_dim", lambda m, x, d, i: m.take(x, i, axis=d), [(1, 2), (2, 0)])
moved("Tensor::i", lambda m, x, a, b: x[:, a:b], [(1, 3)])
moved("Tensor::i (index)", lambda m, x, i: x[i], [(3,)])
moved("Tensor::broadcast_as", lambda m, x, s: m.broadcast_to(x, tuple(s)), [((2, 4, 3, 5),), ((4, 3, 5),)], shapes=((4, 1, 5),))
moved("Tensor::expand", lambda m, x, s: m.broadcast_to(x, tuple(s)), [((2, 4, 3, 5),)], shapes=((4, 1, 5),))
moved("Tensor::broadcast_left", lambda m, x, s: m.broadcast_to(x, (*s, *x.shape)), [((2, 3),)])


def unfold(m, x, dim, size, step):
    count = (x.shape[dim] - size) // step + 1
    windows = [m.moveaxis(x[slices(x, dim, i * step, size)], dim, -1) for i in range(count)]
    return m.stack(windows, axis=dim)


moved("Tensor::unfold", unfold, [(2, 3, 1), (0, 2, 2), (2, 2, 2)])
for name in ("copy", "contiguous", "force_contiguous", "to_device"):
    moved(f"Tensor::{name}", lambda m, x: x, [()])
moved("Tensor::detach", lambda m, x: x, [()], gradient=False)
moved("Tensor::ones_like", lambda m, x: np.ones(x.shape), [()], gradient=False)
moved("Tensor::zeros_like", lambda m, x: np.zeros(x.shape), [()], gradient=False)
moved("Tensor::cat", lambda m, *x: m.concatenate(x[:-1], axis=x[-1]), [(0,), (1,), (2,)], shapes=((4, 3, 5), (4, 3, 5), (4, 3, 5)))
moved("Tensor::cat (sizes)", lambda m, *x: m.concatenate(x[:-1], axis=x[-1]), [(1,)], shapes=((4, 3, 5), (4, 0, 5), (4, 1, 5)))
moved("Tensor::stack", lambda m, *x: m.stack(x[:-1], axis=x[-1]), [(0,), (1,), (3,)], shapes=((4, 3, 5), (4, 3, 5)))
moved("Tensor::repeat", lambda m, x, s: m.tile(x, tuple(s)), [((2, 1, 3),), ((2, 1, 1, 2),), ((1, 0, 1),)])


def grids(m, x, y, z, xy):
    return list(m.meshgrid(x, y, z, indexing="xy" if xy else "ij"))


moved("Tensor::meshgrid (three)", grids, [(True,), (False,)], shapes=((3,), (4,), (2,)))
moved("Tensor::meshgrid", lambda m, x, y, xy: list(m.meshgrid(x, y, indexing="xy" if xy else "ij")), [(True,), (False,)], shapes=((3,), (4,)))
moved("Tensor::roll", lambda m, x, shift, d: m.roll(x, shift, axis=d), [(1, 0), (-2, 2), (7, 1), (0, 0)])
moved("Tensor::flip", lambda m, x, d: m.flip(x, tuple(d)), [((0,),), ((1, 2),)])


def padded(mode):
    def reference(m, x, dim, left, right):
        sizes = [(0, 0)] * x.ndim
        sizes[dim] = (left, right)
        return m.pad(x, sizes, mode=mode)

    return reference


moved("Tensor::pad_with_zeros", padded("constant"), [(0, 1, 2), (2, 0, 3), (1, 0, 0)])
moved("Tensor::pad_with_same", padded("edge"), [(0, 1, 2), (2, 0, 3), (1, 0, 0)])


def assigned(m, x, y, a, b, c, d):
    if m.is_jax:
        return x.at[a:b, c:d].set(y)
    x = x.copy()
    x[a:b, c:d] = y
    return x


def placed(m, x, y, dim, start):
    place = slices(x, dim, start, y.shape[dim])
    if m.is_jax:
        return x.at[place].set(y)
    x = x.copy()
    x[place] = y
    return x


moved("Tensor::slice_assign", assigned, [(1, 3, 2, 5)], shapes=((4, 6), (2, 3)))
moved("Tensor::slice_scatter", placed, [(0, 1), (0, 2)], shapes=((4, 3, 5), (2, 3, 5)))
moved("Tensor::slice_scatter (columns)", placed, [(2, 1)], shapes=((4, 3, 5), (4, 3, 2)))
moved("Tensor::slice_scatter0", lambda m, x, y, start: placed(m, x, y, 0, start), [(0,), (2,)], shapes=((4, 3, 5), (2, 3, 5)))
# What is changed in place is contiguous.
moved("Tensor::slice_set", placed, [(0, 1)], shapes=((4, 3, 5), (2, 3, 5)), gradient=False, views=VIEWS[:1])
moved("Tensor::slice_set (columns)", placed, [(2, 3)], shapes=((4, 3, 5), (4, 3, 2)), gradient=False, views=VIEWS[:1])
moved("Tensor::const_set", lambda m, x, v: np.full(x.shape, v), [(2.5,), (-0.0,), (float("nan"),)], dtypes=("f64",), gradient=False)
moved("Tensor::zero_set", lambda m, x: np.zeros(x.shape), [()], gradient=False)
moved("Tensor::one_set", lambda m, x: np.ones(x.shape), [()], gradient=False)
for rank, shape in ((0, ()), (1, (7,)), (2, (3, 5)), (3, (2, 3, 5))):
    names = [f"Tensor::to_vec{rank}"] + (["Tensor::to_scalar"] if rank == 0 else [])
    for name in names:
        moved(name, lambda m, x: x, [()], shapes=(shape,), dtypes=("f32",), gradient=False, plugin=False,
              draw_shape=lambda draw, dtype, shape: kinds.elements(draw, dtype, (8, 24)).reshape(-1)[: int(np.prod(shape))].reshape(shape))




def outside(m, x, *numbers):
    raise Refused("")


def refused(name, shapes, numbers, dtype="f32"):
    """Arguments that are wrong: an error, and no panic."""

    def cases(draw):
        for given in numbers:
            yield Case(TABLE[name], [kinds.ordinary(draw, shape, dtype) for shape in shapes], list(given), gradient=False)

    Operation(name, outside, cases, dtypes=())


refused("Tensor::narrow (outside)", [(4, 3)], [(0, 3, 2), (2, 0, 1), (0, 5, 0), (0, 2**62, 2**62)])
refused("Tensor::get (outside)", [(4, 3)], [(4,)])
refused("Tensor::reshape (other size)", [(4, 3)], [((5, 2),), ((2**62, 4),)])
refused("Tensor::unfold (too long)", [(4, 3)], [(1, 4, 1), (1, 2, 0)])
refused("Tensor::chunk (none)", [(4, 3)], [(0, 0)])
refused("Tensor::squeeze (outside)", [(4, 3)], [(2,)])
refused("Tensor::permute (twice)", [(4, 3)], [((0, 0),)])
refused("Tensor::roll (no element)", [(0, 3)], [(1, 2)])
refused("Tensor::pad_with_same (no element)", [(0, 3)], [(0, 1, 1)])
