"""Makes a case that differs small: takes away elements as long as it differs in the same way."""

import dataclasses

import numpy as np

from differences import program
from differences.compare import judge

ROUNDS = 24


def direct(difference):
    """The case with the one element, or with the one row, that is wrong."""
    case, place = difference.case, difference.place and difference.place[1]
    if not place or not case.axes:
        return
    letters = case.axes[0]
    for count in (len(place), 1):
        kept = {letter: at for letter, at in zip(letters[:count], place) if letter != "."}
        inputs = []
        for array, own in zip(case.inputs, case.axes):
            for dim, letter in enumerate(own):
                if array.shape[dim] > 1 and kept.get(letter, array.shape[dim]) < array.shape[dim]:
                    array = np.take(array, [kept[letter]], axis=dim)
            inputs.append(array)
        yield dataclasses.replace(case, inputs=inputs)


def candidates(case):
    """The case with fewer elements along one letter of its axes, the smallest first."""
    sizes = {}
    for array, letters in zip(case.inputs, case.axes):
        for size, letter in zip(array.shape, letters):
            if letter != ".":
                sizes[letter] = max(size, sizes.get(letter, 1))
    for letter, size in sizes.items():
        for kept in kept_places(size):
            yield dataclasses.replace(case, inputs=[taken(array, letters, letter, size, kept) for array, letters in zip(case.inputs, case.axes)])


def kept_places(size):
    if 1 < size <= 40:
        yield from ([place] for place in range(size))
    if size > 2:
        yield from (list(part) for part in np.array_split(np.arange(size), 2))
    if 2 < size <= 12:
        yield from ([place for place in range(size) if place != left] for left in range(size))


def taken(array, letters, letter, size, kept):
    for dim, own in enumerate(letters):
        if own == letter and array.shape[dim] == size:
            array = np.take(array, kept, axis=dim)
    return array


def shrunk(differences, mode):
    """The same differences of smaller cases. The plugin compiles each case, and tries only the element that is wrong."""
    current = better_of(list(differences), range(len(differences)), direct, mode)[0]
    active = range(len(current)) if mode == "cpu" else ()
    for _ in range(ROUNDS):
        current, active = better_of(current, active, lambda difference: candidates(difference.case), mode)
        if not active:
            break
    return current


def better_of(current, active, propose, mode):
    """Differences with the first proposed case of each that differs in the same way, and the places of those that have one."""
    tried = [(place, case) for place in active for case in propose(current[place])]
    better = {}
    for (place, case), outcome in zip(tried, program.outcomes([case for _, case in tried], mode)):
        if place in better:
            continue
        try:
            found = judge(case, outcome, mode)
        except (IndexError, ValueError, TypeError, ZeroDivisionError):
            # The operation has no such smaller case.
            continue
        if found is not None and (found.kind, found.part) == (current[place].kind, current[place].part):
            better[place] = found
    return [better.get(place, difference) for place, difference in enumerate(current)], sorted(better)
