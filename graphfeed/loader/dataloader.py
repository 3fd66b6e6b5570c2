"""The loader: plans a pipeline, runs it epoch by epoch, stops and resumes."""

import threading
import weakref
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from types import TracebackType
from typing import Any, Self

from graphfeed.datapipes.datapipe import Datapipe, Ranked, Source, length
from graphfeed.datapipes.pipeline.observer import Observer
from graphfeed.datapipes.pipeline.traverse import find, traverse
from graphfeed.loader.executors.process_executor import ProcessExecutor, available_cores
from graphfeed.loader.fingerprint import Fingerprint, find_difference, take_fingerprint
from graphfeed.loader.plan import make_plan
from graphfeed.loader.rules import CopiesToDevice, LoaderOptions, sampled_on_device
from graphfeed.loader.run import RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.ops import set_max_uva_threads
from graphfeed.ops.backend import check_device
from graphfeed.ops.checks import check_count
from graphfeed.ops.pinned import check_thread_count
from graphfeed.ops.random import draw_unkeyed


@dataclass
class Progress:
    """How far an epoch has come."""

    epoch: int
    index: int
    """Mini-batches given out."""
    done: bool = False


class DataLoader:
    """Runs a pipeline with workers; iterating it gives one epoch's mini-batches, in order.

    The mini-batches of an epoch are the same bits, in the same order, for every choice of workers; they depend on the
    pipeline, the seed, the epoch and their index alone. Each `iter()` begins the next epoch, also when the one before
    was left early; several may be alive at once. A failure in a stage comes out in its mini-batch's place, with a note
    of the stage, the mini-batch and the worker, and ends the epoch.

    Handing a mini-batch over to a worker thread costs 100 to 200 microseconds. Where all stages together take less
    than that, `num_workers=0` is faster.

    Args:
        datapipe: The pipeline; it is not changed.
        num_workers: 0 runs everything in the loop's own thread, but for what the last two options put on streams; None
            takes as many threads as there are cores, or 0 where mini-batches are sampled on a GPU.
        persistent_workers: Whether workers outlive the epoch.
        max_uva_threads: How many threads of a GPU read pinned memory at once, so that the rest of it computes; holds
            for the process from the epoch's beginning on. No effect on the CPU.
        overlap_feature_fetch: Whether features that are fetched behind a copy to a GPU, and what comes before them, are
            made ahead of the caller's step, in a thread and on a CUDA stream of their own; None asks the stages
            (`FeatureFetcher.overlap_fetch`, True). No effect on the CPU, where workers run ahead anyway.
        overlap_graph_fetch: Whether sampling behind a copy to a GPU has a thread and a stream of its own, ahead of
            fetching; None asks the stages (`NeighborSampler.overlap_fetch`, False).
        worker: "thread", or "process" for stages in Python that keep the interpreter busy, or that crash: processes are
            replaced when they are killed, and what they were doing is done again. Graphs and features then move to
            shared memory, at the first epoch.
        executor: Anything with the interface of `concurrent.futures.Executor`, to run the workers' side, as Dask's
            `client.get_executor()` with workers of this machine; it is not shut down. What is sent to it pickles,
            unless it is a ThreadPoolExecutor.
        seed: Of all randomness; None takes the ItemSampler's, or else a random one (`seed`).
        prefetch_factor: How many mini-batches are in flight for each worker, and wait ready behind each thread that
            runs ahead; on a GPU they take its memory. Where threads fetch features beside worker processes, one more is
            in flight for each of those threads, of which there are as many as workers or cores.
        timeout: Seconds that a mini-batch may take in a worker before it fails; a process that is at it is then killed.
        observer: Sees each stage begin and end, and each wait at a cut (`graphfeed.loader.Observer`).

    Raises:
        TypeError: `datapipe` is no pipeline.
        ValueError: An option out of range; workers, where a copy to a GPU comes before the sampler. When it runs:
        RuntimeError: There is no such GPU.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> pipe = ItemSampler(ItemSet(4, names="seeds"), batch_size=2)
        >>> with DataLoader(pipe, num_workers=2, seed=0) as loader:
        ...     [minibatch.seeds.tolist() for minibatch in loader]
        [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        datapipe: Datapipe,
        num_workers: int | None = None,
        persistent_workers: bool = True,
        max_uva_threads: int = 10240,
        *,
        overlap_feature_fetch: bool | None = None,
        overlap_graph_fetch: bool | None = None,
        worker: str = "thread",
        executor: Executor | None = None,
        seed: int | None = None,
        prefetch_factor: int = 2,
        timeout: float = 600.0,
        observer: Observer | None = None,
    ) -> None:
        if not isinstance(datapipe, Datapipe):
            raise TypeError(
                f"datapipe must be a pipeline of stages, but is a {type(datapipe).__name__}; begin with an "
                "ItemSampler, and let a stage of your own derive from graphfeed.Datapipe"
            )
        check_options(num_workers, worker, executor, prefetch_factor, timeout)
        if num_workers is None:
            needs_none = worker == "thread" and executor is None and sampled_on_device(datapipe) is not None
            num_workers = 0 if needs_none else available_cores()
        in_threads = worker == "thread" if executor is None else isinstance(executor, ThreadPoolExecutor)
        overlap = (overlap_feature_fetch, overlap_graph_fetch)
        self.plan = make_plan(datapipe, LoaderOptions(num_workers, in_threads, prefetch_factor, timeout, *overlap))
        self.num_workers = num_workers
        self.worker = worker
        self.timeout = timeout
        self.observer = observer
        self.persistent_workers = persistent_workers
        self.max_uva_threads = check_thread_count(max_uva_threads)
        self._given_seed = seed
        self._seed = choose_seed(datapipe, seed)
        self._executor = executor
        self._pool: ThreadPoolExecutor | ProcessExecutor | None = None
        self._starting = threading.Lock()
        self._next = Progress(0, 0)
        self._latest: Progress | None = None
        self._running: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()
        self._closed = False

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        # Not taken before it is asked for: a typed graph counts its edges in a pass over them.
        return take_fingerprint(self.plan.written)

    @property
    def seed(self) -> int:
        """What all randomness comes from."""
        return self._seed

    def explain(self, *, rewritten: bool = True) -> str:
        """Return what runs where, and which rule put it there; `rewritten=False` shows the pipeline as written."""
        return self.plan.explain(rewritten=rewritten)

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch; a TypeError where the pipeline can't tell."""
        return length(self.plan.written)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch."""
        if self._closed:
            raise RuntimeError("the loader is closed; make another")
        progress, self._next = self._next, Progress(self._next.epoch + 1, 0)
        self._latest = progress
        run = self._run(progress, self._seed)
        self._running.add(run)
        return run

    def set_epoch(self, epoch: int) -> None:
        """Set which epoch the next `iter()` begins, from its start."""
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, but is {epoch}")
        self._next = Progress(epoch, 0)
        self._latest = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the epoch begun last stands, as plain ints and strings that JSON can hold.

        These are the seed, the epoch, how many mini-batches it has given out, and the fingerprint of the pipeline.
        """
        progress = self._latest or self._next
        if progress.done or self._is_complete(progress):
            progress = Progress(progress.epoch + 1, 0)
        place = {"seed": self._seed, "epoch": progress.epoch, "index": progress.index}
        return {**place, "fingerprint": self._fingerprint}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next `iter()` go on where a state was taken, with any number and kind of workers.

        If every stage maps one mini-batch to one (all built-in stages do), resuming recomputes nothing; otherwise the
        earlier mini-batches are made again and dropped. A state without a fingerprint, as older versions made it, is
        taken as one of this pipeline.

        Raises:
            ValueError: `state_dict` is no such state, or comes from another pipeline or another seed than this loader
                was given.
        """
        place = {name: value for name, value in state_dict.items() if name != "fingerprint"}
        if set(place) != {"seed", "epoch", "index"} or not all(type(value) is int for value in place.values()):
            raise ValueError(f"state_dict must hold the ints seed, epoch and index, but is {state_dict}")
        difference = find_difference(state_dict.get("fingerprint", self._fingerprint), self._fingerprint)
        if difference is not None:
            raise ValueError(
                f"state_dict comes from another pipeline: {difference}; build the pipeline as it was, or remove "
                "'fingerprint' from the state to go on all the same"
            )
        if self._given_seed is not None and state_dict["seed"] != self._given_seed:
            raise ValueError(
                f"state_dict is of seed {state_dict['seed']}, but this loader was given seed {self._given_seed}; "
                "leave its seed out, or give it the same"
            )
        self._seed = state_dict["seed"]
        self._next = Progress(state_dict["epoch"], state_dict["index"])
        self._latest = None

    def as_node(self) -> Any:
        """Return the loader as a `torchdata.nodes.BaseNode`, to compose with other nodes."""
        return import_module("graphfeed.loader.node").LoaderNode(self)

    def close(self) -> None:
        """End all epochs that are running, and the workers that the loader started."""
        self._closed = True
        for run in list(self._running):
            # One that another thread is inside of right now ends by itself: its workers go.
            with suppress(ValueError):
                run.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        """Return the loader, which closes at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()

    def _is_complete(self, progress: Progress) -> bool:
        try:
            return progress.index > 0 and progress.index >= len(self)
        except TypeError:
            return False

    def _take_executor(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if not self.persistent_workers:
            return self._start_workers()
        # Two threads may begin an epoch each.
        with self._starting:
            if self._pool is None:
                self._pool = self._start_workers()
                weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
            return self._pool

    def _start_workers(self) -> ThreadPoolExecutor | ProcessExecutor:
        if self.worker == "process":
            return ProcessExecutor(self.num_workers, timeout=self.timeout)
        return ThreadPoolExecutor(self.num_workers, thread_name_prefix="graphfeed")

    def _run(self, progress: Progress, seed: int) -> Generator[Any, None, None]:
        set_max_uva_threads(self.max_uva_threads)
        pipe = self.plan.running
        for stage in find(pipe, CopiesToDevice):
            check_device("copy_to", stage.device)  # type: ignore[attr-defined]
        executor = self._take_executor() if find(pipe, InWorkers) else None
        run = RunContext(executor, self.observer)
        by_index = all(stage.one_to_one or isinstance(stage, Source) for stage in traverse(pipe))
        skipped = 0 if by_index else progress.index
        pipe = pipe.with_seed(seed, progress.epoch, progress.index - skipped)
        try:
            with closing(run.drive(pipe)) as batches:
                for minibatch in islice(batches, skipped, None):
                    progress.index += 1
                    yield minibatch
            progress.done = True
        finally:
            run.cancel()
            if executor is not None and executor is not self._executor and executor is not self._pool:
                executor.shutdown(wait=True, cancel_futures=True)


def check_options(
    num_workers: int | None,
    worker: str,
    executor: Executor | None,
    prefetch_factor: int,
    timeout: float,
) -> None:
    """Raise where an option is out of range or two contradict each other."""
    if num_workers is not None:
        check_count("num_workers", num_workers, 0)
    if worker not in ("thread", "process"):
        raise ValueError(f"worker must be 'thread' or 'process', but is {worker!r}")
    if executor is not None and worker != "thread":
        raise ValueError(f"worker={worker!r} and an executor were given; leave one of them out")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor must have submit(), as concurrent.futures.Executor, but is {executor!r}")
    if executor is not None and num_workers == 0:
        raise ValueError("num_workers=0 runs everything inline, but an executor was given; leave one of them out")
    check_count("prefetch_factor", prefetch_factor, 1)
    if timeout <= 0:
        raise ValueError(f"timeout must be more than 0 seconds, but is {timeout}")


def choose_seed(pipe: Datapipe, seed: int | None) -> int:
    """Return the seed given, or that of a source, or a random one that ranks agree on (`graphfeed.seed`)."""
    for source in find(pipe, Source):
        if seed is None:
            seed = getattr(source, "seed", None)
    if seed is not None:
        return int(seed)
    drawn = draw_unkeyed()
    for source in find(pipe, Ranked):
        drawn = source.agree(drawn)  # type: ignore[attr-defined]
    return drawn
