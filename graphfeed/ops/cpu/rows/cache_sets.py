"""Kernels of a cache whose keys have few places each."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64Matrix, Int64s, device_function, kernel, multiply_high
from graphfeed.ops.cpu.random import mix


@device_function
def set_of(key, sets):
    return np.int64(multiply_high(mix(np.uint64(key)), np.uint64(sets)))


@kernel
def find_in_sets(keys: Int64Matrix, uses: Int64Matrix, wanted: Int64s, request: int, slots: Int64s) -> None:
    """Write the slot of each key, or -1, and note that it was asked for."""
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
    """Write a slot for each key, or -1; in each set the places of least use make room, of equal ones the first."""
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
        # All places of the set are of this request: the key gets none.
        if keys[own, place] != wanted[item] and uses[own, place] >= request:
            slots[item] = -1
            continue
        slots[item] = own * ways + place
        keys[own, place] = wanted[item]
        uses[own, place] = max(uses[own, place], request)
