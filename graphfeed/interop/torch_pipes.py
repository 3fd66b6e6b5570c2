"""Stages that wrap torch's IterDataPipes, so that the random seed and the epoch reach the source before them."""

import copy
from collections.abc import Iterator
from dataclasses import field
from types import MethodType
from typing import Any

from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import Mapper

from graphfeed.datapipes import Datapipe, MiniBatch, Transform

OF_AN_ITERATION = {"_valid_iterator_id", "_number_of_samples_yielded", "_snapshot_state", "_fast_forward_iterator"}
"""Attributes of torch's pipes that store the state of an iteration."""


class _TorchMapper(Transform, seeded=False):
    """Applies a torch `Mapper`. Like any transform, it runs in workers."""

    mapper: IterDataPipe[Any]
    """Torch's pipe, without its source."""
    fields: tuple[str, ...] = field(repr=False)
    """Names of its attributes that referred to the source."""

    def __call__(self, minibatch: Any) -> Any:
        (result,) = with_source(self.mapper, self.fields, [minibatch])
        return result


class _TorchLoop(Transform, seeded=False):
    """Runs the loop of any other torch pipe in the main process. The pipe may drop mini-batches."""

    pipe: IterDataPipe[Any]
    """Torch's pipe, without its source."""
    fields: tuple[str, ...] = field(repr=False)
    """Names of its attributes that referred to the source."""

    def __iter__(self) -> Iterator[Any]:
        source = Remembering(self.datapipe)
        name = type(self.pipe).__name__
        advice = f"derive {name} from graphfeed.Datapipe, or put it after the DataLoader"
        for result in with_source(self.pipe, self.fields, source):
            # A mini-batch without a key was built from the latest one that the loop read.
            key = getattr(source.latest, "key", None)
            if not isinstance(result, MiniBatch):
                raise TypeError(
                    f"{name}, a torch IterDataPipe between stages, must yield mini-batches one by one, but yielded a "
                    f"{type(result).__name__}; {advice}"
                )
            if result.key is None:
                result = copy.copy(result)
                result.key = key
            elif result.key != key:
                raise ValueError(
                    f"{name}, a torch IterDataPipe between stages, reads ahead or changes the order, so mini-batches "
                    f"can't be identified by their index; {advice}"
                )
            yield result


class Remembering:
    """Iterates over a stage and keeps its latest mini-batch."""

    def __init__(self, stage: Datapipe) -> None:
        self.stage = stage
        self.latest: Any = None

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.stage:
            self.latest = minibatch
            yield minibatch


def with_source(pipe: IterDataPipe[Any], fields: tuple[str, ...], source: Any) -> IterDataPipe[Any]:
    """Return a copy of a torch pipe with another source and without the state of an iteration."""
    clone = object.__new__(type(pipe))
    for name, value in vars(pipe).items():
        # A pipe may refer to its own method, as after super().__init__(source, self.work). Rebind it to the copy.
        own_method = isinstance(value, MethodType) and value.__self__ is pipe
        if name not in OF_AN_ITERATION:
            clone.__dict__[name] = MethodType(value.__func__, clone) if own_method else value
    clone.__dict__.update(dict.fromkeys(fields, source))
    return clone


def as_stage(pipe: IterDataPipe[Any]) -> Datapipe | None:
    """Return a stage that wraps a torch pipe, or None if the pipe doesn't read from a stage."""
    fields = tuple(name for name, value in vars(pipe).items() if holds_stage(value))
    sources = {id(vars(pipe)[name]): vars(pipe)[name] for name in fields}
    if not sources:
        return None
    (source, *others) = sources.values()
    name = type(pipe).__name__
    # A list of stages counts as several.
    if others or isinstance(source, (list, tuple)) or type(pipe).__iter__ is IterDataPipe.__iter__:
        raise TypeError(
            f"{name}, a torch IterDataPipe between stages, must have its own __iter__ and read from only one stage; "
            f"derive {name} from graphfeed.Datapipe, or put it after the DataLoader"
        )
    stage: Any = as_stage(source) if isinstance(source, IterDataPipe) else source
    maps_each = isinstance(pipe, Mapper) and type(pipe).__iter__ is Mapper.__iter__
    return (_TorchMapper if maps_each else _TorchLoop)(stage, with_source(pipe, fields, None), fields)


def holds_stage(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(holds_stage, value))
    if isinstance(value, IterDataPipe):
        return any(map(holds_stage, vars(value).values()))
    return isinstance(value, Datapipe)
