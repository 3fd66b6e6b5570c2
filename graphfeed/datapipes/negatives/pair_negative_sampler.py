"""Sample negatives: pairs of random nodes, or random destinations for each source."""

import math
from functools import partial
from typing import Any, Literal
from zlib import crc32

import numpy as np
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.negatives.negative_sampler import Sampled, sample_each_type
from graphfeed.datapipes.samplers.subgraph_sampler import check_is_graph
from graphfeed.datapipes.sources.seeds import spread_over_rows
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw_key
from graphfeed.ops.arguments import brief
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import NegativeQuery, check_query, negative_pairs_of

MOST_NEGATIVES = 2**31
"""Exclusive upper bound of `amount`, more than fits into any memory."""


class PairNegativeSampler(Transform, name="sample_negative_pairs", draws=True, reads_graph=True, seeded=False):
    """Adds negatives after edge seeds: with `strict` never an edge, and with times only nodes that exist at that time.

    In the mode "binary", both nodes of a negative are drawn: for N edges there are `ceil(N * amount)` negatives. In the
    mode "triplet", each edge gets `amount` destinations for its own source. The negatives come in blocks: one for each
    edge, then a second one for each, and so on. `labels` are those of the edges, or ones, and zeros for the negatives.
    `indexes` has the edge that each row belongs to. The draws depend on the mini-batch's key, the edge type and the
    position in the mini-batch. `strict` and times need a graph in memory.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        mode: "binary" draws both nodes of a negative, "triplet" only the destination.
        amount: Number of negatives per edge; an integer in the mode "triplet".
        query: Which pairs can be negatives, and their weights. None: all pairs are equally likely.

    Raises:
        KeyError: The graph has no node attribute `time_name` of the query.
        ValueError: A wrong mode or amount; when it runs: seeds that are not pairs, a wrong number of node weights, an
            edge without possible negatives, a query with `time_name` if the items have no times, or a mini-batch that
            is already sampled.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([0, 0, 0], [0, 1, 2]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet(torch.tensor([[0, 1]]), names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_negative_pairs(graph, "triplet", query=NegativeQuery(strict=True)))).seeds.tolist()
        [[0, 1], [0, 3]]
    """

    graph: SamplingGraph
    mode: Literal["binary", "triplet"]
    amount: float = 1
    query: NegativeQuery | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        check_amount(self.mode, self.amount)
        query: object = self.query
        if query is not None and not isinstance(query, NegativeQuery):
            raise TypeError(f"query must be a NegativeQuery, but is {brief(query)}")
        if query is not None:
            check_query(self.graph, query)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        return sample_each_type(self, minibatch, partial(self.sample, spread_over_rows(minibatch, "timestamp")))

    def sample(self, times: Any, seeds: torch.Tensor, seed_type: str | None = None) -> Sampled:
        """Return the seeds, labels and indexes of one type."""
        times = times[seed_type] if isinstance(times, dict) else times
        if seeds.dim() != 2 or seeds.shape[1] != 2:
            raise ValueError(f"seeds must be edges, shape (N, 2), to get negatives, but have {list(seeds.shape)}")
        count = len(seeds)
        number = math.ceil(count * self.amount)
        # Negatives are assigned to the positives in turn, so their numbers differ by at most one. NumPy takes less time
        # than torch for so few numbers.
        rows = np.arange(count + number)
        labels = torch.from_numpy((rows < count).astype(np.float32))
        rows[count:] = rows[:number] % max(count, 1)
        indexes = torch.from_numpy(rows)
        positives = indexes[count:]
        wanted = number if self.mode == "binary" else seeds[positives, 0]
        # The draws for one type don't depend on the other types.
        key = draw_key(0 if seed_type is None else 1 + crc32(seed_type.encode()))
        limits = None if times is None else times[positives]
        pairs = negative_pairs_of(self.graph, seed_type, self.query or NegativeQuery(), wanted, key, limits)
        return torch.cat([seeds, pairs.to(seeds.dtype)]), labels, indexes


def check_amount(mode: Any, amount: float) -> None:
    """Raise a ValueError unless the mode exists and allows the amount of negatives."""
    if not isinstance(mode, str) or mode not in ("binary", "triplet"):
        raise ValueError(f"mode must be 'binary' or 'triplet', but is {brief(mode)}")
    if not 0 < amount < MOST_NEGATIVES:
        raise ValueError(f"amount must be more than 0, and below {MOST_NEGATIVES}, but is {amount}")
    if mode == "triplet" and amount != int(amount):
        raise ValueError(f"amount must be an integer in the mode 'triplet', but is {amount}")
