"""The rows of a mini-batch that were fetched from a table, until the step for it."""

from typing import Any

import torch

from graphfeed.ops.arguments import as_ids


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
