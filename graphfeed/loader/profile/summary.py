"""Medians of the measurements, the input of the verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphfeed.loader.profile.epoch_record import Counters, EpochRecord, LoaderConfig, LoopWait, StageRow
from graphfeed.loader.profile.recorder import UNKNOWN, Span

MS = 1e6
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True)
class StageTime:
    """Time of a stage for one mini-batch."""

    row: StageRow
    ms: float
    """Median, without the time of nested stages."""
    p95_ms: float
    share: float
    """Share of the time of all stages."""
    cpu: float
    """CPU time per wall time; less than 1 if the stage waits for a disk, a server or the interpreter's lock."""


@dataclass(frozen=True)
class Summary:
    """Results of a profile. Times are medians in milliseconds per mini-batch, unless their names have another unit."""

    setting: LoaderConfig
    num_minibatches: int
    seconds: float
    """Total time of the measured epochs, each without its first mini-batches."""
    first_seconds: float
    """Time that the loop waited for the first mini-batch of the first epoch."""
    waits: float
    """Share of the time for which the loop waits for the loader."""
    step_ms: float
    """Time that the loop spends on a mini-batch."""
    stages: tuple[StageTime, ...]
    worker_ms: float
    """Wall time of the stages that run in workers."""
    worker_cpu_ms: float
    main_ms: float
    """Time of the stages in the loop's own thread."""
    beside_ms: float
    """Time of the stages in other threads of the main process."""
    queue_ms: float
    """Time from the submission of a task until a worker begins."""
    request_ms: float
    """Time from a request to a server until its response."""
    server_queue_ms: float
    """Time that a request waits in a server's queue."""
    transfer_ms: float
    """Time from the end of a worker's last stage until the result arrives."""
    in_flight: float
    """Mean number of mini-batches in flight."""
    ready: float
    """Mean number of mini-batches in flight that are done."""
    num_bytes: float
    """Mean size of a mini-batch."""
    rows: dict[str, tuple[float, float]]
    """Mean number of rows and bytes of each feature in a mini-batch."""
    caches: dict[str, tuple[int, int]]
    """Hits and misses of each cache of this process."""
    num_replaced: int
    """Number of workers that died or were killed."""
    read_bytes_per_second: float
    cores_used: float = 0.0
    """Mean number of cores that the threads of all processes used."""
    core_wait: float = 0.0
    """Share of the time for which runnable threads waited for a core."""

    @property
    def rate(self) -> float:
        """Mini-batches per second."""
        return self.num_minibatches / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """Share of the time for which workers work (utilisation law); 0 without workers."""
        workers = self.setting.num_workers
        return min(1.0, self.rate * self.worker_ms / 1000 / workers) if workers else 0.0


