"""Waiting for what another thread or process does, however busy the machine is."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as something holds.

    Raises:
        TimeoutError: It never did.
    """
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"it did not hold for {seconds:g} s")
        time.sleep(0.005)
