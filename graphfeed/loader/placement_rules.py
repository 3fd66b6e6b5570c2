"""Rules that decide which stages run in workers, and which in the main process."""

from functools import cache

from graphfeed.datapipes import Datapipe, Shardable, Transform
from graphfeed.datapipes.pipeline import Placement, traverse
from graphfeed.loader.executors.sending import can_be_sent
from graphfeed.loader.rules import CopiesToDevice, FetchStage, LoaderOptions, device_of, moves
from graphfeed.loader.stages.in_windows import slow_sources
from graphfeed.loader.stages.in_workers import ByIndex, InThreads, InWorkers, chain_of
from graphfeed.ops.arguments import brief

REQUESTS_PER_SERVER = 4
"""Default number of mini-batches that a loader requests from each sampling server at once."""


def placement_of(stage: Transform) -> Placement:
    """Return where a stage runs: `runs_in`; if that is AUTO, MAIN if it reads features or moves mini-batches."""
    stated: object = stage.traits.runs_in
    if not isinstance(stated, Placement):
        raise TypeError(
            f"runs_in of {type(stage).__name__} must be graphfeed.Placement.AUTO, .WORKER or .MAIN, but is "
            f"{brief(stated)}"
        )
    if stated is not Placement.AUTO:
        return stated
    return Placement.MAIN if isinstance(stage, FetchStage) or moves(stage) else Placement.WORKER


def runs_before_cut(stage: Datapipe) -> bool:
    chain = list(chain_of(stage))
    return bool(chain) and all(placement_of(before) is Placement.WORKER for before in chain)


def shard_items(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Each worker builds the mini-batches whose indexes it receives."""
    if options.num_workers == 0:
        return pipe
    return pipe.rewrite(lambda stage: ByIndex(stage) if isinstance(stage, Shardable) else stage)


def in_worker(stage: Transform) -> Transform:
    moved = stage.changed(runs_in=Placement.WORKER)
    # Otherwise the identical stage, by which make_plan() recognizes that a rule changed nothing.
    return moved if runs_before_cut(moved) else stage


def decides_itself(stage: Datapipe) -> bool:
    """Return whether a stage reads features in CPU memory, and the loader chooses where it runs."""
    asks = isinstance(stage, Transform) and isinstance(stage, FetchStage)
    return asks and stage.traits.runs_in is Placement.AUTO and device_of(stage) is None


def fetch_in_workers(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Workers can read the features, so they fetch them too."""
    if options.num_workers == 0:
        return pipe
    return fetch_in_threads(pipe, options) if options.in_threads else fetch_in_processes(pipe)


def fetch_in_threads(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Move each fetch that any thread can do to the workers."""

    def allow(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Transform) or not isinstance(stage, FetchStage) or not decides_itself(stage):
            return stage
        return in_worker(stage) if stage.may_run_in_threads() and not slow_sources(stage, options.window) else stage

    return pipe.rewrite(allow)


def fetch_in_processes(pipe: Datapipe) -> Datapipe:
    """Move a fetch to the workers if the features are in shared memory and a stage computes after the fetch."""

    # If no stage follows the fetch, the threads of `fetch_beside_processes` do it, which saves a copy of the rows.
    @cache  # `can_be_sent` pickles the stage
    def may_move(stage: Transform) -> bool:
        if placement_of(stage) is Placement.WORKER:
            return stage.traits.runs_in is Placement.WORKER or can_be_sent(stage)
        shared = isinstance(stage, FetchStage) and decides_itself(stage) and stage.may_run_in_processes()
        return shared and can_be_sent(stage)

    moved: set[int] = set()
    for stage in traverse(pipe):
        chain = list(chain_of(stage))
        fetches = [id(before) for before in chain[1:] if decides_itself(before)]
        computes = fetches and not stage.traits.keeps_values and placement_of(chain[0]) is Placement.WORKER
        if computes and all(map(may_move, chain)):
            moved.update(fetches)
    # `rewrite` visits the stages in the same order, but passes copies of those that follow a changed stage.
    known = iter(traverse(pipe))
    return pipe.rewrite(lambda stage: stage.changed(runs_in=Placement.WORKER) if id(next(known)) in moved else stage)


def pass_idle_copies(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """A copy to the device that mini-batches are already on runs where the stages around it run."""
    if options.num_workers == 0:
        return pipe

    def allow(stage: Datapipe) -> Datapipe:
        idle = isinstance(stage, CopiesToDevice) and stage.traits.runs_in is Placement.AUTO and not moves(stage)
        return in_worker(stage) if idle and isinstance(stage, Transform) else stage

    return pipe.rewrite(allow)


def cut_at_main_stages(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """All stages before the first main-process stage run in workers."""
    if options.num_workers == 0:
        return pipe
    check_reachable(pipe)
    in_flight = options.num_workers * options.prefetch_factor

    def wrap(stage: Datapipe) -> Datapipe:
        if not runs_before_cut(stage):
            return stage
        return InWorkers(stage, options.num_workers, in_flight, timeout_seconds=options.timeout_seconds)

    cut = pipe.rewrite(lambda stage: stage if runs_before_cut(stage) else stage.with_inputs(wrap))
    return wrap(cut)


def make_on_servers(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Sampling servers have the pipeline, so they run the stages before the cut, and receive only indexes."""
    if not options.servers:
        return pipe
    cuts = [stage for stage in traverse(pipe) if isinstance(stage, InWorkers)]
    if not cuts or any(cut.work().source is None for cut in cuts):
        raise ValueError(
            "servers build mini-batches by index, which this pipeline does not allow; begin the pipeline with an "
            "ItemSampler, followed by at least one stage"
        )
    return pipe.rewrite(lambda stage: stage.changed(servers=options.servers) if isinstance(stage, InWorkers) else stage)


def check_reachable(pipe: Datapipe) -> None:
    """Raise a ValueError unless all stages before a stage with `Placement.WORKER` can run in workers."""
    for stage in traverse(pipe):
        if not isinstance(stage, Transform) or placement_of(stage) is Placement.MAIN or runs_before_cut(stage):
            continue
        if stage.traits.runs_in is Placement.WORKER:
            first = [before for before in chain_of(stage) if placement_of(before) is Placement.MAIN][-1]
            raise ValueError(
                f"runs_in of {type(stage).__name__} is Placement.WORKER, but {type(first).__name__} before it runs in "
                "the main process, and so do all stages after that; leave runs_in as Placement.AUTO, or put "
                f"{type(stage).__name__} before {type(first).__name__}"
            )


def fetch_beside_processes(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Workers are processes and any thread may read the features, so threads of this process fetch concurrently."""
    if options.num_workers == 0 or options.in_threads:
        return pipe

    def fetch(stage: Datapipe) -> Datapipe:
        # After another main-process stage, the threads would run that stage too.
        if not isinstance(stage, Transform) or not isinstance(stage.datapipe, (InWorkers, InThreads)):
            return stage
        source = stage.datapipe
        inside = isinstance(source, InThreads)
        passes = inside and isinstance(stage, CopiesToDevice) and not moves(stage)
        reads = isinstance(stage, FetchStage) and decides_itself(stage) and stage.may_run_in_threads()
        if not passes and (not reads or slow_sources(stage, options.window)):
            return stage
        return InThreads(stage.changed(datapipe=source.datapipe) if inside else stage)

    return pipe.rewrite(fetch)
