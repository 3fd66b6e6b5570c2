"""The base class of all negative samplers, including user-defined ones."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate
from graphfeed.datapipes.sources.seeds import PER_ITEM, given_seeds, spread_over_rows, usual_indexes
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import drawing
from graphfeed.ops.arguments import brief, check_tensors, checked

Sampled: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Seeds, labels and indexes."""

LABEL_BYTES, INDEX_BYTES = 4, 8


class NegativeSampler(Transform, name="sample_negative", draws=True, seeded=False):
    """Base class of stages that add negatives to edge seeds. Subclasses implement `_sample_with_etype` per seed type.

    Its result replaces `seeds`, `labels` and `indexes` of the mini-batch. The rows may be in any order: `indexes` has
    the positions of the edges that they belong to, from which negatives get their times. If the items have labels, rows
    that the method labels 1 get the labels of their items. Graph methods called there use the mini-batch's key by
    themselves. Other draws get their key from `draw_key`, in the thread that calls the method.

    Args:
        datapipe: Source of the mini-batches.
        negative_ratio: Number of negatives per edge.

    Raises:
        ValueError: `negative_ratio` is not an integer of 1 or more; when it runs: a mini-batch without seeds, or one
            that is already sampled, whose subgraphs would lack the negatives.
    """

    negative_ratio: int

    def __post_init__(self) -> None:
        if type(self.negative_ratio) is not int or self.negative_ratio < 1:
            raise ValueError(
                f"Negative_ratio should be positive Integer: negative_ratio is {brief(self.negative_ratio)}; "
                "give the number of negatives per edge"
            )
        super().__post_init__()

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Sampled:
        """Return the seeds, labels and indexes of one seed type, None if the seeds have no types.

        `with_negatives` returns the usual labels and indexes for positives that are followed by their negatives.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _sample_with_etype")

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate with the usual seeds, labels and indexes instead of only the seeds."""
        if before is None:
            return None
        times = 1 + self.negative_ratio
        seeds = {seed_type: times * count for seed_type, count in before.seeds.items()}
        more = before.id_bytes * (sum(seeds.values()) - sum(before.seeds.values()))
        more += (LABEL_BYTES + INDEX_BYTES) * times * before.seed_rows
        return replace(before.plus(more), seeds=seeds, nodes=seeds, seed_rows=times * before.seed_rows)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        return sample_each_type(self, minibatch, self._sample_with_etype)


def unsampled(stage: Transform, minibatch: MiniBatch) -> MiniBatch:
    """Return a copy with a time for each row of the seeds. A mini-batch that is already sampled raises an error."""
    result = copy.copy(minibatch)
    if minibatch.sampled_subgraphs is not None or minibatch.compacted_seeds is not None:
        raise ValueError(
            f"the mini-batch is already sampled, and its subgraphs would lack the negatives; put "
            f"{type(stage).__name__} before the sampler"
        )
    for name in PER_ITEM:  # the new indexes are positions among all rows, earlier negatives included
        setattr(result, name, spread_over_rows(minibatch, name))
    return result


def sample_each_type(stage: Transform, minibatch: MiniBatch, sample: Callable[..., Sampled]) -> MiniBatch:
    """Return a mini-batch with the seeds, labels and indexes that a function returns for the seeds of each type."""
    seeds, result = given_seeds(minibatch), unsampled(stage, minibatch)

    def sample_one(labels: Any, part: torch.Tensor, *seed_type: str) -> Sampled:
        made, count = sample(part, *seed_type), len(part)
        if result.timestamp is not None and len(made[2]) == count and made[2].tolist() != list(range(count)):
            raise ValueError(
                f"{type(stage).__name__} returned the {count} edges in another order, but not their times; keep "
                "the order, or add a negative to each edge"
            )
        if labels is None:
            return made
        # Rows with label 1 get the labels of their items.
        sampled, signs, indexes = made
        one = (signs == 1).reshape(-1, *[1] * (labels.dim() - 1))
        return sampled, torch.where(one, labels[indexes], signs.reshape(one.shape).to(labels.dtype)), indexes

    with drawing(minibatch.key, stage.number):
        if isinstance(seeds, torch.Tensor):
            result.seeds, result.labels, result.indexes = sample_one(minibatch.labels, seeds)
            return result
        labels = minibatch.labels or {}
        parts = {kind: sample_one(labels.get(kind), part, kind) for kind, part in seeds.items()}
    result.seeds, result.labels, result.indexes = (
        {seed_type: part[number] for seed_type, part in parts.items()} for number in range(3)
    )
    return result


@checked
def with_negatives(seeds: torch.Tensor, num_positives: int) -> Sampled:
    """Return seeds with their labels and indexes. The seeds are the positives, then the negatives of each in turn.

    Labels are float32: 1 for each positive, then 0. Indexes are int64: the positive that each seed belongs to.

    Example:
        >>> with_negatives(torch.tensor([[5, 6], [7, 8], [5, 1], [5, 2], [7, 3], [7, 4]]), 2)[2]
        tensor([0, 1, 0, 0, 1, 1])
    """
    check_tensors(seeds=seeds)
    labels = torch.zeros(len(seeds), dtype=torch.float32, device=seeds.device)
    labels[:num_positives] = 1
    return seeds, labels, usual_indexes(num_positives, len(seeds), seeds.device)
