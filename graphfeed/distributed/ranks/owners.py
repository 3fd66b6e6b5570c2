"""Requests to the owners of ids, and merging of their responses in the order of the ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.ops.rows import take_small

COUNTS = "counts"
"""Name of the tensor with the number of rows per requested id; without it, each id has one row."""


def request_from_owners(
    peers: Peers, name: str, book: PartBook, ids: torch.Tensor, options: Mapping[str, Any], questions: Tensors
) -> Iterator[tuple[torch.Tensor, Tensors]]:
    """Send requests to the owners of ids, all at once; yield per part the positions of its ids, and the response."""
    if book.num_parts == 1:
        everything = torch.arange(ids.numel(), device="cpu")
        return ((everything, tensors) for _, tensors in peers.gather(name, options, {peers.rank: questions}))
    # NumPy sorts integers of up to two bytes by counting.
    owners = book.owners_of(ids).numpy().astype(np.uint8 if book.num_parts <= 1 << 8 else np.uint16, copy=False)
    order = torch.from_numpy(np.argsort(owners, kind="stable"))
    counts = np.bincount(owners, minlength=book.num_parts).tolist()
    parts = torch.split(order, counts)
    # Integers are sent as int32 if all of them fit.
    grouped = {key: torch.split(take_small(values, order), counts) for key, values in questions.items()}
    asked = [part for part, count in enumerate(counts) if count]
    split = {part: {key: values[part] for key, values in grouped.items()} for part in asked}
    # Several ranks may store a part: each sends requests to the one with its own index among them.
    each = peers.world_size // book.num_parts
    place = peers.rank % each
    answers = peers.gather(name, options, {part * each + place: some for part, some in split.items()})
    return ((parts[rank // each], tensors) for rank, tensors in answers)


def ranks_of_a_part(book: PartBook, peers: Peers) -> int:
    """Return the number of consecutive ranks that store each part: those of one machine, which open the same files."""
    each, rest = divmod(peers.world_size, book.num_parts)
    if rest or not each:
        raise ValueError(
            f"there are {book.num_parts} parts, but {peers.world_size} ranks; start one process per part, or the same "
            f"number for each part, as in torchrun --nproc-per-node {book.num_parts}"
        )
    return each


def merge_answers(
    answers: Sequence[tuple[torch.Tensor, Tensors]], dtypes: Mapping[str, torch.dtype]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Merge responses; return the offset of each id's first row, and the rows in the order of the ids."""
    counts = [tensors[COUNTS] for _, tensors in answers]
    values = [[tensors[key] for key in dtypes] for _, tensors in answers]
    # Responses may have narrower dtypes than `dtypes`.
    offsets, merged = ops.merge_columns([positions for positions, _ in answers], counts, values, list(dtypes.values()))
    return offsets, dict(zip(dtypes, merged, strict=True))
