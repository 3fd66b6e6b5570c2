"""The measurements of one epoch of a loader."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple

from graphfeed.datapipes import Datapipe, MiniBatch
from graphfeed.datapipes.pipeline import traverse
from graphfeed.loader.profile.recorder import UNKNOWN, Measured, Recorder, Span
from graphfeed.ops import Key
from graphfeed.storage.features import RowMemory
from graphfeed.storage.memory import Cache, count_bytes

Submit = Callable[..., Future[Any]]

SIZES_TAKEN_OF = 16
"""The bytes of one in this many mini-batches are counted."""


class StageRow(NamedTuple):
    """A stage of the plan."""

    position: int
    name: str
    where: str
    """"main", "prefetch", "thread", "worker" or "server", as in `explain()`."""


@dataclass(frozen=True)
class LoaderConfig:
    """Configuration of a loader: the stages and where they run, workers and cores."""

    stages: tuple[StageRow, ...]
    num_workers: int
    worker: str
    """"thread", "process", "server" or "executor"."""
    most_in_flight: int
    """0 without workers."""
    num_cores: int
    """Number of cores that the loader's processes may use at once."""
    quota: float | None = None
    """Limit of a control group in cores, if it is lower than the number of cores."""


class TaskTiming(NamedTuple):
    """Times when the task of a mini-batch was submitted, and when its result arrived."""

    epoch: int
    minibatch: int
    submitted: int
    arrived: int


class Pending(NamedTuple):
    """Number of mini-batches in flight when the reader requested one, and how many of them were done."""

    time: int
    in_flight: int
    ready: int


class LoopWait(NamedTuple):
    """Times when the loop requested a mini-batch, and when it received it."""

    asked: int
    given: int
    epoch: int = UNKNOWN
    minibatch: int = UNKNOWN


