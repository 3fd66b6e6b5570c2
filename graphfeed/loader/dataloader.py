"""The loader: it plans a pipeline, runs it epoch by epoch, stops and resumes."""

import os
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from importlib import import_module
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self

from torch.utils.data import IterDataPipe

from graphfeed.datapipes import Batch, Datapipe, Source, length
from graphfeed.datapipes.pipeline import Observer, find, traverse
from graphfeed.loader.executors.idle_executors import release_executor, take_executor
from graphfeed.loader.executors.process_executor import ProcessExecutor, available_cores
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.explain import describe_setting
from graphfeed.loader.fingerprint import Fingerprint, take_fingerprint
from graphfeed.loader.options import check_options, choose_seed
from graphfeed.loader.placement_rules import REQUESTS_PER_SERVER, check_servers
from graphfeed.loader.plan import make_plan
from graphfeed.loader.profile import EpochRecord, Profile, with_progress
from graphfeed.loader.progress import Progress, check_state, is_first_rank
from graphfeed.loader.rules import CopiesToDevice, LoaderOptions, sampled_on_device
from graphfeed.loader.run import RUN_OF, LeavesRun, RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.ops import check_device, set_max_uva_threads
from graphfeed.ops.arguments import check_count
from graphfeed.ops.process import ForkLock, load_entry_point, renew_in_child

OF_THIS_LOADER = ("_pool", "_release", "_running", "_starting", "profiled", "_measured_in")
"""The attributes that a copy does not get."""


