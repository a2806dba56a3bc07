"""Layers of candle-nn: norms, linear and recurrent layers, rotary embeddings, and what passes values on."""

import jax
import numpy as np

from differences import kinds
from differences.case import VIEWS, Case
from differences.kinds import ALL, FLOATS
from differences.operation import TABLE, Operation
from differences.references import Refused
from differences.tables.reductions import EPSILON, layer_norm, layer_norm_size, rms_norm

NORM = dict(ulps=16, half_ulps=2, gradient_ulps=96, gradient_scale="all")


def channels(array, rank):
    return array.reshape((1, -1) + (1,) * (rank - 2))


def batch_norm(m, x, mean, variance, weight, bias, epsilon, momentum):
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    if count == 1:
        raise Refused("")
    centre = m.mean(x, axis=axes)
    spread = m.mean((x - channels(centre, x.ndim)) ** 2, axis=axes)
    result = (x - channels(centre, x.ndim)) / m.sqrt(channels(spread, x.ndim) + epsilon)
    result = result * channels(weight, x.ndim) + channels(bias, x.ndim)
    new_mean = mean * (1 - momentum) + centre * momentum
    new_variance = variance * (1 - momentum) + spread * count / (count - 1) * momentum
    return [result, new_mean, new_variance]


def trained(m, *inputs):
    results = batch_norm(m, *inputs)
    return [results[0], *(jax.lax.stop_gradient(each) if m.is_jax else each for each in results[1:])]


def evaluated(m, x, mean, variance, weight, bias, epsilon, momentum):
    if m.is_jax:
        mean, variance = jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)
    rank = x.ndim
    return (x - channels(mean, rank)) / m.sqrt(channels(variance, rank) + epsilon) * channels(weight, rank) + channels(bias, rank)


def batches(name, shapes=((6, 3), (2, 3, 4, 5))):
    def cases(draw):
        for dtype in FLOATS:
            parameters = [kinds.ordinary(draw, (3,), dtype), kinds.rounded(draw.uniform(0.5, 2, 3), dtype),
                          kinds.ordinary(draw, (3,), dtype), kinds.ordinary(draw, (3,), dtype)]
            for shape in shapes:
                for view in VIEWS[:2]:
                    yield Case(TABLE[name], [kinds.ordinary(draw, shape, dtype), *parameters], [EPSILON, 0.25], view)
            moved = kinds.rounded(draw.uniform(-1, 1, (64, 3)) + [0, 100, -30], dtype)
            yield Case(TABLE[name], [moved, *parameters], [EPSILON, 0.25], gradient=False)
            strange = kinds.ordinary(draw, (6, 3), dtype)
            strange[2, 0], strange[3, 1] = np.nan, np.inf
            yield Case(TABLE[name], [strange, *parameters], [EPSILON, 0.25], gradient=False)
            if dtype == "f32":
                yield Case(TABLE[name], [strange[:1], *parameters], [EPSILON, 0.25], gradient=False)

    return cases


def norm_size(x, mean, variance, weight, bias, epsilon, momentum):
    axes = (0, *range(2, x.ndim))
    finite = np.where(np.isfinite(x), x, 0.0)
    spread = np.sqrt(finite.var(axis=axes) + epsilon)
    size = (np.abs(finite).max(axis=axes) / spread * np.abs(weight) + np.abs(bias)).max()
    return [size, np.abs(finite).max(axis=axes) + np.abs(mean), finite.var(axis=axes) * 2 + variance]


Operation("candle_nn::batch_norm::BatchNorm::forward_train", trained, batches("candle_nn::batch_norm::BatchNorm::forward_train"),
          scale=norm_size, **NORM)
Operation("candle_nn::batch_norm::BatchNorm::forward_t (train)", lambda m, *inputs: trained(m, *inputs)[0],
          batches("candle_nn::batch_norm::BatchNorm::forward_t (train)", ((6, 3),)), scale=lambda *inputs: norm_size(*inputs)[0], **NORM)
Operation("candle_nn::batch_norm::BatchNorm::forward_t", evaluated, batches("candle_nn::batch_norm::BatchNorm::forward_t"),
          scale=lambda x, mean, variance, weight, bias, *n: (np.abs(np.where(np.isfinite(x), x, 0.0)).max() + np.abs(mean).max())
          / np.sqrt(variance.min()) * np.abs(weight).max() + np.abs(bias).max(), **NORM)


