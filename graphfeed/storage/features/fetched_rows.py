"""Rows of a table that were fetched and wait for a step, and rows as they were before the last steps."""

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
        # For each step: the number of mini-batches before it, ids, and their rows. Replaced, as other threads read it.
        self._steps: tuple[tuple[int, torch.Tensor, torch.Tensor], ...] = ()

    def due(self, distance: int = 0) -> int:
        """Return the number of steps in the rows of the mini-batch that comes `distance` mini-batches later."""
        # Without gradients, rows are the current ones, and no steps are expected.
        return self.count + distance - self.staleness if torch.is_grad_enabled() else self.count

    def skip(self) -> None:
        """Count a mini-batch that was dropped as a step that changes no rows."""
        self.count += 1

    @contextmanager
    def change(self, rows: torch.Tensor, ids: torch.Tensor) -> Iterator[None]:
        """Keep a copy of the rows at some ids, which the step in the block changes."""
        steps = self._steps
        if self.staleness:
            # Before the change, during which another thread may read rows.
            self._steps = (*steps, (self.count, ids.long(), gather_rows(rows, ids)))[-self.staleness :]
        try:
            yield
        except BaseException:
            self._steps = steps
            raise
        self.count += 1

    def read(self, read: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor, due: int) -> torch.Tensor:
        """Return the rows at some ids, as they were after the first `due` steps."""
        rows = read(ids)
        for number, changed, before in reversed(self._steps):
            if number >= due and changed.numel():
                places = compact(changed, as_ids("ids", ids).cpu().long()).local.long()
                found = (places < changed.numel()).nonzero().view(-1)
                copy_rows(before, places[found], rows, found)
        return rows

    def tables(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return, for a checkpoint, the rows that were overwritten, and for each the age of its step and its id."""
        if not self.staleness:
            return {}
        oldest = self.count - self.staleness
        steps = [(self.count - number, ids, own) for number, ids, own in self._steps if number >= oldest]
        pairs = [torch.stack([torch.full_like(ids, age), ids], 1) for age, ids, _ in steps]
        none = torch.empty(0, 2, dtype=torch.int64, device="cpu")
        return {
            "earlier": torch.cat([none, *pairs]),
            "earlier_rows": torch.cat([rows[:0], *(own for *_, own in steps)]),
        }

    def load(self, tables: Mapping[str, torch.Tensor]) -> None:
        """Replace the steps by those of a checkpoint, if it has any."""
        # Rows that were fetched ahead are thus read again, even if steps were skipped.
        self.count += self.staleness + 1
        self._steps = ()
        if "earlier" in tables:
            ages, ids = tables["earlier"].unbind(1)
            for age in range(self.staleness, 0, -1):
                own = (ages == age).nonzero().view(-1)
                self._steps += ((self.count - age, ids[own], tables["earlier_rows"][own]),)


class FetchAhead:
    """Replaces the key of a mini-batch, so that its rows are fetched before the steps of earlier mini-batches.

    The thread that calls `step()` creates it, and calls `arrive` when it gets the mini-batch.
    """

    def __init__(self, key: Any, tables: Iterable[Any], distance: int) -> None:
        self._key = key
        self._due = {table: table.earlier.due(distance) for table in tables}
        self._rows: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def fetch(self, table: Any, ids: torch.Tensor) -> torch.Tensor:
        """Return rows of a table, which `arrive` adds to those that were fetched."""
        rows: torch.Tensor = table.earlier.read(table.read, ids, self._due[table])
        self._rows.append((table, ids, rows))
        return rows

    def arrive(self) -> None:
        """Add the rows to those that were fetched. If there were more or fewer steps than expected, read them again."""
        for table, ids, rows in self._rows:
            if (due := table.earlier.due()) != self._due[table]:
                rows.copy_(table.earlier.read(table.read, ids, due))
            if torch.is_grad_enabled():
                table.fetched.add(ids, rows.requires_grad_(), self._key)
