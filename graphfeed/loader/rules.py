"""Rules for devices and prefetching. Like all rules, they start nothing and touch no device.

`explain()` prints the first line of a rule's docstring if the rule changed something.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, ToMatrix, Transform
from graphfeed.datapipes.pipeline import Placement, find, traverse
from graphfeed.loader.stages.decode_features import DecodeFeatures, fetch_codes
from graphfeed.loader.stages.fetch_before_steps import FetchBeforeSteps
from graphfeed.loader.stages.in_workers import InThreads, InWorkers
from graphfeed.loader.stages.issue_ahead import IssueAhead, chain_on_gpu
from graphfeed.loader.stages.latest_matrices import LatestMatrices
from graphfeed.loader.stages.prefetch import Pin, Prefetch, StreamPrefetch
from graphfeed.loader.stages.trained_fetcher import TrainedFetcher, split_trained, stale_by
from graphfeed.ops import is_gpu
from graphfeed.ops.process import load_entry_point
from graphfeed.storage.memory import available_memory, ranks_of_machine

ROWS_SHARE = 1 / 3
"""Share of the available memory that reading ahead may use if no limit is given."""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory that a loader may use in addition to its graphs, features and caches."""

    limit: int | None = None
    """In bytes, for all ranks of this machine; None depends on the memory that is available at the first use."""

    @cached_property
    def _available(self) -> float:
        # Read once, so that planning a pipeline again gives the same windows.
        return available_memory()

    def for_rows(self) -> float:
        # In bytes, including the mini-batches that wait for their rows. Divided by the number of ranks of a machine, so
        # that a limit does not depend on that number.
        total = ROWS_SHARE * self._available if self.limit is None else self.limit
        return total / ranks_of_machine()

    def __reduce__(self) -> tuple[Any, ...]:
        # The available memory is not copied: it may differ in another process.
        return MemoryBudget, (self.limit,)


@dataclass(frozen=True)
class LoaderOptions:
    """Options of a loader, passed to every rule."""

    num_workers: int = 0
    """Number of workers. With 0, everything runs in the thread that iterates the loader."""
    in_threads: bool = True
    """Whether workers share this process's memory."""
    prefetch_factor: int = 2
    """Number of mini-batches in flight per worker, and of finished ones that each prefetch thread buffers."""
    timeout_seconds: float = 600.0
    overlap_feature_fetch: bool | None = None
    """Whether features are prefetched on a device; None uses each stage's `overlap_fetch`."""
    overlap_graph_fetch: bool | None = None
    """Whether sampling on a device runs ahead; None uses each stage's `overlap_fetch`."""
    servers: tuple[str, ...] = ()
    """Addresses of the sampling servers that replace workers."""
    window: int | None = None
    """Number of mini-batches whose slow rows are read together; 0 reads one by one, None as many as memory allows."""
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """Memory that reading ahead may use."""


OUTER_WAIT_FACTOR = 2.0
"""Waiting for a prefetch thread times out later than its own waits for workers, whose error names the cause."""


@runtime_checkable
class FetchStage(Protocol):
    """A stage that reads features. It runs in the main process, unless its methods or `runs_in` allow workers."""

    def may_run_in_threads(self) -> bool:
        """Return whether worker threads can read the features as well as the main thread."""

    def may_run_in_processes(self) -> bool:
        """Return whether worker processes can read the features without a copy."""


@runtime_checkable
class CopiesToDevice(Protocol):
    """A stage that moves mini-batches to a device."""

    device: torch.device | str
    non_blocking: bool


def fetches_ahead(stage: Datapipe, options: LoaderOptions) -> bool:
    given = options.overlap_feature_fetch
    return stage.traits.overlap_fetch is not False if given is None else given


def awaits_steps(pipe: Datapipe) -> bool:
    """Return whether a stage, or one before it, must not run ahead of the caller's step."""
    return any(stage.traits.awaits_steps for stage in traverse(pipe))


def device_of(pipe: Datapipe) -> torch.device | str | None:
    """Return the GPU that holds a stage's mini-batches, as named by the last copy; None for the CPU."""
    if isinstance(pipe, CopiesToDevice):
        return pipe.device if is_gpu(pipe.device) else None
    return next((device for source in pipe.inputs if (device := device_of(source)) is not None), None)


def moves(stage: Datapipe) -> bool:
    """Return whether a stage copies to a GPU, or from a GPU to the CPU."""
    if not isinstance(stage, CopiesToDevice):
        return False
    return torch.device(stage.device).type != "cpu" or any(device_of(source) is not None for source in stage.inputs)