@dataclass(frozen=True)
class Counters:
    """Running counts; an epoch's counts are the difference of two of them."""

    caches: dict[str, tuple[int, int]]
    """Hits and misses of each cache of this process, by the names of its features."""
    num_replaced: int
    """Number of workers that died or were killed."""
    bytes_read: int
    """Bytes that this process and its workers read from disks."""
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Nanoseconds for which each of their threads ran, and waited for a core, by thread id."""

    @classmethod
    def now(cls, found: Iterable[tuple[str, Cache]], executor: Any) -> "Counters":
        caches = {names: (cache.hits, cache.misses) for names, cache in found}
        pids = [os.getpid(), *(executor.pids() if hasattr(executor, "pids") else ())]
        return cls(caches, getattr(executor, "num_replaced", 0), sum(map(bytes_read, pids)), thread_times(pids))

    def since(self, before: "Counters") -> "Counters":
        """Return the counts since `before`."""

        def less(now: dict[Any, tuple[int, int]], then: dict[Any, tuple[int, int]]) -> dict[Any, tuple[int, int]]:
            return {
                key: (one - then.get(key, (0, 0))[0], two - then.get(key, (0, 0))[1]) for key, (one, two) in now.items()
            }

        num_bytes = max(0, self.bytes_read - before.bytes_read)  # processes may have ended
        caches, threads = less(self.caches, before.caches), less(self.threads, before.threads)
        return Counters(caches, self.num_replaced - before.num_replaced, num_bytes, threads)


@dataclass
class EpochRecord:
    """The measurements of one epoch, as plain data: a profile keeps no graph, feature or worker alive."""

    setting: LoaderConfig
    recorder: Recorder
    before: Counters
    """Counts before the epoch."""
    loop_thread: int = field(default_factory=threading.get_ident)
    unix_time: int = field(default_factory=lambda: time_ns() - perf_counter_ns())
    """Offset from the recorded times to nanoseconds since 1970."""
    trips: list[TaskTiming] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    handovers: list[LoopWait] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of some mini-batches."""
    rows: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Rows and bytes of each feature in these mini-batches."""
    after: Counters = field(init=False)
    ended: int = 0
    """Time when the loop left the epoch, or last requested a mini-batch."""

    def __post_init__(self) -> None:
        self.after = self.before

    def finish(self, caches: Iterable[tuple[str, Cache]], executor: Any) -> None:
        """Record the counts at the end of the epoch."""
        self.after = Counters.now(caches, executor)

    @property
    def spans(self) -> Sequence[Span]:
        """Calls of stages, and waits."""
        return self.recorder.spans

    def unwrap(self, result: Any) -> Any:
        """Store the spans that a worker returned with a mini-batch, and return the mini-batch."""
        if not isinstance(result, Measured):
            return result
        self.recorder.spans.extend(result.spans)
        return result.minibatch

    def watch_trips(self, submit: Submit) -> Submit:
        """Return a function that submits tasks, and records when their results arrive."""

        def watched(task: Any, *callbacks: "Callable[[Future[Any]], object]") -> "Future[Any]":
            key = Key(*task) if isinstance(task, tuple) else getattr(task, "key", None)
            epoch, index = (UNKNOWN, UNKNOWN) if key is None else (key.epoch, key.index)
            submitted = perf_counter_ns()

            def note(_: "Future[Any]") -> None:
                self.trips.append(TaskTiming(epoch, index, submitted, perf_counter_ns()))

            return submit(task, note, *callbacks)

        return watched

    def watch_pending(self, in_flight: int, ready: int) -> None:
        """Record how many mini-batches are in flight when the reader requests one."""
        self.pending.append(Pending(perf_counter_ns(), in_flight, ready))

    def watch_reader(self, minibatches: Iterator[Any]) -> Iterator[Any]:
        """Yield mini-batches, and record when the loop requests and receives each of them."""
        for handover, minibatch in timed(minibatches):
            self.handovers.append(handover)
            if len(self.handovers) % SIZES_TAKEN_OF == 1:
                self.count_bytes(minibatch)
            try:
                yield minibatch
            finally:
                self.ended = perf_counter_ns()

    def count_bytes(self, minibatch: Any) -> None:
        """Record the bytes of a mini-batch, and the rows of each feature in it."""
        tree = vars(minibatch) if isinstance(minibatch, MiniBatch) else getattr(minibatch, "to_dict", lambda: None)()
        self.sizes.append(count_bytes(tree or minibatch))
        if isinstance(minibatch, MiniBatch):
            for group in (minibatch.node_features or {}, *(minibatch.edge_features or ())):
                for name, tensor in group.items():
                    text = name if isinstance(name, str) else "/".join(map(str, name))
                    self.rows.setdefault(text, []).append((len(tensor), tensor.nbytes))


def timed(minibatches: Iterator[Any]) -> Iterator[tuple[LoopWait, Any]]:
    """Yield each mini-batch with the times when it was requested and received."""
    while True:
        asked = perf_counter_ns()
        try:
            minibatch = next(minibatches)
        except StopIteration:
            return
        given, key = perf_counter_ns(), getattr(minibatch, "key", None)
        yield LoopWait(asked, given, *((key.epoch, key.index) if isinstance(key, Key) else ())), minibatch


def bytes_read(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "io").read_text().splitlines()
    except OSError:
        # The system does not provide it.
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)


def thread_times(pids: Iterable[int]) -> dict[int, tuple[int, int]]:
    found = {}
    for pid in pids:
        # These files exist only on Linux; their times are in nanoseconds.
        for path in Path("/proc", str(pid), "task").glob("*/schedstat"):
            with suppress(OSError, ValueError):  # the thread has ended
                ran, waited, _ = map(int, path.read_text().split())
                found[int(path.parent.name)] = ran, waited
    return found


def find_caches(pipe: Datapipe, memories: Iterable[RowMemory] = ()) -> list[tuple[str, Cache]]:
    """Return the caches of the stages' graphs and features, and of a loader's memory, without duplicates.

    Each has the names of its users.
    """
    caches: dict[int, tuple[dict[str, None], Cache]] = {}
    for value in [*(value for stage in traverse(pipe) for value in vars(stage).values()), *memories]:
        for name, cache in value.list_caches() if hasattr(value, "list_caches") else ():
            caches.setdefault(id(cache), ({}, cache))[0][name] = None
    return [(", ".join(names), cache) for names, cache in caches.values()]
