"""The rows of mini-batches that are fetched from a table: until the step for them, and before earlier steps."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from graphfeed.ops.arguments import as_ids
from graphfeed.ops.rows import copy_rows, gather_rows
from graphfeed.ops.structure import compact


class FetchedRows:
    """Rows that were fetched since the last step, all of them for the same mini-batch."""

    def __init__(self) -> None:
        self.parts: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._key: Any = None

    def add(self, ids: torch.Tensor, rows: torch.Tensor, key: Any) -> None:
        """Add the rows at some ids for the mini-batch with a key; None is that of any mini-batch."""
        if self.parts and None not in (key, self._key) and key != self._key:
            raise RuntimeError(
                "rows of the mini-batch before were fetched, and step() didn't follow; call step() after backward(), "
                "or zero_grad() to drop its gradients, use torch.no_grad() to only read, and don't buffer mini-batches "
                "after this stage"
            )
        # A copy, because the ids are the caller's.
        self.parts.append((as_ids("ids", ids).to("cpu", copy=True), rows))
        self._key = self._key if key is None else key

    def clear(self) -> None:
        """Drop the rows, with their gradients."""
        self.parts, self._key = [], None

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids of the rows, and their gradients.

        Raises:
            RuntimeError: No rows were fetched, or they have no gradients.
        """
        if not self.parts:
            raise RuntimeError(
                "no rows were fetched since the last step(); call it once for each mini-batch, after backward(), and "
                "not under torch.no_grad()"
            )
        # A loss may leave out a type of which a mini-batch has no nodes.
        found = [(ids, rows.grad if len(rows) else rows.detach()) for ids, rows in self.parts]
        used = [(ids, gradient) for ids, gradient in found if gradient is not None]
        if not used:
            raise RuntimeError("the rows that were fetched have no gradients; call backward() of a loss that uses them")
        ids = torch.cat([ids.long() for ids, _ in used]) if len(used) > 1 else used[0][0]
        gradients = [gradient.to_dense() if gradient.is_sparse else gradient for _, gradient in used]
        return ids, torch.cat(gradients) if len(used) > 1 else gradients[0]


class EarlierRows:
    """The rows that the last steps overwrote, so that rows can be read as they were before these steps.

    Args:
        staleness: The number of steps.

    Example:
        >>> rows, earlier = torch.tensor([[1.0], [2.0]]), EarlierRows(1)
        >>> with earlier.change(rows, torch.tensor([1])):
        ...     rows[1] = 5
        >>> earlier.read(lambda ids: rows[ids], torch.tensor([0, 1]), 0).tolist()
        [[1.0], [2.0]]
    """

    def __init__(self, staleness: int) -> None:
        self.staleness, self.count = staleness, 0
        self._steps: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=staleness)
        self._lock = threading.RLock()

    def due(self, distance: int = 0) -> int:
        """Return how many mini-batches are done in the rows that the one `distance` mini-batches later is given."""
        return self.count + distance - self.staleness

    @contextmanager
    def change(self, rows: torch.Tensor, ids: torch.Tensor) -> Iterator[None]:
        """Keep the rows at some ids, which are then changed by the step of a mini-batch."""
        with self._lock:
            kept = (ids.long(), gather_rows(rows, ids)) if self.staleness else None
            yield
            if kept is not None:
                self._steps.append(kept)
            self.count += 1

    def read(self, read: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor, due: int) -> torch.Tensor:
        """Return the rows at some ids, as they were when `due` mini-batches were done."""
        if not self.staleness:
            return read(ids)
        with self._lock:
            rows, wanted = read(ids), as_ids("ids", ids).cpu().long()
            for changed, before in list(self._steps)[::-1][: self.count - due]:
                if changed.numel():
                    places = compact(changed, wanted).local.long()
                    found = (places < changed.numel()).nonzero().view(-1)
                    copy_rows(before, places[found], rows, found)
        return rows

    def tables(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the rows that were overwritten, for a checkpoint, and the pairs of the age of a step and an id."""
        if not self.staleness:
            return {}
        pairs = [torch.empty(0, 2, dtype=torch.int64, device="cpu")]
        for age, (ids, _) in zip(range(len(self._steps), 0, -1), self._steps, strict=True):
            pairs.append(torch.stack([torch.full_like(ids, age), ids], 1))
        return {"earlier": torch.cat(pairs), "earlier_rows": torch.cat([rows[:0], *(own for _, own in self._steps)])}

    def load(self, tables: Mapping[str, torch.Tensor]) -> None:
        """Forget all steps, and continue with those of a checkpoint, if it has them."""
        self._steps.clear()
        if "earlier" in tables:
            ages, ids = tables["earlier"].unbind(1)
            for age in range(self.staleness, 0, -1):
                chosen = (ages == age).nonzero().view(-1)
                self._steps.append((ids[chosen], tables["earlier_rows"][chosen]))

    def skip(self) -> None:
        """Count a mini-batch without a step."""
        with self._lock:
            self._steps.append((torch.empty(0, dtype=torch.int64, device="cpu"), torch.empty(0, device="cpu")))
            self.count += 1


class FetchAhead:
    """In place of the key of a mini-batch, lets its rows be fetched before the steps for those before it.

    It is created by the thread that makes the steps, which calls `arrive` when it gets the mini-batch.
    """

    def __init__(self, key: Any, tables: Iterable[Any], distance: int) -> None:
        self._key = key
        # Another thread has its own grad mode.
        self._due = {table: table.earlier.due(distance) for table in tables} if torch.is_grad_enabled() else None
        self._rows: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def fetch(self, table: Any, ids: torch.Tensor) -> torch.Tensor:
        """Return rows of a table, which `arrive` adds to those that were fetched."""
        if self._due is None:
            rows: torch.Tensor = table.read(ids)
            return rows
        rows = table.earlier.read(table.read, ids, self._due[table]).requires_grad_()
        self._rows.append((table, ids, rows))
        return rows

    def arrive(self) -> None:
        for table, ids, rows in self._rows if torch.is_grad_enabled() else ():
            table.fetched.add(ids, rows, self._key)
