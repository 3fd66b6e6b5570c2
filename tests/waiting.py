"""Waiting for what another thread or process does, however busy the machine is."""

import time
from collections.abc import Callable

SLACK = 20.0
"""How many seconds more than a timeout something may take on a machine that runs other tests as well."""


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
