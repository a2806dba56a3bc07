"""What takes elements by indices, and puts them there."""

import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import ALL
from differences.operation import TABLE, Operation
from differences.references import Refused

INDICES = ("u32", "i64", "u8")


def checked(indices, size):
    """An index outside is an error, and no other element."""
    if indices.size and (int(indices.max()) >= size or int(indices.min()) < 0):
        raise Refused("")
    return indices.astype(np.int64)


def small(draw, dtype, shape):
    return kinds.ordinary(draw, shape, dtype)


def indexed(name, reference, sizes, dim, *, source=None, dtypes=ALL, ulps=0, numbers=None, **options):
    """A tensor of 6 × 5 elements, indices of some shape, and a source of the same; indices of each type, some of them outside."""

    def cases(draw):
        for dtype in dtypes:
            adds = "add" in name
            values = small if adds else kinds.elements
            base = values(draw, dtype, (6, 5))
            given = numbers or ([dim] if dim is not None else [])
            for kind in INDICES if dtype in ("f32", "u8") else INDICES[:1]:
                limit = base.shape[dim or 0]
                places = draw.integers(0, limit, sizes).astype(kinds.DTYPES[kind])
                tensors = [base, places] + ([values(draw, dtype, source)] if source else [])
                # What is changed in place is contiguous.
                has_views = dtype in ("f32", "bf16") and not name.endswith("_set")
                for view in VIEWS if has_views else VIEWS[:1]:
                    yield Case(TABLE[name], tensors, given, view, gradient=kinds.is_float(dtype) and view != "strided" and not name.endswith("_set"))
                if dtype == "f32":
                    # The greatest number of the type is candle's padding, and no mistake.
                    for outside in (limit, -1 if kind == "i64" else limit + 1):
                        wrong = places.copy()
                        wrong.flat[1] = outside
                        yield Case(TABLE[name], [base, wrong, *tensors[2:]], given, gradient=False)
                    none = places[:0] if len(sizes) == 1 else places[:, :0] if dim == 1 else places[:0]
                    if source is None:
                        yield Case(TABLE[name], [base, none], given, gradient=False)

    Operation(name, reference, cases, dtypes=(), ulps=ulps, **options)


def select(m, x, indices, dim):
    return m.take(x, checked(indices, x.shape[dim]) if not m.is_jax else indices.astype(np.int64), axis=dim)


def gather(m, x, indices, dim):
    indices = indices.astype(np.int64) if m.is_jax else checked(indices, x.shape[dim])
    if indices.size == 0:
        return x[: indices.shape[0], : indices.shape[1]]
    return m.take_along_axis(x, indices, axis=dim)


def places(m, indices, dim):
    """Where the elements of a source go: a row and a column for each."""
    grid = list(np.indices(indices.shape))
    grid[dim] = indices.astype(np.int64)
    return tuple(grid)


def scatter(m, x, indices, source, dim):
    if not m.is_jax:
        checked(indices, x.shape[dim])
        x = x.copy()
        for place in np.ndindex(indices.shape):
            to = list(place)
            to[dim] = int(indices[place])
            x[tuple(to)] = source[place]
        return x
    # Of several writes to one place, the last one stays.
    for index in range(indices.shape[dim]):
        row = (slice(None),) * dim + (index,)
        others = np.arange(indices.shape[1 - dim])
        to = (indices[row].astype(np.int64), others) if dim == 0 else (others, indices[row].astype(np.int64))
        x = x.at[to].set(source[row])
    return x


def scatter_add(m, x, indices, source, dim):
    if m.is_jax:
        return x.at[places(m, indices, dim)].add(source)
    checked(indices, x.shape[dim])
    x = x.copy()
    with np.errstate(all="ignore"):
        np.add.at(x, places(m, indices, dim), source)
    return x


def index_add(m, x, indices, source, dim):
    place = (slice(None),) * dim + (indices.astype(np.int64) if m.is_jax else checked(indices, x.shape[dim]),)
    if m.is_jax:
        return x.at[place].add(source)
    x = x.copy()
    with np.errstate(all="ignore"):
        np.add.at(x, place, source)
    return x


indexed("Tensor::embedding", lambda m, x, i: select(m, x, i, 0), (7,), None, signed_zeros=True)
indexed("Tensor::index_select", select, (7,), 0, signed_zeros=True)
indexed("Tensor::index_select (columns)", select, (7,), 1, signed_zeros=True)
indexed("Tensor::i (tensor)", lambda m, x, i, dim: select(m, x, i, 1), (3,), 1, signed_zeros=True)
indexed("candle_nn::embedding::Embedding::forward", lambda m, x, i, width: select(m, x, i, 0), (2, 3), 0, numbers=[5], signed_zeros=True)
indexed("Tensor::gather", gather, (4, 5), 0, signed_zeros=True)
indexed("Tensor::gather (columns)", gather, (6, 4), 1, signed_zeros=True)
indexed("Tensor::scatter", scatter, (4, 5), 0, source=(4, 5), signed_zeros=True)
indexed("Tensor::scatter (columns)", scatter, (6, 4), 1, source=(6, 4), signed_zeros=True)
indexed("Tensor::scatter_set", scatter, (4, 5), 0, source=(4, 5), signed_zeros=True)
ADD = dict(ulps=4, half_ulps=1, scale=lambda x, i, s, d: np.abs(x) + np.abs(s).max() * 2, gradient_ulps=2)
indexed("Tensor::scatter_add", scatter_add, (4, 5), 0, source=(4, 5), **ADD)
indexed("Tensor::scatter_add (columns)", scatter_add, (6, 4), 1, source=(6, 4), **ADD)
indexed("Tensor::scatter_add_set", scatter_add, (4, 5), 0, source=(4, 5), **ADD)
indexed("Tensor::index_add", index_add, (4,), 0, source=(4, 5), **ADD)
indexed("Tensor::index_add (columns)", index_add, (3,), 1, source=(6, 3), **ADD)

def one_hot(m, x, depth):
    if x.min() < -1 or x.max() >= depth:
        raise Refused("")
    return (x[..., None].astype(np.int64) == np.arange(depth)).astype(np.float64)


def one_hot_cases(draw):
    name = "candle_nn::encoding::one_hot"
    for dtype in ("u8", "u32", "i64"):
        for high in (4, 5):
            array = draw.integers(0, high, (3, 4)).astype(kinds.DTYPES[dtype])
            array[0, 0] = high - 1
            yield Case(TABLE[name], [array], [4], gradient=False)
    yield Case(TABLE[name], [np.array([0, -1, 3])], [4], gradient=False)
    yield Case(TABLE[name], [np.array([0, -2, 3])], [4], gradient=False)


Operation("candle_nn::encoding::one_hot", one_hot, one_hot_cases, dtypes=(), result="f32", plugin=False)
