"""A stage that starts the work of later mini-batches on a GPU before it finishes the next one, without a thread."""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import CopyTo, Datapipe, FanoutSampler, FeatureFetcher, ItemSampler, Transform, apply_stages
from graphfeed.datapipes.pipeline import OBSERVER
from graphfeed.loader.run import END, RunContext
from graphfeed.loader.stages.in_workers import ByIndex, chain_of, with_failure
from graphfeed.loader.stages.prefetch import Pin, StreamPrefetch
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import TorchBasedFeature


class ChainOnGPU(NamedTuple):
    """Stages that wait for nothing but the sizes of a sampled mini-batch."""

    source: Datapipe
    before: list[Transform]
    """The copy to the GPU."""
    sampler: FanoutSampler
    after: list[Transform]
    """Fetches of features that the GPU reads."""


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
    Their order with the caller's stream is that of `StreamPrefetch`. No thread waits for another one.
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
        begun = deque[Callable[[], Any]]()
        with closing(with_failure(chain.source)) as minibatches:
            while True:
                with torch.cuda.stream(side):
                    while len(begun) <= self.buffer_size and (minibatch := next(minibatches, END)) is not END:
                        begun.append(begin(chain, minibatch, observer))
                    if not begun:
                        return
                    minibatch = begun.popleft()()
                    event = side.record_event()
                yield minibatch, event


def begin(chain: ChainOnGPU, minibatch: Any, observer: Any) -> Callable[[], Any]:
    """Start sampling a mini-batch; return a function that returns it with its features, or raises its failure."""
    try:
        if isinstance(minibatch, Failure):
            raise minibatch.error
        copied = apply_stages(chain.before, minibatch, observer)
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
