"""A function that is called once in each worker."""

import itertools
import threading
from collections.abc import Callable
from multiprocessing import current_process, parent_process
from typing import Any
from weakref import WeakSet

from graphfeed.datapipes import Transform
from graphfeed.loader.executors import FORGETS


class InitWorker(Transform):
    """Calls torch's `worker_init_fn` in each worker before its first mini-batch, and not outside of workers."""

    function: Callable[[int], Any]

    foreign = False
    same_size = True

    def __call__(self, minibatch: Any) -> Any:
        done = LOCAL.__dict__.setdefault("done", WeakSet())
        if self.function not in done:
            done.add(self.function)
            if parent_process() is not None:  # a worker process, whose name ends with its number
                self.function(int("".join(filter(str.isdigit, current_process().name)) or 0))
            elif threading.current_thread() is not threading.main_thread():
                # Threads are numbered as they get their first mini-batches.
                self.function(next(NUMBERS))
        return minibatch


LOCAL = threading.local()
FORGETS.append(LOCAL.__dict__.clear)  # a worker process does all its calls in one thread, which imports this
NUMBERS = itertools.count()
