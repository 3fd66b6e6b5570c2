"""Exceptions on their way from a worker process: with their notes, and the traceback as text."""

import pickle
import traceback
from dataclasses import dataclass


class RemoteTraceback(Exception):
    """Stands as the cause of an exception that was raised in another process: its text is the traceback there."""

    def __str__(self) -> str:
        """Return the traceback between two lines."""
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class RemoteError:
    """An exception that pickles, whatever it was."""

    pickled: bytes
    text: str

    @classmethod
    def of(cls, error: BaseException) -> "RemoteError":
        """Pack an exception; one that does not survive pickling becomes a RuntimeError that says what it was."""
        text = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            stand_in = RuntimeError(f"{type(error).__name__}: {error}")
            stand_in.__notes__ = list(getattr(error, "__notes__", []))
            pickled = pickle.dumps(stand_in)
        return cls(pickled, text)

    def unpack(self) -> BaseException:
        """Return the exception, with the traceback of its process as its cause."""
        error: BaseException = pickle.loads(self.pickled)
        error.__cause__ = RemoteTraceback(self.text)
        return error
