"""Exceptions sent by a worker process, with their notes and with the traceback as text."""

import pickle
import traceback
from dataclasses import dataclass


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
        """Return the exception, with the traceback of its process as its cause. Never raises.

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