class SteadyPhase:
    """Measurements of an epoch without its first mini-batches, when too few mini-batches were in flight."""

    def __init__(self, record: EpochRecord) -> None:
        setting = record.setting
        skipped = min(setting.most_in_flight + setting.num_workers + 1, len(record.handovers) // 2)
        self.handovers = record.handovers[skipped:]
        self.begin = self.handovers[0].asked if self.handovers else record.ended
        self.nanoseconds = max(record.ended - self.begin, 0)
        self.spans = [span for span in tuple(record.spans) if self.begin <= span.begin < record.ended]
        positions = {(row.position, row.name) for row in setting.stages if row.where in ("worker", "server")}
        self.asked = [span for span in self.spans if span.side and span.minibatch != UNKNOWN]
        """Requests to servers, and the waits of requests in their queues."""
        self.worked: dict[tuple[int, int], list[Span]] = defaultdict(list)
        """Spans of workers for each mini-batch, by epoch and index."""
        for span in self.spans:
            if (span.position, span.name) in positions and span.minibatch != UNKNOWN:
                self.worked[span.epoch, span.minibatch].append(span)
        arrived = {(trip.epoch, trip.minibatch): trip for trip in record.trips}
        self.trips = [(arrived[key], spans) for key, spans in self.worked.items() if key in arrived]
        self.pending = [pending for pending in record.pending if pending.time >= self.begin]

    @property
    def steps(self) -> Iterator[float]:
        # In milliseconds.
        return ((later.asked - earlier.given) / MS for earlier, later in pairwise(self.handovers))


def summarise(records: Sequence[EpochRecord]) -> Summary:
    """Return the medians of the given epochs, which share one setting."""
    setting, stretches = records[0].setting, [SteadyPhase(record) for record in records]
    handovers = [handover for stretch in stretches for handover in stretch.handovers]
    seconds = sum(stretch.nanoseconds for stretch in stretches) / 1e9
    spans = [span for stretch in stretches for span in stretch.spans]
    stages = stage_times(setting.stages, spans, len(handovers))
    worked = [spans for stretch in stretches for spans in stretch.worked.values()]
    trips = [trip for stretch in stretches for trip in stretch.trips]
    asked = [span for stretch in stretches for span in stretch.asked]
    pending = [one for stretch in stretches for one in stretch.pending]
    counted = [record.after.since(record.before) for record in records]
    ran, waited = (sum(times[part] for one in counted for times in one.threads.values()) for part in (0, 1))
    whole = sum(record.ended - record.handovers[0].asked for record in records if record.handovers)
    first = next((record.handovers[0] for record in records if record.handovers), LoopWait(0, 0))
    return Summary(
        setting=setting,
        num_minibatches=len(handovers),
        seconds=seconds,
        first_seconds=(first.given - first.asked) / 1e9,
        waits=sum(handover.given - handover.asked for handover in handovers) / 1e9 / seconds if seconds else 0.0,
        step_ms=quantile(step for stretch in stretches for step in stretch.steps),
        stages=stages,
        worker_ms=quantile(sum(span.own for span in spans) / MS for spans in worked),
        worker_cpu_ms=quantile(sum(span.cpu for span in spans) / MS for spans in worked),
        main_ms=sum(stage.ms for stage in stages if stage.row.where == "main"),
        beside_ms=sum(stage.ms for stage in stages if stage.row.where in ("thread", "prefetch")),
        queue_ms=quantile((min(span.begin for span in spans) - trip.submitted) / MS for trip, spans in trips),
        request_ms=quantile(span.own / MS for span in asked if span.side == "reader"),
        server_queue_ms=quantile(span.own / MS for span in asked if span.side == "maker"),
        transfer_ms=quantile((trip.arrived - max(span.end for span in spans)) / MS for trip, spans in trips),
        in_flight=mean(one.in_flight for one in pending),
        ready=mean(one.ready for one in pending),
        num_bytes=mean(size for record in records for size in record.sizes),
        rows=average_rows(records),
        caches=add_caches(counted),
        num_replaced=sum(one.num_replaced for one in counted),
        read_bytes_per_second=sum(one.bytes_read for one in counted) / seconds if seconds else 0.0,
        cores_used=ran / max(whole, 1),
        core_wait=waited / (ran + waited + 1),
    )


def stage_times(rows: Sequence[StageRow], spans: Sequence[Span], num_minibatches: int) -> tuple[StageTime, ...]:
    """Return the time of each stage per mini-batch, for which a stage with a loop may be called more than once."""
    calls: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        if not span.side:
            calls[span.position, span.name].append(span)
    found = [(row, calls[row[:2]]) for row in rows if calls[row[:2]]]
    medians = [
        quantile(span.own / MS for span in of_row) * max(1, round(len(of_row) / max(num_minibatches, 1)))
        for _, of_row in found
    ]
    total = sum(medians) or 1.0
    return tuple(
        StageTime(
            row,
            ms,
            quantile((span.own / MS for span in of_row), 0.95),
            ms / total,
            min(1.0, sum(span.cpu for span in of_row) / max(sum(span.own for span in of_row), 1)),
        )
        for (row, of_row), ms in zip(found, medians, strict=True)
    )


def average_rows(records: Sequence[EpochRecord]) -> dict[str, tuple[float, float]]:
    counted: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        for name, counts in record.rows.items():
            counted[name].extend(counts)
    return {
        name: (mean(rows for rows, _ in counts), mean(size for _, size in counts)) for name, counts in counted.items()
    }


def add_caches(counted: Sequence[Counters]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for name, (hits, misses) in (pair for one in counted for pair in one.caches.items()):
        before = total.get(name, (0, 0))
        total[name] = (before[0] + hits, before[1] + misses)
    return total


def quantile(values: Iterable[float], share: float = 0.5) -> float:
    """Return a quantile of the values, by default the median; 0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