class DataLoader(Generic[Batch]):
    """Runs a pipeline with workers. Iterating the loader yields the mini-batches of one epoch, in order.

    The mini-batches of an epoch are the same bits, in the same order, for every choice of workers. They depend on the
    pipeline, the seed, the epoch and their index alone. Each `iter()` starts the next epoch, even if the previous one
    was left early; several epochs may be running at once. If a stage fails, the exception is raised in the place of its
    mini-batch, with a note that names the stage, the mini-batch and the worker, and the epoch ends.

    Workers run all stages up to the first one that must run in the main process, such as a copy to a GPU; `explain()`
    shows which these are, and why. Features in CPU memory are fetched by worker threads. Worker processes fetch them if
    stages of your own follow, so that these run in workers too; otherwise threads of the main process fetch beside the
    processes. A stage can say where it runs by its `runs_in` (see `graphfeed.Placement`).

    Handing a mini-batch over to a worker thread costs 100 to 200 microseconds. If all stages together take less than
    that, `num_workers=0` is faster.

    Args:
        datapipe: The pipeline. It is not changed.
        num_workers: The number of workers. With 0, everything runs in the loop's own thread, except what the overlap
            options put on streams. None means one thread per core, or 0 if mini-batches are sampled on a GPU.
        persistent_workers: Whether workers are kept for the next epoch. Then processes without work also wait for ten
            seconds for the next loader of the same program that has as many workers and the same timeout.
        max_uva_threads: How many threads of a GPU read pinned memory at once, which leaves the rest of it for
            computing. Applies to the whole process once an epoch starts. Has no effect on the CPU.
        overlap_feature_fetch: Whether features that are fetched behind a copy to a GPU are prefetched, together with
            the stages before them, in a thread and on a CUDA stream of their own. None asks the stages
            (`FeatureFetcher.overlap_fetch`, True by default). Has no effect on the CPU, where workers run ahead anyway.
        overlap_graph_fetch: Whether sampling behind a copy to a GPU has its own thread and stream, ahead of fetching.
            None asks the stages (`NeighborSampler.overlap_fetch`, False by default).
        worker: "thread" or "process". Workers are threads by default, because the kernels release the GIL. Use
            processes for stages in Python that hold it, or that may crash: a process that dies is replaced, and its
            mini-batch is made again. They map large arrays that graphfeed made or loaded. Your own tensors are copied
            to shared memory when the first epoch starts, which takes the memory of both for as long as you keep yours.
            Stages of a notebook need the extra `notebook`.
        executor: Anything with the interface of `concurrent.futures.Executor`, such as Dask's `client.get_executor()`
            with workers on this machine, or on others that open the same files (see docs/many-machines.md). It runs the
            workers' side and is not shut down. Tasks and results are pickled, unless it is a ThreadPoolExecutor.
        seed: The seed of all randomness. None takes the seed of the ItemSampler, or else a random one (see
            `graphfeed.seed`).
        prefetch_factor: How many mini-batches are in flight per worker, and how many wait behind each thread that runs
            ahead. On a GPU they take up its memory. If threads fetch features beside worker processes, each of those
            threads adds one more; there are as many of them as workers or cores.
        timeout: How many seconds a worker may take for a mini-batch before it fails. A process that takes longer is
            killed; its start does not count. A thread can't be: it is left behind, and another one takes its place.
        observer: Is told when each stage begins and ends, and of each wait at a cut (`graphfeed.loader.Observer`).
        profile: Whether each epoch is measured; `loader.profiled` shows the latest one. See `profile()`.
        progress: Whether there is a bar for each epoch, with the share of the time that your step waits. Of several
            ranks, the first one shows it.
        servers: The addresses of sampling servers (`graphfeed.distributed.SamplingServer`), which take the place of
            workers and must have the same pipeline. Then `num_workers` says how many mini-batches are asked for at
            once, by default 4 for each server. A server that needs longer than `timeout` counts as lost, and another
            one makes its mini-batches. Without TLS, the address of another machine must be written as
            "grpc://host:port", where nobody else is on the network. Needs pyarrow (extra `serve`).
        token: The token of these servers; None takes the environment's GRAPHFEED_TOKEN.
        tls_root_certs: The certificates that the servers' are checked against, as PEM. None connects without TLS.

    Raises:
        TypeError: `datapipe` is not a pipeline, or `seed` is not a whole number.
        ValueError: An option is out of range, or there are workers although a copy to a GPU comes before the sampler.
        RuntimeError: When it runs: there is no such GPU.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> pipe = ItemSampler(ItemSet(4, names="seeds"), batch_size=2)
        >>> with DataLoader(pipe, num_workers=2, seed=0) as loader:
        ...     [minibatch.seeds.tolist() for minibatch in loader]
        [[0, 1], [2, 3]]
    """

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
        executor: Executor | None = None,
        seed: int | None = None,
        prefetch_factor: int = 2,
        timeout: float = 600.0,
        observer: Observer | None = None,
        profile: bool = False,
        progress: bool = False,
        servers: Sequence[str] = (),
        token: str | None = None,
        tls_root_certs: bytes | None = None,
    ) -> None:
        if isinstance(datapipe, IterDataPipe):
            converted = load_entry_point("converters", "as_stage")(datapipe)
            datapipe = datapipe if converted is None else converted  # a stage without a length has no truth value
        if not isinstance(datapipe, Datapipe):
            raise TypeError(
                f"datapipe must be a pipeline of stages, but is a {type(datapipe).__name__}; begin with an "
                "ItemSampler, and let a stage of your own derive from graphfeed.Datapipe"
            )
        check_options(num_workers, worker, executor, prefetch_factor, timeout)
        servers = check_servers(servers, num_workers, worker, executor)
        if servers and num_workers is None:
            num_workers = REQUESTS_PER_SERVER * len(servers)
        if num_workers is None:
            needs_none = worker == "thread" and executor is None and sampled_on_device(datapipe) is not None
            num_workers = 0 if needs_none else available_cores()
        in_threads = worker == "thread" if executor is None else isinstance(executor, ThreadPoolExecutor)
        overlap = (overlap_feature_fetch, overlap_graph_fetch)
        longest = timeout * (len(servers) + 1)  # one server after the other may be lost
        self._options = LoaderOptions(num_workers, in_threads, prefetch_factor, longest, *overlap, servers)
        self.plan = make_plan(datapipe, self._options)
        self._remote = (servers, token, tls_root_certs)
        self.num_workers = num_workers
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
        self._begin_without_workers()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the workers, the running epochs and what was measured, so that a copy starts its own."""
        return {name: value for name, value in vars(self).items() if name not in OF_THIS_LOADER}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take a state; workers start with the next epoch."""
        vars(self).update(state)
        self._begin_without_workers()

    def _begin_without_workers(self) -> None:
        self._process = os.getpid()
        self._pool: Executor | None = None
        self._running: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()
        self._starting = ForkLock()
        self.profiled: Profile | None = None
        """What the latest profile knows."""
        self._measured_in: Profile | None = None
        renew_in_child(self, DataLoader._forget_workers)

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        # Taken when it is first needed, because a typed graph counts its edges by a pass over them.
        return take_fingerprint(self.plan.written)

    @property
    def seed(self) -> int:
        """The seed of all randomness."""
        return self._seed

    def explain(self, *, rewritten: bool = True) -> str:
        """Return what runs where, and by which rule; `rewritten=False` shows the pipeline as it was written."""
        summary = None if self.profiled is None else self.profiled.summary
        return self.plan.explain(rewritten=rewritten, summary=summary)

    @contextmanager
    def profile(self, *, record_functions: bool = False) -> Iterator[Profile]:
        """Measure the epochs that begin within a block: `with loader.profile() as profile: train()`.

        `print(profile)` begins with a verdict: who waits for whom, for what share of the time, and what to try. Below
        it are the time of each stage, here and in workers, the waits, and how full the window is. Mini-batches are the
        same bits. It costs about 3 microseconds per stage and mini-batch.

        Args:
            record_functions: Whether stages of this process are also ranges of `torch.profiler`, at 17 microseconds
                each.

        Raises:
            RuntimeError: Another block measures this loader.
        """
        if self._measured_in is not None:
            raise RuntimeError("this loader is being measured in another block; leave that one first")
        profile = self.profiled = self._measured_in = Profile(record_functions=record_functions)
        try:
            yield profile
        finally:
            self._measured_in = None

    def __repr__(self) -> str:
        """Return the plan in one line: where each stage runs."""
        workers = f", num_workers={self.num_workers}" if self.num_workers else ""
        if self._executor is not None:
            workers += f", executor={type(self._executor).__name__}"
        elif self._remote[0]:
            workers += f", servers={list(self._remote[0])}"
        elif self.num_workers:
            workers += f", worker={self.worker!r}"
        return f"{type(self).__name__}({self.plan}{workers}, seed={self._seed})"

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch; a TypeError if the pipeline cannot tell."""
        return length(self.plan.written)

    def __iter__(self) -> Iterator[Batch]:
        """Start the next epoch."""
        if self._closed:
            raise RuntimeError("the loader is closed; make another")
        progress, self._next = self._next, Progress(self._next.epoch + 1, 0)
        self._latest = progress
        run = self._run(progress, self._seed)
        self._running.add(run)
        return run

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next `iter()` starts."""
        check_count("epoch", epoch, 0)
        self._next = Progress(epoch, 0)
        self._latest = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the latest epoch, in plain ints and strings that JSON can hold.

        It consists of the seed, the epoch, the number of mini-batches yielded, and a fingerprint of the pipeline. Where
        a sampler of torch's gives the order (`graphfeed.pyg`), there is a digest of that order too.
        """
        progress = self._latest or self._next
        if progress.done or self._is_complete(progress):
            progress = Progress(progress.epoch + 1, 0)
        position = {"seed": self._seed, "epoch": progress.epoch, "index": progress.index}
        order = {} if progress.order is None else {"order": progress.order}
        return {**position, "fingerprint": self._fingerprint, **order}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next `iter()` continue from a state, with any number and kind of workers.

        If every stage maps one mini-batch to one (all built-in stages do), resuming recomputes nothing; otherwise the
        earlier mini-batches are made again and dropped. A state without a fingerprint, as older versions made it, is
        accepted without a check. If a sampler of torch's gives another order than that of the state, the first
        mini-batch raises a ValueError.

        Raises:
            TypeError: `state_dict` is not a dict.
            ValueError: `state_dict` is not a state, has an epoch below 0 or an index that no epoch has, or comes from
                another pipeline, or from another seed than the one this loader was given.
        """
        check_state(state_dict, self._fingerprint, self._given_seed, self._total())
        self._seed = state_dict["seed"]
        self._next = Progress(state_dict["epoch"], state_dict["index"], order=state_dict.get("order"))
        self._latest = None

    def as_node(self) -> Any:
        """Return the loader as a `torchdata.nodes.BaseNode`, for torchdata's `Loader` and to mix it with others."""
        return import_module("graphfeed.loader.node").LoaderNode(self)

    def close(self) -> None:
        """End all running epochs and the workers; idle processes let go of the pipeline and leave within 10 seconds."""
        self._closed = True
        for run in list(self._running):
            # If another thread is inside of it right now, it ends by itself, because its workers end.
            with suppress(ValueError):
                run.close()
        if self._pool is not None and self._release.detach():
            release_executor(self._pool, wait=True)
        self._pool = None

    def __enter__(self) -> Self:
        """Return the loader; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()

    def _total(self) -> int | None:
        try:
            return len(self)
        except TypeError:
            return None

    def _is_complete(self, progress: Progress) -> bool:
        total = self._total() if progress.index > 0 else None
        return total is not None and progress.index >= total

    def _take_executor(self) -> Executor:
        if self._executor is not None:
            if self._process != os.getpid():
                raise RuntimeError(
                    "the executor that this loader was given belongs to the process that this one was forked from; "
                    "make an executor and a loader here"
                )
            return self._executor
        if not self.persistent_workers:
            return self._start_workers()
        # Two threads may start an epoch at the same time.
        with self._starting:
            if self._pool is None:
                self._pool = self._start_workers()
                self._release = weakref.finalize(self, release_executor, self._pool, wait=False)
            return self._pool

    def _start_workers(self) -> Executor:
        if self._remote[0]:
            remote_executor = load_entry_point("executors", "servers")
            executor: Executor = remote_executor(*self._remote, self.num_workers, self.timeout)
            return executor
        if self.worker == "process":
            make = take_executor if self.persistent_workers else ProcessExecutor
            return make(self.num_workers, timeout=self.timeout)
        return ThreadExecutor(self.num_workers)

    def _forget_workers(self) -> None:
        """Let a forked process start workers of its own; what the parent's threads do is lost here."""
        self._pool = None
        self._running = weakref.WeakSet()

    def _run(self, progress: Progress, seed: int) -> Generator[Any, None, None]:
        set_max_uva_threads(self.max_uva_threads)
        pipe = self.plan.running
        for stage in find(pipe, CopiesToDevice):
            check_device("copy_to", stage.device)  # type: ignore[attr-defined]
        executor = self._take_executor() if find(pipe, InWorkers) else None
        run = RunContext(executor, *self._begin_record(executor))
        by_index = all(stage.one_to_one or isinstance(stage, Source) for stage in traverse(pipe))
        skipped = 0 if by_index else progress.index
        pipe = pipe.with_seed(seed, progress.epoch, progress.index - skipped)
        progress.note_order(pipe)
        RUN_OF.update(dict.fromkeys(traverse(pipe), run))
        for stage in find(pipe, LeavesRun):
            run.when_cancelled(stage.leave_run)  # type: ignore[attr-defined]
        try:
            with closing(run.drive(pipe)) as batches:
                taken: Iterator[Any] = islice(batches, skipped, None)
                if run.record is not None:
                    taken = run.record.watch_reader(taken)
                if self.progress and is_first_rank(pipe):
                    taken = with_progress(taken, progress.epoch, progress.index, self._total())
                for minibatch in taken:
                    progress.index += 1
                    yield minibatch
            progress.done = True
        finally:
            if run.record is not None:
                run.record.finish(self.plan.running, executor)
            run.cancel()
            if executor is not None and executor is not self._executor and executor is not self._pool:
                executor.shutdown(wait=True, cancel_futures=True)

    def _begin_record(self, executor: Executor | None) -> tuple[Observer | None, EpochRecord | None]:
        """Return the observer of an epoch, and what it is written down in if somebody measures."""
        if self._measures_all and self._measured_in is None:
            self.profiled = Profile()
        profile = self.profiled if self._measures_all else self._measured_in
        if profile is None:
            return self.observer, None
        worker = "executor" if self._executor is not None else "server" if self._remote[0] else self.worker
        setting = describe_setting(self.plan.running, self.num_workers, worker)
        record = profile.begin(setting, self.plan.running, executor, self.observer)
        return record.recorder, record
