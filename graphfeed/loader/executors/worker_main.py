"""The main loop of a worker process: receives calls, and sends replies."""

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

from graphfeed.loader.executors.main_module import Imported
from graphfeed.loader.executors.remote_error import RemoteError
from graphfeed.loader.transport.mailbox import Inbox, Outbox
from graphfeed.loader.transport.pickling import encode
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.loader.transport.zero_copy import ZeroCopySender
from graphfeed.ops.memory import POOL

NUMBER = struct.Struct("<Q")
"""A message with a call begins with the call's number."""
GRACE_SECONDS = 0.3
"""How long a worker that is no longer needed may take to exit by itself."""


@dataclass(frozen=True)
class Reply:
    """What a worker sends: a call's number with its result or error. Without a number: it is ready for a call."""

    number: int | None
    result: Any = None
    error: RemoteError | None = None


Calls = queue.SimpleQueue[bytes | None]


def run_worker(inbox: Inbox, outbox: Outbox, sender: ZeroCopySender) -> None:
    """Do one call after another, until the other process closes its ends or is gone."""
    Imported.done = True
    # An interrupt at the terminal reaches all processes; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked while the process started
    torch.set_num_threads(1)
    calls: Calls = queue.SimpleQueue()
    threading.Thread(target=receive_calls, args=(inbox, calls), name="graphfeed-calls", daemon=True).start()
    try:
        POOL.source = sender.take
        send_in_place(outbox, sender, *encode(Reply(None)))
        while (message := calls.get()) is not None:
            send_in_place(outbox, sender, *answer(message))
    except Closed:
        return


def send_in_place(outbox: Outbox, sender: ZeroCopySender, header: bytes, buffers: list[Any]) -> None:
    # The object of the reply is gone; what ops have written for it stays where it lies.
    header, copied, kept = sender.pack(header, buffers)
    outbox.send(header, copied)
    # This frees blocks whose bytes the message may have been copied from until here.
    del kept


def answer(message: bytes) -> Any:
    (number,) = NUMBER.unpack_from(message)
    try:
        call = pickle.loads(memoryview(message)[NUMBER.size :])
        return encode(Reply(number, call()))
    # A result that can't be encoded is an error of the call, too.
    except BaseException as error:
        return encode(Reply(number, error=RemoteError.of(error)))


def receive_calls(inbox: Inbox, calls: Calls, leave: Callable[[int], object] = os._exit) -> None:
    """Put incoming calls into a queue; when the other process is gone, exit, even in the middle of a call."""
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
