"""A stage that starts the work of later mini-batches on a GPU before it finishes the next one, without a thread."""

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import (
    CopyTo,
    Datapipe,
    FanoutSampler,
    FeatureFetcher,
    ItemSampler,
    MiniBatch,
    Transform,
    apply_stages,
    move_together,
)
from graphfeed.datapipes.pipeline import OBSERVER
from graphfeed.loader.run import END, RunContext
from graphfeed.loader.stages.in_workers import ByIndex, chain_of, with_failure
from graphfeed.loader.stages.prefetch import Pin, StreamPrefetch
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import TorchBasedFeature
from graphfeed.storage.memory import count_bytes

MOST_TOGETHER, BYTES_TOGETHER = 32, 1 << 20
"""Maximum number of mini-batches that are copied in one block, and of their bytes."""


class ChainOnGPU(NamedTuple):
    """Stages that wait for nothing but the sizes of a sampled mini-batch."""

    source: Datapipe
    before: list[Transform]
    """The copy to the GPU."""
    sampler: FanoutSampler
    after: list[Transform]
    """Fetches of features that the GPU reads."""

    @property
    def pins(self) -> bool:
        """Whether mini-batches are pinned before they are copied."""
        return any(isinstance(stage, Pin) for stage in self.before)


def chain_on_gpu(last: Datapipe) -> ChainOnGPU | None:
    """Return the stages up to one if a GPU reads graph and features; None if there are others."""
    stages = list(chain_of(last))[::-1]
    places = [place for place, stage in enumerate(stages) if isinstance(stage, FanoutSampler)]
    if len(places) != 1 or not isinstance(stages[0].datapipe, (ItemSampler, ByIndex)):
        return None
    before, after = stages[: places[0]], stages[places[0] + 1 :]
    sampler = stages[places[0]]
    assert isinstance(sampler, FanoutSampler)
    copied = any(isinstance(stage, CopyTo) and stage.returns_early for stage in before)
    plain = all(type(stage) in (CopyTo, Pin) for stage in before) and all(map(fetches_on_gpu, after))
    return ChainOnGPU(stages[0].datapipe, before, sampler, after) if copied and plain and sampler.can_start() else None


def fetches_on_gpu(stage: Transform) -> bool:
    """Return whether a stage reads features that are on a GPU or pinned, and nothing else."""
    if type(stage) is not FeatureFetcher or stage.cooperative or not stage.feature_store.reads_plainly():
        return False
    features: list[object] = list(stage.features().values())
    # Threads may read rows on the CPU that are not pinned.
    return all(type(own) is TorchBasedFeature and not own.may_read_in_threads() for own in features)


class IssueAhead(StreamPrefetch, one_to_one=True, inserted=True, seeded=False):
    """Runs the stages before it on a CUDA stream, some mini-batches ahead, in the thread that iterates it.

    Sampling of the next mini-batches has started before a mini-batch is finished, so that its sizes are known by then.
    Up to 32 mini-batches are copied in one block. Their order with the caller's stream is that of `StreamPrefetch`. No
    thread waits for another one.
    """

    def ahead(
        self,
        run: RunContext,  # noqa: ARG002
        device: torch.device,  # noqa: ARG002
        side: torch.cuda.Stream,
    ) -> Generator[tuple[Any, torch.cuda.Event], None, None]:
        """Yield mini-batches, each with an event that follows its work on the side stream."""
        chain, observer = chain_on_gpu(self.datapipe), OBSERVER.get()
        assert chain is not None
        begun, on_side = deque[Callable[[], Any]](), torch.cuda.stream(side)
        with closing(with_failure(chain.source)) as minibatches, closing(copied(chain, minibatches, observer)) as there:
            while True:
                with on_side:
                    while len(begun) <= self.buffer_size and (minibatch := next(there, END)) is not END:
                        begun.append(begin(chain, minibatch, observer))
                    if not begun:
                        return
                    minibatch = begun.popleft()()
                    event = side.record_event()
                yield minibatch, event


def copied(chain: ChainOnGPU, minibatches: Iterator[Any], observer: Any) -> Generator[Any, None, None]:
    """Yield the mini-batches on the GPU, or their failures. Several small ones are copied in one block."""
    copies = [stage for stage in chain.before if isinstance(stage, CopyTo)]
    for first in minibatches:
        room = min(MOST_TOGETHER, BYTES_TOGETHER // max(count_bytes(first), 1)) if type(first) is MiniBatch else 1
        window = [first, *islice(minibatches, max(room - 1, 0))]
        twins = [copy.copy(own) for own in window if type(own) is MiniBatch]
        # An observer is notified of each stage of each mini-batch.
        if observer is None and len(window) == len(twins) > 1 == len(copies):
            with suppress(Exception):  # raised below, where its mini-batch is copied
                move_together(twins, copies[0].device, non_blocking=copies[0].returns_early, pin_first=chain.pins)
                window = [OnGPU(own) for own in twins]
        yield from window


class OnGPU(NamedTuple):
    """A mini-batch that was copied."""

    minibatch: MiniBatch


def begin(chain: ChainOnGPU, minibatch: Any, observer: Any) -> Callable[[], Any]:
    """Copy a mini-batch, and start sampling it; return a function that returns it with its features, or raises."""
    try:
        if isinstance(minibatch, Failure):
            raise minibatch.error
        copied = (
            minibatch.minibatch if isinstance(minibatch, OnGPU) else apply_stages(chain.before, minibatch, observer)
        )
    except Exception as error:
        failed = error

        def fail() -> Any:
            raise failed

        return fail
    sample: Callable[[Any], Any] = chain.sampler
    with suppress(Exception):  # which the sampler raises again
        sample = chain.sampler.start(copied)

    def finish() -> Any:
        return apply_stages(chain.after, apply_stages([chain.sampler], copied, observer, sample), observer)

    return finish
