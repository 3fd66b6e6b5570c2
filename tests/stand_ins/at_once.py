"""Two threads that reach one place at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from unittest.mock import patch


def by_two_threads(step: Callable[[], Any], owner: object, name: str, seconds: float = 5) -> list[Any]:
    """Return the results of a step in two threads, which meet where they call `owner.name`, if both do in time."""
    meeting, call = threading.Barrier(2), getattr(owner, name)

    def meet(*args: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            meeting.wait(seconds)
        return call(*args, **options)

    with patch.object(owner, name, meet), ThreadPoolExecutor(2) as pool:
        return [future.result(60) for future in [pool.submit(step) for _ in range(2)]]
