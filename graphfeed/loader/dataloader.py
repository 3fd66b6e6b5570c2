"""The loader: plans a pipeline, runs it epoch by epoch, stops and resumes."""

import threading
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import Any, Generic, Self

from graphfeed.datapipes import Batch, Datapipe, length
from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.fingerprint import Fingerprint, take_fingerprint
from graphfeed.loader.options import (
    EvenItems,
    check_options,
    check_reading,
    choose_seed,
    usual_workers,
    with_other_forms,
)
from graphfeed.loader.plan import RULES, Rule, make_plan
from graphfeed.loader.profile import Profile
from graphfeed.loader.progress import (
    Progress,
    check_reader,
    check_state,
    count_ranks,
    count_rounds,
    with_progress,
)
from graphfeed.loader.rules import LoaderOptions, MemoryBudget
from graphfeed.loader.run import RUN_LISTENERS
from graphfeed.loader.runner import Runner, Servers, Workers
from graphfeed.ops.arguments import brief, check_count, checked, kind_of
from graphfeed.ops.process import renew_in_child
from graphfeed.storage.memory import Cache

OF_THIS_LOADER = ("_workers", "_running", "profiled", "_measured_in", "_even_items")
"""Attributes that are not copied or pickled."""


class DataLoader(Generic[Batch]):
    """Runs a pipeline with workers. Iterating the loader yields the mini-batches of one epoch, in order.

    Mini-batches are bit-identical, and in the same order, for any choice of workers. They depend only on the pipeline,
    the seed, the epoch and their index. Each `iter()` starts the next epoch, even if the previous one was left early;
    several epochs may run at once. If a stage fails, the exception is raised instead of its mini-batch, with a note
    that names the stage, the mini-batch and the worker, and the epoch ends.

    Workers run all stages up to the first one that must run in the main process, such as a copy to a GPU. `explain()`
    shows these stages and the reason; a stage may choose where it runs (`graphfeed.Placement`). Features in CPU memory
    are fetched by worker threads. Worker processes fetch them only if user-defined stages follow; otherwise threads of
    the main process do. Passing a mini-batch to a worker thread costs 100 to 200 microseconds: if all stages together
    take less, `num_workers=0` is faster.

    The arguments below are sorted by use: the everyday ones, workers, reading from disk, GPUs, measuring, and rules.

    Args:
        datapipe: The pipeline. It is not changed.
        num_workers: Number of workers. With 0, everything runs in the thread of the loop, except the stages that the
            overlap options put on streams. None means one thread per core, or 0 if mini-batches are sampled on a GPU.
            The output of `profile()` suggests a better number if there is one.
        seed: Random seed of all draws. None uses that of the ItemSampler, or else a random one (`graphfeed.seed`).
        progress: Whether the first rank shows a bar for each epoch, with the share of the time that your step waits.
        worker: "thread" or "process". Workers are threads by default, because the kernels release the GIL. Use
            processes for stages in Python that hold it, or that may crash: a process that dies is replaced, and its
            mini-batch is computed again. They map large arrays that graphfeed created or loaded. Your own tensors are
            copied to shared memory when the first epoch starts, which takes twice the memory while you keep yours.
            Stages of a notebook need the extra `notebook`.
        prefetch_factor: Number of mini-batches in flight per worker, and of those that each prefetch thread buffers,
            on a GPU in its memory. Each thread that fetches for worker processes adds one more.
        timeout: Seconds that a worker may take for a mini-batch before it fails. A process that takes longer is
            killed; its start does not count. A thread can't be killed: it is abandoned, and another one replaces it.
        persistent_workers: Whether workers are kept for the next epoch.
        executor: Anything with the interface of `concurrent.futures.Executor`, such as Dask's `client.get_executor()`
            with workers on this machine, or on others that open the same files. It runs the workers' side and is not
            shut down. Tasks and results are pickled, unless it is a ThreadPoolExecutor. Alternatively
            `SamplingServers(addresses, token=...)`, which replaces workers by sampling servers and for which
            `servers=addresses` is short: `num_workers` is then the number of concurrent requests, by default 4 per
            server.
        window: Number of mini-batches whose feature rows on disk are read together, in the order of the file, while
            earlier ones are used. None fills the memory limit if the features are larger than that; 0 reads the rows
            of one mini-batch at a time. Not used if mini-batches are sampled on a GPU. Rows of other ranks that may be
            updated are requested in windows only if a number is given (`PartitionedFeature`). The window also bounds
            how many mini-batches are sampled together: from a partitioned graph and, without workers, small ones from
            a graph in memory. The latter share arrays of up to 10 MB, which one of them keeps alive; 0 avoids this.
        memory_limit: Bytes that reading ahead may use, including the mini-batches that wait for their rows: a number
            or a string such as "4G". None means a third of the available memory. The LOCAL_WORLD_SIZE ranks of a
            machine share it.
        overlap_feature_fetch: Whether features that are fetched after a copy to a GPU are prefetched, with the stages
            before them, in a separate thread and CUDA stream. On the CPU, workers run ahead anyway. None uses the
            attribute of the stages (`FeatureFetcher.overlap_fetch`, True by default).
        overlap_graph_fetch: Whether sampling after a copy to a GPU has its own thread and stream, ahead of fetching.
            None uses the attribute of the stages (`NeighborSampler.overlap_fetch`, False by default).
        max_uva_threads: Number of GPU threads that read pinned memory at once, which leaves the others for
            computation. Applies to the whole process once an epoch starts.
        profile: Whether each epoch is measured; `loader.profiled` shows the latest one. See `profile()`.
        observer: Is called when each stage begins and ends, and at each wait at a cut (`graphfeed.loader.Observer`).
        rules: The rules that turn the pipeline into the plan, in order: `graphfeed.loader.RULES`, or these and your
            own rules. Each takes a pipeline and the options, and returns a pipeline.

    Raises:
        ValueError: An option is out of range, or there are workers although a copy to a GPU comes before the sampler.
        RuntimeError: The GPU does not exist. Raised when an epoch runs.

    Example:
        >>> import graphfeed as gf
        >>> with gf.DataLoader(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2), num_workers=2) as loader:
        ...     [minibatch.seeds.tolist() for minibatch in loader]
        [[0, 1], [2, 3]]
    """

    how_to_share: str = (
        "begin the pipeline with a DistributedItemSampler, which divides them among the ranks; "
        "loader.explain(rewritten=False) prints the pipeline of gf.loaders"
    )
    """Advice of the warning to ranks that all build the mini-batches of all items."""

    @with_other_forms
    @checked
    def __init__(
        self,
        datapipe: Datapipe[Batch],
        num_workers: int | None = None,
        persistent_workers: bool = True,
        max_uva_threads: int = 10240,
        *,
        overlap_feature_fetch: bool | None = None,
        overlap_graph_fetch: bool | None = None,
        worker: str = "thread",
        executor: Executor | Servers | None = None,
        seed: int | None = None,
        prefetch_factor: int = 2,
        timeout: float = 600.0,
        window: int | None = None,
        memory_limit: int | str | None = None,
        observer: Observer | None = None,
        profile: bool = False,
        progress: bool = False,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        check_options(num_workers, worker, executor, prefetch_factor, timeout)
        self.num_workers = usual_workers(datapipe, worker, executor) if num_workers is None else num_workers
        in_threads = worker == "thread" if executor is None else isinstance(executor, (ThreadPoolExecutor, Servers))
        overlap = (overlap_feature_fetch, overlap_graph_fetch)
        addresses, longest = tuple[str, ...](), timeout
        if isinstance(executor, Servers):
            addresses, longest = executor.addresses, executor.longest_wait(timeout)
        window, limit = check_reading(window, memory_limit)
        memory = MemoryBudget(limit)
        self._options = LoaderOptions(
            self.num_workers, in_threads, prefetch_factor, longest, *overlap, addresses, window, memory
        )
        self.plan = make_plan(datapipe, self._options, rules)
        self.worker = worker
        self.timeout = timeout
        self.observer = observer
        self.progress = progress
        self._measures_all = profile
        self.persistent_workers = persistent_workers
        check_count("max_uva_threads", max_uva_threads, 1)
        self.max_uva_threads = max_uva_threads
        self._given_seed = seed
        self._seed = choose_seed(datapipe, seed)
        self._executor = executor
        self._next = Progress(0, 0)
        self._latest: Progress | None = None
        self._closed = False
        self._open_without_workers()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without workers, running epochs and measurements, so that a copy starts its own."""
        return {name: value for name, value in vars(self).items() if name not in OF_THIS_LOADER}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a state. Workers start with the next epoch."""
        vars(self).update(state)
        self._open_without_workers()

    def _open_without_workers(self) -> None:
        self._workers = Workers(self._executor, self.worker, self.num_workers, self.timeout, self.persistent_workers)
        self.profiled: Profile | None = None  # the latest profile
        self._measured_in: Profile | None = None
        self._even_items = EvenItems(self.plan.written, self.how_to_share)
        self._forget_epochs()
        renew_in_child(self, DataLoader._forget_epochs)

    def _runner(self) -> Runner:
        return Runner(self.plan, self._workers, self.observer, self.max_uva_threads)

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        # Computed at the first use, because a typed graph counts its edges in a pass over them.
        return take_fingerprint(self.plan.written)

    @property
    def seed(self) -> int:
        """Random seed of all draws."""
        return self._seed

    @checked
    def explain(self, *, rewritten: bool = True) -> str:
        """Return where each stage runs, and by which rule; `rewritten=False` shows the pipeline as written."""
        summary = None if self.profiled is None else self.profiled.summary
        memories = self._workers.memories.values()
        return self.plan.explain(rewritten=rewritten, summary=summary, memories=memories)

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the caches of the pipeline and the rows that were read ahead, each with the names of its users."""
        return self._runner().caches

    @contextmanager
    @checked
    def profile(self, *, record_functions: bool = False) -> Iterator[Profile]:
        """Measure the epochs that begin within a block: `with loader.profile() as profile: train()`.

        `print(profile)` begins with a verdict: the bottleneck, the share of the time spent waiting, and what to try.
        Below it are the time of each stage, here and in workers, the waits, and how full the window is. Mini-batches
        don't change. It costs about 3 microseconds per stage and mini-batch.

        Args:
            record_functions: Whether stages of this process are also ranges of `torch.profiler`, at a cost of 17
                microseconds each.

        Raises:
            RuntimeError: Another block measures this loader.
        """
        if self._measured_in is not None:
            raise RuntimeError("this loader is already being measured in another block; leave that block first")
        profile = self.profiled = self._measured_in = Profile(record_functions=record_functions)
        try:
            yield profile
        finally:
            self._measured_in = None

    def __repr__(self) -> str:
        workers = f", num_workers={self.num_workers}" if self.num_workers else ""
        if isinstance(self._executor, Servers):
            workers += f", servers={list(self._executor.addresses)}"
        elif self._executor is not None:
            workers += f", executor={type(self._executor).__name__}"
        elif self.num_workers:
            workers += f", worker={self.worker!r}"
        return f"{type(self).__name__}({self.plan}{workers}, seed={self._seed})"

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch; raise a TypeError if the pipeline has no length."""
        return length(self.plan.written)

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(
            f"{kind_of(self)} of graphfeed is iterated, and has no item {brief(index)}; to have workers of "
            "torch's DataLoader or torchdata's StatefulDataLoader run a pipeline, pass them the pipeline itself, with "
            "batch_size=None; in a graph of torchdata's nodes, use loader.as_node()"
        )

    def __iter__(self) -> Iterator[Batch]:
        check_reader(self._closed)
        latest = self._latest
        progress, self._next = self._next, Progress(self._next.epoch + 1, 0)
        if latest is not None:
            progress.follow(latest)
        self._latest = progress
        progress.thread = threading.get_ident()
        run = self._run(progress, self._seed)
        self._running[run] = progress
        return run

    @checked
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next `iter()` starts."""
        check_count("epoch", epoch, 0)
        self._next = Progress(epoch, 0)
        self._latest = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the latest epoch as integers and strings that JSON can represent.

        It consists of the seed, the epoch, the number of yielded mini-batches, and a fingerprint of the pipeline; the
        number of ranks, if they share the mini-batches; and a digest of the order, if a PyTorch sampler determines it.
        If the pipeline reads from torchdata's nodes, their states are added, as the nodes represent them.
        """
        progress = self._latest or self._next
        total = count_rounds(self.plan.written) if progress.index > 0 else None
        is_over = progress.done or (total is not None and progress.index >= total)
        sources = progress.node_states(is_over)
        if is_over:
            progress = Progress(progress.epoch + 1, 0)
        position = {"seed": self._seed, "epoch": progress.epoch, "index": progress.index}
        if ranks := count_ranks(self.plan.written):
            position["ranks"] = ranks
        others = {name: value for name, value in (("order", progress.order), ("sources", sources)) if value is not None}
        return {**position, "fingerprint": self._fingerprint, **others}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a state at the next `iter()`, with any number and kind of workers.

        The number of ranks may change if the new one divides the number of mini-batches that all ranks together had
        yielded in the epoch; otherwise some would be lost or repeated.

        If every stage maps one mini-batch to one (all built-in stages do), resuming recomputes nothing; otherwise the
        earlier mini-batches are computed again and dropped. A state of an older version, without a fingerprint, is
        accepted without a check. If the order of a PyTorch sampler differs from that of the state, the first mini-batch
        raises a ValueError.

        Raises:
            ValueError: `state_dict` is not a state, has a negative epoch or an index outside the epoch, or comes from
                another pipeline, from a seed other than the loader's `seed`, or from a number of ranks that this
                loader's ranks can't continue from.
        """
        index = check_state(state_dict, self._fingerprint, self._given_seed, self.plan.written)
        self._seed = state_dict["seed"]
        self._next = Progress(state_dict["epoch"], index, order=state_dict.get("order"))
        self._latest = None
        self._next.sources, self._next.restores = state_dict.get("sources"), True

    def as_node(self) -> Any:
        """Return the loader as a `torchdata.nodes.BaseNode`, for torchdata's `Loader` and for mixing it with others.

        The first reset and each one without a state start the loader's next epoch.
        """
        return import_module("graphfeed.loader.node").LoaderNode(self)

    def close(self) -> None:
        """End all running epochs and the workers.

        An epoch that another thread is iterating raises a RuntimeError there.
        """
        self._closed = True
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        for run, progress in list(self._running.items()):
            if progress.thread not in others:
                run.close()
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _forget_epochs(self) -> None:
        # A forked process does not have the threads of its parent's epochs.
        self._running: weakref.WeakKeyDictionary[Generator[Any, None, None], Progress] = weakref.WeakKeyDictionary()

    def _run(self, progress: Progress, seed: int) -> Generator[Any, None, None]:
        """Yield the mini-batches of an epoch starting at a position, and advance that position."""
        self._even_items.look(1.0)
        if self._measures_all and self._measured_in is None:
            self.profiled = Profile()
        profile = self.profiled if self._measures_all else self._measured_in
        for listener in list(RUN_LISTENERS):
            listener.begin_run(self.plan.written, seed, progress)
        try:
            with closing(self._runner().run(progress, seed, profile)) as minibatches:
                taken: Iterator[Any] = minibatches
                if self.progress:
                    taken = with_progress(taken, progress, self.plan.written)
                for minibatch in taken:
                    progress.advance()
                    progress.thread = threading.get_ident()
                    yield minibatch
                    check_reader(self._closed)
        except Exception:
            check_reader(self._closed)
            if threading.main_thread().is_alive() or threading.current_thread() is not threading.main_thread():
                raise
            return  # the interpreter is shutting down, and the executors have ended
        progress.done = True
