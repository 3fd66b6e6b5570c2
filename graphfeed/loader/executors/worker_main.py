"""The main loop of a worker process: receives calls, and sends replies, with exceptions in picklable form."""

import os
import pickle
import queue
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphfeed.loader.executors.main_module import Imported
from graphfeed.loader.transport.mailbox import Inbox, Outbox
from graphfeed.loader.transport.pickling import encode
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.loader.transport.zero_copy import ZeroCopySender
from graphfeed.ops.memory import POOL

NUMBER = struct.Struct("<Q")
"""A message with a call begins with the call's number."""
GRACE_SECONDS = 0.3
"""Seconds that a worker may take to exit by itself when it is no longer needed."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in another process, with its traceback there as the message."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class RemoteError:
    """Any exception, in a form that can always be pickled."""

    pickled: bytes
    """The exception, or empty if it can't be pickled."""
    summary: str
    notes: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, error: BaseException) -> "RemoteError":
        """Pack an exception."""
        text = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
        except Exception:
            pickled = b""
        return cls(pickled, summarise_error(error), tuple(notes_of(error)), text)

    def unpack(self) -> BaseException:
        """Return the exception, with the traceback of its process as its cause. Never raises.

        An exception that can't be pickled or unpickled becomes a RuntimeError with its type and message.
        """
        try:
            error: object = pickle.loads(self.pickled)
        except BaseException:  # its class may raise anything, even SystemExit
            error = None
        if not isinstance(error, BaseException):
            error = RuntimeError(self.summary)
            error.__notes__ = list(self.notes)
        error.__cause__ = RemoteTraceback(self.text)
        return error


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, ignoring anything else that a program has assigned to `__notes__`."""
    notes = getattr(error, "__notes__", None)
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def summarise_error(error: BaseException) -> str:
    """Return an exception's type and message, even if its `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose __str__ raises"


@dataclass(frozen=True)
class Reply:
    """Message of a worker: a call's number with its result or error. No number means that the worker is ready."""

    number: int | None
    result: Any = None
    error: RemoteError | None = None


Calls = queue.SimpleQueue[bytes | None]


def run_worker(inbox: Inbox, outbox: Outbox, sender: ZeroCopySender) -> None:
    """Run calls one by one, until the other process closes its mailboxes or exits."""
    Imported.done = True
    # An interrupt at the terminal reaches all processes, but only the parent ends its workers.
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
    # The reply itself is already freed; arrays that ops wrote to shared memory are sent without a copy.
    header, copied, kept = sender.pack(header, buffers)
    outbox.send(header, copied)
    # Frees the blocks from which the message was copied.
    del kept


def answer(message: bytes) -> Any:
    (number,) = NUMBER.unpack_from(message)
    try:
        call = pickle.loads(memoryview(message)[NUMBER.size :])
        return encode(Reply(number, call()))
    # A result that can't be encoded is also an error of the call.
    except BaseException as error:
        return encode(Reply(number, error=RemoteError.of(error)))


def receive_calls(inbox: Inbox, calls: Calls, leave: Callable[[int], object] = os._exit) -> None:
    """Put incoming calls into a queue; exit when the other process has ended, even during a call."""
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