def sampled_on_device(pipe: Datapipe[Any]) -> tuple[torch.device | str, Datapipe] | None:
    for stage in traverse(pipe):
        device = device_of(stage)
        if stage.traits.reads_graph and device is not None:
            return device, stage
    return None


def check_workers(pipe: Datapipe, options: LoaderOptions) -> None:
    """Raise a ValueError if workers would have to run stages that only the main process can run."""
    for stage in traverse(pipe):
        if stage.traits.runs_in is Placement.WORKER and awaits_steps(stage):
            raise ValueError(
                f"runs_in of {type(stage).__name__} is Placement.WORKER, but workers run ahead, and rows of a "
                "TrainableFeature are fetched after each step; leave runs_in as Placement.AUTO"
            )
    sampled = sampled_on_device(pipe)
    if sampled is None or options.num_workers == 0:
        return
    device, stage = sampled
    raise ValueError(
        f"num_workers is {options.num_workers}, but copy_to({str(device)!r}) comes before {type(stage).__name__}: "
        "the main process samples on a device, and workers would have nothing to do. Use num_workers=0 to sample "
        "on the device, or move copy_to after the sampler to sample in workers"
    )


def cooperate(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Ranks build joint mini-batches: each samples and fetches the nodes that it owns, once for all ranks."""
    if not any(stage.traits.cooperative for stage in traverse(pipe)):
        return pipe
    rewritten: Datapipe = load_entry_point("rules", "cooperate")(pipe, options)
    return rewritten


def fetch_trained_last(pipe: Datapipe, options: LoaderOptions) -> Datapipe:  # noqa: ARG001
    """Rows that are trained are fetched when the next mini-batch is requested, after the step; others run ahead."""

    def split(stage: Datapipe) -> Datapipe:
        # A subclass may use all rows at once, so it waits as a whole.
        return split_trained(stage) if type(stage) is FeatureFetcher and stage.trained_keys else stage

    return pipe.rewrite(split)


def fetch_before_steps(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Rows that are trained, with a `staleness`, are fetched in a thread while you train with earlier mini-batches."""
    if options.num_workers == 0:
        return pipe

    def ahead(stage: Any) -> Any:
        # A subclass may use the rows before they are those of the next step.
        if not isinstance(stage, FeatureFetcher) or type(stage) not in (FeatureFetcher, TrainedFetcher):
            return stage
        # An earlier stage must not fetch the rows of several mini-batches before a step.
        if device_of(stage) is not None or any(map(awaits_steps, stage.inputs)):
            return stage
        staleness = stale_by(stage)
        return FetchBeforeSteps(stage, staleness, options.timeout_seconds) if staleness else stage

    return pipe.rewrite(ahead)


def write_matrices(pipe: Datapipe, options: LoaderOptions) -> Datapipe:  # noqa: ARG001
    """The latest neighbours are written as matrices at once, without subgraphs in between."""

    def join(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, ToMatrix) or device_of(stage) is not None:
            return stage
        sampler = stage.latest_sampler()
        # Each of two stages may run where the user says.
        if sampler is None or {stage.traits.runs_in, sampler.traits.runs_in} != {Placement.AUTO}:
            return stage
        return LatestMatrices.of(sampler, stage.align)

    return pipe.rewrite(join)


def decode_last(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Features stay codes until they are on the GPU, or have arrived from a server."""

    def swap(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Transform) or not isinstance(stage, CopiesToDevice) or not is_gpu(stage.device):
            return stage
        codes = None if device_of(stage.datapipe) is not None else fetch_codes(stage.datapipe)
        return stage if codes is None else DecodeFeatures(stage.changed(datapipe=codes[0]), codes[1])

    codes = fetch_codes(pipe) if options.servers else None
    return pipe.rewrite(swap) if codes is None else DecodeFeatures(*codes)


def run_last_on_stream(
    pipe: Datapipe, name: str, options: LoaderOptions, wanted: Callable[[Datapipe], bool]
) -> Datapipe:
    """Prefetch up to the last stage that is `wanted` on a stream, which includes the other wanted stages before it."""
    covered = {id(source) for stage in traverse(pipe) if wanted(stage) for source in traverse(stage)[:-1]}

    def put(stage: Datapipe) -> Datapipe:
        device = device_of(stage)
        if id(stage) in covered or device is None or not wanted(stage):
            return stage
        return StreamPrefetch(stage, name, device, options.prefetch_factor, OUTER_WAIT_FACTOR * options.timeout_seconds)

    return pipe.rewrite(put)


def overlap_graph_fetch(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Sampling on a device runs ahead of the next stages, in its own thread and on its own stream."""

    def wanted(stage: Datapipe) -> bool:
        traits, given = stage.traits, options.overlap_graph_fetch
        ahead = bool(traits.overlap_fetch) if given is None else given
        return traits.reads_graph and device_of(stage) is not None and ahead and not awaits_steps(stage)

    return run_last_on_stream(pipe, "graph", options, wanted)


def overlap_feature_fetch(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Features are fetched on a device ahead of the caller's step, in their own thread and on their own stream."""

    def wanted(stage: Datapipe) -> bool:
        fetches = isinstance(stage, FetchStage) and device_of(stage) is not None and fetches_ahead(stage, options)
        return fetches and not awaits_steps(stage)

    return run_last_on_stream(pipe, "feature", options, wanted)


def prefetch_on_stream(pipe: Datapipe, options: LoaderOptions) -> Datapipe:  # noqa: ARG001
    """A `prefetch` after a copy to a device gets its own stream there."""

    def swap(stage: Datapipe) -> Datapipe:
        device = device_of(stage)
        if not isinstance(stage, Prefetch) or device is None:
            return stage
        return StreamPrefetch(stage.datapipe, "prefetch", device, stage.buffer_size, stage.timeout_seconds)

    return pipe.rewrite(swap)


def copy_on_stream(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """The copy to a device and the stages before it run ahead in a thread, on their own stream."""
    if options.num_workers == 0:
        return pipe
    ahead = {id(source) for stage in find(pipe, StreamPrefetch) for source in traverse(stage)[:-1]}

    def wanted(stage: Datapipe) -> bool:
        copies = isinstance(stage, CopiesToDevice) and is_gpu(stage.device) and id(stage) not in ahead
        return copies and not awaits_steps(stage)

    return run_last_on_stream(pipe, "copy", options, wanted)


def pin_before_copy(pipe: Datapipe, options: LoaderOptions) -> Datapipe:  # noqa: ARG001
    """Mini-batches are pinned before they are copied on a stream, so that the copy overlaps with computation."""

    def pin(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Transform) or not isinstance(stage, CopiesToDevice) or not is_gpu(stage.device):
            return stage
        if isinstance(stage.datapipe, Pin) or device_of(stage.datapipe) is not None:
            return stage
        return stage.changed(datapipe=Pin(stage.datapipe), non_blocking=True)

    return pipe.rewrite(
        lambda stage: stage.with_inputs(lambda part: part.rewrite(pin)) if isinstance(stage, StreamPrefetch) else stage
    )


def issue_ahead(pipe: Datapipe, options: LoaderOptions) -> Datapipe:  # noqa: ARG001
    """Mini-batches whose graph and features a GPU reads are started ahead by the caller's thread, on a stream."""

    def swap(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, StreamPrefetch) or chain_on_gpu(stage.datapipe) is None:
            return stage
        return IssueAhead(stage.datapipe, stage.stream, stage.device, stage.buffer_size, stage.timeout_seconds)

    return pipe.rewrite(swap)


def run_main_stages_ahead(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """The main-process stages run ahead of the copy, or of the loop, in a thread."""
    if options.num_workers == 0:
        return pipe

    def is_ahead(stage: Datapipe) -> bool:
        # Workers run ahead already; a thread in between would only forward mini-batches.
        return isinstance(stage, (InWorkers, InThreads))

    def ahead(stage: Datapipe) -> Prefetch:
        return Prefetch(stage, options.prefetch_factor, OUTER_WAIT_FACTOR * options.timeout_seconds)

    def prefetch(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Transform) or not moves(stage) or device_of(stage) is not None:
            return stage
        unfit = is_ahead(stage.datapipe) or awaits_steps(stage)
        return stage if unfit else stage.changed(datapipe=ahead(stage.datapipe))

    def put(pipe: Datapipe) -> Datapipe:
        if awaits_steps(pipe):
            # Only what comes before all rows that are trained may run ahead.
            return pipe.with_inputs(put)
        # On a device, the stages would use the thread's stream rather than the caller's.
        return pipe if is_ahead(pipe) or moves(pipe) or device_of(pipe) is not None else ahead(pipe)

    return put(pipe.rewrite(prefetch))
