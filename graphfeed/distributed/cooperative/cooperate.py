"""The loader's rule for stages with `cooperative=True`."""

from graphfeed.datapipes import Datapipe, DistributedItemSampler, FanoutSampler, FeatureFetcher, find_rank
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.distributed.cooperative.joint_fetcher import JointFetcher, WrappedFetcher
from graphfeed.distributed.cooperative.joint_sampler import JointSampler, RankGroup
from graphfeed.loader import LoaderOptions


def cooperate(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Return a pipeline whose stages with `cooperative=True` share their work with those of other ranks, if any."""
    first = next(stage for stage in traverse(pipe) if stage.traits.cooperative)
    if (find_rank() or (0, 1))[1] == 1:
        return pipe
    if options.servers or (options.num_workers and not options.in_threads):
        where = "sampling servers" if options.servers else "worker processes"
        raise ValueError(f"cooperative=True needs threads, because {where} are not ranks; use worker='thread'")
    return join_ranks(pipe, check_shared_order(first))


def join_ranks(pipe: Datapipe, world_size: int) -> Datapipe:
    """Replace stages with `cooperative=True` by stages that work together with those of other ranks."""

    def replace(stage: Datapipe) -> Datapipe:
        if not stage.traits.cooperative:
            return stage
        if isinstance(stage, FanoutSampler):
            return JointSampler(stage.datapipe, RankGroup(stage, world_size))
        assert isinstance(stage, FeatureFetcher)
        if not find(stage.datapipe, JointSampler):
            raise ValueError(
                f"{type(stage).__name__} has cooperative=True, but no sampler before it has; pass it to both, or to "
                "neither"
            )
        return JointFetcher(stage.datapipe, WrappedFetcher(stage))

    return pipe.rewrite(replace)


def check_shared_order(stage: Datapipe) -> int:
    """Return the number of ranks; raise unless they share one order of mini-batches, the same number for each."""
    sources = [source for source in traverse(stage) if isinstance(source, DistributedItemSampler)]
    if not sources:
        raise ValueError(
            f"cooperative=True of {type(stage).__name__} needs mini-batches that ranks share; begin with a "
            "DistributedItemSampler"
        )
    (rank, world_size), total = sources[0].rank_and_size, len(sources[0].all_ranks)
    if (rank, world_size) != find_rank():
        raise ValueError(
            f"cooperative=True needs the process group's ranks, but rank and world_size are {rank} and {world_size}"
        )
    # The first step of an additional mini-batch would wait for ranks that have none.
    if total % world_size and not sources[0].drop_uneven_inputs:
        raise ValueError(
            f"cooperative=True needs equally many mini-batches on each rank, but {total} are shared by {world_size}; "
            "give the DistributedItemSampler drop_uneven_inputs=True"
        )
    return world_size
