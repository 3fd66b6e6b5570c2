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
    """Call a function in a thread of its own; return whether it came to an end."""
    gc.collect()  # what other tests left shall not be collected there
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    gc.collect()  # and neither shall what was left here be collected in other tests
    return not thread.is_alive()
