"""What the suite knows of an operation: its right values, its inputs, and how exact it has to be."""

import warnings

import numpy as np

from differences.kinds import FLOATS, is_float, limits, name_of

TABLE = {}


class Operation:
    """An operation by the name that the program and the list of public operations have for it.

    `reference(library, *inputs, *numbers)` gives the right results, from floats in f64. `cases(draw)` yields the cases.
    `ulps` is the distance from the rounded right value, in numbers of the result's type, that a device may have for f32 and f64, and
    `half_ulps` for f16 and bf16. `scale(*inputs, *numbers)` is the size of the numbers that are rounded on the way, where that is not
    the size of the result.
    """

    def __init__(self, name, reference, cases, *, dtypes=FLOATS, ulps=0, half_ulps=None, plugin_ulps=None, scale=None, result=None,
                 gradient_ulps=None, gradient_scale="own", signed_zeros=False, derivative=None, refuses=(), refuses_on_cpu=(), refuses_gradient=False, plugin=True, cpu=True):
        self.name, self.reference, self.make, self.dtypes = name, reference, cases, dtypes
        self.ulps, self.scale, self.result = ulps, scale, result
        self.half_ulps = min(ulps, 1) if half_ulps is None else half_ulps
        self.plugin_ulps = (ulps * 2 + 2 if ulps else 0) if plugin_ulps is None else plugin_ulps
        self.gradient_ulps = ulps * 2 + 2 if gradient_ulps is None else gradient_ulps
        self.gradient_scale, self.signed_zeros = gradient_scale, signed_zeros
        self.refuses, self.refuses_gradient, self.plugin, self.cpu = refuses, refuses_gradient, plugin, cpu
        self.refuses_on_cpu = refuses_on_cpu
        # The derivative of a function of single elements, where NumPy is more exact than JAX or JAX decides otherwise at a corner.
        self.derivative = derivative
        # The program's own name, where several rows of the table are one row there.
        self.call = name
        assert name not in TABLE, name
        TABLE[name] = self

    def results(self, case, count):
        """The type of each result."""
        if self.result is None:
            return [case.dtype] * count
        result = self.result(case) if callable(self.result) else self.result
        return [result] * count if isinstance(result, str) else list(result)

    def tolerance(self, dtype, mode):
        if dtype in ("f16", "bf16"):
            return self.half_ulps if mode == "cpu" else max(self.half_ulps, min(self.plugin_ulps, 2))
        return self.ulps if mode == "cpu" else max(self.ulps, self.plugin_ulps)

    def gradient_tolerance(self, dtype, mode):
        return self.gradient_ulps if mode == "cpu" else self.gradient_ulps * 2

    def scales(self, case, right):
        """The size of the numbers that are rounded, for each result; `None` for the result's own."""
        if self.scale is None:
            return [None] * len(right)
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            wide = [array.astype(np.float64) for array in case.inputs]
            scale = self.scale(*wide, *case.numbers)
        return scale if isinstance(scale, list) else [scale] * len(right)

    def has_no_right_gradient(self, array, found, right):
        """Where the gradient is not compared."""
        # At NaN, what chooses between two branches has no right gradient.
        skipped = np.isnan(array)
        if name_of(array) == "f64":
            # Where the square of a number is none, JAX's own formulas have no value.
            skipped |= (np.abs(array) > 1e150) | (np.abs(right) > 1e300)
        if is_float(name_of(array)):
            # A weight of the sum may be 2, which makes an infinity of such a number.
            skipped |= np.abs(array.astype(np.float64)) > float(limits(name_of(array)).max) / 4
        if self.gradient_scale == "all":
            skipped |= ~np.isfinite(right) & ~np.isfinite(found.astype(np.float64))
        if self.gradient_scale in ("incoming", "all"):
            # The derivative is a limit there, which no formula gives.
            skipped |= np.isinf(array)
        if name_of(array) == "f64" and self.derivative is None:
            # XLA, with which JAX computes, takes such numbers for 0.
            tiny = float(limits("f64").tiny)
            for numbers in (array, found, right):
                is_tiny = (np.abs(numbers) < tiny) & (numbers != 0)
                skipped |= is_tiny
                for axis in range(is_tiny.ndim):
                    skipped |= is_tiny.any(axis=axis, keepdims=True)
        if self.name.endswith("pow"):
            # JAX has no gradient at a power of zero, and the power below that of a subnormal number is infinite.
            skipped |= np.isnan(right) | (np.abs(array.astype(np.float64)) < float(limits("f32").tiny))
            skipped |= (name_of(array) == "f64") & (np.abs(found) < 1e-290)
        return skipped

    def gradient_scale_of(self, right, dtype):
        """The size of the numbers of which a gradient is made."""
        finite = np.where(np.isfinite(right), np.abs(right), 0.0)
        # On the way, a number may be subnormal and lose digits.
        smallest = float(limits(dtype).tiny) * 64
        if self.gradient_scale == "own":
            return np.maximum(finite, smallest)
        if self.gradient_scale == "rows" and right.ndim:
            return np.maximum(finite.max(axis=-1, keepdims=True, initial=1.0), 1.0) * np.ones_like(right)
        if self.gradient_scale == "all":
            return np.full_like(right, max(finite.max(initial=1.0), 1.0))
        return np.maximum(finite, 1.0)

    def may_refuse(self, case, mode):
        """Whether an error is an answer, too: where candle has no such operation for this type."""
        return case.dtype in self.refuses or mode == "cpu" and case.dtype in self.refuses_on_cpu

    def may_refuse_gradient(self, case, mode):
        return self.refuses_gradient or mode == "cpu" and case.dtype in self.refuses_on_cpu

    def __repr__(self):
        return self.name
