"""An executor of worker processes with the interface of `concurrent.futures`, which replaces workers that die."""

import atexit
import itertools
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any, ParamSpec, TypeVar

from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.executors.cores import available_cores
from graphfeed.loader.executors.dispatcher import START_SECONDS, Dispatcher, WorkerCall
from graphfeed.loader.executors.main_module import TO_PRELOAD, check_main_module, installed_imports, is_importable
from graphfeed.loader.executors.worker_process import interrupts_blocked
from graphfeed.loader.executors.worker_task import pack_work, work_here
from graphfeed.loader.transport.pickling import dump
from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.process import uninterrupted

PRELOAD = ["graphfeed.loader.executors.preload"]
RUNNING: "weakref.WeakSet[Dispatcher]" = weakref.WeakSet()

P = ParamSpec("P")
T = TypeVar("T")


class ProcessExecutor(Executor):
    """Runs calls in worker processes; if a worker is killed, another one repeats its call.

    It is a `concurrent.futures.Executor` that differs from the standard library's ProcessPoolExecutor as follows:

    - A worker that dies is replaced, and its call is repeated, so running a call twice must be harmless. A call that
      kills three workers, or takes longer than `timeout`, fails; other calls are not affected.
    - Tensors and arrays in results arrive through shared memory: they are copied once, in the worker, use no file
      descriptor each, and may be kept.
    - `shutdown(cancel_futures=True)` also ends running calls. All workers end with this process, however it ends, and
      leave nothing behind in the system. An executor that is no longer referenced ends when its calls are done.

    Workers start when there is work, run one call at a time in the order of submission, and use one torch thread.
    Arguments are pickled at submission, tensors by value. A call costs 0.25 ms if several are in flight; a single one
    has a latency of 0.4 to 0.5 ms.

    Args:
        max_workers: Maximum number of processes; None means the number of cores that this process may use.
        start_method: "forkserver" (the default, which imports modules only once), "spawn" (the only one on Windows), or
            "fork", which is fast but unsafe if threads of this process hold locks.
        timeout: Maximum number of seconds for a call. The start of a worker may take `START_SECONDS` longer.

    Raises:
        ValueError: An option is out of range.
        RuntimeError: This process is daemonic and can't start processes, or the program was read from standard input.

    Example:
        >>> with ProcessExecutor(max_workers=1) as executor:
        ...     executor.submit(pow, 2, 10).result()
        1024
    """

    start_seconds = START_SECONDS
    """Seconds that calls may wait for the start of a worker, in addition to their timeout."""

    @checked
    def __init__(
        self,
        max_workers: int | None = None,
        *,
        start_method: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        if max_workers is None:
            max_workers = available_cores()
        if max_workers < 1:
            raise ValueError(f"max_workers must be 1 or more, but is {max_workers}")
        if not timeout > 0:
            raise ValueError(f"timeout must be more than 0 seconds, but is {timeout}")
        if multiprocessing.current_process().daemon:
            raise RuntimeError(
                "worker processes can't be started in a daemonic process, such as a worker of torch's DataLoader; use "
                "threads (worker='thread') there, or replace it by graphfeed.DataLoader with worker='process'"
            )
        self._numbers = itertools.count()
        start_method = start_method or ("spawn" if sys.platform == "win32" else "forkserver")
        check_main_module(start_method)
        context = make_context(start_method)
        self._dispatcher = Dispatcher(max_workers, context, timeout)
        with uninterrupted():
            self._dispatcher.thread.start()
        RUNNING.add(self._dispatcher)
        weakref.finalize(self, self._dispatcher.finish, cancel=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Submit a call and return the future of its result.

        Raises:
            RuntimeError: The executor was shut down, or belongs to the process that this one was forked from.
        """
        future: Future[T] = Future()
        self.complete(future, fn, *args, **kwargs)
        return future

    def complete(self, future: "Future[T]", fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Submit a call that completes the given future; otherwise like `submit`."""
        if os.getpid() != self._dispatcher.process:
            raise RuntimeError("this executor belongs to the process that this one was forked from; create one here")
        self._dispatcher.put(WorkerCall(next(self._numbers), dump(partial(fn, *args, **kwargs)), future))

    def make_submit(self, cut: Any, observer: Observer | None) -> "Callable[[Any, Future[Any]], None]":  # noqa: ARG002
        """Return a function that submits a task of a cut with its stages, which each process unpickles only once."""
        work = pack_work(cut.work())
        return lambda task, future: self.complete(future, work_here, work, task)

    def pids(self) -> list[int]:
        """Return the process ids of the current workers."""
        return [worker.pid for worker in list(self._dispatcher.workers)]

    @property
    def num_replaced(self) -> int:
        """Number of workers that have died or were killed since the start."""
        return self._dispatcher.num_replaced

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls and end the workers when all calls are done, or immediately with `cancel_futures`."""
        self._dispatcher.finish(cancel=cancel_futures)
        # The garbage collector may call this in any thread.
        if wait and threading.current_thread() is not self._dispatcher.thread:
            self._dispatcher.thread.join()


def make_context(start_method: str) -> BaseContext:
    """Return the multiprocessing context of a start method; raise a ValueError if this system does not have it."""
    methods = multiprocessing.get_all_start_methods()
    if start_method not in methods:
        raise ValueError(f"start_method must be one of {methods}, but is {brief(start_method)}")
    if start_method == "forkserver":
        # The server imports this once, for all workers, concurrently with this process. Has no effect if a server is
        # already running.
        forkserver.set_forkserver_preload(PRELOAD)
        if is_of_parent():
            start_method = "spawn"
    return multiprocessing.get_context(start_method)


def is_of_parent() -> bool:
    """Start the fork server if none is running; return whether the parent of this forked process started it."""
    try:
        resource_tracker.ensure_running()  # otherwise it would start with the server, and unblock interrupts
        # By a variable rather than `set_forkserver_preload`, where a package that raises anything other than an
        # ImportError would end the server.
        os.environ[TO_PRELOAD] = " ".join(installed_imports() if is_importable() else ())
        with interrupts_blocked():
            forkserver.ensure_running()
    except ChildProcessError:
        return True
    finally:
        os.environ.pop(TO_PRELOAD, None)
    return False


def end_processes() -> None:
    dispatchers = list(RUNNING)
    for dispatcher in dispatchers:
        dispatcher.finish(cancel=True)
    for dispatcher in dispatchers:
        dispatcher.thread.join(1.0)


atexit.register(end_processes)
