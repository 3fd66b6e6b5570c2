"""The rule about ranks that sample and fetch together."""

from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.traverse import find, traverse
from graphfeed.datapipes.sources.distributed_item_sampler import DistributedItemSampler, find_rank
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.run import RunContext


@runtime_checkable
class Cooperates(Protocol):
    """A stage that can share its work with those of other ranks."""

    cooperative: bool


@runtime_checkable
class LeavesRun(Protocol):
    """A stage that tells other ranks when this one iterates no further."""

    def leave_run(self) -> None:
        """Tell them; called once, at the end of the run, however it ends."""


def tell_ranks(pipe: Datapipe, run: RunContext) -> None:
    """Let stages tell other ranks when a run ends, so that those need not wait until a timeout."""
    leave = [stage.leave_run for stage in traverse(pipe) if isinstance(stage, LeavesRun)]
    if leave:
        run.cancelled.add_done_callback(lambda _: [call() for call in leave])


def cooperate(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Ranks make joint mini-batches: each samples and fetches the nodes that it owns, once for all ranks."""
    wanted = [stage for stage in traverse(pipe) if isinstance(stage, Cooperates) and stage.cooperative]
    if not wanted or (find_rank() or (0, 1))[1] == 1:
        return pipe
    check_threads(options)
    return join_ranks(pipe, check_ranks(wanted[0]))


def join_ranks(pipe: Datapipe, world_size: int) -> Datapipe:
    """Return a pipeline whose stages with `cooperative=True` work together with those of other ranks."""
    # The room above this one, which alone reaches other ranks.
    sampler: Any = import_module("graphfeed.distributed.cooperative.joint_sampler")
    fetcher: Any = import_module("graphfeed.distributed.cooperative.joint_fetcher")

    def join(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Cooperates) or not stage.cooperative:
            return stage
        (source,) = stage.inputs
        if stage.reads_graph:
            sampled: Datapipe = sampler.JointSampler(source, sampler.Team(stage, world_size))
            return sampled
        if not find(source, sampler.JointSampler):
            raise ValueError(
                f"{type(stage).__name__} has cooperative=True, but no sampler before it has; give it to both, or leave "
                "it out"
            )
        fetched: Datapipe = fetcher.JointFetcher(source, fetcher.Fetching(stage))
        return fetched

    return pipe.rewrite(join)


def check_threads(options: LoaderOptions) -> None:
    """Raise if stages would run where no rank is."""
    if options.servers or (options.num_workers and not options.in_threads):
        where = "sampling servers" if options.servers else "worker processes"
        raise ValueError(f"cooperative=True needs threads, because {where} are no ranks; use worker='thread'")


def check_ranks(stage: Datapipe) -> int:
    """Return the number of ranks, or raise unless they share one order of mini-batches, and have as many each."""
    sources = [source for source in traverse(stage) if isinstance(source, DistributedItemSampler)]
    if not sources:
        raise ValueError(
            f"cooperative=True of {type(stage).__name__} needs mini-batches that ranks share; begin with a "
            "DistributedItemSampler"
        )
    (rank, world_size), total = sources[0].place, len(sources[0].all_ranks)
    if (rank, world_size) != find_rank():
        raise ValueError(
            f"cooperative=True needs the process group's ranks, but rank and world_size are {rank} and {world_size}"
        )
    if total % world_size and not sources[0].drop_uneven_inputs:
        raise ValueError(
            f"cooperative=True needs as many mini-batches on each rank, but {total} are shared by {world_size}; give "
            "the DistributedItemSampler drop_uneven_inputs=True"
        )
    return world_size