def group_norm(m, x, weight, bias, size, groups, epsilon):
    parts = x.reshape(x.shape[0], groups, -1)
    parts = parts - m.mean(parts, axis=-1, keepdims=True)
    parts = parts / m.sqrt(m.mean(parts * parts, axis=-1, keepdims=True) + epsilon)
    return parts.reshape(x.shape) * channels(weight, x.ndim) + channels(bias, x.ndim)


def group_cases(draw):
    name = "candle_nn::group_norm::GroupNorm::forward"
    for dtype in FLOATS:
        array = kinds.ordinary(draw, (2, 6, 5), dtype)
        parameters = [kinds.ordinary(draw, (6,), dtype) for _ in range(2)]
        for groups in (1, 3, 6):
            yield Case(TABLE[name], [array, *parameters], [6, groups, EPSILON])
        strange = array.copy()
        strange[0, 1, 2], strange[1, 4, 3] = np.nan, np.inf
        yield Case(TABLE[name], [strange, *parameters], [6, 3, EPSILON], gradient=False)


Operation("candle_nn::group_norm::GroupNorm::forward", group_norm, group_cases, scale=lambda x, *rest: 12.0, **NORM)


def rows(name, parameters):
    def cases(draw):
        for dtype in FLOATS:
            array = kinds.rows_to_square(draw, dtype)
            given = [kinds.ordinary(draw, (array.shape[1],), dtype) for _ in range(parameters)]
            for view in VIEWS:
                yield Case(TABLE[name], [array, *given], [EPSILON], view, ("ab",) + ("b",) * parameters, gradient=view in VIEWS[:2])
            yield Case(TABLE[name], [array.reshape(2, 7, -1)[:, :3].copy(), *given], [EPSILON], gradient=False)

    return cases


def biased(m, x, weight, bias, epsilon):
    return layer_norm(m, x, weight, bias, epsilon)


def unbiased(m, x, weight, epsilon):
    return layer_norm(m, x, weight, 0.0, epsilon)


Operation("candle_nn::layer_norm::LayerNorm::forward", biased, rows("candle_nn::layer_norm::LayerNorm::forward", 2), scale=layer_norm_size, **NORM)
Operation("candle_nn::layer_norm::LayerNorm::forward (no bias)", unbiased, rows("candle_nn::layer_norm::LayerNorm::forward (no bias)", 1),
          scale=lambda x, w, e: layer_norm_size(x, w, np.zeros(1), e), **NORM)
for name in ("forward", "forward_diff"):
    Operation(f"candle_nn::layer_norm::RmsNorm::{name}", rms_norm, rows(f"candle_nn::layer_norm::RmsNorm::{name}", 1), **NORM)


def linear(m, x, weight, bias=None):
    result = m.matmul(x, weight.T)
    return result if bias is None else result + bias


def linear_cases(name, has_bias):
    def cases(draw):
        for dtype in FLOATS:
            weight = kinds.ordinary(draw, (4, 6), dtype)
            bias = [kinds.ordinary(draw, (4,), dtype)] if has_bias else []
            for shape in ((3, 6), (2, 3, 6), (2, 2, 3, 6), (0, 6)):
                for view in VIEWS if shape == (2, 3, 6) else VIEWS[:2]:
                    yield Case(TABLE[name], [kinds.ordinary(draw, shape, dtype), weight, *bias], [], view, gradient=view in VIEWS[:2] and 0 not in shape)

    return cases


LINEAR = dict(refuses_on_cpu=("bf16",), scale=lambda x, w, *b: 60.0, ulps=8, half_ulps=1, gradient_ulps=16, gradient_scale="all")
Operation("candle_nn::linear::Linear::forward", linear, linear_cases("candle_nn::linear::Linear::forward", True), **{**LINEAR, "half_ulps": 2})
Operation("candle_nn::linear::Linear::forward (no bias)", linear, linear_cases("candle_nn::linear::Linear::forward (no bias)", False), **LINEAR)


def lstm(m, x, w_in, w_state, b_in, b_state, h, c):
    gates = m.matmul(x, w_in.T) + b_in + m.matmul(h, w_state.T) + b_state
    into, forget, cell, output = m.split(gates, 4, axis=1)
    c = m.expit(forget) * c + m.expit(into) * m.tanh(cell)
    return [m.expit(output) * m.tanh(c), c]


