"""The mini-batches of one epoch, again in each epoch."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

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

    def clear(self) -> None:
        """Forget what is kept, so that the next epoch is one of the loader's again."""
        self._cache = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return self._fill(iter(self.loader)) if self._cache is None else iter(self._cache)

    def _fill(self, batches: Iterator[Any]) -> Iterator[Any]:
        kept = []
        for given in batches:
            batch = given if self.transform is None else self.transform(given)
            kept.append(batch if self.device is None else move(batch, self.device))
            yield kept[-1]
        # Not before the end: an epoch that is left early is no whole one.
        self._cache = kept

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loader})"
