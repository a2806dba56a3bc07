"""The problems of tuner/oracle/benches/hpo/problems/{kinds,noisy}.rs, for Optuna; benchmarks/bench_hpo.py searches them."""

import math


def table(salt, position, a, b):
    """A number of the unit interval that depends on four others and looks random."""
    key = salt * 1009 + position * 131 + a * 31 + b * 17 + 7
    mixed = key * 2654435761 % 2**32
    return (mixed ^ (mixed >> 15)) * 2246822519 % 2**32 / 2**32


def choices(trial, counts):
    return [trial.suggest_categorical(f"c{i + 1}", list(range(count))) for i, count in enumerate(counts)]


def ring5(trial):
    c = choices(trial, [5] * 5)
    pairs = sum(table(11, i, c[i], c[(i + 1) % 5]) for i in range(5))
    triples = sum(table(12, i, c[i], 5 * c[(i + 1) % 5] + c[(i + 2) % 5]) for i in range(5))
    return pairs / 5 + triples / 10


def leader5(trial):
    c = choices(trial, [4, 6, 6, 6, 6])
    return 0.3 * table(14, 0, c[0], 0) + sum(table(13, i, c[0], c[i]) for i in range(1, 5)) / 4


def small9(trial):
    c = choices(trial, [3, 2, 4, 3, 2, 3, 4, 2, 3])
    own = sum(table(15, i, c[i], 0) for i in range(9))
    return own / 18 + sum(table(16, i, c[i], c[(i + 3) % 9]) for i in range(9)) / 9


def counts(trial, items, most):
    return [trial.suggest_int(f"n{item}", 0, most) for item in range(1, items + 1)]


def total(counts, each):
    return sum(a * b for a, b in zip(counts, each))


def packed(counts, values, needs, room, most):
    excess = sum(max(total(counts, each) / limit - 1, 0) for each, limit in zip(needs, room))
    return 1 + excess if excess > 0 else 1 - total(counts, values) / most


def crates5(trial):
    return packed(counts(trial, 5, 20), [7, 12, 4, 19, 9], [[3, 5, 2, 9, 4]], [130], 310)


def luggage10(trial):
    values = [6, 10, 3, 8, 14, 5, 7, 12, 4, 9]
    needs = [[2, 5, 1, 4, 9, 3, 2, 6, 3, 4], [3, 2, 2, 5, 4, 1, 6, 3, 1, 4]]
    return packed(counts(trial, 10, 3), values, needs, [40, 36], 92)


def order7(trial):
    n, wanted = counts(trial, 7, 12), [9, 2, 6, 11, 1, 8, 4]
    missing = sum(max(w - c, 0) for c, w in zip(n, wanted))
    spare = sum(max(c - w, 0) for c, w in zip(n, wanted))
    return 0.1 * missing + 0.04 * spare + 0.005 * sum(abs(a - b) for a, b in zip(n, n[1:]))


def lure3(trial):
    kind = trial.suggest_categorical("kind", ["near", "far", "flat"])
    x = [trial.suggest_float(f"x{i}", -1, 1) for i in (1, 2, 3)]

    def away(*place):
        return sum((v - p) ** 2 for v, p in zip(x, place))

    if kind == "near":
        return 0.6 + 0.5 * away(0.1, -0.1, 0.2)
    return 1.5 * away(0.6, -0.5, -0.6) if kind == "far" else 1.1 + 0.1 * away(0.0, 0.5, 0.5)


def lure6(trial):
    kind = trial.suggest_categorical("kind", ["a", "b", "c", "d", "e", "f"])
    offset = {"a": 0.9, "b": 1.6, "c": 0.6, "d": 2.2, "e": 0.0, "f": 1.2}[kind]
    rate, x = math.log10(trial.suggest_float("rate", 1e-6, 1.0, log=True)), trial.suggest_float("x", 0, 10)
    n, m = trial.suggest_int("n", 1, 16), trial.suggest_int("m", 0, 8)
    return offset + 0.3 * (rate + 4.4) ** 2 + 0.1 * (x - 7.5) ** 2 + 0.04 * (n - 12) ** 2 + 0.1 * (m - 2) ** 2


OFFSETS = [[0.7, 0.9, 1.0, 1.8], [0.8, 1.2, 1.4, 1.1], [1.5, 1.3, 0.0, 1.6], [1.1, 0.9, 1.7, 1.3]]


def couple4(trial):
    row, column = ("abcd".index(trial.suggest_categorical(name, list("abcd"))) for name in ("row", "column"))
    x, y = trial.suggest_float("x", -4, 4), trial.suggest_float("y", -4, 4)
    return OFFSETS[row][column] + 0.2 * (x - 2) ** 2 + 0.2 * (y + 1 + 0.5 * (x - 2)) ** 2


def bowl4n(trial):
    x = [trial.suggest_float(f"x{i}", -3, 3) for i in (1, 2, 3, 4)]
    y = [v - place for v, place in zip(x, (0.7, -1.1, 0.4, 1.6))]
    own = sum(weight * v * v for v, weight in zip(y, (1.0, 0.4, 2.0, 0.2)))
    waves = sum(1 - math.cos(math.pi * v) for v in y)
    return own + 0.5 * (y[0] - y[1]) ** 2 + 0.3 * (y[2] + y[3]) ** 2 + 0.1 * waves


def recipe5n(trial):
    lr = math.log10(trial.suggest_float("lr", 1e-5, 1e-1, log=True))
    units = math.log2(trial.suggest_int("units", 8, 512, log=True))
    layers, dropout = trial.suggest_int("layers", 1, 4), trial.suggest_float("dropout", 0.0, 0.6)
    offset = {"relu": 0.01, "tanh": 0.05, "silu": 0.0}[trial.suggest_categorical("act", ["relu", "tanh", "silu"])]
    rate = 0.06 * (lr + 2.7 + 0.15 * (units - 6)) ** 2
    shape = 0.006 * (units - 7.3) ** 2 + 0.012 * (layers - 2) ** 2
    return 0.08 + offset + rate + shape + 0.3 * (dropout - 0.25) ** 2


def dials3n(trial):
    a, b, c = (trial.suggest_int(name, 0, 7) - place for name, place in (("a", 5), ("b", 2), ("c", 4)))
    return 0.05 * a * a + 0.04 * b * b + 0.03 * c * c + 0.02 * a * b


def teams4n(trial):
    c = choices(trial, [4, 3, 3, 4])
    return sum(table(21, i, c[i], 0) for i in range(4)) / 4 + sum(table(22, i, c[i], c[i + 1]) for i in range(3)) / 6


KINDS = {
    "ring5": ring5,
    "leader5": leader5,
    "small9": small9,
    "crates5": crates5,
    "luggage10": luggage10,
    "order7": order7,
    "lure3": lure3,
    "lure6": lure6,
    "couple4": couple4,
    "bowl4n": bowl4n,
    "recipe5n": recipe5n,
    "dials3n": dials3n,
    "teams4n": teams4n,
}