def gru(m, x, w_in, w_state, b_in, b_state, h):
    given, kept = m.matmul(x, w_in.T) + b_in, m.matmul(h, w_state.T) + b_state
    (r, z, n), (hr, hz, hn) = m.split(given, 3, axis=1), m.split(kept, 3, axis=1)
    r, z = m.expit(r + hr), m.expit(z + hz)
    n = m.tanh(n + r * hn)
    return (1 - z) * n + z * h


def sequence(step, count, joined):
    """The hidden states of all steps."""

    def reference(m, x, *rest):
        weights, state = rest[:4], list(rest[4:])
        if not state:
            state = [m.zeros((x.shape[0], rest[1].shape[1]))] * count
        states = []
        for time in range(x.shape[1]):
            state = step(m, x[:, time], *weights, *state)
            state = state if isinstance(state, list) else [state]
            states.append(state[0])
        return joined(m, states)

    return reference


def recurrent(name, gates, states, shape):
    def cases(draw):
        for dtype in FLOATS:
            width, hidden = 3, 4
            small = lambda *size: kinds.rounded(draw.uniform(-0.7, 0.7, size), dtype)
            tensors = [small(*shape), small(gates * hidden, width), small(gates * hidden, hidden), small(gates * hidden), small(gates * hidden)]
            yield Case(TABLE[name], tensors + [small(2, hidden) for _ in range(states)])
            strange = [array.copy() for array in tensors]
            strange[0].flat[1], strange[0].flat[-1] = np.nan, np.inf
            yield Case(TABLE[name], strange + [small(2, hidden) for _ in range(states)], gradient=False)

    return cases


STEPS = dict(refuses_on_cpu=("bf16",), ulps=16, half_ulps=3, scale=lambda *rest: 1.0, gradient_ulps=32, gradient_scale="all")
Operation("candle_nn::rnn::LSTM::step", lstm, recurrent("candle_nn::rnn::LSTM::step", 4, 2, (2, 3)), **STEPS)
Operation("candle_nn::rnn::GRU::step", gru, recurrent("candle_nn::rnn::GRU::step", 3, 1, (2, 3)), **STEPS)
SEQUENCES = {**STEPS, "half_ulps": 6, "gradient_ulps": 64}
Operation("candle_nn::rnn::RNN::seq (LSTM)", sequence(lstm, 2, lambda m, states: m.stack(states, axis=1)),
          recurrent("candle_nn::rnn::RNN::seq (LSTM)", 4, 0, (2, 5, 3)), **SEQUENCES)
Operation("candle_nn::rnn::RNN::seq (GRU)", sequence(gru, 1, lambda m, states: m.concatenate(states, axis=1)),
          recurrent("candle_nn::rnn::RNN::seq (GRU)", 3, 0, (2, 5, 3)), **SEQUENCES)
Operation("candle_nn::rnn::RNN::seq_init (GRU)", sequence(gru, 1, lambda m, states: m.concatenate(states, axis=1)),
          recurrent("candle_nn::rnn::RNN::seq_init (GRU)", 3, 1, (2, 5, 3)), **SEQUENCES)


def rope(m, x, cos, sin):
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return m.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


def rope_interleaved(m, x, cos, sin):
    left, right = x[..., ::2], x[..., 1::2]
    return m.stack([left * cos - right * sin, left * sin + right * cos], axis=-1).reshape(x.shape)


def rope_time_first(m, x, cos, sin):
    return rope(m, x, cos[:, None], sin[:, None])


def angles(name, time_first, per_batch):
    def cases(draw):
        for dtype in FLOATS:
            shape = (2, 5, 3, 8) if time_first else (2, 3, 5, 8)
            x, cos, sin = kinds.ordinary(draw, shape, dtype), kinds.ordinary(draw, (5, 4), dtype, -1, 1), kinds.ordinary(draw, (5, 4), dtype, -1, 1)
            yield Case(TABLE[name], [x, cos, sin])
            strange = x.copy()
            strange.flat[3], strange.flat[40] = np.nan, np.inf
            yield Case(TABLE[name], [strange, cos, sin], gradient=False)

    return cases


