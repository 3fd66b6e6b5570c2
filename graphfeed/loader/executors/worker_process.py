"""The parent's handle of a worker process: mailboxes, exit code and termination."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from typing import Any

from graphfeed.loader.executors.main_module import PREFIX
from graphfeed.loader.executors.worker_main import NUMBER, Reply, run_worker
from graphfeed.loader.transport.mailbox import open_mailbox
from graphfeed.loader.transport.pickling import decode
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.loader.transport.zero_copy import open_zero_copy
from graphfeed.ops.memory import Bytes
from graphfeed.ops.process import renew_in_child

NAMES = itertools.count()
SEND_SECONDS = 30.0
"""Timeout for sending a call. A worker always reads calls, in a separate thread."""


class WorkerProcess:
    """A worker process that runs one call at a time, and the mailboxes to and from it."""

    def __init__(self, context: BaseContext) -> None:
        self.outbox, inbox = open_mailbox()
        outbox, self.inbox = open_mailbox()
        sender, self.receiver = open_zero_copy()
        self.ready = False
        self.since = time.monotonic()
        """Time when the process was started, or its current call was sent."""
        self.gone = False
        self.owns_sentinel = False
        # A forked child closes its copies of the mailboxes: with an open one, workers don't notice their parent's end.
        renew_in_child(self, WorkerProcess.close)
        try:
            make: Any = context.Process  # type: ignore[attr-defined]
            name = f"{PREFIX}{next(NAMES)}"
            self.process = make(target=run_worker, args=(inbox, outbox, sender), name=name)
            if context.get_start_method() != "fork":
                # Otherwise it would start with the first process, and unblock interrupts.
                resource_tracker.ensure_running()
            with interrupts_blocked():
                self.process.start()
        except BaseException:
            self.close()
            raise
        finally:
            # The process has its own copies by now.
            inbox.close()
            outbox.close()
            sender.close()
        self.pid = int(self.process.pid)
        self.sentinel, self.owns_sentinel = open_sentinel(self.process, context)
        """A descriptor that is readable once the process has ended."""
        self.name = f"worker process {name} (pid {self.pid})"

    def send(self, number: int, call: bytes) -> None:
        self.since = time.monotonic()
        try:
            self.outbox.send(NUMBER.pack(number) + call, timeout_seconds=SEND_SECONDS)
        except (Closed, TimeoutError):
            # The dispatcher handles the exit.
            self.process.kill()

    def replies(self) -> Iterator[Reply | BaseException]:
        """Yield the replies that have arrived, including the last ones of a process that has ended."""
        while True:
            try:
                message = self.inbox.receive(timeout_seconds=0)
            except TimeoutError:
                return
            except Closed:
                self.gone = True
                return
            except Exception as error:
                # Yielded instead of a reply, whose memory could not be mapped, and is not sent again.
                self.gone = True
                yield error
                return
            yield decode_reply(*self.receiver.unpack(*message))

    def describe_exit(self) -> str:
        return describe_exit(self.process.exitcode)

    def close(self) -> None:
        if self.owns_sentinel:
            self.owns_sentinel = False
            os.close(self.sentinel)
        # This makes the worker exit. If this process dies, the system closes them.
        self.outbox.close()
        self.inbox.close()

    def join(self, seconds: float) -> None:
        # join() waits for a pipe that the worker's children may hold open, so don't wait if the worker has ended.
        seconds = seconds if self.process.exitcode is None else 0.0
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def describe_exit(code: int | None) -> str:
    """Describe an exit code; None if other code has waited for the process."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in processes that are started in this context, until they set their own handlers."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_sentinel(process: Any, context: BaseContext) -> tuple[int, bool]:
    """Return a descriptor that is readable once a process has ended, and whether the caller must close it."""
    # The sentinel of `multiprocessing` is a pipe that the children of the process inherit, so it may stay open after
    # the process has ended. It is the only way for children of a fork server, as they are not children of this process.
    if hasattr(os, "pidfd_open") and context.get_start_method() != "forkserver":
        try:
            return os.pidfd_open(process.pid), True
        except OSError:
            pass  # an old system, or a process that has ended and was already waited for
    return int(process.sentinel), False


def decode_reply(header: bytes, buffers: list[Bytes]) -> Reply | BaseException:
    try:
        reply: Reply = decode(header, buffers)
    # Unpickling a class may raise anything, even SystemExit.
    except BaseException as error:
        return error
    return reply
