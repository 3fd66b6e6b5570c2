"""A pipeline for one mini-batch that is not one of an epoch."""

from typing import Any

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, Transform, call
from graphfeed.datapipes.pipeline import traverse
from graphfeed.ops import Key
from graphfeed.storage.graph import type_name


def call_stages(pipe: Datapipe, minibatch: Any) -> Any:
    """Return what the stages behind a pipeline's source make of a mini-batch.

    Nothing is iterated, so the workers of a loader of torch's do not share the one mini-batch among them.
    """
    return call([stage for stage in traverse(pipe)[1:] if isinstance(stage, Transform)], minibatch)


def random_minibatch(values: dict[str, Any], seed_type: str | None) -> MiniBatch:
    """Return a mini-batch of some fields, by type if there is one; those that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    fields = given if seed_type is None else {name: {seed_type: value} for name, value in given.items()}
    # The seed comes from torch's default generator, which loaders of torch's seed in each of their workers.
    return MiniBatch(**fields, key=Key(int(torch.randint(1 << 62, ())), 0, 0))


def random_links(inputs: Any) -> MiniBatch:
    """Return a mini-batch of the edges of PyG's `EdgeSamplerInput`, seeded as by `random_minibatch`."""
    values = {"seeds": torch.stack([inputs.row, inputs.col], dim=1), "labels": inputs.label, "timestamp": inputs.time}
    minibatch = random_minibatch(values, type_name(inputs.input_type and tuple(inputs.input_type)))
    minibatch.input_id = inputs.input_id  # type: ignore[attr-defined]
    return minibatch
