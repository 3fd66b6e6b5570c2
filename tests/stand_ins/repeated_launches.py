"""The tensors that recorded launches are given when they are repeated, for the stand-in of CuPy."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

from tests.stand_ins.strict_cupy import OWN


def tensors_of(table: Any, blocks: list[Any]) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors that each launch of a table is given with some blocks."""

    def tensor_of(part: Any) -> torch.Tensor:
        found, offset = blocks[part.block], part.offset
        if part.block < 0:
            found = next(kept for kept in table.kept if 0 <= part.offset - kept.data_ptr() < kept.nbytes)
            offset -= found.data_ptr()
        size = part.size * part.dtype.itemsize
        whole = found if found.is_cpu else found.held
        inner: torch.Tensor = whole.view(-1).view(torch.uint8)[offset : offset + size].view(part.dtype)
        if found.is_cpu:
            return inner
        made: torch.Tensor = type(found)(inner, found.device)
        return made

    for launch in table.launches:
        yield [tensor_of(word) for word in launch.words if hasattr(word, "block")]


def known_when_repeated(tables: Any) -> AbstractContextManager[object]:
    """Give each launch that the tables of a class repeat its tensors, until the context ends."""
    start_all = tables.start

    def start(table: Any, blocks: list[Any], keys: list[int], stream: int) -> None:
        OWN.repeated.extend(tensors_of(table, blocks))
        try:
            start_all(table, blocks, keys, stream)
            assert not OWN.repeated
        finally:
            OWN.repeated.clear()

    return patch.object(tables, "start", start)
