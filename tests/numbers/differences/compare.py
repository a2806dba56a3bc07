"""Whether what a device gives is right."""

import dataclasses

import numpy as np

from differences import purposes, references
from differences.kinds import NAMES, is_float, limits, rounded, spacing


# How much larger than a subnormal number a result is, at most, that is lost with one.
VANISHING = 256


@dataclasses.dataclass
class Difference:
    """How a case differs."""

    case: object
    mode: str
    # `value`, `NaN`, `inf`, `zero`, `type`, `shape`, `error`, `panic` or `no error`.
    kind: str
    # Of the results, or of the gradients.
    part: str
    found: object
    right: object
    # The number of the result or of the input, and the first element that is wrong there.
    place: tuple = None

    @property
    def group(self):
        """Differences of one group have one cause, as far as one can tell."""
        return self.case.operation.name, self.part, self.kind, self.mode


def judge(case, outcome, mode):
    """The first difference of a case, if there is one."""
    difference = judge_once(case, outcome, mode)
    has_subnormal = mode != "cpu" and difference is not None and difference.kind in ("value", "inf", "NaN", "zero")
    if not has_subnormal:
        return difference
    # A plugin may take subnormal numbers for 0.
    again = judge_once(dataclasses.replace(case, inputs=[purposes.flushed(array) for array in case.inputs]), outcome, mode, case)
    return again and dataclasses.replace(again, case=case)


def judge_once(case, outcome, mode, exact=None):
    """`exact` is the case without numbers taken for 0: what is right for either is right."""
    try:
        right = references.values(case)
    except references.Refused as refused:
        return refused_rightly(case, outcome, mode, str(refused))
    if outcome.panic is not None:
        return Difference(case, mode, "panic", "result", outcome.panic, right)
    if outcome.error is not None:
        is_right = case.operation.may_refuse(case, mode) or purposes.excused(case, mode, True)
        return None if is_right else Difference(case, mode, "error", "result", outcome.error, right)
    found_types = case.operation.results(case, len(right))
    if len(outcome.results) != len(right):
        return Difference(case, mode, "shape", "result", outcome.results, right)
    also = right if exact is None else references.values(exact)
    scales = case.operation.scales(case, right)
    for number, (found, expected, dtype, scale) in enumerate(zip(outcome.results, right, found_types, scales)):
        ulps = case.operation.tolerance(dtype, mode)
        if exact is not None:
            expected = nearer(found, also[number], purposes.without_subnormal(expected, dtype), dtype, ulps, scale)
        kind, place = compared(found, expected, dtype, ulps, scale, case.operation.signed_zeros and mode == "cpu")
        if kind:
            return Difference(case, mode, kind, "result", outcome.results, right, place and (number, place))
    return judge_gradients(case, outcome, mode, exact) if case.gradient else None


def nearer(found, right, flushed, dtype, ulps, scale):
    """Of two right values, that one which each element has."""
    if found.shape != np.shape(right) or np.shape(right) != np.shape(flushed) or NAMES[found.dtype] != dtype:
        return right
    if not is_float(dtype):
        return np.where(found == np.asarray(right).astype(found.dtype), right, flushed)
    # What is subnormal on the way to a result loses it, where that is not much larger.
    vanished = (found == 0) & (np.abs(right) < VANISHING * float(limits(dtype).tiny))
    right = np.where(vanished, 0.0, right)
    wrong, _ = wrong_elements(found, right, dtype, ulps, scale, False, 1.0)
    return np.where(wrong, flushed, right)


def refused_rightly(case, outcome, mode, text):
    if outcome.panic is not None:
        return Difference(case, mode, "panic", "result", outcome.panic, f"an error with {text!r}")
    if outcome.error is None:
        if purposes.excused(case, mode, False):
            return None
        return Difference(case, mode, "no error", "result", outcome.results, f"an error with {text!r}")
    if text not in outcome.error:
        return Difference(case, mode, "error", "result", outcome.error, f"an error with {text!r}")
    return None


def judge_gradients(case, outcome, mode, exact):
    right = references.gradients(case)
    also = right if exact is None else references.gradients(exact)
    if outcome.gradient_panic is not None:
        return Difference(case, mode, "panic", "gradient", outcome.gradient_panic, right)
    if outcome.gradient_error is not None:
        if case.operation.may_refuse_gradient(case, mode):
            return None
        return Difference(case, mode, "error", "gradient", outcome.gradient_error, right)
    for number, (array, found, expected) in enumerate(zip(case.inputs, outcome.gradients, right)):
        if expected is None:
            continue
        dtype = NAMES[array.dtype]
        found = np.zeros_like(array) if found is None else found
        if found.shape == expected.shape:
            expected = np.where(case.operation.has_no_right_gradient(array, found, expected), found.astype(np.float64), expected)
        scale = case.operation.gradient_scale_of(expected, dtype)
        if exact is not None:
            ulps = case.operation.gradient_tolerance(dtype, mode)
            expected = nearer(found, also[number], purposes.without_subnormal(expected, dtype), dtype, ulps, scale)
        kind, place = compared(found, expected, dtype, case.operation.gradient_tolerance(dtype, mode), scale, headroom=64.0)
        if kind:
            return Difference(case, mode, kind, "gradient", outcome.gradients, right, place and (number, place))
    return None


def compared(found, right, dtype, ulps, scale, signed_zeros=False, headroom=1.0):
    """The kind of the difference of two arrays and the first element that differs, or `None`s."""
    if NAMES[found.dtype] != dtype:
        return "type", None
    if found.shape != np.shape(right):
        return "shape", None
    if found.size == 0:
        return None, None
    wrong, kind = wrong_elements(found, right, dtype, ulps, scale, signed_zeros, headroom)
    if not wrong.any():
        return None, None
    return kind, tuple(int(place) for place in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def wrong_elements(found, right, dtype, ulps, scale, signed_zeros, headroom):
    """Which elements are wrong, and of what kind the first of them is.

    A number near the largest one may be rounded to infinity, and the other way round; how near, `headroom` says.
    """
    if not is_float(dtype):
        return found != np.asarray(right).astype(found.dtype), "value"
    exact = np.asarray(right, np.float64)
    right, found = rounded(exact, dtype).astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        bound = ulps * spacing(right if scale is None else np.fmax(np.abs(right), np.abs(scale)), dtype)
        largest = float(limits(dtype).max)
        is_close = (found == right) | (np.abs(found - right) <= bound) | (np.isnan(found) & np.isnan(right))
        overflows = np.isinf(found) & np.isfinite(right) & ((np.abs(right) + bound) * headroom >= largest)
        stays = np.isfinite(found) & np.isinf(right) & np.isfinite(exact) & (np.abs(exact) - bound <= largest)
        is_close |= (overflows | stays) & (np.signbit(found) == np.signbit(right))
        if ulps:
            # A number below the smallest normal one of the type that computes may be 0 on the way.
            is_close |= np.abs(found - right) <= 4 * float(limits("f64" if dtype == "f64" else "f32").tiny)
    wrong = ~is_close
    kind = "value"
    if wrong.any():
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        if np.isnan(found[place]) != np.isnan(right[place]):
            kind = "NaN"
        elif np.isinf(found[place]) or np.isinf(right[place]):
            kind = "inf"
    elif signed_zeros:
        wrong, kind = (found == 0) & (np.signbit(found) != np.signbit(right)), "zero"
    return wrong, kind
