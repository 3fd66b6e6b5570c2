"""Looking at a descriptor for a moment, before one sleeps until it is ready."""

import select

import numpy as np
from numpy.typing import NDArray

from graphfeed.ops.backend import load

POLLFD = np.dtype([("fd", np.int32), ("events", np.int16), ("revents", np.int16)])
"""C's struct pollfd."""
BUSY_MICROSECONDS = 50
"""Where a look takes so long, others want the core: sleeping leaves it to them."""


def poll_request(descriptor: int) -> NDArray[np.uint8]:
    """Return what `spin` looks at: whether a socket, a pipe or an epoll object has something to read, or has ended."""
    request = np.zeros(1, POLLFD)
    request["fd"], request["events"] = descriptor, select.POLLIN
    return request.view(np.uint8)


def spin(request: NDArray[np.uint8], microseconds: int, busy_microseconds: int = BUSY_MICROSECONDS) -> bool:
    """Ask a descriptor again and again whether it is ready; return whether it was, before the time was over.

    To sleep and be woken costs a core some 40 microseconds, and what wakes it some 5; who expects an answer sooner than
    that looks for it awake. Between two looks others may have the core, and where they take it this returns early; the
    interpreter lock is free all the while. Costs a microsecond where it is ready; the first call of a process loads the
    kernel, and Numba where that is not there yet, which takes half a second.

    Args:
        request: Of `poll_request`; one thread at a time.
        microseconds: How long it looks at most.
        busy_microseconds: A look that takes so long, because others have the core, is the last one.

    Example:
        >>> import socket
        >>> here, there = socket.socketpair()
        >>> request = poll_request(here.fileno())
        >>> spin(request, 10), there.send(b"x"), spin(request, 10)
        (False, 1, True)
        >>> here.close(), there.close()
        (None, None)
    """
    return bool(load("cpu", "spin").spin(request, microseconds * 1000, busy_microseconds * 1000))
