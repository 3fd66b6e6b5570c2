"""Writes a profile in the trace format of Chrome, which Perfetto opens."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphfeed.loader.profile.epoch_record import EpochRecord
from graphfeed.loader.profile.recorder import FIRST_SERVER, Span
from graphfeed.storage.memory import new_file

US = 1000
"""Nanoseconds in a microsecond, the unit of timestamps."""
MOST_MINIBATCHES = 10_000
"""Viewers can't open files with more mini-batches."""

Track = tuple[int, int]
"""A track of a trace: process id and thread id, or numbers in their place."""


@dataclass
class Range:
    """A call, wait or step on a track, with its begin and end in nanoseconds."""

    track: Track
    name: str
    begin: int
    end: int
    arguments: dict[str, int] = field(default_factory=dict)


def write_trace(path: Path, records: Sequence[EpochRecord], into: Path | None) -> None:
    """Write the trace of some epochs atomically, merged with a trace of `torch.profiler` if that is given."""
    trace: dict[str, Any] = {"traceEvents": [], "displayTimeUnit": "ms"} if into is None else read_trace(into)
    base = trace.get("baseTimeNanoseconds", 0)
    left = MOST_MINIBATCHES
    # If there are too many mini-batches, only the latest ones are written.
    for number, record in reversed(list(enumerate(records))):
        # torch uses Unix times.
        shift = 0 if into is None else record.unix_time - base
        trace["traceEvents"] += trace_events(record, number, left, shift)
        left = max(0, left - len(record.handovers))
    data = json.dumps(trace).encode()
    content = gzip.compress(data) if path.suffix == ".gz" else data
    with new_file(path, len(content)) as file:
        file.write(content)


def read_trace(path: Path) -> dict[str, Any]:
    """Return a trace that `torch.profiler` wrote."""
    data = path.read_bytes()
    try:
        trace = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        if isinstance(trace["traceEvents"], list) and isinstance(trace.get("baseTimeNanoseconds", 0), int):
            return dict(trace)
    except (EOFError, KeyError, OSError, TypeError, ValueError):
        pass
    raise ValueError(f"into must be a trace written by torch.profiler (export_chrome_trace), but {path} is not")


def trace_events(
    record: EpochRecord, number: int = 0, most: int = MOST_MINIBATCHES, shift: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the trace events of an epoch: ranges of calls, waits and steps, arrows, a counter, and names."""
    handovers = record.handovers[max(0, len(record.handovers) - most) :]
    if not handovers:
        return
    start, loop = handovers[0].asked, (record.recorder.process, record.loop_thread)
    spans = [span for span in tuple(record.spans) if span.end >= start]
    # The last step may still be running.
    ends = [*(later.asked for later in handovers[1:]), max(record.ended, handovers[-1].given)]
    steps = [Range(loop, "step", handover.given, end) for handover, end in zip(handovers, ends, strict=True)]
    ranges = [*map(range_of, spans), *steps]
    keep_nested(ranges)

    def event(phase: str, name: str, time: int, track: Track, **more: Any) -> dict[str, Any]:
        return {"name": name, "ph": phase, "ts": (time + shift) / US, "pid": track[0], "tid": track[1], **more}

    for shown in ranges:
        took = (shown.end - shown.begin) / US
        yield event("X", shown.name, shown.begin, shown.track, dur=took, args=shown.arguments)
    calls = first_calls(span for span in spans if (span.process, span.thread) != loop)
    for handover in handovers:
        # `number` distinguishes this epoch from the others in the trace.
        arrow = {"cat": "mini-batch", "id": f"{number}.{handover.epoch}.{handover.minibatch}"}
        on_the_way = calls.get((handover.epoch, handover.minibatch), ())
        for place, span in enumerate(on_the_way):
            yield event("t" if place else "s", "mini-batch", span.begin, (span.process, span.thread), **arrow)
        if on_the_way:
            yield event("f", "mini-batch", handover.given, loop, bp="e", **arrow)
    for pending in record.pending:
        if pending.time >= start:
            counts = {"in flight": pending.in_flight - pending.ready, "ready": pending.ready}
            yield event("C", "in flight", pending.time, loop, args=counts)
    for place, track in enumerate(dict.fromkeys([loop, *(shown.track for shown in ranges)])):
        process, thread = track_names(track, loop, place)
        yield event("M", "process_name", start, track, args={"name": process})
        yield event("M", "thread_name", start, track, args={"name": thread})


def range_of(span: Span) -> Range:
    name = f"wait at {span.name}" if span.side else span.name
    arguments = {"epoch": span.epoch, "mini-batch": span.minibatch} if span.minibatch >= 0 else {}
    return Range((span.process, span.thread), name, span.begin, span.end, arguments)


def keep_nested(ranges: Iterable[Range]) -> None:
    """Cut ranges at the end of the range that they begin in, because viewers drop partial overlaps."""
    tracks: Mapping[Track, list[Range]] = defaultdict(list)
    for shown in ranges:
        tracks[shown.track].append(shown)
    # Ranges of a local thread are always nested. Those of a server may not be, as its clock is not known exactly.
    for of_track in tracks.values():
        around: list[int] = []
        for shown in sorted(of_track, key=lambda shown: (shown.begin, -shown.end)):
            while around and around[-1] <= shown.begin:
                around.pop()
            shown.end = min([shown.end, *around[-1:]])
            around.append(shown.end)


def first_calls(spans: Iterable[Span]) -> dict[tuple[int, int], list[Span]]:
    found: dict[tuple[int, int], dict[Track, Span]] = defaultdict(dict)
    for span in sorted(spans, key=lambda span: span.begin):
        if span.minibatch >= 0 and not span.side:
            found[span.epoch, span.minibatch].setdefault((span.process, span.thread), span)
    return {key: list(calls.values()) for key, calls in found.items()}


def track_names(track: Track, loop: Track, place: int) -> tuple[str, str]:
    """Return the names of a track's process and thread; `place` is the index of the track."""
    process, _ = track
    if process >= FIRST_SERVER:
        return f"sampling server {process - FIRST_SERVER}", f"thread {place}"
    if process == loop[0]:
        return "main process", "loop" if track == loop else f"thread {place}"
    return f"worker process {process}", "worker"
