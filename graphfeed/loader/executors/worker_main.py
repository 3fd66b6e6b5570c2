"""The main loop of a worker process: receives calls, and sends replies, with exceptions in a form that pickles."""

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
"""How long a worker that is no longer needed may take to exit by itself."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in another process; its text is the traceback there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class RemoteError:
    """Any exception, in a form that always pickles."""

    pickled: bytes
    """The exception, or nothing if it does not pickle."""
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
        return cls(pickled, summarise(error), tuple(notes_of(error)), text)

    def unpack(self) -> BaseException:
        """Return the exception, with the traceback of its process as its cause, and never raise.

        An exception that does not survive pickling becomes a RuntimeError that says what it was.
        """
        try:
            error: object = pickle.loads(self.pickled)
        except BaseException:  # whatever its class raises, even SystemExit
            error = None
        if not isinstance(error, BaseException):
            error = RuntimeError(self.summary)
            error.__notes__ = list(self.notes)
        error.__cause__ = RemoteTraceback(self.text)
        return error


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, ignoring whatever else a program has assigned to `__notes__`."""
    notes = getattr(error, "__notes__", None)
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def summarise(error: BaseException) -> str:
    """Return an exception's type and text; the `__str__` of some raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which raises when it is asked for its text"


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
