"""An executor of daemon threads with the interface of `concurrent.futures`, which can abandon hanging calls."""

import atexit
import ctypes
import gc
import os
import queue
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from graphfeed.datapipes import apply_stages, describe_place
from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.executors.worker_task import make
from graphfeed.ops.process import current_limits, uninterrupted

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED_SECONDS = 0.2
"""`Limits.join_seconds` after Ctrl-C, when a user waits for the prompt."""
ENDINGS: "weakref.WeakKeyDictionary[threading.Thread, Callable[[], None] | None]" = weakref.WeakKeyDictionary()
"""For each thread, the function that makes it end at the end of the program; None for one abandoned at work."""


class TorchThreads:
    """The process that PyTorch's thread pool belongs to."""

    process = os.getpid()


@dataclass(frozen=True)
class Call:
    """A function with its arguments, and the future of its result."""

    future: "Future[Any]"
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def __call__(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(*self.arguments, **self.keywords)
        except BaseException as error:
            self.future.set_exception(error)
            del self  # The traceback refers to this frame: without a cycle, results are freed immediately.
        else:
            self.future.set_result(result)


Calls = queue.SimpleQueue[Call | None]


class WorkerThread(threading.Thread):
    """A daemon thread that runs calls from a queue, until it is abandoned or reads None."""

    def __init__(self, calls: Calls, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.calls = calls
        self.at_work_on: Future[Any] | None = None
        self.abandoned = False
        ENDINGS[self] = partial(end_thread_calls, calls)

    def run(self) -> None:
        while not self.abandoned:
            task = self.calls.get()
            if task is None:
                self.calls.put(None)  # for the next thread
                return
            self.at_work_on = task.future
            task()
            self.at_work_on = task = None


class ThreadExecutor(Executor):
    """Runs calls in daemon threads, so that a hanging call does not block the program.

    The standard library's ThreadPoolExecutor joins its threads at shutdown and at the end of the program, however long
    they take. Here, `shutdown(cancel_futures=True)` and the end of the program wait for at most one second, or 0.2
    seconds after Ctrl-C. Threads that are still running then are abandoned, with one warning that describes where they
    are. A thread that takes too long can be replaced (`abandon`). Names of threads begin with `name`.

    Example:
        >>> with ThreadExecutor(max_workers=1) as executor:
        ...     executor.submit(pow, 2, 10).result()
        1024
    """

    def __init__(self, max_workers: int, name: str = "graphfeed") -> None:
        self._most_threads = max_workers
        self._name = name
        self._process = os.getpid()
        self._calls: Calls = queue.SimpleQueue()
        self._threads: list[WorkerThread] = []
        # The garbage collector may run a finalizer that calls shutdown() in a thread that holds the lock.
        self._lock = threading.RLock()
        self._finishing = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Submit a call and return the future of its result.

        An executor that was shut down, or belongs to the process that this one was forked from, raises a RuntimeError.
        """
        future: Future[T] = Future()
        self.complete(future, fn, *args, **kwargs)
        return future

    def make_submit(self, cut: Any, observer: Observer | None) -> "Callable[[Any, Future[Any]], None]":
        """Return a function that submits a task of a cut, whose stages all threads share."""
        work = cut.work()
        return lambda task, future: self.complete(future, work, task, observer)

    def complete(self, future: "Future[T]", fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Submit a call that completes the given future; otherwise like `submit`."""
        if os.getpid() != self._process:
            raise RuntimeError("this executor belongs to the process that this one was forked from; create one here")
        with self._lock:
            if self._finishing:
                raise RuntimeError("the executor was shut down; create another one")
            self._calls.put(Call(future, fn, args, kwargs))
            if len(self._threads) < self._most_threads:
                self._start_thread()

    def _start_thread(self) -> None:
        # The caller holds the lock.
        renew_torch_threads()
        with uninterrupted():
            thread = WorkerThread(self._calls, f"{self._name}_{len(self._threads)}")
            thread.start()
            self._threads.append(thread)

    def abandon(self, future: "Future[Any]") -> list[str]:
        """Replace the thread that works on a future, or all busy threads if none works on it.

        Returns a description of the work of each abandoned thread.
        """
        with self._lock:
            busy = [thread for thread in self._threads if thread.at_work_on is not None and not thread.abandoned]
            left = [thread for thread in busy if thread.at_work_on is future] or busy
            self._most_threads += len(left)
            for thread in left:
                thread.abandoned = True
            # After shutdown(), the last entry of the queue is None, so at most one entry means that no call is left.
            if not self._finishing or self._calls.qsize() > 1:
                for _ in left:
                    self._start_thread()
        return [describe_work(thread) for thread in left]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls and end the threads when all calls are done. With `wait`, return only then.

        With `cancel_futures`, drop the calls that no thread has begun, and wait for the others for at most one second.
        """
        # A forked process has only a copy without threads, whose lock may be held forever.
        if os.getpid() != self._process:
            return
        with self._lock:
            self._finishing = True
            if cancel_futures:
                drop(self._calls)
            self._calls.put(None)
        if wait and cancel_futures:
            join_or_abandon(self._threads)
        elif wait:
            for thread in self._threads:
                thread.join()


def renew_torch_threads() -> None:
    """Make torch create its thread pool again in a forked process; doing so from several threads at once can fail."""
    if TorchThreads.process != os.getpid():
        TorchThreads.process = os.getpid()
        torch.set_num_threads(torch.get_num_threads())


def drop(calls: Calls) -> None:
    # The queue only contains calls that no thread has begun.
    while True:
        try:
            task = calls.get_nowait()
        except queue.Empty:
            return
        if task is not None and task.future.cancel():
            task.future.set_running_or_notify_cancel()  # so that `concurrent.futures.wait` ends


def end_thread_calls(calls: Calls) -> None:
    drop(calls)
    calls.put(None)


def interrupted(error: BaseException | None) -> bool:
    # Including exceptions that were raised while Ctrl-C was handled.
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def join_or_abandon(threads: Iterable[threading.Thread]) -> None:
    # The garbage collector may call this in one of the threads.
    if threads := [thread for thread in threads if thread is not threading.current_thread()]:
        abandon(join_all(threads, sys.exc_info()[1]))


def join_all(threads: Iterable[threading.Thread], cause: BaseException | None) -> list[threading.Thread]:
    seconds = INTERRUPTED_SECONDS if interrupted(cause) else current_limits().join_seconds
    threads, end = list(threads), time.monotonic() + seconds
    with uninterrupted():  # an interrupted join would mark the thread as ended
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
    return [thread for thread in threads if thread.is_alive()]


def abandon(left: Collection[threading.Thread]) -> None:
    """Stop waiting for threads that are still running, with a warning."""
    if left:
        ENDINGS.update(dict.fromkeys(left))
        warnings.warn(
            f"abandoned {len(left)} thread{'s' if len(left) > 1 else ''} still at work: "
            f"{'; '.join(map(describe_work, left))}. Such a thread ends after its current call, or with the program",
            RuntimeWarning,
            stacklevel=2,
        )


def describe_work(thread: threading.Thread) -> str:
    """Describe the line that a thread executes, and its stage and mini-batch if they are found in its frames."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return f"{thread.name} has ended"
    line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
    for outer, _ in traceback.walk_stack(frame):
        known = outer.f_locals if outer.f_code in (apply_stages.__code__, make.__code__) else {}
        stage: Any = known.get("stage", known.get("source"))
        if stage is not None:
            return f"{thread.name} is {describe_place(stage, known.get('key'))}, at {line}"
    return f"{thread.name} is at {line}"


def end_threads() -> None:
    """End the remaining threads of all executors at the end of the program."""
    alive = {thread: end for thread, end in list(ENDINGS.items()) if thread.is_alive()}
    for end in alive.values():
        if end is not None:
            end()
    cause = getattr(sys, "last_value", None)  # the uncaught exception
    if interrupted(cause):
        # A garbage collection over all objects of torch would take a second.
        gc.freeze()
    # Python unwinds the stack of a thread that returns from C++ while the interpreter shuts down. Torch does not
    # survive that: the process would end with SIGABRT. Therefore, threads that don't end by themselves get an exception
    # before that, raised at the next line of Python code.
    waited_for = [thread for thread, end in alive.items() if end is not None]
    left = [*join_all(waited_for, cause), *(thread for thread, end in alive.items() if end is None)]
    for thread in left:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    abandon([thread for thread in join_all(left, cause) if alive[thread] is not None])


atexit.register(end_threads)
