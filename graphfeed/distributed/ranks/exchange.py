"""Ask the owner of each id, and merge the answers in the order of the ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.ranks.listener import Respond
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.rows import take_small

COUNTS = "counts"
"""Names the tensor of an answer that says how many rows each question has; without it, each has one."""


def ask_owners(
    peers: Peers, name: str, answer: Respond, owners: torch.Tensor, options: Mapping[str, Any], questions: Tensors
) -> Iterator[tuple[torch.Tensor, Tensors]]:
    """Ask the owner of each question, all at once; return by rank the positions of its questions, and its answer."""
    if peers.world_size == 1:
        return iter([(torch.arange(owners.numel()), answer(options, questions))])
    # NumPy sorts integers of up to two bytes by counting.
    ranks = owners.numpy().astype(np.uint8 if peers.world_size <= 1 << 8 else np.uint16, copy=False)
    order = torch.from_numpy(np.argsort(ranks, kind="stable"))
    counts = np.bincount(ranks, minlength=peers.world_size).tolist()
    parts = torch.split(order, counts)
    # Integers are sent as int32 where all of them fit.
    grouped = {key: torch.split(take_small(values, order), counts) for key, values in questions.items()}
    asked = [rank for rank, count in enumerate(counts) if count]
    split = {rank: {key: values[rank] for key, values in grouped.items()} for rank in asked}
    own = split.pop(peers.rank, None)
    futures = peers.ask(name, options, split)

    # Whoever goes through the answers waits for them.
    def answers() -> Iterator[tuple[torch.Tensor, Tensors]]:
        if own is not None:
            # First, as it is computed while the others are on their way.
            yield parts[peers.rank], answer(options, own)
        for rank, future in futures.items():
            yield parts[rank], peers.wait(rank, future)

    return answers()


def merge_columns(
    answers: Sequence[tuple[torch.Tensor, Tensors]], dtypes: Mapping[str, torch.dtype]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the start of each question's rows, and the rows, in the order of the questions."""
    # Each row is copied once, into place, and ids come as int32. With both, and parts in huge pages, two ranks make 1.3
    # times as many mini-batches per second of CPU time as when ids of int64 were concatenated, and then put in order
    # (ogbn-products shaped graph, fan-outs 15, 10 and 5).
    counts = [tensors[COUNTS] for _, tensors in answers]
    values = [[tensors[key] for key in dtypes] for _, tensors in answers]
    # In the answers, rows may have fewer bits than in `dtypes`.
    offsets, merged = ops.merge_columns([positions for positions, _ in answers], counts, values, list(dtypes.values()))
    return offsets, dict(zip(dtypes, merged, strict=True))
