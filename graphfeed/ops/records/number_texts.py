"""Numbers texts by their first appearance."""

import torch

from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.records.find_texts import block_scratch, check_texts, index_texts

LEAST_BYTES = 1 << 16
"""The memory for texts grows from so many bytes on."""


class TextNumbers:
    """Numbers texts by their first appearance, and keeps each once. Memory grows with the texts that differ.

    Example:
        >>> texts = TextNumbers()
        >>> texts.number(torch.tensor(list(b"benann"), dtype=torch.uint8), torch.tensor([0, 3, 6]))
        tensor([0, 1])
        >>> texts.number(torch.tensor(list(b"annannivy"), dtype=torch.uint8), torch.tensor([0, 3, 6, 9]))
        tensor([1, 1, 2])
        >>> bytes(texts.values), texts.offsets.tolist()
        (b'benannivy', [0, 3, 6, 9])
    """

    def __init__(self) -> None:
        self._count = torch.zeros(1, dtype=torch.int64)
        self._values = torch.empty(LEAST_BYTES, dtype=torch.uint8)
        self._offsets = torch.zeros(LEAST_BYTES // 8, dtype=torch.int64)
        self._table = index_texts(self.values, self.offsets, LEAST_BYTES // 8)

    def __len__(self) -> int:
        return int(self._count)

    @property
    def values(self) -> torch.Tensor:
        """The bytes of the texts, one behind the other."""
        return self._values[: int(self._offsets[len(self)])]

    @property
    def offsets(self) -> torch.Tensor:
        """Where each text begins and, at last, where all end."""
        return self._offsets[: len(self) + 1]

    def number(self, asked: torch.Tensor, asked_offsets: torch.Tensor) -> torch.Tensor:
        """Return the number of each text; those that are new get the next ones.

        Args:
            asked: uint8: the bytes of the texts.
            asked_offsets: int64, shape (asked + 1,): where each begins.

        Returns:
            int64, shape (asked,).

        Raises:
            TypeError: Tensors of other dtypes.
            ValueError: Offsets that are empty, fall, or lie outside of the bytes.
        """
        check_texts("asked", asked, "asked_offsets", asked_offsets)
        module = kernels("records.number_texts", asked, asked_offsets=asked_offsets)
        asked, asked_offsets = asked.contiguous(), asked_offsets.contiguous()
        out, block, done = buffers.empty(len(asked_offsets) - 1, torch.int64), block_scratch(module), 0
        while done < len(out):
            kept = self._values, self._offsets, self._table, self._count
            done = module.number_texts(*kept, asked, asked_offsets, done, out, block)
            # There was no room for the next text, which is new.
            if done < len(out):
                self._grow(int(asked_offsets[done + 1] - asked_offsets[done]))
        return out

    def _grow(self, size: int) -> None:
        # Twice of what there is too little of, and room for a text of `size` bytes.
        kept, values = len(self), self.values
        if len(values) + size > len(self._values):
            self._values = torch.cat([values, torch.empty(len(values) + size, dtype=torch.uint8)])
        if kept + 1 >= len(self._offsets):
            self._offsets = torch.cat([self._offsets, torch.zeros_like(self._offsets)])
        if 2 * kept + 2 > len(self._table):
            self._table = index_texts(self.values, self.offsets, kept + 1)
