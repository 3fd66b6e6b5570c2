"""A worker process, seen from the process that started it."""

import itertools
import os
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from typing import Any

from graphfeed.loader.executors.worker_main import NUMBER, Reply, run_worker
from graphfeed.loader.transport.lending import open_lending
from graphfeed.loader.transport.mailbox import open_mailbox
from graphfeed.loader.transport.pickling import decode
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.storage.memory.memory_map import Bytes

NAMES = itertools.count()
ALIVE: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()
SEND_SECONDS = 30.0
"""How long a call may wait for room: a worker listens in a thread of its own, so there always is some."""


class WorkerProcess:
    """One process and the mailboxes to and from it; it does one call at a time.

    It ends when this side closes them, which the system does too when this process dies.
    """

    def __init__(self, context: BaseContext) -> None:
        self.outbox, inbox = open_mailbox()
        outbox, self.inbox = open_mailbox()
        lender, self.borrower = open_lending()
        self.ready = False
        self.since = time.monotonic()
        """When it was started, or given what it does now."""
        self.gone = False
        self.owns_sentinel = False
        ALIVE.add(self)
        try:
            make: Any = context.Process  # type: ignore[attr-defined]
            name = f"graphfeed-{next(NAMES)}"
            self.process = make(target=run_worker, args=(inbox, outbox, lender), name=name)
            if context.get_start_method() != "fork":
                # It starts with the first process otherwise, and lets interrupts through again.
                resource_tracker.ensure_running()
            with interrupts_held_back():
                self.process.start()
        except BaseException:
            self.close()
            raise
        finally:
            inbox.close()
            outbox.close()
            lender.close()
        self.pid = int(self.process.pid)
        self.sentinel, self.owns_sentinel = open_sentinel(self.process, context)
        """Readable when the process has ended."""
        self.name = f"worker process {name} (pid {self.pid})"

    def send(self, number: int, call: bytes) -> None:
        """Give it a call; one that is dead or deaf is known by that it does not answer."""
        self.since = time.monotonic()
        try:
            self.outbox.send(NUMBER.pack(number) + call, timeout_seconds=SEND_SECONDS)
        except (Closed, TimeoutError):
            self.process.kill()

    def replies(self) -> Iterator[Reply | BaseException]:
        """Yield the replies that have come by now; a process that is gone left its last ones.

        In the place of one that can't be had here comes the exception that says why.
        """
        while True:
            try:
                message = self.inbox.receive(timeout_seconds=0)
            except TimeoutError:
                return
            except Closed:
                self.gone = True
                return
            except Exception as error:
                # Its memory could not be mapped, and it is sent once.
                self.gone = True
                yield error
                return
            yield read(*self.borrower.unpack(*message))

    def was_killed(self) -> bool:
        """Tell whether a process that is gone was ended by a signal."""
        # None is what it is of a process whose end somebody else was told.
        return (self.process.exitcode or 0) < 0

    def fate(self) -> str:
        """Say how a process that is gone has ended."""
        code = self.process.exitcode
        if not self.was_killed():
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def close(self) -> None:
        """Close this side, which lets the process leave."""
        ALIVE.discard(self)
        if self.owns_sentinel:
            self.owns_sentinel = False
            os.close(self.sentinel)
        self.outbox.close()
        self.inbox.close()

    def join(self, seconds: float) -> None:
        """Wait for the end of the process, and bring it about when that takes longer."""
        # One that is known to have ended is not waited for by the pipe that its own children may hold open.
        seconds = seconds if self.process.exitcode is None else 0.0
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Let processes that start meanwhile hear of no interrupt at the terminal before they say what they do about it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_sentinel(process: Any, context: BaseContext) -> tuple[int, bool]:
    """Return a descriptor that is readable when a process has ended, and whether it has to be closed.

    What `multiprocessing` has is a pipe that a child's own children inherit, so that it stays open after its death;
    only those of a fork server, which isn't their parent, learn of it otherwise.
    """
    if hasattr(os, "pidfd_open") and context.get_start_method() != "forkserver":
        try:
            return os.pidfd_open(process.pid), True
        except OSError:
            pass  # an old system, or a process that has ended and been reaped already
    return int(process.sentinel), False


def read(header: bytes, buffers: list[Bytes]) -> Reply | BaseException:
    """Return the reply that a message holds, or what unpickling it raised, be it an exit."""
    try:
        reply: Reply = decode(header, buffers)
    except BaseException as error:
        return error
    return reply


def forget_in_child() -> None:
    """Close a forked child's copies: while one is open, a worker takes its parent for alive."""
    for worker in list(ALIVE):
        worker.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_in_child)
