"""Pairs of nodes that are near each other on random walks."""

import copy

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.ops.arguments import check_count


class SkipGramPairs(Transform, name="skip_gram", seeded=False):
    """Replaces the seeds by all pairs of nodes that are at most `window` steps apart on a walk, in both directions.

    The seeds become int64, shape (pairs, 2): those of distance 1 first, each as (earlier, later), then all as (later,
    earlier), and so on. Negatives come from the stages for edge seeds, such as `sample_uniform_negative(graph, 5)`.
    Labels, indexes and times belonged to the former seeds and are removed.

    Args:
        datapipe: Source of the mini-batches.
        window: Largest number of steps between the nodes of a pair.

    Raises:
        ValueError: `window` is below 1; when it runs: the mini-batch has no walks, or they lead through several types.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 1, 2]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1).sample_walks(graph, length=2)
        >>> next(iter(pipe.skip_gram(window=2))).seeds.tolist()
        [[0, 1], [1, 2], [1, 0], [2, 1], [0, 2], [2, 0]]
    """

    window: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("window", self.window, 1)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if getattr(minibatch, "walks", None) is None:
            raise ValueError("the mini-batch has no walks yet; put sample_walks before skip_gram")
        if isinstance(minibatch.seeds, dict):
            raise ValueError("skip_gram needs walks on a graph without types, since a pair has ids of one type")
        walks = minibatch.walks.flatten(0, 1)
        parts = [walks[:, :0].reshape(0, 2)]
        for distance in range(1, min(self.window, walks.shape[1] - 1) + 1):
            pairs = torch.stack([walks[:, :-distance], walks[:, distance:]], dim=-1).flatten(0, 1)
            # A walk that has ended has -1 from there on.
            pairs = pairs[pairs[:, 1] >= 0]
            parts += [pairs, pairs.flip(1)]
        result = copy.copy(minibatch)
        result.seeds, result.labels, result.indexes = torch.cat(parts), None, None
        result.compacted_seeds = result.timestamp = result.pre_time_window = None
        return result
