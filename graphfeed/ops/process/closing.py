"""What is closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """An object that the end of a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds. Does nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
