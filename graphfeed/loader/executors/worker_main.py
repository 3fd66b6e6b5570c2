"""What runs in a worker process: calls come in, replies go out."""

import os
import pickle
import queue
import signal
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphfeed.loader.executors.remote_error import RemoteError
from graphfeed.loader.transport.lending import Lender
from graphfeed.loader.transport.mailbox import Inbox, Outbox
from graphfeed.loader.transport.pickling import encode
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.buffers import POOL

NUMBER = struct.Struct("<Q")
"""A message with a call begins with the call's number."""
GRACE_SECONDS = 0.3
"""How long a worker that is no longer needed may take to leave by itself."""


@dataclass(frozen=True)
class Call:
    """A function and what it is called with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def __call__(self) -> Any:
        """Call it."""
        return self.function(*self.arguments, **self.keywords)


@dataclass(frozen=True)
class Reply:
    """What a worker says: the number of a call with its result or failure; no number when it is ready for the first."""

    number: int | None
    result: Any = None
    error: RemoteError | None = None


Calls = queue.SimpleQueue[bytes | None]


def run_worker(inbox: Inbox, outbox: Outbox, lender: Lender) -> None:
    """Do one call after another, until the other process closes its ends or is gone."""
    # An interrupt at the terminal reaches all processes; it is the parent that decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was held back while the process started
    torch.set_num_threads(1)
    calls: Calls = queue.SimpleQueue()
    threading.Thread(target=listen, args=(inbox, calls), name="graphfeed-listen", daemon=True).start()
    try:
        POOL.source = lender.take
        tell(outbox, lender, *encode(Reply(None)))
        while (message := calls.get()) is not None:
            tell(outbox, lender, *answer(message))
    except Closed:
        return


def tell(outbox: Outbox, lender: Lender, header: bytes, buffers: list[Any]) -> None:
    """Send a reply, whose object is gone: what ops have made of it is handed over where it lies."""
    header, copied, kept = lender.pack(header, buffers)
    outbox.send(header, copied)
    del kept


def answer(message: bytes) -> Any:
    """Do what a message asks for, and return the encoded reply; a result that can't be encoded is a failure too."""
    (number,) = NUMBER.unpack_from(message)
    try:
        call: Call = pickle.loads(memoryview(message)[NUMBER.size :])
        return encode(Reply(number, call()))
    except BaseException as error:
        return encode(Reply(number, error=RemoteError.of(error)))


def listen(inbox: Inbox, calls: Calls, leave: Callable[[int], object] = os._exit) -> None:
    """Pass calls on; when nobody is there any more, end the process even in the middle of one."""
    while True:
        try:
            message, _ = inbox.receive()
        except TimeoutError:
            continue
        except Closed:
            break
        calls.put(message)
    calls.put(None)
    time.sleep(GRACE_SECONDS)
    leave(1)
