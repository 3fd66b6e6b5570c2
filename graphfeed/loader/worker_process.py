"""A worker process, seen from the process that started it."""

import itertools
import os
import signal
import time
import weakref
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from typing import Any

from graphfeed.loader.channel import Closed
from graphfeed.loader.channels.mailbox import open_mailbox
from graphfeed.loader.channels.pickling import decode
from graphfeed.loader.worker_main import NUMBER, Reply, run_worker

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
        self.ready = False
        self.since = time.monotonic()
        """When it was started, or given what it does now."""
        self.gone = False
        ALIVE.add(self)
        try:
            make: Any = context.Process  # type: ignore[attr-defined]
            name = f"graphfeed-{next(NAMES)}"
            self.process = make(target=run_worker, args=(inbox, outbox), name=name, daemon=True)
            self.process.start()
        except BaseException:
            self.close()
            raise
        finally:
            inbox.close()
            outbox.close()
        self.pid = int(self.process.pid)
        self.name = f"worker process {name} (pid {self.pid})"

    def send(self, number: int, call: bytes) -> None:
        """Give it a call; one that is dead or deaf is known by that it does not answer."""
        self.since = time.monotonic()
        try:
            self.outbox.send(NUMBER.pack(number) + call, timeout_seconds=SEND_SECONDS)
        except (Closed, TimeoutError):
            self.process.kill()

    def replies(self) -> Iterator[Reply]:
        """Yield the replies that have come by now; a process that is gone left its last ones."""
        while True:
            try:
                message = self.inbox.receive(timeout_seconds=0)
            except TimeoutError:
                return
            except Closed:
                self.gone = True
                return
            reply: Reply = decode(*message)
            yield reply

    def was_killed(self) -> bool:
        """Tell whether a process that is gone was ended by a signal."""
        return bool(self.process.exitcode < 0)

    def fate(self) -> str:
        """Say how a process that is gone has ended."""
        code = self.process.exitcode
        return f"was killed by {signal.Signals(-code).name}" if self.was_killed() else f"exited with code {code}"

    def close(self) -> None:
        """Close this side, which lets the process leave."""
        ALIVE.discard(self)
        self.outbox.close()
        self.inbox.close()

    def join(self, seconds: float) -> None:
        """Wait for the end of the process, and bring it about when that takes longer."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def forget_in_child() -> None:
    """Close a forked child's copies: while one is open, a worker takes its parent for alive."""
    for worker in list(ALIVE):
        worker.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_in_child)
