"""The fingerprint of a pipeline: everything that determines its mini-batches, as short strings in a loader's state."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from functools import partial
from inspect import signature
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, Source
from graphfeed.datapipes.pipeline import traverse
from graphfeed.loader.stages.decode_features import decoded_features
from graphfeed.ops.arguments import brief
from graphfeed.storage import FeatureStore, HeteroItemSet, ItemSet, SamplingGraph
from graphfeed.storage.datasets import identify

Fingerprint: TypeAlias = dict[str, dict[str, str]]
"""The fields of each stage as strings, by the stage's number and class."""

OPTIONS = {"overlap_fetch", "runs_in"}
"""Fields of stages that affect only the speed, not the mini-batches."""
POSITION = {"epoch", "rank", "seed", "start", "world_size"}
"""Fields of a source for the position and the rank, which the rest of the state contains."""
MOST_VALUES = 64
LONGEST = 200


def take_fingerprint(pipe: Datapipe) -> Fingerprint:
    """Return a fingerprint of everything that determines the mini-batches of a pipeline.

    It includes the stages in order, their fields, and checksums of item sets, graphs and features. It excludes the
    contents of functions and other large tensors, stages that only pass on mini-batches, and options of speed.
    """
    taken: Fingerprint = {}
    numbers: dict[int, int] = {}
    for stage in traverse(pipe):
        if (stage.traits.keeps_values or stage.traits.inserted) and stage.inputs:
            numbers[id(stage)] = numbers[id(stage.inputs[0])]
            continue
        left_out = OPTIONS | POSITION if isinstance(stage, Source) else OPTIONS
        given = {*signature(type(stage).__init__).parameters, *getattr(stage, "__dataclass_fields__", ())}
        values = {
            name: value for name, value in vars(stage).items() if name.lstrip("_") in given and name not in left_out
        }
        texts = {name: stable_text(value, numbers) for name, value in values.items()}
        features = decoded_features(stage) if isinstance(stage, FeatureFetcher) else {}
        data = {**values, **{" ".join(filter(None, key)): feature for key, feature in features.items()}}
        texts |= {f"{name} (checksum)": identify(value) or None for name, value in data.items()}
        numbers[id(stage)] = len(taken) + 1
        taken[f"{len(taken) + 1} {type(stage).__name__}"] = {
            name: shorten(text) for name, text in texts.items() if text is not None
        }
    return taken


def find_difference(state: Any, expected: Fingerprint) -> str | None:
    """Describe the first difference between the fingerprint of a state and that of the pipeline; None if they agree.

    A field that only one of them has is not compared, because another version of the stage may have added it. The
    exception is the owners of items, which change the mini-batches.
    """
    is_one = isinstance(state, Mapping) and all(re.match(r"\d+ ", str(stage)) for stage in state)
    if not is_one or not all(isinstance(fields, Mapping) for fields in state.values()):
        raise ValueError(
            f"fingerprint of state_dict must be a dict of stages, as in state_dict(), but is {brief(state)}; "
            "remove 'fingerprint' from the state to continue without a check"
        )
    # JSON may have sorted the stages as strings, stage 10 before stage 2.
    for then, now in zip_longest(sorted(state, key=number_of), sorted(expected, key=number_of)):
        if then != now:
            return f"it has {then or 'no more stages'} where this one has {now or 'no more stages'}"
        for name, value in expected[now].items():
            there = state[now].get(name, "None" if name == "owners" else value)
            if there != value:
                return f"{name} of stage {now} is {there} in it, but {value} here"
    return None


def number_of(stage: str) -> int:
    # As in "2 NeighborSampler".
    return int(stage.partition(" ")[0])


def shorten(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    # The digest differs if long strings differ after their beginning.
    return f"{text[:LONGEST]}... (SHA-1 {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]})"


def stable_text(value: Any, numbers: Mapping[int, int]) -> str | None:
    """Return a string that is the same in every run for the same value; None for a value that is left out."""

    def join(values: Iterable[Any]) -> str:
        return ", ".join(str(stable_text(part, numbers)) for part in values)

    if isinstance(value, (FeatureStore, Iterator)):
        return None
    # `numbers` maps the ids of earlier stages to their numbers.
    if isinstance(value, Datapipe):
        return f"stage {numbers.get(id(value), type(value).__name__)}"
    for classes, text in TEXTS:
        if isinstance(value, classes):
            return text(value)
    if isinstance(value, (list, tuple, Set, Mapping)):
        if len(value) > MOST_VALUES:
            return f"{len(value)} values"
        if isinstance(value, Mapping):
            return f"{{{', '.join(sorted(f'{join([key])}: {join([part])}' for key, part in value.items()))}}}"
        return f"[{', '.join(sorted(join([part]) for part in value)) if isinstance(value, Set) else join(value)}]"
    if isinstance(value, partial):
        return f"{join([value.func])} with {join([*value.args, value.keywords])}"
    if getattr(getattr(value, "__dataclass_params__", None), "frozen", False) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in fields(value)}
        return f"{type(value).__qualname__} of {join([parts])}"
    # Without the module, whose name differs between a script and an import of that script.
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def array_digest(values: Any) -> str:
    if math.prod(values.shape) <= MOST_VALUES and values.dtype != np.dtype(object):
        # Sparse and quantized tensors, and those without memory, have no `tolist`.
        with suppress(RuntimeError, TypeError, NotImplementedError):
            return str(values.tolist())
    return f"{values.dtype} of shape {tuple(values.shape)}"


TEXTS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (np.generic, lambda value: repr(value.item())),
    ((bool, int, float, str, bytes, type(None), torch.dtype, torch.device), repr),
    (Enum, str),
    ((torch.Tensor, np.ndarray), array_digest),
    ((ItemSet, HeteroItemSet), lambda items: f"{len(items)} items named {items.names}"),
    (SamplingGraph, lambda graph: f"graph of {graph.num_nodes} nodes and {graph.num_edges} edges"),
)
"""Functions that describe values of some classes."""
