"""Kernels of a set-associative cache."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64Matrix, Int64s, device_function, kernel, multiply_high
from graphfeed.ops.cpu.random import mix


@device_function
def set_of(key, sets):
    return np.int64(multiply_high(mix(np.uint64(key)), np.uint64(sets)))


@kernel
def find_in_sets(keys: Int64Matrix, uses: Int64Matrix, wanted: Int64s, request: int, slots: Int64s) -> None:
    """Write the slot of each key, or -1, and record the request in `uses`."""
    sets, ways = keys.shape
    for item in range(wanted.size):
        own = set_of(wanted[item], sets)
        slots[item] = -1
        for way in range(ways):
            if keys[own, way] == wanted[item]:
                slots[item] = own * ways + way
                uses[own, way] = request


@kernel
def replace_in_sets(keys: Int64Matrix, uses: Int64Matrix, wanted: Int64s, request: int, slots: Int64s) -> None:
    """Write a slot for each key, or -1. Evicts the least recently used way of a set, and the first one of equals."""
    sets, ways = keys.shape
    for item in range(wanted.size):
        own = set_of(wanted[item], sets)
        place = 0
        for way in range(ways):
            if keys[own, way] == wanted[item]:
                place = way
                break
            if uses[own, way] < uses[own, place]:
                place = way
        # All ways of the set are used by this request: the key gets no slot.
        if keys[own, place] != wanted[item] and uses[own, place] >= request:
            slots[item] = -1
            continue
        slots[item] = own * ways + place
        keys[own, place] = wanted[item]
        uses[own, place] = max(uses[own, place], request)
