"""Kernel that looks at a descriptor: system calls in turn, without the interpreter between them."""

import numpy as np
from numba import types

from graphfeed.ops.cpu.jit import kernel

# Linked by name, so that the machine code can be kept on disk; a pointer is passed as the integer that it is.
poll = types.ExternalFunction("poll", types.int32(types.intp, types.uint64, types.int32))
sched_yield = types.ExternalFunction("sched_yield", types.int32())
clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))

MONOTONIC = 1
SECOND = 1_000_000_000


@kernel
def spin(request, nanoseconds, busy):
    """Return whether a descriptor was ready before the time was over.

    Args:
        request: The bytes of a struct pollfd.
        nanoseconds: How long to look.
        busy: A look that takes so long is the last one.
    """
    clock = np.empty(2, np.int64)
    clock_gettime(np.int32(MONOTONIC), clock.ctypes.data)
    begin = clock[0] * SECOND + clock[1]
    last = begin
    while poll(request.ctypes.data, np.uint64(1), np.int32(0)) == 0:
        clock_gettime(np.int32(MONOTONIC), clock.ctypes.data)
        now = clock[0] * SECOND + clock[1]
        if now - begin >= nanoseconds or now - last >= busy:
            return False
        last = now
        sched_yield()
    return True
