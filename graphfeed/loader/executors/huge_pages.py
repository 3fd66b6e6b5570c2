"""Moves what worker processes share into huge pages, in a thread, while they make mini-batches already.

It takes some seconds per GB, and only changes how fast the memory is read. So the thread leaves the cores to others:
it has a tenth of the weight that the workers have, and takes longer where the cores are busy.
"""

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from graphfeed.storage.memory.memory_map import HUGE_PAGE, Bytes, collapse
from graphfeed.storage.memory.shared import COLLAPSE

PIECE_BYTES = HUGE_PAGE
"""What is moved between two looks at whether to stop: some milliseconds, or hundredths of a second on busy cores."""
NICENESS = 10
"""Added to the nice value of the process, in the thread alone."""
WAITING: "deque[tuple[weakref.ref[Bytes], int]]" = deque()
"""Memory that is not in huge pages yet, and how much of it is."""


@contextmanager
def collapsed_later() -> Iterator[None]:
    """Let memory that is shared meanwhile wait for a `HugePages`."""
    before = COLLAPSE.set(lambda memory: WAITING.append((weakref.ref(memory), 0)))
    try:
        yield
    finally:
        COLLAPSE.reset(before)


class HugePages:
    """A thread that moves into huge pages what waits for it. What is left at its end waits for the next one."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if anything waits."""
        if WAITING and self.thread is None:
            self.thread = threading.Thread(target=self.run_gently, name="graphfeed-huge-pages", daemon=True)
            self.thread.start()

    def run_gently(self) -> None:
        """Move piece after piece, and leave the cores to other threads."""
        if sys.platform == "linux":  # where a thread has a priority of its own
            with suppress(OSError):  # a sandbox forbids it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + NICENESS)
        self.run()

    def run(self) -> None:
        """Move piece after piece."""
        with suppress(IndexError):  # nothing waits any more
            while not self.stopping.is_set():
                reference, begin = WAITING.popleft()
                memory = reference()
                if memory is not None:
                    end = begin + PIECE_BYTES
                    collapse(memory[begin:end])
                    if end < memory.size:
                        WAITING.appendleft((reference, end))

    def stop(self) -> None:
        """End the thread."""
        self.stopping.set()
        # The garbage collector may call this in any thread.
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join()
