"""Pool of sampling processes, with the interface of a former class of DGL."""

import multiprocessing
import os
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from graphfeed.channels.bounded_queue import PeerError
from graphfeed.loader.executors import interrupts_blocked

JOIN_SECONDS = 10.0


class SamplerPool(ABC):
    """Base class that runs its `worker` method in several processes, with the name of a class in DGL's contrib package.

    DGL's pool ignored `num_worker` and lost the exceptions of workers. This one starts `num_worker` processes and
    raises the first failure.

    Example:
        >>> class Pool(SamplerPool):
        ...     def worker(self, args):
        ...         sender = SamplerSender({0: args.address})
    """

    start_method = "spawn"
    """Start method of `multiprocessing`: "spawn", "forkserver" or "fork"."""

    @abstractmethod
    def worker(self, args: Any) -> None:
        """Do the work of one process: create a sampler and a sender, send, signal."""

    def start(self, num_worker: int, args: Any) -> None:
        """Run `worker(args)` in `num_worker` processes, and return when all are done.

        All of them end on an interrupt at the terminal, and when this process ends or is killed.

        Raises:
            ValueError: `num_worker` is below 1.
            PeerError: A worker failed or died; the others are killed.
        """
        if num_worker < 1:
            raise ValueError(f"num_worker must be 1 or more, but is {num_worker}")
        context: Any = multiprocessing.get_context(self.start_method)
        workers: dict[Connection, Any] = {}
        try:
            for number in range(num_worker):
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=run_sampler, args=(self, args, there), name=f"sampler {number}")
                with interrupts_blocked():
                    process.start()
                    workers[here] = process
                there.close()  # so that the pipe ends with the worker
            self._watch(dict(workers))
        finally:
            for process in workers.values():
                process.kill()
            for connection, process in workers.items():
                connection.close()
                process.join(JOIN_SECONDS)

    def _watch(self, workers: dict[Connection, Any]) -> None:
        while workers:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                process = workers.pop(ready)
                try:
                    failure = ready.recv_bytes().decode()  # empty if the worker succeeded
                except EOFError:  # killed, or ended by os._exit
                    process.join(JOIN_SECONDS)
                    failure = f"it died with exit code {process.exitcode}"
                if failure:
                    raise PeerError(f"{process.name} failed: {failure}")
                process.join(JOIN_SECONDS)


def run_sampler(pool: SamplerPool, args: Any, connection: Connection) -> None:
    """Run the worker, and send its traceback, or an empty string, to the parent."""
    # An interrupt at the terminal reaches all processes, but the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked while the process started
    threading.Thread(target=end_with_parent, name="graphfeed-parent", daemon=True).start()
    failure = ""
    try:
        pool.worker(args)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            failure = traceback.format_exc()
    with suppress(BrokenPipeError):
        connection.send_bytes(failure.encode(errors="backslashreplace"))


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
