"""An executor of worker processes, which has the interface of `concurrent.futures` and replaces workers that die."""

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
from graphfeed.loader.executors.dispatcher import START_SECONDS, Dispatcher, Task
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
    """Runs calls in worker processes; if a worker is killed, another one does its call again.

    It is a `concurrent.futures.Executor`, and differs from the standard library's ProcessPoolExecutor in this:

    - A worker that dies is replaced, and its call is done again, so it must do no harm to run a call twice. A call that
      kills three workers, or takes longer than `timeout`, fails, and only that call.
    - Tensors and arrays in results arrive through shared memory: they are copied once, in the worker, take no file
      descriptor each, and may be kept.
    - `shutdown(cancel_futures=True)` also ends the calls that workers are doing at that moment. All workers end with
      this process, however it ends, and nothing stays behind in the system. An executor that nobody refers to any more
      ends when its calls are done.

    Workers start when there is work, take one call at a time in the order of submission, and use one torch thread.
    Arguments are pickled when they are submitted, tensors among them by value. A call costs 0.25 ms with several in
    flight, and 0.4 to 0.5 ms there and back with one.

    Args:
        max_workers: The largest number of processes; None means as many as the cores that this process may use.
        start_method: "forkserver" (the default; the imports are paid once), "spawn" (the only one on Windows), or
            "fork", which is quick but unsafe once this process runs threads that hold locks.
        timeout: How many seconds a call may take. The start of a worker may take `START_SECONDS` more.

    Raises:
        ValueError: An option out of range.
        RuntimeError: This process is daemonic, and may start no others; or the program was read from standard input.

    Example:
        >>> with ProcessExecutor(max_workers=1) as executor:
        ...     executor.submit(pow, 2, 10).result()
        1024
    """

    start_seconds = START_SECONDS
    """How long calls may have to wait until a worker has started, beyond their own timeout."""

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
                "threads (worker='thread') in there, or graphfeed.DataLoader with worker='process' in its place"
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
        """Submit a call; return the future of its result.

        Raises:
            RuntimeError: The executor was shut down, or belongs to the process that this one was forked from.
        """
        future: Future[T] = Future()
        self.complete(future, fn, *args, **kwargs)
        return future

    def complete(self, future: "Future[T]", fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Submit a call that completes a future, as for `submit`."""
        if os.getpid() != self._dispatcher.process:
            raise RuntimeError("this executor belongs to the process that this one was forked from; make another here")
        self._dispatcher.put(Task(next(self._numbers), dump(partial(fn, *args, **kwargs)), future))

    def begin(self, cut: Any, observer: Observer | None) -> "Callable[[Any, Future[Any]], None]":  # noqa: ARG002
        """Return a function that submits a task of a cut, with its stages: each process unpacks these once."""
        work = pack_work(cut.work())
        return lambda task, future: self.complete(future, work_here, work, task)

    def pids(self) -> list[int]:
        """Return the process ids of the present workers."""
        return [worker.pid for worker in list(self._dispatcher.workers)]

    @property
    def num_replaced(self) -> int:
        """How many workers have died or were killed since the start."""
        return self._dispatcher.num_replaced

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; end the workers when all calls are done, or at once with `cancel_futures`."""
        self._dispatcher.finish(cancel=cancel_futures)
        # The garbage collector may call this in any thread.
        if wait and threading.current_thread() is not self._dispatcher.thread:
            self._dispatcher.thread.join()


def make_context(start_method: str) -> BaseContext:
    """Return the multiprocessing context of a start method that this system has."""
    methods = multiprocessing.get_all_start_methods()
    if start_method not in methods:
        raise ValueError(f"start_method must be one of {methods}, but is {brief(start_method)}")
    if start_method == "forkserver":
        # The server imports this once, for all workers, while this process does something else. Has no effect if a
        # server runs already.
        forkserver.set_forkserver_preload(PRELOAD)
        if is_of_parent():
            start_method = "spawn"
    return multiprocessing.get_context(start_method)


def is_of_parent() -> bool:
    """Start the fork server if none runs; return whether it is one that the parent of this forked process started."""
    try:
        resource_tracker.ensure_running()  # otherwise it would start with the server, and unblock interrupts
        # By a variable rather than `set_forkserver_preload`: there a package that raises anything but an ImportError
        # would end the server.
        os.environ[TO_PRELOAD] = " ".join(installed_imports() if is_importable() else ())
        with interrupts_blocked():
            forkserver.ensure_running()
    except ChildProcessError:
        return True
    finally:
        os.environ.pop(TO_PRELOAD, None)
    return False


def end_all() -> None:
    dispatchers = list(RUNNING)
    for dispatcher in dispatchers:
        dispatcher.finish(cancel=True)
    for dispatcher in dispatchers:
        dispatcher.thread.join(1.0)


atexit.register(end_all)
