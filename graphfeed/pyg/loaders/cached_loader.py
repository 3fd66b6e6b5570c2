"""The mini-batches of one epoch, again in each epoch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import brief, check_count
from graphfeed.storage.memory import move


class CachedLoader:
    """Keeps the mini-batches of a loader's first whole epoch, and gives them again in each later one.

    The arguments are those of `torch_geometric.loader.CachedLoader`. An epoch that was left early is not kept, as in
    PyG it is, where later epochs then end early too. Each epoch gives the very same objects, so don't change them.

    Args:
        loader: Any loader.
        device: Where mini-batches are moved before they are kept; None leaves them where they are.
        transform: A function of each mini-batch, called before it is kept.

    Example:
        >>> loader = CachedLoader([1, 2], transform=lambda number: number * 10)
        >>> list(loader), list(loader)
        ([10, 20], [10, 20])
    """

    def __init__(
        self,
        loader: Any,
        device: torch.device | str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.loader, self.device, self.transform = loader, device, transform
        self._cache: list[Any] | None = None
        self._origin: Any = None
        self._index = self._start = 0

    def clear(self) -> None:
        """Forget what is kept, so that the next epoch is one of the loader's again."""
        self._cache = None

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch."""
        start, self._start = self._start, 0
        self._index = start
        cache = self._cache
        if cache is None:
            batches = iter(self.loader)
            self._origin = self.loader.state_dict() if hasattr(self.loader, "state_dict") else None
            return self._count(self._fill(batches), start)
        return self._count(iter(cache), start)

    def _fill(self, batches: Iterator[Any]) -> Iterator[Any]:
        kept = []
        for given in batches:
            batch = given if self.transform is None else self.transform(given)
            batch = batch if self.device is None else move(batch, self.device)
            kept.append(batch)
            yield batch
        self._cache = kept

    def _count(self, batches: Iterator[Any], start: int) -> Iterator[Any]:
        for index, batch in enumerate(batches):
            if index >= start:
                self._index = index + 1
                yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the latest epoch, and where the loader began the epoch that is kept.

        Raises:
            TypeError: The loader has no `state_dict`.
        """
        if not hasattr(self.loader, "state_dict"):
            raise TypeError(f"the loader has no state_dict, as a graphfeed.DataLoader has, but is {brief(self.loader)}")
        origin = self.loader.state_dict() if self._origin is None else self._origin
        return {"loader": origin, "index": 0 if self._index == self._length() else self._index}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next `iter()` continue from a state; the mini-batches before it are made again, to be kept.

        Raises:
            ValueError: `state_dict` is no state of such a loader.
        """
        if set(state_dict) != {"loader", "index"}:
            raise ValueError(
                f"state_dict must hold loader and index, as state_dict() returns it, not {brief(state_dict)}"
            )
        check_count("index of state_dict", state_dict["index"], 0)
        self.loader.load_state_dict(state_dict["loader"])
        self.clear()
        self._origin, self._start = state_dict["loader"], state_dict["index"]
        self._index = self._start

    def _length(self) -> int | None:
        try:
            return len(self)
        except TypeError:
            return None

    def __repr__(self) -> str:
        """Name the loader."""
        return f"{type(self).__name__}({self.loader})"
