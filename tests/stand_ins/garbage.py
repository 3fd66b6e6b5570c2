"""Finalizers that the garbage collector runs wherever it happens to collect."""

import gc
import threading
from collections.abc import Callable


class AtItsEnd:
    """Calls a function when the garbage collector frees it."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.itself = self

    def __del__(self) -> None:
        self.function()


def ends(function: Callable[[], object], seconds: float = 20) -> bool:
    """Call a function in a separate thread; return whether it ended."""
    gc.collect()  # garbage of other tests must not be collected there
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    gc.collect()  # and garbage of this test must not be collected in other tests
    return not thread.is_alive()
