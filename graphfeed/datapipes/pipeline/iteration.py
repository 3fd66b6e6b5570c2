"""What happens when a stage is iterated: random streams are assigned, an observer is told, torch's workers share."""

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

from torch.utils.data import get_worker_info

from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each
from graphfeed.datapipes.pipeline.rewriting import stages_of

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


def assign_streams(pipe: "Datapipe") -> "Datapipe":
    """Return the pipeline with a random stream for each stage that draws, counted from its sources on.

    In a chain, a stage counts those before it by itself, so a chain is returned as it is. Stages in parallel branches
    would count alike and draw alike. A pipeline that has its streams keeps them.
    """
    stages = stages_of(pipe)
    has_join = any(len(stage.inputs) > 1 for stage in stages)
    if not has_join or not any(streams_without_number(stage) for stage in stages):
        return pipe
    numbers = {"random_stream": count(), "foreign_stream": count()}

    def assign(stage: "Datapipe") -> "Datapipe":
        streams = streams_of(stage)
        return stage.changed(**{stream: next(numbers[stream]) for stream in streams}) if streams else stage

    return pipe.rewrite(assign)


def streams_of(stage: "Datapipe") -> list[str]:
    """Return the names of the streams that a stage draws from."""
    return ["random_stream"] * stage.needs_key + ["foreign_stream"] * stage.foreign


def streams_without_number(stage: "Datapipe") -> list[str]:
    """Return those of them that have no number yet."""
    return [stream for stream in streams_of(stage) if getattr(stage, stream) is None]


def begins(run: "Callable[[Any], Iterator[Any]]") -> "Callable[[Any], Iterator[Any]]":
    """Wrap a stage's `__iter__`. Without a loader, the first stage that is iterated sees the whole pipeline."""

    @wraps(run)
    def iterate(stage: "Datapipe") -> Iterator[Any]:
        minibatches = run(assign_streams(stage))
        # A loop that calls super().__iter__() is observed once.
        inner = type(stage).__iter__ is not iterate
        observer = None if inner or stage.inserted or not stage.loops else OBSERVER.get()
        return minibatches if observer is None else observe_each(stage, minibatches, observer)

    return iterate


def torch_shard() -> tuple[int, int]:
    """Return the id of this torch DataLoader worker and the number of workers; (0, 1) outside of a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
