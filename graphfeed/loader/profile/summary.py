"""The medians of what was measured, from which the verdict follows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphfeed.loader.profile.epoch_record import Counters, EpochRecord, Handover, Setting, StageRow
from graphfeed.loader.profile.recorder import UNKNOWN, Span

MS = 1e6
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True)
class StageTime:
    """What a stage takes for one mini-batch."""

    row: StageRow
    ms: float
    """The median, without what stages within it take."""
    p95_ms: float
    share: float
    """Of the time of all stages."""
    cpu: float
    """CPU seconds in each second of it; less than 1 where it waits: for a disk, a server, the interpreter's lock."""


@dataclass(frozen=True)
class Summary:
    """What a profile knows. Times are medians, in milliseconds per mini-batch, unless their names say otherwise."""

    setting: Setting
    num_minibatches: int
    seconds: float
    """From the first mini-batch that counts to the end of the last epoch; times of starting are left out."""
    first_seconds: float
    """How long the loop waited for the first mini-batch of the first epoch."""
    waits: float
    """The share of the time in which the loop waits for the loader."""
    step_ms: float
    """What the loop does with a mini-batch."""
    stages: tuple[StageTime, ...]
    worker_ms: float
    """The stages that workers run for a mini-batch, wall time."""
    worker_cpu_ms: float
    main_ms: float
    """The stages in the loop's own thread."""
    beside_ms: float
    """The stages in threads of the main process."""
    queue_ms: float
    """From the submission of a task until a worker begins."""
    request_ms: float
    """From a request to a server until its answer."""
    server_queue_ms: float
    """How long a request waits at a server for its turn."""
    transfer_ms: float
    """From the end of a worker's last stage until the result is here."""
    in_flight: float
    """How many mini-batches are in flight, on average."""
    ready: float
    """How many of them are done, on average."""
    num_bytes: float
    """Of a mini-batch, on average."""
    rows: dict[str, tuple[float, float]]
    """The rows and the bytes of each feature in a mini-batch, on average."""
    caches: dict[str, tuple[int, int]]
    """The hits and misses of each cache of this process."""
    num_replaced: int
    """How many workers died or hung."""
    read_bytes_per_second: float
    cores_used: float = 0.0
    """How many cores the threads of all processes had, on average."""
    core_wait: float = 0.0
    """The share of the time in which threads that could run waited for a core."""

    @property
    def rate(self) -> float:
        """Mini-batches per second."""
        return self.num_minibatches / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """The share of the time in which workers work (utilisation law); 0 without workers."""
        workers = self.setting.num_workers
        return min(1.0, self.rate * self.worker_ms / 1000 / workers) if workers else 0.0


class Stretch:
    """An epoch without its first mini-batches, for which too few were in flight."""

    def __init__(self, record: EpochRecord) -> None:
        setting = record.setting
        skipped = min(setting.most_in_flight + setting.num_workers + 1, len(record.handovers) // 2)
        self.handovers = record.handovers[skipped:]
        self.begin = self.handovers[0].asked if self.handovers else record.ended
        self.nanoseconds = max(record.ended - self.begin, 0)
        self.spans = [span for span in tuple(record.spans) if self.begin <= span.begin < record.ended]
        positions = {(row.position, row.name) for row in setting.stages if row.where in ("worker", "server")}
        self.asked = [span for span in self.spans if span.side and span.minibatch != UNKNOWN]
        """Requests to servers, and what these waited there."""
        self.worked: dict[tuple[int, int], list[Span]] = defaultdict(list)
        """The spans of workers for each mini-batch, by epoch and index."""
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
    """Return the medians of some epochs."""
    setting, stretches = records[0].setting, [Stretch(record) for record in records]
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
    first = next((record.handovers[0] for record in records if record.handovers), Handover(0, 0))
    return Summary(
        setting=setting,
        num_minibatches=len(handovers),
        seconds=seconds,
        first_seconds=(first.given - first.asked) / 1e9,
        waits=sum(handover.given - handover.asked for handover in handovers) / 1e9 / seconds if seconds else 0.0,
        step_ms=middle(step for stretch in stretches for step in stretch.steps),
        stages=stages,
        worker_ms=middle(sum(span.own for span in spans) / MS for spans in worked),
        worker_cpu_ms=middle(sum(span.cpu for span in spans) / MS for spans in worked),
        main_ms=sum(stage.ms for stage in stages if stage.row.where == "main"),
        beside_ms=sum(stage.ms for stage in stages if stage.row.where in ("thread", "prefetch")),
        queue_ms=middle((min(span.begin for span in spans) - trip.submitted) / MS for trip, spans in trips),
        request_ms=middle(span.own / MS for span in asked if span.side == "reader"),
        server_queue_ms=middle(span.own / MS for span in asked if span.side == "maker"),
        transfer_ms=middle((trip.arrived - max(span.end for span in spans)) / MS for trip, spans in trips),
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
    """Return what each stage takes for a mini-batch; a stage with a loop may be called more than once for one."""
    calls: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        if not span.side:
            calls[span.position, span.name].append(span)
    found = [(row, calls[row[:2]]) for row in rows if calls[row[:2]]]
    medians = [
        middle(span.own / MS for span in of_row) * max(1, round(len(of_row) / max(num_minibatches, 1)))
        for _, of_row in found
    ]
    total = sum(medians) or 1.0
    return tuple(
        StageTime(
            row,
            ms,
            middle((span.own / MS for span in of_row), 0.95),
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


def middle(values: Iterable[float], share: float = 0.5) -> float:
    """Return the value that a share of some values does not exceed, by default the median; 0 if there is none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
