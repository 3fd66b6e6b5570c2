"""What is closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """An object that the end of a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds. Does nothing the second time."""

    def __enter__(self) -> Self:
        """Return the object; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
