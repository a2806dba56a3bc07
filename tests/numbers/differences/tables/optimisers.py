"""Optimisers, clipping and schedules, of candle-nn and of ferrotune."""

import numpy as np

from differences import kinds
from differences.case import Case
from differences.kinds import FLOATS
from differences.operation import TABLE, Operation
from differences.references import Refused


def steps(update):
    """The variable after each gradient in turn, the last step with half of the learning rate."""

    def reference(m, *given):
        arrays = [array for array in given if isinstance(array, np.ndarray)]
        lr, *numbers = given[len(arrays):]
        value, state = arrays[0], [np.zeros_like(arrays[0])] * 2
        for step, gradient in enumerate(arrays[1:], start=1):
            rate = lr / 2 if step == len(arrays) - 1 else lr
            value, state = update(value, gradient, state, step, rate, *numbers)
        return value

    return reference


def plain_sgd(value, gradient, state, step, lr):
    return value - lr * gradient, state


def sgd(value, gradient, state, step, lr, momentum, nesterov, decay):
    gradient = gradient + decay * value
    if momentum == 0:
        return value - lr * gradient, state
    moment = momentum * state[0] + gradient
    return value - lr * (gradient + momentum * moment if nesterov else moment), [moment, None]


def adamw(value, gradient, state, step, lr, beta1, beta2, epsilon, decay):
    first, second = beta1 * state[0] + (1 - beta1) * gradient, beta2 * state[1] + (1 - beta2) * gradient**2
    change = first / (1 - beta1**step) / (np.sqrt(second / (1 - beta2**step)) + epsilon)
    return value * (1 - lr * decay) - lr * change, [first, second]


def lion(value, gradient, state, step, lr, beta1, beta2, decay):
    update = np.sign(beta1 * state[0] + (1 - beta1) * gradient)
    return value * (1 - lr * decay) - lr * update, [beta2 * state[0] + (1 - beta2) * gradient, None]


def stepped(name, update, numbers, half_ulps, dtypes=FLOATS):
    def cases(draw):
        for dtype in dtypes:
            for given in numbers:
                arrays = [kinds.ordinary(draw, (5, 7), dtype) for _ in range(4)]
                yield Case(TABLE[name], arrays, list(given), axes=("ab",) * 4, gradient=False)
                strange = [array.copy() for array in arrays]
                strange[1][0, :4] = np.nan, np.inf, -np.inf, 0
                strange[0][1, :3] = np.nan, np.inf, float(kinds.limits(dtype).max)
                strange[2][2, :2] = float(kinds.limits(dtype).smallest_subnormal), float(kinds.limits(dtype).tiny)
                yield Case(TABLE[name], strange, list(given), axes=("ab",) * 4, gradient=False)
                empty = [array[:0] for array in arrays]
                yield Case(TABLE[name], empty, list(given), axes=("ab",) * 4, gradient=False)

    Operation(name, steps(update), cases, ulps=8, half_ulps=half_ulps, scale=lambda *given: np.abs(given[0]) + 1.0)


ADAMW = [(0.125, 0.75, 0.875, 2.0**-20, 0.25), (0.0625, 0.9, 0.999, 1e-8, 0.01)]
stepped("candle_nn::optim::SGD::step", plain_sgd, [(0.125,)], 2)
stepped("ferrotune_trial::optim::SGD::step", sgd, [(0.125, 0.0, False, 0.25), (0.125, 0.75, False, 0.25), (0.125, 0.75, True, 0.25)], 4)
stepped("candle_nn::optim::AdamW::step", adamw, ADAMW, 4)
stepped("ferrotune_trial::optim::AdamW::step", adamw, ADAMW, 4)
stepped("ferrotune_trial::optim::Lion::step", lion, [(0.125, 0.75, 0.875, 0.25), (0.0625, 0.9, 0.99, 0.0)], 4)


def clipped_norm(is_refused):
    def reference(m, *given):
        *arrays, limit = given
        norm = np.sqrt(sum(np.sum(array**2) for array in arrays))
        if is_refused and not np.isfinite(norm):
            raise Refused("norm is")
        return [norm, *(array * (np.minimum(1.0, limit / norm) if norm else 1.0) for array in arrays)]

    return reference


def clip_cases(name, numbers):
    def cases(draw):
        for dtype in FLOATS:
            arrays = [kinds.ordinary(draw, (5, 7), dtype), kinds.ordinary(draw, (4,), dtype)]
            for given in numbers:
                yield Case(TABLE[name], arrays, list(given), gradient=False)
            large = [kinds.rounded(np.full((3,), float(kinds.limits(dtype).max) / 4), dtype)] * 2
            yield Case(TABLE[name], large, list(numbers[0]), gradient=False)
            yield Case(TABLE[name], [np.zeros_like(array) for array in arrays], list(numbers[0]), gradient=False)
            strange = [array.copy() for array in arrays]
            strange[0][1, 2] = np.nan
            yield Case(TABLE[name], strange, list(numbers[0]), gradient=False)

    return cases


NAME = "ferrotune_trial::optim::clip_grad_norm"
Operation(NAME, clipped_norm(True), clip_cases(NAME, [(1.0,), (1e6,)]), ulps=8, half_ulps=1, plugin=False,
          result=lambda case: ["f64", *(kinds.name_of(array) for array in case.inputs)])
# On a plugin no value is read: the norm is NaN, and single unless a gradient is double.
Operation(f"{NAME} (plugin)", clipped_norm(False), clip_cases(f"{NAME} (plugin)", [(1.0,), (1e6,)]), ulps=8, half_ulps=1, cpu=False,
          result=lambda case: ["f64" if case.dtype == "f64" else "f32", *(kinds.name_of(array) for array in case.inputs)])


def clipped_value(m, *given):
    *arrays, limit = given
    if limit < 0:
        raise Refused("cannot be clipped")
    return [np.minimum(np.maximum(array, -limit), limit) for array in arrays]


Operation("ferrotune_trial::optim::clip_grad_value", clipped_value, clip_cases("ferrotune_trial::optim::clip_grad_value", [(0.5,), (-1.0,)]))


def scheduled(name, rate, numbers):
    def reference(m, *given):
        return np.array([rate(step, *given) for step in range(40)])

    def cases(draw):
        for given in numbers:
            yield Case(TABLE[name], [], list(given), gradient=False)

    Operation(name, reference, cases, dtypes=(), result="f64", ulps=4, scale=lambda lr, *n: lr, plugin=False)


def cosine(step, lr, length):
    return lr * (1 + np.cos(np.pi * min(step / length, 1.0))) / 2 if length else 0.0


def warm(step, lr, length, warm_up):
    return lr * (step + 1) / warm_up if step < warm_up else cosine(step - warm_up, lr, length - warm_up)


base = "ferrotune_trial::optim::Schedule"
scheduled(f"{base}::constant", lambda step, lr: lr, [(0.3,)])
scheduled(f"{base}::linear", lambda step, lr, length: lr * (1 - min(step / length, 1.0)), [(0.3, 30), (0.3, 50)])
scheduled(f"{base}::cosine", cosine, [(0.3, 30), (0.3, 50)])
scheduled(f"{base}::step", lambda step, lr, every, factor: lr * factor ** (step // every), [(0.3, 7, 0.5)])
scheduled(f"{base}::warm_up", warm, [(0.3, 30, 5)])
