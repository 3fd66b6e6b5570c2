"""The parent's handle of a worker process: its mailboxes, its exit code, and how it is ended."""

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
"""How long sending a call may take; a worker always reads them, in a thread of its own."""


class WorkerProcess:
    """A process, and the mailboxes to and from it; it does one call at a time."""

    def __init__(self, context: BaseContext) -> None:
        self.outbox, inbox = open_mailbox()
        outbox, self.inbox = open_mailbox()
        sender, self.receiver = open_zero_copy()
        self.ready = False
        self.since = time.monotonic()
        """When it was started, or began its present call."""
        self.gone = False
        self.owns_sentinel = False
        # A forked child closes its copies of the mailboxes: while one is open, a worker takes its parent for alive.
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
            # A process that was started has ends of its own by now.
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
            # The dispatcher notices its end.
            self.process.kill()

    def replies(self) -> Iterator[Reply | BaseException]:
        """Yield the replies that have come by now, also the last ones of a process that is gone."""
        while True:
            try:
                message = self.inbox.receive(timeout_seconds=0)
            except TimeoutError:
                return
            except Closed:
                self.gone = True
                return
            except Exception as error:
                # In the place of a reply. Its memory could not be mapped, and is not sent again.
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
        # This makes the process exit. The system closes them, too, when this process dies.
        self.outbox.close()
        self.inbox.close()

    def join(self, seconds: float) -> None:
        # join() waits for a pipe that the process's own children may hold open, so skip that if its end is known.
        seconds = seconds if self.process.exitcode is None else 0.0
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def describe_exit(code: int | None) -> str:
    """Say how a process ended that has this exit code; None if somebody else has waited for it."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block interrupts at the terminal for processes that start meanwhile, until they set their own handlers."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_sentinel(process: Any, context: BaseContext) -> tuple[int, bool]:
    """Return a descriptor that is readable once a process has ended, and whether the caller has to close it."""
    # The sentinel of `multiprocessing` is a pipe that the children of the process inherit, so it may stay open after
    # the death of the process. For children of a fork server it is the only way: they are not this process's own.
    if hasattr(os, "pidfd_open") and context.get_start_method() != "forkserver":
        try:
            return os.pidfd_open(process.pid), True
        except OSError:
            pass  # an old system, or a process that has ended and was waited for already
    return int(process.sentinel), False


def decode_reply(header: bytes, buffers: list[Bytes]) -> Reply | BaseException:
    try:
        reply: Reply = decode(header, buffers)
    # Unpickling raises whatever a class raises, even SystemExit.
    except BaseException as error:
        return error
    return reply
