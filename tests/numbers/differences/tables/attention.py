"""Attention of candle-nn, which computes on the CPU alone."""

import numpy as np

from differences import kinds
from differences.case import Case
from differences.operation import TABLE, Operation
from differences.references import Refused

SCALE = 0.5


def attention(m, q, k, v, mask):
    """Softmax of the products of queries and keys, times the values: (batch, heads, time, width)."""
    scores = m.einsum("bthd,bshd->bhts", q, k) * SCALE + mask
    return m.einsum("bhts,bshd->bhtd", m.softmax(scores, axis=-1), v)


def plain(m, q, k, v, scale):
    return attention(m, q, k, v, 0.0)


def masked(m, q, k, v, mask, scale):
    return attention(m, q, k, v, mask)


def causal(m, q, k, v, scale):
    time = q.shape[1]
    return attention(m, q, k, v, np.where(np.tril(np.ones((time, time))) > 0, 0.0, -np.inf))


def cases_of(name, dtypes, has_mask=False):
    def cases(draw):
        for dtype in dtypes:
            for batch, time in ((1, 6), (2, 5), (1, 1)):
                q, k, v = (kinds.ordinary(draw, (batch, time, 2, 8), dtype) for _ in range(3))
                mask = []
                if has_mask:
                    mask = [kinds.rounded(np.where(draw.uniform(size=(batch, time, time)) < 0.2, -np.inf, 0.0), dtype)]
                    mask[0][..., 0] = 0
                if batch == 1 or dtype in ("f32", "f16"):
                    yield Case(TABLE[name], [q, k, v, *mask], [SCALE], gradient=False)

    return cases


ATTENTION = dict(ulps=32, half_ulps=2, scale=lambda *rest: 3.0, plugin=False)
base = "candle_nn::attention::cpu_flash"
for name, reference, dtypes in ((f"{base}::flash_attn", plain, ("f32", "f16", "bf16")), (f"{base}::flash_attn (causal)", causal, ("f32", "f16", "bf16"))):
    Operation(name, reference, cases_of(name, dtypes), dtypes=dtypes, **ATTENTION)


def single(name, reference, has_mask):
    def cases(draw):
        for case in cases_of(name, ("f32",), has_mask)(draw):
            if len(case.inputs[0]) == 1:
                yield case

    Operation(name, reference, cases, dtypes=("f32",), **ATTENTION)


single(f"{base}::standard::run_flash_attn_cpu", plain, False)
single(f"{base}::standard::run_flash_attn_cpu (mask)", masked, True)
single(f"{base}::causal::run_causal_attn_cpu", causal, False)


def packed(m, q, k, v, lengths, others, scale, longest, longest_other, is_causal):
    """Each sequence alone."""
    results, begin = [], 0
    for length in lengths:
        part = slice(begin, begin + int(length))
        one = causal if is_causal else plain
        results.append(one(m, q[None, part], k[None, part], v[None, part], scale)[0].swapaxes(0, 1))
        begin += int(length)
    return np.concatenate(results)


def packed_cases(name, dtypes):
    def cases(draw):
        for dtype in dtypes:
            q, k, v = (kinds.ordinary(draw, (9, 2, 8), dtype) for _ in range(3))
            lengths = np.array([4, 5], np.uint32)
            for is_causal in (False, True):
                yield Case(TABLE[name], [q, k, v, lengths, lengths], [SCALE, 5, 5, is_causal], gradient=False)

    return cases


for name, dtypes in (("candle_nn::attention::varlen::flash_attn_varlen_unfused", ("f32", "f16", "f64")),
                     (f"{base}::varlen::flash_attn_varlen_cpu", ("f32", "f16"))):
    Operation(name, packed, packed_cases(name, dtypes), dtypes=dtypes, **{**ATTENTION, "half_ulps": 8 if "unfused" in name else 2})


def on_no_cpu(m, *inputs):
    raise Refused("")


Operation("candle_nn::ops::sdpa", on_no_cpu, cases_of("candle_nn::ops::sdpa", ("f32",)), plugin=False)