ROPE = dict(ulps=2, half_ulps=2, scale=lambda x, c, s: np.where(np.isfinite(x), np.abs(x), 0).max() * 2, gradient_ulps=8, gradient_scale="all")
for name, reference, time_first in (("rope", rope, False), ("rope_slow", rope, False), ("rope_i", rope_interleaved, False),
                                    ("rope_i_slow", rope_interleaved, False), ("rope_thd", rope_time_first, True)):
    name = f"candle_nn::rotary_emb::{name}"
    Operation(name, reference, angles(name, time_first, False), **ROPE)


def in_place_cases(draw):
    name = "candle_nn::kv_cache::rope_i_inplace"
    yield Case(TABLE[name], [kinds.ordinary(draw, (3, 8), "f32"), *(kinds.ordinary(draw, (4,), "f32", -1, 1) for _ in range(2))], gradient=False)


Operation("candle_nn::kv_cache::rope_i_inplace", rope_interleaved, in_place_cases, dtypes=("f32",), plugin=False, ulps=2,
          scale=lambda x, c, s: 6.0)


def same(name, numbers=((),), reference=lambda m, x, *n: x, dtypes=FLOATS, **options):
    def cases(draw):
        for dtype in dtypes:
            array = kinds.elements(draw, dtype)
            for given in numbers:
                for view in VIEWS[:2]:
                    yield Case(TABLE[name], [array], list(given), view, gradient=kinds.is_float(dtype))

    Operation(name, reference, cases, dtypes=dtypes, gradient_ulps=2, **options)


same("candle_nn::ops::dropout", [(0.0,)])
same("candle_nn::ops::Dropout::forward", [(0.5,)], signed_zeros=True)
same("candle_nn::ops::Dropout::forward_t", [(0.5,)], signed_zeros=True)
same("candle_nn::ops::Identity::forward", dtypes=ALL, signed_zeros=True)
same("candle_nn::sequential::Sequential::forward", reference=lambda m, x: x * x + 1, ulps=1, half_ulps=1)
same("candle_nn::sequential::Sequential::forward_all", reference=lambda m, x: [x * x, x * x + 1], ulps=1, half_ulps=1)


def initial_cases(draw):
    for dtype in FLOATS:
        for number in (0.0, 1.0, -2.5, float("inf"), float("nan")):
            yield Case(TABLE["candle_nn::init::Init::var"], [], [number, (2, 3), dtype], gradient=False)


Operation("candle_nn::init::Init::var", lambda m, v, s, d: np.full(s, v), initial_cases, dtypes=(), result=lambda case: case.numbers[2])


def cache_cases(name, shapes, numbers):
    def cases(draw):
        for dtype in ("f32", "bf16"):
            for given in numbers:
                yield Case(TABLE[name], [kinds.elements(draw, dtype, shape) for shape in shapes], list(given), gradient=False)

    return cases


def last_of(m, *x):
    """What a cache of a given length has after each addition: the newest elements, in the places of the oldest ones."""
    *tensors, dim, length = x
    kept, position, results = None, 0, []
    for tensor in tensors:
        count = tensor.shape[dim]
        if count >= length:
            results.append(tensor)
            kept = np.moveaxis(tensor, dim, 0)[-length:].copy()
            position = 0
            continue
        rows = np.moveaxis(tensor, dim, 0)
        if kept is None:
            kept = np.zeros((0, *rows.shape[1:]))
        for row in rows:
            if len(kept) < length:
                kept = np.concatenate([kept, row[None]])
            else:
                kept[position] = row
            position = (position + 1) % length
        results.append(np.moveaxis(kept, 0, dim).copy())
    return results


Operation("candle_nn::kv_cache::Cache::append", lambda m, a, b, c, dim, length: np.concatenate([a, b, c], axis=dim),
          cache_cases("candle_nn::kv_cache::Cache::append", ((2, 1, 3), (2, 2, 3), (2, 1, 3)), [(1, 8), (1, 4)]), signed_zeros=True)
Operation("candle_nn::kv_cache::RotatingCache::append", last_of,
          cache_cases("candle_nn::kv_cache::RotatingCache::append", ((2, 3, 3), (2, 1, 3), (2, 1, 3)), [(1, 8), (1, 4)]), signed_zeros=True)
Operation("candle_nn::kv_cache::ConcatKvCache::append",
          lambda m, a, b, c, d, dim: [np.concatenate([a, c], axis=dim), np.concatenate([b, d], axis=dim)],
          cache_cases("candle_nn::kv_cache::ConcatKvCache::append", ((2, 1, 3),) * 4, [(1,)]), signed_zeros=True)
